"""An hour of training without growth in memory or file handles; `soak_calls` is the same for single distances.

``BURES_SOAK_MINUTES`` makes it shorter or longer; the figures say how much it really was.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

from small_runs import RECIPES, adapt, domains

from bures.training import StopTraining
from tests.nightly import _gauge
from tests.nightly._gauge import Gauge

MINUTES = 60.0  # one long run, then short ones in a row
LONG = 0.75  # share of the minutes that the long run gets

# What may be added between the beginning and the end, in MiB. Pages of which a part is in use cannot be given back, and
# a run keeps the rows of its log; what grows with every step or run is far beyond this in an hour.
ALLOWED = 16.0


def run(quick: bool, seed: int) -> dict:
    seconds = 2.0 if quick else 60 * float(os.environ.get(_gauge.MINUTES, MINUTES))
    folder, figures = Path(tempfile.mkdtemp(prefix="bures-nightly-")), {"failures": []}
    figures |= {} if quick else _gauge.command("soak", seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # networks that learn for so long on so little collapse
            parts = {
                "one long run": long_run(folder, LONG * seconds, seed),
                "short runs": short_runs(folder, (1 - LONG) * seconds, seed),
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, (gauge, found) in parts.items():
        figures[name] = found | gauge.figures()
        figures["failures"] += [f"{name}: {fault}" for fault in gauge.faults(ALLOWED)]
    return figures


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
