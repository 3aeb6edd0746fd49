"""An hour of training and a million small distances, without growth in memory or file handles.

``BURES_SOAK_MINUTES`` shortens both, each to this long; the figures say how much it really was.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import shutil
import statistics
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from small_runs import RECIPES, adapt, domains

import bures
from bures.training import StopTraining

MINUTES = 60.0  # of training: one long run, then short ones in a row; and at most for the calls
CALLS = 1_000_000
LONG = 0.75  # share of the minutes that the long run gets

# What may be added between the beginning and the end, in MiB. Pages of which a part is in use cannot be given back, and
# a run keeps the rows of its log; what grows with every step, run or call is far beyond this in an hour.
ALLOWED = {"one long run": 16.0, "short runs": 16.0, "calls of ckb": 4.0}


def run(quick: bool, seed: int) -> dict:
    minutes = 2 / 60 if quick else float(os.environ.get("BURES_SOAK_MINUTES", MINUTES))
    count, seconds = 400 if quick else CALLS, 60 * minutes
    folder, figures = Path(tempfile.mkdtemp(prefix="bures-nightly-")), {"failures": []}
    if not quick and minutes != MINUTES:
        figures["command"] = f"BURES_SOAK_MINUTES={minutes:g} python tools/nightly.py soak --seed {seed}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # networks that learn for so long on so little collapse
            parts = {
                "calls of ckb": calls(count, seconds, seed),
                "one long run": long_run(folder, LONG * seconds, seed),
                "short runs": short_runs(folder, (1 - LONG) * seconds, seed),
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, (gauge, found) in parts.items():
        figures[name] = found | gauge.figures()
        figures["failures"] += [f"{name}: {fault}" for fault in gauge.faults(ALLOWED[name])]
    return figures


class Gauge:
    """Memory and file handles of this process over time, after a first tenth in which caches fill."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.memory: list[float] = []
        self.handles: list[int] = []

    def read(self) -> None:
        give_back_what_is_free()
        memory, handles = memory_and_handles()
        self.memory.append(memory)
        self.handles.append(handles)
        self.seconds = time.monotonic() - self.started

    def _ends(self) -> tuple[float, float]:
        """Median memory near the beginning and at the end."""
        tenth = max(1, len(self.memory) // 10)
        settled = self.memory[tenth : 3 * tenth + 1] or self.memory
        return statistics.median(settled), statistics.median(self.memory[-tenth:])

    def figures(self) -> dict:
        first, last = self._ends()
        return {
            "seconds": round(self.seconds, 1),
            "readings": len(self.memory),
            "memory_mib": [round(first, 1), round(last, 1)],
            "growth_mib": round(last - first, 2),
            "handles": [self.handles[len(self.handles) // 10], self.handles[-1]],
        }

    def faults(self, allowed: float) -> list[str]:
        figures, found = self.figures(), []
        if figures["growth_mib"] > allowed:
            found.append(f"memory grew by {figures['growth_mib']} MiB; {allowed} are allowed")
        if figures["handles"][1] > figures["handles"][0]:
            found.append(f"open files grew from {figures['handles'][0]} to {figures['handles'][1]}")
        return found


def give_back_what_is_free() -> None:
    """Collect cycles and return free pages to the system: what allocators keep for later use is no growth."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has this
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def memory_and_handles() -> tuple[float, int]:
    """MiB in memory and open files of this process; where there is no /proc, the most there ever were and none."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 0


def calls(count: int, seconds: float, seed: int) -> tuple[Gauge, dict]:
    """Small distances, half of them of torch tensors and with a gradient."""
    rng, gauge = np.random.default_rng(seed), Gauge()
    problems = []
    for _ in range(16):
        n, m = rng.integers(8, 16, size=2)
        xs, xt = rng.normal(size=(n, 3)), rng.normal(size=(m, 3)) + 0.5
        problems.append((xs, np.arange(n) % 3, xt, np.arange(m) % 3))
    tensors = [tuple(map(torch.as_tensor, problem)) for problem in problems]
    every, total, done, end = min(2000, count // 10), 0.0, 0, time.monotonic() + seconds
    for number, which in zip(range(count), itertools.cycle(range(16)), strict=False):
        if number % 2:
            xs, ys, xt, yt = tensors[which]
            xs = xs.clone().requires_grad_()
            bures.ckb(xs, ys, xt, yt).backward()
            total += float(xs.grad.sum())
        else:
            total += bures.ckb(*problems[which])
        done = number + 1
        if done % every == 0:
            gauge.read()
            if time.monotonic() >= end and done >= 10 * every:
                break
    return gauge, {"calls": done, "asked": count, "sum": total}


def long_run(folder: Path, seconds: float, seed: int) -> tuple[Gauge, dict]:
    """One run with checkpoints every second, ended from outside when the time is up."""
    gauge, end, steps = Gauge(), time.monotonic() + seconds, 0
    # Long epochs: a row of the log for each is kept on purpose.
    epoch = 20 if seconds < 60 else 500
    recipe = RECIPES["sgd"].override({"epochs": 10**6, "epoch": epoch, "seed": seed})

    def look(row):
        nonlocal steps
        steps = row["step"]
        gauge.read()
        if time.monotonic() >= end:
            raise StopTraining("the time is up")

    with suppress(StopTraining):
        adapt(*domains("sgd"), recipe, folder / "long", on_epoch=look, checkpoint_every=1.0)
    return gauge, {"steps": steps}


def short_runs(folder: Path, seconds: float, seed: int) -> tuple[Gauge, dict]:
    """One finished run after another in this process, as sweeps in one process make them."""
    gauge, end, names = Gauge(), time.monotonic() + seconds, itertools.cycle(RECIPES)
    for number in itertools.count():
        name = next(names)
        adapt(*domains(name), RECIPES[name].override({"seed": seed + number}), folder / f"run{number}")
        shutil.rmtree(folder / f"run{number}")
        gauge.read()
        if time.monotonic() >= end and number >= 2:
            return gauge, {"runs": number + 1}
