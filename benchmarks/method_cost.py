"""What each method costs: one training step against the step of a network on the source alone, in one run.

    python -m benchmarks.method_cost                                        # on this machine's CPU
    python -m benchmarks.method_cost --device cuda                          # on a GPU
    python -m benchmarks.method_cost --output benchmarks/results            # to publish; then tools/methods_page.py

Vectors of 512 features in ten classes, the paper's head with 512 features, batches of 32 and 128, defaults of every
method, all of its terms at work. A step is forward, loss, backward and optimiser; all but the source's own forward both
domains. Methods are timed in turns, block by block, each beside a block of the source, so that a change of the
machine's pace meets both; the ratio is that of the medians. CyCADA has no step on vectors: it is timed with LeNet on
images of 28 x 28 pixels, in its second stage, beside a step of that network on the source.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from benchmarks.manifest import write_manifest
from benchmarks.training_step import time_block
from bures.methods import Batch, OwnStep, OwnTraining, make_method, method_info, method_names
from bures.networks import Network, build_network

SAMPLES, FEATURES, CLASSES, SIDE = 1024, 512, 10, 28
BATCH_SIZES = (32, 128)
LATE = 100.0  # an epoch in which every term counts
REFERENCE = "source"
LEFT_OUT = ("target", "source+adabn")  # their training is that of the source


class Steps:
    """Training steps of one method on random samples: clusters of features, or images."""

    def __init__(self, name: str, batch_size: int, device: torch.device, *, images: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self.method, self.batch_size = make_method(name), batch_size
        labels = torch.arange(SAMPLES) % CLASSES
        shape = (1, SIDE, SIDE) if images else (FEATURES,)
        centres = torch.randn(CLASSES, *shape, generator=generator)
        noise = torch.randn(2, SAMPLES, *shape, generator=generator)
        samples = centres[labels] + noise + torch.tensor([0.0, 0.5]).reshape(2, 1, *(1 for _ in shape))
        self.x_s, self.x_t = (samples.sigmoid() if images else samples).to(device)
        self.y_s = labels.to(device)
        size = {"image_size": SIDE} if images else {"in_features": FEATURES}
        network = build_network("lenet" if images else "identity", CLASSES, features=FEATURES, seed=0, **size)
        self.network: Network = network.to(device).train()
        self.method.prepare(self.network, shape)
        self.method.setup(FEATURES, CLASSES)
        self.method.to(device).train()
        parameters = [*self.network.parameters(), *self.method.shared_parameters()]
        self.optimisers = {"network": torch.optim.Adam(parameters, lr=1e-4, fused=device.type == "cuda")}
        if isinstance(self.method, OwnTraining):
            self.optimisers |= self.method.make_optimisers()
        self.number = 0

    def __call__(self) -> None:
        start = self.number * self.batch_size % SAMPLES
        rows = slice(start, start + self.batch_size)
        x_s, y_s, x_t = self.x_s[rows], self.y_s[rows], self.x_t[rows]
        self.number += 1
        if isinstance(self.method, OwnTraining):
            self._own(x_s, y_s, x_t)
            return
        z_s, logits_s = self.network(x_s)
        loss = cross_entropy(logits_s, y_s)
        if self.method.needs_target:
            loss = loss + self.method(Batch(z_s, logits_s, y_s, *self.network(x_t)), LATE).total
        self._update("network", loss)

    def _own(self, x_s: torch.Tensor, y_s: torch.Tensor, x_t: torch.Tensor) -> None:
        assert isinstance(self.method, OwnTraining)

        def forward(first: torch.Tensor, second: torch.Tensor) -> Batch:
            return Batch(*self.network(first), y_s, *self.network(second))

        number = 4 if self.number == 1 else 5  # of twenty: the second stage, which begins in the fourth and only once
        self.method.step(
            OwnStep(
                number=number,
                n_steps=20,
                x_s=x_s,
                y_s=y_s,
                x_t=x_t,
                network=self.network,
                normalise=lambda x: x,
                forward=forward,
                cross_entropy=cross_entropy,
                update=self._update,
            )
        )

    def _update(self, name: str, loss: torch.Tensor, rate: float = 1.0) -> None:
        optimiser = self.optimisers[name]
        optimiser.zero_grad()
        loss.backward(inputs=[p for group in optimiser.param_groups for p in group["params"]])
        optimiser.step()


def measure(batch_size: int, device: torch.device, blocks: int, length: int) -> list[dict]:
    """Median milliseconds of a step of every method, and of the source beside it."""
    names = [name for name in method_names() if method_info(name).paper and name not in (REFERENCE, *LEFT_OUT)]
    steps: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {}
    references = {images: Steps(REFERENCE, batch_size, device, images=images) for images in (False, True)}
    for name in names:
        images = make_method(name).owns_training
        steps[name] = (Steps(name, batch_size, device, images=images), references[images])
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    for pair in steps.values():
        for step in pair:
            for _ in range(12):  # warm-up: algorithms are chosen, the CUDA graph of a loss is captured
                step()
    lengths = {name: 1 if make_method(name).owns_training else length for name in names}  # images take long
    for _ in range(blocks):
        for name, pair in steps.items():
            for step, found in zip(pair, times[name], strict=True):
                found.append(time_block(step, device, lengths[name]))
    rows = []
    for name, found in times.items():
        own, source = (1e3 * statistics.median(values) for values in found)
        images = make_method(name).owns_training
        row = {"method": name, "batch_size": batch_size, "samples": "images" if images else "vectors"}
        rows.append({**row, "step_ms": own, "source_ms": source, "ratio": own / source, "blocks": blocks})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--blocks", type=int, default=20, help="timed blocks of each method")
    parser.add_argument("--length", type=int, default=5, help="steps in a block")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"), help="folder for the JSON file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device, *([0] if arguments.device == "cuda" else []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [row for n in BATCH_SIZES for row in measure(n, device, arguments.blocks, arguments.length)]
    table = Table(
        "method", "batch", "step ms", "source ms", "ratio", title=f"A step of each method, {arguments.device}"
    )
    for row in results:
        cells = [f"{row['step_ms']:.2f}", f"{row['source_ms']:.2f}", f"{row['ratio']:.2f}"]
        table.add_row(row["method"], str(row["batch_size"]), *cells)
    Console().print(table)
    options = f"--device {arguments.device} --blocks {arguments.blocks} --length {arguments.length}"
    setting = {"features": FEATURES, "classes": CLASSES, "image_side": SIDE}
    command = f"python -m benchmarks.method_cost {options}"
    write_manifest(arguments.output, "method-cost", command, device, results, setting=setting)


if __name__ == "__main__":
    main()
