"""The progress of a sweep: on a terminal a line for each method and a bar for all, in the log of a batch job lines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bures.cli._streams import tell

if TYPE_CHECKING:
    from bures.experiments import Event

__all__ = ["sweep_progress"]

PAUSE = 30.0  # seconds between lines where there is no terminal: short runs would fill a log


@contextmanager
def sweep_progress(
    title: str, cells: Sequence[Any], finished: set[str], *, quiet: bool
) -> Iterator[Callable[[Event], None] | None]:
    """A live table on the standard error stream, of cells and the keys of the finished; lines without a terminal."""
    if quiet:
        yield None
        return
    console, board = Console(stderr=True), _Board(title, cells, finished)
    if not console.is_terminal:
        yield _Lines(board).note
        return
    with Live(get_renderable=board.render, console=console, transient=True, refresh_per_second=2):
        yield board.note


class _Board:
    """What is known of the cells, by method."""

    def __init__(self, title: str, cells: Sequence[Any], finished: set[str]) -> None:
        self.title = title
        self.totals = Counter(cell.method for cell in cells)
        self.counts = {"finished": Counter(cell.method for cell in cells if cell.key in finished)}
        self.counts |= {what: Counter() for what in ("running", "failed", "elsewhere")}
        self.before = self.counts["finished"].total()
        self.since = time.monotonic()
        self.last = ""
        self.lock = Lock()  # cells begin in a thread of joblib's

    def note(self, event: Event) -> None:
        """Count an event."""
        with self.lock:
            method = event.cell.method
            if event.what == "started":
                self.counts["running"][method] += 1
            else:
                self.counts[event.what][method] += 1
                self.counts["running"][method] -= event.what != "elsewhere"
            if event.what == "failed":
                self.last = f"{event.cell.key}: {event.detail}"

    def render(self) -> Group:
        """The table as it is now."""
        with self.lock:
            table = Table(title=Text(self.title), title_justify="left", box=None, pad_edge=False)
            table.add_column("method")
            for name in ("finished", "running", "failed", "of"):
                table.add_column(name, justify="right")
            for method, total in self.totals.items():
                running, failed = self.counts["running"][method], self.counts["failed"][method]
                if not running and not failed and self.counts["finished"][method] in (0, total):
                    continue  # not begun, or done: a line for each of forty methods would not fit
                cells = [str(self.counts["finished"][method]), str(running or ""), str(failed or ""), str(total)]
                table.add_row(Text(method), *cells)
            bar = ProgressBar(total=self.totals.total(), completed=self.counts["finished"].total(), width=40)
            line = Table.grid(padding=(0, 1))
            line.add_row(bar, Text(self._summary()))
            lines: list[Any] = [table, line]
            if self.last:
                lines.append(Text(f"last failure: {self.last}", style="red", overflow="ellipsis", no_wrap=True))
            return Group(*lines)

    def summary(self) -> str:
        """How many cells are finished, and how long the others will take."""
        with self.lock:
            return self._summary()

    def _summary(self) -> str:
        done, total = self.counts["finished"].total(), self.totals.total()
        return f"{done} of {total} finished{self._remaining(done, total)}"

    def _remaining(self, done: int, total: int) -> str:
        new, elapsed = done - self.before, time.monotonic() - self.since
        if not new or done == total:
            return ""
        minutes = elapsed / new * (total - done) / 60
        return f", about {minutes:.0f} minutes left" if minutes >= 1 else ", less than a minute left"


class _Lines:
    """A line now and then, when a cell has finished: who sends a sweep into a log wants to see that it goes on."""

    def __init__(self, board: _Board) -> None:
        self.board = board
        self.last = board.since

    def note(self, event: Event) -> None:
        """Count an event, and tell of it where the last line is some time ago."""
        self.board.note(event)
        now = time.monotonic()
        if event.what == "finished" and now - self.last >= PAUSE:
            self.last = now
            tell(f"{self.board.summary()}, last {event.cell.key}")
