"""Training steps for the tests with several processes: functions that such a process can import."""

import os

import lightning as L
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


class _Noting(AdaptationModule):
    """Notes the numbers of its steps, and how many samples of them are its own."""

    def training_step(self, step, batch_idx):
        self.seen = [*getattr(self, "seen", []), (step.number, len(step.x_s), len(step.x_t))]
        return super().training_step(step, batch_idx)


def own_trainer(devices):
    """Steps and final weights of two epochs in a trainer that is told nothing of the library but the devices."""
    if devices > 1:
        os.environ["LOCAL_RANK"] = str(dist.get_rank())  # the processes are there already
    source, target = vectors(32, seed=1), vectors(24, seed=2, shift=1.0).hide_labels()[0]
    recipe = Recipe(
        method="ckb", head="linear", batch_size=9, epochs=2, queue=20, queue_full_gradient=True, queue_predictions=True,
        optimiser="sgd", lr=0.05, gradient_clip=0.5, precision="64-true",
    )  # fmt: skip
    _, network, inputs = assemble(recipe, 4, source.samples.shape)
    data = PairData(source, target, recipe)
    module = _Noting(network, make_method("ckb", diversity=0.3), inputs, recipe, 2, 4)
    trainer = L.Trainer(
        accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", max_epochs=2,
        precision=recipe.precision, logger=False, enable_checkpointing=False, enable_model_summary=False,
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    return {"seen": module.seen, "weights": {name: value.detach() for name, value in network.named_parameters()}}


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
