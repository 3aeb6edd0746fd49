r"""The polar factor of a matrix by matrix products alone.

The Newton-Schulz step :math:`X \mapsto \tfrac32 \rho X - \tfrac12 \rho^3 X X^\top X` moves every singular value by the
polynomial :math:`p(s) = \tfrac12 \rho s (3 - \rho^2 s^2)`. While all of them lie in :math:`[l, 1]`, the scaling
:math:`\rho^2 = 3 / (1 + l + l^2)` makes :math:`p(l) = p(1)` and :math:`\max p = 1`, which raises the lower end as far
as a cubic can: by a factor of 2.6 while it is small, quadratically at last. The scalings depend on the lower end only,
so they are computed once, and a fixed number of products serves every matrix. On a GPU this is many times faster than
a singular value decomposition, and it can be captured in a CUDA graph.

In float64 the iteration cannot go astray: the start is scaled by a bound of the largest singular value, :math:`p` maps
the unit interval into itself, and rounding is far below the lower end. Singular values below the lower end, which
float32 matrices do not resolve, end between zero and one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["polar_factor"]

LOWER_END = 1e-8  # singular values from here up, relative to the largest, are brought to one
CONVERGED = 1e-9


def _optimal_scalings() -> tuple[float, ...]:
    scalings = []
    lower = LOWER_END
    while 1 - lower > CONVERGED:
        rho = math.sqrt(3 / (1 + lower + lower**2))
        lower = rho * lower * (3 - (rho * lower) ** 2) / 2
        scalings.append(rho)
    return tuple(scalings)


SCALINGS = _optimal_scalings()


def polar_factor(matrix: Tensor) -> Tensor:
    """The factor U V^T of a matrix (..., m, n) = U S V^T, in its dtype; computed in float64."""
    wide = matrix.shape[-2] < matrix.shape[-1]
    x = (matrix.mT if wide else matrix).double()
    gram = x.mT @ x
    # The largest singular value is at most the fourth root of the sum of all fourth powers.
    bound = torch.linalg.matrix_norm(gram, keepdim=True).sqrt() * (1 + LOWER_END)
    x = torch.where(bound > 0, x / bound, 0.0)
    for rho in SCALINGS:
        x = 1.5 * rho * x - 0.5 * rho**3 * (x @ (x.mT @ x))
    x = x.to(matrix.dtype)
    return x.mT if wide else x
