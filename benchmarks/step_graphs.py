"""What replaying training steps as CUDA graphs saves: whole trainings with and without, in one run.

    python -m benchmarks.step_graphs                       # on a GPU; --device cpu, where nothing is captured, tries it

A head on 2048 features and a LeNet are trained by several methods. A step's time is that of the epochs after the first,
in which graphs are captured, as the manifest has it: data, optimiser and the trainer's overhead included. Trainings
with and without take turns; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import warnings
from itertools import pairwise
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.manifest import write_manifest
from bures.data import Domain, TensorSamples
from bures.training import Recipe, adapt

SETTINGS = {
    "head": {"network": "identity", "batch_size": 64, "shape": (2048,)},
    "lenet": {"network": "lenet", "batch_size": 128, "shape": (1, 28, 28)},
}
METHODS = ("source", "entropy", "ckb", "ckw", "dann")
CLASSES = 10
EPOCHS = 4


def make_domain(name: str, shape: tuple[int, ...], seed: int, n: int = 1024) -> Domain:
    """Samples of ten classes: bytes for images, numbers for features."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % CLASSES
    centres = torch.rand(CLASSES, *shape, generator=torch.Generator().manual_seed(7))
    samples = (centres[labels] + torch.rand(n, *shape, generator=generator)) / 2
    if len(shape) == 3:
        samples = (255 * samples).to(torch.uint8)
    return Domain(name, TensorSamples(samples), [str(label) for label in range(CLASSES)], labels)


def milliseconds(setting: dict, method: str, device: str, steps: int, *, captured: bool, folder: Path) -> list[float]:
    """Time of a step in each epoch but the first."""
    chosen = {name: setting[name] for name in ("network", "batch_size")}
    recipe = Recipe(method=method, epochs=EPOCHS, epoch=steps, cuda_graphs=captured, **chosen)
    source, target = (make_domain(name, setting["shape"], seed) for seed, name in enumerate(("source", "target")))
    accelerator = "gpu" if device == "cuda" else "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what such data teach a network is not the question
        run = adapt(source, target, recipe, folder, accelerator=accelerator, progress=False, keep_files=False)
    ends = [row["seconds"] for row in run.manifest["epochs"]]
    return [1e3 * (end - begin) / steps for begin, end in pairwise(ends)]


def measure(name: str, method: str, device: str, steps: int, rounds: int) -> dict:
    """Median milliseconds of a step with and without graphs."""
    times: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="bures-benchmark-") as folder:
        for turn in range(rounds):
            for captured in (False, True):
                path = Path(folder) / f"{turn}-{captured}"
                times[captured] += milliseconds(SETTINGS[name], method, device, steps, captured=captured, folder=path)
    replayed, launched = (statistics.median(times[captured]) for captured in (True, False))
    return {
        "network": name,
        "method": method,
        "batch_size": SETTINGS[name]["batch_size"],
        "replayed_ms": replayed,
        "launched_ms": launched,
        "ratio": launched / replayed,
        "epochs": len(times[True]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--rounds", type=int, default=2, help="trainings of each kind")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"), help="folder for the JSON file")
    arguments = parser.parse_args()
    device = arguments.device
    table = Table("network", "method", "launched ms", "replayed ms", "ratio", title=f"A training step, {device}")
    results = []
    for name in SETTINGS:
        for method in METHODS:
            row = measure(name, method, device, arguments.steps, arguments.rounds)
            results.append(row)
            table.add_row(name, method, f"{row['launched_ms']:.2f}", f"{row['replayed_ms']:.2f}", f"{row['ratio']:.1f}")
    Console().print(table)
    command = (
        f"python -m benchmarks.step_graphs --device {device} --steps {arguments.steps} --rounds {arguments.rounds}"
    )
    write_manifest(arguments.output, "step-graphs", command, device, results)


if __name__ == "__main__":
    main()
