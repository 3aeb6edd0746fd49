"""Many runs side by side: a grid of independent cells, each finished once, failures kept apart."""

from __future__ import annotations

import atexit
import gc
import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import joblib
from joblib.externals.loky import process_executor
from joblib.externals.loky.backend.process import LokyProcess
from joblib.externals.loky.process_executor import BrokenProcessPool

from bures.experiments._ledger import Ledger
from bures.experiments._sweep_work import Event, InterruptedSweep, Part, Sweep, Work
from bures.training import StoppedBySignal
from bures.training._signals import SignalTimes

if TYPE_CHECKING:
    from bures.experiments._cell import RunnableCell

__all__ = ["run_sweep", "run_sweeps"]

PATIENCE = 10.0  # seconds in which the cells that run may save their state


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
        Processes side by side; negative numbers count from the number of cores, -1 being all of them.
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
    _check_jobs(n_jobs)
    parts = [Part(list(cells), Ledger(ledger)) for cells, ledger in grids]
    work = Work(parts, limit, minutes, on_event or (lambda event: None))
    with _listening(work):
        _run(work, data_root, n_jobs, backend, accelerator)
    return work.conclude()


def _check_jobs(n_jobs: object) -> None:
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
        raise ValueError(
            f"n_jobs={n_jobs!r} is not accepted; accepted are positive integers, and negative ones that count from the "
            "number of cores (-1: all of them)"
        )


def _run(work: Work, data_root: str | Path | None, n_jobs: int, backend: str | None, accelerator: str) -> None:
    compilers = max((os.cpu_count() or 1) // joblib.effective_n_jobs(n_jobs), 1)
    place = _Place(data_root, accelerator, os.getpid(), compilers)
    while work.has_more():
        try:
            # Suspects run one at a time, yet not in this process: two jobs, of which only one is ever handed out.
            jobs, ahead = (2, "1") if work.suspects else (n_jobs, "n_jobs")
            tasks = (
                joblib.delayed(_attempt)(cell, work.home[cell.key].ledger.unfinished(cell.key), place)
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
def _listening(work: Work) -> Iterator[None]:
    """While a sweep runs, let a signal end it when the cells that run have saved their state, or at once by a second.

    A terminal and most schedulers send a signal to all processes of a sweep. Where only this one has heard it, the
    others do not end by themselves: some seconds later it is taken for the second.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may listen
        yield
        return
    patience: list[threading.Timer] = []
    times = SignalTimes()

    def hear(number: int, frame: FrameType | None) -> None:
        if times.is_echo():
            return
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


Attempt: TypeAlias = tuple[str, dict[str, Any] | None, str | None, int | None]
"""Key of a cell; its result, the traceback of its failure or the signal that stopped it: what `Work.settle` takes."""


@dataclass(frozen=True)
class _Place:
    """Where the cells of a sweep run: their data, Lightning's accelerator, the sweep's process, cores for compiling."""

    data_root: str | Path | None
    accelerator: str
    sweep: int
    compilers: int


def _attempt(cell: RunnableCell, unfinished: Path, place: _Place) -> Attempt:
    own_process = os.getppid() == place.sweep
    if not own_process and _is_orphan_of(place.sweep):
        os._exit(1)
    if own_process:
        _end_with(place.sweep)
        _limit_compilers(place.compilers)
        _may_grow()
    started = time.perf_counter()
    try:
        result = cell.run(place.data_root, place.accelerator, unfinished)
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
def _limit_compilers(n: int) -> None:
    """Let `torch.compile` use n processes, unless the user says how many: it would take one for each core."""
    if "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:
        import torch._inductor.config as inductor

        inductor.compile_threads = n


@cache  # once for a process
def _may_grow() -> None:
    """Let this process keep what it has loaded and compiled, for its next cells.

    Loky ends a process that has grown by 300 MB since its first task, as a leak, with a warning; the domains of a cell
    are as large. It has no option for that.
    """
    if hasattr(process_executor, "_MAX_MEMORY_LEAK_SIZE"):
        process_executor._MAX_MEMORY_LEAK_SIZE = math.inf


@cache  # once for a process
def _freeze() -> None:
    """Take what was imported out of later collections, most of whose time it takes."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # what is never collected some packages report as leaks, at length


def _is_orphan_of(sweep: int) -> bool:
    """Whether this is a process of loky's whose sweep was killed while it was being made ready for its first cell.

    Nobody claims that cell any more: the next sweep begins it, too. (The sweep itself may run in a process of loky's.)
    """
    return os.getpid() != sweep and isinstance(multiprocessing.current_process(), LokyProcess)


@cache  # once for a process
def _end_with(parent: int) -> None:
    """End this process soon after its parent: loky's would outlive a sweep that was killed, and hold on to the GPU."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="bures-sweep-watch").start()
