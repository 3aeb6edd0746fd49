"""What feature files hold, format by format. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bures.arrays import is_missing
from bures.data._mat_check import check_mat
from bures.wording import listed, reason_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEATURE_SUFFIXES", "READERS", "Content", "is_number"]

X_KEYS = ("x", "features", "feature", "feas", "fts", "data")
Y_KEYS = ("y", "labels", "label", "target", "targets", "gnd")
LABEL_COLUMNS = ("label", "class", "y", "target")
ID_COLUMNS = ("file", "files", "filename", "path", "id", "")
WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0*)?")  # 18 digits: an int64
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")
NAMED = 20  # keys and columns that a message names


class Content(NamedTuple):
    """What a file holds, before it is checked."""

    x: NDArray[Any]
    y: NDArray[Any] | None = None
    classes: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    name: str | None = None
    columns: tuple[str, ...] | None = None


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
    from scipy.sparse import issparse

    try:
        check_mat(file)
        arrays = loadmat(str(file), spmatrix=False)
    except NotImplementedError as error:
        raise ValueError(
            f"{file} is a Matlab file of version 7.3 (HDF5); accepted are versions up to 7: in Matlab, save(..., '-v7')"
        ) from error
    except PermissionError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    arrays = {key: value for key, value in arrays.items() if not key.startswith("__")}
    keys = _choose_keys(file, list(arrays), x_key, y_key, domain)
    for key in (keys.x, keys.y):
        if key is not None and issparse(arrays[key]):
            raise ValueError(f"{file}: {key!r} is a sparse matrix; accepted are dense ones: in Matlab, full({key})")
    return _at(arrays, keys)


def _read_csv(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    import pandas as pd

    _refuse_keys(file, x_key=x_key, domain=domain)
    with _reading(file), open(file, encoding="utf-8-sig", newline="") as stream:
        separator = _separator(next((line for line in stream if line.strip()), ""))
        stream.seek(0)
        lines = csv.reader(stream, delimiter=separator)
        header = next((line for line in lines if any(map(str.strip, line))), [])
        values = len(next((line for line in lines if len(line) > 1 or any(map(str.strip, line))), header))
    numbers = [float(name) for name in header if is_number(name)]
    if numbers and len(numbers) == len(header) and numbers != list(range(len(header))):
        raise ValueError(f"{file} has no header: its first line is numbers; give every column a name")
    if values > len(header):  # pandas would take the first columns for names of the rows, and shift the others
        raise ValueError(
            f"{file}: its header names {len(header)} columns but its rows have {values} values; give every column a "
            "name, an empty one where it names the samples"
        )
    roles = _find_roles(file, header, y_key)
    with _reading(file):
        table = pd.read_csv(
            file,
            encoding="utf-8-sig",
            sep=separator,
            dtype={} if roles.label is None else {header[roles.label]: str},
            # As they are written: 007 is no 7, and NA may be a name. With a sign before them, pandas leaves them alone.
            converters=dict.fromkeys(roles.ids, "'".__add__),
        )
    labels = None if roles.label is None else _label_values(table.iloc[:, roles.label])
    ids = np.array([name[1:] for name in table.iloc[:, roles.ids[0]]], dtype=object) if roles.ids else None
    if ids is not None and not any(ids):  # lines that end in a comma, the first one too
        ids = None
    return _from_table(file, table, roles, labels, ids)


def _read_parquet(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    _refuse_keys(file, x_key=x_key, domain=domain)
    try:
        import pyarrow  # noqa: F401 (pandas reads with it)
    except ImportError as error:
        raise ImportError(f"reading {file} needs pyarrow; install the extra: pip install 'bures[parquet]'") from error
    import pandas as pd

    with _reading(file):
        table = pd.read_parquet(file, engine="pyarrow")
    roles = _find_roles(file, [str(column) for column in table.columns], y_key)
    labels = ids = None
    names: pd.Series[Any] | pd.Index[Any] | None = None
    if roles.label is not None:
        column = table.iloc[:, roles.label]
        labels = np.array(column)
        if labels.dtype.kind == "O":
            labels[column.isna()] = None  # columns of text have a sign of their own for what is missing
    if roles.ids:
        names = table.iloc[:, roles.ids[0]]
        if names.dtype.kind == "f":  # as a rule whole numbers of which some are missing: as floats they lose digits
            whole: Any = {"columns": [names.name], "dtype_backend": "numpy_nullable"}
            names = pd.read_parquet(file, engine="pyarrow", **whole).iloc[:, 0]
    elif not isinstance(table.index, (pd.RangeIndex, pd.MultiIndex)):  # rows that have names beside the columns
        names = table.index
    if names is not None:
        ids = np.array(["" if bad else str(name) for name, bad in zip(names, names.isna(), strict=True)], object)
    return _from_table(file, table, roles, labels, ids)


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
            there = f"the domains there are {', '.join(domains)}" if domains else f"it holds the keys {_quoted(keys)}"
            raise ValueError(f"domain={domain!r} is not in {file}; {there}")
        prefix = f"{domain}_"
    elif x_key is None and (x_key := _find(keys, X_KEYS)) is None:
        if len(domains) > 1:
            raise ValueError(f"{file} holds several domains; choose one with domain=: {', '.join(domains)} "
                             f"(in a command: {file.name}#{domains[0]})")  # fmt: skip
        if domains:
            prefix = f"{domains[0]}_"
        elif len(keys) == 1:
            x_key = keys[0]
        else:
            raise ValueError(f"{file} has no features under {_quoted(X_KEYS)}; choose one of its keys with x_key=: "
                             f"{_quoted(keys)} (for a command, save them as 'x' and 'y')")  # fmt: skip
    for name, key in (("x_key", x_key), ("y_key", y_key)):
        if key is not None and key not in keys:
            raise ValueError(f"{name}={key!r} is not in {file}; it holds the keys {_quoted(keys)}")
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


class Roles(NamedTuple):
    """Numbers of the columns of a table: the label, what names the samples, and the features."""

    label: int | None
    ids: list[int]
    features: list[int]


def _find_roles(file: Path, columns: list[str], y_key: str | None) -> Roles:
    """Find the label among the columns; the others are features, but for names of the samples."""
    plain = ["" if column.startswith("Unnamed:") else column.strip().lower() for column in columns]
    found = [number for number, name in enumerate(plain) if name in LABEL_COLUMNS]
    if y_key is not None:
        if y_key not in columns:
            raise ValueError(f"y_key={y_key!r} is not in {file}; it holds the columns {_quoted(columns)}")
        found = [columns.index(y_key)]
    elif len(found) > 1:
        several = _quoted(columns[number] for number in found)
        raise ValueError(
            f"{file} has several label columns: {several}; remove or rename all but one, or choose one in Python with "
            "y_key="
        )
    label = found[0] if found else None
    ids = [number for number, name in enumerate(plain) if name in ID_COLUMNS and number != label]
    return Roles(label, ids, [number for number in range(len(columns)) if number != label and number not in ids])


def _from_table(
    file: Path, table: pd.DataFrame, roles: Roles, labels: NDArray[Any] | None, ids: NDArray[Any] | None
) -> Content:
    """The features of a table, with what was made of its other columns; without labels where all are missing."""
    if not len(table):
        raise ValueError(f"{file} has names of columns but no rows; at least one sample is needed")
    if not roles.features:
        raise ValueError(f"{file} has no column of features: {_quoted(map(str, table.columns))} hold labels or ids")
    features = table.iloc[:, roles.features]
    names = [str(column) for column in features.columns]
    for name, (_, values) in zip(names, features.items(), strict=True):
        if values.dtype.kind not in "biuf":
            raise _not_numeric(file, name, values)
    stripped = [name.strip() for name in names]
    if labels is not None and all(map(is_missing, labels)):
        labels = None
    return Content(
        features.to_numpy(dtype=np.float64),
        labels,
        ids=ids,
        columns=tuple(stripped if len(set(stripped)) == len(names) else names),
    )


def _label_values(texts: pd.Series) -> NDArray[Any]:
    """Labels of a CSV: numbers where all are written as whole numbers are, else as they are written, None if missing.

    What merely reads as a number may be a class of its own: "01" beside "1", "1E2" beside "100". Blanks around a
    label are none of it: many programs write one after the comma, and here as with columns they are left out.
    """
    import pandas as pd

    codes, found = pd.factorize(texts)  # what is missing has the code -1
    words = [str(word).strip() for word in found]
    if -1 not in codes and all(map(WHOLE.fullmatch, words)):
        return np.array([int(word.partition(".")[0]) for word in words], dtype=np.int64)[codes]
    numbers = [float(word) for word in words if is_number(word)]
    if len(numbers) == len(words) and not all(number.is_integer() for number in numbers):
        return np.array([*numbers, np.nan])[codes]  # measurements: no classes, which is said where they are read
    return np.array([*(word or None for word in words), None], dtype=object)[codes]


def _not_numeric(file: Path, name: str, values: pd.Series) -> ValueError:
    import pandas as pd

    odd = values[pd.to_numeric(values.astype(object), errors="coerce").isna() & values.notna()]
    first = (odd if len(odd) else values).iloc[0]
    if DECIMAL_COMMA.fullmatch(str(first)):
        remedy = "decimal commas are not read, write points"
    else:
        remedy = "turn categories into columns of 0 and 1 (pandas.get_dummies), or remove the column"
    return ValueError(
        f"{file}: column {name!r} is not numeric (first such value {first!r}); {remedy}. If it is the label, rename it "
        f"to one of {_quoted(LABEL_COLUMNS)}, or choose it in Python with y_key="
    )


def _separator(header: str) -> str:
    """What parts the columns of a CSV: a semicolon or a tab where the first line has no comma."""
    return next((sign for sign in (",", ";", "\t") if sign in header), ",")


def _find(keys: list[str], wanted: tuple[str, ...] | list[str]) -> str | None:
    """The first of the wanted keys that is there, in any case."""
    lower = {key.lower(): key for key in reversed(keys)}
    return next((lower[key.lower()] for key in wanted if key.lower() in lower), None)


def _quoted(keys: Iterable[str]) -> str:
    return listed(map(repr, keys), NAMED)


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse_keys(file: Path, **given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} has no meaning for {file}; it is for files of several named arrays")


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Whatever a library raises over a file becomes an error that names it; what may not be opened is told as it is."""
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> ValueError:
    if "pickle" in str(error):
        return ValueError(
            f"{file} holds pickled Python objects, or is no {file.suffix} file at all; pickled objects could run "
            "any code when loaded and are never read: save plain arrays of numbers or strings"
        )
    if isinstance(error, UnicodeDecodeError):
        reason = f"it is not in UTF-8 (byte {error.start} is none of it); save it with this encoding"
    else:
        reason = reason_of(error, 300)
    return ValueError(f"{file} cannot be read as {file.suffix}: {reason}")
