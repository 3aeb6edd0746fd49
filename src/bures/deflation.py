r"""Polar factors of float32 matrices from eigendecompositions of Gram matrices, on the CPU.

A Gram matrix is the cheapest thing to decompose and has half the digits. So each gives the directions it resolves, what
it resolves is projected out, and the rest is decomposed again. Where a few directions hold nearly all of a matrix the
first decomposition would give these alone: they are found by subspace iteration, and their singular values lowered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

__all__ = [
    "GRAM_RESOLUTION",
    "TINY",
    "converging",
    "deflate",
    "eigh_of_gram",
    "gram_norm_and_polar",
    "harmless_unit",
    "is_steep",
    "level_leading",
    "rounding_share",
    "sketch",
]

GRAM_RESOLUTION = 1e-7  # relative; the left singular vectors of a Gram matrix have two digits here, and none at 1e-8

TINY = torch.finfo(torch.float64).tiny

SMALL_REST = 64
"""What is left of a float32 matrix is decomposed at once, in float64, when it has no more directions than this."""

SMALL_STEEP = 160
"""A float32 matrix of steep spectrum is decomposed at once up to this side: by parts it would take as long."""

LEVELLED = 8
"""One direction in so many is looked at for being levelled (`level_leading`)."""

LEVEL_ERROR = 3e-4
"""How far levelling may turn the polar factor of a float32 matrix."""

HARMLESS = 2.0**-20, 2.0**20
"""Between these, the largest entry of a matrix leaves the squares of its Gram matrices in the range of float32."""

RESOLVED = {torch.float32: 1e-2, torch.float64: 3e-5}
"""Singular values above this share of the largest are taken from a Gram matrix of that dtype.

Its rounding, eps times the largest eigenvalue, turns a direction of share x by about eps / x^2: 1e-3 for float32, and
less in the mean. A smaller share saves decompositions and costs digits of the gradient.
"""


def gram_norm_and_polar(matrix: Tensor, floor: float = 0) -> tuple[Tensor, Tensor]:
    """Norm and polar factor of a tall matrix (..., m, n); directions below the floor are left out of the factor."""
    exact = matrix.double()
    s, v = eigh_of_gram(exact.mT @ exact)
    inverse = 1 / s.maximum(GRAM_RESOLUTION * s[..., -1:] + TINY)
    if floor:
        inverse *= s > floor
    return s.sum(dim=-1).to(matrix.dtype), (exact @ (v * inverse.unsqueeze(-2) @ v.mT)).to(matrix.dtype)


def eigh_of_gram(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values, from the smallest, and right singular vectors, as far as the Gram matrix resolves them."""
    values, v = converging(torch.linalg.eigh, gram)
    return values.clamp_min(0).sqrt(), v


def deflate(matrix: Tensor, *, overwrite: bool) -> tuple[Tensor, Tensor]:
    """Norm and polar factor of a tall matrix (m, n) from Gram matrices in its dtype."""
    if (unit := harmless_unit(matrix)) == 1:
        return _deflate(matrix, overwrite=overwrite)
    norm, polar = _deflate(matrix.div_(unit) if overwrite else matrix / unit, overwrite=True)
    return norm * unit, polar


def harmless_unit(matrix: Tensor) -> float:
    """A power of two in units of which squares of squares stay in the range of float32; one where they do anyway."""
    lowest, highest = torch.aminmax(matrix)
    size = max(-float(lowest), float(highest))
    if HARMLESS[0] < size < HARMLESS[1] or not 0 < size < math.inf:
        return 1.0
    return math.ldexp(1.0, math.frexp(size)[1] - 1)


def _deflate(matrix: Tensor, *, overwrite: bool) -> tuple[Tensor, Tensor]:
    gram = matrix.mT @ matrix
    if matrix.dtype != torch.float32 or not is_steep(gram):
        return _deflate_level(matrix, gram, overwrite=overwrite)
    if matrix.shape[1] <= SMALL_STEEP:
        return gram_norm_and_polar(matrix)
    excess, matrix, gram = level_leading(matrix, gram)
    norm, polar = _deflate_level(matrix, gram, float(excess[-1]), overwrite=overwrite)
    return norm + excess.sum(), polar


