"""What the sections on faults share: commands in processes that begin warm, and whether files can be read."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file
from small_runs import vectors

from bures.data import write_features

# Loaded once by the process that the others are forked from: a command would take seconds for them.
PRELOADED = [
    *("bures.cli.adapt", "bures.cli.bench", "bures.networks._torchvision", "torchvision.models"),
    *("bures.training._adapt", "bures.experiments", "bures.report._write", "small_runs"),
]

# A network of some dozens of weights that makes three steps in an epoch.
TINY = {"epochs": 5, "epoch": 3, "batch_size": 16, "hidden": 16, "features": 8}


def context():
    """Processes that begin with everything loaded and nothing computed."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(PRELOADED)
    return forking


def _enter(function, args, log, temporary):
    torch.set_num_threads(1)
    if log is not None:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
    if temporary is not None:
        tempfile.tempdir = str(temporary)
    function(*args)


def begin(function, *args, log=None, temporary=None):
    """Start a process that calls a function; what it prints goes to the end of ``log``."""
    process = context().Process(target=_enter, args=(function, args, log, temporary))
    process.start()
    return process


def command_line(*words):
    """The command line, in this process."""
    import bures.cli

    sys.argv = ["bures", *map(str, words)]
    bures.cli.main()


def finish(process, seconds=600):
    """The exit code of a process; one that does not end is killed, and counts as such."""
    process.join(seconds)
    if process.exitcode is None:
        kill(process)
    return process.exitcode


def kill(process):
    """Kill a process; False where it had ended."""
    late = process.exitcode is not None
    if not late:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return not late and process.exitcode == -signal.SIGKILL


def seconds_of(action):
    """How long something takes, and what it returns."""
    start = time.monotonic()
    value = action()
    return time.monotonic() - start, value


def kill_at_random(process, longest, generator: random.Random):
    """Kill a process at a random moment of the time that it takes when it is left alone; False where it came first."""
    process.join(generator.uniform(0, longest))
    return kill(process)


def write_pair(folder):
    """Two small domains of feature vectors as files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_features(folder / "here.npz", vectors(56, seed=1, name="here"))
    write_features(folder / "there.npz", vectors(50, seed=2, name="there", shift=0.5))
    return folder / "here.npz", folder / "there.npz"


def tiny_options():
    """The options of the command line that make a run small."""
    return [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]


def unreadable(folder):
    """Files that cannot be read to their end, though they have their names already."""
    found = []
    for path in sorted(Path(folder).rglob("*")):
        if not path.is_file() or path.suffix == ".partial" or "tensorboard" in path.parts:
            continue
        try:
            READERS.get(path.suffix, Path.read_bytes)(path)
        except Exception as error:
            found.append(f"{path.name}: {type(error).__name__}: {error}")
    return found


def _read_csv(path):
    text = path.read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))
    if not text.endswith("\n") or len({len(row) for row in rows}) != 1:
        raise ValueError("it is cut off")


def _read_html(path):
    if not path.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise ValueError("it is cut off")


READERS = {
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".yaml": lambda path: yaml.safe_load(path.read_text(encoding="utf-8")),
    ".safetensors": load_file,
    ".ckpt": lambda path: torch.load(path, weights_only=True),
    ".csv": _read_csv,
    ".html": _read_html,
}
