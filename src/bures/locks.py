"""Locks that name their holder: one process at a time works on something, and the dead hold nothing."""

from __future__ import annotations

import errno
import json
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # not on Windows, where nothing keeps processes apart
    fcntl = None  # type: ignore[assignment]

__all__ = ["FileLock", "Holder"]


class Holder(NamedTuple):
    """The process that holds a lock, as its file tells it."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def may_live(self) -> bool:
        """Whether the process is there, as far as this machine can see; those of other machines may be."""
        if self.host != platform.node():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


class FileLock:
    """A file that one process at a time can hold. The system gives it back when the process ends, however it ends.

    The file names its holder for people. What a killed process leaves of it is taken over by the next.

    Examples
    --------
    >>> import tempfile
    >>> from bures.locks import FileLock
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = FileLock.take(folder + "/.lock"), FileLock.take(folder + "/.lock")
    ...     first.release()
    ...     third = FileLock.take(folder + "/.lock")
    ...     third.release()
    >>> second is None, third is None
    (True, False)
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle, self._pid = path, handle, os.getpid()

    @classmethod
    def take(cls, path: str | Path) -> FileLock | None:
        """Take the lock; None where another holds it, in this process or in another."""
        path = Path(path)
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                free = _try_to_lock(handle, path)
                # The holder of before may have removed the file after it was opened here: a lock on nothing.
                if free and not _is_still_there(path, handle):
                    os.close(handle)
                    continue
            except BaseException:
                os.close(handle)
                raise
            if not free:
                os.close(handle)
                return None
            with suppress(OSError):  # on a full disk the lock holds without a name
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode() + b"\n", 0)
            _held.add(handle)
            return cls(path, handle)

    def release(self) -> None:
        """Give the lock back and remove its file."""
        if os.getpid() != self._pid:  # a child that was forked meanwhile does not hold it
            return
        self.path.unlink(missing_ok=True)
        _held.discard(self._handle)
        os.close(self._handle)

    @staticmethod
    def holder(path: str | Path) -> Holder | None:
        """Who holds or held a lock; None where the file is gone or does not say."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            return Holder(int(content["pid"]), str(content["host"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _try_to_lock(handle: int, path: Path) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        # A file system without locks, as some network ones are: the word of the file counts.
        holder = FileLock.holder(path)
        return holder is None or not holder.may_live()
    return True


def _is_still_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


_held: set[int] = set()


def _let_go() -> None:
    # Children that a process forks, such as those that load data, outlive its kill by seconds; a copy of the handle
    # would hold the lock for them.
    for handle in _held:
        with suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
