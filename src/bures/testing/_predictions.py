"""Predicted labels for a test: made alike in both domains, and marked as what they are."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bures.arrays import Array, as_feature_pair, check_count, check_seed, describe, refuse_masked

__all__ = ["LABELS", "LabelPair", "PredictedLabels", "is_marked", "label_kind", "out_of_fold_labels", "unwrap"]

LABELS = ("true", "predicted")

MIXED = (
    "true labels on one side and predicted ones on the other reject without any shift, several times as often as the "
    "level says, because the classifier's errors look like a shift; use predictions made out of fold in both domains: "
    "ys, yt = bures.testing.out_of_fold_labels(xs, ys, xt)"
)


@dataclass(frozen=True, eq=False)
class PredictedLabels:
    """Classes that a classifier predicted for samples it was not trained on.

    A test takes it in the place of labels, and only beside another one: true labels in one domain and predictions in
    the other are an error.

    Parameters
    ----------
    values : array (n,)
        The predicted classes.

    Examples
    --------
    >>> import bures
    >>> xs, ys, xt, yt = bures.data.drifting_class(60, drift=0.0)
    >>> bures.conditional_test(xs, ys, xt, bures.testing.PredictedLabels(yt))
    Traceback (most recent call last):
    ValueError: ys holds true labels but yt predicted ones; ...
    """

    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.values.cpu() if isinstance(self.values, Tensor) else self.values
        return np.array(values, dtype=dtype) if copy else np.asarray(values, dtype=dtype)


class LabelPair(NamedTuple):
    """Predicted labels of source and target.

    Attributes
    ----------
    source, target : PredictedLabels
        Of n source samples and of m target samples.

    Examples
    --------
    >>> import bures
    >>> xs, ys, xt, _ = bures.data.drifting_class(60, drift=0.0)
    >>> predicted = bures.testing.out_of_fold_labels(xs, ys, xt)
    >>> len(predicted.source), len(predicted.target)
    (60, 60)
    """

    source: PredictedLabels
    target: PredictedLabels


def out_of_fold_labels(
    xs: Array, ys: Array, xt: Array, *, classifier: Any = None, n_folds: int = 5, seed: int = 0
) -> LabelPair:
    """Predict the classes of both domains with classifiers that were not trained on what they predict.

    The source is cut into folds, and so is the target. The classifier of a fold is trained on the other folds of the
    source and predicts that fold of the source and of the target: without a shift, samples of the two domains then
    get their labels in exactly the same way.

    Parameters
    ----------
    xs : array (n, d)
        Source features.
    ys : array (n,)
        Source classes, integers or strings.
    xt : array (m, d)
        Target features.
    classifier : scikit-learn classifier, optional
        Cloned for every fold. None is a logistic regression on standardised features.
    n_folds : int, optional
        Number of folds, at least 2.
    seed : int, optional
        Seed of the folds.

    Returns
    -------
    LabelPair
        ``(source, target)``, both `PredictedLabels`, to be passed to `bures.conditional_test` as ``ys`` and ``yt``.

    Examples
    --------
    >>> import bures
    >>> xs, ys, xt, _ = bures.data.drifting_class(80, drift=0.0)
    >>> ys_predicted, yt_predicted = bures.testing.out_of_fold_labels(xs, ys, xt)
    >>> bures.conditional_test(xs, ys_predicted, xt, yt_predicted, n_permutations=99).labels
    'predicted'
    """
    n_folds = check_count("n_folds", n_folds, minimum=2)
    check_seed(seed)
    tensors = as_feature_pair(xs, xt)
    s, t = (x.detach().cpu().double().numpy() for x in tensors)
    if isinstance(ys, PredictedLabels):
        raise ValueError("ys holds predicted labels; classifiers are trained on the true ones")
    refuse_masked("ys", ys)
    y = np.asarray(ys.detach().cpu() if isinstance(ys, Tensor) else ys)
    if y.ndim != 1 or y.dtype.kind == "f" or len(y) != len(s):
        raise ValueError(f"ys is a {describe(ys)}; accepted is one class, an integer or a string, for each of {len(s)}")
    if y.dtype == object and not (all(isinstance(c, str) for c in y) or all(isinstance(c, Integral) for c in y)):
        raise TypeError("ys holds objects; accepted are classes that are all integers or all strings")
    if len(s) < n_folds:
        raise ValueError(f"xs has {len(s)} samples; {n_folds} folds, by which labels are predicted, need at least "
                         "as many; give more samples, or n_folds to out_of_fold_labels")  # fmt: skip
    rng = np.random.default_rng(seed)
    predicted_s, predicted_t = np.empty_like(y), np.empty(len(t), dtype=y.dtype)
    fold_s, fold_t = _folds(y, n_folds, rng), _folds(np.zeros(len(t)), n_folds, rng)
    for fold in range(n_folds):
        train, held_s, held_t = fold_s != fold, fold_s == fold, fold_t == fold
        held = np.concatenate([s[held_s], t[held_t]])
        labels = _fit_predict(classifier, s[train], y[train], held, seed + fold)
        predicted_s[held_s], predicted_t[held_t] = labels[: held_s.sum()], labels[held_s.sum() :]
    if isinstance(xs, Tensor) and predicted_s.dtype.kind in "biu":
        return LabelPair(*(PredictedLabels(tensors[0].new_tensor(p).long()) for p in (predicted_s, predicted_t)))
    return LabelPair(PredictedLabels(predicted_s), PredictedLabels(predicted_t))


def _folds(strata: NDArray[Any], n_folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A fold for each sample, every class spread evenly; classes of fewer samples than folds are allowed."""
    shuffled = rng.permutation(len(strata))
    by_class = shuffled[np.argsort(strata[shuffled], kind="stable")]
    fold = np.empty(len(strata), dtype=np.int64)
    fold[by_class] = np.arange(len(strata)) % n_folds
    return fold


