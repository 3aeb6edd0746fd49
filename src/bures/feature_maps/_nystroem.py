"""Nyström features: the kernel's own features, projected on the span of some landmarks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from bures.arrays import Array, check_choice, check_count, check_positive, check_seed
from bures.devices import cpu_by_default
from bures.exact_distances import direct_distances, smallest_square
from bures.feature_maps._bandwidth import check_radial_kernel, pooled_bandwidth
from bures.feature_maps._base import FeatureMap, mean_row, place, pool, pooled_columns
from bures.feature_maps._landmarks import LANDMARKS, kmeans_plus_plus, pivoted_cholesky, uniform
from bures.kernels import Bandwidth

__all__ = ["NystroemMap"]

SINGLE_CUT = 1e-7
"""In float32, directions with an eigenvalue below this share of the largest are noise and are left out.

A rounding error e of the kernel values becomes e / sqrt(eigenvalue) in the features.
"""


@dataclass(frozen=True, eq=False, repr=False)
class NystroemMap(FeatureMap):
    r"""Nyström features of the Gaussian or Laplacian kernel; made by `NystroemMap.fit`.

    With landmarks :math:`z_1 \dots z_D` and :math:`K_{zz} = U \Lambda U^\top`,

    .. math:: \phi(x) = \Lambda^{-1/2} U^\top k(z, x),

    which is the kernel's own feature vector projected on the span of the landmarks' ones. A projection loses, it never
    adds: :math:`\tau = \frac1n \sum_i [k(x_i, x_i) - \|\phi(x_i)\|^2] \ge 0` is what it loses of the kernel's trace,
    and bounds the error of every distance (see `bures.MomentDistance`).

    Attributes
    ----------
    kernel : {"gaussian", "laplacian"}
    bandwidth : float
        :math:`\sigma^2`, fixed.
    trace_error : float
        :math:`\tau` on the sample the map was fitted on, as a share of the kernel's trace.
    eigenvalues : Tensor (D,)
        :math:`\Lambda`, from the largest.
    centre, landmarks, projection : Tensor (d,), (D', d), (D', D)
        What the map subtracts, its landmarks in units of the bandwidth, and :math:`U \Lambda^{-1/2}`.
    dtype : torch.dtype
        What the features are computed in. A copy in float32 has fewer features: directions below 1e-7 of the largest
        eigenvalue would be noise.
    columns : tuple of str or None
        Names of the columns, where the map was fitted on data frames; others are put into their order.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(size=(200, 3)), 1 + rng.normal(size=(200, 3))
    >>> phi = bures.NystroemMap.fit(source, target, n_landmarks=50, landmarks="pivoted-cholesky")
    >>> phi(source).shape
    (200, 50)
    >>> phi.trace_error < 0.05
    True
    """

    centre: Tensor
    landmarks: Tensor
    projection: Tensor
    eigenvalues: Tensor
    kernel: str
    bandwidth: float
    trace_error: float
    dtype: torch.dtype = torch.float64
    columns: tuple[str, ...] | None = None

    @classmethod
    @cpu_by_default()
    def fit(
        cls,
        xs: Array,
        xt: Array | None = None,
        *,
        n_landmarks: int,
        kernel: Literal["gaussian", "laplacian"] = "gaussian",
        bandwidth: Bandwidth = "shared",
        landmarks: Literal["uniform", "k-means++", "pivoted-cholesky"] = "uniform",
        eigenvalue_cut: float = 1e-13,
        tolerance: float | None = None,
        seed: int = 0,
    ) -> NystroemMap:
        """Choose bandwidth and landmarks from a sample of both domains, pooled, whatever domain a sample is from.

        Parameters
        ----------
        xs : array (n, d)
            A sample of the source.
        xt : array (m, d), optional
            A sample of the target. None fits the map on one sample, as for a label map.
        n_landmarks : int
            How many samples become landmarks; at most n + m.
        kernel : {"gaussian", "laplacian"}, optional
        bandwidth : {"shared", "median"} or float, optional
            As in `bures.ckb`, on the pooled sample; a number is sigma squared.
        landmarks : {"uniform", "k-means++", "pivoted-cholesky"}, optional
            Samples drawn at random, samples far from each other (the seeding of k-means), or samples drawn one by one
            where the others explain the kernel badly: the last needs far fewer landmarks for a small error.
        eigenvalue_cut : float, optional
            Directions of the landmarks' Gram matrix below this share of its largest eigenvalue are left out.
        tolerance : float, optional
            Only for ``"pivoted-cholesky"``: take fewer landmarks when `trace_error` is at most this.
        seed : int, optional
            Seed of the random choices.

        Returns
        -------
        NystroemMap
        """
        check_radial_kernel(kernel, bandwidth)
        n_landmarks = check_count("n_landmarks", n_landmarks)
        _check_options(landmarks, eigenvalue_cut, tolerance)
        seed = check_seed(seed)
        pooled = pool(xs, xt)
        if n_landmarks > len(pooled):
            raise ValueError(
                f"n_landmarks={n_landmarks} is more than the {len(pooled)} samples the map is fitted on; "
                "pass a larger sample or fewer landmarks"
            )
        sigma2 = pooled_bandwidth(pooled, kernel, bandwidth)
        centre = mean_row(pooled)
        rows = place(pooled, centre, sigma2**-0.5, torch.float64)
        chosen = rows[_choose(rows, kernel, landmarks, n_landmarks, tolerance or 0.0, seed).to(rows.device)]
        projection, eigenvalues = _whitening(chosen, kernel, eigenvalue_cut)
        columns = pooled_columns(xs, xt)
        fitted = cls(centre, chosen, projection, eigenvalues, kernel, sigma2, trace_error=1.0, columns=columns)
        kept = (fitted.features(pooled) + fitted.offset).square().sum(dim=1).mean()
        return replace(fitted, trace_error=max(0.0, float(1 - kept)))

    def features(self, x: Tensor) -> Tensor:
        """Features (n, D) less `offset`, in the precision of the map."""
        rows = place(x, self.centre, self.bandwidth**-0.5, self.dtype)
        return kernel_less_one(rows, self.landmarks, self.kernel) @ self.projection

    @cached_property
    def offset(self) -> Tensor:
        """The features of a kernel that is one everywhere, (D,)."""
        return self.projection.double().sum(dim=0)

    @property
    def n_features(self) -> int:
        """Number of features D."""
        return self.projection.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that determine the map."""
        names = ("centre", "landmarks", "projection", "eigenvalues")
        return {name: getattr(self, name) for name in names}

    def settings(self) -> dict[str, Any]:
        """The numbers and names that determine the map."""
        return {"kernel": self.kernel, "bandwidth": self.bandwidth}

    def notes(self) -> dict[str, Any]:
        """The error on the sample the map was fitted on, and the names of its columns."""
        return {**super().notes(), "trace_error": self.trace_error}

    def _in_dtype(self, dtype: torch.dtype) -> dict[str, Tensor]:
        if dtype == torch.float64:
            return self.tensors()
        keep = self.eigenvalues > SINGLE_CUT * self.eigenvalues[0]
        return {
            "centre": self.centre,
            "landmarks": self.landmarks.to(dtype),
            "projection": self.projection[:, keep].to(dtype),
            "eigenvalues": self.eigenvalues[keep],
        }


