r"""Nuclear norms with a backward that never differentiates a singular vector.

The gradient of :math:`\|M\|_*` is the polar factor :math:`U V^\top` of :math:`M = U S V^\top`. It is bounded and does
not involve differences of singular values, so repeated and vanishing ones cannot give NaN. Only structural zeros
(singular values that rounding leaves of an exact zero) are left out of it: centred matrices always have one, duplicated
samples make more. There the norm has a kink, and what is returned is one of its subgradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bures.arrays import checks_values, is_transformed
from bures.deflation import (
    GRAM_RESOLUTION,
    converging,
    deflate,
    gram_norm_and_polar,
    harmless_unit,
    rounding_share,
    sketch,
)
from bures.forward_mode import apply, further_derivative_wanted, is_forward_mode, save
from bures.polar import polar_factor, product_norm_and_gradients

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
hold nearly all of the matrix, their singular values are lowered first, which changes no gradient. ``"polar"``: the
polar factor by matrix products in float64, to the resolution of ``"gram"``. (Of large float32 samples on a GPU it has
five digits, as `bures.polar.norm_and_rounded_polar_factor` says.)

``"low-rank"`` is approximate: the leading quarter of the directions by a randomised range finder, the rest as if its
singular values were equal. `nuclear_norm_error` bounds the error of the value. That of the gradient has no bound; on
the features of the benchmarks it is tens of percent.

``"auto"`` is ``"svd"`` for float64 matrices; for float32 it is ``"polar"`` on a GPU and elsewhere ``"deflation"``, or
``"gram"`` where the matrix is small. All of these are faster than an SVD in float32, and more accurate in small
directions. ``"deflation"`` and ``"low-rank"`` are for one matrix at a time: batches and compiled code take ``"gram"``.
"""

SMALL = 96
"""Matrices of smaller sides are decomposed at once, in float64: their time is that of the calls."""

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
    in_a_graph = matrix.requires_grad or (not torch.compiler.is_compiling() and is_transformed())
    if is_forward_mode() or (torch.is_grad_enabled() and in_a_graph):
        norm: Tensor = apply(_NuclearNorm, matrix, method)[0]
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


def product_nuclear_norm(a: Tensor, b: Tensor, method: str = "auto") -> Tensor:
    """Nuclear norm of ``a @ b.T`` for a (n, d) and b (m, d), in time and memory linear in n and m.

    By decompositions of both, and the product is never formed. Only where the ``method``, one of `METHODS`, is
    ``"polar"``, which ``"auto"`` is for float32 on a GPU, by matrix products in float64 (`bures.polar`).
    """
    way = _ProductByPolar if _resolve(method, a) == "polar" else _ProductNuclearNorm
    norm: Tensor = apply(way, a, b)[0]
    return norm


def covariance_fidelity(cov_s: Tensor, cov_t: Tensor) -> Tensor:
    """Trace of the square root of ``cov_s^(1/2) cov_t cov_s^(1/2)`` for two positive semi-definite matrices (d, d).

    The gradient is half the optimal transport map between the centred Gaussians. Where a singular covariance gains a
    direction, the fidelity grows like a square root and has no derivative: nothing flows there. Movements of its range,
    such as those of samples that are fewer than their features, have their derivative.
    """
    fidelity: Tensor = apply(_CovarianceFidelity, cov_s, cov_t)[0]
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
        norm, polar = deflate(matrix.mT if wide else matrix, overwrite=overwrite)
        return norm, polar.mT if wide else polar
    if method == "low-rank":
        return _low_rank(matrix)[:2]
    if method == "gram" and matrix.shape[-2] >= matrix.shape[-1]:
        return gram_norm_and_polar(matrix)
    u, s, vh = _thin_svd(matrix, method)
    return s.sum(dim=-1), u * _not_structural_zero(s) @ vh


