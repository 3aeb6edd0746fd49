"""Images per second of training: with the alignment, without it, and in a plain loop as torchvision's users write it.

    python -m benchmarks.throughput                                   # ResNet-50 on this machine's CPU: slow
    python -m benchmarks.throughput --network lenet                   # a small network instead
    python -m benchmarks.throughput --device cuda --data-root DIR     # ResNet-50 on Office10's photographs

Three trainings of the same network in the same precision, with images that lie in memory and BatchNorm of the backbone
at its own statistics. On a GPU the library compiles the backbone, unless ``--eager`` is given.

``ckb``      the library's loop (Lightning, with random windows made for a whole batch), both domains, CKB between them
``without``  the same loop and the same images, without the alignment term (method `entropy`)
``plain``    a data loader whose worker processes make the windows with torchvision's transforms, image by image;
             forward, cross-entropy, backward, optimiser, on as many images of the source

They take turns, round by round, so that a change of the machine's pace meets all. In each round a loop is built anew,
makes some steps that are not timed, in which algorithms are chosen and the CUDA graph of the loss is captured, and then
those that count: between CUDA events on a GPU, by the clock elsewhere. Rates are medians over rounds; the ratio is the
time of a step with the alignment over that without. Without ``--data-root`` the images are noise.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.transforms import v2

from benchmarks.manifest import write_manifest
from benchmarks.report import RESULTS
from bures.data import Domain, TensorSamples, load_domain
from bures.networks import Network
from bures.training import AUGMENTATIONS, AdaptationModule, PairData, Recipe, assemble
from bures.training._inputs import Inputs
from bures.training._quiet import quiet

CONTESTANTS = ("ckb", "without", "plain")
METHODS = {"ckb": "ckb", "without": "entropy"}
DOMAINS = ("office10/amazon", "office10/caltech")
CLASSES = 10
SIDES = {"lenet": (28, 32)}  # of the network's images and of the stored ones; (224, 256) for others


@dataclass(frozen=True)
class Setting:
    """What all contestants share; ``batch_size`` is that of a domain, so that a step sees twice as many images."""

    source: Domain
    target: Domain
    network: str
    batch_size: int
    precision: str
    device: torch.device
    workers: int
    warm_up: int
    steps: int
    compiled: bool = False

    @property
    def recipe(self) -> Recipe:
        """Windows at random, plain SGD, BatchNorm of the backbone as it is fine-tuned; one epoch is one round."""
        image_size, stored_size = SIDES.get(self.network, (224, 256))
        return Recipe(
            network=self.network, batch_size=self.batch_size, precision=self.precision, augment="crop",
            image_size=image_size, stored_size=stored_size, optimiser="sgd", lr=1e-3, epochs=1,
            epoch=self.warm_up + self.steps, backbone_batchnorm="frozen", compile=self.compiled,
        )  # fmt: skip

    def build(self, recipe: Recipe) -> tuple[Network, Inputs]:
        """The network with random weights, in the layout that the device likes, and what is done to its inputs."""
        shape = self.source.samples.shape
        _, network, inputs = assemble(recipe, len(self.source.class_names), shape, shape)
        if self.device.type == "cuda" and self.network != "lenet":
            network.to(memory_format=torch.channels_last)
        return network, inputs


class Clock:
    """Seconds between two moments of the device: CUDA events where there are some."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.moments: list[Any] = []

    def note(self) -> None:
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.moments.append(event)
        else:
            self.moments.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        first, last = self.moments
        if not self.cuda:
            return float(last - first)
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3


class _Timed(L.Callback):
    """Puts the samples on the device, and notes the beginning and the end of the steps that count."""

    def __init__(self, setting: Setting, data: PairData) -> None:
        self.setting, self.data, self.clock = setting, data, Clock(setting.device)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.data.move(trainer.strategy.root_device)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, number: int) -> None:
        if number == self.setting.warm_up:
            self.clock.note()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, number: int) -> None:
        if number == self.setting.warm_up + self.setting.steps - 1:
            self.clock.note()


