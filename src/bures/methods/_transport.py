"""What the methods of optimal transport share: POT, an optional dependency, and the cost of pairs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bures.kernels import squared_distances, standardise

__all__ = ["import_pot", "pair_distances", "uniform"]


def import_pot(user: str) -> Any:
    """The package POT; the error where it is missing says how to get it."""
    try:
        import ot
    except ImportError as error:
        raise ImportError(f'{user} needs POT; install the extra: pip install "bures[ot]"') from error
    return ot


def pair_distances(z_s: Tensor, z_t: Tensor) -> Tensor:
    """Squared distances (n, m) of every source from every target sample."""
    a, b, scale = standardise(z_s, z_t)
    return squared_distances(a, b)[2].T * scale.square()


def uniform(n: int, like: Tensor) -> Tensor:
    """Equal weights (n,) in float64, for solvers."""
    return torch.full((n,), 1 / n, dtype=torch.float64, device=like.device)
