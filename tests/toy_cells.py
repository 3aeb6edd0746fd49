"""Cells of a sweep that train nothing: they leave a mark for every time they are run."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bures.experiments import run_sweep
from bures.training._signals import ECHO

kept = []  # by this process, from cell to cell


@dataclass(frozen=True)
class ToyCell:
    name: str
    folder: str
    seconds: float = 0.0
    fate: str = "finish"

    method = "toy"

    @property
    def key(self):
        return self.name

    @property
    def command(self):
        return f"toy {self.name}"

    def run(self, data_root, accelerator, unfinished):
        with open(Path(self.folder, f"{self.name}.mark"), "a") as stream:
            stream.write("x")
        Path(self.folder, f"{os.getpid()}.pid").touch()
        for number in range({"ask": 1, "echo": 2, "insist": 2}.get(self.fate, 0)):
            time.sleep(1.5 * ECHO if number and self.fate == "insist" else 0)
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.seconds)
        seen = Path(self.folder, "seen")
        if self.fate == "mark":
            seen.touch()
        patience = time.monotonic() + 60
        while self.fate == "wait" and not seen.exists() and time.monotonic() < patience:
            time.sleep(0.01)
        if self.fate == "grow":
            kept.append(b"x" * 320_000_000)
        if self.fate == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fate == "raise":
            raise ValueError("nothing to be done")
        import torch._inductor.config as inductor  # a name of the script itself would travel to its processes by value

        return {"key": self.key, "long": "y" * 20_000, "compilers": inductor.compile_threads}


def marks(folder):
    """How often each cell was begun."""
    return {path.stem: len(path.read_text()) for path in Path(folder).glob("*.mark")}


def survivors(folder):
    """Processes in which cells were run that still live; where there is no /proc, none are seen."""
    states = [Path("/proc", path.stem, "stat") for path in Path(folder).glob("*.pid")]
    return [path for path in states if path.is_file() and path.read_text().rpartition(")")[2].split()[0] not in "ZX"]


def cells(folder, n, seconds):
    return [ToyCell(f"cell{number:02}", str(folder), seconds) for number in range(n)]


if __name__ == "__main__":  # folder, ledger, number of cells, seconds, processes
    folder, ledger, n, seconds, jobs = sys.argv[1:]
    run_sweep(cells(folder, int(n), float(seconds)), ledger, n_jobs=int(jobs))
