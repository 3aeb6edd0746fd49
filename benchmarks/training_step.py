"""What the alignment costs: a training step with CKB against the same step without it, in one run.

    python -m benchmarks.training_step                     # LeNet on this machine's CPU
    python -m benchmarks.training_step --device cuda       # LeNet and ResNet-50 on a GPU

Both steps forward both domains and differ in the alignment term alone (method `ckb` against `entropy`). They are timed
in turns, block by block, so that a change of the machine's pace meets both; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.manifest import write_manifest
from bures.data import Domain, TensorSamples
from bures.training import AdaptationModule, PairData, Recipe, assemble

SETTINGS = {
    "lenet": {"network": "lenet", "batch_size": 128, "side": 28, "channels": 1, "precision": "32-true"},
    "resnet50": {"network": "resnet50", "batch_size": 32, "side": 256, "channels": 3, "precision": "bf16-mixed"},
}


def make_step(setting: dict, method: str, device: torch.device) -> Callable[[], None]:
    """One training step on random images, as the trainer makes it."""
    generator = torch.Generator().manual_seed(0)
    n, shape = 8 * setting["batch_size"], (setting["channels"], setting["side"], setting["side"])
    images = torch.randint(256, (n, *shape), dtype=torch.uint8, generator=generator)
    classes = [str(label) for label in range(10)]
    source = Domain("source", TensorSamples(images), classes, torch.arange(n) % 10)
    target = Domain("target", TensorSamples(images.flip(0)), classes)
    chosen = {name: setting[name] for name in ("network", "batch_size", "precision")}
    recipe = Recipe(method=method, epoch=10**6, epochs=1, **chosen)
    data = PairData(source, target, recipe)
    data.move(device)
    _, network, inputs = assemble(recipe, 10, shape, shape)
    module = AdaptationModule(network, recipe.build_method(), inputs, recipe, data.steps_per_epoch, 10**6).to(device)
    if device.type == "cuda" and setting["network"] != "lenet":
        module.to(memory_format=torch.channels_last)
    optimiser = module.configure_optimizers()["optimizer"]
    batches = iter(data.train_dataloader())

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=setting["precision"] == "bf16-mixed"):
            loss = module.training_step(next(batches), 0)
        loss.backward()
        optimiser.step()

    return step


def measure(name: str, device: torch.device, seconds: float) -> dict:
    """Median milliseconds of a step with and without the alignment."""
    setting = SETTINGS[name]
    steps = {method: make_step(setting, method, device) for method in ("ckb", "entropy")}
    times: dict[str, list[float]] = {method: [] for method in steps}
    for step in steps.values():
        for _ in range(12):  # warm-up: algorithms are chosen, the CUDA graph of the loss is captured
            step()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times["ckb"]) < 5:
        for method, step in steps.items():
            times[method].append(time_block(step, device))
    with_ckb, without = (1e3 * statistics.median(times[method]) for method in ("ckb", "entropy"))
    described = {key: setting[key] for key in ("network", "batch_size", "precision")}
    return {
        **described,
        "ckb_ms": with_ckb,
        "without_ms": without,
        "ratio": with_ckb / without,
        "blocks": len(times["ckb"]),
    }


def time_block(step: Callable[[], None], device: torch.device, length: int = 10) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(length):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring for each network")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"), help="folder for the JSON file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device, *([0] if arguments.device == "cuda" else []))
    names = ["lenet"] if arguments.device == "cpu" else list(SETTINGS)
    results = [measure(name, device, arguments.seconds) for name in names]
    table = Table("network", "batch", "step ms", "without ms", "ratio", title=f"A step with CKB, {arguments.device}")
    for row in results:
        cells = [f"{row['ckb_ms']:.1f}", f"{row['without_ms']:.1f}", f"{row['ratio']:.2f}"]
        table.add_row(row["network"], str(row["batch_size"]), *cells)
    Console().print(table)
    command = f"python -m benchmarks.training_step --device {arguments.device} --seconds {arguments.seconds:g}"
    write_manifest(arguments.output, "training-step", command, device, results)


if __name__ == "__main__":
    main()
