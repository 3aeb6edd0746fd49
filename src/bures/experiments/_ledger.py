"""The ledger of a sweep: a file of JSON lines, one for each finished cell, that several sweeps may share."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bures.experiments._result import check_result
from bures.files import to_json, write_text
from bures.locks import FileLock

try:
    import fcntl
except ImportError:  # not on Windows, where sweeps must not share a ledger
    fcntl = None  # type: ignore[assignment]

__all__ = ["SCHEMA", "Claim", "Ledger", "read_results"]

SCHEMA = 2  # of a line; lines of the first schema do not say so


class Ledger:
    """Finished cells by their keys, in a file that only ever grows by whole lines.

    A line is written at once, under a lock, and reaches the disk before the next cell counts as finished; what a kill
    has cut off is removed by the next writer. Beside ``name.jsonl`` lie ``name.logs`` with what went wrong,
    ``.name-*.unfinished`` with the state of runs that were cut off, and while a sweep runs ``.name.claims``, which
    tells other sweeps on the same ledger what not to begin.

    Parameters
    ----------
    path : path
        The file; it need not exist.

    Examples
    --------
    >>> import tempfile
    >>> from bures.experiments import Ledger
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(folder + "/digits.jsonl")
    ...     added = [ledger.append({"key": "usps|mnist|digits|ckb|0", "seed": seed}) for seed in (0, 1)]
    ...     [result["seed"] for result in ledger.results().values()], added
    ([0], [True, False])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._results: dict[str, dict[str, Any]] = {}
        self._read = self._lines = 0  # bytes and lines that are known already

    def results(self) -> dict[str, dict[str, Any]]:
        """The finished cells by key, those that other processes have added meanwhile included."""
        if not self.path.is_file():
            return {}
        if self.path.stat().st_size < self._read:  # another file by now
            self._results, self._read, self._lines = {}, 0, 0
        with self.path.open("rb") as stream:
            stream.seek(self._read)
            *lines, rest = stream.read().split(b"\n")
        for line in lines:
            if line.strip():
                self._keep(line, self._lines + 1)
            self._lines += 1
            self._read += len(line) + 1
        if _is_result(rest):  # a last line without its end, written by hand; else it was cut off by a kill
            self._keep(rest, self._lines + 1)
        return dict(self._results)

    def _keep(self, line: bytes, number: int) -> None:
        try:
            result = _parse(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.path} is damaged in line {number}: {error}") from error
        self._results.setdefault(result["key"], result)

    def append(self, result: Mapping[str, Any]) -> bool:
        """Add a finished cell; False where the ledger holds it already."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(json.loads(to_json(dict(result))), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            with _locked(handle):
                self._mend(handle)
                if result["key"] in self.results():
                    return False
                self._write(handle, line)
        finally:
            os.close(handle)
        return True

    def _write(self, handle: int, line: bytes) -> None:
        """Write a line to its end, or none of it: on a full disk the system may take a part and report no error."""
        size, rest = os.fstat(handle).st_size, line
        try:
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, size)
            raise OSError(
                error.errno,
                f"a result could not be written to {self.path} ({error.strerror}); those in it are intact. Make room "
                "and run the same command again",
            ) from error

    def _mend(self, handle: int) -> None:
        """End the last line, or cut it off where it is no result: writers hold the lock, so it has lost its writer."""
        size = os.fstat(handle).st_size
        with self.path.open("rb") as stream:
            stream.seek(max(0, size - 1))
            if stream.read() in (b"", b"\n"):
                return
        content = self.path.read_bytes()
        start = content.rfind(b"\n") + 1
        if _is_result(content[start:]):
            os.write(handle, b"\n")
        else:
            os.ftruncate(handle, start)

    def claim(self, key: str) -> Claim | None:
        """Keep other sweeps from beginning a cell; None where one has begun or finished it."""
        claim = Claim.take(self._claims / _digest(key))
        if claim is not None and key in self.results():
            claim.release()
            return None
        return claim

    @property
    def _claims(self) -> Path:
        return self.path.with_name(f".{self.path.stem}.claims")

    def tidy(self) -> None:
        """Remove what killed sweeps have left of their claims."""
        for path in self._claims.glob("*") if self._claims.is_dir() else ():
            if (claim := Claim.take(path)) is not None:
                claim.release()

    def unfinished(self, key: str) -> Path:
        """Folder in which a cell keeps its state until it is finished."""
        return self.path.with_name(f".{self.path.stem}-{_digest(key)}.unfinished")

    def forget_unfinished(self, key: str) -> None:
        """Remove what a cell has kept of its state, now that it is finished."""
        shutil.rmtree(self.unfinished(key), ignore_errors=True)

    def log_path(self, key: str) -> Path:
        """Where the log of a cell that failed lies."""
        words = re.sub(r"[^\w.+-]+", "_", key)[:120]
        return self.path.with_suffix(".logs") / f"{words}-{_digest(key)[:8]}.log"

    def write_log(self, key: str, text: str) -> Path:
        """Write what went wrong with a cell."""
        path = self.log_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_text(path, text)

    def remove_log(self, key: str) -> None:
        """Forget what went wrong with a cell that is finished now."""
        path = self.log_path(key)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # others are in it, or it was never there
            path.parent.rmdir()


class Claim:
    """A cell that this sweep works on. The system gives it back when the process ends, however it ends."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    @classmethod
    def take(cls, path: Path) -> Claim | None:
        """Claim a cell by a lock on a file, unless another process holds it."""
        for _ in range(100):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock = FileLock.take(path)
            except FileNotFoundError:  # another sweep has just removed the folder
                continue
            return None if lock is None else cls(lock)
        raise OSError(f"{path.parent} cannot be made")

    def release(self) -> None:
        """Give the cell back."""
        self._lock.release()
        with suppress(OSError):  # not empty: other cells are being worked on
            self._lock.path.parent.rmdir()


def read_results(ledger: str | Path) -> list[dict[str, Any]]:
    """The results in a ledger, each once; a last line that was cut off by a kill is left out.

    Parameters
    ----------
    ledger : path
        A file of JSON lines, as `bures.experiments.run_sweep` writes it.

    Returns
    -------
    list of dict
        Recipe, task, seed, accuracies, versions, ... of each finished run, in the order in which they were finished.

    Examples
    --------
    >>> from bures.experiments import read_results
    >>> read_results("results/none.jsonl")
    Traceback (most recent call last):
    FileNotFoundError: ledger='results/none.jsonl' is not a file
    """
    if not Path(ledger).is_file():
        raise FileNotFoundError(f"ledger={str(ledger)!r} is not a file")
    return list(Ledger(ledger).results().values())


class _LaterSchemaError(ValueError):
    """A result that a later version has written."""


def _parse(line: bytes) -> dict[str, Any]:
    """The result in a line; ValueError or RecursionError where there is none that can be read."""
    result = json.loads(line)
    if not isinstance(result, dict) or not isinstance(result.get("key"), str):
        raise ValueError("a result with a key is expected")
    schema = result.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:  # before the fields, which may be others there
        raise _LaterSchemaError(f"it has schema {schema}, and this version of bures reads up to {SCHEMA}")
    check_result(result)
    return result


def _is_result(line: bytes) -> bool:
    """Whether a last line without its end is whole. One of a later schema is: it is refused, but must not be lost."""
    try:
        _parse(line)
    except _LaterSchemaError:
        return True
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def _locked(handle: int) -> Iterator[None]:
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_UN)


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
