"""Transfer component analysis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from bures.arrays import check_positive
from bures.estimators._base import DomainAdapter, Floats, at_most
from bures.estimators._kernel_rows import KernelRows
from bures.kernels import Bandwidth

__all__ = ["TCA"]


class TCA(ClassNamePrefixFeaturesOutMixin, DomainAdapter):  # type: ignore[misc]
    r"""Transfer component analysis: k kernel components along which the domain means agree; both domains are mapped.

    Parameters
    ----------
    n_components : int, optional
        Number of components k; fewer where the samples span fewer.
    kernel : {"linear", "gaussian", "laplacian"}, optional
        As in `bures.ckb`.
    bandwidth : {"shared", "median"} or float, optional
        Of the Gaussian and Laplacian kernels, as in `bures.ckb`.
    mu : float, optional
        Weight :math:`\mu` of the penalty on the coefficients, for a kernel whose mean of k(x, x) is one; other
        kernels are divided by it, so that the unit of the features does not matter.

    Attributes
    ----------
    n_components_ : int
    eigenvalues_ : array (k,)
        From the largest: variance in units of the penalised distance of the means.
    coefficients_ : array (n + m, k)
        W in the units of the kernel, for the rows of the source followed by those of the target.
    kernel_rows_ : object
        The kernel with its fitted rows and bandwidth.

    Notes
    -----
    With K the Gram matrix of the pooled rows (of mean diagonal one), H centring and :math:`L = e e^\top`, e = 1/n on
    source and -1/m on target rows, so that :math:`\mathrm{tr}(K L)` is the squared MMD,

    .. math:: \min_W \mathrm{tr}(W^\top K L K W) + \mu\,\mathrm{tr}(W^\top W) \quad \text{s.t. } W^\top K H K W = I ,

    solved by the leading eigenvectors of :math:`K H K w = \lambda (K L K + \mu I) w`. New rows are mapped by
    :math:`x \mapsto W^\top k(x)`. The components are scaled to variance one over the pooled rows (the constraint
    times n + m), so that a classifier's own regularisation sees features of ordinary size. The cost is cubic in n + m.

    References
    ----------
    .. [1] S. J. Pan, I. W. Tsang, J. T. Kwok and Q. Yang, "Domain Adaptation via Transfer Component Analysis", IEEE
       Transactions on Neural Networks 22(2), 2011, pp. 199-210.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.estimators import TCA
    >>> rng = np.random.default_rng(0)
    >>> xs, xt = rng.normal(size=(50, 3)), 1 + rng.normal(size=(60, 3))
    >>> adapter = TCA(n_components=2, mu=1e-3).fit_source_target(xs, None, xt)
    >>> zs, zt = adapter.transform(xs, sample_domain=1), adapter.transform(xt)
    >>> bool(np.abs(zs.mean(axis=0) - zt.mean(axis=0)).max() < 0.1)
    True
    """

    def __init__(
        self, n_components: int = 20, *, kernel: str = "linear", bandwidth: Bandwidth = "shared", mu: float = 1.0
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.mu = mu

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        n, total = len(xs), len(xs) + len(xt)
        k = at_most("n_components", self.n_components, total - 1)
        mu = check_positive("mu", self.mu)
        rows = np.concatenate([xs, xt])
        self.kernel_rows_ = KernelRows.fit(rows, self.kernel, self.bandwidth)
        means = np.concatenate([np.full(n, 1 / n), np.full(total - n, -1 / (total - n))])
        if self.kernel == "linear" and total > rows.shape[1]:
            unit, values, vectors = _components_of_features(rows, means, mu, k)
        else:
            unit, values, vectors = _components_of_gram(self.kernel_rows_.gram(), means, mu, k)
        # Directions without variance cannot be scaled to variance one; constant features leave a single zero one.
        if values[0] <= (8 * np.finfo(np.float64).eps * total) ** 2 / mu:  # the rounding of their mean
            values, vectors = np.zeros(1), vectors[:, :1]
        kept = values > values[0] * total * np.finfo(np.float64).eps
        kept[0] = True
        self.eigenvalues_ = values[kept]
        scale = np.sqrt(self.eigenvalues_ / total) if values[0] > 0 else np.ones(1)
        self.coefficients_ = vectors[:, kept] / (scale * unit)
        self.n_components_ = self._n_features_out = self.coefficients_.shape[1]

    def _map_source(self, x: Floats) -> Floats:
        return np.asarray(self.kernel_rows_(x) @ self.coefficients_)

    def _map_target(self, x: Floats) -> Floats:
        return self._map_source(x)


Components = tuple[float, Floats, Floats]  # the kernel's unit, eigenvalues (k,) from the largest, and vectors (n, k)


def _components_of_gram(gram: Floats, means: Floats, mu: float, k: int) -> Components:
    """The leading k eigenvectors of K H K w = lambda (K L K + mu I) w; ``means`` is e."""
    unit, total = float(gram.diagonal().mean()) or 1.0, len(gram)  # rows of zeros have no unit
    gram = gram / unit
    difference = gram @ means
    centred = gram - gram.mean(axis=0)
    penalised = np.outer(difference, difference) + mu * np.eye(total)
    values, vectors = eigh(centred.T @ centred, penalised, subset_by_index=(total - k, total - 1))
    return unit, values[::-1], vectors[:, ::-1]


def _components_of_features(rows: Floats, means: Floats, mu: float, k: int) -> Components:
    r"""The same for the linear kernel of rows (n, d), n > d, at a cost cubic in d alone.

    With :math:`K = X X^\top` and :math:`B = K L K + \mu I`, which is a multiple of the identity but for one direction,
    so that its root is known, the matrix :math:`B^{-1/2} K H K B^{-1/2}` is :math:`Y Y^\top` for
    :math:`Y = B^{-1/2} X R^\top` (n, d) with :math:`R^\top R = X^\top H X`: its eigenvectors are those of the small
    :math:`Y^\top Y`, multiplied by Y.
    """
    unit = float(np.square(rows).sum(axis=1).mean()) or 1.0
    x = rows / np.sqrt(unit)
    difference = x @ (x.T @ means)
    square = float(difference @ difference)
    shrink = 0.0 if square == 0 else (1 - np.sqrt(mu / (mu + square))) / square

    def inverse_root(block: Floats) -> Floats:
        return np.asarray((block - np.outer(shrink * difference, difference @ block)) / np.sqrt(mu))

    root = np.asarray(np.linalg.qr(x - x.mean(axis=0), mode="r"))
    y = inverse_root(x @ root.T)
    d = y.shape[1]
    values, vectors = eigh(y.T @ y, subset_by_index=(max(d - k, 0), d - 1))
    values, vectors = values[::-1].clip(min=0), y @ vectors[:, ::-1]
    lengths = np.linalg.norm(vectors, axis=0)
    return unit, values, inverse_root(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))
