"""What a validator may see of a model: features and predictions of both domains, labels of the source alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from bures.arrays import Array, as_tensor, check_finite, describe, numpy_to_tensor, refuse_masked
from bures.columns import column_names, column_order

__all__ = ["Evidence", "check_needs", "read_alike", "read_both", "read_features", "read_labels", "read_probabilities"]

TOLERANCE = 1e-3  # of the sum of a row of probabilities, which may come from half precision

# What to do where a part is missing; a part that is not named here is given by hand.
REMEDIES = {
    "validation": "hold out a part of the source, for example with source_holdout=0.1 "
    "(bures adapt --set source_holdout=0.1)",
    "source": "give features of source samples and their labels, which training has",
    "target": "give the model's features and probabilities of the target samples",
}


@dataclass(frozen=True, init=False, eq=False, repr=False, slots=True)
class Evidence:
    """All that a validator may know of a model. There is no place in it for target labels.

    Arrays are NumPy's or torch's; they are kept as tensors in the memory of the host. Each is optional: a validator
    names those that it needs.

    Parameters
    ----------
    target_probabilities : array (m, K), optional
        Predicted class probabilities of the target samples.
    target_features : array (m, d), optional
        Features of the same samples.
    source_features : array (n, d), optional
        Features of source samples that the model was trained on.
    source_labels : integer array (n,), optional
        Their classes, columns of the probabilities.
    validation_features : array (v, d), optional
        Features of source samples that the model was *not* trained on.
    validation_probabilities : array (v, K), optional
        Predicted class probabilities of these.
    validation_labels : integer array (v,), optional
        Their classes.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import Evidence, make_validator
    >>> evidence = Evidence(target_probabilities=np.eye(3))
    >>> evidence
    Evidence(target_probabilities (3, 3))
    >>> round(make_validator("im").score(evidence), 3)
    1.099
    """

    target_probabilities: Tensor | None = None
    target_features: Tensor | None = None
    source_features: Tensor | None = None
    source_labels: Tensor | None = None
    validation_features: Tensor | None = None
    validation_probabilities: Tensor | None = None
    validation_labels: Tensor | None = None

    def __init__(
        self,
        *,
        target_probabilities: Array | None = None,
        target_features: Array | None = None,
        source_features: Array | None = None,
        source_labels: Array | None = None,
        validation_features: Array | None = None,
        validation_probabilities: Array | None = None,
        validation_labels: Array | None = None,
    ) -> None:
        features = {
            "target_features": target_features,
            "source_features": source_features,
            "validation_features": validation_features,
        }
        probabilities = {
            "target_probabilities": target_probabilities,
            "validation_probabilities": validation_probabilities,
        }
        labels = {"source_labels": source_labels, "validation_labels": validation_labels}
        read = read_alike({name: value for name, value in features.items() if value is not None})
        for name in features:
            object.__setattr__(self, name, read.get(name))
        self._keep(probabilities, read_probabilities)  # whose columns are numbered as the labels are
        classes = next((value.shape[1] for value in self._parts("_probabilities").values()), None)
        self._keep(labels, partial(read_labels, n_classes=classes))
        for part in ("target", "source", "validation"):
            self._check_lengths(part)
        self._check_widths("features")
        self._check_widths("probabilities")

    def _keep(self, given: Mapping[str, Array | None], read: Callable[[str, Array], Tensor]) -> None:
        for name, value in given.items():
            object.__setattr__(self, name, None if value is None else read(name, value))

    def _parts(self, text: str) -> dict[str, Tensor]:
        found = {item.name: getattr(self, item.name) for item in fields(self) if text in item.name}
        return {name: value for name, value in found.items() if value is not None}

    def _check_lengths(self, part: str) -> None:
        lengths = {name: len(value) for name, value in self._parts(f"{part}_").items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {n}" for name, n in lengths.items())
            raise ValueError(f"the {part} arrays have different numbers of rows ({listed}); accepted is one per sample")

    def _check_widths(self, kind: str) -> None:
        widths = {name: value.shape[1] for name, value in self._parts(f"_{kind}").items()}
        if len(set(widths.values())) > 1:
            listed = ", ".join(f"{name} {d}" for name, d in widths.items())
            raise ValueError(f"the {kind} have different numbers of columns ({listed}); they must come from one model")

    def __repr__(self) -> str:
        parts = (f"{name} {tuple(value.shape)}" for name, value in self._parts("").items())
        return f"Evidence({', '.join(parts)})"


def check_needs(name: str, needs: Iterable[str], evidence: Evidence) -> None:
    """Raise where a part that a validator needs is not there, saying how to provide it."""
    missing = [need for need in needs if getattr(evidence, need) is None]
    if missing:
        remedies = dict.fromkeys(REMEDIES[need.partition("_")[0]] for need in missing)
        raise ValueError(f"validator {name!r} needs {', '.join(missing)}, which are missing; {'; '.join(remedies)}")


def read_features(name: str, value: Array) -> Tensor:
    """Read features (n, d) as a matrix of floating-point numbers."""
    x = value.detach().cpu() if isinstance(value, Tensor) else numpy_to_tensor(name, value)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; accepted is (n_samples, n_features), neither of them 0")
    x = x if x.is_floating_point() and x.dtype.itemsize >= 4 else x.float()
    check_finite(name, x)
    return x


def read_alike(tables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Read the features of one model by name, the columns of data frames in the order of the first."""
    columns = {name: None if isinstance(value, Tensor) else column_names(value) for name, value in tables.items()}
    first = next((name for name, found in columns.items() if found is not None), "")
    read = {}
    for name, value in tables.items():
        order = column_order(columns.get(first), columns[name], names=(first, name))
        x = read_features(name, value)
        read[name] = x if order is None else x[:, order]
    return read


