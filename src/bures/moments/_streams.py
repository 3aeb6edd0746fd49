"""Samples too many for memory, read from files chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bures.arrays import check_count
from bures.wording import listed, reason_of

__all__ = ["feature_columns", "read_chunks"]

Pair = tuple[NDArray[Any], NDArray[Any]]


def read_chunks(
    x: str | Path, y: str | Path | Sequence[str] | NDArray[Any] = "label", *, chunk: int = 65536, start: int = 0
) -> Iterator[Pair]:
    """Chunks of features and labels from a file, without reading more than one at a time.

    Parameters
    ----------
    x : path
        ``.npy``: an array (n, d), memory-mapped. ``.parquet``: a table whose columns are the features, but for those
        that `y` names and for pandas' index.
    y : path, array, str or sequence of str, optional
        For ``.npy``: the labels, (n,) or (n, K), as an array or as the path of another ``.npy`` file. For ``.parquet``:
        the name of the label column, or the names of K columns of probabilities.
    chunk : int, optional
        Rows in a chunk.
    start : int, optional
        Rows to skip: `ConditionalMoments.n_samples`, to go on after an interruption.

    Yields
    ------
    tuple of array
        Features (c, d) and labels (c,) or (c, K).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from bures.moments import read_chunks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "x.npy")
    ...     np.save(path, np.zeros((10, 3)))
    ...     [len(x) for x, y in read_chunks(path, np.zeros(10, dtype=int), chunk=4)]
    [4, 4, 2]
    """
    path = Path(x)
    chunk, start = check_count("chunk", chunk), check_count("start", start, minimum=0)
    if not path.is_file():
        raise FileNotFoundError(f"x={str(path)!r} {'is a folder' if path.is_dir() else 'does not exist'}")
    readers = {".npy": _npy_chunks, ".parquet": _parquet_chunks}
    if path.suffix.lower() not in readers:
        raise ValueError(f"x={str(path)!r} has an unknown format; accepted are files {', '.join(readers)}")
    return readers[path.suffix.lower()](path, y, int(chunk), int(start))


def feature_columns(x: str | Path, y: Any) -> tuple[str, ...] | None:
    """The names of the columns that `read_chunks` gives the features of, in its order; None for an array."""
    path = Path(x)
    if path.suffix.lower() != ".parquet":
        return None
    with _open_parquet(path) as file:
        return tuple(_feature_names(file, _label_columns(y)))


def _npy_chunks(path: Path, y: Any, chunk: int, start: int) -> Iterator[Pair]:
    features = _memory_map(path)
    labels = _memory_map(Path(y)) if isinstance(y, (str, Path)) else np.asarray(y)
    if len(features) != len(labels):
        raise ValueError(f"{path} has {len(features)} rows but y has {len(labels)}; there must be one label per row")
    _check_start(path, start, len(features))
    for row in range(start, len(features), chunk):
        # Copied out of the map: the pages of what was read can be dropped.
        yield np.array(features[row : row + chunk]), np.array(labels[row : row + chunk])


def _check_start(path: Path, start: int, n_rows: int) -> None:
    if start > n_rows:
        raise ValueError(
            f"{path} has {n_rows} rows, fewer than the {start} that were seen: it is another file, or was cut"
        )


def _memory_map(path: Path) -> NDArray[Any]:
    if path.suffix.lower() != ".npy" or not path.is_file():
        raise FileNotFoundError(f"y={str(path)!r} is no .npy file; beside .npy features, y is an array or such a file")
    try:
        loaded: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        if loaded.ndim == 0:
            raise ValueError("it holds a single number")
    except PermissionError:
        raise
    except Exception as error:  # what a damaged file raises is anyone's guess
        raise ValueError(f"{path} cannot be read as .npy: {error}") from error
    return loaded


def _open_parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow; install the extra: pip install 'bures[parquet]'") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except Exception as error:  # what a damaged file raises is anyone's guess
        raise _unreadable(path, error) from error


def _label_columns(y: Any) -> list[str]:
    return [y] if isinstance(y, str) else list(y)


def _feature_names(file: Any, label_columns: list[str]) -> list[str]:
    """The columns that hold features; pandas' index, which lies beside them in the file, is none."""
    pandas = file.schema_arrow.pandas_metadata or {}
    index = [name for name in pandas.get("index_columns", []) if isinstance(name, str)]
    return [name for name in file.schema_arrow.names if name not in label_columns and name not in index]


def _parquet_chunks(path: Path, y: Any, chunk: int, start: int) -> Iterator[Pair]:
    with _open_parquet(path) as file:
        names = list(file.schema_arrow.names)
        label_columns = _label_columns(y)
        missing = [name for name in label_columns if name not in names]
        if missing:
            raise ValueError(
                f"y names the column {missing[0]!r}, which is not in {path}; it holds {listed(map(repr, names), 20)}"
            )
        features = _feature_names(file, label_columns)
        _check_start(path, start, file.metadata.num_rows)
        groups, skip = _groups_from(file, start)
        batches = file.iter_batches(batch_size=chunk, row_groups=groups)
        while (batch := _next(path, batches)) is not None:
            rows = batch.slice(skip)
            skip = max(0, skip - len(batch))
            if len(rows):
                yield _columns(path, rows, features), _labels(path, rows, label_columns, isinstance(y, str))


def _next(path: Path, batches: Iterator[Any]) -> Any:
    """The next batch, None at the end; a page is found to be damaged when it is read."""
    try:
        return next(batches, None)
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read as .parquet: {reason_of(error)}")


def _groups_from(file: Any, start: int) -> tuple[list[int], int]:
    """Row groups that hold rows from ``start`` on, and how many rows of the first to skip."""
    groups = list(range(file.metadata.num_row_groups))
    while groups and start >= file.metadata.row_group(groups[0]).num_rows:
        start -= file.metadata.row_group(groups.pop(0)).num_rows
    return groups, start


def _columns(path: Path, batch: Any, names: list[str]) -> NDArray[Any]:
    if not names:
        raise ValueError(f"{path} has no columns beside the labels; accepted is at least one feature")
    columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.dtype.kind not in "biuf":
            raise ValueError(
                f"{path}: column {name!r} is not numeric (dtype {column.dtype}); accepted are numeric features"
            )
    return np.column_stack(columns)


def _labels(path: Path, batch: Any, names: list[str], is_vector: bool) -> NDArray[Any]:
    if is_vector:
        labels: NDArray[Any] = batch.column(names[0]).to_numpy(zero_copy_only=False)
        return labels
    return _columns(path, batch, names)
