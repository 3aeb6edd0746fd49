r"""The polar factor of a matrix by matrix products alone.

The Newton-Schulz step :math:`X \mapsto \tfrac32 \rho X - \tfrac12 \rho^3 X X^\top X` moves every singular value by the
polynomial :math:`p(s) = \tfrac12 \rho s (3 - \rho^2 s^2)`. While all of them lie in :math:`[l, 1]`, the scaling
:math:`\rho^2 = 3 / (1 + l + l^2)` makes :math:`p(l) = p(1)` and :math:`\max p = 1`, which raises the lower end as far
as a cubic can: by a factor of 2.6 while it is small, quadratically at last. The scalings depend on the lower end only,
so they are computed once, and a fixed number of products serves every matrix. On a GPU this is many times faster than
a singular value decomposition, and it can be captured in a CUDA graph.

For large matrices a rational step comes first, Halley's with the weights that Nakatsukasa, Bai and Gygi found:
:math:`X \mapsto X (a I + b X^\top X) (I + c X^\top X)^{-1}` raises a lower end of 1e-8 to 5e-3 at the cost of a
Cholesky decomposition and two triangular solves, less than that of the fourteen polynomial steps it stands for.

In float64 the iteration cannot go astray: the start is scaled by a bound of the largest singular value, :math:`p` maps
the unit interval into itself, and rounding is far below the lower end. Singular values below the lower end, which
float32 matrices do not resolve, end between zero and one.

Where the result is to be float32, float64 is needed no longer than small singular values are small. Rounding X by
:math:`\delta` turns the directions of two singular values s and t by :math:`\delta / (s + t)`, and no later step turns
them back; from a lower end of 5e-3 on the digits of float32, by products of halves (`bures.half_products`), leave five
in the result. An error of :math:`X^\top X` is symmetric and mends itself in the next step. Where a step changes X by
little, the change may be rounded more: the last three steps take fewer products.

Where the matrix is a product of two float32 samples, directions that only the rounding of one sample has may meet large
ones of the other, and as factors of the gradient they would be noise at full strength. There the lower end is the
rounding of float32, and a last step :math:`X (X^\top X)^4` keeps the singular values that have come to one and lets the
ninth powers of the others vanish.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bures.half_products import add_product, add_small_product, gram_of_halves, has_half_products, split
from bures.triangular import invert_lower_, lower_gram, multiply_by_transposed_lower

__all__ = ["STEPS", "norm_and_rounded_polar_factor", "polar_factor", "product_norm_and_gradients"]

LOWER_END = 1e-8  # singular values from here up, relative to the largest, are brought to one
ROUNDING_END = 5e-7  # and where rounding of float32 samples is left out; of a third of it half is kept, of a tenth none
CONVERGED = 1e-9
CONVERGED_IN_HALVES = 1e-5
RATIONAL_FROM = 1536  # smaller sides; below, decompositions keep a GPU waiting
HALVES_FROM = 1024  # smaller sides again; below, float64 is as fast
THIN = 4  # samples of so many times more rows than features are reduced to roots of covariances before their product
THIN_FROM = 256  # rows of the longer one; below, time is that of the launches, of which this takes three times as many


class _Rational(NamedTuple):
    """Weights of a rational step, and the lower end it leads to."""

    a: float
    b: float
    c: float
    lower: float


def _optimal_rational(lower: float) -> _Rational:
    square = lower**2
    d = (4 * (1 - square) / square**2) ** (1 / 3)
    a = math.sqrt(1 + d) + math.sqrt(8 - 4 * d + 8 * (2 - square) / (square * math.sqrt(1 + d))) / 2
    b = (a - 1) ** 2 / 4
    c = a + b - 1
    return _Rational(a, b, c, lower * (a + b * square) / (1 + c * square))


def _optimal_scalings(lower: float, converged: float = CONVERGED) -> tuple[float, ...]:
    scalings = []
    while 1 - lower > converged:
        rho = math.sqrt(3 / (1 + lower + lower**2))
        lower = rho * lower * (3 - (rho * lower) ** 2) / 2
        scalings.append(rho)
    return tuple(scalings)


class _Steps(NamedTuple):
    """What brings singular values from a lower end up to one: scalings alone, or a rational step and fewer scalings."""

    scalings: tuple[float, ...]
    rational: _Rational
    after_rational: tuple[float, ...]


def _optimal_steps(lower: float) -> _Steps:
    rational = _optimal_rational(lower)
    return _Steps(_optimal_scalings(lower), rational, _optimal_scalings(rational.lower))


STEPS = _optimal_steps(LOWER_END)
STEPS_ABOVE_ROUNDING = _optimal_steps(ROUNDING_END)
SCALINGS_IN_HALVES = _optimal_scalings(STEPS.rational.lower, CONVERGED_IN_HALVES)


def polar_factor(matrix: Tensor, *, above_rounding: bool = False) -> Tensor:
    """The factor U V^T of a matrix (..., m, n) = U S V^T, in its dtype; computed in float64.

    With ``above_rounding`` it has no directions that may be rounding of the float32 samples a matrix was made of.
    """
    wide = matrix.shape[-2] < matrix.shape[-1]
    steps = STEPS_ABOVE_ROUNDING if above_rounding else STEPS
    x = (matrix.mT if wide else matrix).double()
    x = x / _bound(torch.linalg.matrix_norm(x.mT @ x, keepdim=True))
    scalings = steps.scalings
    if x.shape[-1] >= RATIONAL_FROM:
        x, scalings = _rational_step(x, steps.rational), steps.after_rational
    for rho in scalings:
        x = _step(x, rho)
    if above_rounding:
        x = _ninth_powers(x)
    x = x.to(matrix.dtype)
    return x.mT if wide else x


def product_norm_and_gradients(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Nuclear norm of ``a @ b.T`` for float32 samples a (n, d) and b (m, d), and its gradients in both.

    With the polar factors :math:`P_a, P_b` of samples that are much longer than wide, :math:`a = P_a (a^\top a)^{1/2}`,
    and the norm is that of the product of the two roots (d, d). Other samples are multiplied as they are: all that is
    formed is at most a few times the size of the samples.
    """
    (n, d), m, dtype = a.shape, len(b), a.dtype
    a, b = a.double(), b.double()
    if min(n, m) >= THIN * d and max(n, m) >= THIN_FROM:
        polar_a, polar_b = polar_factor(a), polar_factor(b)
        norm, to_a, to_b = product_norm_and_gradients(polar_a.T @ a, polar_b.T @ b)
        to_a, to_b = polar_a @ to_a, polar_b @ to_b
    else:
        product = a @ b.T
        polar = polar_factor(product, above_rounding=True)
        norm, to_a, to_b = (polar * product).sum(), polar @ b, polar.T @ a
    return norm.to(dtype), to_a.to(dtype), to_b.to(dtype)


