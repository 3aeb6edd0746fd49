"""Training steps for the tests with several processes: functions that such a process can import."""

import torch
import torch.distributed as dist
from small_runs import pictures, vectors
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bures.methods import make_method
from bures.training import AdaptationModule, PairData, Recipe, assemble, gather_rows
from bures.training._batches import _Steps


def recipe_of(method, batch_size):
    return Recipe(method=method, network="lenet", norm="none", head="linear", batch_size=batch_size, epochs=1)


def parts(method, batch_size):
    """Network in float64 without BatchNorm, data and module; the same in every process."""
    source, target = pictures(40, seed=1), pictures(36, seed=2, shift=30, labelled=False)
    recipe = recipe_of(method, batch_size)
    _, network, inputs = assemble(recipe, 4, source.samples.shape, target.samples.shape)
    data = PairData(source, target, recipe)
    return network.double(), inputs, data, recipe


class _Objective(nn.Module):
    """DistributedDataParallel listens to ``forward``."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, step):
        return self.module.training_step(step, 0)


def step_gradients(methods_and_batches):
    """Loss and gradients, averaged over processes by torch, of the first step with each method."""
    found = []
    for method, batch_size in methods_and_batches:
        network, inputs, data, recipe = parts(method, batch_size)
        module = AdaptationModule(network, make_method(method), inputs, recipe, 1, 1).double()
        step = _Steps(data.source, data.target, data.plans, dist.get_rank(), dist.get_world_size())[0]
        parallel = DistributedDataParallel(_Objective(module))
        loss = parallel(step)
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
        found.append({"rows": len(step.x_s), "loss": loss.detach(), "gradients": gradients})
    return found


def gathered_gradients(counts, known):
    """A weight that all share, seen by rows of unequal number: gathered rows, loss and averaged gradient."""
    rank = dist.get_rank()
    rows = all_rows(counts)[sum(counts[:rank]) : sum(counts[: rank + 1])]
    weight = torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    gathered = gather_rows(weight * rows, counts if known else None)
    loss = (gathered @ gathered.T).exp().mean()
    loss.backward()
    gradient = weight.grad.clone()
    dist.all_reduce(gradient)
    numbers = gather_rows(torch.full((counts[rank],), rank), counts if known else None)
    return {
        "gathered": gathered.detach(),
        "loss": loss.detach(),
        "gradient": gradient / dist.get_world_size(),
        "numbers": numbers,
    }


def all_rows(counts):
    return vectors(sum(counts), seed=3, d=3).samples.tensor.double() / 5