def read_both(
    source_features: Array, source_labels: Array, target_features: Array, target_probabilities: Array
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Read features (n, d) and classes (n,) of the source, features (m, d) and probabilities (m, K) of the target."""
    p = read_probabilities("target_probabilities", target_probabilities)
    y = read_labels("source_labels", source_labels, p.shape[1])
    xs, xt = read_alike({"source_features": source_features, "target_features": target_features}).values()
    for name, labels, x in (("source_labels", y, xs), ("target_probabilities", p, xt)):
        if len(labels) != len(x):
            raise ValueError(f"{name} has {len(labels)} rows but there are {len(x)} features; accepted is one each")
    return xs, y, xt, p


def read_probabilities(name: str, value: Array) -> Tensor:
    """Read probabilities (n, K): rows that are not negative and sum to one."""
    p = read_features(name, value)
    sums = p.sum(dim=1)
    wrong = ((sums - 1).abs() > TOLERANCE) | (p < 0).any(dim=1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name} has {int(wrong.sum())} of {len(p)} rows that are not probabilities (row {row}: smallest entry "
            f"{float(p[row].min()):.4g}, sum {float(sums[row]):.4g}); apply a softmax to logits"
        )
    return p


def read_labels(name: str, value: Array, n_classes: int | None = None) -> Tensor:
    """Read classes (n,) from 0 to K - 1 as an int64 vector."""
    accepted = f"accepted are integers from 0 to {'K - 1' if n_classes is None else n_classes - 1}, one per sample"
    refuse_masked(name, value)
    try:
        y = as_tensor(value).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is a {describe(value)}; {accepted}") from error
    if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool or not len(y):
        raise ValueError(f"{name} is a {describe(y)}; {accepted}")
    y = y.long()
    outside = (y < 0) | (y >= n_classes) if n_classes is not None else y < 0
    if bool(outside.any()):
        raise ValueError(f"{name} contains class {int(y[outside][0])}; {accepted}")
    return y
