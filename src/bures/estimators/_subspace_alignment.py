"""Subspace alignment."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from bures.estimators._base import DomainAdapter, Floats
from bures.estimators._subspaces import SubspacePair

__all__ = ["SubspaceAlignment"]


class SubspaceAlignment(ClassNamePrefixFeaturesOutMixin, DomainAdapter):  # type: ignore[misc]
    r"""Subspace alignment: turns the source's principal axes to the target's; both domains become k coordinates.

    Parameters
    ----------
    n_components : "auto" or int, optional
        Dimension k of the subspaces; fewer where a sample spans fewer. ``"auto"`` takes the subspace disagreement
        measure of `GFK`, which needs no labels; the paper cross-validates on source labels below a bound.

    Attributes
    ----------
    n_components_ : int
    subspaces_ : object
        Means and orthonormal bases :math:`P_s, P_t` (d, k) of the two samples.

    Notes
    -----
    .. math:: x_s \mapsto P_t^\top P_s P_s^\top (x - \mu_s), \qquad x_t \mapsto P_t^\top (x - \mu_t).

    :math:`M = P_s^\top P_t` is the matrix nearest to turning one basis into the other. Each domain is centred at its
    own mean, as principal components are.

    References
    ----------
    .. [1] B. Fernando, A. Habrard, M. Sebban and T. Tuytelaars, "Unsupervised Visual Domain Adaptation Using Subspace
       Alignment", ICCV 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.estimators import SubspaceAlignment
    >>> rng = np.random.default_rng(0)
    >>> xs, xt = rng.normal(size=(50, 4)), rng.normal(size=(60, 4))
    >>> adapter = SubspaceAlignment(n_components=2).fit_source_target(xs, None, xt)
    >>> adapter.transform(xs, sample_domain=1).shape, adapter.transform(xt).shape
    ((50, 2), (60, 2))
    """

    def __init__(self, n_components: str | int = "auto") -> None:
        self.n_components = n_components

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        self.subspaces_ = SubspacePair.fit(xs, xt, self.n_components)
        self.n_components_ = self._n_features_out = self.subspaces_.basis_t.shape[1]

    def _map_source(self, x: Floats) -> Floats:
        pair = self.subspaces_
        return (x - pair.mean_s) @ pair.basis_s @ (pair.basis_s.T @ pair.basis_t)

    def _map_target(self, x: Floats) -> Floats:
        return (x - self.subspaces_.mean_t) @ self.subspaces_.basis_t
