"""The batches that are timed: synthetic clusters, noise, and features of trained networks."""

from __future__ import annotations

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


def lenet(n: int) -> Batch:
    """512 features of a LeNet trained on digits: MNIST to USPS where BURES_DATA has them, else the bundled digits."""
    (x_s, y_s), (x_t, p_t) = _lenet_features()
    return _draw(n, x_s, y_s, x_t, p_t)


def resnet50(n: int) -> Batch:
    """ResNet-50 features of two domains of Office-Home, from the file that BURES_DATA names."""
    with np.load(_resnet50_file()) as data:
        names = sorted({key[:-2] for key in data.files if key.endswith("_x")})
        source, target = names[0], names[1]
        x_s, x_t = (torch.from_numpy(data[f"{name}_x"].astype(np.float32)) for name in (source, target))
        y_s, y_t = (torch.from_numpy(data[f"{name}_y"].astype(np.int64)) for name in (source, target))
    n_classes = int(torch.cat([y_s, y_t]).max()) + 1
    generator = torch.Generator().manual_seed(n)
    return _draw(n, x_s, y_s, x_t, _predictions(y_t, generator, n_classes))


def available() -> dict[str, Callable[[int], Batch]]:
    """The kinds of features that can be had here, by name."""
    kinds: dict[str, Callable[[int], Batch]] = {"clusters": clusters, "noise": noise, "lenet": lenet}
    return {**kinds, "resnet50": resnet50} if _resnet50_file().is_file() else kinds


def _resnet50_file() -> Path:
    return Path(os.environ.get("BURES_DATA", os.devnull)) / "office_home" / "resnet50.npz"


def _predictions(y: Tensor, generator: torch.Generator, n_classes: int = CLASSES) -> Tensor:
    return (3 * one_hot(y, n_classes) + torch.randn(len(y), n_classes, generator=generator)).softmax(1)


def _draw(n: int, x_s: Tensor, y_s: Tensor, x_t: Tensor, p_t: Tensor) -> Batch:
    """n samples of each domain; ValueError where there are fewer."""
    if n > min(len(x_s), len(x_t)):
        raise ValueError(f"only {min(len(x_s), len(x_t))} samples")
    generator = torch.Generator().manual_seed(n)
    s, t = (torch.randperm(len(x), generator=generator)[:n] for x in (x_s, x_t))
    return x_s[s], y_s[s], x_t[t], p_t[t]


@cache
def _lenet_features() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    from bures.data import load_domain, optdigits
    from bures.training import Recipe, adapt

    if (Path(os.environ.get("BURES_DATA", os.devnull)) / "digits").is_dir():
        source, target = load_domain("mnist", size=28), load_domain("usps", size=28)
    else:
        digits = optdigits(size=28)
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
        source, target = digits.take(order[: len(order) // 2]), digits.take(order[len(order) // 2 :])
    recipe = Recipe(method="ckb", network="lenet", batch_size=128, epochs=1, epoch=40)
    with tempfile.TemporaryDirectory() as folder:
        model = adapt(source, target, recipe, Path(folder) / "run", accelerator="cpu").model()
    some = [domain.take(torch.arange(min(len(domain), 4096))) for domain in (source, target)]
    of_source, of_target = (model.predict(domain) for domain in some)
    labels = some[0].labels
    assert labels is not None
    return (
        (torch.as_tensor(of_source.features).float(), torch.as_tensor(labels)),
        (torch.as_tensor(of_target.features).float(), torch.as_tensor(of_target.probabilities).float()),
    )
