"""Signals that ask for an end while the outcome of a training is written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bures.training._errors import StoppedBySignal

__all__ = ["stopped_by_signals"]


@contextmanager
def stopped_by_signals(step: int, *, saved: bool = True) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the block by `StoppedBySignal`; whether the state after ``step`` steps is saved."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for each in before:  # asked once is enough: another would cut the clean-up short
            signal.signal(each, signal.SIG_IGN)
        raise StoppedBySignal(number, step, saved=saved)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
