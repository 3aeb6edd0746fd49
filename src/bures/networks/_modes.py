"""Training and evaluation mode, put back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluation_mode"]


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put ``module`` in evaluation mode; afterwards each part returns to the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
