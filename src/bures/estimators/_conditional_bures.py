"""A shallow adapter of our own: the map of source features that brings CKB or CKW to the target down."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from bures.arrays import check_choice, check_count, check_positive
from bures.estimators._alignment import AffineMap, Alignment
from bures.estimators._base import DomainAdapter, Floats, at_most, class_codes
from bures.estimators._classifier import default_estimator
from bures.estimators._coordinates import KernelCoordinates, PrincipalCoordinates
from bures.estimators._covariance import mean_variance
from bures.kernels import KERNELS, Bandwidth

__all__ = ["ConditionalBuresAdapter"]


class ConditionalBuresAdapter(ClassNamePrefixFeaturesOutMixin, DomainAdapter):  # type: ignore[misc]
    r"""Shallow conditional Bures adapter: the affine map of source rows that minimises CKW or CKB to the target.

    Parameters
    ----------
    distance : {"ckw", "ckb"}, optional
        What is minimised. CKB compares conditional covariances only and moves no mean; CKW moves the class means too.
    kernel : {"linear", "gaussian", "laplacian"}, optional
        In which space the map acts: on the features, or on coordinates of the kernel's space (see `KGOT`).
    bandwidth : {"shared", "median"} or float, optional
        Of the Gaussian and Laplacian kernels, as in `bures.ckb`.
    n_components : int, optional
        Dimensions the map acts in at most: leading principal components of the pooled rows (linear kernel), or
        landmarks among them.
    reg : float, optional
        Weight :math:`\rho` of the ridge towards the identity.
    eps : float or "auto", optional
        Regulariser of the label covariance, as in `bures.ckb`.
    estimator : classifier, optional
        Gives the pseudo-labels, by its ``predict_proba``; None is ``LogisticRegression(max_iter=1000)``.
    n_rounds : int, optional
        Rounds of pseudo-labels and map at most; the rounds end when no pseudo-label changes class.
    max_iter : int, optional
        Iterations of L-BFGS in a round.
    seed : int, optional
        Seed of the landmarks.

    Attributes
    ----------
    map_ : object
        The affine map of the coordinates.
    n_rounds_ : int
        Rounds that were run.
    n_iter_ : int
        Iterations of L-BFGS in all rounds together.
    distances_ : array (R,)
        Squared distance after each round, between mapped source and the target with the pseudo-labels of that round,
        in units of the mean variance of a coordinate.
    pseudo_labels_ : array (m, K)
        Probabilities of the target rows that the last map was fitted with.
    classes_ : array (K,)

    Notes
    -----
    With :math:`z` coordinates of mean variance one, :math:`y` the source classes and :math:`p` the soft pseudo-labels,

    .. math::
        \min_{A, b}\; d^2\big(z_s A + b, y;\; z_t, p\big) + \rho \|A - I\|_F^2 ,

    from A = I, b = 0, where d² is `bures.ckw` or `bures.ckb` with the linear kernel on the coordinates (for landmarks:
    the Gaussian kernel itself, with the map inside its space). A round asks the classifier, fitted on the mapped
    source, for new pseudo-labels and starts from the last map. Both samples enter through r x r matrices, so that a
    round takes seconds.

    With the linear kernel the map acts within the principal components and is the identity off them, d features stay
    d features, and target rows stay as they are. With the other kernels both domains become coordinates, scaled
    as in `KGOT`, and those of source rows are moved. The pseudo-labels start from the source-only classifier: where
    this is wrong for most of a class, the map follows it.

    References
    ----------
    .. [1] Y.-W. Luo and C.-X. Ren, "Conditional Bures Metric for Domain Adaptation", CVPR 2021, pp. 13989-13998.

    Examples
    --------
    >>> import bures
    >>> from bures.estimators import AdaptedClassifier, ConditionalBuresAdapter
    >>> xs, ys, xt, yt = bures.data.rotated_moons(200, angle=40)
    >>> plain = AdaptedClassifier().fit_source_target(xs, ys, xt)
    >>> adapted = AdaptedClassifier(ConditionalBuresAdapter()).fit_source_target(xs, ys, xt)
    >>> plain.score(xt, yt) < adapted.score(xt, yt)
    True
    """

    _needs_classes = True

    def __init__(
        self,
        distance: str = "ckw",
        *,
        kernel: str = "linear",
        bandwidth: Bandwidth = "shared",
        n_components: int = 100,
        reg: float = 0.1,
        eps: str | float = 1e-2,
        estimator: Any = None,
        n_rounds: int = 5,
        max_iter: int = 100,
        seed: int = 0,
    ) -> None:
        self.distance = distance
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.n_components = n_components
        self.reg = reg
        self.eps = eps
        self.estimator = estimator
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.seed = seed

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        reg = check_positive("reg", self.reg)
        n_rounds = check_count("n_rounds", self.n_rounds)
        max_iter = check_count("max_iter", self.max_iter)
        assert ys is not None
        self.coordinates_ = self._fit_coordinates(xs, xt)
        self.classes_, codes = class_codes(ys)
        zs, zt = self.coordinates_(xs), self.coordinates_(xt)
        self.scale_ = mean_variance(np.concatenate([zs, zt])) ** 0.5
        zs, zt = zs / self.scale_, zt / self.scale_
        self.map_ = AffineMap.identity(zs)
        target, previous, distances = self._map_target(xt), None, []
        self.n_iter_ = 0
        for _ in range(n_rounds):
            rows = self._probabilities(self._map_source(xs), codes, target)
            if previous is not None and (rows.argmax(axis=1) == previous.argmax(axis=1)).all():
                break
            problem = Alignment.fit(zs, codes, zt, rows, distance=self.distance, eps=self.eps, reg=reg)
            self.map_, iterations = problem.minimise(self.map_, max_iter)
            self.n_iter_ += iterations
            distances.append(problem.value(self.map_))
            previous = rows
        self.pseudo_labels_ = previous
        self.distances_ = np.array(distances)
        self.n_rounds_ = len(distances)
        self._n_features_out = target.shape[1]

    def _fit_coordinates(self, xs: Floats, xt: Floats) -> PrincipalCoordinates | KernelCoordinates:
        check_choice("distance", self.distance, ("ckw", "ckb"))
        check_choice("kernel", self.kernel, KERNELS)
        r = at_most("n_components", self.n_components, len(xs) + len(xt))
        if self.kernel == "linear":
            return PrincipalCoordinates.fit(xs, xt, r)
        return KernelCoordinates.fit(xs, xt, r, kernel=self.kernel, bandwidth=self.bandwidth, seed=self.seed)

    def _probabilities(self, moved: Floats, codes: NDArray[np.int64], target: Floats) -> Floats:
        if len(self.classes_) == 1:  # no classifier to fit, and nothing to ask it
            return np.ones((len(target), 1))
        classifier = default_estimator(self.estimator)
        if not hasattr(classifier, "predict_proba"):
            raise TypeError(
                f"estimator={classifier!r} has no predict_proba; accepted is a classifier that gives probabilities"
            )
        return np.asarray(classifier.fit(moved, codes).predict_proba(target), dtype=np.float64)

    def _map_source(self, x: Floats) -> Floats:
        step = self.map_.displacement(self.coordinates_(x) / self.scale_) * self.scale_
        return self.coordinates_.move(x, step)

    def _map_target(self, x: Floats) -> Floats:
        return self.coordinates_.move(x, None)
