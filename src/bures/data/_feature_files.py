"""Domains in feature files: ``.npz``, ``.npy``, ``.mat``, ``.csv`` and ``.parquet``. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bures.data._domain import Domain
from bures.data._samples import TensorSamples

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEATURE_SUFFIXES", "read_features", "write_features"]

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


def read_features(
    path: str | Path, *, x_key: str | None = None, y_key: str | None = None, domain: str | None = None
) -> Domain:
    r"""Read a domain from a feature file.

    Parameters
    ----------
    path : path
        A file ``.npz``, ``.npy``, ``.mat`` (up to version 7), ``.csv`` or ``.parquet``.
    x_key : str, optional
        Key of the features (n, d), or of uint8 images (n, C, H, W), in ``.npz`` and ``.mat``. None looks for ``x``,
        ``features``, ``fts`` or ``data`` in any case, or takes the only array there is.
    y_key : str, optional
        Key, or in a table the column, of the labels. None looks for ``y``, ``labels``, ``label`` or ``target``, in a
        table for ``label``, ``class``, ``y`` or ``target``; where there is none the domain is unlabelled.
    domain : str, optional
        Which domain of a file that holds several, under the keys ``<domain>_x`` and ``<domain>_y``.

    Returns
    -------
    Domain
        With the class names of the file: those under ``classes``, where integer labels count them from 0, else the
        labels that occur, in order.

    Notes
    -----
    In a table, every column but the label is a feature, except that ``file``, ``filename``, ``path``, ``id`` and an
    unnamed column (pandas' index) name the samples.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bures.data import read_features
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "iris.csv")
    ...     _ = path.write_text("width,length,label\n1.0,2.0,setosa\n3.0,4.0,virginica\n")
    ...     print(read_features(path))
    Domain('iris', 2 samples of shape (2,), 2 classes: setosa 1, virginica 1)
    """
    file = Path(path)
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"path={str(path)!r} ends in {file.suffix!r}; accepted are {', '.join(_READERS)}")
    if not file.is_file():
        raise FileNotFoundError(f"path={str(path)!r} is not a file")
    content = reader(file, x_key, y_key, domain)
    return _as_domain(file, content, domain)


def write_features(path: str | Path, domain: Domain) -> Path:
    """Write a domain in memory to a ``.npz`` file that :func:`read_features` reads back.

    The file appears at once and whole, or not at all: a full disk or a killed process leaves what was there before.

    Parameters
    ----------
    path : path
        The file; its suffix is ``.npz``.
    domain : Domain
        Its samples are in memory (``TensorSamples``).

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bures.data import optdigits, read_features, write_features
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_features(pathlib.Path(folder, "digits.npz"), optdigits())
    ...     print(len(read_features(file)))
    1797
    """
    file = Path(path)
    if file.suffix.lower() != ".npz":
        raise ValueError(f"path={str(path)!r} ends in {file.suffix!r}; features are written to .npz")
    if not isinstance(domain.samples, TensorSamples):
        raise TypeError(
            f"domain.samples is a {type(domain.samples).__name__}; accepted are samples in memory (TensorSamples)"
        )
    arrays: dict[str, NDArray[Any]] = {"x": domain.samples.tensor.cpu().numpy(), "name": np.array(domain.name)}
    if domain.class_names:
        arrays["classes"] = np.array(domain.class_names)
    if domain.labels is not None:
        arrays["y"] = domain.labels.numpy()
    if domain.ids is not None:
        arrays["files"] = np.array(domain.ids)
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, file)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    return file


def _as_domain(file: Path, content: Content, domain: str | None) -> Domain:
    x = content.x
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{file}: the features have dtype {x.dtype}; accepted are numbers")
    if not (x.ndim == 2 or (x.ndim == 4 and x.dtype == np.uint8)):
        raise ValueError(
            f"{file}: the features have shape {x.shape} and dtype {x.dtype}; "
            "accepted are (n, d), and uint8 images (n, C, H, W)"
        )
    n = len(x)
    for what, values in (("labels", content.y), ("file names", content.ids)):
        if values is not None and values.size != n:
            raise ValueError(f"{file}: there are {values.size} {what} for {n} samples; accepted is one for each")
    names: tuple[str, ...] = ()
    if content.classes is not None:
        names = tuple(_strings(content.classes))
    labels = None
    if content.y is not None:
        labels, names = _read_labels(file, content.y, names)
    try:
        samples = TensorSamples(x)
        ids = None if content.ids is None else tuple(_strings(content.ids))
        return Domain(domain or content.name or file.stem, samples, names, labels, ids)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{file}: {str(error).replace('tensor contains', 'the features contain', 1)}") from error


def _read_labels(file: Path, y: NDArray[Any], names: tuple[str, ...]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels as numbers from 0 to K - 1, and the names they stand for."""
    y = y.ravel()
    if y.dtype.kind == "f":
        odd = np.flatnonzero(~np.isfinite(y) | (y != np.round(y)))
        if len(odd):
            what = "missing or infinite" if not np.isfinite(y[odd[0]]) else f"{y[odd[0]]}, which is no class"
            raise ValueError(
                f"{file}: the label of row {odd[0]} is {what} ({len(odd)} such rows of {len(y)}); "
                "accepted are integers and strings; leave the labels out where they are unknown"
            )
        y = y.astype(np.int64)
    if y.dtype.kind in "iu":
        if names:
            return y.astype(np.int64), names
        values, labels = np.unique(y, return_inverse=True)
        return labels.astype(np.int64), tuple(str(value) for value in values)
    if y.dtype.kind == "O" and (missing := [row for row, label in enumerate(y) if label is None or label != label]):
        raise ValueError(
            f"{file}: the label of row {missing[0]} is missing ({len(missing)} such rows of {len(y)}); "
            "leave the labels out where they are unknown"
        )
    strings = _strings(y)
    found = names or tuple(sorted(set(strings)))
    number = {name: label for label, name in enumerate(found)}
    if unknown := [label for label in strings if label not in number]:
        raise ValueError(f"{file}: the label {unknown[0]!r} is not among the {len(found)} names under 'classes'")
    return np.array([number[label] for label in strings], dtype=np.int64), found


