"""A matrix computed row by row over hours: what is done lies in parts on the disk, and a later start goes on there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bures.files import atomic_file, write_json

__all__ = ["Parts", "PartsMismatchError", "told"]

SETTINGS = "settings.json"
PART = re.compile(r"(\d+)-(\d+)\.npy")


class PartsMismatchError(ValueError):
    """The parts on the disk were made with other settings than those asked for."""


class Parts:
    """Rows of a matrix (n, d) in float32, kept in a folder beside the file they will end up in.

    Parameters
    ----------
    output : path
        The file; the folder is ``output`` with ``.parts`` behind it.
    settings : dict of str to str
        All that the rows depend on. Parts that were made with other settings are refused.
    width : int
        d.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from bures.data._parts import Parts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     output = pathlib.Path(folder, "features.npz")
    ...     parts = Parts(output, {"network": "lenet"}, width=2)
    ...     parts.open()
    ...     parts.append(0, np.ones((3, 2), dtype=np.float32))
    ...     later = Parts(output, {"network": "lenet"}, width=2)
    ...     later.open()
    ...     later.rows().shape
    (3, 2)
    """

    def __init__(self, output: Path, settings: Mapping[str, str], width: int) -> None:
        self.folder = output.with_name(f"{output.name}.parts")
        self.settings = dict(settings)
        self.width = width

    def open(self, *, restart: bool = False) -> None:
        """Make the folder, or take it over from an earlier start; with ``restart``, empty it first."""
        if restart:
            self.remove()
        self.folder.mkdir(exist_ok=True)
        file = self.folder / SETTINGS
        if file.is_file() or self._files():
            self._check(file)
        else:
            write_json(file, self.settings)

    def _check(self, file: Path) -> None:
        remedy = "go on with the same settings, start again with restart=True (--restart), or delete the folder"
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("no settings")
        except (FileNotFoundError, ValueError) as error:
            raise PartsMismatchError(f"{self.folder} holds parts whose settings cannot be read; {remedy}") from error
        differing = [key for key in {**found, **self.settings} if found.get(key) != self.settings.get(key)]
        if differing:
            listed = ", ".join(
                f"{key} {_short(found.get(key))} instead of {_short(self.settings.get(key))}" for key in differing
            )
            raise PartsMismatchError(f"{self.folder} holds parts made with other settings ({listed}); {remedy}")

    def rows(self) -> NDArray[np.float32]:
        """The rows that are done, from the first on; a part that cannot be read ends them."""
        done = [np.empty((0, self.width), dtype=np.float32)]
        position = 0
        # By length, so that of two parts with one start the longer is taken.
        starts = {start: (stop, file) for start, stop, file in sorted(self._files())}
        while position in starts:
            stop, file = starts[position]
            part = _read_part(file)
            if part is None or part.shape != (stop - position, self.width) or part.dtype != np.float32:
                break
            done.append(part)
            position = stop
        return np.concatenate(done)

    def append(self, start: int, rows: NDArray[np.float32]) -> None:
        """Write the rows from ``start`` on, whole or not at all."""
        file = self.folder / f"{start:09d}-{start + len(rows):09d}.npy"
        with told(file), atomic_file(file) as stream:
            np.save(stream, rows)

    def remove(self) -> None:
        """Remove the folder; what someone else put there stays, and with it the folder."""
        if not self.folder.is_dir():
            return
        ours = [self.folder / SETTINGS, *(file for *_, file in self._files()), *self.folder.glob(".*.partial")]
        for file in ours:
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def _files(self) -> list[tuple[int, int, Path]]:
        """First row, end and file of each part."""
        matches = [(PART.fullmatch(file.name), file) for file in self.folder.iterdir()]
        return [(int(match[1]), int(match[2]), file) for match, file in matches if match]


@contextmanager
def told(file: Path) -> Iterator[None]:
    """Say which file could not be written, which NumPy does not, and that the work is not lost."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{file} could not be written ({error}); what is done so far is kept: make room, and start again with "
            "the same settings"
        ) from error


def _read_part(file: Path) -> NDArray[Any] | None:
    with open(file, "rb") as stream:
        try:
            part = np.load(stream, allow_pickle=False)
        except (ValueError, EOFError, OSError):
            return None
    return part if isinstance(part, np.ndarray) else None


def _short(value: object) -> str:
    """A setting in a message; of a checksum the first digits are enough."""
    text = str(value)
    return f"{text[:12]}..." if re.fullmatch(r"[0-9a-f]{32,}", text) else repr(value)
