r"""The squared distance of two samples under a Gaussian kernel, with its gradient, in one pass on the CPU.

The general path (`bures.kernels.gram_blocks`, `bures_terms`) is a graph of some two hundred small operations, and a
training step on a few dozen samples spends its time between them. Here value and gradient are computed together with
the pooled sample as one matrix, in memory that is used again:

.. math::
    \frac{\partial d^2}{\partial K_{ss}} = A_s, \qquad \frac{\partial d^2}{\partial K_{tt}} = A_t, \qquad
    \frac{\partial d^2}{\partial K_{ts}} = -2\, D_t H C_t\, U V^\top C_s^\top H D_s ,

with :math:`U V^\top` the polar factor of the matrix under the nuclear norm. Labels, weights and bandwidths are
constants. A second derivative goes back to the general path, which is also the reference in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.factors import Factor
from bures.kernels import Bandwidth, Kernel
from bures.spectral import norm_and_polar_factor, nuclear_norm

__all__ = ["FusedProblem", "can_fuse", "fused_squared_distance"]

ONE_BLOCK = 256
"""Pooled samples up to this number are compared in one product, though a fourth of it is not needed."""


@dataclass(frozen=True)
class FusedProblem:
    """What the pass needs beside the samples; ``reference`` is the general path, as a function of the samples."""

    weights: tuple[Tensor, Tensor] | None  # None: equal
    factors: tuple[Factor, Factor] | Tensor  # or both as an array C^T H D (2, n, n)
    bandwidth: Bandwidth
    method: str
    reference: Callable[[Tensor, Tensor], Tensor]


def can_fuse(xs: Tensor, kernel: Kernel, bandwidth: Bandwidth) -> bool:
    """Whether the pass may be taken: it looks at values, and it is written for the Gaussian kernel and mean rules."""
    return (
        isinstance(kernel, str)
        and kernel == "gaussian"
        and bandwidth != "median"
        and xs.device.type == "cpu"
        and checks_values()
        and not is_transformed()
    )


def fused_squared_distance(xs: Tensor, xt: Tensor, problem: FusedProblem) -> Tensor:
    """Squared distance of two samples (n, d), (m, d), differentiable in both."""
    if torch.is_grad_enabled() and (xs.requires_grad or xt.requires_grad):
        value: Tensor = _FusedDistance.apply(xs, xt, problem)
        return value
    with torch.no_grad():
        return _value_and_gradient(xs, xt, problem, None)


class _FusedDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, xs: Tensor, xt: Tensor, problem: FusedProblem) -> Tensor:
        # The gradient of a distance is wanted whenever its graph is, and now the parts of it are at hand.
        gradient = torch.empty(xs.shape[0] + xt.shape[0], xs.shape[1], dtype=xs.dtype)
        with torch.inference_mode():  # cheaper calls; what leaves is copied to, or written into, plain tensors
            value = _value_and_gradient(xs, xt, problem, gradient)
        value = value.clone()
        ctx.problem = problem
        ctx.save_for_backward(xs, xt, gradient)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        xs, xt, gradient = ctx.saved_tensors
        wanted = [x for x, needed in zip((xs, xt), ctx.needs_input_grad, strict=False) if needed]
        if torch.is_grad_enabled():  # a second derivative is wanted
            value = ctx.problem.reference(xs, xt)
            given = iter(torch.autograd.grad(value, wanted, grad, create_graph=True))
            to_s, to_t = (next(given) if needed else None for needed in ctx.needs_input_grad[:2])
            return to_s, to_t, None
        parts = (grad * gradient).tensor_split((xs.shape[0],))
        to_s, to_t = (part if needed else None for part, needed in zip(parts, ctx.needs_input_grad, strict=False))
        return to_s, to_t, None


def _value_and_gradient(xs: Tensor, xt: Tensor, problem: FusedProblem, gradient: Tensor | None) -> Tensor:
    """The squared distance; its gradient in the pooled sample is written into ``gradient`` where that is given."""
    n = xs.shape[0]
    x, scale = _common_frame(xs, xt)
    norms = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).square_()
    widths = _widths(x, norms, n, scale, problem)
    kernel = torch.empty(x.shape[0], x.shape[0], dtype=x.dtype)
    source, target = kernel.tensor_split((n,))
    blocks = _Blocks(source[:, :n], target[:, n:], target[:, :n])
    _fill_kernel_less_one(kernel, blocks, x, norms.to(x.dtype), n, widths)
    # What turns the derivative by the kernel into weights of the gradient: a pair (i, j) of the pooled sample adds
    # 4 weight (x_i - x_j). Pairs between the samples are there twice, hence half of the factor -2 of the norm.
    rates = 4 / (widths[0] * scale), 4 / (widths[1] * scale), -4 / (widths[2] * scale)
    if isinstance(problem.factors, Tensor):
        value = _paired_terms(kernel, blocks, problem.factors, rates, problem.method, gradient is not None)
    else:
        value = _terms(blocks, *problem.factors, rates, problem.method, gradient is not None)
    if gradient is None:
        return value
    source[:, n:].copy_(blocks.ts.T)
    kernel.diagonal().sub_(kernel.sum(dim=1))
    torch.mm(kernel, x, out=gradient)
    return value


class _Blocks(NamedTuple):
    ss: Tensor
    tt: Tensor
    ts: Tensor


def _terms(
    blocks: _Blocks, factor_s: Factor, factor_t: Factor, rates: tuple[float, float, float], method: str, gradient: bool
) -> Tensor:
    """Theorem 5; where a gradient is wanted, the blocks of the kernel are turned into its weights."""
    dtype = blocks.ss.dtype
    value = torch.zeros((), dtype=dtype)
    for block, factor, rate in ((blocks.ss, factor_s, rates[0]), (blocks.tt, factor_t, rates[1])):
        outer = factor.trace_weights(dtype)
        value += (block * outer).sum()
        if gradient:
            block.add_(1).mul_(outer).mul_(rate)
        del outer
    cross = factor_s.apply(factor_t.apply(blocks.ts).T).T
    if not gradient:
        return value - 2 * nuclear_norm(cross, method)
    norm, polar = norm_and_polar_factor(cross, method)
    del cross
    blocks.ts.add_(1).mul_(factor_s.adjoint(factor_t.adjoint(polar).T).T).mul_(rates[2])
    return value - 2 * norm


def _paired_terms(
    kernel: Tensor,
    blocks: _Blocks,
    product: Tensor,
    rates: tuple[float, float, float],
    method: str,
    gradient: bool,
) -> Tensor:
    """The same for two samples of equal size, with both factors (2, n, n) in one array."""
    n = blocks.ss.shape[0]
    within = kernel.as_strided((2, n, n), (n * (2 * n + 1), 2 * n, 1))  # the blocks on the diagonal
    product = product.to(kernel.dtype)
    c_s, c_t = product.unbind()
    outer = torch.bmm(product.mT, product)
    value = (within * outer).sum()
    cross = c_t @ blocks.ts @ c_s.T
    if not gradient:
        return value - 2 * nuclear_norm(cross, method)
    norm, polar = norm_and_polar_factor(cross, method)
    kernel.add_(1)
    within.mul_(outer)
    blocks.ts.mul_(c_t.T @ polar @ c_s)
    for block, rate in zip(blocks, rates, strict=True):
        block.mul_(rate)
    return value - 2 * norm


def _common_frame(xs: Tensor, xt: Tensor) -> tuple[Tensor, float]:
    """Both samples as one matrix, as in `bures.kernels.standardise`, and the power of two they were divided by."""
    x = torch.cat([xs, xt])
    lowest, highest = torch.aminmax(x)
    largest = max(-float(lowest), float(highest))
    harmless = 2.0**-20 < largest < 2.0**20  # the squares are far from both ends of the range
    scale = 1.0 if harmless or largest == 0 else math.ldexp(1.0, math.frexp(largest)[1] - 1)
    if scale != 1:
        x /= scale
    x -= x.mean(dim=0)
    x -= x.mean(dim=0)  # the rounding of the mean: constants become zero
    return x, scale


def _widths(x: Tensor, norms: Tensor, n: int, scale: float, problem: FusedProblem) -> tuple[float, float, float]:
    """Sigma squared of the three blocks, as in `bures.kernels.gram_blocks`; means and variances are float64."""
    if not isinstance(problem.bandwidth, str):
        limits = torch.finfo(x.dtype)
        width = min(max(float(problem.bandwidth) / scale / scale, limits.tiny), limits.max)
        return width, width, width
    squares = norms.numpy()
    if problem.weights is None:
        part = n / len(squares)
        mean_s = x[:n].mean(dim=0, dtype=torch.float64).numpy()
        mean_t = mean_s * (-part / (1 - part))  # the pooled mean is zero
        square_s, square_t = squares[:n].mean(), squares[n:].mean()
    else:
        ws, wt = (w.numpy() for w in problem.weights)
        n_s, n_t = np.count_nonzero(ws), np.count_nonzero(wt)
        part = n_s / (n_s + n_t)
        wide = x.double().numpy()
        mean_s, mean_t = ws @ wide[:n], wt @ wide[n:]
        square_s, square_t = ws @ squares[:n], wt @ squares[n:]
    # The samples are centred together, so no digits are lost unless the domains are 1e4 times further apart than wide.
    variance_s = max(float(square_s - mean_s @ mean_s), 0.0)
    variance_t = max(float(square_t - mean_t @ mean_t), 0.0)
    between = mean_s - mean_t
    rule = (2 * variance_s, 2 * variance_t, variance_s + variance_t + float(between @ between))
    if problem.bandwidth == "shared":
        pooled = part**2 * rule[0] + (1 - part) ** 2 * rule[1] + 2 * part * (1 - part) * rule[2]
        rule = (pooled, pooled, pooled)
    eps = float(torch.finfo(x.dtype).eps)
    floor = x.shape[1] * (4 * eps) ** 2 + 8 * eps * float(squares.max())  # the second: rounding of matrix products
    return max(rule[0], floor), max(rule[1], floor), max(rule[2], floor)


def _fill_kernel_less_one(
    kernel: Tensor, blocks: _Blocks, x: Tensor, norms: Tensor, n: int, widths: tuple[float, float, float]
) -> None:
    """Write the kernel of the pooled sample less one; the block of source rows and target columns may be left out."""
    column = norms.unsqueeze(1)
    if x.shape[0] <= ONE_BLOCK:
        torch.add(column, norms, out=kernel)
        kernel.addmm_(x, x.T, alpha=-2).clamp_min_(0).fill_diagonal_(0)
        for block, width in zip(blocks, widths, strict=True):
            block.mul_(-1 / width)
        kernel.expm1_()
        return
    s, t = slice(0, n), slice(n, None)
    for block, rows, columns, width in zip(blocks, (s, t, t), (s, t, s), widths, strict=True):
        torch.add(column[rows], norms[columns], out=block)
        block.addmm_(x[rows], x[columns].T, alpha=-2).clamp_min_(0)
        if rows is columns:
            block.fill_diagonal_(0)
        block.mul_(-1 / width).expm1_()
