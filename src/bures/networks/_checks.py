"""A check that the networks share."""

from __future__ import annotations

from torch import nn

__all__ = ["check_batch_size"]


def check_batch_size(module: nn.Module, n: int) -> None:
    """Raise if a BatchNorm over vectors would have to estimate a variance from one sample."""
    if n == 1 and any(isinstance(part, nn.BatchNorm1d) and part.training for part in module.modules()):
        raise ValueError(
            "x has one sample, and BatchNorm in training mode needs at least two to estimate a variance; use a "
            "larger batch, drop the incomplete last one, or call .eval() first"
        )
