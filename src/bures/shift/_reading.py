"""From the arguments of a shift report to samples with classes that may be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bures.arrays import Array, Names, as_feature_pair
from bures.labels import read_labels, refuse_hidden
from bures.shift._priors import ClassFrequencies, counted_frequencies, estimated_frequencies
from bures.testing import PredictedLabels, out_of_fold_labels
from bures.testing._predictions import is_marked, unwrap

__all__ = ["Data", "read_data"]


@dataclass(frozen=True)
class Data:
    """Both samples, with classes numbered alike: true ones of the source, and those that are compared."""

    xs: Tensor
    xt: Tensor
    names: list[Any]
    true_s: NDArray[np.int64]
    given_s: NDArray[np.int64]
    given_t: NDArray[np.int64]
    predicted: bool
    notes: tuple[str, ...]

    def named(self, numbers: NDArray[np.int64]) -> Array:
        """Classes by name, in a form that may stand beside tensors."""
        values = np.asarray(self.names)[numbers]
        return torch.from_numpy(values).to(self.xs.device) if values.dtype.kind in "biu" else values

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Samples (K,) of each class in source and target."""
        k = len(self.names)
        return np.bincount(self.given_s, minlength=k), np.bincount(self.given_t, minlength=k)

    def frequencies(self, n_bootstrap: int, rng: np.random.Generator) -> ClassFrequencies:
        """How frequent the classes are, by counting or by estimation from predictions."""
        count_s, count_t = self.counts()
        if not self.predicted:
            return counted_frequencies(count_s, count_t, n_bootstrap, rng)
        return estimated_frequencies(self.joint(), count_t, n_bootstrap, rng)

    def joint(self) -> NDArray[np.int64]:
        """Source samples (K, K) of each predicted and true class."""
        k = len(self.names)
        return np.bincount(k * self.given_s + self.true_s, minlength=k * k).reshape(k, k)


def read_data(
    xs: Array,
    ys: Array,
    xt: Array,
    yt: Array | None,
    labels: str | None,
    predicted_s: Array | None,
    classifier: Any,
    max_samples: int,
    rng: np.random.Generator,
    seed: int,
) -> Data:
    """Read the arguments of `bures.shift_report`; where ``yt`` is None, predict both domains."""
    if labels not in (None, "true", "predicted"):
        raise ValueError(f"labels={labels!r} is unknown; accepted are None, 'true' and 'predicted'")
    if ys is None or isinstance(ys, PredictedLabels):
        raise ValueError("ys holds no true labels; the source must be labelled")
    s, t = (x.detach().double() for x in as_feature_pair(xs, xt))
    marked = is_marked(yt)
    if marked and labels == "true":
        raise ValueError("labels='true', but yt holds predictions; pass the true classes, one for each sample")
    predicted = yt is None or marked or labels == "predicted"
    if yt is None and (predicted_s is not None or labels == "true"):
        given = "predicted_s is given" if predicted_s is not None else "labels='true'"
        raise ValueError(f"{given} but yt is None; pass the target's labels or predictions as yt too, or neither")
    if yt is not None and predicted and predicted_s is None:
        raise ValueError(
            "yt holds predictions, so that predicted_s is needed: what the same classifier predicts for the source, "
            "out of fold. Beside true source labels its errors would look like a shift. Without yt, both are made here"
        )
    if yt is not None and not predicted and predicted_s is not None:
        raise ValueError("predicted_s is given but yt holds true labels; pass labels='predicted' if it does not")
    true_s = _read_classes("ys", "xs", ys, s)
    index_s, index_t, notes = _draw(len(s), len(t), max_samples, rng)
    if yt is None:
        # Classifiers are trained on the samples that are looked at, so that the rest of the work is as small.
        pair = out_of_fold_labels(s[index_s], true_s[index_s], t[index_t], classifier=classifier, seed=seed)
        given_s, given_t = np.asarray(pair.source), np.asarray(pair.target)
    else:
        given_t = _read_classes("yt", "xt", unwrap(yt), t)[index_t]
        given_s = true_s[index_s]
        if predicted:
            given_s = _read_classes("predicted_s", "xs", unwrap(predicted_s), s)[index_s]
    refuse_hidden(("ys", "yt"), (true_s, given_t), remedy=", or yt=None to have both domains predicted")
    kinds = {np.asarray(y).dtype.kind in "biu" for y in (true_s, given_s, given_t)}
    if len(kinds) > 1:
        raise ValueError("classes are numbers on one side and names on another; name them alike in ys and yt")
    parts = [true_s[index_s], given_s, given_t]
    names, numbers = np.unique(np.concatenate(parts), return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    true_n, given_n, target_n = np.split(numbers.reshape(-1).astype(np.int64), ends)
    return Data(s[index_s], t[index_t], names.tolist(), true_n, given_n, target_n, predicted, notes)


def _read_classes(name: str, features: str, y: Array, like: Tensor) -> NDArray[Any]:
    """Classes (n,) by name; rows of probabilities become the number of their largest."""
    n = len(like)
    found, _ = read_labels(y, y, "hard", n, n, like=like, names=Names(features, name, features, name))
    names = np.asarray(found.class_names())  # of objects, what they are: integers or strings
    if names.dtype.kind not in "biuU":
        raise ValueError(f"{name} holds classes of dtype {names.dtype}; accepted are integers and strings")
    return np.asarray(names[found.values.cpu().numpy()])


def _draw(
    n: int, m: int, max_samples: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Which samples are looked at: all, or some at random."""
    notes: tuple[str, ...] = ()
    chosen = []
    for size, domain in ((n, "source"), (m, "target")):
        index = np.arange(size)
        if size > max_samples:
            index = np.sort(rng.choice(size, size=max_samples, replace=False))
            notes += (f"of the {domain}, {max_samples} of {size} samples were looked at, drawn at random",)
        chosen.append(index)
    return chosen[0], chosen[1], notes
