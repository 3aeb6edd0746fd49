"""Squared distances by differences, for samples that are much closer to each other than to the others.

Matrix products give squared distances up to the rounding of the largest squared norm. That is plenty beside a bandwidth
of the size of the sample, and nothing at all beside one sample far from all others, or beside two domains that are far
apart: there, differences are taken.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["about_median", "direct_distances", "exact_squared_distances", "smallest_square"]


def direct_distances(x: Tensor, y: Tensor, p: int = 2) -> Tensor:
    """Distances (n, m) of rows by differences, entry by entry: the product form is noise where rows almost agree."""
    return torch.cdist(x, y, p=float(p), compute_mode="donot_use_mm_for_euclid_dist")


def smallest_square(largest: float, dtype: torch.dtype) -> float:
    """Squared distances below this lose half of their digits in products of rows of squared norms up to ``largest``.

    Examples
    --------
    >>> import torch
    >>> from bures.exact_distances import smallest_square
    >>> smallest_square(1e5, torch.float32) > 1 > smallest_square(1e5, torch.float64)
    True
    """
    return math.sqrt(torch.finfo(dtype).eps) * largest


def about_median(xs: Tensor, xt: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The samples in units of ``scale`` about the median of each feature, which no distant sample moves."""
    centre = (torch.cat([xs.detach(), xt.detach()]) / scale).median(dim=0).values
    return xs / scale - centre, xt / scale - centre


def exact_squared_distances(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared Euclidean distances within the rows of ``a`` (n, n), within those of ``b`` (m, m), and between (m, n).

    Examples
    --------
    >>> import torch
    >>> from bures.exact_distances import exact_squared_distances
    >>> far = torch.tensor([[0.0], [1.0], [1e8]])
    >>> exact_squared_distances(far, far[:1])[0][0, 1]
    tensor(1.)
    """
    within_a, within_b, between = _ExactDistances.apply(a, b)
    return within_a, within_b, between


class _ExactDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(a, b)
        within_a, within_b, between = (direct_distances(x, y) for x, y in ((a, a), (b, b), (b, a)))
        return within_a.square_(), within_b.square_(), between.square_()

    @staticmethod
    def backward(ctx: Any, within_a: Tensor, within_b: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        # Each sample about its own median, so that the gradient between equal rows is exactly zero.
        grad_a, grad_b = _within(a, within_a), _within(b, within_b)
        grad_a = grad_a + between.sum(dim=0)[:, None] * a - between.T @ b
        grad_b = grad_b + between.sum(dim=1)[:, None] * b - between @ a
        return 2 * grad_a, 2 * grad_b


def _within(x: Tensor, weights: Tensor) -> Tensor:
    own, weights = x - x.median(dim=0).values, weights + weights.T  # each sample is a row and a column
    return weights.sum(dim=1)[:, None] * own - weights @ own
