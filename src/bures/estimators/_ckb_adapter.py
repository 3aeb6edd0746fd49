"""The adapter of conditional covariances, under the name of its metric."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bures.estimators._alignment import AffineMap
from bures.estimators._base import Floats, class_codes
from bures.estimators._conditional_bures import ConditionalBuresAdapter
from bures.kernels import Bandwidth

__all__ = ["CKBAdapter"]


class CKBAdapter(ConditionalBuresAdapter):
    """Shallow CKB adapter: the linear map of source rows, about their mean, that minimises CKB to the target.

    It is `ConditionalBuresAdapter` with ``distance="ckb"``: covariances given the class are brought together, and no
    mean is moved. Where class means differ too, as they mostly do, ``distance="ckw"`` is the better choice.

    Parameters
    ----------
    distance, kernel, bandwidth, n_components, reg, eps, estimator, n_rounds, max_iter, seed : optional
        As in `ConditionalBuresAdapter`.

    Attributes
    ----------
    map_, n_rounds_, n_iter_, distances_, pseudo_labels_, classes_
        As in `ConditionalBuresAdapter`; without target rows there are no rounds, and the map is the identity.

    Notes
    -----
    Without `sample_domain` every row is source, -1 is a class like any other, and there is nothing to adapt to: a
    warning says so and no row moves.

    References
    ----------
    .. [1] Y.-W. Luo and C.-X. Ren, "Conditional Bures Metric for Domain Adaptation", CVPR 2021, pp. 13989-13998.

    Examples
    --------
    >>> import bures
    >>> from bures.estimators import CKBAdapter
    >>> xs, ys, xt, yt = bures.data.drifting_class(200, drift=0.0)
    >>> xt = xt * [3.0, 1.0]  # one feature is measured in another unit
    >>> moved = CKBAdapter(reg=0.01).fit_source_target(xs, ys, xt).transform(xs, sample_domain=1)
    >>> before, after = (bures.ckb(x, ys, xt, yt, kernel="linear") for x in (xs, moved))
    >>> after < 0.2 * before
    True
    """

    _needs_target = False

    def __init__(
        self,
        distance: str = "ckb",
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
        super().__init__(
            distance,
            kernel=kernel,
            bandwidth=bandwidth,
            n_components=n_components,
            reg=reg,
            eps=eps,
            estimator=estimator,
            n_rounds=n_rounds,
            max_iter=max_iter,
            seed=seed,
        )

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        if len(xt):
            super()._fit_domains(xs, ys, xt)
            return
        warnings.warn(
            f"all {len(xs)} rows are source, and {type(self).__name__} moves none of them; pass sample_domain "
            "(source > 0, target < 0) or call fit_source_target(xs, ys, xt)",
            UserWarning,
            stacklevel=3,
        )
        assert ys is not None
        self.coordinates_ = self._fit_coordinates(xs, xs)
        self.classes_, _ = class_codes(ys)
        self.scale_, self.map_ = 1.0, AffineMap.identity(self.coordinates_(xs))
        self.pseudo_labels_, self.distances_ = np.empty((0, len(self.classes_))), np.empty(0)
        self.n_rounds_, self.n_iter_ = 0, 1  # scikit-learn expects one iteration at least
        self._n_features_out = self._map_target(xs).shape[1]
