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
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["polar_factor"]

LOWER_END = 1e-8  # singular values from here up, relative to the largest, are brought to one
CONVERGED = 1e-9
RATIONAL_FROM = 1536  # smaller sides; below, decompositions keep a GPU waiting


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


def _optimal_scalings(lower: float) -> tuple[float, ...]:
    scalings = []
    while 1 - lower > CONVERGED:
        rho = math.sqrt(3 / (1 + lower + lower**2))
        lower = rho * lower * (3 - (rho * lower) ** 2) / 2
        scalings.append(rho)
    return tuple(scalings)


RATIONAL = _optimal_rational(LOWER_END)
SCALINGS = _optimal_scalings(LOWER_END)
SCALINGS_AFTER_RATIONAL = _optimal_scalings(RATIONAL.lower)


def polar_factor(matrix: Tensor) -> Tensor:
    """The factor U V^T of a matrix (..., m, n) = U S V^T, in its dtype; computed in float64."""
    wide = matrix.shape[-2] < matrix.shape[-1]
    x = (matrix.mT if wide else matrix).double()
    gram = x.mT @ x
    # The largest singular value is at most the fourth root of the sum of all fourth powers.
    bound = torch.linalg.matrix_norm(gram, keepdim=True).sqrt() * (1 + LOWER_END)
    x = torch.where(bound > 0, x / bound, 0.0)
    scalings = SCALINGS
    if x.shape[-1] >= RATIONAL_FROM:
        x, scalings = _rational_step(x), SCALINGS_AFTER_RATIONAL
    for rho in scalings:
        x = _add_product(x, x.mT @ x, 1.5 * rho, -0.5 * rho**3)
    x = x.to(matrix.dtype)
    return x.mT if wide else x


def _rational_step(x: Tensor) -> Tensor:
    """The step in partial fractions, X (b / c I + (a - b / c) (I + c X^T X)^-1)."""
    a, b, c, _ = RATIONAL
    regularised = (x.mT @ x).mul_(c)
    regularised.diagonal(dim1=-2, dim2=-1).add_(1)
    # The condition number is at most c, 7e10, which leaves five digits of float64: enough for a gradient.
    lower = torch.linalg.cholesky_ex(regularised)[0]
    return torch.cholesky_solve(x.mT, lower).mT.mul(a - b / c).add(x, alpha=b / c)


def _add_product(x: Tensor, gram: Tensor, beta: float, alpha: float) -> Tensor:
    """The sum beta X + alpha X G, in one operation where there is one."""
    if x.ndim == 2:
        return torch.addmm(x, x, gram, beta=beta, alpha=alpha)
    return torch.baddbmm(x, x, gram, beta=beta, alpha=alpha) if x.ndim == 3 else beta * x + alpha * (x @ gram)
