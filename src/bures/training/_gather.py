"""Batches of several devices as one, with gradients, so that a loss sees the global batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["gather_rows", "world_size"]


def world_size() -> int:
    """Number of processes that train together; 1 outside of `torch.distributed`."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(rows: Tensor, counts: Sequence[int] | None = None) -> Tensor:
    """The rows (n, ...) of all processes, in the order of their ranks; n may differ between them.

    The gradient is right when every process computes the same loss from the gathered rows and the gradients of the
    parameters are then averaged over processes, as DistributedDataParallel does: each process keeps the part of the
    gradient that belongs to its own rows, times the number of processes, and needs no further communication.

    Parameters
    ----------
    rows : Tensor (n, ...)
        Rows of this process.
    counts : sequence of int, optional
        Number of rows of each process, where it is known; None asks them, which waits for the device.

    Returns
    -------
    Tensor (N, ...)
        Rows of all processes; the tensor itself where there is one process.

    Examples
    --------
    >>> import torch
    >>> from bures.training import gather_rows
    >>> rows = torch.ones(2, 3)
    >>> gather_rows(rows) is rows
    True
    """
    if world_size() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows, _gather_counts(rows) if counts is None else list(counts))
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        largest = max(counts)
        padded = torch.cat([rows, rows.new_zeros(largest - len(rows), *rows.shape[1:])]).contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        ctx.first, ctx.count = sum(counts[: dist.get_rank()]), len(rows)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        own = gradients[0][ctx.first : ctx.first + ctx.count]
        return own * world_size(), None


def _gather_counts(rows: Tensor) -> list[int]:
    own = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(own) for _ in range(world_size())]
    dist.all_gather(counts, own)
    return [int(count) for count in counts]
