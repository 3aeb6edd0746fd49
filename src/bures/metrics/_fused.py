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
from typing import Any

import torch
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.exact_distances import smallest_square
from bures.factors import Factor
from bures.kernels import Bandwidth, Kernel
from bures.spectral import SMALL, norm_and_polar_factor, nuclear_norm

__all__ = ["FusedProblem", "can_fuse", "fused_squared_distance"]


@dataclass(frozen=True)
class FusedProblem:
    """What the pass needs beside the samples; ``reference`` is the general path, as a function of the samples."""

    weights: tuple[Tensor, Tensor] | None  # None: equal
    factors: tuple[Callable[[], Factor], Callable[[], Factor]] | Tensor  # or both as an array C^T H D (2, n, n)
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
    with torch.inference_mode() if isinstance(problem.factors, Tensor) else torch.no_grad():
        frame = _frame(xs, xt, problem)
        lost = min(frame.widths) < smallest_square(float(frame.norms.max()), xs.dtype)
    if lost:  # distances beside the bandwidth are noise here: the general path takes them by differences
        return problem.reference(xs, xt)
    if torch.is_grad_enabled() and (xs.requires_grad or xt.requires_grad):
        value: Tensor = _FusedDistance.apply(xs, xt, problem, frame)
        return value
    with torch.no_grad():
        return _value_and_gradient(xs, xt, problem, frame, wanted=False)[0]


class _FusedDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, xs: Tensor, xt: Tensor, problem: FusedProblem, frame: _Frame) -> Tensor:
        # The gradient of a distance is wanted whenever its graph is, and now the parts of it are at hand.
        value, gradient = _value_and_gradient(xs, xt, problem, frame, wanted=True)
        ctx.problem = problem
        ctx.save_for_backward(xs, xt, gradient)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        xs, xt, gradient = ctx.saved_tensors
        wanted = [x for x, needed in zip((xs, xt), ctx.needs_input_grad, strict=False) if needed]
        if torch.is_grad_enabled():  # a second derivative is wanted
            value = ctx.problem.reference(xs, xt)
            given = iter(torch.autograd.grad(value, wanted, grad, create_graph=True))
            to_s, to_t = (next(given) if needed else None for needed in ctx.needs_input_grad[:2])
            return to_s, to_t, None, None
        parts = (grad * gradient).tensor_split((xs.shape[0],))
        to_s, to_t = (part if needed else None for part, needed in zip(parts, ctx.needs_input_grad, strict=False))
        return to_s, to_t, None, None


def _value_and_gradient(
    xs: Tensor, xt: Tensor, problem: FusedProblem, frame: _Frame, *, wanted: bool
) -> tuple[Tensor, Tensor | None]:
    """The squared distance and, where wanted, its gradient in the pooled sample."""
    if not isinstance(problem.factors, Tensor):
        return _block_by_block(xs, problem, frame, wanted=wanted)
    gradient = xs.new_empty(xs.shape[0] + xt.shape[0], xs.shape[1]) if wanted else None
    with torch.inference_mode():  # cheaper calls; what leaves is copied to, or written into, plain tensors
        value = _paired(frame, problem.factors, problem.method, gradient)
    return value.clone(), gradient


@dataclass(frozen=True)
class _Frame:
    """The pooled sample in a common frame, its squared norms, and what belongs to the blocks ss, tt and ts.

    ``widths`` are sigma squared. ``rates`` turn the derivative by the kernel into weights of the gradient, of which a
    pair (i, j) of the pooled sample adds weight (x_j - x_i). Pairs between the samples are there twice, hence half of
    the factor -2 of the norm.
    """

    x: Tensor
    norms: Tensor
    widths: tuple[float, float, float]
    rates: tuple[float, float, float]


