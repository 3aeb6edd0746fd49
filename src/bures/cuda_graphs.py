"""A loss and its gradient as one CUDA graph, replayed without launching kernels one by one.

A distance between two batches of a few hundred samples is some hundred small kernels, and a GPU spends its time waiting
for their launches. The gradient of a loss is its value's gradient times the incoming one, so value and gradient can be
computed together, captured once for each shape, and replayed. Outputs are copied out of the graph, so that a loss may
be called several times before its backward.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from bures.arrays import is_transformed

__all__ = ["CAPTURE_ERRORS", "GraphCache", "no_collection"]

CALLS_BEFORE_CAPTURE = 3  # a shape seen less often (the last batch of an epoch) is not worth a capture
MOST_GRAPHS = 8  # each holds its own memory
CAPTURE_ERRORS = "thread_local"  # a loader's thread may ask for pinned memory meanwhile: that is no part of the graph
LARGEST_BATCH = 2048  # beyond it the arithmetic dominates, and memory is better not held


class GraphCache:
    """The graphs of one loss, by the shapes it was called with.

    The first calls of each shape run as they are, which also checks the values; replays do not look at values, and
    non-finite input gives a non-finite loss.
    """

    def __init__(self) -> None:
        self._calls: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, _CapturedLoss] = {}
        self._failed = False

    def run(self, loss: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """``loss(*tensors)``, from a graph where one can serve; ``loss`` must be the same function every time."""
        if not _can_capture(tensors):
            return loss(*tensors)
        key = tuple((t.shape, t.dtype, t.device, t.requires_grad) for t in tensors)
        if key not in self._graphs:
            self._calls[key] = self._calls.get(key, 0) + 1
            if self._calls[key] <= CALLS_BEFORE_CAPTURE or len(self._graphs) >= MOST_GRAPHS or self._failed:
                return loss(*tensors)
            try:
                self._graphs[key] = _CapturedLoss(loss, tensors)
            except RuntimeError as error:
                self._failed = True
                warnings.warn(f"the loss runs without CUDA graphs, its capture failed: {error}", stacklevel=4)
                return loss(*tensors)
        value: Tensor = _Replay.apply(self._graphs[key], *tensors)
        return value

    def __reduce__(self) -> tuple[type[GraphCache], tuple[()]]:
        return GraphCache, ()  # a copy starts empty: graphs belong to the memory they were captured in


def _can_capture(tensors: tuple[Tensor, ...]) -> bool:
    return (
        all(t.is_cuda and len(t) <= LARGEST_BATCH for t in tensors)
        and torch.is_grad_enabled()
        and any(t.requires_grad for t in tensors)
        and not torch.compiler.is_compiling()
        and not is_transformed()
        and not torch.cuda.is_current_stream_capturing()
    )


class _CapturedLoss:
    """A loss and its gradients in fixed memory."""

    def __init__(self, loss: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> None:
        self.loss = loss
        self.inputs = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
        self.wanted = [t for t in self.inputs if t.requires_grad]
        # Libraries allocate their workspaces on first use of a stream. All graphs have one stream, and it has been used
        # when the capture begins: the memory of a graph is then what the loss needs, without a workspace of its own.
        side = _capture_stream(self.inputs[0].device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                torch.autograd.grad(loss(*self.inputs), self.wanted)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with no_collection(), torch.cuda.graph(self.graph, stream=side, capture_error_mode=CAPTURE_ERRORS):
            value = loss(*self.inputs)
            self.gradients = torch.autograd.grad(value, self.wanted)
            self.value = value.detach()

    def replay(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        for static, given in zip(self.inputs, tensors, strict=True):
            static.data.copy_(given)
        self.graph.replay()
        return self.value.clone(), [gradient.clone() for gradient in self.gradients]


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def no_collection() -> Iterator[None]:
    """Hold the garbage collector: another graph that it frees during a capture makes the capture invalid."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, captured: _CapturedLoss, *tensors: Tensor) -> Tensor:
        value, gradients = captured.replay(tensors)
        ctx.captured = captured
        ctx.save_for_backward(*tensors, *gradients)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.captured.inputs)
        tensors, gradients = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        wanted = [t for t in tensors if t.requires_grad]
        if torch.is_grad_enabled():  # a second derivative is wanted, which the graph does not hold
            gradients = torch.autograd.grad(ctx.captured.loss(*tensors), wanted, grad, create_graph=True)
        else:
            gradients = [grad * gradient for gradient in gradients]
        given = iter(gradients)
        return None, *(next(given) if t.requires_grad else None for t in tensors)