def library_loop(setting: Setting, method: str) -> float:
    """Seconds of the steps of one round in the library's loop."""
    recipe = setting.recipe.override({"method": method})
    data = PairData(setting.source, setting.target, recipe)
    network, inputs = setting.build(recipe)
    module = AdaptationModule(
        network, recipe.build_method(), inputs, recipe, data.steps_per_epoch, recipe.epoch, direct=True
    )
    timed = _Timed(setting, data)
    with quiet():
        trainer = L.Trainer(
            accelerator="gpu" if setting.device.type == "cuda" else "cpu", devices=1, max_epochs=1,
            precision=recipe.precision, callbacks=[timed], logger=False, use_distributed_sampler=False,
            enable_checkpointing=False, enable_model_summary=False, enable_progress_bar=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(module, datamodule=data)
    return timed.clock.seconds


class _Images(Dataset[tuple[Tensor, int]]):
    """Images in memory with torchvision's transforms, one at a time, as a data loader's workers take them."""

    def __init__(self, domain: Domain, recipe: Recipe, inputs: Inputs) -> None:
        assert isinstance(domain.samples, TensorSamples)
        normal = inputs.preprocessing
        assert normal is not None
        if normal.channel_order != "RGB" or normal.value_range != 1:
            raise ValueError(
                f"network={recipe.network!r} wants other channels or values than torchvision's transforms give"
            )
        window = AUGMENTATIONS[recipe.augment]
        assert window.area is not None
        self.images, self.labels = domain.samples.tensor, domain.labels
        self.change = v2.Compose(
            [
                v2.RandomResizedCrop(
                    recipe.image_size, scale=window.area, ratio=(1 / window.aspect, window.aspect), antialias=True
                ),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(normal.mean, normal.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        assert self.labels is not None
        return self.change(self.images[number]), int(self.labels[number])


def plain_loop(setting: Setting) -> float:
    """Seconds of the steps of one round in a loop of torch and torchvision alone."""
    recipe, device = setting.recipe, setting.device
    network, inputs = setting.build(recipe)
    network.to(device).train()
    optimiser = torch.optim.SGD(
        network.parameters(), lr=recipe.lr, momentum=recipe.momentum, nesterov=True, fused=device.type == "cuda"
    )
    images = _Images(setting.source, recipe, inputs)
    size, n_steps = 2 * setting.batch_size, setting.warm_up + setting.steps
    loader = DataLoader(
        images, batch_size=size, sampler=RandomSampler(images, replacement=True, num_samples=size * n_steps),
        num_workers=setting.workers, pin_memory=device.type == "cuda", drop_last=True,
    )  # fmt: skip
    clock, mixed = Clock(device), recipe.precision == "bf16-mixed"
    for number, (x, y) in enumerate(loader):
        if number == setting.warm_up:
            clock.note()
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            _, logits = network(_laid_out(x.to(device, non_blocking=True), setting))
            loss = cross_entropy(logits.float(), y.to(device, non_blocking=True))
        loss.backward()
        optimiser.step()
    clock.note()
    return clock.seconds


def _laid_out(x: Tensor, setting: Setting) -> Tensor:
    channels_last = setting.device.type == "cuda" and setting.network != "lenet"
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


def measure(setting: Setting, rounds: int) -> dict[str, Any]:
    """Images per second of each contestant: medians, and each round's."""
    loops: dict[str, Callable[[], float]] = {
        "ckb": lambda: library_loop(setting, METHODS["ckb"]),
        "without": lambda: library_loop(setting, METHODS["without"]),
        "plain": lambda: plain_loop(setting),
    }
    seen = 2 * setting.batch_size * setting.steps
    rates: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    # The order turns with the rounds: nobody is always the first after a pause.
    for number in range(rounds):
        for name in itertools.islice(itertools.cycle(CONTESTANTS), number % 3, number % 3 + 3):
            rates[name].append(seen / loops[name]())
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "network": setting.network,
        "batch_size": setting.batch_size,
        "precision": setting.precision,
        "image_size": setting.recipe.image_size,
        "images": f"{setting.source.name} and {setting.target.name}",
        "workers": setting.workers,
        "compiled": setting.compiled,
        "steps": setting.steps,
        "rounds": rounds,
        "images_per_second": medians,
        "images_per_second_rounds": rates,
        "ratio": medians["without"] / medians["ckb"],
        "over_plain": medians["ckb"] / medians["plain"],
    }


def domains(data_root: Path | None, network: str, n: int) -> tuple[Domain, Domain]:
    """Photographs of two domains, decoded once, or as much noise; without target labels."""
    _, side = SIDES.get(network, (224, 256))
    if data_root is not None:
        source, target = (load_domain(name, data_root=data_root, size=side, in_memory=True) for name in DOMAINS)
        return source, target.hide_labels()[0]
    channels = 1 if network == "lenet" else 3
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, channels, side, side), dtype=torch.uint8, generator=generator)
    classes = [str(label) for label in range(CLASSES)]
    source = Domain("noise", TensorSamples(images), classes, torch.arange(n) % CLASSES)
    return source, Domain("other noise", TensorSamples(images.flip(0)), classes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--network", default="resnet50", help="a backbone of bures.networks")
    parser.add_argument("--batch-size", type=int, default=32, help="images of each domain in a step")
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], help="default: bf16-mixed on a GPU")
    parser.add_argument("--data-root", type=Path, help="folder with office10; noise without it")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1), help="processes of the plain loop")
    parser.add_argument("--eager", action="store_true", help="do not compile the library's backbone on a GPU")
    parser.add_argument("--warm-up", type=int, default=15, help="steps of a round that are not timed")
    parser.add_argument("--steps", type=int, default=100, help="steps of a round that are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the JSON file")
    arguments = parser.parse_args()
    for name in ("batch_size", "warm_up", "steps", "rounds"):
        if getattr(arguments, name) < (2 if name == "batch_size" else 1):
            parser.error(f"--{name.replace('_', '-')} {getattr(arguments, name)} is too small")
    device = torch.device("cuda", 0) if arguments.device == "cuda" else torch.device("cpu")
    precision = arguments.precision or ("bf16-mixed" if device.type == "cuda" else "32-true")
    source, target = domains(arguments.data_root, arguments.network, 16 * arguments.batch_size)
    setting = Setting(
        source, target, arguments.network, arguments.batch_size, precision, device, arguments.workers,
        arguments.warm_up, arguments.steps, device.type == "cuda" and not arguments.eager,
    )  # fmt: skip
    row = measure(setting, arguments.rounds)
    for name, rate in row["images_per_second"].items():
        print(f"{name:8} {rate:10.1f} images per second")
    print(
        f"A step with the alignment takes {row['ratio']:.3f} of one without; {row['over_plain']:.2f} of the plain rate"
    )
    words = ["python", "-m", "benchmarks.throughput", "--device", arguments.device]
    defaults = {name: parser.get_default(name) for name in ("network", "batch_size", "warm_up", "steps", "rounds")}
    for name, default in defaults.items():
        if getattr(arguments, name) != default:
            words += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    words += ["--workers", str(arguments.workers), *(["--data-root", "DIR"] if arguments.data_root else [])]
    words += ["--precision", arguments.precision] if arguments.precision else []
    words += ["--eager"] if arguments.eager else []
    write_manifest(arguments.output, "throughput", shlex.join(words), device, [row])


if __name__ == "__main__":
    main()
