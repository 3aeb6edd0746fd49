"""How a training can end other than by its end."""

from __future__ import annotations

import signal

__all__ = [
    "CheckpointError",
    "CollapseWarning",
    "NonFiniteLossError",
    "RunInUseError",
    "StopTraining",
    "StoppedBySignal",
    "TrainingError",
]


class TrainingError(RuntimeError):
    """Training stopped and cannot go on as it is."""


class NonFiniteLossError(TrainingError):
    """The loss became infinite or undefined.

    Attributes
    ----------
    step : int
        The step, counted from 0.
    terms : tuple of str
        The terms of the loss that broke.
    """

    def __init__(self, step: int, terms: tuple[str, ...]) -> None:
        super().__init__(f"the loss is not finite in step {step}: {' and '.join(terms)} broke first")
        self.step, self.terms = step, terms


class RunInUseError(TrainingError):
    """Another process works on the run."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: damaged, or of another run."""


class StoppedBySignal(Exception):  # noqa: N818 - not an error
    """Training was asked to end, saved its state, where it keeps files, and stopped.

    Attributes
    ----------
    number : int
        The signal.
    """

    def __init__(self, number: int, step: int, *, saved: bool = True) -> None:
        state = "; the state is saved" if saved else ""
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}{state}")
        self.number = number


class StopTraining(Exception):  # noqa: N818 - not an error
    """Raised by ``on_epoch`` to end a run before its end, with the reason as its message."""


class CollapseWarning(UserWarning):
    """The predictions on the target are spread over far fewer classes than the source has."""
