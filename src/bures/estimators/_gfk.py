"""The geodesic flow kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from bures.estimators._base import DomainAdapter, Floats
from bures.estimators._subspaces import SubspacePair

__all__ = ["GFK"]


class GFK(ClassNamePrefixFeaturesOutMixin, DomainAdapter):  # type: ignore[misc]
    r"""Geodesic flow kernel: compares rows in all subspaces between the source's and the target's; both are mapped.

    Parameters
    ----------
    n_components : "auto" or int, optional
        Dimension k of the subspaces; fewer where a sample spans fewer. ``"auto"`` is the paper's subspace
        disagreement measure: where a direction of one domain becomes orthogonal to the pooled sample, the domains
        share no more. It needs no labels.

    Attributes
    ----------
    n_components_ : int
    angles_ : array (k,)
        Principal angles between the subspaces, in radians.
    root_ : array (d, 2k)
        F with :math:`F F^\top = G`.
    subspaces_ : object
        Means and orthonormal bases of the two samples.

    Notes
    -----
    With :math:`\Phi(t)`, :math:`t \in [0, 1]`, the geodesic from the source's principal subspace to the target's,

    .. math:: G = \int_0^1 \Phi(t)\,\Phi(t)^\top \, dt , \qquad \langle x, x' \rangle_G = x^\top G x' .

    In the principal vectors :math:`u_i` of the source and the unit vectors :math:`v_i` orthogonal to them towards the
    target, :math:`\Phi(t)` has the columns :math:`u_i \cos t\theta_i + v_i \sin t\theta_i`, and G falls into 2 x 2
    blocks

    .. math::
        \tfrac12 \begin{pmatrix} 1 + \frac{\sin 2\theta}{2\theta} & \frac{1 - \cos 2\theta}{2\theta} \\
        \frac{1 - \cos 2\theta}{2\theta} & 1 - \frac{\sin 2\theta}{2\theta} \end{pmatrix}

    whose roots give the rows :math:`x \mapsto F^\top (x - \mu)` of 2k coordinates: inner products of these are the
    kernel, and any linear method on them is the kernel method. Each domain is centred at its own mean (the paper
    standardises the features of each domain).

    References
    ----------
    .. [1] B. Gong, Y. Shi, F. Sha and K. Grauman, "Geodesic Flow Kernel for Unsupervised Domain Adaptation", CVPR
       2012, pp. 2066-2073.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.estimators import GFK
    >>> rng = np.random.default_rng(0)
    >>> xs, xt = rng.normal(size=(50, 6)), rng.normal(size=(60, 6))
    >>> adapter = GFK(n_components=2).fit_source_target(xs, None, xt)
    >>> adapter.transform(xs, sample_domain=1).shape
    (50, 4)
    >>> float(np.trace(adapter.kernel_matrix()).round(6))  # an average of projections on two dimensions
    2.0
    """

    def __init__(self, n_components: str | int = "auto") -> None:
        self.n_components = n_components

    def kernel_matrix(self) -> Floats:
        """The matrix G (d, d), positive semi-definite and of rank 2k at most."""
        return np.asarray(self.root_ @ self.root_.T)

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        pair = self.subspaces_ = SubspacePair.fit(xs, xt, self.n_components)
        left, _, right = np.linalg.svd(pair.basis_s.T @ pair.basis_t)
        start, end = pair.basis_s @ left, pair.basis_t @ right.T
        # The angle comes from sine and cosine together: the arc cosine alone would lose half the digits near zero.
        cosine = (start * end).sum(axis=0)
        towards = end - start * cosine
        sine = np.linalg.norm(towards, axis=0)
        self.angles_ = np.arctan2(sine, cosine)
        # Where the subspaces meet there is no direction towards the target, and its block is zero.
        apart = sine > np.finfo(np.float64).eps
        towards = np.divide(towards, sine, out=np.zeros_like(towards), where=apart)
        roots = _block_roots(self.angles_)
        self.root_ = np.concatenate(
            [start * roots[:, 0, 0] + towards * roots[:, 1, 0], start * roots[:, 0, 1] + towards * roots[:, 1, 1]],
            axis=1,
        )
        self.n_components_ = len(self.angles_)
        self._n_features_out = self.root_.shape[1]

    def _map_source(self, x: Floats) -> Floats:
        return np.asarray((x - self.subspaces_.mean_s) @ self.root_)

    def _map_target(self, x: Floats) -> Floats:
        return np.asarray((x - self.subspaces_.mean_t) @ self.root_)


def _block_roots(angles: Floats) -> Floats:
    """Symmetric roots (k, 2, 2) of the integrals of (cos, sin)(cos, sin)^T over t, for angles (k,)."""
    # np.sinc(x) is sin(pi x) / (pi x) and is 1 at zero; (1 - cos 2a) / 2a = sin(a) sinc(a).
    even, odd = np.sinc(2 * angles / np.pi), np.sin(angles) * np.sinc(angles / np.pi)
    blocks = np.array([[1 + even, odd], [odd, 1 - even]]).transpose(2, 0, 1) / 2
    values, vectors = np.linalg.eigh(blocks)
    return np.asarray((vectors * np.sqrt(values.clip(min=0))[:, None, :]) @ vectors.transpose(0, 2, 1))
