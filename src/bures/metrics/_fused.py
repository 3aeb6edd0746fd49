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

import numpy as np
import torch
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.deflation import GRAM_RESOLUTION, TINY, converging
from bures.exact_distances import smallest_square
from bures.factors import Factor
from bures.kernels import Bandwidth, Kernel
from bures.metrics._fused_device import value_and_gradient_on_device
from bures.metrics._pooled import gradient_rates, mean_squared_distances, pool, widths_of_blocks
from bures.spectral import SMALL, norm_and_polar_factor, nuclear_norm

__all__ = ["FusedProblem", "can_fuse", "fused_squared_distance"]

ALIKE_WHEN_SMALL = ("auto", "gram", "low-rank")  # as `bures.spectral` resolves them for small float32 matrices


@dataclass(frozen=True)
class FusedProblem:
    """What the pass needs beside the samples; ``reference`` is the general path, as a function of the samples."""

    weights: tuple[Tensor, Tensor] | None  # None: equal, and then the factors are an array
    factors: tuple[Callable[[], Factor], Callable[[], Factor]] | Tensor  # or both as an array C^T H D (2, n, n)
    bandwidth: Bandwidth
    method: str
    reference: Callable[[Tensor, Tensor], Tensor]


def can_fuse(xs: Tensor, kernel: Kernel, bandwidth: Bandwidth, method: str = "auto") -> bool:
    """Whether a pass may be taken. They are written for the Gaussian kernel and mean rules.

    That of the CPU looks at values; that of a GPU does not, and is for float32.
    """
    if not isinstance(kernel, str) or kernel != "gaussian" or bandwidth == "median" or is_transformed():
        return False
    if xs.is_cuda:
        return xs.dtype == torch.float32 and method in ("auto", "polar") and not torch.compiler.is_compiling()
    return xs.device.type == "cpu" and checks_values()


def fused_squared_distance(xs: Tensor, xt: Tensor, problem: FusedProblem) -> Tensor:
    """Squared distance of two samples (n, d), (m, d), differentiable in both."""
    # The gradient of a distance is wanted whenever its graph is, and the parts of it are at hand with the value.
    wanted = torch.is_grad_enabled() and (xs.requires_grad or xt.requires_grad)
    with torch.no_grad():
        found = _value_and_gradient(xs, xt, problem, wanted=wanted)
    if found is None:
        return problem.reference(xs, xt)
    if not wanted:
        return found[0]
    value: Tensor = _FusedDistance.apply(xs, xt, *found, problem)
    return value


class _FusedDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, xs: Tensor, xt: Tensor, value: Tensor, gradient: Tensor, problem: FusedProblem) -> Tensor:
        ctx.problem = problem
        ctx.save_for_backward(xs, xt, gradient)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        xs, xt, gradient = ctx.saved_tensors
        need_s, need_t, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # a second derivative is wanted
            value = ctx.problem.reference(xs, xt)
            wanted = [x for x, needed in ((xs, need_s), (xt, need_t)) if needed]
            given = iter(torch.autograd.grad(value, wanted, grad, create_graph=True))
            to_s, to_t = (next(given) if needed else None for needed in (need_s, need_t))
        else:
            scaled, n = grad * gradient, xs.shape[0]
            to_s, to_t = scaled[:n] if need_s else None, scaled[n:] if need_t else None
        return to_s, to_t, None, None, None


def _value_and_gradient(
    xs: Tensor, xt: Tensor, problem: FusedProblem, *, wanted: bool
) -> tuple[Tensor, Tensor | None] | None:
    """The squared distance and, where wanted, its gradient in the pooled sample.

    None where distances beside the bandwidth are noise: the general path takes them by differences.
    """
    if not isinstance(problem.factors, Tensor):
        if xs.is_cuda:
            assert problem.weights is not None
            return value_and_gradient_on_device(
                xs, xt, problem.weights, problem.factors, problem.bandwidth, wanted=wanted
            )
        return _block_by_block(xs, xt, problem, wanted=wanted)
    gradient = xs.new_empty(xs.shape[0] + xt.shape[0], xs.shape[1]) if wanted else None
    with torch.inference_mode():  # cheaper calls; what leaves is copied to, or written into, plain tensors
        value = _paired(xs, xt, problem.factors, problem, gradient)
    return None if value is None else (value.clone(), gradient)


def _block_by_block(
    xs: Tensor, xt: Tensor, problem: FusedProblem, *, wanted: bool
) -> tuple[Tensor, Tensor | None] | None:
    """Theorem 5 with one block of the kernel in memory at a time.

    The nuclear norm needs the most memory and comes first: nothing but the pooled sample, one block and the label
    factors is there.
    """
    n, method, dtype = xs.shape[0], problem.method, xs.dtype
    assert not isinstance(problem.factors, Tensor)
    assert problem.weights is not None
    x, scale, size = pool(xs, xt)
    norms = torch.linalg.vector_norm(x, dim=1).square_()
    samples, squares = x.tensor_split((n,)), norms.tensor_split((n,))
    means, part = mean_squared_distances(samples, squares, problem.weights)
    largest = float(norms.max())
    widths = widths_of_blocks(problem.bandwidth, means, largest, x, scale, size, part)
    if min(widths) < smallest_square(largest, dtype):
        return None
    rates = gradient_rates(widths, scale)
    make_s, make_t = problem.factors
    factor_s, factor_t = make_s(), make_t()
    # Small directions of the matrix under the norm see the noise of all that is before them, which float64 keeps low.
    # Distances in many features are left in float32: their products cost the most, and directions are seldom small.
    exact = dtype if method == "low-rank" else torch.float64
    of_distances = exact if x.shape[1] <= n else dtype
    (source, target), (square_s, square_t) = ([part.to(of_distances) for part in pair] for pair in (samples, squares))
    between = _squared_distances(target, square_t, source, square_s).mul_(-1 / widths[2]).expm1_()
    del source, target
    left = factor_t.apply(between.to(exact))
    between, factor_t = between.to(dtype), factor_t.rounded(dtype)
    cross = factor_s.apply(left.T).T.to(dtype)
    del left
    factor_s = factor_s.rounded(dtype)
    gradient = None
    if wanted:
        norm, polar = norm_and_polar_factor(cross, method)
        del cross
        polar = factor_t.adjoint(polar)
        between.add_(1).mul_(factor_s.adjoint(polar.T).T).mul_(rates[2])
        del polar
        gradient = torch.empty_like(x)
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
        block = _own_squared_distances(own, square).mul_(-1 / widths[side]).expm1_()
        value += block.mul_(outer).sum()
        if gradient is not None:
            block.add_(outer).mul_(rates[side])
            block.diagonal().sub_(block.sum(dim=1))
            gradient.tensor_split((n,))[side].addmm_(block, own)
        del block, outer
    return value, gradient


