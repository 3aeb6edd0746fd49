r"""Weighted means and centred sums of products: what merges over chunks, files, processes and machines.

For features :math:`x` and label features :math:`y` with weights :math:`w`,

.. math:: W = \sum w, \quad \bar x, \bar y, \quad S_{xx} = \sum w (x - \bar x)(x - \bar x)^\top, \quad S_{yx}, S_{yy} .

Two of these merge exactly [1]_: :math:`S = S_a + S_b + \frac{W_a W_b}{W_a + W_b} \delta \delta^\top` with
:math:`\delta = \bar x_b - \bar x_a`. Nothing large is ever subtracted, so a common offset costs no digits.

.. [1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for Computing the Sample Variance", Am. Stat. 37, 1983.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = ["LabelBlock", "Scatter", "block_rows", "scatter_of"]

FEW_CLASSES = 64  # up to here a product with one-hot rows is faster than adding row by row


@dataclass
class Scatter:
    """The sums of one set of samples, in float64.

    Attributes
    ----------
    weight : Tensor ()
    mean_x, mean_y : Tensor (D,), (U,)
    xx, yx, yy : Tensor (D, D), (U, D), (U, U)
        Centred at the means; not divided by the weight.
    """

    weight: Tensor
    mean_x: Tensor
    mean_y: Tensor
    xx: Tensor
    yx: Tensor
    yy: Tensor

    @classmethod
    def zeros(cls, n_features: int, n_labels: int, device: torch.device) -> Scatter:
        """The sums of no samples."""
        shapes = ((), (n_features,), (n_labels,), (n_features,) * 2, (n_labels, n_features), (n_labels,) * 2)
        return cls(*(torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes))

    def tensors(self) -> dict[str, Tensor]:
        """The sums by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def copy(self) -> Scatter:
        """A copy that shares no memory."""
        return Scatter(**{name: tensor.clone() for name, tensor in self.tensors().items()})

    def is_finite(self) -> bool:
        """Whether no sum has overflowed."""
        return all(bool(torch.isfinite(tensor).all()) for tensor in self.tensors().values())

    def decay(self, factor: float) -> None:
        """Count every sample so far less, in place; the means stay."""
        for tensor in (self.weight, self.xx, self.yx, self.yy):
            tensor.mul_(factor)

    def absorb(self, other: Scatter) -> None:
        """Merge other sums into these, in place."""
        total = self.weight + other.weight
        share = torch.where(total > 0, other.weight / total, 0.0)
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        spread = self.weight * share
        self.xx.add_(other.xx).addr_(spread * dx, dx)
        self.yx.add_(other.yx).addr_(spread * dy, dx)
        self.yy.add_(other.yy).addr_(spread * dy, dy)
        self.mean_x.add_(share * dx)
        self.mean_y.add_(share * dy)
        self.weight.add_(other.weight)

    def faded(self, factor: float) -> Scatter:
        """The sums of samples that count less; `decay` without changing these, for sums in a graph."""
        return Scatter(
            factor * self.weight, self.mean_x, self.mean_y, factor * self.xx, factor * self.yx, factor * self.yy
        )

    def plus(self, other: Scatter) -> Scatter:
        """The sums of both sets of samples; `absorb` without changing these, for sums in a graph."""
        total = self.weight + other.weight
        share = other.weight / total
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        spread = self.weight * share
        return Scatter(
            total,
            self.mean_x + share * dx,
            self.mean_y + share * dy,
            self.xx + other.xx + spread * torch.outer(dx, dx),
            self.yx + other.yx + spread * torch.outer(dy, dx),
            self.yy + other.yy + spread * torch.outer(dy, dy),
        )


LabelBlock: TypeAlias = Callable[[slice], Tensor]
"""Label features of some rows: (n, U) float64, or (n,) integers for classes, which stand for one-hot rows."""


def block_rows(n_features: int, device: torch.device) -> int:
    """How many rows of features to hold at once: enough for matrix products at full rate.

    On a CPU 16 MiB of float32: the C library gives larger blocks back to the system after use, and new pages cost time.
    """
    numbers = 2**22 if device.type == "cpu" else 2**26
    return max(256, min(numbers // n_features, numbers // 512))


def scatter_of(features: Callable[[slice], Tensor], labels: LabelBlock, weights: Tensor | None, n: int, n_labels: int,
               rows: int) -> Scatter:  # fmt: skip
    """The sums of n samples whose features come in blocks; products in the precision of the features.

    All blocks are centred at the mean of the first: near enough for products in float32 to keep their digits, and the
    D x D rank-one term of a merge is paid once.
    """
    sums: Scatter | None = None
    pilot_x = pilot_y = torch.empty(0)
    for start in range(0, n, rows):
        block = slice(start, min(start + rows, n))
        x, y = features(block), labels(block)
        w = None if weights is None else weights[block]
        if sums is None:
            sums = Scatter.zeros(x.shape[1], n_labels, x.device)
            pilot_x = _mean(x, w)
            pilot_y = _mean(y, w) if y.is_floating_point() else sums.mean_y.clone()
        _add_block(sums, x.sub_(pilot_x), y - pilot_y if y.is_floating_point() else y, w)
    assert sums is not None
    return _centred(sums, pilot_x, pilot_y)


def _mean(rows: Tensor, w: Tensor | None) -> Tensor:
    """The weighted mean; rows of weight zero may be anything, and must not decide where the centre is."""
    if w is None or not bool(w.sum() > 0):
        return rows.mean(dim=0)
    return (w / w.sum()).to(rows.dtype) @ rows


def _add_block(sums: Scatter, x: Tensor, y: Tensor, w: Tensor | None) -> None:
    """Add the products of a block, around the pilot means; here ``mean_x`` and ``mean_y`` hold sums."""
    weighted = x if w is None else x * w.to(x.dtype)[:, None]
    if y.is_floating_point():
        mass = y if w is None else y * w[:, None]
        sums.mean_y += mass.sum(dim=0)
        sums.yy += mass.T @ y
        sums.yx += mass.to(x.dtype).T @ x
    else:
        mass = torch.bincount(y, weights=w, minlength=len(sums.mean_y)).to(sums.mean_y)
        sums.mean_y += mass
        sums.yy.diagonal().add_(mass)
        sums.yx += _class_sums(weighted, y, len(mass))
    sums.weight += len(x) if w is None else w.sum()
    sums.mean_x += weighted.sum(dim=0)
    if w is not None:
        x = x * w.sqrt().to(x.dtype)[:, None]
    sums.xx += x.T @ x


def _class_sums(x: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """The sum of the rows (n, D) of each class, (K, D)."""
    if n_classes <= FEW_CLASSES:
        return torch.nn.functional.one_hot(y, n_classes).to(x.dtype).T @ x
    return torch.zeros(n_classes, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, y, x)


def _centred(sums: Scatter, pilot_x: Tensor, pilot_y: Tensor) -> Scatter:
    """From sums around the pilot means to means, and sums around them."""
    share = torch.where(sums.weight > 0, 1 / sums.weight, 0.0)
    dx, dy = sums.mean_x * share, sums.mean_y * share
    sums.xx.addr_(sums.mean_x, dx, alpha=-1)
    sums.yx.addr_(sums.mean_y, dx, alpha=-1)
    sums.yy.addr_(sums.mean_y, dy, alpha=-1)
    return Scatter(sums.weight, pilot_x.double() + dx, pilot_y.double() + dy, sums.xx, sums.yx, sums.yy)
