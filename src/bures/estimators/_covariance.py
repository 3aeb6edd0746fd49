"""Covariances with a ridge, their powers and the map between two of them, without d x d matrices where n < d."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bures.estimators._base import Floats

__all__ = ["MongeMap", "RidgedCovariance", "mean_variance", "principal_axes"]

WELL_CONDITIONED = 1e-10
"""Share of the largest variance that the smallest must exceed for axes to be taken from a covariance matrix.

Its rounding, eps times the largest variance, is then a millionth of any of them.
"""


def mean_variance(*samples: Floats) -> float:
    """Variance of a feature on average over the features and the samples (n, d); 1 where nothing varies.

    Ridges are given in this unit, so that a change of the unit of measurement changes nothing.
    """
    variance = float(np.mean([sample.var(axis=0).mean() for sample in samples]))
    rounding = 4 * np.finfo(np.float64).eps * max(float(np.abs(sample).max()) for sample in samples)
    return variance if variance**0.5 > rounding else 1.0


def principal_axes(centred: Floats) -> tuple[Floats, Floats]:
    """Singular values (r,), from the largest, and principal axes (d, r) of centred rows (n, d), r the smaller side.

    The eigenvectors of the matrix of products (d, d) are had in a third of the time of a singular value decomposition,
    and have its digits where no variance is small beside the largest. Otherwise they are not taken.
    """
    n, d = centred.shape
    if n > d:
        values, vectors = np.linalg.eigh(centred.T @ centred)
        if values[0] > WELL_CONDITIONED * values[-1]:
            return np.sqrt(values[::-1]), vectors[:, ::-1]
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    return singular, axes.T


@dataclass(frozen=True)
class RidgedCovariance:
    """C + ridge I of a sample, as the mean (d,), principal axes (d, r) and variances (r,) of the sample."""

    mean: Floats
    axes: Floats
    variances: Floats
    ridge: float

    @classmethod
    def fit(cls, x: Floats, ridge: float) -> RidgedCovariance:
        """The covariance (1/n) of the rows of ``x`` (n, d)."""
        mean = x.mean(axis=0)
        singular, axes = principal_axes((x - mean) / np.sqrt(len(x)))
        return cls(mean, axes, singular**2, ridge)

    def power(self, x: Floats, exponent: float) -> Floats:
        """The rows x (n, d) times (C + ridge I) to a power: off the principal axes this is the ridge to the power."""
        inside = x @ self.axes
        result = np.asarray((inside * (self.variances + self.ridge) ** exponent) @ self.axes.T)
        if self.axes.shape[1] == len(self.axes):
            return result  # nothing is off the axes: a tiny ridge to a negative power would show rounding
        return np.asarray(result + self.ridge**exponent * (x - inside @ self.axes.T))


@dataclass(frozen=True)
class MongeMap:
    r"""The optimal map between two Gaussians, from the moments of two samples with a ridge.

    .. math:: x \mapsto \mu_t + T (x - \mu_s), \qquad T = S^{-1/2} (S^{1/2} \Sigma S^{1/2})^{1/2} S^{-1/2},

    with S and Sigma the covariances of source and target, ridge included. Off the span of the samples T is the
    identity, so that only its part in ``basis`` (d, r) is kept; ``matrix`` (r, r) is T - I there.
    """

    mean_s: Floats
    mean_t: Floats
    basis: Floats
    matrix: Floats

    @classmethod
    def fit(cls, xs: Floats, xt: Floats, ridge: float) -> MongeMap:
        """Between the rows of xs (n, d) and of xt (m, d)."""
        mean_s, mean_t = xs.mean(axis=0), xt.mean(axis=0)
        a, b = (xs - mean_s) / np.sqrt(len(xs)), (xt - mean_t) / np.sqrt(len(xt))
        basis = np.eye(xs.shape[1])
        if len(a) + len(b) < xs.shape[1]:
            basis = np.linalg.svd(np.concatenate([a, b]), full_matrices=False)[2].T
        a, b = a @ basis, b @ basis
        eye = np.eye(basis.shape[1])
        values, vectors = np.linalg.eigh(a.T @ a)
        values = values.clip(min=0) + ridge
        root, inverse = (vectors * values**0.5) @ vectors.T, (vectors * values**-0.5) @ vectors.T
        middle_values, middle_vectors = np.linalg.eigh(root @ (b.T @ b + ridge * eye) @ root)
        middle = (middle_vectors * middle_values.clip(min=0) ** 0.5) @ middle_vectors.T
        return cls(mean_s, mean_t, basis, inverse @ middle @ inverse - eye)

    def __call__(self, x: Floats) -> Floats:
        """Move the rows of x (n, d)."""
        centred = x - self.mean_s
        return np.asarray(self.mean_t + centred + centred @ self.basis @ self.matrix @ self.basis.T)
