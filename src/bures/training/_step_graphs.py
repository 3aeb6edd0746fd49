"""The forward and backward pass of a training step as one CUDA graph, replayed without launching kernels one by one.

A step of a small network is some hundred short kernels, and the GPU waits for the host to launch each of them. A graph
is captured once for each set of terms that count, after a few steps that run as they are, and replayed from then on.
Random numbers are those of a step without a graph: the generators are seeded before each replay, which reads their
state. The optimiser stays outside: it is one launch, and its rate changes from step to step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bures.arrays import full_precision
from bures.cuda_graphs import CAPTURE_ERRORS, no_collection
from bures.training._batches import Step
from bures.wording import first_line_of

__all__ = ["Outcome", "StepGraphs"]

STEPS_BEFORE_CAPTURE = 3  # libraries allocate their workspaces on first use, which must not happen inside a capture


class Outcome(NamedTuple):
    """The loss of a step, and what is recorded of it: values by name, of which the first ``n_losses`` are watched."""

    loss: Tensor
    names: tuple[str, ...]
    n_losses: int
    values: Tensor


Compute = Callable[[Step, Mapping[str, float | Tensor]], Outcome]


def _backward(loss: Tensor) -> None:
    """The gradients of a loss, each operation in the precision of its forward pass.

    A step in mixed precision is made inside of autocast, which would take gradients of losses in full precision, such
    as the distances, through products in half of it.
    """
    with full_precision(loss):
        loss.backward()  # type: ignore[no-untyped-call]


class StepGraphs:
    """Makes the gradients of training steps, from graphs where these can serve.

    Parameters
    ----------
    compute : callable
        The loss of a step with given weights of its terms. To be captured it must not look at values on the host, keep
        tensors of one step for the next other than by writing in place, or depend on the number of the step.
    parameters : iterable of Parameter
        What gets gradients.
    generators : iterable of Generator
        Generators of the device that ``compute`` draws from, other than the default one.
    capture : bool
        Whether ``compute`` keeps to this; otherwise every step runs as it is.
    """

    def __init__(
        self,
        compute: Compute,
        parameters: Iterable[nn.Parameter],
        generators: Iterable[torch.Generator] = (),
        *,
        capture: bool,
    ) -> None:
        self.compute, self.parameters, self.generators = compute, list(parameters), list(generators)
        self.capture = capture
        self._seen: dict[tuple[object, ...], int] = {}
        self._graphs: dict[tuple[object, ...], _StepGraph] = {}

    def backward(self, step: Step, weights: Mapping[str, float], sizes: tuple[int, ...] = ()) -> Outcome:
        """The outcome of a step; the gradients of its loss are those of the parameters afterwards.

        ``sizes`` are those of what ``compute`` reads beside the step: a graph serves for one set of them.
        """
        key = (tuple(weights), sizes, *((part.shape, part.dtype) for part in (step.x_s, step.y_s, step.x_t)))
        if self.capture and key not in self._graphs:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] > STEPS_BEFORE_CAPTURE:
                self._capture(key, step, weights)
        if key in self._graphs:
            return self._graphs[key].replay(step, weights)
        self._forget_gradients()
        outcome = self.compute(step, weights)
        _backward(outcome.loss)
        return outcome

    def _capture(self, key: tuple[object, ...], step: Step, weights: Mapping[str, float]) -> None:
        self._forget_gradients()  # a backward pass into no gradient writes it, one into a gradient would add to it
        try:
            self._graphs[key] = _StepGraph(self, step, weights)
        except (RuntimeError, AttributeError) as error:  # the latter: a torch that knows no generators in graphs
            self.capture = False
            reason = first_line_of(error)
            warnings.warn(f"training steps run without CUDA graphs, their capture failed: {reason}", stacklevel=3)

    def forget(self) -> None:
        """Give up the graphs, and the gradients, which lie in their memory."""
        self._graphs.clear()
        self._forget_gradients()

    def _forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


class _StepGraph:
    """A step in fixed memory."""

    def __init__(self, owner: StepGraphs, step: Step, weights: Mapping[str, float]) -> None:
        self.parameters = owner.parameters
        self.inputs = [part.clone() for part in (step.x_s, step.y_s, step.x_t)]
        dtype = next((p.dtype for p in self.parameters), torch.float32)
        self.known = tuple(weights.values())
        self.weights = torch.tensor(self.known, dtype=dtype, device=step.x_s.device)
        named = dict(zip(weights, self.weights.unbind(), strict=True))
        self.graph = torch.cuda.CUDAGraph()
        for generator in owner.generators:
            self.graph.register_generator_state(generator)
        x_s, y_s, x_t = self.inputs
        with no_collection(), torch.cuda.graph(self.graph, capture_error_mode=CAPTURE_ERRORS):
            self.outcome = owner.compute(Step(step.number, x_s, y_s, x_t), named)
            _backward(self.outcome.loss)
        self.gradients = [parameter.grad for parameter in self.parameters]
        self.outcome = self.outcome._replace(loss=self.outcome.loss.detach())

    def replay(self, step: Step, weights: Mapping[str, float]) -> Outcome:
        for static, given in zip(self.inputs, (step.x_s, step.y_s, step.x_t), strict=True):
            static.copy_(given)
        if (values := tuple(weights.values())) != self.known:  # a copy from the host waits for the device
            self.known = values
            self.weights.copy_(torch.tensor(values, dtype=self.weights.dtype))
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.outcome._replace(values=self.outcome.values.clone())