def _own_squared_distances(a: Tensor, squares: Tensor) -> Tensor:
    """Squared distances within a sample."""
    distances = squares.unsqueeze(1) + squares
    _subtract_own_products_(distances, a)
    return distances.clamp_min_(0).fill_diagonal_(0)


def _subtract_own_products_(distances: Tensor, a: Tensor) -> None:
    """Subtract twice the inner products of a sample, by halves, to use their symmetry where that saves something."""
    half = len(a) // 2
    if half < SMALL:
        distances.addmm_(a, a.T, alpha=-2)
        return
    first, last = a.tensor_split((half,))
    _subtract_own_products_(distances[:half, :half], first)
    _subtract_own_products_(distances[half:, half:], last)
    distances[:half, half:] = distances[half:, :half].addmm_(last, first.T, alpha=-2).T


def _squared_distances(a: Tensor, square_a: Tensor, b: Tensor, square_b: Tensor) -> Tensor:
    return (square_a.unsqueeze(1) + square_b).addmm_(a, b.T, alpha=-2).clamp_min_(0)


def _paired(xs: Tensor, xt: Tensor, product: Tensor, problem: FusedProblem, gradient: Tensor | None) -> Tensor | None:
    """The same in fewer calls: the kernel of the pooled sample is one matrix, and both factors (2, n, n) one array.

    Its block of source rows and target columns holds nothing of use until the gradient needs it.
    """
    n, dtype = xs.shape[0], xs.dtype
    x, scale, size = pool(xs, xt)
    if not math.isfinite(size):  # for the general path, which says what is wrong
        return None
    source, target = x.tensor_split((n,))
    kernel = x.new_zeros(2 * n, 2 * n)
    within = kernel.as_strided((2, n, n), (n * (2 * n + 1), 2 * n, 1))
    blocks = *within.unbind(), kernel[n:, :n]
    between = blocks[2]
    kernel[:, :n].addmm_(x, source.T, alpha=-2)
    blocks[1].addmm_(target, target.T, alpha=-2)
    norms = kernel.diagonal() / -2  # rounded as the products are, so that equal samples are at no distance
    kernel.add_(norms).add_(norms.unsqueeze(1)).clamp_min_(0)
    (mean_s, _), (mean_ts, mean_t) = kernel.view(2, n, 2, n).mean(dim=(1, 3)).tolist()
    largest = float(norms.max())
    widths = widths_of_blocks(problem.bandwidth, (mean_s, mean_t, mean_ts), largest, x, scale, size, part=0.5)
    if min(widths) < smallest_square(largest, dtype):
        return None
    for block, width in zip(blocks, widths, strict=True):
        block.mul_(-1 / width).expm1_()
    rounded = product.to(dtype)
    outer = torch.bmm(rounded.mT, rounded)
    value = (within * outer).sum()
    cross = product[1] @ between.double()
    if gradient is None:
        return value.sub_(nuclear_norm(cross.to(dtype) @ rounded[0].T, problem.method), alpha=2)
    if dtype == torch.float32 and n < SMALL and problem.method in ALIKE_WHEN_SMALL:
        norm: float | Tensor
        norm, weights = _small_norm_and_weights(cross, product)
    else:
        norm, polar = norm_and_polar_factor(cross.to(dtype) @ rounded[0].T, problem.method)
        weights = rounded[1].T @ polar @ rounded[0]
    kernel.add_(1)
    within.mul_(outer)
    between.mul_(weights)
    for block, rate in zip(blocks, gradient_rates(widths, scale), strict=True):
        block.mul_(rate)
    kernel[:n, n:].copy_(between.T)
    kernel.diagonal().sub_(kernel.sum(dim=1))
    torch.mm(kernel, x, out=gradient)
    return value.sub_(norm, alpha=2)


def _small_norm_and_weights(left: Tensor, product: Tensor) -> tuple[float, Tensor]:
    """Norm of the matrix under it, from a part of its product, and the weights of its gradient, all in float64."""
    cross = left @ product[0].T
    values, v = converging(torch.linalg.eigh, cross.T @ cross)
    s = np.sqrt(np.maximum(values.numpy(), 0))
    inverse = torch.from_numpy(1 / np.maximum(s, GRAM_RESOLUTION * s[-1] + TINY))
    return float(s.sum()), product[1].T @ cross @ (v * inverse) @ (v.T @ product[0])
