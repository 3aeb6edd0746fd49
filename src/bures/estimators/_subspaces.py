"""Principal subspaces of two domains, and how many dimensions they can share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bures.arrays import check_choice
from bures.estimators._base import Floats, at_most
from bures.estimators._covariance import principal_axes

__all__ = ["SubspacePair", "choose_dimension"]

ORTHOGONAL = 0.99
"""A subspace disagreement from here on counts as one: samples never give exactly orthogonal directions."""


@dataclass(frozen=True)
class SubspacePair:
    """The means (d,) of two samples and orthonormal bases (d, k) of their leading principal subspaces."""

    mean_s: Floats
    mean_t: Floats
    basis_s: Floats
    basis_t: Floats

    @classmethod
    def fit(cls, xs: Floats, xt: Floats, n_components: str | int) -> SubspacePair:
        """Of at most ``n_components`` dimensions, or as many as `choose_dimension` finds for ``"auto"``."""
        mean_s, mean_t = xs.mean(axis=0), xt.mean(axis=0)
        a, b = xs - mean_s, xt - mean_t
        basis_s, basis_t = _principal_axes(a), _principal_axes(b)
        limit = min(basis_s.shape[1], basis_t.shape[1])
        if isinstance(n_components, str):
            check_choice("n_components", n_components, ("auto",), alternatives=", or a whole number")
            k = choose_dimension(basis_s, basis_t, _principal_axes(np.concatenate([a, b])))
        else:
            k = at_most("n_components", n_components, limit)
        return cls(mean_s, mean_t, basis_s[:, :k], basis_t[:, :k])


def _principal_axes(centred: Floats) -> Floats:
    """Orthonormal principal axes (d, r) with a variance above rounding, at least one."""
    singular, axes = principal_axes(centred)
    cut = singular[0] * max(centred.shape) * np.finfo(np.float64).eps
    rank = max(1, int((singular > cut).sum()))
    return np.asarray(axes[:, :rank])


def choose_dimension(basis_s: Floats, basis_t: Floats, basis_pooled: Floats) -> int:
    r"""The number of dimensions of the subspace disagreement measure (Gong et al., section 3.4); needs no labels.

    With :math:`\alpha_k, \beta_k` the largest principal angles between the k-dimensional subspace of the pooled sample
    and those of source and target, the smallest k with :math:`(\sin\alpha_k + \sin\beta_k)/2 = 1`: from there on the
    domains have directions that the other has not. At most d/2, as a geodesic needs, and the
    ranks of the samples.
    """
    d = len(basis_s)
    limit = max(1, int(min(d // 2, basis_s.shape[1], basis_t.shape[1])))
    for k in range(1, limit + 1):
        sines = [_largest_sine(basis[:, :k], basis_pooled[:, :k]) for basis in (basis_s, basis_t)]
        if np.mean(sines) >= ORTHOGONAL:
            return k
    return limit


def _largest_sine(a: Floats, b: Floats) -> float:
    """Sine of the largest principal angle between the spans of two orthonormal bases (d, k)."""
    cosine = float(np.linalg.svd(a.T @ b, compute_uv=False)[-1])
    return float(np.sqrt(max(0.0, 1 - cosine**2)))
