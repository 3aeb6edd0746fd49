"""Samples of earlier steps that join the batch where domains are compared."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bures.methods import Batch

__all__ = ["FeatureQueue"]


class FeatureQueue:
    """The last samples of both domains as the network saw them then: a small batch has few samples of a class.

    Under several devices it holds samples of the global batch, so it is the same on all of them. Its samples are fixed,
    so that a term on the joined batch pulls at the new ones by their share alone, unless it is told to take the
    ``full_gradient`` (see `bures.methods.Method.forward`; ``queue_full_gradient`` of a recipe).

    Parameters
    ----------
    length : int
        Samples of each domain that are kept.

    Examples
    --------
    >>> import torch
    >>> from bures.methods import Batch
    >>> from bures.training import FeatureQueue
    >>> queue = FeatureQueue(5)
    >>> for _ in range(3):
    ...     batch = Batch(
    ...         torch.randn(2, 4), torch.randn(2, 3), torch.tensor([0, 2]), torch.randn(2, 4), torch.randn(2, 3)
    ...     )
    ...     joined = queue.join(batch)
    >>> joined.z_s.shape, joined.y_s
    (torch.Size([6, 4]), tensor([0, 2, 0, 2, 0, 2]))
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._parts: dict[str, Tensor] = {}

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many samples of each part there are: the same from step to step once the queue is full."""
        return tuple(len(part) for part in self._parts.values())

    def join(self, batch: Batch) -> Batch:
        """The batch with the samples of the queue behind its own, which then join the queue."""
        current = batch._asdict()
        kept = {name: self._parts.get(name, part[:0].detach()).to(part.device) for name, part in current.items()}
        joined = {name: torch.cat([part, kept[name]]) for name, part in current.items()}
        self._parts = {name: self._renewed(kept[name], part.detach()) for name, part in joined.items()}
        return Batch(**joined)

    def _renewed(self, kept: Tensor, joined: Tensor) -> Tensor:
        """What is kept of the joined samples: in the memory of those before where they fill it, as CUDA graphs need."""
        newest = joined[: self.length]
        return kept.copy_(newest) if kept.shape == newest.shape else newest.clone()

    def state_dict(self) -> dict[str, Tensor]:
        """The samples, for a checkpoint: a copy, for those here change in place."""
        return {name: part.to("cpu", copy=True) for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from the samples of a checkpoint."""
        self._parts = {name: part.to(device, copy=True) for name, part in state.items()}