def norm_and_rounded_polar_factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Norm and factor of a float64 matrix (m, n), which is overwritten; the factor to five digits in float32."""
    if matrix.shape[0] < matrix.shape[1]:
        norm, polar = norm_and_rounded_polar_factor(matrix.T)
        return norm, polar.T
    if matrix.shape[1] < HALVES_FROM or not has_half_products(matrix):
        polar = polar_factor(matrix)
        return matrix.mul_(polar).sum(), polar.float()
    x, bound = _rational_step_in_halves(matrix)
    for rho in SCALINGS_IN_HALVES[:-3]:
        halves = split(x)
        x = add_product(x, halves, split(gram_of_halves(halves)), beta=1.5 * rho, alpha=-0.5 * rho**3)
    for rho in SCALINGS_IN_HALVES[-3:]:
        halves = split(x)
        change = gram_of_halves(halves, quick=rho != SCALINGS_IN_HALVES[-1]).mul_(-0.5 * rho**3)
        change.diagonal().add_(1.5 * rho - 1)
        x = add_small_product(x, halves, change)
        del change
    return matrix.mul_(x).sum() * bound, x


def _bound(norm_of_gram: Tensor) -> Tensor:
    """A bound of the largest singular value, at most the fourth root of the sum of all fourth powers; 1 for zero."""
    return torch.where(norm_of_gram > 0, norm_of_gram.sqrt() * (1 + LOWER_END), 1.0)


def _rational_step(x: Tensor, step: _Rational = STEPS.rational) -> Tensor:
    """The step in partial fractions, X (b / c I + (a - b / c) (I + c X^T X)^-1)."""
    a, b, c, _ = step
    regularised = (x.mT @ x).mul_(c)
    regularised.diagonal(dim1=-2, dim2=-1).add_(1)
    # The condition number is at most c, 7e10, which leaves five digits of float64: enough for a gradient.
    lower = torch.linalg.cholesky_ex(regularised)[0]
    return torch.cholesky_solve(x.mT, lower).mT.mul(a - b / c).add(x, alpha=b / c)


def _rational_step_in_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Divide a matrix by a bound of its singular values, in place, and take the same step, rounded to float32.

    With the Cholesky factor L of the inverted matrix and Q = sqrt(c) X L^-T, both Q and L^-1 are of norm one, and their
    product, times a / sqrt(c), about 2, may be rounded: singular values are large after it.
    """
    a, b, c, _ = STEPS.rational
    gram = lower_gram(x)
    square = 2 * gram.tril(-1).square_().sum() + gram.diagonal().square().sum()
    bound = _bound(square.sqrt())
    x.div_(bound)
    gram.mul_(c / bound.square()).diagonal().add_(1)
    lower = torch.linalg.cholesky_ex(gram)[0]
    del gram
    inverse = invert_lower_(lower)
    q = split(multiply_by_transposed_lower(x, inverse).mul_(math.sqrt(c)).float())
    inverse_in_halves = split(inverse.float())
    del inverse, lower
    return add_product(x.float(), q, inverse_in_halves, beta=b / c, alpha=(a - b / c) / math.sqrt(c)), bound


def _step(x: Tensor, rho: float) -> Tensor:
    """The polynomial step, its sum in one operation where there is one."""
    beta, alpha, gram = 1.5 * rho, -0.5 * rho**3, x.mT @ x
    if x.ndim == 2:
        return torch.addmm(x, x, gram, beta=beta, alpha=alpha)
    return torch.baddbmm(x, x, gram, beta=beta, alpha=alpha) if x.ndim == 3 else beta * x + alpha * (x @ gram)


def _ninth_powers(x: Tensor) -> Tensor:
    """X (X^T X)^4: singular values of one stay, and those on their way to it go back."""
    gram = x.mT @ x
    square = gram @ gram
    return x @ (square @ square)
