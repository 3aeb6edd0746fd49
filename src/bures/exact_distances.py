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

from bures.forward_mode import apply, save

__all__ = [
    "about_median",
    "direct_distances",
    "exact_squared_distances",
    "smallest_square",
    "tangents_of_squared_distances",
]


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
    within_a, within_b, between = apply(_ExactDistances, a, b)
    return within_a, within_b, between


class _ExactDistances(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        within_a, within_b, between = (direct_distances(x, y) for x, y in ((a, a), (b, b), (b, a)))
        return within_a.square_(), within_b.square_(), between.square_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        save(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, within_a: Tensor, within_b: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        # Each sample about its own median, so that the gradient between equal rows is exactly zero.
        grad_a, grad_b = _within(a, within_a), _within(b, within_b)
        grad_a = grad_a + between.sum(dim=0)[:, None] * a - between.T @ b
        grad_b = grad_b + between.sum(dim=1)[:, None] * b - between @ a
        return 2 * grad_a, 2 * grad_b

    @staticmethod
    def tangent(ctx: Any, to_a: Tensor, to_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return tangents_of_squared_distances(a, to_a, b, to_b)


def tangents_of_squared_distances(a: Tensor, to_a: Tensor, b: Tensor, to_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How squared distances within the rows of ``a`` and of ``b`` and between both change as ``a`` and ``b`` do."""
    along_a, along_b = (a * to_a).sum(dim=1), (b * to_b).sum(dim=1)
    between = 2 * (along_b[:, None] + along_a - b @ to_a.T - to_b @ a.T)
    return _tangent_within(a, to_a), _tangent_within(b, to_b), between


def _tangent_within(x: Tensor, to_x: Tensor) -> Tensor:
    own = x - x.median(dim=0).values
    half = (own * to_x).sum(dim=1)[:, None] - own @ to_x.T
    half = half - torch.diag(half.diagonal())
    return 2 * (half + half.T)


def _within(x: Tensor, weights: Tensor) -> Tensor:
    own, weights = x - x.median(dim=0).values, weights + weights.T  # each sample is a row and a column
    return weights.sum(dim=1)[:, None] * own - weights @ own
