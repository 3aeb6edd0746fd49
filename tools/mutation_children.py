"""Tests in forks of one process, each with a fault put into the functions in memory."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
GRACE = 15.0  # seconds that children may still take when the time is up; what has not ended then is left untold


class Work(NamedTuple):
    """Something to do in a fork: what it is known by, what it does, and seconds after which it counts as hung."""

    key: object
    do: Callable[[], str]
    seconds: float


def in_children(works: Iterator[Work], jobs: int, end: float = float("inf")) -> Iterator[tuple[object, str, str]]:
    """Each work in a fork of this process, ``jobs`` at a time: its key, what came of it, and what it answered.

    What comes of a work is "survived" where its answer is empty, "killed" where it is not, or "hung". From ``end`` (of
    `time.monotonic`) on no more are begun.
    """
    running: dict[int, tuple[object, int]] = {}
    try:
        while True:
            while len(running) < jobs and time.monotonic() < end and (work := next(works, None)):
                child, reading = _begin(work)
                running[child] = work.key, reading
            if not running:
                return
            child, status = _wait(end + GRACE)
            if child not in running:
                return
            key, reading = running.pop(child)
            yield key, *_told(reading, status)
    finally:
        for child, (_, reading) in running.items():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)


def _wait(end: float) -> tuple[int, int]:
    """The next child that ends, and its status; no child, 0, where none has ended in time."""
    while time.monotonic() < end:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            return child, status
        time.sleep(0.01)
    return 0, 0


def _begin(work: Work) -> tuple[int, int]:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads; those of torch wait for work
        child = os.fork()
    if child == 0:
        signal.alarm(int(work.seconds) + 1)
        gc.disable()
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            answer = work.do()
        except BaseException as error:  # a fault may break the module itself
            answer = f"{type(error).__name__} on import"
        os.write(writing, answer.encode()[:4000])  # at once, and less than a pipe holds
        os._exit(0)
    os.close(writing)
    os.set_blocking(reading, False)  # processes that a test has left behind may still hold the other end
    return child, reading


def _told(reading: int, status: int) -> tuple[str, str]:
    try:
        answer = os.read(reading, 4096).decode("utf-8", errors="replace")
    except BlockingIOError:
        answer = ""
    os.close(reading)
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        return "hung" if ended in (signal.SIGALRM, signal.SIGPROF) else "killed", f"signal {ended}"
    return ("killed", answer) if answer else ("survived", "")


def fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test without the reports of pytest, whose excerpts of the source take longer than most tests."""
    state = item.session._setupstate
    item._initrequest()  # type: ignore[attr-defined]
    try:
        state.setup(item)
        item.runtest()
        state.teardown_exact(following)
    except pytest.skip.Exception:
        state.teardown_exact(following)
    except BaseException:  # whatever it is, the fault has been noticed
        return True
    return False


def put_in(path: str, tree: object) -> None:
    """Give the functions of an imported module the code of a changed tree, wherever they are already known."""
    name = ".".join(Path(path).with_suffix("").parts[1:])
    module = importlib.import_module(name)
    changed = types.ModuleType(name)
    changed.__dict__.update(__file__=module.__file__, __package__=module.__package__, __spec__=module.__spec__)
    exec(compile(tree, str(ROOT / path), "exec"), changed.__dict__)  # type: ignore[call-overload]
    functions, new = dict(functions_of(module.__dict__, name)), dict(functions_of(changed.__dict__, name))
    for key, function in functions.items():
        function.__code__, function.__defaults__ = new[key].__code__, new[key].__defaults__
        function.__kwdefaults__ = new[key].__kwdefaults__
    for key, old in list(module.__dict__.items()):
        value = changed.__dict__.get(key)
        if isinstance(old, type) and old.__module__ == name:
            for attribute, number in list(old.__dict__.items()):
                if isinstance(number, bool | int | float) and not attribute.startswith("__"):
                    setattr(old, attribute, value.__dict__[attribute])
        elif callable(getattr(old, "cache_clear", None)):
            old.cache_clear()
        elif isinstance(old, bool | int | float | tuple | dict) and not key.startswith("__") and value != old:
            for other in [module, *(m for n, m in sys.modules.items() if n.partition(".")[0] == "bures")]:
                if other.__dict__.get(key) is old:
                    setattr(other, key, value)


def functions_of(names: dict, module: str, prefix: str = "") -> list[tuple[str, types.FunctionType]]:
    """Functions and methods that a namespace defines, by qualified name."""
    found = []
    for key, value in list(names.items()):
        if isinstance(value, type) and value.__module__ == module:
            found += functions_of(dict(value.__dict__), module, f"{prefix}{key}.")
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(getattr(value, "func", None), types.FunctionType):  # a cached property
            value = value.func
        value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
        if isinstance(value, types.FunctionType) and value.__module__ == module:
            found.append((f"{prefix}{key}", value))
    return found
