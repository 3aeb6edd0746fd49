"""What feature files hold, format by format. Nothing is ever unpickled."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bures.data._mat_check import check_mat

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEATURE_SUFFIXES", "READERS", "Content", "is_number"]

X_KEYS = ("x", "features", "feature", "feas", "fts", "data")
Y_KEYS = ("y", "labels", "label", "target", "targets", "gnd")
LABEL_COLUMNS = ("label", "class", "y", "target")
ID_COLUMNS = ("file", "files", "filename", "path", "id", "")


class Content(NamedTuple):
    """What a file holds, before it is checked."""

    x: NDArray[Any]
    y: NDArray[Any] | None = None
    classes: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    name: str | None = None


class Keys(NamedTuple):
    """Where in a file of named arrays it lies."""

    x: str
    y: str | None
    classes: str | None
    ids: str | None
    name: str | None
    domain: str | None


def _read_npz(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    with open(file, "rb") as stream:  # opened here: numpy leaves a damaged file open
        try:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it holds one array; name it .npy")
        except Exception as error:  # what a damaged file raises is anyone's guess, here and below
            raise _unreadable(file, error) from error
        keys = _choose_keys(file, list(loaded), x_key, y_key, domain)
        try:
            with loaded:  # an array is read, and found to be damaged or pickled, when it is asked for
                content = _at(loaded, keys)
                if any(isinstance(part, bytes) for part in (content.x, content.y, content.classes, content.ids)):
                    raise ValueError("a part of it is no array")
                return content
        except Exception as error:
            raise _unreadable(file, error) from error


def _read_npy(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    _refuse_keys(file, x_key=x_key, y_key=y_key, domain=domain)
    with open(file, "rb") as stream:
        try:
            loaded = np.load(stream, allow_pickle=False)
            if not isinstance(loaded, np.ndarray):
                raise ValueError("it holds several arrays; name it .npz")
        except Exception as error:
            raise _unreadable(file, error) from error
    return Content(loaded)


def _read_mat(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    from scipy.io import loadmat

    try:
        check_mat(file)
        arrays = loadmat(str(file))
    except NotImplementedError as error:
        raise ValueError(
            f"{file} is a Matlab file of version 7.3 (HDF5); accepted are versions up to 7: in Matlab, save(..., '-v7')"
        ) from error
    except PermissionError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    arrays = {key: value for key, value in arrays.items() if not key.startswith("__")}
    return _at(arrays, _choose_keys(file, list(arrays), x_key, y_key, domain))


def _read_csv(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    import pandas as pd

    _refuse_keys(file, x_key=x_key, domain=domain)
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader(stream), [])
        table = pd.read_csv(file, encoding="utf-8-sig")
    except PermissionError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    numbers = [float(name) for name in header if is_number(name)]
    if numbers and len(numbers) == len(header) and numbers != list(range(len(header))):
        raise ValueError(f"{file} has no header: its first line is numbers; give every column a name")
    if not isinstance(table.index, pd.RangeIndex):  # pandas has taken the first columns for names of the rows
        values = len(header) + table.index.nlevels
        raise ValueError(
            f"{file}: its header names {len(header)} columns but its rows have {values} values; give every column a "
            "name, an empty one where it names the samples"
        )
    return _from_table(file, table, y_key)


def _read_parquet(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    _refuse_keys(file, x_key=x_key, domain=domain)
    try:
        import pyarrow  # noqa: F401 (pandas reads with it)
    except ImportError as error:
        raise ImportError(f"reading {file} needs pyarrow; install the extra: pip install 'bures[parquet]'") from error
    import pandas as pd

    try:
        table = pd.read_parquet(file, engine="pyarrow")
    except PermissionError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    return _from_table(file, table, y_key)


READERS: dict[str, Callable[[Path, str | None, str | None, str | None], Content]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".mat": _read_mat,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
FEATURE_SUFFIXES = tuple(READERS)


def _choose_keys(file: Path, keys: list[str], x_key: str | None, y_key: str | None, domain: str | None) -> Keys:
    """Find features, labels, class names and file names among the keys of a file."""
    domains = [key[:-2] for key in keys if key.endswith("_x") and len(key) > 2]
    prefix = ""
    if domain is not None:
        if domain not in domains:
            there = f"the domains there are {', '.join(domains)}" if domains else f"it holds the keys {_listed(keys)}"
            raise ValueError(f"domain={domain!r} is not in {file}; {there}")
        prefix = f"{domain}_"
    elif x_key is None and (x_key := _find(keys, X_KEYS)) is None:
        if len(domains) > 1:
            raise ValueError(f"{file} holds several domains; choose one with domain=: {', '.join(domains)}")
        if domains:
            prefix = f"{domains[0]}_"
        elif len(keys) == 1:
            x_key = keys[0]
        else:
            raise ValueError(f"{file} has no features under {_listed(X_KEYS)}; choose one of its keys with x_key=: "
                             f"{_listed(keys)}")  # fmt: skip
    for name, key in (("x_key", x_key), ("y_key", y_key)):
        if key is not None and key not in keys:
            raise ValueError(f"{name}={key!r} is not in {file}; it holds the keys {_listed(keys)}")
    return Keys(
        x=x_key or f"{prefix}x",
        y=y_key or _find(keys, [f"{prefix}{key}" for key in Y_KEYS]),
        classes=_find(keys, ["classes", "class_names"]),
        ids=_find(keys, [f"{prefix}{key}" for key in ("files", "ids")]),
        name="name" if "name" in keys and not prefix else None,
        domain=prefix[:-1] or None,
    )


def _at(arrays: Mapping[str, NDArray[Any]], keys: Keys) -> Content:
    """The arrays under the keys; those of other keys are not read."""
    y, classes, ids, name = (
        None if key is None else arrays[key] for key in (keys.y, keys.classes, keys.ids, keys.name)
    )
    own_name = str(name) if name is not None and name.dtype.kind == "U" and name.ndim == 0 else None
    return Content(arrays[keys.x], y, classes, ids, own_name or keys.domain)


def _from_table(file: Path, table: pd.DataFrame, y_key: str | None) -> Content:
    """Find the label among the columns; the others are features, but for names of the samples."""
    columns = {
        str(column): "" if str(column).startswith("Unnamed:") else str(column).strip().lower()
        for column in table.columns
    }
    table = table.set_axis(list(columns), axis=1)
    if y_key is None:
        found = [column for column, lower in columns.items() if lower in LABEL_COLUMNS]
        if len(found) > 1:
            raise ValueError(f"{file} has several label columns; choose one with y_key=: {_listed(found)}")
        y_key = found[0] if found else None
    elif y_key not in columns:
        raise ValueError(f"y_key={y_key!r} is not in {file}; it holds the columns {_listed(list(columns))}")
    id_columns = [column for column, lower in columns.items() if lower in ID_COLUMNS and column != y_key]
    features = table.drop(columns=[*id_columns, *([y_key] if y_key is not None else [])])
    for column in features:
        if features[column].dtype.kind not in "biuf":
            raise ValueError(
                f"{file}: column {column!r} is not numeric (first value {features[column].iloc[:1].tolist()}); "
                "accepted are numeric features, and a label under one of the names "
                f"{_listed(LABEL_COLUMNS)} or y_key="
            )
    y = None if y_key is None else np.array(table[y_key])
    if y is not None and y.dtype.kind == "O":
        y[table[y_key].isna()] = None  # columns of text have a sign of their own for what is missing
    ids = np.asarray(table[id_columns[0]].astype(str)) if id_columns else None
    return Content(features.to_numpy(dtype=np.float64), y, None, ids)


def _find(keys: list[str], wanted: tuple[str, ...] | list[str]) -> str | None:
    """The first of the wanted keys that is there, in any case."""
    lower = {key.lower(): key for key in reversed(keys)}
    return next((lower[key.lower()] for key in wanted if key.lower() in lower), None)


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(keys: tuple[str, ...] | list[str]) -> str:
    return ", ".join(repr(key) for key in keys[:20]) + (", ..." if len(keys) > 20 else "")


def _refuse_keys(file: Path, **given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} has no meaning for {file}; it is for files of several named arrays")


def _unreadable(file: Path, error: Exception) -> ValueError:
    text = str(error)
    if "pickle" in text:
        return ValueError(
            f"{file} holds pickled Python objects, or is no {file.suffix} file at all; pickled objects could run "
            "any code when loaded and are never read: save plain arrays of numbers or strings"
        )
    return ValueError(f"{file} cannot be read as {file.suffix}: {' '.join(text.split())[:300] or type(error).__name__}")