def _strings(values: NDArray[Any]) -> list[str]:
    """Strings of an array, of bytes, or of a Matlab cell array."""
    flat = [value.item() if isinstance(value, np.ndarray) and value.size == 1 else value for value in values.ravel()]
    return [value.decode() if isinstance(value, bytes) else str(value).rstrip() for value in flat]


# Readers, one for each kind of file: (file, x_key, y_key, domain) -> Content


def _read_npz(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    damage = (ValueError, EOFError, OSError, TypeError, zipfile.BadZipFile, zlib.error)
    with open(file, "rb") as stream:  # opened here: numpy leaves a damaged file open
        try:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it holds one array; name it .npy")
        except damage as error:
            raise _unreadable(file, error) from error
        keys = _choose_keys(file, list(loaded), x_key, y_key, domain)
        try:
            with loaded:  # an array is read, and found to be damaged or pickled, when it is asked for
                return _at(loaded, keys)
        except damage as error:
            raise _unreadable(file, error) from error


def _read_npy(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    _refuse_keys(file, x_key=x_key, y_key=y_key, domain=domain)
    with open(file, "rb") as stream:
        try:
            loaded = np.load(stream, allow_pickle=False)
            if not isinstance(loaded, np.ndarray):
                raise ValueError("it holds several arrays; name it .npz")
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise _unreadable(file, error) from error
    return Content(loaded)


def _read_mat(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        arrays = loadmat(str(file))
    except NotImplementedError as error:
        raise ValueError(
            f"{file} is a Matlab file of version 7.3 (HDF5); accepted are versions up to 7: in Matlab, save(..., '-v7')"
        ) from error
    except PermissionError:
        raise
    except (MatReadError, ValueError, TypeError, EOFError, OSError, KeyError, IndexError, zlib.error) as error:
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
    except (ValueError, csv.Error) as error:  # pandas' errors and UnicodeDecodeError are among them
        raise _unreadable(file, error) from error
    numbers = [float(name) for name in header if _is_number(name)]
    if numbers and len(numbers) == len(header) and numbers != list(range(len(header))):
        raise ValueError(f"{file} has no header: its first line is numbers; give every column a name")
    return _from_table(file, table, y_key)


def _read_parquet(file: Path, x_key: str | None, y_key: str | None, domain: str | None) -> Content:
    _refuse_keys(file, x_key=x_key, domain=domain)
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(f"reading {file} needs pyarrow; install the extra: pip install 'bures[parquet]'") from error
    import pandas as pd

    try:
        table = pd.read_parquet(file, engine="pyarrow")
    except (ValueError, pyarrow.ArrowException) as error:
        raise _unreadable(file, error) from error
    return _from_table(file, table, y_key)


_READERS: dict[str, Callable[[Path, str | None, str | None, str | None], Content]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".mat": _read_mat,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
FEATURE_SUFFIXES = tuple(_READERS)


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
    y = None if y_key is None else np.asarray(table[y_key])
    ids = np.asarray(table[id_columns[0]].astype(str)) if id_columns else None
    return Content(features.to_numpy(dtype=np.float64), y, None, ids)


def _find(keys: list[str], wanted: tuple[str, ...] | list[str]) -> str | None:
    """The first of the wanted keys that is there, in any case."""
    lower = {key.lower(): key for key in reversed(keys)}
    return next((lower[key.lower()] for key in wanted if key.lower() in lower), None)


def _is_number(text: str) -> bool:
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
    return ValueError(f"{file} cannot be read as {file.suffix}: {text or type(error).__name__}")