def _deflate_level(matrix: Tensor, gram: Tensor, lowered: float = 0, *, overwrite: bool) -> tuple[Tensor, Tensor]:
    """The same for a spectrum that is not steep, or was levelled: then the largest singular value was lowered so far.

    The matrix may be overwritten, the Gram matrix is not.
    """
    s, v = eigh_of_gram(gram)
    del gram
    norm, polar, is_single = s.new_zeros(()), None, s.dtype == torch.float32
    # Singular values up to here are rounding. Nothing below divides by a square, so what is half lost in it may pass.
    # Levelling takes the rounding of products away, and leaves that of the matrix itself, which is less by far.
    floor = rounding_share(s) * max(float(s[-1]), lowered / 16) / 4
    rest, turned = matrix, v  # rest is matrix @ basis for an orthonormal basis, and turned is basis @ v
    while float(s[-1]) > floor:
        columns = rest @ v
        unresolved = int(torch.searchsorted(s, RESOLVED[s.dtype] * s[-1]))
        lengths = torch.linalg.vector_norm(columns[:, unresolved:], dim=0)
        u = columns[:, unresolved:] / lengths.clamp_min(floor)
        norm += lengths.sum()
        if polar is None:
            polar = matrix.zero_() if overwrite else torch.zeros_like(matrix)
        polar.addmm_(u, turned[:, unresolved:].mT)
        if not unresolved:
            return norm, polar
        rest = columns[:, :unresolved] - u @ (u.mT @ columns[:, :unresolved])
        del columns, u, v
        if is_single and unresolved <= SMALL_REST:
            norm_of_rest, own = gram_norm_and_polar(rest, floor)
            return norm + norm_of_rest, polar.addmm_(own, turned[:, :unresolved].mT)
        s, v = eigh_of_gram(rest.mT @ rest)
        turned = turned[:, :unresolved] @ v
    return norm + s.sum(), torch.zeros_like(matrix) if polar is None else polar


def is_steep(gram: Tensor) -> bool:
    """Whether a few directions hold nearly all of a matrix, by the effective rank of its Gram matrix (n, n)."""
    length = float(torch.linalg.vector_norm(gram))
    directions = (float(gram.diagonal().sum()) / max(length, torch.finfo(gram.dtype).tiny)) ** 2
    return 0 < directions <= min(len(gram) / 24, 8)


def level_leading(matrix: Tensor, gram: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Lower the leading singular values of a matrix (m, n) to one level, which leaves its polar factor as it is.

    Else the first Gram matrix would resolve these few alone, at the cost of a whole decomposition. They are found by
    subspace iteration. With :math:`M^\top u = s v` and :math:`M v = s u + r`, lowering s to a level turns the polar
    factor by at most :math:`\|r\|` over the level, so they are lowered as far as this is small, and no further than to
    the next singular value.

    Returns what was taken from the leading singular values, the largest last, the new matrix and its Gram matrix.
    """
    n, k = len(gram), len(gram) // LEVELLED
    q = torch.linalg.qr(gram @ sketch(n, k, gram.dtype, gram.device))[0]
    image = gram @ q
    lowest, highest = torch.aminmax(torch.linalg.eigvalsh(q.mT @ image))
    unchanged = gram.new_zeros(1), matrix, gram
    if float(lowest) > RESOLVED[gram.dtype] ** 2 * float(highest):  # the first Gram matrix will resolve more than this
        return unchanged
    left = torch.linalg.qr(matrix @ torch.linalg.qr(image)[0])[0]
    right = (matrix.mT @ left).double()
    s, w = eigh_of_gram(right.mT @ right)
    u, v = left @ w.to(matrix.dtype), (right @ (w / (s + TINY))).to(matrix.dtype)
    residuals = torch.linalg.vector_norm(torch.addcmul(matrix @ v, u, s.to(matrix.dtype), value=-1), dim=0)
    largest = residuals.flip(0).cummax(0).values.flip(0)  # among the direction and those above it
    known = int(torch.count_nonzero(largest <= LEVEL_ERROR * s))
    if not known:
        return unchanged
    level = max(float(s[max(k - known - 1, 0)]), float(largest[-known]) / LEVEL_ERROR)
    excess = (s[-known:] - level).to(matrix.dtype)
    matrix = torch.addmm(matrix, u[:, -known:] * excess, v[:, -known:].mT, alpha=-1)
    return excess, matrix, matrix.mT @ matrix


@lru_cache(maxsize=4)
def sketch(n: int, rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Fixed directions (n, rank): the same matrix has the same norm at every call."""
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode(False):  # kept for calls of every kind
        return torch.randn(n, rank, generator=generator, dtype=dtype, device="cpu").to(device)


def converging(decompose: Callable[[Tensor], tuple[Tensor, ...]], matrix: Tensor) -> tuple[Tensor, ...]:
    """Decompose a matrix; where the driver does not converge, once more in float64 on the CPU."""
    if torch.compiler.is_compiling():
        return decompose(matrix)
    try:
        return decompose(matrix)
    except torch.linalg.LinAlgError:
        return tuple(part.to(matrix) for part in decompose(matrix.double().cpu()))


def rounding_share(s: Tensor) -> float:
    """The share of the largest singular value up to which others are rounding of zero.

    Small singular values carry gradient, so float32 cuts at its epsilon and lets some noise pass. float64 can afford
    the usual factor of the matrix size.
    """
    eps = torch.finfo(s.dtype).eps
    return max(eps, min(s.shape[-1] * eps, 1e-12))
