"""Methods that make their own training steps: what they are given for a step, and what they give back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from bures.methods._method import Batch, Method, Objective
from bures.networks import Network

__all__ = ["NETWORK", "OwnStep", "OwnTraining", "StepReport"]

NETWORK = "network"
"""Name of the recipe's optimiser, of the network and of the terms of the method."""


class OwnStep(NamedTuple):
    """What a method that makes its own steps is given for one.

    Attributes
    ----------
    number, n_steps : int
        The step, counted from 0, and the length of the training.
    x_s, y_s, x_t : Tensor
        Source samples, their labels and target samples: images (n, C, H, W) from 0 to 1, augmented as the recipe says
        and not yet normalised, or feature vectors (n, d).
    network : Network
        What is trained.
    normalise : callable
        From samples to what the network takes; differentiable.
    forward : callable
        ``forward(x_s, x_t)`` gives the `Batch` of samples in place of those above, one domain after the other or both
        together as the recipe says.
    cross_entropy : callable
        ``cross_entropy(logits, labels)`` with the recipe's label smoothing.
    update : callable
        ``update(name, loss, rate=1.0)`` makes one step of an optimiser down the gradient of a loss with respect to the
        parameters of that optimiser and no others, at its learning rate times ``rate``.
    """

    number: int
    n_steps: int
    x_s: Tensor
    y_s: Tensor
    x_t: Tensor
    network: Network
    normalise: Callable[[Tensor], Tensor]
    forward: Callable[[Tensor, Tensor], Batch]
    cross_entropy: Callable[[Tensor, Tensor], Tensor]
    update: Callable[..., None]


class StepReport(NamedTuple):
    """What a step came to: its losses by name and their weights, and the share of source samples that were right."""

    losses: Mapping[str, Tensor]
    weights: Mapping[str, float]
    source_accuracy: Tensor


class OwnTraining(Method):
    """A method that makes its own training steps, with optimisers of its own beside the recipe's.

    A subclass has networks as submodules, made in `prepare`; names its optimisers in ``optimiser_names`` and makes them
    in `make_optimisers`; and makes a step in `step`, which may do something else in another part of the training. All
    of its state must lie in parameters, buffers and optimisers or follow from the number of the step: that is what a
    checkpoint keeps.

    A recipe's ``queue`` and ``consistency`` belong to the steps of the trainer and have no effect here.

    `terms` work as those of other methods do, with parameters in the optimiser of the network; it is for `step` to
    compute them.
    """

    owns_training = True
    optimiser_names: ClassVar[tuple[str, ...]] = ()

    def make_optimisers(self) -> dict[str, Optimizer]:
        """The optimisers, by ``optimiser_names``, each over parameters of its own; none unless a subclass has some."""
        return {}

    def step(self, at: OwnStep) -> StepReport:
        """Make one training step."""
        raise NotImplementedError

    def shared_parameters(self) -> list[nn.Parameter]:
        """Parameters for the optimiser of the network: those of the terms."""
        return [parameter for parameter in self.terms.parameters() if parameter.requires_grad]

    def forward(self, *args: Any, **options: Any) -> Objective:
        """Refuse: there is no sum of terms that a loop could add to the cross-entropy."""
        raise TypeError(
            f"method {self.name!r} makes its own training steps and has no loss to add to the source's; "
            "train with bures.training.adapt or `bures adapt`"
        )
