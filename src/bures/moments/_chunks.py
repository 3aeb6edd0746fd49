"""One chunk of a stream: read, checked, and an error that says where in the stream it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bures.arrays import Array, Names, as_tensor, check_finite, describe, numpy_to_tensor, refuse_masked
from bures.feature_maps import FeatureMap
from bures.feature_maps._base import as_rows
from bures.labels import read_labels

__all__ = ["Chunk", "read_chunk"]


@dataclass(frozen=True)
class Chunk:
    """Samples x (n, d), labels (n,) or (n, K), and weights (n,) or None, on the device of the moments."""

    x: Tensor
    y: Tensor
    weights: Tensor | None

    def __len__(self) -> int:
        return len(self.x)


def read_chunk(x: Array, y: Array, sample_weight: Array | None, order: list[int] | None, *, feature_map: FeatureMap,
               n_classes: int, labels: str, number: int, first_row: int) -> Chunk:  # fmt: skip
    """Read a chunk, its columns in this order; an error names its number and its rows in the stream."""
    try:
        rows = _read_features(x, feature_map)
        rows = rows if order is None else rows[:, order]
        y = _read_hard(y, len(rows), n_classes) if labels == "hard" else _read_soft(y, len(rows), n_classes)
        chunk = Chunk(rows, y.to(rows.device), _read_weights(sample_weight, rows))
    except (TypeError, ValueError) as error:
        try:
            last_row = first_row + len(x) - 1
        except TypeError:
            raise error from None
        raise type(error)(f"chunk {number}, rows {first_row} to {last_row} of the stream: {error}") from error
    return chunk


def _read_features(x: Array, feature_map: FeatureMap) -> Tensor:
    rows = as_rows(x).detach().to(feature_map.device)
    if rows.shape[1] != feature_map.n_inputs and len(rows):
        raise ValueError(f"x has {rows.shape[1]} features but the feature map was fitted on {feature_map.n_inputs}")
    check_finite("x", rows)
    return rows


def _read_hard(y: Array, n: int, n_classes: int) -> Tensor:
    accepted = f"accepted are integers from 0 to {n_classes - 1}, shape ({n},)"
    refuse_masked("y", y)
    if not isinstance(y, Tensor) and np.asarray(y).dtype.kind not in "biu" and n:
        raise ValueError(f"y is a {describe(np.asarray(y))}; {accepted} (labels='soft' takes rows of probabilities)")
    classes = as_tensor(y)
    if classes.shape != (n,) or (n and (classes.is_floating_point() or classes.is_complex())):
        raise ValueError(f"y is a {describe(y)}; {accepted} (labels='soft' takes rows of probabilities)")
    classes = classes.to(torch.int64)
    outside = ((classes < 0) | (classes >= n_classes)).nonzero().flatten()
    if outside.numel():
        row = int(outside[0])
        raise ValueError(f"y contains class {int(classes[row])} (row {row}); {accepted}")
    return classes


def _read_soft(y: Array, n: int, n_classes: int) -> Tensor:
    """Rows of probabilities in float64; integers are one-hot rows."""
    if n == 0:
        return torch.zeros(0, n_classes, dtype=torch.float64)
    if np.ndim(y) == 1:
        return torch.nn.functional.one_hot(_read_hard(y, n, n_classes), n_classes).double()
    given = as_tensor(y)
    rows, _ = read_labels(y, y, "soft", n, n, like=given, names=Names("x", "y", "x", "y"))
    if rows.n_classes != n_classes:
        raise ValueError(f"y has {rows.n_classes} columns; accepted is one for each of the {n_classes} classes")
    return rows.values


def _read_weights(sample_weight: Array | None, rows: Tensor) -> Tensor | None:
    if sample_weight is None:
        return None
    w = sample_weight if isinstance(sample_weight, Tensor) else numpy_to_tensor("sample_weight", sample_weight)
    if w.shape != (len(rows),):
        raise ValueError(
            f"sample_weight has shape {tuple(w.shape)}; accepted is one weight per sample, shape ({len(rows)},)"
        )
    w = w.detach().to(device=rows.device, dtype=torch.float64)
    check_finite("sample_weight", w)
    if len(w) and bool((w < 0).any()):
        raise ValueError(f"sample_weight contains the negative weight {float(w.min())!r}; accepted are weights >= 0")
    return w
