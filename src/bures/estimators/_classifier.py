"""A classifier for the target domain: an adapter, and an estimator fitted on the source rows it has moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from bures.arrays import Array
from bures.estimators._base import FitsTwoArrays, read_domains, source_rows, warn_of_hidden_labels

__all__ = ["AdaptedClassifier", "default_estimator"]


def default_estimator(estimator: Any) -> Any:
    """A copy of an estimator, not fitted; a logistic regression for None."""
    return LogisticRegression(max_iter=1000) if estimator is None else clone(estimator)


def _estimator_has(method: str) -> Callable[[Any], bool]:
    """Whether the estimator of a classifier has a method; raises AttributeError, as scikit-learn expects."""

    def check(self: Any) -> bool:
        estimator = getattr(self, "estimator_", self.estimator)
        getattr(default_estimator(None) if estimator is None else estimator, method)
        return True

    return check


class AdaptedClassifier(FitsTwoArrays, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for target rows: fits an adapter, then an estimator on the adapted source rows.

    Parameters
    ----------
    adapter : estimator, optional
        One of `bures.estimators`, such as ``CORAL()``. None adapts nothing: the source-only classifier, which is what
        every adapter is compared with, and which needs no target rows.
    estimator : classifier, optional
        Fitted on adapted source rows; None is ``LogisticRegression(max_iter=1000)``.

    Attributes
    ----------
    adapter_ : estimator or None
        The fitted adapter.
    estimator_ : classifier
        The fitted classifier.
    classes_ : array (K,)

    Examples
    --------
    >>> import bures
    >>> from bures.estimators import AdaptedClassifier, CORAL
    >>> xs, ys, xt, yt = bures.data.drifting_class(200, drift=0.5)
    >>> xt = 3 * xt + 5  # the target is measured in other units
    >>> plain = AdaptedClassifier().fit_source_target(xs, ys, xt)
    >>> adapted = AdaptedClassifier(CORAL(reg=1e-3)).fit_source_target(xs, ys, xt)
    >>> plain.score(xt, yt) < 0.85, adapted.score(xt, yt) > 0.95
    (True, True)
    """

    # What scikit-learn's metadata routing passes on without being asked; allow_source is skada's word.
    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__decision_function: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True, "sample_weight": True}

    def __init__(self, adapter: Any = None, estimator: Any = None) -> None:
        self.adapter = adapter
        self.estimator = estimator

    def fit(self, X: Array, y: Array, sample_domain: Array | None = None) -> Self:
        """Fit on the rows of both domains.

        Parameters
        ----------
        X : array (n, d)
            Features of both domains.
        y : array (n,)
            Classes. Those of target rows are ignored, whatever their value.
        sample_domain : array (n,), optional
            Positive integers mark source rows, negative ones target rows. Without it all rows are source, which only
            ``adapter=None`` can use.

        Returns
        -------
        self
        """
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        name = self if self.adapter is None else self.adapter
        source = read_domains(sample_domain, len(X), name, needs_target=self.adapter is not None)
        ys = source_rows(y, source, self)
        if sample_domain is None:
            warn_of_hidden_labels(ys)
        return self._fit_domains(X[source], ys, X[~source])

    def predict(self, X: Array, sample_domain: Array | None = None, allow_source: bool = True) -> NDArray[Any]:
        """Classes of rows.

        Parameters
        ----------
        X : array (n, d)
            Rows, of the target unless `sample_domain` says otherwise.
        sample_domain : int or array (n,), optional
            Positive for source rows, negative for target rows; one number stands for all rows.
        allow_source : bool, optional
            Taken because skada's scorers pass it; source rows are always allowed.

        Returns
        -------
        array (n,)
        """
        return np.asarray(self._ask("predict", X, sample_domain))

    @available_if(_estimator_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Array, sample_domain: Array | None = None, allow_source: bool = True) -> NDArray[Any]:
        """Probabilities (n, K) of the classes, for the rows of `predict`."""
        return np.asarray(self._ask("predict_proba", X, sample_domain))

    @available_if(_estimator_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(
        self, X: Array, sample_domain: Array | None = None, allow_source: bool = True
    ) -> NDArray[Any]:
        """Scores of the classes, for the rows of `predict`."""
        return np.asarray(self._ask("decision_function", X, sample_domain))

    def score(
        self,
        X: Array,
        y: Array,
        sample_weight: Array | None = None,
        sample_domain: Array | None = None,
        allow_source: bool = True,
    ) -> float:
        """Accuracy on labelled rows, those of `predict`; weighted by `sample_weight` where it is given."""
        return float(accuracy_score(y, self.predict(X, sample_domain), sample_weight=sample_weight))

    def _ask(self, method: str, X: Array, sample_domain: Array | None) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.adapter_ is not None:
            X = self.adapter_.transform(X, sample_domain=-np.ones(len(X)) if sample_domain is None else sample_domain)
        return getattr(self.estimator_, method)(X)

    def _fit_domains(self, xs: NDArray[Any], ys: NDArray[Any], xt: NDArray[Any]) -> Self:
        self.adapter_ = None
        if self.adapter is not None:
            self.adapter_ = clone(self.adapter).fit_source_target(xs, ys, xt)
            xs = self.adapter_.transform(xs, sample_domain=1)
        self.estimator_ = default_estimator(self.estimator).fit(xs, ys)
        self.classes_ = self.estimator_.classes_
        return self
