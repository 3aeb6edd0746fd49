"""What the steps of an epoch were like; values stay on the device until somebody asks, so that no step waits for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice

import torch
from torch import Tensor

from bures.training._errors import NonFiniteLossError

__all__ = ["StepRecord", "stacked"]


def stacked(losses: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> tuple[tuple[str, ...], int, Tensor]:
    """Names of the values of a step, how many of them are losses, and the values: one call on the device for all."""
    named = {**losses, **others}
    return tuple(named), len(losses), torch.stack([value.detach() for value in named.values()])


class StepRecord:
    """Running means of named values, and the first step in which one of the losses was not finite.

    Examples
    --------
    >>> import torch
    >>> from bures.training import StepRecord
    >>> record = StepRecord()
    >>> for number in range(2):
    ...     record.add(number, {"loss": torch.tensor(1.0 + number)})
    >>> record.means()
    {'loss': 1.5}
    """

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self.reset()

    def reset(self) -> None:
        """Forget the values."""
        # Terms come and go with their start epochs: values are summed for each set of terms by itself.
        self._sums: dict[tuple[str, ...], tuple[list[float], int]] = {}
        self._bad: dict[str, int] = {}
        self._waiting: list[tuple[int, tuple[str, ...], int, Tensor]] = []

    def add(
        self,
        step: int,
        losses: Mapping[str, Tensor],
        others: Mapping[str, Tensor] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Add the values of a step; ``losses`` are watched."""
        self.add_stacked(step, *stacked(losses, others or {}), weights)

    def add_stacked(
        self, step: int, names: tuple[str, ...], watched: int, values: Tensor, weights: Mapping[str, float] | None
    ) -> None:
        """Add the values of a step as `stacked` gives them; what is made of them waits until somebody asks."""
        self._waiting.append((step, names, watched, values))
        self.weights = dict(weights or {})

    def _read(self) -> None:
        """Take in the values that wait on the device, in their order."""
        if not self._waiting:
            return
        numbers = iter(torch.cat([values for *_, values in self._waiting]).tolist())
        for step, names, watched, _ in self._waiting:
            row = list(islice(numbers, len(names)))
            total, count = self._sums.get(names, ([0.0] * len(names), 0))
            self._sums[names] = ([a + b for a, b in zip(total, row, strict=True)], count + 1)
            for name, value in zip(names[:watched], row, strict=False):
                if not math.isfinite(value):
                    self._bad.setdefault(name, step)
        self._waiting.clear()

    def means(self) -> dict[str, float]:
        """The mean of each value over the steps in which it was there."""
        self._read()
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for names, (total, count) in self._sums.items():
            for name, value in zip(names, total, strict=True):
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + count
        return {name: value / counts[name] for name, value in sums.items()}

    def check_finite(self) -> None:
        """Raise if a loss was not finite in a step that was added."""
        self._read()
        if not self._bad:
            return
        first = min(self._bad.values())
        broken = tuple(name for name, step in self._bad.items() if step == first)
        # The sum is not finite either; it is the culprit only where no single term is.
        raise NonFiniteLossError(first, tuple(name for name in broken if name != "loss") or broken)

    def state_dict(self) -> dict[str, object]:
        """The sums, for a checkpoint."""
        self._read()
        sums = [(list(names), torch.tensor(total, dtype=torch.float64), n) for names, (total, n) in self._sums.items()]
        return {"sums": sums}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on from the sums of a checkpoint."""
        self.reset()
        sums: list[tuple[list[str], Tensor, int]] = state["sums"]  # type: ignore[assignment]
        self._sums = {tuple(names): (total.tolist(), count) for names, total, count in sums}
