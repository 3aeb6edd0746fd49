"""Standard streams: notes beside what a command prints, and readers that leave, as `head` and `grep -q` do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rich.console import Console

__all__ = ["outlive_readers", "tell"]


def tell(text: str) -> None:
    """Print a note on the standard error stream, as it is and in one line."""
    Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)


class _Stream:
    """A text stream that goes on into nothing once nobody reads it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._leave()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        """What is buffered, and all that follows, is dropped."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def outlive_readers() -> Iterator[None]:
    """Let a command finish, with its own exit code, when what it prints is no longer read.

    Otherwise ``bures test`` would end with 1, which says that there is a shift, and a training would end at a line of
    its progress.
    """
    given = sys.stdout, sys.stderr
    streams = [None if stream is None else _Stream(stream) for stream in given]
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in streams)
    try:
        yield
    finally:
        for stream in streams:
            if stream is not None:
                stream.flush()  # a short output lies in the buffer until now
        sys.stdout, sys.stderr = given
