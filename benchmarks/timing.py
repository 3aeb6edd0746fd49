"""Times of contestants that take turns, so that a change of the machine's pace meets all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]

WARM_UP = 6
"""Calls before the clock starts, on a GPU: `bures.losses` captures a shape at its fourth call."""


@dataclass
class Timing:
    """Milliseconds of one call, one figure for each block of calls."""

    blocks: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.blocks)

    @property
    def quartiles(self) -> list[float]:
        if len(self.blocks) < 2:
            return [self.blocks[0]] * 2
        low, _, high = statistics.quantiles(self.blocks, n=4, method="inclusive")
        return [low, high]


def value_and_gradient(loss: Loss, z_s: Tensor, z_t: Tensor) -> tuple[Tensor, Tensor]:
    z_s, z_t = z_s.detach().requires_grad_(), z_t.detach().requires_grad_()
    value = loss(z_s, z_t)
    value.backward()
    assert z_s.grad is not None
    assert z_t.grad is not None
    return value.detach(), torch.cat([z_s.grad, z_t.grad])


def time_in_turns(losses: Mapping[str, Loss], z_s: Tensor, z_t: Tensor, seconds: float) -> dict[str, Timing]:
    """Value and gradient of each, in blocks of calls taken in turns.

    ``seconds`` are spent on each contestant, not counting the warm-up; three turns at the least, or two where one turn
    takes longer than five seconds.
    """

    def block(loss: Loss, calls: int) -> float:
        _synchronise(z_s)
        start = time.perf_counter()
        for _ in range(calls):
            value_and_gradient(loss, z_s, z_t)
        _synchronise(z_s)
        return (time.perf_counter() - start) / calls

    calls, turn = {}, 0.0
    for name, loss in losses.items():
        start, warm = time.perf_counter(), 0
        while warm < (WARM_UP if z_s.is_cuda else 1) and time.perf_counter() < start + 2:
            block(loss, 1)
            warm += 1
        single = block(loss, 1)
        calls[name] = max(1, min(20, int(0.02 / single)))
        turn += single * calls[name]
    least = 3 if turn < 5 else 2
    times = {name: Timing() for name in losses}
    until = time.perf_counter() + seconds * len(losses)
    while time.perf_counter() < until or len(times[name].blocks) < least:
        for name, loss in losses.items():
            times[name].blocks.append(1e3 * block(loss, calls[name]))
    return times


def once(call: Callable[[], object], like: Tensor) -> float:
    """Milliseconds of one call."""
    _synchronise(like)
    start = time.perf_counter()
    call()
    _synchronise(like)
    return 1e3 * (time.perf_counter() - start)


def _synchronise(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()
