"""Conditional kernel Wasserstein on moments of many batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register
from bures.methods._terms import prediction_terms
from bures.running_losses import RunningCKWLoss

__all__ = ["running_ckw"]


@register("ckw-running", matches="conditional", paper="this library", cost="nD² + D³")
def running_ckw(
    *,
    entropy: float = 0.5,
    diversity: float = 0.0,
    confusion: float = 0.0,
    neighbours: float = 0.0,
    n_neighbours: int = 2,
    weight: float = 1.0,
    means: float = 1.0,
    eps: float = 1e-2,
    decay: float = 0.9,
    waves: int = 256,
    full_gradient: bool = False,
    start: float = 0.0,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""CKW on running moments: :math:`CE + \lambda_1 Ent + \lambda_2 (CKB + \mu M)`, both from decayed moments.

    For more classes than a batch has samples of. Each step fades the moments of both domains by ``decay`` and adds the
    batch, through which the gradient flows, with ``full_gradient`` as if the moments were those of new samples alone;
    see `bures.RunningCKWLoss`, of which ``waves`` is the number of random features. Default options are ours.
    """
    terms = prediction_terms(entropy, diversity, confusion, neighbours, n_neighbours, entropy_start, ramp)
    alignment = RunningTerm(
        Schedule(weight, start, ramp), means=means, eps=eps, decay=decay, n_waves=waves, full_gradient=full_gradient
    )
    return Method("ckw-running", [*terms, alignment])


class RunningTerm(Term):
    """The distance of running moments; it has a memory of its own and needs no queue."""

    joins_queue = False

    loss: RunningCKWLoss | None

    def __init__(self, schedule: Schedule, **options: Any) -> None:
        super().__init__("ckw", schedule)
        self.options = options
        RunningCKWLoss(1, 1, **options)  # options that are out of range are refused now
        self.loss = None

    def setup(self, n_features: int, n_classes: int) -> None:
        """Make room for the moments."""
        if self.loss is None:
            self.loss = RunningCKWLoss(n_features, n_classes, **self.options)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        self.setup(batch.z_s.shape[1], batch.logits_s.shape[1])
        assert self.loss is not None
        if self.loss.waves.device != batch.z_s.device:
            self.loss.to(batch.z_s.device)
        value: Tensor = self.loss(batch.z_s, batch.y_s, batch.z_t, batch.p_t.detach())
        return value
