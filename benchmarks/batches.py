"""The batches that are timed: synthetic clusters, noise, and features of trained networks.

    BURES_DATA=DIR python -m benchmarks.batches features.npz

writes the features of trained networks to a file, for `python -m benchmarks --features features.npz` on a machine that
has neither the data nor the libraries that training needs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

Batch: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Source features and classes, target features and probabilities."""

FEATURES, CLASSES = 512, 10
MOST_SAMPLES = 4096
LENET_STEPS = 200
PARTS = ("z_s", "y_s", "z_t", "p_t")


def clusters(n: int) -> Batch:
    """Class clusters of low intrinsic dimension in 512 features, with soft target predictions."""
    generator = torch.Generator().manual_seed(n)
    mixing = torch.randn(32, FEATURES, generator=generator) / 32**0.5
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    y_s, y_t = (torch.randint(CLASSES, (n,), generator=generator) for _ in range(2))
    z_s, z_t = (
        centres[y] + scale * torch.randn(n, 32, generator=generator) @ mixing for y, scale in ((y_s, 1.0), (y_t, 1.5))
    )
    return z_s, y_s, z_t, _predictions(y_t, generator)


def noise(n: int) -> Batch:
    """Independent Gaussian features: every direction counts, which is the hard case of an approximation."""
    generator = torch.Generator().manual_seed(n)
    y_s, y_t = (torch.randint(CLASSES, (n,), generator=generator) for _ in range(2))
    z_s, z_t = (scale * torch.randn(n, FEATURES, generator=generator) for scale in (1.0, 1.2))
    return z_s, y_s, z_t, _predictions(y_t, generator)


def available(file: Path | None = None) -> dict[str, Callable[[int], Batch]]:
    """The kinds of features that can be had here, by name; those of networks from a file where one is given.

    Each draws n samples of a domain; ValueError where there are fewer.
    """
    kinds: dict[str, Callable[[int], Batch]] = {"clusters": clusters, "noise": noise}
    if file is None:
        trained: dict[str, Callable[[], Batch]] = {"lenet": lenet}
        if _resnet50_file().is_file():
            trained["resnet50"] = resnet50
    else:
        with np.load(file) as data:
            names = sorted({key.rsplit("/", 1)[0] for key in data.files})
        trained = {name: cache(lambda name=name: _read(file, name)) for name in names}
    return kinds | {name: lambda n, samples=samples: _draw(n, *samples()) for name, samples in trained.items()}


@cache
def lenet() -> Batch:
    """512 features of a LeNet trained with CKB: MNIST to USPS where BURES_DATA has them, else the bundled digits."""
    from bures.data import load_domain, optdigits
    from bures.training import Recipe, adapt

    if (Path(os.environ.get("BURES_DATA", os.devnull)) / "digits").is_dir():
        source, target = load_domain("mnist", size=28), load_domain("usps", size=28)
    else:
        digits = optdigits(size=28)
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
        source, target = digits.take(order[: len(order) // 2]), digits.take(order[len(order) // 2 :])
    recipe = Recipe(method="ckb", network="lenet", batch_size=128, epochs=1, epoch=LENET_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        model = adapt(source, target, recipe, Path(folder) / "run", accelerator="cpu").model()
    some = [domain.take(torch.arange(min(len(domain), MOST_SAMPLES))) for domain in (source, target)]
    of_source, of_target = (model.predict(domain) for domain in some)
    labels = some[0].labels
    assert labels is not None
    return (
        torch.as_tensor(of_source.features).float(),
        torch.as_tensor(labels),
        torch.as_tensor(of_target.features).float(),
        torch.as_tensor(of_target.probabilities).float(),
    )


@cache
def resnet50() -> Batch:
    """ResNet-50 features of two domains of Office-Home, from BURES_DATA, with made-up predictions near the labels."""
    with np.load(_resnet50_file()) as data:
        names = sorted({key[:-2] for key in data.files if key.endswith("_x")})
        source, target = names[0], names[1]
        x_s, x_t = (torch.from_numpy(data[f"{name}_x"].astype(np.float32)) for name in (source, target))
        y_s, y_t = (torch.from_numpy(data[f"{name}_y"].astype(np.int64)) for name in (source, target))
    n_classes = int(torch.cat([y_s, y_t]).max()) + 1
    return x_s, y_s, x_t, _predictions(y_t, torch.Generator().manual_seed(0), n_classes)


def _resnet50_file() -> Path:
    return Path(os.environ.get("BURES_DATA", os.devnull)) / "office_home" / "resnet50.npz"


def _predictions(y: Tensor, generator: torch.Generator, n_classes: int = CLASSES) -> Tensor:
    return (3 * one_hot(y, n_classes) + torch.randn(len(y), n_classes, generator=generator)).softmax(1)


def _draw(n: int, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> Batch:
    # At repeated samples the norm has a kink, and the reference that gradients are compared with is arbitrary.
    s, t = _first_occurrences(z_s), _first_occurrences(z_t)
    z_s, y_s, z_t, p_t = z_s[s], y_s[s], z_t[t], p_t[t]
    if n > min(len(z_s), len(z_t)):
        raise ValueError(f"only {min(len(z_s), len(z_t))} samples")
    generator = torch.Generator().manual_seed(n)
    s, t = (torch.randperm(len(z), generator=generator)[:n] for z in (z_s, z_t))
    return z_s[s], y_s[s], z_t[t], p_t[t]


def _first_occurrences(z: Tensor) -> Tensor:
    """Numbers of the rows that do not repeat an earlier one."""
    return torch.from_numpy(np.sort(np.unique(z.numpy(), axis=0, return_index=True)[1]))


def _read(file: Path, name: str) -> Batch:
    with np.load(file) as data:
        z_s, y_s, z_t, p_t = (torch.from_numpy(data[f"{name}/{part}"]) for part in PARTS)
    return z_s.float(), y_s.long(), z_t.float(), p_t.float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the .npz file to write")
    file: Path = parser.parse_args().file
    arrays = {}
    trained = {"lenet": lenet} | ({"resnet50": resnet50} if _resnet50_file().is_file() else {})
    for name, samples in trained.items():
        for part, values in zip(PARTS, samples(), strict=True):
            # Half the size, and the digits of a feature that a network in mixed precision has.
            short = values.half() if part in ("z_s", "z_t") else values
            arrays[f"{name}/{part}"] = short[:MOST_SAMPLES].numpy()
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **arrays)
    print(f"Written: {file}")


if __name__ == "__main__":
    main()
