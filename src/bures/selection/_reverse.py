"""Reverse validation: what is learnt from the pseudo-labelled target must hold where labels are known."""

from __future__ import annotations

from typing import Any

import torch

from bures.arrays import Array
from bures.selection._evidence import read_both
from bures.selection._validator import register

__all__ = ["reverse_accuracy"]


@register("reverse")
def reverse_accuracy(
    source_features: Array,
    source_labels: Array,
    target_features: Array,
    target_probabilities: Array,
    *,
    classifier: Any = None,
) -> float:
    """Reverse validation: accuracy in the source of a classifier fitted to the pseudo-labelled target.

    Parameters
    ----------
    source_features, source_labels : array (n, d), (n,)
        Features of source samples, and their classes.
    target_features, target_probabilities : array (m, d), (m, K)
        Features of target samples, and their predicted class probabilities: the pseudo-labels.
    classifier : scikit-learn classifier, optional
        Fitted to the target with the most probable classes; it is cloned. None takes the class whose mean feature is
        nearest; the means are weighted with the probabilities, so that no other classifier has to be tuned.

    Returns
    -------
    float
        Share of source samples that are recognised.

    References
    ----------
    Zhong, Fan, Yang, Verscheure and Ren, "Cross validation framework to choose amongst models and datasets for transfer
    learning", ECML PKDD 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import reverse_accuracy
    >>> xs, y = np.array([[0.0], [1.0], [9.0]]), np.array([0, 0, 1])
    >>> xt = np.array([[2.0], [8.0]])
    >>> reverse_accuracy(xs, y, xt, np.array([[1.0, 0.0], [0.0, 1.0]]))
    1.0
    >>> reverse_accuracy(xs, y, xt, np.array([[0.0, 1.0], [1.0, 0.0]]))
    0.0
    """
    xs, y, xt, p = read_both(source_features, source_labels, target_features, target_probabilities)
    if xs.shape[1] != xt.shape[1]:
        raise ValueError(f"source_features has {xs.shape[1]} columns but target_features {xt.shape[1]}")
    if classifier is not None:
        if isinstance(classifier, type) or not all(
            hasattr(classifier, name) for name in ("get_params", "fit", "predict")
        ):
            raise TypeError(f"classifier={classifier!r} is no classifier; accepted are None and one of scikit-learn's")
        return _by_classifier(classifier, xs.numpy(), y.numpy(), xt.numpy(), p.argmax(dim=1).numpy())
    predicted = torch.unique(p.argmax(dim=1))  # a class that no sample is taken for has a mean of leftovers
    weights = p[:, predicted].double()
    means = (weights / weights.sum(dim=0)).T @ xt.double()
    nearest = torch.cdist(xs.double(), means).argmin(dim=1)
    return float((predicted[nearest] == y).double().mean())


def _by_classifier(classifier: Any, xs: Any, y: Any, xt: Any, pseudo: Any) -> float:
    from sklearn.base import clone

    if len(set(pseudo.tolist())) == 1:  # most classifiers refuse to learn a single class
        return float((y == pseudo[0]).mean())
    return float((clone(classifier).fit(xt, pseudo).predict(xs) == y).mean())
