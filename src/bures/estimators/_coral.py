"""Correlation alignment."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin

from bures.arrays import check_positive
from bures.estimators._base import DomainAdapter, Floats
from bures.estimators._covariance import RidgedCovariance, mean_variance

__all__ = ["CORAL"]


class CORAL(OneToOneFeatureMixin, DomainAdapter):  # type: ignore[misc]
    r"""Correlation alignment: gives source features the covariance of the target; target rows stay as they are.

    Parameters
    ----------
    reg : float, optional
        Ridge :math:`\lambda` added to both covariances, in units of the mean variance of a feature. The default is
        the paper's, whose features have variance one.
    align_means : bool, optional
        Move the source mean to the target mean as well. The paper centres the features of each domain beforehand,
        which does the same; False is for features whose means already agree.

    Attributes
    ----------
    source_covariance_, target_covariance_ : object
        Means, principal axes and variances of the two samples.
    n_features_in_ : int
    feature_names_in_ : array (d,)
        Where X had names of strings.

    Notes
    -----
    With :math:`C_s, C_t` the covariances (1/n) and symmetric roots,

    .. math:: x \mapsto \mu_t + (C_t + \lambda I)^{1/2} (C_s + \lambda I)^{-1/2} (x - \mu_s),

    so that the source covariance, ridge included, becomes that of the target. This is one of the maps that do so; the
    one that moves the samples least is `KGOT` with the linear kernel.

    References
    ----------
    .. [1] B. Sun, J. Feng and K. Saenko, "Return of Frustratingly Easy Domain Adaptation", AAAI 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.estimators import CORAL
    >>> rng = np.random.default_rng(0)
    >>> xs, xt = rng.normal(size=(200, 2)), 5 + rng.normal(size=(200, 2)) @ [[3.0, 0.0], [1.0, 0.5]]
    >>> moved = CORAL(reg=1e-9).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    >>> np.allclose(np.cov(moved.T), np.cov(xt.T))
    True
    """

    def __init__(self, reg: float = 1.0, *, align_means: bool = True) -> None:
        self.reg = reg
        self.align_means = align_means

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        ridge = check_positive("reg", self.reg) * mean_variance(xs, xt)
        self.source_covariance_ = RidgedCovariance.fit(xs, ridge)
        self.target_covariance_ = RidgedCovariance.fit(xt, ridge)

    def _map_source(self, x: Floats) -> Floats:
        source, target = self.source_covariance_, self.target_covariance_
        moved = target.power(source.power(x - source.mean, -0.5), 0.5)
        return moved + (target.mean if self.align_means else source.mean)
