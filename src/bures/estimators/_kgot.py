"""The kernel Gaussian optimal transport map."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from bures.arrays import check_choice, check_positive
from bures.estimators._base import DomainAdapter, Floats, at_most
from bures.estimators._coordinates import KernelCoordinates
from bures.estimators._covariance import MongeMap, mean_variance
from bures.kernels import KERNELS, Bandwidth

__all__ = ["KGOT"]


class KGOT(ClassNamePrefixFeaturesOutMixin, DomainAdapter):  # type: ignore[misc]
    r"""Kernel Gaussian optimal transport: moves the source to the target in the space of a kernel, moments to moments.

    Parameters
    ----------
    kernel : {"gaussian", "laplacian", "linear"}, optional
        As in `bures.ckb`. The linear kernel gives the optimal map between Gaussians of the features themselves.
    bandwidth : {"shared", "median"} or float, optional
        As in `bures.ckb`.
    n_landmarks : int, optional
        How many pooled rows span the coordinates of the kernel's space; at most all of them, which is exact.
    reg : float, optional
        Ridge of both covariances, in units of their mean variance along a coordinate.
    seed : int, optional
        Seed of the landmarks.

    Attributes
    ----------
    map_ : object
        The affine map of the coordinates.
    coordinates_ : object or None
        The coordinates of the kernel's space; None for the linear kernel.

    Notes
    -----
    Between the Gaussian measures of the RKHS that have the mean embeddings :math:`m` and covariance operators
    :math:`R` of the domains, the squared kernel Wasserstein distance is the `bures.kernel_bures` distance plus
    :math:`\|m_s - m_t\|^2`, and the optimal map is

    .. math::
        \phi \mapsto m_t + R_s^{-1/2} (R_s^{1/2} R_t R_s^{1/2})^{1/2} R_s^{-1/2} (\phi - m_s) .

    It is computed in coordinates of the span of the landmarks (`bures.NystroemMap`), where operators are matrices;
    with all pooled rows as landmarks these are the kernel principal components up to a rotation. The paper inverts on
    the range; here both operators get a ridge, because the empirical ranges differ. The result stays in the
    kernel's space: both domains become coordinates :math:`\phi(x)`, and those of source rows are moved; all are
    multiplied by one number (``coordinates_.scale``) after which the directions that carry variance have variance one,
    as a classifier expects of features. With the
    linear kernel the coordinates are the features and target rows stay as they are.

    References
    ----------
    .. [1] Z. Zhang, M. Wang and A. Nehorai, "Optimal Transport in Reproducing Kernel Hilbert Spaces: Theory and
       Applications", IEEE Transactions on Pattern Analysis and Machine Intelligence 42(7), 2020, pp. 1741-1754.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.estimators import KGOT
    >>> rng = np.random.default_rng(0)
    >>> xs, xt = rng.normal(size=(200, 2)), 5 + 3 * rng.normal(size=(300, 2))
    >>> moved = KGOT("linear", reg=1e-9).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    >>> np.allclose(np.cov(moved.T, bias=True), np.cov(xt.T, bias=True))
    True
    """

    def __init__(
        self,
        kernel: str = "gaussian",
        *,
        bandwidth: Bandwidth = "shared",
        n_landmarks: int = 300,
        reg: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.n_landmarks = n_landmarks
        self.reg = reg
        self.seed = seed

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        check_choice("kernel", self.kernel, KERNELS)
        n_landmarks = at_most("n_landmarks", self.n_landmarks, len(xs) + len(xt))
        reg = check_positive("reg", self.reg)
        self.coordinates_ = (
            None
            if self.kernel == "linear"
            else KernelCoordinates.fit(
                xs, xt, n_landmarks, kernel=self.kernel, bandwidth=self.bandwidth, seed=self.seed
            )
        )
        zs, zt = self._map_target(xs), self._map_target(xt)
        self.map_ = MongeMap.fit(zs, zt, reg * mean_variance(zs, zt))
        self._n_features_out = zs.shape[1]

    def _map_source(self, x: Floats) -> Floats:
        return self.map_(self._map_target(x))

    def _map_target(self, x: Floats) -> Floats:
        return x if self.coordinates_ is None else self.coordinates_(x)
