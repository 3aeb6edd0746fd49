"""Signals that ask a training to end: heard from before its first step until its outcome is written."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from bures.training._errors import StoppedBySignal

__all__ = ["ECHO", "SignalListener", "SignalTimes"]

ECHO = 0.25  # seconds in which a signal may come again


class SignalTimes:
    """Tells a signal that is sent again from one that is asked for again.

    ``timeout`` and the schedulers of clusters send a signal to a process and then to its group, so that it comes twice
    within a moment. That is one wish, and not the order to end at once.

    Examples
    --------
    >>> from bures.training._signals import SignalTimes
    >>> times = SignalTimes()
    >>> times.is_echo(), times.is_echo()
    (False, True)
    """

    def __init__(self) -> None:
        self._first = float("-inf")

    def is_echo(self) -> bool:
        """Note a signal that comes now: whether the one before it came a moment ago."""
        now = time.monotonic()
        echo = now - self._first < ECHO
        if not echo:
            self._first = now
        return echo


class SignalListener:
    """Notes SIGTERM and SIGINT while there is a state to be saved first; when told to, lets them end the work at once.

    A context manager. Outside of the main thread, which alone may listen, it hears nothing; nor where a program that
    embeds Python listens itself.

    Attributes
    ----------
    heard : int or None
        The signal that was noted. It may come between any two lines, so a decision looks at it once.
    """

    def __init__(self) -> None:
        self.heard: int | None = None
        self._before: dict[int, Any] = {}
        self._at_once: tuple[int, bool] | None = None
        self._over = False
        self._times = SignalTimes()

    def __enter__(self) -> SignalListener:
        self.listen()
        return self

    def listen(self) -> None:
        """Listen, in place of whoever does: Lightning's handlers talk to other processes in the middle of a step."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                if signal.getsignal(number) is None:
                    continue  # a program that embeds Python has its own handler, which could not be put back
                before = signal.signal(number, self._hear)
                self._before.setdefault(number, before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._over or self._times.is_echo():  # asked once is enough: another would cut the clean-up short
            return
        self._note(number)

    def _note(self, number: int) -> None:
        if self._at_once is not None:
            step, saved = self._at_once
            raise self.stopped(number, step, saved=saved)
        if self.heard is not None:  # asked twice: at once
            raise KeyboardInterrupt
        self.heard = number

    def end_at_once(self, step: int, *, saved: bool) -> None:
        """From now on end the work by `StoppedBySignal`, also for a signal that was noted; ``step`` steps are done."""
        self._at_once = (step, saved)
        if self.heard is not None:
            self._note(self.heard)

    def wait_for_the_end(self) -> None:
        """Note signals again: so little is left to do that it is done first, and the signal passed on behind it."""
        self._at_once = None

    def stopped(self, number: int, step: int, *, saved: bool) -> StoppedBySignal:
        """What is raised for a signal; others are not heard any more."""
        self._over = True
        return StoppedBySignal(number, step, saved=saved)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        ended_otherwise = kind is None or (issubclass(kind, Exception) and not issubclass(kind, StoppedBySignal))
        if self.heard is not None and ended_otherwise:
            signal.raise_signal(self.heard)  # nobody has acted on it
