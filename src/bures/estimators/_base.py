"""What every adapter has in common: two domains in one array, and a map for the rows of each."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bures.arrays import Array, check_count, is_missing

__all__ = [
    "DomainAdapter",
    "FitsTwoArrays",
    "Floats",
    "at_most",
    "class_codes",
    "read_domains",
    "read_sign",
    "source_rows",
    "warn_of_hidden_labels",
]

Floats = NDArray[np.float64]


class DomainAdapter(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer that is fitted on source and target rows and maps the rows of each domain to where they agree.

    A subclass writes ``_fit_domains`` and ``_map_source``, and ``_map_target`` where the target moves as well.
    """

    _needs_classes = False
    _needs_target = True

    # With metadata routing, pipelines and cross-validation pass the domains on without being asked.
    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__transform: ClassVar = {"sample_domain": True}

    def fit(self, X: Array, y: Array | None = None, sample_domain: Array | None = None) -> Self:
        """Fit on the rows of both domains.

        Parameters
        ----------
        X : array (n, d)
            Features of both domains.
        y : array (n,), optional
            Classes. Those of target rows are ignored, whatever their value.
        sample_domain : array (n,)
            Positive integers mark source rows, negative ones target rows; several domains of a side are pooled.

        Returns
        -------
        self
        """
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        source = read_domains(sample_domain, len(X), self, needs_target=self._needs_target)
        ys = source_rows(y, source, self) if self._needs_classes else None
        self._fit_domains(X[source], ys, X[~source])
        return self

    def fit_source_target(self, xs: Array, ys: Array | None, xt: Array) -> Self:
        """Fit on two arrays instead of one: the same as `fit` on their rows, stacked.

        Parameters
        ----------
        xs : array (n, d)
            Source features.
        ys : array (n,) or None
            Source classes.
        xt : array (m, d)
            Target features.

        Returns
        -------
        self
            Source rows are mapped by ``transform(xs, sample_domain=1)``.
        """
        xs = validate_data(self, xs, dtype=np.float64)
        xt = validate_data(self, xt, dtype=np.float64, reset=False)
        labels = source_rows(ys, np.ones(len(xs), dtype=bool), self) if self._needs_classes else None
        self._fit_domains(xs, labels, xt)
        return self

    def transform(self, X: Array, sample_domain: Array | None = None) -> Floats:
        """Map rows.

        Parameters
        ----------
        X : array (n, d)
            Rows, of the target unless `sample_domain` says otherwise.
        sample_domain : int or array (n,), optional
            Positive for source rows, negative for target rows; one number stands for all rows.

        Returns
        -------
        array (n, k)
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        # As in skada, rows that come without a domain are new rows of the target: those a pipeline is to predict.
        source = read_sign(-1 if sample_domain is None else sample_domain, len(X))
        if source.all():
            return self._map_source(X)
        if not source.any():
            return self._map_target(X)
        moved, kept = self._map_source(X[source]), self._map_target(X[~source])
        result = np.empty((len(X), moved.shape[1]))
        result[source], result[~source] = moved, kept
        return result

    def fit_transform(self, X: Array, y: Array | None = None, sample_domain: Array | None = None) -> Floats:
        """Fit on the rows of both domains and map them, each by the map of its domain."""
        return self.fit(X, y, sample_domain=sample_domain).transform(X, sample_domain=sample_domain)

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        raise NotImplementedError

    def _map_source(self, x: Floats) -> Floats:
        raise NotImplementedError

    def _map_target(self, x: Floats) -> Floats:
        return x

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._needs_classes
        return tags


class FitsTwoArrays:
    """For classifiers that are fitted domain by domain, in ``_fit_domains(xs, ys, xt)``."""

    def fit_source_target(self, xs: Array, ys: Array, xt: Array) -> Self:
        """Fit on two arrays instead of one: the same as `fit` on their rows, stacked.

        Parameters
        ----------
        xs, ys : array (n, d), (n,)
            Source features and classes.
        xt : array (m, d)
            Target features.

        Returns
        -------
        self
        """
        xs = validate_data(self, xs, dtype=np.float64)
        xt = validate_data(self, xt, dtype=np.float64, reset=False)
        return self._fit_domains(xs, source_rows(ys, np.ones(len(xs), dtype=bool), self), xt)

    def _fit_domains(self, xs: Floats, ys: NDArray[Any], xt: Floats) -> Self:
        raise NotImplementedError


def read_domains(sample_domain: Array | None, n: int, estimator: object, *, needs_target: bool = True) -> NDArray[Any]:
    """Which of n rows are source; an error unless there are rows of each domain that is needed."""
    name = type(estimator).__name__
    if sample_domain is None:
        if needs_target:
            raise ValueError(
                f"sample_domain is None, which makes all {n} rows source, but {name} needs target rows too; pass "
                "sample_domain (source > 0, target < 0) or call fit_source_target(xs, ys, xt)"
            )
        return np.ones(n, dtype=bool)
    source = read_sign(sample_domain, n)
    if not source.any() or (needs_target and source.all()):
        missing = "target rows (< 0)" if source.any() else "source rows (> 0)"
        raise ValueError(f"sample_domain has no {missing} among its {n}; {name} needs them")
    return source


def read_sign(sample_domain: Array, n: int) -> NDArray[Any]:
    """Which of n rows are source; one number is the domain of all rows."""
    domain = np.asarray(sample_domain)
    if domain.ndim == 0:
        domain = np.broadcast_to(domain, (n,))
    if domain.shape != (n,):
        raise ValueError(f"sample_domain has shape {domain.shape}; accepted is one entry for each row of X, ({n},)")
    if domain.dtype.kind not in "iuf" or not np.isfinite(domain).all() or (domain == 0).any():
        raise ValueError(
            f"sample_domain has dtype {domain.dtype} or entries that are zero or not finite; "
            "accepted are positive integers for source rows and negative ones for target rows"
        )
    return np.asarray(domain > 0)


def source_rows(y: Array | None, source: NDArray[Any], estimator: object) -> NDArray[Any]:
    """The classes of the source rows; what stands in the target rows is never looked at."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; "
            "pass the classes of the source rows (those of target rows are ignored)"
        )
    labels = column_or_1d(y, warn=True)
    if len(labels) != len(source):
        raise ValueError(f"y has {len(labels)} entries but X has {len(source)} rows; accepted is one class for each")
    ys = labels[source]
    if ys.dtype == object:  # None and NaN in target rows made objects of the classes; without them these are plain
        if any(map(is_missing, ys)):  # beside strings NumPy would make a string of it, a class by the name of "nan"
            raise ValueError("y contains None or NaN in source rows; source rows need their classes")
        ys = np.array(ys.tolist())
    if ys.dtype.kind == "f" and not np.isfinite(ys).all():
        raise ValueError("y contains NaN or infinity in source rows; source rows need their classes")
    check_classification_targets(ys)
    return np.asarray(ys)


def warn_of_hidden_labels(ys: NDArray[Any]) -> None:
    """Warn where -1 stands beside numbered classes and no row is target: it may be a label that was to be hidden.

    Two classes beside it are left alone: -1, 0 and 1 are as often classes themselves.
    """
    if ys.dtype.kind != "i" or ys.min() != -1 or len(np.unique(ys[ys >= 0])) < 3:
        return
    warnings.warn(
        f"y is -1 in {np.count_nonzero(ys == -1)} of {len(ys)} rows, and without sample_domain that is a class like "
        "the others; where it hides the labels of target rows, pass sample_domain (source > 0, target < 0)",
        stacklevel=3,
    )


def class_codes(ys: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The sorted classes (K,), and each row's class as a position in them (n,)."""
    classes, codes = np.unique(ys, return_inverse=True)
    return classes, codes.reshape(-1).astype(np.int64)


def at_most(name: str, value: object, limit: int) -> int:
    """The whole number ``value``, at least 1, cut down to ``limit``."""
    return max(1, min(check_count(name, value), limit))