def _block_by_block(xs: Tensor, problem: FusedProblem, frame: _Frame, *, wanted: bool) -> tuple[Tensor, Tensor | None]:
    """Theorem 5 with one block of the kernel in memory at a time.

    The nuclear norm needs the most memory and comes first: nothing but the pooled sample, one block and the label
    factors is there.
    """
    n, method, dtype = xs.shape[0], problem.method, xs.dtype
    assert not isinstance(problem.factors, Tensor)
    make_s, make_t = problem.factors
    factor_s, factor_t = make_s().rounded(dtype), make_t()
    samples, squares = frame.x.tensor_split((n,)), frame.norms.tensor_split((n,))
    between = _squared_distances(samples[1], squares[1], samples[0], squares[0]).mul_(-1 / frame.widths[2]).expm1_()
    # In float32 the first product would add most of the noise that small directions see.
    left = factor_t.apply(between if method == "low-rank" else between.double()).to(dtype)
    factor_t = factor_t.rounded(dtype)
    cross = factor_s.apply(left.T).T
    del left
    gradient = None
    if wanted:
        norm, polar = norm_and_polar_factor(cross, method)
        del cross
        polar = factor_t.adjoint(polar)
        between.add_(1).mul_(factor_s.adjoint(polar.T).T).mul_(frame.rates[2])
        del polar
        gradient = torch.empty_like(frame.x)
        parts = gradient.tensor_split((n,))
        torch.mul(between.sum(dim=0).unsqueeze(1), samples[0], out=parts[0])
        torch.mul(between.sum(dim=1).unsqueeze(1), samples[1], out=parts[1])
        parts[0].addmm_(between.T, samples[1], beta=-1)
        parts[1].addmm_(between, samples[0], beta=-1)
    else:
        norm = nuclear_norm(cross, method)
        del cross
    del between
    value = -2 * norm
    factors = [factor_s, factor_t]
    del factor_s, factor_t
    for side in (1, 0):  # the target first: its labels are soft more often, and the factor of such is a matrix
        outer = factors.pop().trace_weights(dtype)
        own, square = samples[side], squares[side]
        block = _own_squared_distances(own, square).mul_(-1 / frame.widths[side]).expm1_()
        value += block.mul_(outer).sum()
        if gradient is not None:
            block.add_(outer).mul_(frame.rates[side])
            block.diagonal().sub_(block.sum(dim=1))
            gradient.tensor_split((n,))[side].addmm_(block, own)
        del block, outer
    return value, gradient


def _own_squared_distances(a: Tensor, squares: Tensor) -> Tensor:
    """Squared distances within a sample; the quarter that symmetry gives is not computed where it is large."""
    half = len(a) // 2
    if half < SMALL:
        return _squared_distances(a, squares, a, squares).fill_diagonal_(0)
    distances = squares.unsqueeze(1) + squares
    first, last = a[:half], a[half:]
    distances[:half, :half].addmm_(first, first.T, alpha=-2)
    distances[half:, half:].addmm_(last, last.T, alpha=-2)
    distances[half:, :half].addmm_(last, first.T, alpha=-2)
    distances[:half, half:] = distances[half:, :half].T
    return distances.clamp_min_(0).fill_diagonal_(0)


def _squared_distances(a: Tensor, square_a: Tensor, b: Tensor, square_b: Tensor) -> Tensor:
    return (square_a.unsqueeze(1) + square_b).addmm_(a, b.T, alpha=-2).clamp_min_(0)


def _paired(frame: _Frame, product: Tensor, method: str, gradient: Tensor | None) -> Tensor:
    """The same in fewer calls: the kernel of the pooled sample is one matrix, and both factors (2, n, n) one array."""
    n, x = product.shape[1], frame.x
    kernel = _squared_distances(x, frame.norms, x, frame.norms).fill_diagonal_(0)
    source, target = kernel.tensor_split((n,))
    blocks = source[:, :n], target[:, n:], target[:, :n]
    within = kernel.as_strided((2, n, n), (n * (2 * n + 1), 2 * n, 1))  # the first two as one array
    for block, width in zip(blocks, frame.widths, strict=True):
        block.mul_(-1 / width)
    kernel.expm1_()
    rounded = product.to(kernel.dtype)
    outer = torch.bmm(rounded.mT, rounded)
    value = (within * outer).sum()
    between = blocks[2]
    cross = (product[1] @ between.double()).to(kernel.dtype) @ rounded[0].T
    if gradient is None:
        return value - 2 * nuclear_norm(cross, method)
    norm, polar = norm_and_polar_factor(cross, method)
    kernel.add_(1)
    within.mul_(outer)
    between.mul_(rounded[1].T @ polar @ rounded[0])
    for block, rate in zip(blocks, frame.rates, strict=True):
        block.mul_(rate)
    source[:, n:].copy_(between.T)
    kernel.diagonal().sub_(kernel.sum(dim=1))
    torch.mm(kernel, x, out=gradient)
    return value - 2 * norm


