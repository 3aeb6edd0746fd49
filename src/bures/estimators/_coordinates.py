"""Coordinates of two samples in which a map can act: principal components, or the space of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bures.estimators._base import Floats
from bures.estimators._covariance import principal_axes
from bures.feature_maps import NystroemMap
from bures.kernels import Bandwidth

__all__ = ["KernelCoordinates", "PrincipalCoordinates"]


@dataclass(frozen=True)
class PrincipalCoordinates:
    """Leading principal components of the pooled rows: part of the features, which stay the space rows live in."""

    centre: Floats
    axes: Floats  # (d, r)

    @classmethod
    def fit(cls, xs: Floats, xt: Floats, n_components: int) -> PrincipalCoordinates:
        """At most ``n_components`` of the components with a variance above rounding, and at least one."""
        pooled = np.concatenate([xs, xt])
        centre = pooled.mean(axis=0)
        singular, axes = principal_axes(pooled - centre)
        rank = int((singular > singular[0] * max(pooled.shape) * np.finfo(np.float64).eps).sum())
        return cls(centre, axes[:, : max(1, min(rank, n_components))])

    def __call__(self, x: Floats) -> Floats:
        """The components (n, r) of rows (n, d)."""
        return np.asarray((x - self.centre) @ self.axes)

    def move(self, x: Floats, step: Floats | None) -> Floats:
        """The rows (n, d), moved by a step (n, r) along the components."""
        return x if step is None else np.asarray(x + step @ self.axes.T)


@dataclass(frozen=True)
class KernelCoordinates:
    """Coordinates in a kernel's space, spanned by landmarks; rows are replaced by them.

    The rows of a kernel have length one at most, however many coordinates share it, and a classifier that shrinks its
    coefficients would hardly tell classes apart. So the coordinates are multiplied by one number, after which a
    direction that carries variance has variance one: the mean over directions, each weighted by its own variance.
    """

    feature_map: NystroemMap
    scale: float

    @classmethod
    def fit(
        cls, xs: Floats, xt: Floats, n_landmarks: int, *, kernel: str, bandwidth: Bandwidth, seed: int
    ) -> KernelCoordinates:
        """Landmarks are pooled rows, whatever their domain."""
        feature_map = NystroemMap.fit(
            xs,
            xt,
            n_landmarks=n_landmarks,
            kernel=kernel,  # type: ignore[arg-type]
            bandwidth=bandwidth,
            seed=seed,
        )
        pooled: Floats = feature_map(np.concatenate([xs, xt]))
        return cls(feature_map, _typical_variance(pooled) ** -0.5)

    def __call__(self, x: Floats) -> Floats:
        """The coordinates (n, r) of rows (n, d)."""
        return np.asarray(self.scale * self.feature_map(x))

    def move(self, x: Floats, step: Floats | None) -> Floats:
        """The coordinates of the rows, moved by a step (n, r)."""
        return self(x) if step is None else self(x) + step


def _typical_variance(z: Floats) -> float:
    """tr(C^2) / tr(C) of the covariance C of rows (n, r): the trace over the effective rank; 1 where nothing varies."""
    covariance = np.cov(z.T, bias=True).reshape(z.shape[1], z.shape[1])
    trace = float(np.trace(covariance))
    rounding = 16 * np.finfo(np.float64).eps  # of coordinates whose rows have length one at most
    return float(np.square(covariance).sum()) / trace if trace > z.shape[1] * rounding**2 else 1.0
