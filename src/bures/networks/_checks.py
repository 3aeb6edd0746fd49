"""Checks that the networks share."""

from __future__ import annotations

import operator

from torch import nn

__all__ = ["check_batch_size", "check_count"]


def check_count(name: str, value: object, *, minimum: int = 1) -> int:
    """Return ``value`` as an int; raise unless it is an integer of at least ``minimum``."""
    accepted = f"accepted is an integer of at least {minimum}"
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is not an integer; {accepted}")
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"{name}={value!r} is not an integer; {accepted}") from error
    if count < minimum:
        raise ValueError(f"{name}={count} is out of range; {accepted}")
    return count


def check_batch_size(module: nn.Module, n: int) -> None:
    """Raise if a BatchNorm over vectors would have to estimate a variance from one sample."""
    if n == 1 and any(isinstance(part, nn.BatchNorm1d) and part.training for part in module.modules()):
        raise ValueError(
            "x has one sample, and BatchNorm in training mode needs at least two to estimate a variance; use a "
            "larger batch, drop the incomplete last one, or call .eval() first"
        )
