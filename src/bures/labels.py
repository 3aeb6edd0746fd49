"""The conditioning variable Y: hard classes, soft predictions or continuous values, read from what callers pass.

Reading never guesses: integers and strings in one dimension are classes, rows on the simplex are predictions, and
anything else must be named by ``conditioning``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bures.arrays import (
    FUNCTION_NAMES,
    Array,
    Names,
    check_choice,
    check_finite,
    checks_values,
    describe,
    is_missing,
    listed_values,
    numpy_to_tensor,
    refuse_masked,
)

__all__ = ["Conditioning", "Kind", "Labels", "check_prior", "class_prior_weights", "read_labels", "refuse_hidden"]

Kind: TypeAlias = Literal["hard", "soft", "continuous"]
Conditioning: TypeAlias = str | tuple[str, str] | None
"""A kind for both domains, a pair of kinds (source, target), or None to read it from shape and dtype."""

KINDS = ("hard", "soft", "continuous")


@dataclass(frozen=True)
class Labels:
    """The conditioning variable of one domain.

    Attributes
    ----------
    kind : {"hard", "soft", "continuous"}
    values : Tensor
        hard: (n,) integers in ``range(n_classes)``; soft: (n, n_classes) and continuous: (n, c), both float64.
    names : array or None
        What class ``k`` is called by the user; None when classes are the columns of a prediction matrix, or when
        there are no classes.
    n_classes : int or None
    resolution : float
        Relative rounding of the numbers as they came; differences below it are noise.
    """

    kind: Kind
    values: Tensor
    names: Any
    n_classes: int | None
    resolution: float

    def __len__(self) -> int:
        return len(self.values)

    def membership(self) -> Tensor:
        """Class membership (n, n_classes) in float64: one-hot rows or predictions."""
        if self.n_classes is None:
            raise ValueError("a continuous conditioning variable has no classes")
        if self.kind == "soft":
            return self.values
        columns = torch.arange(self.n_classes, device=self.values.device)
        return (self.values[:, None] == columns).double()

    def rows(self) -> Tensor:
        """The variable as vectors (n, c) in float64, for a kernel on it."""
        return self.values if self.kind == "continuous" else self.membership()

    def class_names(self) -> list[Any]:
        """Names of the classes, in order."""
        if self.names is None:
            return list(range(self.n_classes or 0))
        return listed_values(self.names)

    def take(self, index: Tensor) -> Labels:
        """The labels of some samples."""
        return Labels(self.kind, self.values[index], self.names, self.n_classes, self.resolution)


def read_labels(
    ys: Array, yt: Array, conditioning: Conditioning, n: int, m: int, *, like: Tensor, names: Names = FUNCTION_NAMES
) -> tuple[Labels, Labels]:
    """Read the conditioning variable of both domains and bring their classes into one numbering.

    Parameters
    ----------
    ys, yt : array
        (n,) or (n, K) for the source; (m,) or (m, K) for the target.
    conditioning : {None, "hard", "soft", "continuous"} or pair of these
    n, m : int
        Number of samples in the features.
    like : Tensor
        Where the labels are to live.
    names : Names
        What the arguments are called in messages.
    """
    source_kind, target_kind = _kinds(conditioning)
    source = _read_side(names.ys, names.xs, ys, source_kind, n, like)
    target = _read_side(names.yt, names.xt, yt, target_kind, m, like)
    if (source.kind == "continuous") != (target.kind == "continuous"):
        raise ValueError(
            f"{names.ys} is {source.kind} but {names.yt} is {target.kind}; "
            "continuous values need continuous values beside them"
        )
    if source.kind == "continuous":
        if source.values.shape[1] != target.values.shape[1]:
            raise ValueError(
                f"{names.ys} has {source.values.shape[1]} columns but {names.yt} has {target.values.shape[1]}; "
                "a continuous conditioning variable needs the same number in both domains"
            )
        return source.labels(None, None), target.labels(None, None)
    return _number_classes(source, target)


@dataclass(frozen=True)
class _Side:
    """One domain's variable before the classes of both domains are numbered together."""

    argument: str
    kind: Kind
    values: Any  # (n,) class names or column numbers, or (n, c) float64 rows
    resolution: float
    columns: int | None = None  # how many classes the columns of a given matrix name

    def labels(self, names: Any, n_classes: int | None, values: Tensor | None = None) -> Labels:
        return Labels(self.kind, self.values if values is None else values, names, n_classes, self.resolution)


