r"""Nuclear norms with a backward that never differentiates a singular vector.

The gradient of :math:`\|M\|_*` is the polar factor :math:`U V^\top` of :math:`M = U S V^\top`. It is bounded and does
not involve differences of singular values, so repeated and vanishing ones cannot give NaN. Only structural zeros
(singular values that rounding leaves of an exact zero) are left out of it: centred matrices always have one, duplicated
samples make more. There the norm has a kink, and what is returned is one of its subgradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.polar import polar_factor

__all__ = [
    "METHODS",
    "SMALL",
    "covariance_fidelity",
    "norm_and_polar_factor",
    "nuclear_norm",
    "nuclear_norm_error",
    "product_nuclear_norm",
    "psd_eigh",
]


METHODS = ("auto", "svd", "gram", "deflation", "low-rank", "polar")
"""How a nuclear norm and its gradient are computed.

``"svd"``: a singular value decomposition in the dtype of the matrix. ``"gram"``: the eigendecomposition of the smaller
Gram matrix in float64. Squaring costs half the digits, so singular values are good to 1e-8 of the largest: less than
float64 has and more than float32 can hold. ``"deflation"``: eigendecompositions of Gram matrices in the dtype of the
matrix. Each gives the directions it resolves well, these are projected out, and what is left is decomposed again: more
accurate in small directions than an SVD, from products and the cheapest decomposition there is. Where a few directions
hold nearly all of the matrix, their singular values are lowered first, which changes no gradient. ``"polar"``: the polar factor by matrix
products in float64, to the resolution of ``"gram"``.

``"low-rank"`` is approximate: the leading quarter of the directions by a randomised range finder, the rest as if its
singular values were equal. `nuclear_norm_error` bounds the error of the value. That of the gradient has no bound; on
the features of the benchmarks it is tens of percent.

``"auto"`` is ``"svd"`` for float64 matrices; for float32 it is ``"polar"`` on a GPU and elsewhere ``"deflation"``, or
``"gram"`` where the matrix is small. All of these are faster than an SVD in float32, and more accurate in small
directions. ``"deflation"`` and ``"low-rank"`` are for one matrix at a time: batches and compiled code take ``"gram"``.
"""

GRAM_RESOLUTION = 1e-7  # relative; the left singular vectors of a Gram matrix have two digits here, and none at 1e-8

TINY = torch.finfo(torch.float64).tiny

SMALL = 96
"""Matrices of smaller sides are decomposed at once, in float64: their time is that of the calls."""

SMALL_REST = 64
"""What is left of a float32 matrix is decomposed at once, in float64, when it has no more directions than this."""

SMALL_STEEP = 160
"""A float32 matrix of steep spectrum is decomposed at once up to this side: by parts it would take as long."""

LEVELLED = 8
"""One direction in so many is looked at for being levelled (`_level`)."""

LEVEL_ERROR = 3e-4
"""How far levelling may turn the polar factor of a float32 matrix."""

RESOLVED = {torch.float32: 1e-2, torch.float64: 3e-5}
"""Singular values above this share of the largest are taken from a Gram matrix of that dtype.

Its rounding, eps times the largest eigenvalue, turns a direction of share x by about eps / x^2: 1e-3 for float32, and
less in the mean. A smaller share saves decompositions and costs digits of the gradient.
"""

LOW_RANK = 4
"""One direction in so many is computed: with fewer, products with whole matrices take most of the time all the same."""

FLATNESS = 0.7
"""Where the norm of the rest is taken to be between its bounds, zero and the norm of a matrix of equal singular values.

