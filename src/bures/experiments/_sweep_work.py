"""What a sweep has to do: what waits, what runs, and what came of it, grid by grid."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from joblib.externals.loky.process_executor import BrokenProcessPool

from bures.experiments._ledger import Claim, Ledger

if TYPE_CHECKING:
    from bures.experiments._cell import RunnableCell

__all__ = ["Event", "InterruptedSweep", "Part", "Sweep", "Work"]


class InterruptedSweep(Exception):  # noqa: N818 - not an error
    """A signal asked for an end; what is finished is in the ledger, and the state of long trainings beside it.

    Attributes
    ----------
    number : int
        The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; what is finished is kept")
        self.number = number


class Event(NamedTuple):
    """What happened to a cell.

    Attributes
    ----------
    what : {"started", "finished", "failed", "elsewhere"}
        "elsewhere": it was left to another sweep.
    cell : Cell
    detail : str
        Of a failure, the last line of its traceback.
    """

    what: str
    cell: RunnableCell
    detail: str = ""


@dataclass
class Sweep:
    """What came of a sweep.

    Parameters
    ----------
    results : list of dict
        Of the cells that are finished, in the order in which they were asked for.
    failures : dict of str
        By key, the tracebacks of the cells that failed.
    logs : dict of Path
        By key, the files in which these tracebacks lie.
    left : list of cells
        Neither finished nor failed: the time was up, the limit was reached, or another sweep works on them.
    begun : int
        How many were begun, which is what a limit counts.
    """

    results: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)
    left: list[RunnableCell] = field(default_factory=list)
    begun: int = 0


@dataclass
class Part:
    """One grid of a sweep: its cells, where their results are kept, and what came of them."""

    cells: list[RunnableCell]
    ledger: Ledger
    sweep: Sweep = field(default_factory=Sweep)

    def conclude(self) -> Sweep:
        """The outcome, from the ledger as it is now."""
        self.ledger.tidy()
        finished = self.ledger.results()
        self.sweep.results = [finished[cell.key] for cell in self.cells if cell.key in finished]
        done = finished.keys() | self.sweep.failures.keys()
        self.sweep.left = [cell for cell in self.cells if cell.key not in done]
        return self.sweep


class Work:
    """The state of a sweep: what waits, what runs, what came of it."""

    def __init__(
        self, parts: list[Part], limit: int | None, minutes: float | None, notify: Callable[[Event], None]
    ) -> None:
        self.parts, self.notify = parts, notify
        self.home: dict[str, Part] = {}  # by key, the grid that a cell is run for
        self.queue: list[RunnableCell] = []
        for part in parts:
            part.cells = [cell for cell in part.cells if self.home.setdefault(cell.key, part) is part]
            finished = part.ledger.results()
            unique = {cell.key: cell for cell in part.cells}
            self.queue += [cell for key, cell in unique.items() if key not in finished]
        self.running: dict[str, tuple[RunnableCell, Claim]] = {}
        self.suspects: list[RunnableCell] = []  # they ran when a process died
        self.elsewhere: list[RunnableCell] = []  # another sweep had begun them
        self.asked_again = False
        self.limit = limit
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.error: Exception | None = None
        self.stopped_by: int | None = None
        self.ended = False

    def has_more(self) -> bool:
        """Whether something waits; at the end, what other sweeps had begun and may have given up."""
        if not self.suspects and not self.queue and not self.asked_again:
            self.queue, self.elsewhere, self.asked_again = self.elsewhere, [], True
        return bool(self.suspects or self.queue) and not self.ended

    def begin(self) -> Iterator[RunnableCell]:
        """The cells to be run, each claimed when a process is free for it."""
        waiting = self.suspects or self.queue
        while waiting:
            if self.ended or self._is_time_up():
                self.ended = True
                return
            cell = waiting.pop(0)
            try:
                claim = self.home[cell.key].ledger.claim(cell.key)
            except Exception as error:  # joblib asks from a thread of its own, where an error would be lost
                self.error, self.ended = error, True
                return
            if claim is None:
                self.elsewhere.append(cell)
                continue
            self.running[cell.key] = (cell, claim)
            if waiting is self.queue:
                self.home[cell.key].sweep.begun += 1
            self.notify(Event("started", cell))
            yield cell

    def _is_time_up(self) -> bool:
        late = self.deadline is not None and time.monotonic() >= self.deadline
        begun = sum(part.sweep.begun for part in self.parts)
        return late or (self.limit is not None and begun >= self.limit and not self.suspects)

    def settle(self, key: str, result: dict[str, Any] | None, trace: str | None, stop: int | None) -> None:
        """Write down what came of a cell."""
        cell, claim = self.running[key]
        if stop is not None:
            self.stop(stop)
        elif result is not None:
            ledger = self.home[key].ledger
            ledger.append(result)
            ledger.remove_log(key)
            ledger.forget_unfinished(key)
            self.notify(Event("finished", cell))
        else:
            self._fail(cell, str(trace))
        del self.running[key]
        claim.release()

    def stop(self, number: int) -> None:
        """Begin nothing more: a signal asked for an end."""
        self.stopped_by, self.ended = number, True

    def _fail(self, cell: RunnableCell, trace: str) -> None:
        part = self.home[cell.key]
        part.sweep.failures[cell.key] = trace
        part.sweep.logs[cell.key] = part.ledger.write_log(cell.key, f"{cell.key}\n{cell.command}\n\n{trace}")
        self.notify(Event("failed", cell, trace.strip().splitlines()[-1]))

    def survive(self, error: BrokenProcessPool) -> None:
        """Run again, one by one, what ran when a process died; what ran alone has failed."""
        cells = [cell for cell, _ in self.running.values()]
        if self.stopped_by is not None:  # by the signal that ends the sweep
            return
        if len(cells) == 1:
            self._fail(cells[0], f"its process died, for want of memory perhaps\n{error}")
        else:
            self.suspects = cells + self.suspects

    def give_back(self) -> None:
        """Release what this sweep no longer works on."""
        for _, claim in self.running.values():
            claim.release()
        self.running.clear()

    def conclude(self) -> list[Sweep]:
        """The outcome of each grid."""
        if self.error is not None:
            raise self.error
        if self.stopped_by is not None:
            raise InterruptedSweep(self.stopped_by)
        sweeps = [part.conclude() for part in self.parts]
        for cell in self.elsewhere:
            self.notify(Event("elsewhere", cell))
        return sweeps