def _kinds(conditioning: Conditioning) -> tuple[str | None, str | None]:
    if conditioning is None:
        return None, None
    pair = (conditioning, conditioning) if isinstance(conditioning, str) else conditioning
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(
            f"conditioning={conditioning!r} is not accepted; pass one of {', '.join(map(repr, KINDS))}, "
            "a pair of these (source, target), or None"
        )
    for kind in pair:
        check_choice("conditioning", kind, KINDS)
    return pair[0], pair[1]


def _read_side(argument: str, features: str, y: Array, kind: str | None, n: int, like: Tensor) -> _Side:
    if isinstance(y, Tensor):
        raw: Any = y.detach()
        if y.is_complex():
            raise TypeError(f"{argument} has complex dtype {y.dtype}; accepted are integers and real numbers")
        is_number, is_integer = True, not y.is_floating_point()
        resolution = 0.0 if is_integer else float(torch.finfo(y.dtype).eps)
    else:
        refuse_masked(argument, y)
        raw = np.asarray(y)
        is_number, is_integer = raw.dtype.kind in "biuf", raw.dtype.kind in "biu"
        resolution = float(np.finfo(raw.dtype).eps) if raw.dtype.kind == "f" else 0.0
    if raw.ndim not in (1, 2):
        raise ValueError(f"{argument} has shape {tuple(raw.shape)}; accepted is (n,) or (n, columns)")
    if len(raw) != n:
        raise ValueError(
            f"{argument} has {len(raw)} labels but {features} has {n} samples; there must be one per sample"
        )
    if raw.ndim == 2 and raw.shape[1] == 0:
        raise ValueError(f"{argument} has shape {tuple(raw.shape)}; accepted is at least one column")
    resolved = kind or _infer_kind(argument, raw, is_number, is_integer)
    if resolved == "hard" and raw.ndim == 1:
        return _Side(argument, "hard", _check_class_names(argument, raw), 0.0)
    if raw.ndim == 1 and resolved == "soft":
        # Class numbers on a side declared soft: one-hot rows, once the number of columns is known.
        return _Side(argument, "soft", _check_class_names(argument, raw), 0.0)
    rows = raw if isinstance(raw, Tensor) else numpy_to_tensor(argument, raw)
    rows = rows.to(device=like.device, dtype=torch.float64)
    if rows.ndim == 1:
        rows = rows[:, None]
    check_finite(argument, rows)
    if resolved != "continuous":
        _check_simplex(argument, rows, resolution)
    if resolved == "continuous":
        return _Side(argument, "continuous", rows, resolution)
    if resolved == "hard":
        return _Side(argument, "hard", rows.argmax(dim=1), 0.0, columns=rows.shape[1])
    if rows.shape[1] == 1:
        rows = torch.ones_like(rows)  # as the probabilities of one class are, whatever rounding made of them
    return _Side(argument, "soft", rows, resolution, columns=rows.shape[1])


def _infer_kind(argument: str, raw: Any, is_number: bool, is_integer: bool) -> str:
    if raw.ndim == 1:
        if is_integer or not is_number:
            return "hard"
        raise ValueError(
            f"{argument} is a vector of real numbers, which could be classes or a continuous variable; "
            "pass integers or conditioning='hard' for classes, or conditioning='continuous', which metrics take and "
            "tests do not"
        )
    return "soft"


def _check_class_names(argument: str, raw: Any) -> Any:
    if isinstance(raw, Tensor):
        if raw.is_floating_point():
            check_finite(argument, raw)
        return raw
    if raw.dtype.kind == "f" and not np.isfinite(raw).all():
        raise ValueError(f"{argument} contains NaN or infinity; every sample needs a class")
    if raw.dtype.kind in "OUST":
        if any(map(is_missing, raw.tolist())):
            raise ValueError(f"{argument} contains a missing value; every sample needs a class")
        return np.asarray(raw.tolist()) if raw.dtype.kind == "T" else raw
    if raw.dtype.kind in "biuf":
        return raw
    raise TypeError(f"{argument} has dtype {raw.dtype}; accepted are integers, strings, and rows of numbers")


