"""Image files to pixels: one way to decode, for every kind of file, and one account of the files that do not decode."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from bures.arrays import check_count
from bures.wording import listed

__all__ = ["BadImageError", "BadImageWarning", "Progress", "check_images", "decode_image", "map_files", "report_bad"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called as ``progress(done, total)`` in the calling thread while files are read."""

Result = TypeVar("Result")

SCALED = "accepted are 8 bits, integers of 16 bits from 0 to 65535, and floating-point numbers from 0 to 1 or to 255"
AHEAD = 256  # files that are read before they are asked for: more than memory holds may follow
ROUNDING = 1e-4  # by which floating-point values may pass the ends of their range


class BadImageError(ValueError):
    """A file that should be an image and cannot be decoded; ``reason`` says why."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class BadImageWarning(UserWarning):
    """Some image files could not be decoded and were left out.

    Examples
    --------
    >>> import pathlib, tempfile, warnings
    >>> from PIL import Image
    >>> from bures.data import BadImageWarning, load_domain
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", BadImageWarning)
    ...     Image.new("RGB", (8, 8)).save(pathlib.Path(folder, "cat.png"))
    ...     _ = pathlib.Path(folder, "dog.png").write_bytes(b"not a picture")
    ...     domain = load_domain(folder, in_memory=True)
    >>> len(domain), caught[0].category.__name__
    (1, 'BadImageWarning')
    """


def decode_image(path: str | Path, size: int | None) -> NDArray[np.uint8]:
    """Decode one file of any mode to RGB, warped to ``size`` x ``size`` (None: as it is); shape (3, H, W)."""
    # Decoders of damaged files fail in many ways: OSError, SyntaxError, struct.error, IndexError, a refusal to open a
    # picture of absurd size. All of them mean that this file is no usable image.
    try:
        if os.path.getsize(path) == 0:
            raise ValueError("the file is empty")
        # By its name, Pillow would map a TIFF that is not compressed, with the sides that it has when it is turned.
        with open(path, "rb") as stream, Image.open(stream) as image:
            pixels = _to_rgb(_upright(image))
        if size is not None:
            pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(pixels, dtype=np.uint8).transpose(2, 0, 1))
    except (FileNotFoundError, PermissionError) as error:
        if isinstance(error, FileNotFoundError) and os.path.islink(path):
            reason = "a link to a file that is not there"
            raise BadImageError(f"{path} cannot be decoded: {reason}", reason) from error
        raise  # not the picture's fault
    except Exception as error:
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "not an image file" if unknown else str(error) or type(error).__name__
        raise BadImageError(f"{path} cannot be decoded: {reason}", reason) from error


def _upright(image: Image.Image) -> Image.Image:
    """A picture turned as its EXIF tag says: cameras write the tag instead of turning the pixels."""
    image.load()  # what is wrong with the picture itself is told from here
    with suppress(Exception):  # a damaged tag is no damaged picture
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):  # convert("RGB") would clip these instead of scaling them
        image = Image.fromarray(_to_bytes(image))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _to_bytes(image: Image.Image) -> NDArray[np.uint8]:
    """Grey values of more than 8 bits, or in floating point, scaled to 0 to 255; raise where their scale is unknown."""
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise ValueError(f"its values include NaN or infinity; {SCALED}")
    low, high = values.min().item(), values.max().item()
    if image.mode == "F":
        if low < -ROUNDING or high > 255 * (1 + ROUNDING):
            raise ValueError(f"its values are floating-point numbers from {low:g} to {high:g}; {SCALED}")
        scale = np.float32(255 if high <= 1 + ROUNDING else 1)  # or bytes, which are floating-point numbers by accident
        return np.asarray(np.rint(np.clip(values * scale, 0, 255)), dtype=np.uint8)
    # Pillow reads integers of 16 bits as such (I;16) or, from some formats, as 32 bits (I). In TIFF files the latter
    # are 32 bits indeed, or have a sign; where they hold bytes, they would become black on the scale of 16 bits.
    if low < 0 or high > 65535 or (image.mode == "I" and image.format == "TIFF" and 0 < high <= 255):
        raise ValueError(f"its values are wide integers from {low} to {high}, whose scale is unknown; {SCALED}")
    return (values // 257).astype(np.uint8)


def map_files(
    function: Callable[[int], Result], n: int, n_threads: int | None, progress: Progress | None
) -> Generator[Result, None, None]:
    """Yield ``function(0), ..., function(n - 1)`` in order, computed by a pool of threads that keeps a little ahead."""
    threads = min(os.cpu_count() or 1, 16)
    if n_threads is not None:
        threads = check_count("n_threads", n_threads, alternatives=", or None")
    with ThreadPoolExecutor(threads) as pool:
        try:
            waiting = deque(pool.submit(function, number) for number in range(min(n, AHEAD)))
            for done in range(1, n + 1):
                result = waiting.popleft().result()
                if done + len(waiting) < n:
                    waiting.append(pool.submit(function, done + len(waiting)))
                yield result
                if progress is not None:
                    progress(done, n)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def check_images(
    paths: Sequence[str | Path],
    strict: bool = False,
    *,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Find the image files that cannot be decoded: empty, truncated, corrupt, or no image at all.

    Every file is decoded in full: a truncated picture has a sound header.

    Parameters
    ----------
    paths : sequence of paths
        The files.
    strict : bool, optional
        Whether a bad file is an error.
    n_threads : int, optional
        Number of decoding threads; None is one for each core, at most 16.
    progress : callable, optional
        Called as ``progress(done, total)``.

    Returns
    -------
    good : list of Path
        The files that decode, in the order given.
    bad : list of (Path, str)
        The others, each with the reason.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from bures.data import check_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     empty = pathlib.Path(folder, "empty.jpg")
    ...     empty.touch()
    ...     good, bad = check_images([empty])
    >>> good, bad[0][1]
    ([], 'the file is empty')
    """
    files = [Path(path) for path in paths]

    def reason(index: int) -> str | None:
        try:
            decode_image(files[index], None)
        except BadImageError as error:
            return error.reason
        return None

    reasons = list(map_files(reason, len(files), n_threads, progress))
    good = [path for path, why in zip(files, reasons, strict=True) if why is None]
    bad = [(path, why) for path, why in zip(files, reasons, strict=True) if why is not None]
    if strict and bad:
        raise BadImageError(describe_bad(bad, len(files)))
    return good, bad


def describe_bad(bad: Sequence[tuple[Path, str]], n_files: int) -> str:
    """One sentence on the files that do not decode: how many, and the first by name."""
    files = listed((f"{path} ({why})" for path, why in bad), separator="; ")
    return f"{len(bad)} of {n_files} image files cannot be decoded: {files}"


def report_bad(bad: Sequence[tuple[Path, str]], n_files: int, *, strict: bool) -> None:
    """Warn about files that do not decode, or raise with ``strict``."""
    if not bad:
        return
    message = describe_bad(bad, n_files)
    if strict:
        raise BadImageError(message)
    warnings.warn(f"{message}; they are left out", BadImageWarning, stacklevel=3)
