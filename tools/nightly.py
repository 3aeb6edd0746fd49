"""Run the long campaigns: faults, soaks and fuzzing, each in a process of its own; `make nightly` runs them all.

A section is a file in tests/nightly with a function ``run(quick, seed)`` that returns figures and lists what it found
under "failures". Its outcome goes to results/nightly/SECTION.json (with --quick to outputs/nightly), with the versions
and the machine. The exit code is 1 where something was found.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import shlex
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "nightly"
ENDED = (0, 3)  # exit codes of a section that has found nothing, or something; 1 is that of any error of Python's


def sections(folder: Path = FOLDER) -> list[str]:
    """Names of the files that have a function ``run`` at their top; nothing is imported."""
    found = []
    for path in sorted(folder.glob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in body):
            found.append(path.stem)
    return found


def load(name: str) -> Any:
    """The module of a section; it finds the helpers of the tests and the tools of the repository."""
    for folder in (ROOT / "tests", ROOT):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(f"tests.nightly.{name}")


def run_here(name: str, quick: bool, seed: int, file: Path) -> bool:
    """Run a section in this process and write what it found; True where it found nothing wrong."""
    started = time.monotonic()
    try:
        found = load(name).run(quick, seed)
    except Exception as error:
        traceback.print_exc()
        found = {"failures": [f"{type(error).__name__}: {error}"]}
    write(name, quick, seed, file, {"seconds": round(time.monotonic() - started, 1)} | found)
    return not found["failures"]


def write(name: str, quick: bool, seed: int, file: Path, found: dict[str, Any]) -> None:
    """Write the outcome of a section, whole or not at all, with how it came about."""
    from bures.files import write_json
    from bures.provenance import hardware, versions

    manifest: dict[str, Any] = {"section": name, "command": command(name, quick, seed), "quick": quick, "seed": seed}
    manifest |= {"versions": versions(), "hardware": hardware()}
    write_json(file, manifest | found)


def command(name: str, quick: bool, seed: int) -> str:
    """What repeats the section."""
    words = ["python", "tools/nightly.py", name, *(["--quick"] if quick else []), "--seed", str(seed)]
    return shlex.join(words)


def run_apart(name: str, quick: bool, seed: int, folder: Path) -> int:
    """Run a section in a process of its own: its exit code, which is one of `ENDED` unless the process has died."""
    words = [sys.executable, __file__, name, "--here", "--seed", str(seed), "--output", str(folder)]
    # One thread: numbers then do not depend on how many cores are free.
    environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}
    started = time.monotonic()
    code = subprocess.run([*words, *(["--quick"] if quick else [])], env=environment).returncode
    if code not in ENDED:
        failure = f"the section ended with exit code {code} and told nothing"
        found = {"seconds": round(time.monotonic() - started, 1), "failures": [failure]}
        write(name, quick, seed, folder / f"{name}.json", found)
    return code


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="only these (default: all)")
    parser.add_argument("--quick", action="store_true", help="seconds for each section instead of up to an hour")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    parser.add_argument("--output", type=Path, help="folder (default: results/nightly, with --quick outputs/nightly)")
    parser.add_argument("--list", action="store_true", help="list the sections and run nothing")
    parser.add_argument("--here", action="store_true", help="in this process, one section")
    chosen = parser.parse_args(arguments)
    known = sections()
    if chosen.list:
        print("\n".join(known))
        return 0
    if unknown := [name for name in chosen.sections if name not in known]:
        parser.error(f"no section is called {unknown[0]!r}; accepted are {', '.join(known)}")
    folder = chosen.output or ROOT / ("outputs" if chosen.quick else "results") / "nightly"
    folder.mkdir(parents=True, exist_ok=True)
    if chosen.here:
        (name,) = chosen.sections
        return ENDED[not run_here(name, chosen.quick, chosen.seed, folder / f"{name}.json")]
    bad = False
    for name in chosen.sections or known:
        print(f"{name} ...", end=" ", flush=True)
        started = time.monotonic()
        code = run_apart(name, chosen.quick, chosen.seed, folder)
        words = "nothing found" if code == ENDED[0] else f"see {folder / name}.json"
        print(f"{words} ({time.monotonic() - started:.0f} s)", flush=True)
        bad = bad or code != 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
