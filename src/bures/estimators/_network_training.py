"""A network trained on feature vectors in memory: the steps of `bures.training` without a trainer or a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from bures.data import Domain, TensorSamples
from bures.devices import find_device, usual_defaults
from bures.networks import Network
from bures.training import Recipe

if TYPE_CHECKING:
    from bures.training._setting import Setting

__all__ = ["TrainedNetworks", "train_networks"]


@dataclass(frozen=True)
class TrainedNetworks:
    """One network with the BatchNorm statistics for the rows of each domain, in float64 on the host."""

    source: Network
    target: Network
    history: list[dict[str, float]]
    n_steps: int


@usual_defaults()
def train_networks(
    xs: NDArray[np.float32],
    codes: NDArray[np.int64],
    xt: NDArray[np.float32] | None,
    n_classes: int,
    recipe: Recipe,
    device: str,
) -> TrainedNetworks:
    """Train the network of a recipe.

    Parameters
    ----------
    xs, codes : array (n, d), (n,)
        Source rows and their classes from 0 to K - 1.
    xt : array (m, d) or None
        Target rows; None for a method that sees the source alone.
    n_classes : int
        K.
    recipe : Recipe
        Of a method whose steps the trainer makes.
    device : str
        As in `bures.devices.find_device`.
    """
    # Lightning is imported with it, and takes a second: only who trains waits for it.
    from bures.training._prediction import with_target_statistics
    from bures.training._setting import prepare

    place = find_device(device)
    names = tuple(map(str, range(n_classes)))
    source = Domain("source", TensorSamples(torch.from_numpy(xs)), names, labels=torch.from_numpy(codes))
    other = source.samples if xt is None else TensorSamples(torch.from_numpy(xt))
    setting = prepare(source, Domain("target", other, names), None, recipe, partial=True)
    setting.data.move(place)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):  # a step seeds torch's generators
        history, n_steps = _make_steps(setting, place)
        both: tuple[Network, ...] = setting.network, setting.network
        if setting.batchnorm == "target":
            both = tuple(
                with_target_statistics(setting.network, domain.samples, setting.inputs)
                for domain in (setting.data.source, setting.data.target)
            )
    for network in both:
        # In float64 a row's probabilities do not depend on which rows are asked for beside it.
        network.cpu().double().eval()
    return TrainedNetworks(both[0], both[1], history, n_steps)


def _make_steps(setting: Setting, device: torch.device) -> tuple[list[dict[str, float]], int]:
    """Train the network of a setting in place; the mean terms of each epoch, and the number of steps."""
    from bures.training._batches import Step
    from bures.training._module import AdaptationModule

    data, recipe = setting.data, setting.recipe
    n_steps = recipe.epochs * data.steps_per_epoch
    module = AdaptationModule(
        setting.network, setting.method, setting.inputs, recipe, data.steps_per_epoch, n_steps
    ).to(device)
    module.train()
    # The schedule is left alone: the rate is constant.
    optimiser: torch.optim.Optimizer = module.configure_optimizers()["optimizer"]  # type: ignore
    assert data.source.labels is not None
    labels = data.source.labels.to(device)
    history: list[dict[str, float]] = []
    for number in range(n_steps):
        s, t = (plan.indices(number) for plan in data.plans)
        x_s, x_t = (domain.samples.take(rows).to(device) for domain, rows in ((data.source, s), (data.target, t)))
        loss = module.training_step(Step(number, x_s, labels[s.to(device)], x_t), number)
        assert loss is not None
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if module.steps_done % data.steps_per_epoch == 0:
            module.check_finite()
            history.append(module.record.means())
            module.record.reset()
    return history, n_steps
