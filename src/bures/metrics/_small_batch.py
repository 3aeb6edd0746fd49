r"""CKB of two small batches of equal size on the CPU, as training calls it: few operations.

What becomes of labels are plain matrices here, for `bures.metrics._paired`, and those of hard classes are written down.
Whatever is out of the ordinary (other options, other shapes, wrong values) is left to `bures.metrics._problem`, which
also words the errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bures.arrays import checks_values, is_transformed
from bures.factors import label_noise
from bures.metrics._fused import with_gradient
from bures.metrics._paired import paired_distance
from bures.spectral import SMALL

__all__ = ["is_ordinary", "small_batch_ckb"]

LARGEST = 160
"""Samples in a domain; from here on the low rank of hard classes saves more than calls cost."""

SMALLEST_VARIANCE = 1e-154  # of one-hot rows, about the root of the smallest float64


def is_ordinary(options: Mapping[str, Any]) -> bool:
    """Whether the options of a loss are those this path is written for."""
    return (
        options["kernel"] == "gaussian"
        and options["label_kernel"] == "gaussian"
        and options["label_bandwidth"] == "mean"
        and options["bandwidth"] != "median"
        and options["prior"] is None
        and not isinstance(options["eps"], str)
        and options["method"] in ("auto", "gram", "low-rank")
    )


def small_batch_ckb(
    z_s: Tensor,
    y_s: Tensor,
    z_t: Tensor,
    p_t: Tensor,
    options: Mapping[str, Any],
    reference: Callable[[Tensor, Tensor], Tensor],
) -> Tensor | None:
    """Squared CKB distance, for classes (n,) or rows (n, K) against probabilities (n, K); None where it does not fit.

    ``reference`` gives the same by the general path, as a function of the features.
    """
    n = z_s.shape[0] if z_s.ndim == 2 else 0
    if not (
        0 < n <= LARGEST
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
        factor = _factor_of_source(y_s, p_t.shape[1], float(options["eps"]))
        weights = _weights_of_rows(p_t, float(options["eps"]))
        if factor is None or weights is None:
            return None
        found = paired_distance(z_s, z_t, factor, weights, options["bandwidth"], wanted=wanted)
    if found is None:
        return None
    value, gradient = found
    result = torch.scalar_tensor(value, dtype=z_s.dtype)
    return result if gradient is None else with_gradient(z_s, z_t, result, gradient, reference)


def _factor_of_source(labels: Tensor, n_classes: int, eps: float) -> Tensor | None:
    if labels.ndim == 1 and labels.dtype == torch.int64:
        y = labels.numpy()
        if y.min() < 0 or y.max() >= n_classes:
            return None
        if n_classes <= len(y):
            return _factor_of_classes(y, n_classes, eps)
        return _factor_of_rows(one_hot(labels, n_classes).double(), eps)
    if labels.ndim == 2 and labels.shape[1] == n_classes and labels.is_floating_point():
        return _factor_of_rows(labels, eps)
    return None


def _factor_of_classes(y: Any, n_classes: int, eps: float) -> Tensor:
    """C^T H D (n, n) of classes (n,): `bures.factors.LowRankFactor`, multiplied out and taken sample by sample."""
    n, counts = len(y), np.bincount(y, minlength=n_classes)
    # Squared distances of one-hot rows are 2, and their mean is the bandwidth.
    contrast = -math.expm1(-1 / max(1 - int(counts @ counts) / n**2, SMALLEST_VARIANCE))
    inverses = 1 / (contrast / n * counts + eps)
    roots = np.sqrt(inverses)
    share, root = math.sqrt(eps), math.sqrt(n)
    table = np.multiply.outer(roots * (-share / (root * float(counts @ inverses))), inverses)
    table.ravel()[:: n_classes + 1] += (share * roots - 1) / (root * np.maximum(counts, 1))
    product = table.take(y, axis=0).take(y, axis=1)
    product.ravel()[:: n + 1] += 1 / root
    return torch.from_numpy(product)


def _factor_of_rows(labels: Tensor, eps: float) -> Tensor | None:
    """C^T H D (n, n) of rows (n, K), with C = sqrt(eps n) L^-T; None as for `_cholesky`."""
    if (lower := _cholesky(labels, eps)) is None:
        return None
    identity = torch.eye(len(labels), dtype=torch.float64)
    product: Tensor = torch.linalg.solve_triangular(lower, math.sqrt(eps) * identity, upper=False)
    # On the centred part the inverse of H K H + eps n I is that of K + eps n I, less what it gives the constant.
    of_ones = product.sum(dim=1)
    return product.addr_(of_ones, of_ones @ product, alpha=-1 / float(of_ones @ of_ones))


def _weights_of_rows(labels: Tensor, eps: float) -> Tensor | None:
    """D H C C^T H D (n, n) of rows (n, K): the product of the factor with itself; None as for `_cholesky`."""
    if (lower := _cholesky(labels, eps)) is None:
        return None
    inverse = torch.cholesky_inverse(lower)
    of_ones = inverse.sum(dim=0)
    return inverse.addr_(of_ones, of_ones, alpha=-1 / float(of_ones.sum())).mul_(eps)


def _cholesky(labels: Tensor, eps: float) -> Tensor | None:
    """L with L L^T = K + eps n I, for the kernel K of rows (n, K).

    None where rows are not on the simplex, beyond the rounding of float32.
    """
    n, rows = len(labels), labels.detach().to(torch.float64, copy=True).numpy()
    totals = np.add.reduce(rows, axis=1)
    if not (rows.min() >= -1e-4 and totals.min() >= 1 - 1e-4 and totals.max() <= 1 + 1e-4):
        return None
    noise = label_noise(torch.finfo(labels.dtype).eps) * float(rows.max())  # differences below it are rounding
    rows -= np.add.reduce(rows, axis=0) / n  # exact where rows almost agree, so that products tell them apart
    centred = torch.from_numpy(rows)
    gram = (centred @ centred.T).numpy()
    norms = gram.diagonal().copy()
    gram *= 2
    gram -= norms
    gram -= norms[:, None]
    gram /= max(2 * float(norms.sum()) / n, noise**2)
    np.exp(gram, out=gram)
    gram.ravel()[:: n + 1] += eps * n
    lower, info = torch.linalg.cholesky_ex(torch.from_numpy(gram))
    return None if int(info) else lower