def _fit_predict(classifier: Any, x: NDArray[Any], y: NDArray[Any], held: NDArray[Any], seed: int) -> NDArray[Any]:
    from sklearn.base import clone
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(held) == 0:
        return y[:0]
    if len(np.unique(y)) == 1:  # nothing to learn, and most classifiers refuse
        return np.full(len(held), y[0])
    if classifier is None:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, random_state=seed % 2**32))
    else:
        model = clone(classifier)
    with warnings.catch_warnings():
        # A test needs labels made alike in both domains, not the last digit of a likelihood.
        warnings.simplefilter("ignore", ConvergenceWarning)
        predicted = np.asarray(model.fit(x, y).predict(held))
    strange = predicted[~np.isin(predicted, y)]
    if predicted.shape != (len(held),) or len(strange):
        what = f"{strange.flat[0]!s}, which is no class of ys" if len(strange) else f"shape {predicted.shape}"
        raise ValueError(f"classifier predicts {what}; accepted is a scikit-learn classifier, which predicts classes")
    return predicted


def label_kind(ys: Array, yt: Array, labels: object) -> str:
    """``"true"`` or ``"predicted"``; an error where one side holds true labels and the other predictions."""
    declared = (labels, labels) if isinstance(labels, str) or labels is None else labels
    if not isinstance(declared, (tuple, list)) or len(declared) != 2 or not set(declared) <= {*LABELS, None}:
        raise ValueError(
            f"labels={labels!r} is unknown; accepted are None, 'true', 'predicted', "
            "and a pair of these (source, target)"
        )
    kinds = []
    for name, y, said in (("ys", ys, declared[0]), ("yt", yt, declared[1])):
        marked = is_marked(y)
        if marked and said == "true":
            raise ValueError(f"labels says that {name} holds true labels, but it is a {describe(y)} of predictions")
        kinds.append("predicted" if marked or said == "predicted" else "true")
    if kinds[0] != kinds[1]:
        raise ValueError(f"ys holds {kinds[0]} labels but yt {kinds[1]} ones; {MIXED}")
    return kinds[0]


def is_marked(y: Array) -> bool:
    """Whether labels say of themselves that they are predictions: a matrix holds probabilities, as no truth does."""
    if isinstance(y, (list, tuple)):
        return bool(y) and isinstance(y[0], (list, tuple, np.ndarray, Tensor))
    return isinstance(y, PredictedLabels) or getattr(y, "ndim", 1) == 2


def unwrap(y: Array) -> Array:
    """The labels themselves."""
    return y.values if isinstance(y, PredictedLabels) else y