Set by hand in sight of the benchmarks' features, which have 0.5 (a trained LeNet) to 0.8 (noise). The bound of the
error holds for any value.
"""


ROUNDING_OF_REST = 10
"""A rest up to so many times the rounding of the whole matrix is rounding itself, whose direction is no gradient."""


def nuclear_norm(matrix: Tensor, method: str = "auto") -> Tensor:
    """Sum of the singular values of a matrix (..., m, n).

    Differentiable twice: the second derivative is exact where no singular value vanishes except for directions that
    every perturbation shares (as centring does).
    """
    method = _resolve(method, matrix)
    # Under a transform of torch.func a tensor does not say whether what it stands for needs a gradient.
    if torch.is_grad_enabled() and (matrix.requires_grad or (not torch.compiler.is_compiling() and is_transformed())):
        norm: Tensor = _NuclearNorm.apply(matrix, method)[0]
        return norm
    if method in ("svd", "gram"):
        return _singular_values(matrix.detach(), method).sum(dim=-1)
    return _norm_and_polar(matrix, method)[0]


def norm_and_polar_factor(matrix: Tensor, method: str = "auto") -> tuple[Tensor, Tensor]:
    """Nuclear norm of a matrix (..., m, n) and its gradient, the polar factor U V^T, outside of any graph.

    The matrix may be overwritten.
    """
    return _norm_and_polar(matrix, _resolve(method, matrix), overwrite=True)


def nuclear_norm_error(matrix: Tensor, method: str) -> float:
    """Bound of what ``nuclear_norm(matrix, method)`` may be off for a matrix (m, n), rounding aside; 0 if exact."""
    if _resolve(method, matrix) != "low-rank":
        return 0.0
    return max(FLATNESS, 1 - FLATNESS) * _low_rank(matrix)[2]


def product_nuclear_norm(a: Tensor, b: Tensor) -> Tensor:
    """Nuclear norm of ``a @ b.T`` for a (n, d) and b (m, d), linear in n and m: the product is never formed."""
    norm: Tensor = _ProductNuclearNorm.apply(a, b)[0]
    return norm


def covariance_fidelity(cov_s: Tensor, cov_t: Tensor) -> Tensor:
    """Trace of the square root of ``cov_s^(1/2) cov_t cov_s^(1/2)`` for two positive semi-definite matrices (d, d).

    The gradient is half the optimal transport map between the centred Gaussians, restricted to the range of the
    matrix it belongs to. Outside the range of a singular covariance the fidelity grows like a square root and has
    no derivative; nothing flows there.
    """
    fidelity: Tensor = _CovarianceFidelity.apply(cov_s, cov_t)[0]
    return fidelity


def psd_eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (clamped at zero) and eigenvectors of a positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp_min(0), vectors


def _resolve(method: str, matrix: Tensor) -> str:
    if method == "deflation" and not _may_look(matrix):
        return "gram"
    if method == "low-rank" and not (_may_look(matrix) and min(matrix.shape) >= SMALL):
        return "gram"
    if method != "auto":
        return method
    if matrix.dtype != torch.float32:
        return "svd"
    if matrix.is_cuda:
        return "polar"
    return "deflation" if min(matrix.shape[-2:]) >= SMALL and _may_look(matrix) else "gram"


def _may_look(matrix: Tensor) -> bool:
    """Whether the work may depend on the values of this one matrix."""
    return matrix.ndim == 2 and checks_values()


def _norm_and_polar(matrix: Tensor, method: str, *, overwrite: bool = False) -> tuple[Tensor, Tensor]:
    if method == "polar":
        polar = polar_factor(matrix)
        return (polar * matrix).sum(dim=(-2, -1)), polar
    if method == "deflation":
        wide = matrix.shape[-2] < matrix.shape[-1]
        norm, polar = _deflate(matrix.mT if wide else matrix, overwrite=overwrite)
        return norm, polar.mT if wide else polar
    if method == "low-rank":
        return _low_rank(matrix)[:2]
    if method == "gram" and matrix.shape[-2] >= matrix.shape[-1]:
        return _gram_norm_and_polar(matrix)
    u, s, vh = _thin_svd(matrix, method)
    return s.sum(dim=-1), u * _not_structural_zero(s) @ vh


def _gram_norm_and_polar(matrix: Tensor, floor: float = 0) -> tuple[Tensor, Tensor]:
    """Norm and polar factor of a tall matrix (..., m, n); directions below the floor are left out of the factor."""
    exact = matrix.double()
    s, v = _eigh_of_gram(exact.mT @ exact)
    inverse = 1 / s.maximum(GRAM_RESOLUTION * s[..., -1:] + TINY)
    if floor:
        inverse *= s > floor
    return s.sum(dim=-1).to(matrix.dtype), (exact @ (v * inverse.unsqueeze(-2) @ v.mT)).to(matrix.dtype)


def _eigh_of_gram(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values, from the smallest, and right singular vectors, as far as the Gram matrix resolves them."""
    values, v = _converging(torch.linalg.eigh, gram)
    return values.clamp_min(0).sqrt(), v