def _check_simplex(argument: str, rows: Tensor, resolution: float) -> None:
    if not checks_values():
        return
    tolerance = max(1e-4, 4 * resolution)
    totals = rows.sum(dim=1)
    if rows.device.type == "cpu":  # a quick look, where looking costs nothing
        low, high = torch.aminmax(totals)
        if float(low) >= 1 - tolerance and float(high) <= 1 + tolerance and float(rows.min()) >= -tolerance:
            return
    wrong = ((rows < -tolerance).any(dim=1) | ((totals - 1).abs() > tolerance)).nonzero().flatten()
    if wrong.numel():
        row = int(wrong[0])
        remedy = (
            "pass class numbers as a vector, such as y.squeeze(1)"
            if rows.shape[1] == 1
            else "apply a softmax to logits"
        )
        raise ValueError(
            f"{argument} has {wrong.numel()} of {len(rows)} rows that are not probabilities (row {row}: smallest entry "
            f"{float(rows[row].min()):.4g}, sum {float(totals[row]):.4g}); accepted are rows >= 0 that sum to one "
            f"({remedy}); metrics take a regression variable with conditioning='continuous'"
        )


def _number_classes(source: _Side, target: _Side) -> tuple[Labels, Labels]:
    columns = [side.columns for side in (source, target) if side.columns is not None]
    if len(set(columns)) > 1:
        raise ValueError(
            f"{source.argument} has {columns[0]} columns but {target.argument} has {columns[1]}; "
            "both need one column for each class"
        )
    if columns:
        n_classes = columns[0]
        return _index_columns(source, n_classes, target), _index_columns(target, n_classes, source)
    refuse_hidden((source.argument, target.argument), (source.values, target.values))
    names, index_s, index_t = _union(source, target)
    n_classes = len(names)
    labels = (source.labels(names, n_classes, index_s), target.labels(names, n_classes, index_t))
    return _one_hot_if_soft(labels[0]), _one_hot_if_soft(labels[1])


def refuse_hidden(arguments: tuple[str, str], pair: tuple[Any, Any], *, remedy: str = "") -> None:
    """Raise where all classes (n,) of one domain are -1 and none of the other's: labels that skada and POT hide."""
    if not checks_values():
        return
    masks = [y == -1 if isinstance(y, Tensor) or y.dtype.kind in "if" else np.zeros(1, dtype=bool) for y in pair]
    for side in (0, 1):
        if bool(masks[side].all()) and not bool(masks[1 - side].any()):
            raise ValueError(
                f"{arguments[side]} is -1 for all {len(pair[side])} samples, which is how skada and POT mark labels "
                f"that are not known; accepted are true classes or predictions{remedy}"
            )


def _one_hot_if_soft(labels: Labels) -> Labels:
    if labels.kind == "hard":
        return labels
    hard = Labels("hard", labels.values, labels.names, labels.n_classes, 0.0)
    return Labels("soft", hard.membership(), labels.names, labels.n_classes, 0.0)


def _index_columns(side: _Side, n_classes: int, other: _Side) -> Labels:
    """Labels of a side whose classes are the columns of a matrix: its own, or the other side's."""
    if side.columns is not None:
        return side.labels(None, n_classes)
    index = side.values
    is_integer = not index.is_floating_point() if isinstance(index, Tensor) else index.dtype.kind in "biu"
    if not is_integer:
        raise ValueError(
            f"{side.argument} holds a {describe(index)} but {other.argument} is a matrix of {n_classes} columns; "
            f"{side.argument} must then be integers from 0 to {n_classes - 1} that number these columns"
        )
    index = index if isinstance(index, Tensor) else torch.from_numpy(index.astype(np.int64))
    index = index.to(device=other.values.device, dtype=torch.int64)
    if checks_values():
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= n_classes:
            wrong = high if high >= n_classes else low
            raise ValueError(
                f"{side.argument} contains class {wrong} but {other.argument} has {n_classes} columns; "
                f"{side.argument} must number these columns from 0 to {n_classes - 1}"
            )
    return _one_hot_if_soft(side.labels(None, n_classes, index))


