"""Which samples make up which step: a function of the seed and the step alone, so that nothing needs to be saved."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

__all__ = ["SamplePlan", "derive_seed"]


def derive_seed(*parts: int | str) -> int:
    """A seed for one purpose, from the seed of the run and the name and number of the purpose.

    Examples
    --------
    >>> from bures.training._plan import derive_seed
    >>> derive_seed(0, "source", 1) == derive_seed(0, "source", 1) != derive_seed(0, "target", 1)
    True
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()  # 56 bits: every generator takes them
    return int.from_bytes(digest, "big")


class SamplePlan:
    """The samples of one domain in every step: passes over the domain, each in an order of its own.

    A pass has n // batch_size steps; the few samples left over differ from pass to pass. The next pass begins when
    the last is used up, whatever the other domain does.

    Parameters
    ----------
    n : int
        Number of samples of the domain.
    batch_size : int
        Samples in a step.
    seed : int
        Seed of the order.
    labels : integer Tensor (n,), optional
        Draw with replacement, so that the classes are equally frequent.

    Attributes
    ----------
    device : torch.device
        Where the numbers lie. A copy to an accelerator waits for it, so a whole pass is copied at once.

    Examples
    --------
    >>> from bures.training import SamplePlan
    >>> plan = SamplePlan(10, 4, seed=0)
    >>> len(set(plan.indices(0).tolist()) | set(plan.indices(1).tolist()))
    8
    """

    def __init__(self, n: int, batch_size: int, seed: int, labels: Tensor | None = None) -> None:
        if batch_size > n:
            raise ValueError(f"batch_size={batch_size} is larger than the domain of {n} samples; accepted is up to {n}")
        self.n, self.batch_size, self.seed = n, batch_size, seed
        self.steps_per_pass = n // batch_size
        self._weights = None if labels is None else 1 / torch.bincount(labels)[labels].double()
        self._order: tuple[int, Tensor] | None = None
        self.device = torch.device("cpu")

    def indices(self, step: int) -> Tensor:
        """Numbers of the samples in a step (batch_size,), steps counted from 0."""
        number, position = divmod(step, self.steps_per_pass)
        if self._order is None or self._order[0] != number or self._order[1].device != self.device:
            self._order = (number, self._draw(number).to(self.device))
        return self._order[1][position * self.batch_size : (position + 1) * self.batch_size]

    def _draw(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, number))
        if self._weights is None:
            return torch.randperm(self.n, generator=generator)
        count = self.steps_per_pass * self.batch_size
        return torch.multinomial(self._weights, count, replacement=True, generator=generator)
