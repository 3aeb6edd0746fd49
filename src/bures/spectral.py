r"""Nuclear norms with a backward that never differentiates a singular vector.

The gradient of :math:`\|M\|_*` is the polar factor :math:`U V^\top` of :math:`M = U S V^\top`. It is bounded and does
not involve differences of singular values, so repeated and vanishing ones cannot give NaN. Only structural zeros
(singular values below the dtype's epsilon times the largest) are left out of it: centred matrices always have one,
and any element of the subdifferential is a valid gradient there; this is the smallest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["covariance_fidelity", "nuclear_norm", "product_nuclear_norm", "psd_eigh"]


def nuclear_norm(matrix: Tensor) -> Tensor:
    """Sum of the singular values of a matrix (..., m, n).

    Differentiable twice: the second derivative is exact where no singular value vanishes except for directions that
    every perturbation shares (as centring does).
    """
    if not (matrix.requires_grad and torch.is_grad_enabled()):
        return _svdvals(matrix).sum(dim=-1)
    norm: Tensor = _NuclearNorm.apply(matrix)[0]
    return norm


def product_nuclear_norm(a: Tensor, b: Tensor) -> Tensor:
    """Nuclear norm of ``a @ b.T`` for a (n, d) and b (m, d), linear in n and m: the product is never formed."""
    norm: Tensor = _ProductNuclearNorm.apply(a, b)
    return norm


def covariance_fidelity(cov_s: Tensor, cov_t: Tensor) -> Tensor:
    """Trace of the square root of ``cov_s^(1/2) cov_t cov_s^(1/2)`` for two positive semi-definite matrices (d, d).

    The gradient is half the optimal transport map between the centred Gaussians, restricted to the range of the
    matrix it belongs to. Outside the range of a singular covariance the fidelity grows like a square root and has
    no derivative; nothing flows there.
    """
    fidelity: Tensor = _CovarianceFidelity.apply(cov_s, cov_t)
    return fidelity


def psd_eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (clamped at zero) and eigenvectors of a positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp_min(0), vectors


def _svdvals(matrix: Tensor) -> Tensor:
    values: Tensor
    if torch.compiler.is_compiling():
        values = torch.linalg.svdvals(matrix)
        return values
    try:
        values = torch.linalg.svdvals(matrix.detach())
    except torch.linalg.LinAlgError:
        values = torch.linalg.svdvals(matrix.detach().double().cpu()).to(matrix)
    return values


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thin SVD; where the driver does not converge, once more in float64 on the CPU."""
    if torch.compiler.is_compiling():
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        return u, s, vh
    try:
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    except torch.linalg.LinAlgError:
        u, s, vh = (part.to(matrix) for part in torch.linalg.svd(matrix.double().cpu(), full_matrices=False))
    return u, s, vh


def _not_structural_zero(s: Tensor) -> Tensor:
    """Mask (..., 1, k) of the singular values, sorted from the largest, that are not rounding of zero."""
    return (s > torch.finfo(s.dtype).eps * s[..., :1]).to(s.dtype).unsqueeze(-2)


class _NuclearNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        u, s, vh = _svd(matrix)
        return s.sum(dim=-1), u, s, vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        _, u, s, vh = output
        ctx.mark_non_differentiable(u, s, vh)
        ctx.save_for_backward(inputs[0], u, s, vh)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> Tensor:
        # The factors are handed on as constants; the polar factor knows its own derivative with respect to `matrix`.
        polar: Tensor = _PolarFactor.apply(*ctx.saved_tensors)
        return grad[..., None, None] * polar


class _PolarFactor(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
        return u * _not_structural_zero(s) @ vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        u, s, vh = ctx.saved_tensors
        keep = _not_structural_zero(s)
        u, v = u * keep, vh.mT * keep
        inverse = torch.where(keep > 0, 1 / s.unsqueeze(-2), 0.0)
        pairs = torch.where(keep.mT * keep > 0, 1 / (s.unsqueeze(-1) + s.unsqueeze(-2)), 0.0)
        grad_v, ut_grad = grad @ v, u.mT @ grad
        core = u.mT @ grad_v * pairs
        within = u @ (core - core.mT) @ v.mT
        left = (grad_v - u @ (u.mT @ grad_v)) * inverse @ v.mT
        right = u * inverse @ (ut_grad - (ut_grad @ v) @ v.mT)
        return within + left + right, None, None, None


class _ProductNuclearNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        (q_a, r_a), (q_b, r_b) = torch.linalg.qr(a), torch.linalg.qr(b)
        u, s, vh = _svd(r_a @ r_b.mT)
        ctx.save_for_backward(q_a, r_a, q_b, r_b, u * _not_structural_zero(s) @ vh)
        return s.sum(dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        q_a, r_a, q_b, r_b, polar = ctx.saved_tensors
        return grad * (q_a @ (polar @ r_b)), grad * (q_b @ (polar.mT @ r_a))


class _CovarianceFidelity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cov_s: Tensor, cov_t: Tensor) -> Tensor:
        (values_s, vectors_s), (values_t, vectors_t) = psd_eigh(cov_s), psd_eigh(cov_t)
        factor_s, factor_t = vectors_s * values_s.sqrt(), vectors_t * values_t.sqrt()
        u, s, vh = _svd(factor_t.mT @ factor_s)
        ctx.save_for_backward(values_s, vectors_s, values_t, vectors_t, u, s, vh)
        return s.sum(dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        values_s, vectors_s, values_t, vectors_t, u, s, vh = ctx.saved_tensors
        return grad * _half_transport(values_s, vectors_s, vh.mT, s), grad * _half_transport(values_t, vectors_t, u, s)


def _half_transport(values: Tensor, vectors: Tensor, rotation: Tensor, s: Tensor) -> Tensor:
    """Half the transport map of one covariance, ``L^-T (M^T M)^(1/2) L^-1 / 2``, on the covariance's range."""
    inside = values > values.shape[-1] * torch.finfo(values.dtype).eps * values[-1]
    inverse_root = torch.where(inside, values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt(), 0.0)
    left = (vectors * inverse_root) @ (rotation * s.sqrt())
    return left @ left.mT / 2
