"""Domains in feature files: ``.npz``, ``.npy``, ``.mat``, ``.csv`` and ``.parquet``. Nothing is ever unpickled."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bures.arrays import check_flags
from bures.data._domain import Domain, composed
from bures.data._feature_formats import READERS, Content
from bures.data._samples import TensorSamples
from bures.files import atomic_file

__all__ = ["LostDigitsWarning", "read_features", "write_features"]

CHANNELS = (1, 3)  # of grey and of coloured images
LOST = 0.1  # rounding of this share of a column's deviation is no rounding any more
BEYOND = 2.0**53  # from here on floating-point numbers leave whole numbers out, and classes become one
CONSTANT = 1e-12  # a column that varies by less than this share of its size is constant but for the last digits


class LostDigitsWarning(UserWarning):
    r"""Samples differ in digits that float32, in which features are kept, does not have.

    Examples
    --------
    >>> import pathlib, tempfile, warnings
    >>> from bures.data import LostDigitsWarning, read_features
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", LostDigitsWarning)
    ...     path = pathlib.Path(folder, "log.csv")
    ...     _ = path.write_text("seconds\n1763500001\n1763500002\n1763500003\n")
    ...     domain = read_features(path)
    >>> caught[0].category.__name__
    'LostDigitsWarning'
    """


def read_features(
    path: str | Path,
    *,
    x_key: str | None = None,
    y_key: str | None = None,
    domain: str | None = None,
    labels: bool = True,
    strict: bool = False,
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
        table for ``label``, ``class``, ``y`` or ``target``; where there is none, or the column is empty, the domain is
        unlabelled.
    domain : str, optional
        Which domain of a file that holds several, under the keys ``<domain>_x`` and ``<domain>_y``.
    labels : bool, optional
        False leaves the labels alone, which may then be incomplete; the domain is unlabelled.
    strict : bool, optional
        Whether digits that float32 loses are an error instead of a warning.

    Returns
    -------
    Domain
        With the class names of the file: those under ``classes``, where integer labels count them from 0, else the
        labels that occur, in order.

    Warns
    -----
    LostDigitsWarning
        Samples differ in digits that float32 does not have.

    Notes
    -----
    In a table, every column but the label is a feature, except that ``file``, ``filename``, ``path``, ``id`` and an
    unnamed column (pandas' index, in ``.parquet`` under any name) name the samples, with what is written there. The
    domain has the names of the feature columns, by which two tables are matched (`align_columns`). Features are
    numbers: text and missing values are refused. Labels of a CSV are text as it is written, less blanks around it,
    unless all are whole numbers. Its separator is the comma, or a semicolon or tab where the first line has no comma.

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
    check_flags(labels=labels, strict=strict)
    file = Path(path)
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"path={str(path)!r} ends in {file.suffix!r}; accepted are {', '.join(READERS)}")
    if not file.is_file():
        raise FileNotFoundError(f"path={str(path)!r} is not a file")
    content = reader(file, x_key, y_key, domain)
    if not labels:
        content = content._replace(y=None)
    return _as_domain(file, content, domain, strict=strict)


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
    with atomic_file(file) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    return file


def _as_domain(file: Path, content: Content, domain: str | None, *, strict: bool) -> Domain:
    x = content.x
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{file}: the features have dtype {x.dtype}; accepted are numbers")
    if not (x.ndim == 2 or (x.ndim == 4 and x.dtype == np.uint8)):
        raise ValueError(
            f"{file}: the features have shape {x.shape} and dtype {x.dtype}; "
            "accepted are (n, d), and uint8 images (n, C, H, W)"
        )
    if x.ndim == 4 and x.shape[3] in CHANNELS and x.shape[1] not in CHANNELS:
        raise ValueError(
            f"{file}: the images of shape {x.shape[1:]}, {x.shape[3]} pixels wide with {x.shape[1]} channels, seem to "
            "have their channels last; accepted is (C, H, W): x.transpose(0, 3, 1, 2)"
        )
    n = len(x)
    for what, values in (("labels", content.y), ("file names", content.ids)):
        if values is not None and values.size != n:
            raise ValueError(f"{file}: there are {values.size} {what} for {n} samples; accepted is one for each")
    names: tuple[str, ...] = ()
    if content.classes is not None:
        names = tuple(map(composed, _strings(file, content.classes)))
    labels = None
    if content.y is not None:
        labels, names = _read_labels(file, content.y, names)
    try:
        samples = TensorSamples(x)
        if x.ndim == 2 and (lost := _lost_digits(x, samples.tensor.numpy(), content.columns)):
            if strict:
                raise ValueError(lost)
            warnings.warn(f"{file}: {lost}", LostDigitsWarning, stacklevel=3)
        ids = None
        if content.ids is not None:  # of a table they are strings, and as they are written
            ids = tuple(content.ids if content.columns is not None else _strings(file, content.ids))
        called = domain or content.name or file.stem
        return Domain(called, samples, names, labels, ids, content.columns)
    except ValueError as error:
        raise ValueError(f"{file}: {str(error).replace('tensor contains', 'the features contain', 1)}") from error


def _lost_digits(x: NDArray[Any], as_float32: NDArray[np.float32], columns: tuple[str, ...] | None) -> str | None:
    """The first column of which float32 rounds away what the samples differ by, as it does with times in seconds."""
    if x.dtype.itemsize < 4 or x.dtype == np.float32 or not x.size:
        return None
    low, high = x.min(axis=0).astype(float), x.max(axis=0).astype(float)
    size = np.maximum(np.abs(low), np.abs(high))
    close = (high - low > CONSTANT * size) & (high - low < np.finfo(np.float32).eps / LOST * size)
    for column in np.flatnonzero(close):  # as a rule there is none
        values = x[:, column].astype(float)
        deviation = values.std()
        if np.sqrt(np.mean((values - as_float32[:, column]) ** 2)) > LOST * deviation:
            name = f"{column} (counted from 0)" if columns is None else repr(columns[column])
            return (
                f"the values of column {name}, near {values.mean():.7g}, differ by {deviation:.2g}, which float32, in "
                "which features are kept, rounds away; subtract a constant from this column, the same in both domains"
            )
    return None


def _read_labels(file: Path, y: NDArray[Any], names: tuple[str, ...]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels as numbers from 0 to K - 1, and the names they stand for."""
    y = y.ravel()
    if y.dtype.kind == "f":
        y = y.astype(np.float64)
        odd = np.flatnonzero(~np.isfinite(y) | (y != np.round(y)) | (np.abs(y) >= BEYOND))
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
            f"{file}: the label of row {missing[0]} is missing ({len(missing)} such rows of {len(y)}); in a table NA, "
            "None, null and the like stand for that. Leave the labels out where they are unknown"
        )
    strings = list(map(composed, _strings(file, y)))
    found = names or tuple(sorted(set(strings)))
    number = {name: label for label, name in enumerate(found)}
    if unknown := [label for label in strings if label not in number]:
        raise ValueError(f"{file}: the label {unknown[0]!r} is not among the {len(found)} names under 'classes'")
    return np.array([number[label] for label in strings], dtype=np.int64), found


def _strings(file: Path, values: NDArray[Any]) -> list[str]:
    """Strings of an array, of bytes, or of a Matlab cell array."""
    flat = [value.item() if isinstance(value, np.ndarray) and value.size == 1 else value for value in values.ravel()]
    try:
        return [value.decode() if isinstance(value, bytes) else str(value).rstrip() for value in flat]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error.object!r} is no text in UTF-8; store names as strings") from error