def _deflate(matrix: Tensor, *, overwrite: bool) -> tuple[Tensor, Tensor]:
    """Norm and polar factor of a tall matrix (m, n) from Gram matrices in its dtype."""
    norm, polar = matrix.new_zeros(()), None
    gram, is_single = matrix.mT @ matrix, matrix.dtype == torch.float32
    if is_single and _is_steep(gram):
        if matrix.shape[1] <= SMALL_STEEP:
            return _gram_norm_and_polar(matrix)
        norm, matrix, gram = _level(matrix, gram)
    s, v = _eigh_of_gram(gram)
    del gram
    # Singular values up to here are rounding. Nothing below divides by a square, so what is half lost in it may pass.
    floor = _cut(s) * float(s[-1]) / 4
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
            norm_of_rest, own = _gram_norm_and_polar(rest, floor)
            return norm + norm_of_rest, polar.addmm_(own, turned[:, :unresolved].mT)
        s, v = _eigh_of_gram(rest.mT @ rest)
        turned = turned[:, :unresolved] @ v
    return norm + s.sum(), torch.zeros_like(matrix) if polar is None else polar


def _is_steep(gram: Tensor) -> bool:
    """Whether a few directions hold nearly all of a matrix, by the effective rank of its Gram matrix (n, n)."""
    length = float(torch.linalg.vector_norm(gram))
    directions = (float(gram.diagonal().sum()) / max(length, torch.finfo(gram.dtype).tiny)) ** 2
    return 0 < directions <= min(len(gram) / 24, 8)


