"""The shift between the features of two domains, before and after training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bures.metrics import MissingClassWarning, ckb, ckw, mmd
from bures.training._kept import KeptSamples

__all__ = ["DISTANCES", "Shift", "measure_shift"]

# Squared distances: the first two compare P(X|Y), the last P(X).
DISTANCES = {
    "ckb": "CKB: spread of each class",
    "ckw": "CKW: spread and mean of each class",
    "mmd": "MMD: both domains as a whole",
}


@dataclass(frozen=True)
class Shift:
    """Squared distances between source and target features, by name, before and after training; None where undefined.

    ``by_labels`` says whether the classes of the target were its labels; else they were the final predictions, in both
    places. ``n`` counts the samples of source and target.
    """

    before: dict[str, float | None]
    after: dict[str, float | None]
    by_labels: bool
    n: tuple[int, int]


def measure_shift(kept: KeptSamples) -> Shift:
    """Distances between the features of both domains, of the same samples before and after training."""
    source, target = kept.source, kept.target
    n, m = len(source.before), len(target.before)
    known = source.labels is not None
    ys = _numpy(source.labels if known else source.prediction)[:n]
    yt = _numpy(target.prediction if target.labels is None else target.labels)[:m]

    def distances(xs: NDArray[Any], xt: NDArray[Any]) -> dict[str, float | None]:
        return {
            "ckb": _value(lambda: ckb(xs, ys, xt, yt)),
            "ckw": _value(lambda: ckw(xs, ys, xt, yt)),
            "mmd": _value(lambda: mmd(xs, xt)),
        }

    return Shift(
        before=distances(_wide(source.before), _wide(target.before)),
        after=distances(_wide(source.features[:n]), _wide(target.features[:m])),
        by_labels=target.labels is not None,
        n=(n, m),
    )


def _value(distance: Callable[[], Any]) -> float | None:
    """A distance; None where it is not defined, as for constant features."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MissingClassWarning)  # the page says which classes are compared
            value = float(distance())
    except (ValueError, RuntimeError):
        return None
    return value if np.isfinite(value) else None


def _numpy(values: Any) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


def _wide(values: Any) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