def _frame(xs: Tensor, xt: Tensor, problem: FusedProblem) -> _Frame:
    """The samples moved to their common mean, as in `bures.kernels.standardise`, and their bandwidths."""
    x = torch.cat([xs, xt])
    lowest, highest = torch.aminmax(x)
    largest = max(-float(lowest), float(highest))
    harmless = 2.0**-20 < largest < 2.0**20  # the squares are far from both ends of the range
    size = 1.0 if largest == 0 else math.ldexp(1.0, math.frexp(largest)[1] - 1)
    scale = 1.0 if harmless else size
    if scale != 1:
        x /= scale
    x -= x.mean(dim=0)
    x -= x.mean(dim=0)  # the rounding of the mean: constants become zero
    norms = torch.linalg.vector_norm(x, dim=1).square_()
    widths = _widths(x, norms, xs.shape[0], scale, size, problem)
    return _Frame(x, norms, widths, (4 / (widths[0] * scale), 4 / (widths[1] * scale), -4 / (widths[2] * scale)))


def _widths(
    x: Tensor, norms: Tensor, n: int, scale: float, size: float, problem: FusedProblem
) -> tuple[float, float, float]:
    """Sigma squared of the three blocks, as in `bures.kernels.gram_blocks`; samples of ``size`` were given."""
    if not isinstance(problem.bandwidth, str):
        limits = torch.finfo(x.dtype)
        width = min(max(float(problem.bandwidth) / scale / scale, limits.tiny), limits.max)
        return width, width, width
    squares = norms.double().numpy()
    if problem.weights is None:
        part = n / len(squares)
        mean_s = x[:n].mean(dim=0).double().numpy()
        mean_t = mean_s * (-part / (1 - part))  # the pooled mean is zero
        square_s, square_t = squares[:n].mean(), squares[n:].mean()
    else:
        ws, wt = problem.weights
        n_s, n_t = int(torch.count_nonzero(ws)), int(torch.count_nonzero(wt))
        part = n_s / (n_s + n_t)
        mean_s, mean_t = ((w.to(x.dtype) @ own).double().numpy() for w, own in ((ws, x[:n]), (wt, x[n:])))
        square_s, square_t = ws.numpy() @ squares[:n], wt.numpy() @ squares[n:]
    # The samples are centred together, so no digits are lost unless the domains are further apart than they are wide:
    # ten times, and float32 has five digits left, here as in the distances themselves.
    variance_s = max(float(square_s - mean_s @ mean_s), 0.0)
    variance_t = max(float(square_t - mean_t @ mean_t), 0.0)
    between = mean_s - mean_t
    rule = (2 * variance_s, 2 * variance_t, variance_s + variance_t + float(between @ between))
    if problem.bandwidth == "shared":
        pooled = part**2 * rule[0] + (1 - part) ** 2 * rule[1] + 2 * part * (1 - part) * rule[2]
        rule = (pooled, pooled, pooled)
    eps = float(torch.finfo(x.dtype).eps)
    rounding = 4 * eps * size / scale  # of the samples
    floor = x.shape[1] * rounding**2 + 8 * eps * float(squares.max())  # the second: rounding of matrix products
    return max(rule[0], floor), max(rule[1], floor), max(rule[2], floor)