def _low_rank(matrix: Tensor) -> tuple[Tensor, Tensor, float]:
    r"""Approximate norm and gradient of a matrix (m, n), and by how much its true norm may exceed the lowest estimate.

    For an orthonormal Q, :math:`\|Q^\top M\|_* \le \|M\|_* \le \|Q^\top M\|_* + \sqrt k \|M - Q Q^\top M\|_F`,
    with k the number of singular values that Q leaves. The estimate lies between, at the place `FLATNESS`, and the
    gradient is that of the estimate with Q held.
    """
    if (unit := harmless_unit(matrix)) != 1:
        norm, polar, gap = _low_rank(matrix / unit)
        return norm * unit, polar, gap * unit
    smaller = min(matrix.shape)
    rank = smaller // LOW_RANK
    # A round of subspace iteration turns the sketch to the leading directions; without it the rest is far from flat.
    # Made orthonormal only at the end, it would lose in float32 what is below 5e-3 of the largest singular value; as
    # it is, 3e-4.
    q = torch.linalg.qr(matrix.mT @ (matrix @ sketch(matrix.shape[1], rank, matrix.dtype, matrix.device)))[0]
    q = torch.linalg.qr(matrix @ q)[0]
    projected = q.mT @ matrix
    norm, polar = _norm_and_polar(projected.mT, "polar" if matrix.is_cuda else "deflation")
    rest = torch.addmm(matrix, q, projected, alpha=-1)
    length = float(torch.linalg.vector_norm(rest))
    if length <= ROUNDING_OF_REST * torch.finfo(matrix.dtype).eps * float(torch.linalg.vector_norm(matrix)):
        return norm, q @ polar.mT, 0.0
    gap = math.sqrt(smaller - rank) * length
    return norm + FLATNESS * gap, rest.mul_(FLATNESS * gap / length**2).addmm_(q, polar.mT), gap


def _singular_values(matrix: Tensor, method: str) -> Tensor:
    if method == "svd":
        return converging(lambda a: (torch.linalg.svdvals(a),), matrix)[0]
    exact = matrix.double()
    gram = exact.mT @ exact if matrix.shape[-2] >= matrix.shape[-1] else exact @ exact.mT
    (values,) = converging(lambda a: (torch.linalg.eigvalsh(a),), gram)
    return values.clamp_min(0).sqrt().to(matrix.dtype)


