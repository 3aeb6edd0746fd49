"""MNIST and USPS from torchvision's files; nothing is written next to them, and nothing downloaded unless asked for."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bures.arrays import check_flags
from bures.data._domain import Domain
from bures.data._embedded import digits_domain

__all__ = ["mnist", "usps"]

MNIST_COUNTS = {True: 60_000, False: 10_000}
USPS_COUNTS = {True: 7_291, False: 2_007}


def mnist(root: str | Path, train: bool = True, download: bool = False, *, size: int | None = None) -> Domain:
    """MNIST: 60 000 training or 10 000 test images of handwritten digits, 28x28.

    Parameters
    ----------
    root : path
        Folder with ``MNIST/raw/``, where the four idx files lie as they come, gzipped, or unpacked; it may be
        read-only.
    train : bool, optional
        The training part, else the test part.
    download : bool, optional
        Fetch the files into ``root`` where they are missing.
    size : int, optional
        Warp the images to ``size`` x ``size``.

    Returns
    -------
    Domain
        Grey images in uint8 (n, 1, 28, 28).

    Examples
    --------
    >>> from bures.data import mnist
    >>> mnist("data/digits", train=False).samples.shape  # doctest: +SKIP
    (1, 28, 28)
    """
    check_flags(train=train, download=download)
    part = "train" if train else "t10k"
    names = [f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"]
    folder = Path(root) / "MNIST" / "raw"

    def find() -> list[Path | None]:
        found = [(folder / name, folder / f"{name}.gz") for name in names]
        return [next((file for file in pair if file.is_file()), None) for pair in found]

    def fetch() -> None:
        from torchvision.datasets import MNIST

        MNIST(str(root), download=True)

    images_file, labels_file = _locate("mnist", folder, [f"{name}.gz" for name in names], find, fetch, download)
    images, labels = _read_idx(images_file, 3), _read_idx(labels_file, 1)
    return _domain("mnist", images_file, images, labels, MNIST_COUNTS[train], size)


def usps(root: str | Path, train: bool = True, download: bool = False, *, size: int | None = None) -> Domain:
    """USPS: 7 291 training or 2 007 test images of handwritten digits from envelopes, 16x16.

    Parameters
    ----------
    root : path
        Folder with ``USPS/``, where ``usps.bz2`` and ``usps.t.bz2`` lie; it may be read-only.
    train : bool, optional
        The training part, else the test part.
    download : bool, optional
        Fetch the file into ``root`` where it is missing.
    size : int, optional
        Warp the images to ``size`` x ``size``; 28 is the size of MNIST.

    Returns
    -------
    Domain
        Grey images in uint8 (n, 1, 16, 16).

    Examples
    --------
    >>> from bures.data import usps
    >>> usps("data/digits", size=28).samples.shape  # doctest: +SKIP
    (1, 28, 28)
    """
    check_flags(train=train, download=download)
    folder = Path(root) / "USPS"
    name = "usps.bz2" if train else "usps.t.bz2"

    def find() -> list[Path | None]:
        return [folder / name if (folder / name).is_file() else None]

    def fetch() -> None:
        from torchvision.datasets import USPS

        folder.mkdir(parents=True, exist_ok=True)
        USPS(str(folder), train=train, download=True)

    (file,) = _locate("usps", folder, [name], find, fetch, download)
    images, labels = _read_usps(file)
    return _domain("usps", file, images, labels, USPS_COUNTS[train], size)


def _locate(
    name: str,
    folder: Path,
    expected: list[str],
    find: Callable[[], list[Path | None]],
    fetch: Callable[[], None],
    download: bool,
) -> list[Path]:
    """The files of a set, fetched first where that is asked for; an error that says what to do where they are not."""
    found = find()
    if download and None in found:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # torchvision prints
                fetch()
        except (OSError, RuntimeError) as error:
            raise OSError(f"{name} could not be downloaded into {folder}: {error}") from error
        found = find()
    missing = [file for file, path in zip(expected, found, strict=True) if path is None]
    if missing:
        raise FileNotFoundError(
            f"{name} is not complete in {folder}: {' and '.join(missing)} not found; "
            "put the files there, or let them be fetched with download=True (--download)"
        )
    return [path for path in found if path is not None]


def _read_idx(file: Path, ndim: int) -> NDArray[np.uint8]:
    """Read an idx file of bytes, gzipped or not: two zeros, type 8, the number of axes, their lengths, the data."""
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        zero, kind, axes = struct.unpack_from(">HBB", raw)
        if (zero, kind, axes) != (0, 8, ndim):
            raise ValueError(f"it starts with {raw[:4].hex()}, not {bytes([0, 0, 8, ndim]).hex()}")
        shape = struct.unpack_from(f">{ndim}I", raw, 4)
        # Copied, for a tensor must be writable.
        return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * ndim).reshape(shape).copy()
    except (gzip.BadGzipFile, zlib.error, EOFError, struct.error, ValueError) as error:
        raise ValueError(f"{file} is damaged or no idx file: {error}") from error


def _read_usps(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read libsvm text, ``label index:value ...`` with labels 1 to 10 and values -1 to 1, as torchvision does."""
    try:
        text = re.sub(rb"\d+:", b"", bz2.decompress(file.read_bytes()))
        if not text.strip():
            raise ValueError("the file is empty")
        table = np.loadtxt(io.BytesIO(text), dtype=np.float32, ndmin=2)
        labels = table[:, 0].astype(np.int64) - 1
        images = ((table[:, 1:] + 1) / 2 * 255).astype(np.uint8).reshape(-1, 16, 16)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{file} is damaged or no libsvm file of 16x16 images: {error}") from error
    return images, labels


def _domain(
    name: str, file: Path, images: NDArray[np.uint8], labels: NDArray[np.generic], expected: int, size: int | None
) -> Domain:
    if len(images) != expected or len(labels) != expected:
        raise ValueError(f"{file} holds {len(images)} images and {len(labels)} labels; accepted are {expected} of each")
    try:
        return digits_domain(name, images[:, None], labels, size)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