def kernel_less_one(rows: Tensor, others: Tensor, kernel: str) -> Tensor:
    """Values k - 1 (n, D) between samples in units of the bandwidth, as `bures.kernels` has them."""
    if kernel == "laplacian":
        return torch.expm1(-torch.cdist(rows, others, p=1.0))
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True).square()  # without n d numbers in between
    if rows.device.type == "cpu" and len(rows) and smallest_square(float(norms.detach().max()), rows.dtype) > 1:
        return torch.expm1(-direct_distances(rows, others).square())
    exponent = torch.addmm(-others.square().sum(dim=1), rows, others.T, alpha=2)
    return exponent.sub_(norms).clamp_(max=0).expm1_()  # in place: every other pass over n D numbers is a product


def _check_options(landmarks: object, eigenvalue_cut: object, tolerance: object) -> None:
    check_choice("landmarks", landmarks, LANDMARKS)
    if check_positive("eigenvalue_cut", eigenvalue_cut) >= 1:
        raise ValueError(f"eigenvalue_cut={eigenvalue_cut!r} is out of range; accepted are shares between 0 and 1")
    if tolerance is not None:
        check_positive("tolerance", tolerance)
        if landmarks != "pivoted-cholesky":
            raise ValueError(
                f"tolerance={tolerance!r} has no meaning for landmarks={landmarks!r}; "
                "accepted with landmarks='pivoted-cholesky'"
            )


def _choose(rows: Tensor, kernel: str, landmarks: str, n_landmarks: int, tolerance: float, seed: int) -> Tensor:
    """Which samples become landmarks."""
    if landmarks == "uniform":
        return uniform(len(rows), n_landmarks, seed)
    if landmarks == "k-means++":
        return kmeans_plus_plus(rows, n_landmarks, seed)
    diagonal = torch.ones(len(rows), dtype=rows.dtype, device=rows.device)

    def kernel_row(i: int) -> Tensor:
        return 1 + kernel_less_one(rows[i : i + 1], rows, kernel)[0]

    return pivoted_cholesky(kernel_row, diagonal, n_landmarks, tolerance, seed)


def _whitening(landmarks: Tensor, kernel: str, cut: float) -> tuple[Tensor, Tensor]:
    """U L^(-1/2) (D', D) and the eigenvalues (D,) of the landmarks' Gram matrix, from the largest, above the cut."""
    gram = 1 + kernel_less_one(landmarks, landmarks, kernel)
    values, vectors = torch.linalg.eigh((gram + gram.T) / 2)
    keep = values > cut * values[-1]
    values, vectors = values[keep].flip(0), vectors[:, keep].flip(1)
    return vectors * values.rsqrt(), values