def _thin_svd(matrix: Tensor, method: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """U, S (from the largest) and V^T; columns of U or V that cannot be told from noise are zero."""
    method = method or ("gram" if matrix.dtype == torch.float32 else "svd")
    if method == "svd":
        u, s, vh = converging(lambda a: torch.linalg.svd(a, full_matrices=False), matrix)
        return u, s, vh
    if matrix.shape[-2] < matrix.shape[-1]:
        v, s, uh = _thin_svd(matrix.mT, method)
        return uh.mT, s, v.mT
    exact = matrix.double()
    values, v = converging(torch.linalg.eigh, exact.mT @ exact)
    s, v = values.clamp_min(0).sqrt().flip(-1), v.flip(-1)
    inverse = torch.where(s > GRAM_RESOLUTION * s[..., :1], 1 / s, 0.0)
    u = exact @ v * inverse.unsqueeze(-2)
    return u.to(matrix.dtype), s.to(matrix.dtype), v.mT.to(matrix.dtype)


def _not_structural_zero(s: Tensor) -> Tensor:
    """Mask (..., 1, k) of the singular values, sorted from the largest, that are not rounding of zero."""
    return (s > rounding_share(s) * s[..., :1]).to(s.dtype).unsqueeze(-2)


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

    @staticmethod
    def tangent(ctx: Any, *_: Tensor | None) -> Tensor:
        raise RuntimeError(f"{ctx.what} is not available; detach this term")


def _last_derivative(gradient: Tensor, what: str, *inputs: Tensor) -> Tensor:
    """Mark a gradient as the last derivative with respect to ``inputs`` that can be had."""
    if not further_derivative_wanted():
        return gradient
    marked: Tensor = apply(_NoFurtherDerivative, gradient, what, *inputs)
    return marked


class _NuclearNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, method: str) -> tuple[Tensor, Tensor]:
        return _norm_and_polar(matrix, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        save(ctx, inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        matrix, polar = ctx.saved_tensors
        if further_derivative_wanted():
            polar = _differentiable_polar_factor(matrix)
        return grad[..., None, None] * polar, None

    @staticmethod
    def tangent(ctx: Any, to_matrix: Tensor, _: None) -> tuple[Tensor, None]:
        matrix, _ = ctx.saved_tensors
        return (_differentiable_polar_factor(matrix) * to_matrix).sum(dim=(-2, -1)), None


class _PolarFactor(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
        return u * _not_structural_zero(s) @ vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor) -> None:
        save(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        matrix, u, s, vh = ctx.saved_tensors
        return _second_derivative(matrix, u, s, vh, grad), None, None, None

    @staticmethod
    def tangent(ctx: Any, to_matrix: Tensor, *_: Tensor) -> Tensor:
        matrix, u, s, vh = ctx.saved_tensors
        return _second_derivative(matrix, u, s, vh, to_matrix)


def _differentiable_polar_factor(matrix: Tensor) -> Tensor:
    """The gradient of the nuclear norm of a matrix, as a function of the matrix."""
    polar: Tensor = apply(_PolarFactor, matrix, *_thin_svd(matrix.detach()))
    return polar


def _second_derivative(matrix: Tensor, u: Tensor, s: Tensor, vh: Tensor, direction: Tensor) -> Tensor:
    """How the polar factor of a matrix changes in a direction: a symmetric map, so its own adjoint."""
    # The second derivative divides by singular values, so here noise must not pass.
    noise = torch.finfo(s.dtype).eps ** (2 / 3)
    keep = (s > noise * s[..., :1]).to(s.dtype).unsqueeze(-2)
    u, v = u * keep, vh.mT * keep
    inverse = torch.where(keep > 0, 1 / s.unsqueeze(-2), 0.0)
    pairs = torch.where(keep.mT * keep > 0, 1 / (s.unsqueeze(-1) + s.unsqueeze(-2)), 0.0)
    along_v, ut_along = direction @ v, u.mT @ direction
    core = u.mT @ along_v * pairs
    within = u @ (core - core.mT) @ v.mT
    left = (along_v - u @ (u.mT @ along_v)) * inverse @ v.mT
    right = u * inverse @ (ut_along - (ut_along @ v) @ v.mT)
    return _last_derivative(within + left + right, "the third derivative of a nuclear norm", matrix, direction)


class _ValueAndParts(torch.autograd.Function):
    """A function of two matrices whose forward gives its value, and after it what the backward takes."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        save(ctx, *inputs, *output[1:])


class _ProductNuclearNorm(_ValueAndParts):
    @staticmethod
    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        (q_a, r_a), (q_b, r_b) = torch.linalg.qr(a), torch.linalg.qr(b)
        u, s, vh = _thin_svd(r_a @ r_b.mT)
        return s.sum(dim=-1), q_a, r_a, q_b, r_b, u * _not_structural_zero(s) @ vh

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        a, b, q_a, r_a, q_b, r_b, polar = ctx.saved_tensors
        if further_derivative_wanted():
            to_a, to_b = _differentiable_gradients(a, b)
        else:
            to_a, to_b = q_a @ (polar @ r_b), q_b @ (polar.mT @ r_a)
        return grad * to_a, grad * to_b

    @staticmethod
    def tangent(ctx: Any, to_a: Tensor, to_b: Tensor) -> tuple[Tensor | None, ...]:
        a, b, *_ = ctx.saved_tensors
        return _tangent_of_product(a, b, to_a, to_b), *[None] * 5


class _ProductByPolar(_ValueAndParts):
    @staticmethod
    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return product_norm_and_gradients(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        a, b, to_a, to_b = ctx.saved_tensors
        if further_derivative_wanted():
            to_a, to_b = _differentiable_gradients(a, b)
        return grad * to_a, grad * to_b

    @staticmethod
    def tangent(ctx: Any, to_a: Tensor, to_b: Tensor) -> tuple[Tensor | None, ...]:
        a, b, *_ = ctx.saved_tensors
        return _tangent_of_product(a, b, to_a, to_b), None, None


def _tangent_of_product(a: Tensor, b: Tensor, to_a: Tensor, to_b: Tensor) -> Tensor:
    along_a, along_b = _differentiable_gradients(a, b)
    return (along_a * to_a).sum() + (along_b * to_b).sum()


def _differentiable_gradients(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the nuclear norm of ``a @ b.T`` as functions of both, from the product after all."""
    polar = _differentiable_polar_factor(a @ b.mT)
    return polar @ b, polar.mT @ a


class _CovarianceFidelity(_ValueAndParts):
    @staticmethod
    def forward(cov_s: Tensor, cov_t: Tensor) -> tuple[Tensor, ...]:
        (values_s, vectors_s), (values_t, vectors_t) = psd_eigh(cov_s), psd_eigh(cov_t)
        factor_s, factor_t = vectors_s * values_s.sqrt(), vectors_t * values_t.sqrt()
        u, s, vh = _thin_svd(factor_t.mT @ factor_s)
        return s.sum(dim=-1), values_s, vectors_s, values_t, vectors_t, u, s, vh

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        to_s, to_t = _half_transports(*ctx.saved_tensors)
        return grad * to_s, grad * to_t

    @staticmethod
    def tangent(ctx: Any, to_s: Tensor, to_t: Tensor) -> tuple[Tensor | None, ...]:
        along_s, along_t = _half_transports(*ctx.saved_tensors)
        return (along_s * to_s).sum() + (along_t * to_t).sum(), *[None] * 7


def _half_transports(
    cov_s: Tensor,
    cov_t: Tensor,
    values_s: Tensor,
    vectors_s: Tensor,
    values_t: Tensor,
    vectors_t: Tensor,
    u: Tensor,
    s: Tensor,
    vh: Tensor,
) -> Iterator[Tensor]:
    """The gradients of the fidelity in both covariances; no derivative of them can be had."""
    refusal = "the second derivative of the Bures distance with respect to covariances"
    sides = _Side(values_s, vectors_s, vh.mT), _Side(values_t, vectors_t, u)
    for own, other in (sides, sides[::-1]):
        yield _last_derivative(_half_transport(own, other, s), refusal, cov_s, cov_t)


class _Side(NamedTuple):
    """Eigenvalues and eigenvectors of a covariance, and its singular vectors in the product of both roots."""

    values: Tensor
    vectors: Tensor
    rotation: Tensor


def _half_transport(own: _Side, other: _Side, s: Tensor) -> Tensor:
    """Half the transport map T of one covariance, T L = L' U V^T for its root L and the other's L'.

    On the covariance's range this is ``L^-T (M^T M)^(1/2) L^-1``, which is symmetric however it is rounded.
    """
    inside = _in_range(own.values)
    inverse_root = torch.where(inside, own.values.clamp_min(torch.finfo(s.dtype).tiny).rsqrt(), 0.0)
    inverse = own.vectors * inverse_root @ own.rotation
    left = inverse * s.sqrt()
    other_root = other.vectors * torch.where(_in_range(other.values), other.values, 0.0).sqrt()
    moved = other_root @ (other.rotation * _not_structural_zero(s)) @ inverse.mT
    basis = own.vectors * inside
    outside = moved - basis @ (basis.mT @ moved)
    return (left @ left.mT + outside + outside.mT) / 2


def _in_range(values: Tensor) -> Tensor:
    """Which eigenvalues (k,) of a covariance, sorted to the largest, are not rounding of zero."""
    return values > values.shape[-1] * torch.finfo(values.dtype).eps * values[-1]
