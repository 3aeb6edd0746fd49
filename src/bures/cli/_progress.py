"""Progress on a terminal; elsewhere a command is quiet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from bures.data._decoding import Progress as Report

__all__ = ["leading_process", "progress_bar"]


def leading_process() -> bool:
    """Whether this process is the first of those that train together; torch's launchers number them."""
    return os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("NODE_RANK", "0") == "0"


@contextmanager
def progress_bar(what: str, *, quiet: bool = False) -> Iterator[Report]:
    """A bar on the standard error stream, moved by calling ``report(done, total)``; it goes when the block ends."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:  # a bar that is disabled ends with an empty line in Rich before 14.3
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        # Hidden until something is reported: not all that could take long does.
        task = bar.add_task(what, total=None, visible=False)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        yield report
