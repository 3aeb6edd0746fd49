"""Many runs side by side: a grid of independent cells, each finished once, failures kept apart."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool

from bures.experiments._ledger import Claim, Ledger
from bures.training import StoppedBySignal

if TYPE_CHECKING:
    from bures.experiments._cell import RunnableCell

__all__ = ["Event", "InterruptedSweep", "Sweep", "run_sweep", "run_sweeps"]

PATIENCE = 10.0  # seconds in which the cells that run may save their state


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


def run_sweep(
    cells: Iterable[RunnableCell],
    ledger: str | Path,
    *,
    data_root: str | Path | None = None,
    n_jobs: int = 1,
    backend: str | None = None,
    accelerator: str = "auto",
    limit: int | None = None,
    minutes: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Sweep:
    """Run the cells that the ledger does not hold yet, in their order, several at a time.

    A cell that the ledger holds is never run again, and a sweep that was killed goes on where it stopped: trainings of
    more than a minute from their last checkpoint, which lies beside the ledger until they are finished. Several sweeps
    may share a ledger: each begins only what the others have not begun.

    Parameters
    ----------
    cells : iterable of Cell
        The grid, most important first.
    ledger : path
        A file of JSON lines, one for each finished cell.
    data_root : path, optional
        Folder of the data sets.
    n_jobs : int, optional
        Processes side by side.
    backend : str, optional
        Of joblib: "loky" for processes of this machine, "dask" for those of the Dask client at hand. None leaves the
        choice to joblib.
    accelerator : str, optional
        Of Lightning's trainer.
    limit : int, optional
        Begin at most this many cells.
    minutes : float, optional
        Begin no cell later than this after the start; those that run are finished.
    on_event : callable, optional
        Called with each `Event`, perhaps from another thread.

    Returns
    -------
    Sweep
        Results of the cells asked for, in their order, failures with their logs, and what is left.

    Raises
    ------
    InterruptedSweep
        SIGTERM or SIGINT asked for an end. Trainings have saved their state.

    Examples
    --------
    >>> import tempfile
    >>> from bures.experiments import Cell, run_sweep
    >>> quick = {"epochs": 1, "epoch": 2, "batch_size": 16, "hidden": 16, "features": 8, "image_size": 8}
    >>> cells = [Cell("optdigits", "optdigits", "digits-plain", "source", seed, quick) for seed in (0, 1)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run_sweep(cells, folder + "/trial.jsonl", limit=1)
    ...     second = run_sweep(cells, folder + "/trial.jsonl")
    >>> len(first.results), len(first.left), [result["seed"] for result in second.results]
    (1, 1, [0, 1])
    """
    (sweep,) = run_sweeps(
        [(cells, ledger)],
        data_root=data_root,
        n_jobs=n_jobs,
        backend=backend,
        accelerator=accelerator,
        limit=limit,
        minutes=minutes,
        on_event=on_event,
    )
    return sweep


def run_sweeps(
    grids: Iterable[tuple[Iterable[RunnableCell], str | Path]],
    *,
    data_root: str | Path | None = None,
    n_jobs: int = 1,
    backend: str | None = None,
    accelerator: str = "auto",
    limit: int | None = None,
    minutes: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[Sweep]:
    """Run the cells of several grids one after the other, each with a ledger of its own, as one sweep.

    The processes that the last cells of a grid leave free go on with the next grid. Limit and minutes are bounds for
    all grids together. A cell that several grids have is run for the first of them.

    Parameters
    ----------
    grids : iterable of (iterable of Cell, path)
        Cells and ledger of each grid, most important first.
    data_root, n_jobs, backend, accelerator, limit, minutes, on_event : optional
        As in `run_sweep`.

    Returns
    -------
    list of Sweep
        What came of each grid.

    Raises
    ------
    InterruptedSweep
        SIGTERM or SIGINT asked for an end. Trainings have saved their state.
    """
    parts = [_Part(list(cells), Ledger(ledger)) for cells, ledger in grids]
    work = _Work(parts, limit, minutes, on_event or (lambda event: None))
    with _listening(work):
        _run(work, data_root, n_jobs, backend, accelerator)
    return work.conclude()


def _run(work: _Work, data_root: str | Path | None, n_jobs: int, backend: str | None, accelerator: str) -> None:
    while work.has_more():
        try:
            # Suspects run one at a time, yet not in this process: two jobs, of which only one is ever handed out.
            jobs, ahead = (2, "1") if work.suspects else (n_jobs, "n_jobs")
            tasks = (
                joblib.delayed(_attempt)(
                    cell, data_root, accelerator, work.home[cell.key].ledger.unfinished(cell.key), os.getpid()
                )
                for cell in work.begin()
            )
            with nullcontext() if backend is None else joblib.parallel_config(backend=backend):
                parallel = joblib.Parallel(jobs, batch_size=1, pre_dispatch=ahead, return_as="generator_unordered")
                for outcome in parallel(tasks):
                    work.settle(*outcome)
        except BrokenProcessPool as error:  # a process was killed, for want of memory perhaps: the others go on
            work.survive(error)
        finally:
            work.give_back()


@contextmanager
def _listening(work: _Work) -> Iterator[None]:
    """While a sweep runs, let a signal end it when the cells that run have saved their state, or at once by a second.

    A terminal and most schedulers send a signal to all processes of a sweep. Where only this one has heard it, the
    others do not end by themselves: some seconds later it is taken for the second.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may listen
        yield
        return
    patience: list[threading.Timer] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if work.stopped_by is not None:
            raise InterruptedSweep(number)
        work.stop(number)
        patience.append(threading.Timer(PATIENCE, os.kill, (os.getpid(), number)))
        patience[0].daemon = True
        patience[0].start()

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for timer in patience:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@dataclass
class _Part:
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


class _Work:
    """The state of a sweep: what waits, what runs, what came of it."""

    def __init__(
        self, parts: list[_Part], limit: int | None, minutes: float | None, notify: Callable[[Event], None]
    ) -> None:
        self.parts, self.notify = parts, notify
        self.home: dict[str, _Part] = {}  # by key, the grid that a cell is run for
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


Outcome = tuple[str, dict[str, Any] | None, str | None, int | None]


def _attempt(
    cell: RunnableCell, data_root: str | Path | None, accelerator: str, unfinished: Path, sweep: int
) -> Outcome:
    own_process = os.getppid() == sweep
    if own_process:
        _end_with(sweep)
    started = time.perf_counter()
    try:
        result = cell.run(data_root, accelerator, unfinished)
    except StoppedBySignal as stop:
        return cell.key, None, None, stop.number
    except InterruptedSweep:  # in the process of the sweep itself
        raise
    except KeyboardInterrupt:
        return cell.key, None, None, signal.SIGINT
    except Exception:  # whatever it is, the other cells go on
        return cell.key, None, traceback.format_exc(), None
    finally:
        # A trainer refers to itself: the weights of finished runs wait for a collection, which is rare.
        gc.collect()
        if own_process:
            _freeze()
    return cell.key, result | {"seconds": round(time.perf_counter() - started, 3)}, None, None


@cache  # once for a process
def _freeze() -> None:
    """Take what was imported out of later collections, most of whose time it takes."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # what is never collected some packages report as leaks, at length


@cache  # once for a process
def _end_with(parent: int) -> None:
    """End this process soon after its parent: loky's would outlive a sweep that was killed, and hold on to the GPU."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="bures-sweep-watch").start()
