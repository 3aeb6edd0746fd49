r"""CKB and the distance of class means of two small batches of equal size on the CPU, as training calls them.

What becomes of labels are plain matrices here, for `bures.metrics._paired`, and those of hard classes are written down:
few operations. Whatever is out of the ordinary (other options, other shapes, wrong values) is left to
`bures.metrics._problem`, which also words the errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.factors import AUTO_EPS_SHARE, SMALLEST_EPS, label_noise
from bures.metrics._fused import with_gradient
from bures.metrics._paired import LabelWeights, paired_distance
from bures.spectral import SMALL

__all__ = ["is_ordinary", "small_batch_distance"]

LARGEST = 160
"""Samples in a domain; from here on the low rank of hard classes saves more than calls cost."""

SMALLEST_WIDTH = 1e-154  # about the root of the smallest float64


def is_ordinary(options: Mapping[str, Any]) -> bool:
    """Whether the options of a loss are those this path is written for."""
    return (
        options["kernel"] == "gaussian"
        and options["label_kernel"] == "gaussian"
        and options["label_bandwidth"] == "mean"
        and options["bandwidth"] != "median"
        and options["prior"] is None
        and options["method"] in ("auto", "gram", "low-rank")
    )


def small_batch_distance(
    z_s: Tensor,
    y_s: Tensor,
    z_t: Tensor,
    p_t: Tensor,
    options: Mapping[str, Any],
    parts: tuple[str, ...],
    reference: Callable[[Tensor, Tensor], Tensor],
) -> Tensor | None:
    """Squared distance, for classes (n,) or rows (n, K) against probabilities (n, K); None where it does not fit.

    ``parts`` of it are "covariances" (CKB) and "means" (of classes), or both (CKW). ``reference`` gives the same by the
    general path, as a function of the features.
    """
    n = z_s.shape[0] if z_s.ndim == 2 else 0
    if not (
        0 < n <= LARGEST
        and z_s.shape[1] > 0
        and (options["method"] != "low-rank" or n < SMALL)  # where it is another name of "gram"
        and z_s.shape == z_t.shape
        and z_s.dtype == z_t.dtype == torch.float32
        and p_t.ndim == 2
        and y_s.ndim in (1, 2)
        and p_t.shape[0] == y_s.shape[0] == n
        and p_t.is_floating_point()
        and all(tensor.device.type == "cpu" for tensor in (z_s, y_s, z_t, p_t))
        and checks_values()
        and not is_transformed()
    ):
        return None
    wanted = torch.is_grad_enabled() and (z_s.requires_grad or z_t.requires_grad)
    # Calls are cheaper so; what leaves is a number and a plain tensor. A kernel that is too wide or too narrow is a
    # constant, without a warning.
    with torch.inference_mode(), np.errstate(all="ignore"):
        source, target = SmallLabels.read(y_s, p_t.shape[1]), SmallLabels.read(p_t, p_t.shape[1])
        if source is None or target is None:
            return None
        weights = _label_weights(source, target, options["eps"], parts)
        found = None if weights is None else paired_distance(z_s, z_t, weights, options["bandwidth"], wanted=wanted)
    if found is None:
        return None
    value, gradient = found
    result = torch.scalar_tensor(value, dtype=z_s.dtype, device=z_s.device)
    return result if gradient is None else with_gradient(z_s, z_t, result, gradient, reference)


def _label_weights(
    source: SmallLabels, target: SmallLabels, eps: str | float, parts: tuple[str, ...]
) -> LabelWeights | None:
    """What the labels ask of the kernel of the features; None where a label kernel cannot be decomposed."""
    means = mean_weights(source, target) if "means" in parts else None
    if "covariances" not in parts:
        return LabelWeights(means=means)
    regulariser = _share_of_contrast(source, target) if isinstance(eps, str) else float(eps)
    factor, weights = source.factor(regulariser), target.weights(regulariser)
    return None if factor is None or weights is None else LabelWeights(factor, weights, means)


def _share_of_contrast(source: SmallLabels, target: SmallLabels) -> float:
    """The regulariser "auto", as in `bures.factors.resolve_eps`."""
    n_classes: int = source.rows.shape[1]
    return max(AUTO_EPS_SHARE * (source.contrast + target.contrast) / (2 * n_classes), SMALLEST_EPS)


def mean_weights(source: SmallLabels, target: SmallLabels) -> Tensor:
    """What the kernel of the pooled sample is weighted with in the distance of class means, (2 n, 2 n)."""
    mass_s, mass_t = np.add.reduce(source.rows, axis=0), np.add.reduce(target.rows, axis=0)
    both = (mass_s > 0) & (mass_t > 0)
    roots = np.sqrt(np.where(both, (mass_s + mass_t) / (2 * len(source.rows)), 0))
    # Shares of the mass first: the inverse of a mass that is hardly there is no number.
    shares_s, shares_t = source.rows / np.where(both, mass_s, 1), target.rows / np.where(both, mass_t, 1)
    columns = torch.from_numpy(np.concatenate([shares_s * roots, shares_t * -roots]))
    return columns @ columns.T


@dataclass
class SmallLabels:
    """Labels of one domain as rows (n, K) in float64, and sigma squared of the kernel on them."""

    rows: NDArray[Any]
    width: float
    classes: NDArray[Any] | None = None  # the same by number, where they are hard

    @classmethod
    def read(cls, labels: Tensor, n_classes: int) -> SmallLabels | None:
        """Classes (n,), or rows (n, K) on the simplex beyond the rounding of float32; None for anything else."""
        if labels.ndim == 1 and labels.dtype == torch.int64:
            return cls._of_classes(labels.numpy(), n_classes)
        if labels.ndim == 2 and labels.shape[1] == n_classes and labels.is_floating_point():
            return cls._of_rows(labels)
        return None

    @classmethod
    def _of_classes(cls, y: NDArray[Any], n_classes: int) -> SmallLabels | None:
        if y.min() < 0 or y.max() >= n_classes:
            return None
        n, counts = len(y), np.bincount(y, minlength=n_classes)
        rows = np.zeros((n, n_classes))
        rows[np.arange(n), y] = 1
        # Squared distances of one-hot rows are 2.
        return cls(rows, max(2 * (1 - int(counts @ counts) / n**2), SMALLEST_WIDTH), y)

    @classmethod
    def _of_rows(cls, labels: Tensor) -> SmallLabels | None:
        rows = labels.detach().to(torch.float64).numpy()
        totals = np.add.reduce(rows, axis=1)
        if not (rows.min() >= -1e-4 and totals.min() >= 1 - 1e-4 and totals.max() <= 1 + 1e-4):
            return None
        if rows.shape[1] == 1:
            rows = np.ones_like(rows)  # as in `bures.labels`
        noise = label_noise(torch.finfo(labels.dtype).eps) * float(rows.max())  # differences below it are rounding
        read = cls(rows, noise**2)
        read.width = max(2 * float(np.vdot(read.centred, read.centred)) / len(rows), read.width)
        return read

    @cached_property
    def centred(self) -> NDArray[Any]:
        """The rows about their mean: exact where they almost agree, so that products tell them apart."""
        return np.asarray(self.rows - np.add.reduce(self.rows, axis=0) / len(self.rows))

    @property
    def contrast(self) -> float:
        """The kernel at equal labels less that at different classes."""
        return -math.expm1(-2 / self.width)

    def factor(self, eps: float) -> Tensor | None:
        """C^T H D (n, n); None as for `weights`."""
        if self.classes is not None and self.rows.shape[1] <= len(self.rows):
            return self._factor_of_classes(self.classes, eps)
        if (lower := self._cholesky(eps)) is None:
            return None
        # C = sqrt(eps n) L^-T. On the centred part the inverse of H K H + eps n I is that of K + eps n I, less what it
        # gives the constant.
        identity = torch.eye(len(lower), dtype=torch.float64, device=lower.device)
        product: Tensor = torch.linalg.solve_triangular(lower, math.sqrt(eps) * identity, upper=False)
        of_ones = product.sum(dim=1)
        return product.addr_(of_ones, of_ones @ product, alpha=-1 / float(of_ones @ of_ones))

    def _factor_of_classes(self, y: NDArray[Any], eps: float) -> Tensor:
        """`bures.factors.LowRankFactor`, multiplied out and taken sample by sample."""
        n, n_classes = self.rows.shape
        counts = np.bincount(y, minlength=n_classes)
        inverses = 1 / (self.contrast / n * counts + eps)
        roots = np.sqrt(inverses)
        share, root = math.sqrt(eps), math.sqrt(n)
        table = np.multiply.outer(roots * (-share / (root * float(counts @ inverses))), inverses)
        table.ravel()[:: n_classes + 1] += (share * roots - 1) / (root * np.maximum(counts, 1))
        product = table.take(y, axis=0).take(y, axis=1)
        product.ravel()[:: n + 1] += 1 / root
        return torch.from_numpy(product)

    def weights(self, eps: float) -> Tensor | None:
        """D H C C^T H D (n, n), the factor's product with itself; None where rounding leaves no Cholesky factor."""
        if (lower := self._cholesky(eps)) is None:
            return None
        inverse = torch.cholesky_inverse(lower)
        of_ones = inverse.sum(dim=0)
        return inverse.addr_(of_ones, of_ones, alpha=-1 / float(of_ones.sum())).mul_(eps)

    def _cholesky(self, eps: float) -> Tensor | None:
        """L with L L^T = K + eps n I, for the kernel K."""
        n, centred = len(self.rows), torch.from_numpy(self.centred)
        gram = (centred @ centred.T).numpy()
        norms = gram.diagonal().copy()
        gram *= 2
        gram -= norms
        gram -= norms[:, None]
        gram /= self.width
        np.exp(gram, out=gram)
        gram.ravel()[:: n + 1] += eps * n
        lower, info = torch.linalg.cholesky_ex(torch.from_numpy(gram))
        return None if int(info) else lower