def _level(matrix: Tensor, gram: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Lower the leading singular values of a matrix (m, n) to one level, which leaves its polar factor as it is.

    Else the first Gram matrix would resolve these few alone, at the cost of a whole decomposition. They are found by
    subspace iteration. With :math:`M^\top u = s v` and :math:`M v = s u + r`, lowering s to a level turns the polar
    factor by at most :math:`\|r\|` over the level, so they are lowered as far as this is small, and no further than to
    the next singular value.

    Returns what was taken from the norm, the new matrix and its Gram matrix.
    """
    n, k = len(gram), len(gram) // LEVELLED
    q = torch.linalg.qr(gram @ _sketch(n, k, gram.dtype, gram.device))[0]
    image = gram @ q
    lowest, highest = torch.aminmax(torch.linalg.eigvalsh(q.mT @ image))
    unchanged = gram.new_zeros(()), matrix, gram
    if float(lowest) > RESOLVED[gram.dtype] ** 2 * float(highest):  # the first Gram matrix will resolve more than this
        return unchanged
    left = torch.linalg.qr(matrix @ torch.linalg.qr(image)[0])[0]
    right = (matrix.mT @ left).double()
    s, w = _eigh_of_gram(right.mT @ right)
    u, v = left @ w.to(matrix.dtype), (right @ (w / (s + TINY))).to(matrix.dtype)
    residuals = torch.linalg.vector_norm(torch.addcmul(matrix @ v, u, s.to(matrix.dtype), value=-1), dim=0)
    largest = residuals.flip(0).cummax(0).values.flip(0)  # among the direction and those above it
    known = int(torch.count_nonzero(largest <= LEVEL_ERROR * s))
    if not known:
        return unchanged
    level = max(float(s[max(k - known - 1, 0)]), float(largest[-known]) / LEVEL_ERROR)
    excess = (s[-known:] - level).to(matrix.dtype)
    matrix = torch.addmm(matrix, u[:, -known:] * excess, v[:, -known:].mT, alpha=-1)
    return excess.sum(), matrix, matrix.mT @ matrix


def _low_rank(matrix: Tensor) -> tuple[Tensor, Tensor, float]:
    r"""Approximate norm and gradient of a matrix (m, n), and by how much its true norm may exceed the lowest estimate.

    For an orthonormal Q, :math:`\|Q^\top M\|_* \le \|M\|_* \le \|Q^\top M\|_* + \sqrt k \|M - Q Q^\top M\|_F`,
    with k the number of singular values that Q leaves. The estimate lies between, at the place `FLATNESS`, and the
    gradient is that of the estimate with Q held.
    """
    smaller = min(matrix.shape)
    rank = smaller // LOW_RANK
    # A round of subspace iteration turns the sketch to the leading directions; without it the rest is far from flat.
    # Made orthonormal only at the end, it would lose in float32 what is below 5e-3 of the largest singular value; as
    # it is, 3e-4.
    q = torch.linalg.qr(matrix.mT @ (matrix @ _sketch(matrix.shape[1], rank, matrix.dtype, matrix.device)))[0]
    q = torch.linalg.qr(matrix @ q)[0]
    projected = q.mT @ matrix
    norm, polar = _norm_and_polar(projected.mT, "polar" if matrix.is_cuda else "deflation")
    rest = torch.addmm(matrix, q, projected, alpha=-1)
    length = float(torch.linalg.vector_norm(rest))
    if length <= ROUNDING_OF_REST * torch.finfo(matrix.dtype).eps * float(torch.linalg.vector_norm(matrix)):
        return norm, q @ polar.mT, 0.0
    gap = math.sqrt(smaller - rank) * length
    return norm + FLATNESS * gap, rest.mul_(FLATNESS * gap / length**2).addmm_(q, polar.mT), gap


@lru_cache(maxsize=4)
def _sketch(n: int, rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Fixed directions (n, rank): the same matrix has the same norm at every call."""
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode(False):  # kept for calls of every kind
        return torch.randn(n, rank, generator=generator, dtype=dtype).to(device)


def _singular_values(matrix: Tensor, method: str) -> Tensor:
    if method == "svd":
        return _converging(lambda a: (torch.linalg.svdvals(a),), matrix)[0]
    exact = matrix.double()
    gram = exact.mT @ exact if matrix.shape[-2] >= matrix.shape[-1] else exact @ exact.mT
    (values,) = _converging(lambda a: (torch.linalg.eigvalsh(a),), gram)
    return values.clamp_min(0).sqrt().to(matrix.dtype)


def _thin_svd(matrix: Tensor, method: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """U, S (from the largest) and V^T; columns of U or V that cannot be told from noise are zero."""
    method = method or ("gram" if matrix.dtype == torch.float32 else "svd")
    if method == "svd":
        u, s, vh = _converging(lambda a: torch.linalg.svd(a, full_matrices=False), matrix)
        return u, s, vh
    if matrix.shape[-2] < matrix.shape[-1]:
        v, s, uh = _thin_svd(matrix.mT, method)
        return uh.mT, s, v.mT
    exact = matrix.double()
    values, v = _converging(torch.linalg.eigh, exact.mT @ exact)
    s, v = values.clamp_min(0).sqrt().flip(-1), v.flip(-1)
    inverse = torch.where(s > GRAM_RESOLUTION * s[..., :1], 1 / s, 0.0)
    u = exact @ v * inverse.unsqueeze(-2)
    return u.to(matrix.dtype), s.to(matrix.dtype), v.mT.to(matrix.dtype)


def _converging(decompose: Callable[[Tensor], tuple[Tensor, ...]], matrix: Tensor) -> tuple[Tensor, ...]:
    """Decompose a matrix; where the driver does not converge, once more in float64 on the CPU."""
    if torch.compiler.is_compiling():
        return decompose(matrix)
    try:
        return decompose(matrix)
    except torch.linalg.LinAlgError:
        return tuple(part.to(matrix) for part in decompose(matrix.double().cpu()))


def _not_structural_zero(s: Tensor) -> Tensor:
    """Mask (..., 1, k) of the singular values, sorted from the largest, that are not rounding of zero.

    Small singular values carry gradient, so float32 cuts at its epsilon and lets some noise pass. float64 can afford
    the usual factor of the matrix size.
    """
    return (s > _cut(s) * s[..., :1]).to(s.dtype).unsqueeze(-2)


def _cut(s: Tensor) -> float:
    eps = torch.finfo(s.dtype).eps
    return max(eps, min(s.shape[-1] * eps, 1e-12))


class _NoFurtherDerivative(torch.autograd.Function):
    """Passes a gradient on and refuses to differentiate it: a constant in its place would give wrong numbers silently.

    (`once_differentiable` refuses only when the incoming gradient itself needs a gradient.)
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, what: str, *inputs: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.what = inputs[1]

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Tensor:
        raise RuntimeError(f"{ctx.what} is not available; detach this term, or leave create_graph=False")


def _last_derivative(gradient: Tensor, what: str, *inputs: Tensor) -> Tensor:
    """Mark a gradient as the last derivative with respect to ``inputs`` that can be had."""
    if not torch.is_grad_enabled():
        return gradient
    marked: Tensor = _NoFurtherDerivative.apply(gradient, what, *inputs)
    return marked


class _NuclearNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, method: str) -> tuple[Tensor, Tensor]:
        return _norm_and_polar(matrix, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        matrix, polar = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: the polar factor as a function of the matrix
            polar = _PolarFactor.apply(matrix, *_thin_svd(matrix.detach()))
        return grad[..., None, None] * polar, None


class _PolarFactor(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
        return u * _not_structural_zero(s) @ vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        matrix, u, s, vh = ctx.saved_tensors
        # The second derivative divides by singular values, so here noise must not pass.
        noise = torch.finfo(s.dtype).eps ** (2 / 3)
        keep = (s > noise * s[..., :1]).to(s.dtype).unsqueeze(-2)
        u, v = u * keep, vh.mT * keep
        inverse = torch.where(keep > 0, 1 / s.unsqueeze(-2), 0.0)
        pairs = torch.where(keep.mT * keep > 0, 1 / (s.unsqueeze(-1) + s.unsqueeze(-2)), 0.0)
        grad_v, ut_grad = grad @ v, u.mT @ grad
        core = u.mT @ grad_v * pairs
        within = u @ (core - core.mT) @ v.mT
        left = (grad_v - u @ (u.mT @ grad_v)) * inverse @ v.mT
        right = u * inverse @ (ut_grad - (ut_grad @ v) @ v.mT)
        second = _last_derivative(within + left + right, "the third derivative of a nuclear norm", matrix, grad)
        return second, None, None, None


class _ProductNuclearNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        (q_a, r_a), (q_b, r_b) = torch.linalg.qr(a), torch.linalg.qr(b)
        u, s, vh = _thin_svd(r_a @ r_b.mT)
        return s.sum(dim=-1), q_a, r_a, q_b, r_b, u * _not_structural_zero(s) @ vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        a, b, q_a, r_a, q_b, r_b, polar = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: form the product and its polar factor after all
            product = a @ b.mT
            polar = _PolarFactor.apply(product, *_thin_svd(product.detach()))
            return grad * (polar @ b), grad * (polar.mT @ a)
        return grad * (q_a @ (polar @ r_b)), grad * (q_b @ (polar.mT @ r_a))


class _CovarianceFidelity(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(cov_s: Tensor, cov_t: Tensor) -> tuple[Tensor, ...]:
        (values_s, vectors_s), (values_t, vectors_t) = psd_eigh(cov_s), psd_eigh(cov_t)
        factor_s, factor_t = vectors_s * values_s.sqrt(), vectors_t * values_t.sqrt()
        u, s, vh = _thin_svd(factor_t.mT @ factor_s)
        return s.sum(dim=-1), values_s, vectors_s, values_t, vectors_t, u, s, vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        cov_s, cov_t, values_s, vectors_s, values_t, vectors_t, u, s, vh = ctx.saved_tensors
        sides = ((values_s, vectors_s, vh.mT), (values_t, vectors_t, u))
        refusal = "the second derivative of the Bures distance with respect to covariances"
        to_s, to_t = (
            _last_derivative(_half_transport(values, vectors, rotation, s), refusal, cov_s, cov_t)
            for values, vectors, rotation in sides
        )
        return grad * to_s, grad * to_t


def _half_transport(values: Tensor, vectors: Tensor, rotation: Tensor, s: Tensor) -> Tensor:
    """Half the transport map of one covariance, ``L^-T (M^T M)^(1/2) L^-1 / 2``, on the covariance's range."""
    inside = values > values.shape[-1] * torch.finfo(values.dtype).eps * values[-1]
    inverse_root = torch.where(inside, values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt(), 0.0)
    left = (vectors * inverse_root) @ (rotation * s.sqrt())
    return left @ left.mT / 2
