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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.exact_distances import smallest_square
from bures.factors import Factor
from bures.kernels import Bandwidth, Kernel
from bures.metrics._fused_device import value_and_gradient_on_device
from bures.metrics._pooled import gradient_rates, mean_squared_distances, pool, widths_of_blocks
from bures.spectral import SMALL, norm_and_polar_factor, nuclear_norm

__all__ = ["FusedProblem", "can_fuse", "fused_squared_distance", "with_gradient"]


@dataclass(frozen=True)
class FusedProblem:
    """What the pass needs beside the samples.

    ``reference`` is the general path, as a function of the samples; ``small`` gives value and gradient of small samples
    on a GPU, or None where it cannot.
    """

    weights: tuple[Tensor, Tensor]
    factors: tuple[Callable[[], Factor], Callable[[], Factor]]
    bandwidth: Bandwidth
    method: str
    reference: Callable[[Tensor, Tensor], Tensor]
    small: Callable[..., tuple[Tensor, Tensor | None] | None] | None = None


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
    value, gradient = found
    assert gradient is not None
    return with_gradient(xs, xt, value, gradient, problem.reference)


def with_gradient(
    xs: Tensor, xt: Tensor, value: Tensor, gradient: Tensor, reference: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """A value whose gradient in the pooled sample is known; derivatives of that are those of ``reference``."""
    known: Tensor = _KnownGradient.apply(xs, xt, value, gradient, reference)
    return known


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, xs: Tensor, xt: Tensor, value: Tensor, gradient: Tensor, reference: Any) -> Tensor:
        ctx.reference = reference
        ctx.save_for_backward(xs, xt, gradient)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        xs, xt, gradient = ctx.saved_tensors
        need_s, need_t, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # a second derivative is wanted
            value = ctx.reference(xs, xt)
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
    if problem.small is not None and (found := problem.small(xs, xt, wanted=wanted)) is not None:
        return found
    if xs.is_cuda:
        return value_and_gradient_on_device(xs, xt, problem.weights, problem.factors, problem.bandwidth, wanted=wanted)
    return _block_by_block(xs, xt, problem, wanted=wanted)


def _block_by_block(
    xs: Tensor, xt: Tensor, problem: FusedProblem, *, wanted: bool
) -> tuple[Tensor, Tensor | None] | None:
    """Theorem 5 with one block of the kernel in memory at a time.

    The nuclear norm needs the most memory and comes first: nothing but the pooled sample, one block and the label
    factors is there.
    """
    n, method, dtype = xs.shape[0], problem.method, xs.dtype
    x, scale, size = pool(xs, xt)
    norms = torch.linalg.vector_norm(x, dim=1).square_()
    samples, squares = x.tensor_split((n,)), norms.tensor_split((n,))
    means, part = mean_squared_distances(samples, squares, problem.weights)
    largest = float(norms.max())
    widths = widths_of_blocks(problem.bandwidth, means, largest, x, scale, size, part)
    if min(widths) < smallest_square(largest, dtype):
        return None
    rates = gradient_rates(widths, dtype)
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
    if gradient is not None and scale != 1:
        gradient.div_(scale)
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