def _union(source: _Side, target: _Side) -> tuple[Any, Tensor, Tensor]:
    """Sorted class names of both domains, and each domain's samples as positions in them."""
    ys, yt = source.values, target.values
    if isinstance(ys, Tensor) and isinstance(yt, Tensor):
        names, index = torch.unique(torch.cat([ys, yt]), return_inverse=True)
        return names, index[: len(ys)], index[len(ys) :]
    device = next((y.device for y in (ys, yt) if isinstance(y, Tensor)), torch.device("cpu"))
    ys, yt = (np.asarray(y.cpu()) if isinstance(y, Tensor) else y for y in (ys, yt))
    if (ys.dtype.kind in "biuf") != (yt.dtype.kind in "biuf"):
        raise TypeError(
            f"{source.argument} has classes of dtype {ys.dtype} but {target.argument} of {yt.dtype}; "
            "name the classes alike in both domains"
        )
    try:
        unique, positions = np.unique(np.concatenate([ys, yt]), return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"the class names of {source.argument} and {target.argument} cannot be compared ({error}); "
            "use one type for all"
        ) from error
    index = torch.as_tensor(positions.reshape(-1), dtype=torch.int64, device=device)
    return unique, index[: len(ys)], index[len(ys) :]


def class_prior_weights(
    source: Labels, target: Labels, ws: Tensor, wt: Tensor, prior: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights that give both domains the class frequencies ``prior``, and these frequencies.

    A sample of class c is weighted by prior(c) / frequency(c); a soft one by the mean of this ratio under its
    probabilities.
    """
    if source.n_classes is None or target.n_classes is None:
        raise ValueError(f"prior={prior!r} needs classes; a continuous conditioning variable has none, pass prior=None")
    frequency_s, frequency_t = ws @ source.membership(), wt @ target.membership()
    wanted = _read_prior(prior, frequency_s, frequency_t)
    weights = []
    for labels, w, frequency, domain in (
        (source, ws, frequency_s, "source"),
        (target, wt, frequency_t, "target"),
    ):
        if checks_values():
            absent = listed_values(((wanted > 0) & (frequency <= 0)).nonzero().flatten())
            if absent:
                name, share = source.class_names()[absent[0]], float(wanted[absent[0]])
                raise ValueError(
                    f"prior gives class {name!r} the frequency {share:.3g} but the {domain} has no sample of it; "
                    "leave the class out of both domains, or pass prior=None"
                )
        ratio = torch.where(wanted > 0, wanted / frequency, 0.0)
        weighted = w * (labels.membership() @ ratio)
        weights.append(weighted / weighted.sum())
    return weights[0], weights[1], wanted


def check_prior(prior: Any) -> None:
    """Raise if ``prior`` is a name, and not a known one; frequencies are checked when the classes are known."""
    if isinstance(prior, str):
        check_choice("prior", prior, ("source", "target", "uniform"), alternatives=", or one frequency per class")


def _read_prior(prior: Any, frequency_s: Tensor, frequency_t: Tensor) -> Tensor:
    if isinstance(prior, str):
        check_prior(prior)
        if prior == "uniform":
            return torch.full_like(frequency_s, 1 / len(frequency_s))
        return frequency_s if prior == "source" else frequency_t
    given = prior.detach() if isinstance(prior, Tensor) else numpy_to_tensor("prior", prior)
    given = given.to(frequency_s)
    if given.shape != frequency_s.shape:
        raise ValueError(
            f"prior has shape {tuple(given.shape)}; accepted is one frequency per class, shape ({len(frequency_s)},)"
        )
    check_finite("prior", given)
    if checks_values():
        accepted = "accepted are frequencies >= 0 that sum to one"
        if bool((given < 0).any()):
            raise ValueError(f"prior contains the negative frequency {float(given.min()):.6g}; {accepted}")
        if abs(float(given.sum()) - 1) > 1e-6:
            raise ValueError(f"prior sums to {float(given.sum()):.6g}; {accepted}")
    return given / given.sum()
