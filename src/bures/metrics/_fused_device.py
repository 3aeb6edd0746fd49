r"""The squared distance of two float32 samples under a Gaussian kernel, with its gradient, in one pass on a GPU.

The formulas of `bures.metrics._fused` with one kernel block in memory at a time. Nothing here looks at a value, so that
a CUDA graph can hold it. The matrix under the norm is float64: its small directions carry gradient, and they see the
rounding of all that comes before them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bures.factors import Factor
from bures.kernels import Bandwidth, block_widths, standardise
from bures.polar import norm_and_rounded_polar_factor

__all__ = ["value_and_gradient_on_device"]


def value_and_gradient_on_device(
    xs: Tensor,
    xt: Tensor,
    weights: tuple[Tensor, Tensor],
    factors: tuple[Callable[[], Factor], Callable[[], Factor]],
    bandwidth: Bandwidth,
    *,
    wanted: bool,
) -> tuple[Tensor, Tensor | None]:
    """The squared distance and, where wanted, its gradient in the pooled sample (n + m, d)."""
    n, dtype = xs.shape[0], xs.dtype
    a, b, scale = standardise(xs, xt)
    widths = block_widths(bandwidth, 1, (a, b), None, weights, scale)
    limit = torch.finfo(dtype).max / 64  # as in `bures.metrics._pooled.gradient_rates`
    rates = [(sign * (4 / width).clamp_max(limit)).to(dtype) for sign, width in zip((1, 1, -1), widths, strict=True)]
    between, left, factor_t = _between(a, b, widths[2], factors[1])
    factor_s = factors[0]()
    cross = factor_s.apply(left.T).T
    del left
    norm, polar = norm_and_rounded_polar_factor(cross)
    del cross
    value = -2 * norm.to(dtype)
    gradient = None
    if wanted:
        polar = factor_t.adjoint(polar)
        polar = factor_s.adjoint(polar.T).T
        between.add_(1).mul_(polar).mul_(rates[2])
        del polar
        gradient = torch.cat([between.sum(dim=0).unsqueeze(1) * a, between.sum(dim=1).unsqueeze(1) * b])
        gradient[:n].addmm_(between.T, b, beta=-1)
        gradient[n:].addmm_(between, a, beta=-1)
    del between
    own = [factor_s, factor_t]
    del factor_s, factor_t
    for side, x in ((1, b), (0, a)):
        outer = own.pop().trace_weights(dtype)
        block = _own_squared_distances(x).div_(-widths[side].to(dtype)).expm1_()
        value += block.mul_(outer).sum()
        if gradient is not None:
            block.add_(outer).mul_(rates[side])
            block.diagonal().sub_(block.sum(dim=1))
            (gradient[n:] if side else gradient[:n]).addmm_(block, x)
        del block, outer
    if gradient is not None:
        gradient /= scale
    return value, gradient


def _between(a: Tensor, b: Tensor, width: Tensor, make: Callable[[], Factor]) -> tuple[Tensor, Tensor, Factor]:
    """The kernel between the samples less one, in their dtype; its product with the target's factor; this factor."""
    factor = make()
    block = _squared_distances(b.double(), a.double()).div_(-width).expm1_()
    left = factor.apply(block)
    return block.to(a.dtype), left, factor.rounded(a.dtype)


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    squares = x.square().sum(dim=1).unsqueeze(1) + y.square().sum(dim=1)
    return squares.addmm_(x, y.T, alpha=-2).clamp_min_(0)


def _own_squared_distances(x: Tensor) -> Tensor:
    return _squared_distances(x, x).fill_diagonal_(0)
