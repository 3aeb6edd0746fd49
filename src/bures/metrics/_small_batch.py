r"""CKB of two small batches of equal size on the CPU, as training calls it: few operations, each for both domains.

With forty samples an operation costs more in its call than in its arithmetic. So labels of both domains are one array
(2, n, K), their Gram matrices and factors another (2, n, n), and hard classes are one-hot rows among them. Whatever is
out of the ordinary (other options, other shapes, wrong values) is left to `bures.metrics._problem`, which also words
the errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.factors import invert_lower_, label_noise
from bures.metrics._fused import FusedProblem, fused_squared_distance

__all__ = ["is_ordinary", "small_batch_ckb"]

LARGEST = 160
"""Samples in a domain; from here on the low rank of hard classes saves more than calls cost."""


def is_ordinary(options: Mapping[str, Any]) -> bool:
    """Whether the options of a loss are those this path is written for."""
    return (
        options["kernel"] == "gaussian"
        and options["label_kernel"] == "gaussian"
        and options["label_bandwidth"] == "mean"
        and options["bandwidth"] != "median"
        and options["prior"] is None
        and not isinstance(options["eps"], str)
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
    n = z_s.shape[0]
    if not (
        0 < n <= LARGEST
        and z_s.ndim == 2
        and z_s.shape == z_t.shape
        and z_s.dtype == z_t.dtype
        and z_s.dtype in (torch.float32, torch.float64)
        and p_t.ndim == 2
        and p_t.shape[0] == y_s.shape[0] == n
        and p_t.is_floating_point()
        and all(tensor.device.type == "cpu" for tensor in (z_s, y_s, z_t, p_t))
        and checks_values()
        and not is_transformed()
    ):
        return None
    with torch.inference_mode():
        rows = _read_rows(y_s.detach(), p_t.detach())
        if rows is None or not math.isfinite(float(z_s.sum() + z_t.sum())):
            return None
        noise = [label_noise(torch.finfo(y.dtype).eps if y.is_floating_point() else 0.0) for y in (y_s, p_t)]
        factors = _factors(rows, float(options["eps"]), noise)
    if factors is None:
        return None
    problem = FusedProblem(None, factors, options["bandwidth"], options["method"], reference)
    return fused_squared_distance(z_s, z_t, problem)


def _read_rows(y_s: Tensor, p_t: Tensor) -> Tensor | None:
    """Labels of both domains as rows (2, n, K) on the simplex, float64."""
    n, n_classes = p_t.shape
    rows = torch.zeros(2, n, n_classes, dtype=torch.float64)
    source, target = rows.unbind()
    target.copy_(p_t)
    if y_s.ndim == 1:
        if y_s.dtype != torch.int64:
            return None
        low, high = torch.aminmax(y_s)
        if int(low) < 0 or int(high) >= n_classes:
            return None
        source.scatter_(1, y_s.unsqueeze(1), 1.0)
    elif y_s.shape == p_t.shape and y_s.is_floating_point():
        source.copy_(y_s)
    else:
        return None
    low, high = torch.aminmax(rows.sum(dim=2))
    if not (float(rows.min()) >= -1e-4 and float(low) >= 1 - 1e-4 and float(high) <= 1 + 1e-4):
        return None  # wrong, or half precision, where more is allowed
    return rows


def _factors(rows: Tensor, eps: float, noise: list[float]) -> Tensor | None:
    """C^T H D (2, n, n) for equal weights: the paper's formulas, C = sqrt(eps n) L^-T with L L^T = G_Y + eps n I.

    ``noise``: what is rounding in each domain, as a share of its largest label.
    """
    n = rows.shape[1]
    gram = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square_()
    centred = rows - rows.mean(dim=1, keepdim=True)
    variances, largest = centred.square_().sum(dim=(1, 2)).tolist(), rows.amax(dim=(1, 2)).tolist()
    for block, variance, share, label in zip(gram.unbind(), variances, noise, largest, strict=True):
        block.mul_(-1 / max(2 * variance / n, (share * label) ** 2))
    gram.exp_()
    mean = gram.mean(dim=2, keepdim=True)
    gram.sub_(mean).sub_(mean.mT - mean.mean(dim=1, keepdim=True))
    gram.diagonal(dim1=1, dim2=2).add_(eps * n)
    lower, info = torch.linalg.cholesky_ex(gram)
    if any(info.tolist()):
        return None
    product = invert_lower_(lower)
    return product.sub_(product.mean(dim=2, keepdim=True)).mul_(math.sqrt(eps))
