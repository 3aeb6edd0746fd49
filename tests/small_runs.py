"""Trainings of a second for the tests of the trainer, also in processes of their own that can be killed.

A process is told to stop at a named place: ``Trap("bures.training._session", "Session.finish", 1, "kill")`` kills it
with SIGKILL when the function is called for the first time.
"""

import csv
import importlib
import io
import json
import multiprocessing
import os
import resource
import signal
import time
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from bures import training
from bures.data import Domain, TensorSamples
from bures.methods import Method, Schedule, Term, method_names, register
from bures.training import Recipe, StoppedBySignal, TrainingError

adapt = partial(training.adapt, accelerator="cpu")
CLASSES = ("circle", "cross", "line", "point")


def pictures(n, *, seed, name="pictures", classes=4, size=8, shift=0, labelled=True):
    """Grey pictures of a few classes: a pattern for each, with noise and a brighter ground by ``shift``."""
    patterns = torch.rand(classes, 1, size, size, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    noise = torch.rand(n, 1, size, size, generator=generator)
    images = (140 * patterns[labels] + 60 * noise + shift).clamp(0, 255).to(torch.uint8)
    return Domain(name, TensorSamples(images), CLASSES[:classes], labels if labelled else None)


def vectors(n, *, seed, name="vectors", classes=4, d=6, shift=0.0, labelled=True):
    """Feature vectors around a centre for each class."""
    centres = 3 * torch.randn(classes, d, generator=torch.Generator().manual_seed(7))
    labels = torch.arange(n) % classes
    noise = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return Domain(name, TensorSamples(centres[labels] + noise + shift), CLASSES[:classes], labels if labelled else None)


class NoisyMeans(Term):
    """A toy term with dropout and a parameter of its own: the distance of the mean features, seen through a gate."""

    def __init__(self):
        super().__init__("means", Schedule(1.0))
        self.gate = nn.Parameter(torch.ones(8))
        self.dropout = nn.Dropout(0.5)

    def forward(self, batch):
        seen = (self.dropout(self.gate * z).mean(dim=0) for z in (batch.z_s, batch.z_t))
        return (next(seen) - next(seen)).square().sum()


if "toy" not in method_names():
    register("toy")(lambda: Method("toy", [NoisyMeans()]))

SMALL = {"epochs": 2, "hidden": 16, "features": 8, "batch_size": 16}

# What is trained in the tests of resumption: three steps in an epoch, two epochs.
RECIPES = {
    "adam": Recipe(method="toy", network="lenet", augment="affine", consistency=0.3, optimiser="adam", **SMALL),
    "sgd": Recipe(
        method="ckw",
        network="lenet",
        optimiser="sgd",
        schedule="inverse",
        schedule_gamma=0.1,
        queue=20,
        class_balanced=True,
        joint_forward=True,
        gradient_clip=1.0,
        evaluation_batchnorm="target",
        **SMALL,
    ),
    "vectors": Recipe(method="ckb", schedule="cosine", **SMALL),
}
STEPS_PER_EPOCH = 3


def domains(name):
    if name == "vectors":
        return vectors(56, seed=1, name="here"), vectors(50, seed=2, name="there", shift=0.5)
    return pictures(56, seed=1, name="here"), pictures(50, seed=2, name="there", shift=30)


class Trap(NamedTuple):
    """Where a process stops: at which call of which function, and how."""

    module: str
    function: str
    call: int
    action: str


def _set(trap, marker):
    owner = importlib.import_module(trap.module)
    *path, name = trap.function.split(".")
    for part in path:
        owner = getattr(owner, part)
    original, calls = getattr(owner, name), 0

    def trapped(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == trap.call or trap.call == 0:
            _spring(trap.action, marker, original, args)
        return original(*args, **kwargs)

    setattr(owner, name, trapped)


def _spring(action, marker, original, args):
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    elif action == "int":
        os.kill(os.getpid(), signal.SIGINT)
    elif action == "wait":  # until something from outside has happened
        marker.touch()
        while marker.exists():
            time.sleep(0.005)
    elif action == "half":  # args are those of torch.save: write half of the file and wait to be killed
        content, stream = args
        buffer = io.BytesIO()
        original(content, buffer)
        stream.write(buffer.getvalue()[: buffer.tell() // 2])
        stream.flush()
        os.fsync(stream.fileno())
        marker.touch()
        time.sleep(60)
    elif action.startswith("limit "):  # no file may grow beyond this many bytes from now on
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(action.split()[1]), resource.RLIM_INFINITY))
    else:
        raise ValueError(action)


def run_here(folder, name, **options):
    """A run of one of the recipes, in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return adapt(*domains(name), RECIPES[name], folder, **options)


def _run(folder, name, trap, marker, options):
    torch.set_num_threads(1)
    if trap is not None:
        _set(trap, marker)
    try:
        run_here(folder, name, **options)
    except (StoppedBySignal, TrainingError) as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        marker.write_text(f"{type(error).__name__}: {error}")
        raise SystemExit(3) from None


class Child:
    """A run in a process of its own; ``message`` is the error it ended with."""

    def __init__(self, folder, name, trap=None, **options):
        self.marker = Path(f"{folder}.marker")
        self.marker.unlink(missing_ok=True)
        options.setdefault("checkpoint_every", 0.0)
        self.process = context().Process(target=_run, args=(folder, name, trap, self.marker, options))
        self.process.start()

    def wait(self):
        self.process.join(60)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def wait_for_marker(self):
        end = time.monotonic() + 60
        while not self.marker.exists():
            assert self.process.is_alive()
            assert time.monotonic() < end
            time.sleep(0.01)

    @property
    def message(self):
        return self.marker.read_text()


def context():
    """Processes that begin with torch and Lightning loaded, and nothing computed."""
    forking = multiprocessing.get_context("forkserver")
    # Names of `bures.training` load on first use; a child would take seconds for Lightning.
    forking.set_forkserver_preload(["bures.training._adapt", "small_runs"])
    return forking


def in_processes(function, n, folder, *args):
    """What ``function(*args)`` returns in each of n processes that can talk to each other (gloo)."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = [context().Process(target=_in_group, args=(rank, n, folder, function, args)) for rank in range(n)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * n
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(n)]


def _in_group(rank, n, folder, function, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=n)
    try:
        torch.save(function(*args), folder / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def outcome(folder):
    """All that a run comes to, but for the time it took; weights and buffers as bytes."""
    folder = Path(folder)
    found = {
        name: (folder / name).read_bytes()
        for name in ("model.safetensors", "best.safetensors", "predictions.csv", "confusion.csv", "recipe.yaml")
    }
    # The order of a header with several entries is not fixed, so these are compared as they are read.
    kept = load_file(folder / "samples.safetensors")
    found["samples"] = {name: values.numpy().tobytes() for name, values in kept.items()}
    with open(folder / "log.csv", newline="") as file:
        found["log"] = [{key: cell for key, cell in row.items() if key != "seconds"} for row in csv.DictReader(file)]
    manifest = json.loads((folder / "manifest.json").read_text())
    final = {key: value for key, value in manifest["final"].items() if key != "seconds"}
    return found | {"status": manifest["status"], "final": final, "notes": manifest["notes"]}


def differences(folder, other):
    """Names of what two runs came to and that is not the same."""
    a, b = outcome(folder), outcome(other)
    return [name for name in a if a[name] != b[name]]
