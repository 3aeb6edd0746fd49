"""Our own scores: how far the features of the pseudo-labelled target are from those of the source, class by class."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from bures.arrays import Array, check_choice, full_precision
from bures.devices import cpu_by_default
from bures.metrics._ckw import mean_term
from bures.metrics._problem import ConditionalProblem, conditional_problem
from bures.selection._evidence import read_both
from bures.selection._predictions import subset
from bures.selection._validator import register

__all__ = ["negative_ckb", "negative_ckw", "shared_distances"]

FLOOR = 1e-6  # of a soft pseudo-label
PSEUDO_LABELS = ("soft", "hard")

# The squared CKB and the problem it is of, which CKW adds its means to; NaN and None where there is none.
Distance = tuple[float, ConditionalProblem | None]

# What was computed in `shared_distances`, by the identity of the arrays and the options; None outside of it. The arrays
# lie beside it: as long as they are there, no other has their identity.
_known: ContextVar[dict[tuple[object, ...], tuple[tuple[Array, ...], Distance]] | None] = ContextVar(
    "_known", default=None
)


@register("ckb")
@cpu_by_default()
def negative_ckb(
    source_features: Array,
    source_labels: Array,
    target_features: Array,
    target_probabilities: Array,
    *,
    pseudo_labels: str = "soft",
    eps: str | float = 1e-2,
    max_samples: int = 512,
) -> float:
    """Alignment within classes: squared CKB between source features and pseudo-labelled target features, negative.

    As the distance it does not see which class is where: see `negative_ckw`.

    Parameters
    ----------
    source_features, source_labels : array (n, d), (n,)
        Features of source samples, and their classes.
    target_features, target_probabilities : array (m, d), (m, K)
        Features of target samples, and their predicted class probabilities: the pseudo-labels.
    pseudo_labels : {"soft", "hard"}, optional
        Condition on the probabilities or on the most probable class.
    eps : float or "auto", optional
        As in `bures.ckb`.
    max_samples : int, optional
        Of more samples in a domain a random part is taken, always the same.

    Returns
    -------
    float
        From a negative number to about 0; NaN where the features of both domains are one point: they are at distance
        zero without being of any use.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import negative_ckb
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> xs, xt = rng.normal(size=(2, 60, 4)) + 5 * np.eye(3, 4)[y]
    >>> p = np.eye(3)[y]
    >>> negative_ckb(xs, y, xt, p) > negative_ckb(xs, y, xt, rng.permutation(p))
    True
    """
    parts = (source_features, source_labels, target_features, target_probabilities)
    return -_distance(parts, pseudo_labels, eps, max_samples)[0]


@register("ckw")
@cpu_by_default()
def negative_ckw(
    source_features: Array,
    source_labels: Array,
    target_features: Array,
    target_probabilities: Array,
    *,
    pseudo_labels: str = "soft",
    eps: str | float = 1e-2,
    max_samples: int = 512,
) -> float:
    """Alignment of classes: squared CKW between source features and pseudo-labelled target features, negative.

    Compares what is within the classes, as `negative_ckb` does, and where they are.

    Parameters
    ----------
    source_features, source_labels, target_features, target_probabilities : array (n, d), (n,), (m, d), (m, K)
        As in `negative_ckb`.
    pseudo_labels, eps, max_samples : optional
        As in `negative_ckb`. With soft pseudo-labels every class has a mean in the target, so that a class that no
        sample is taken for counts as one that is far away; hard ones leave such a class out.

    Returns
    -------
    float
        From a negative number to about 0; NaN where the features of both domains are one point.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import negative_ckw
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> xs, xt = rng.normal(size=(2, 60, 4)) + 5 * np.eye(3, 4)[y]
    >>> renamed = (y + 1) % 3
    >>> negative_ckw(xs, y, xt, np.eye(3)[y]) > negative_ckw(xs, y, xt, np.eye(3)[renamed])
    True
    """
    parts = (source_features, source_labels, target_features, target_probabilities)
    within, problem = _distance(parts, pseudo_labels, eps, max_samples)
    if problem is None:
        return math.nan
    # Classes that hard pseudo-labels lack are left out of the means without a warning: that happens often.
    with full_precision(problem.samples[0]), torch.no_grad():
        return -within - float(mean_term(problem))


@contextmanager
def shared_distances() -> Iterator[None]:
    """Let both scores of the same arrays share their work while the block lasts, in which nothing may change these."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def _distance(
    arrays: tuple[Array, Array, Array, Array], pseudo_labels: str, eps: str | float, max_samples: int
) -> Distance:
    known = _known.get()
    key = (*map(id, arrays), pseudo_labels, eps, max_samples)
    if known is not None and key in known:
        return known[key][1]
    check_choice("pseudo_labels", pseudo_labels, PSEUDO_LABELS)
    xs, y, xt, p = read_both(*arrays)
    s, t = subset(len(xs), max_samples), subset(len(xt), max_samples)
    xs, y, xt, p = xs[s], y[s], xt[t], p[t].double()
    if _one_point(torch.cat([xs, xt])):
        return math.nan, None
    y, p = _used_classes(y, p)
    yt = p.argmax(dim=1) if pseudo_labels == "hard" else (p.clamp(min=FLOOR) / p.clamp(min=FLOOR).sum(1, keepdim=True))
    with full_precision(xs), torch.no_grad():
        problem = conditional_problem(xs, y, xt, yt, eps=eps)
        found = float(problem.squared_distance()), problem
    if known is not None:
        known[key] = arrays, found
    return found


def _one_point(x: Tensor) -> bool:
    """Whether samples differ by no more than rounding in float32, in which networks compute."""
    spread = (x - x[0]).abs().max()
    return bool(spread <= 8 * torch.finfo(torch.float32).eps * x.abs().max())


def _used_classes(y: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Labels and probabilities over the classes of the source sample; with thousands, a part of it has but a few."""
    classes, numbers = torch.unique(y, return_inverse=True)
    if len(classes) == p.shape[1]:
        return y, p
    # What the source lacks has no counterpart to be compared with: its probability goes to all others alike.
    rest = (1 - p[:, classes].sum(dim=1, keepdim=True)).clamp(min=0) / len(classes)
    return numbers, p[:, classes] + rest
