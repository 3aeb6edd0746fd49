"""The steps of methods that make their own: what the trainer gives them, and what it does with what they report."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from bures.arrays import at_least_float32
from bures.methods import Batch, Method, OwnStep, OwnTraining
from bures.methods._own_training import NETWORK
from bures.training._batches import Step
from bures.training._inputs import Inputs
from bures.training._recipe import Recipe

if TYPE_CHECKING:
    from bures.training._module import AdaptationModule

__all__ = ["make_own_step", "own_optimisers", "sample_shape", "warn_of_what_is_ignored"]

IGNORED = ("queue", "consistency")  # fields of a recipe that belong to the steps of the trainer


def sample_shape(inputs: Inputs, in_features: int | None) -> tuple[int, ...]:
    """Shape (C, H, W) of the images, or (d,) of the feature vectors, that a network sees in training."""
    if inputs.preprocessing is None or inputs.image_size is None:
        return (in_features or 0,)
    side = inputs.training_size or inputs.image_size
    return (inputs.preprocessing.channels, side, side)


def warn_of_what_is_ignored(method: Method, recipe: Recipe) -> None:
    """Say which fields of a recipe have no effect, because the method makes its own steps."""
    ignored = [f"{name}={getattr(recipe, name)!r}" for name in IGNORED if getattr(recipe, name) > 0]
    if method.owns_training and ignored:
        warnings.warn(
            f"method {method.name!r} makes its own training steps: {' and '.join(ignored)} has no effect on it",
            UserWarning,
            stacklevel=2,
        )


def own_optimisers(method: Method, optimiser: Optimizer) -> list[Optimizer]:
    """The optimiser of the network, which comes first, and those of the method in the order of their names."""
    assert isinstance(method, OwnTraining)
    made = method.make_optimisers()
    found = [optimiser, *(made[name] for name in method.optimiser_names)]
    for one in found:
        for group in one.param_groups:
            group["initial_lr"] = group["lr"]
    return found


def make_own_step(module: AdaptationModule, step: Step, generator: torch.Generator) -> None:
    """Let the method make one step, and add what it reports to the record."""
    method, recipe = module.method, module.recipe
    assert isinstance(method, OwnTraining)
    x_s, x_t = (_samples(module.inputs, x, generator).to(module.dtype) for x in (step.x_s, step.x_t))
    normalise = module.inputs.preprocessing or _as_they_are

    def forward(first: Tensor, second: Tensor) -> Batch:
        return module.forward_domains(normalise(first), step.y_s, normalise(second)).widened()

    def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(at_least_float32(logits), labels, label_smoothing=recipe.label_smoothing)

    report = method.step(
        OwnStep(
            number=step.number,
            n_steps=module.n_steps,
            x_s=x_s,
            y_s=step.y_s,
            x_t=x_t,
            network=module.network,
            normalise=normalise,
            forward=forward,
            cross_entropy=cross_entropy,
            update=_updates(module, method, step.number),
        )
    )
    module.record.add(step.number, report.losses, {"source_accuracy": report.source_accuracy}, report.weights)


def _updates(module: AdaptationModule, method: OwnTraining, number: int) -> Callable[..., None]:
    found = module.optimizers()
    optimisers = found if isinstance(found, list) else [found]  # Lightning gives a single one as it is
    names = (NETWORK, *method.optimiser_names)

    def update(name: str, loss: Tensor, rate: float = 1.0) -> None:
        optimiser = optimisers[names.index(name)]
        if name == NETWORK:
            rate *= module.rate(number)
        parameters = []
        for group in optimiser.param_groups:
            group["lr"] = rate * group["initial_lr"]
            parameters += group["params"]
        optimiser.zero_grad()
        module.manual_backward(loss, inputs=parameters)
        module.clip_gradient(optimiser.param_groups)
        optimiser.step()

    return update


def _samples(inputs: Inputs, x: Tensor, generator: torch.Generator) -> Tensor:
    """Images from 0 to 1, changed at random, with the channels of the network; feature vectors as they are."""
    if inputs.preprocessing is None:
        return x
    return inputs.changed(x, generator).expand(-1, inputs.preprocessing.channels, -1, -1)


def _as_they_are(x: Tensor) -> Tensor:
    return x
