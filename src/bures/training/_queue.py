"""Samples of earlier steps that join the batch where domains are compared."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bures.methods import Batch

__all__ = ["FeatureQueue"]


class FeatureQueue:
    """The last samples of both domains as the network saw them then: a small batch has few samples of a class.

    Under several devices it holds samples of the global batch, so it is the same on all of them.

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

    def join(self, batch: Batch) -> Batch:
        """The batch with the samples of the queue behind its own, which then join the queue."""
        current = batch._asdict()
        kept = self._parts or {name: part[:0].detach() for name, part in current.items()}
        self._parts = {
            name: torch.cat([part.detach(), kept[name]])[: self.length].clone() for name, part in current.items()
        }
        return Batch(**{name: torch.cat([part, kept[name]]) for name, part in current.items()})

    def state_dict(self) -> dict[str, Tensor]:
        """The samples, for a checkpoint."""
        return {name: part.cpu() for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from the samples of a checkpoint."""
        self._parts = {name: part.to(device) for name, part in state.items()}
