"""What the steps of an epoch were like, summed up on the device so that no step waits for it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bures.training._errors import NonFiniteLossError

__all__ = ["StepRecord"]


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
        self._sums: dict[tuple[str, ...], tuple[Tensor, int]] = {}
        self._bad: dict[tuple[str, ...], Tensor] = {}

    def add(
        self,
        step: int,
        losses: Mapping[str, Tensor],
        others: Mapping[str, Tensor] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Add the values of a step; ``losses`` are watched."""
        names = (*losses, *(others or {}))
        parts = [value.detach() for value in (*losses.values(), *(others or {}).values())]
        wide = torch.float32 if parts[0].device.type == "mps" else torch.float64  # Apple's GPUs lack float64
        values = torch.stack([part.to(wide) for part in parts])
        total, count = self._sums.get(names, (torch.zeros_like(values), 0))
        self._sums[names] = (total + values, count + 1)
        watched = tuple(losses)
        bad = self._bad.get(watched)
        if bad is None:
            bad = torch.full((len(watched),), -1, dtype=torch.int64, device=values.device)
        self._bad[watched] = torch.where((bad < 0) & ~values[: len(watched)].isfinite(), step, bad)
        self.weights = dict(weights or {})

    def means(self) -> dict[str, float]:
        """The mean of each value over the steps in which it was there."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for names, (total, count) in self._sums.items():
            for name, value in zip(names, total.tolist(), strict=True):
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + count
        return {name: value / counts[name] for name, value in sums.items()}

    def check_finite(self) -> None:
        """Raise if a loss was not finite in a step that was added."""
        found: dict[str, int] = {}
        for names, bad in self._bad.items():
            found |= {name: step for name, step in zip(names, bad.tolist(), strict=True) if step >= 0}
        if not found:
            return
        first = min(found.values())
        broken = tuple(name for name, step in found.items() if step == first)
        # The sum is not finite either; it is the culprit only where no single term is.
        raise NonFiniteLossError(first, tuple(name for name in broken if name != "loss") or broken)

    def state_dict(self) -> dict[str, object]:
        """The sums, for a checkpoint."""
        return {"sums": [(list(names), total.cpu(), count) for names, (total, count) in self._sums.items()]}

    def load_state_dict(self, state: Mapping[str, object], device: torch.device) -> None:
        """Go on from the sums of a checkpoint."""
        self.reset()
        sums: list[tuple[list[str], Tensor, int]] = state["sums"]  # type: ignore[assignment]
        self._sums = {tuple(names): (total.to(device), count) for names, total, count in sums}
