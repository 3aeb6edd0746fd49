"""The training step on Lightning: cross-entropy on the source plus what a method makes of both domains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from bures.arrays import at_least_float32, checks_values
from bures.methods import Batch, Method, Objective
from bures.networks import Network
from bures.training._batches import PairData, Step
from bures.training._errors import NonFiniteLossError
from bures.training._gather import gather_rows, world_size
from bures.training._inputs import Inputs
from bures.training._own_steps import make_own_step, own_optimisers
from bures.training._passes import Passes
from bures.training._plan import derive_seed
from bures.training._queue import FeatureQueue
from bures.training._recipe import Recipe
from bures.training._record import StepRecord, stacked
from bures.training._step_graphs import Outcome, StepGraphs

__all__ = ["AdaptationModule"]

CHECK_EVERY = 50  # steps between looks at the record on an accelerator, where each look waits for the device


def _seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of the host and of the device.

    `torch.manual_seed` seeds those of every kind of accelerator; for kinds that are not there it remembers the call
    with its traceback, which takes a third of the time of a small network's step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def _parameters(groups: list[dict[str, Any]]) -> list[nn.Parameter]:
    return [parameter for group in groups for parameter in group["params"]]


class AdaptationModule(L.LightningModule):
    """A network that learns from a labelled source and an unlabelled target.

    Parameters
    ----------
    network : Network
        What is trained.
    method : Method
        What both domains add to the source's cross-entropy, after ``method.setup(d, K)`` for d features (the head's
        ``out_features``) and K classes.
    inputs : Inputs
        What is done to samples before the network sees them.
    recipe : Recipe
        Optimiser, schedule, forwarding and seed are read.
    steps_per_epoch : int
        Length of an epoch; schedules of the method's terms count in epochs.
    n_steps : int
        Length of the training.
    direct : bool, optional
        Make the step at the end of `training_step`, past the trainer's hooks around backward and optimiser: for one
        device, where they have nothing to do and take a third of the time of a small network's step.

    Attributes
    ----------
    steps_done : int
        Steps made so far, over resumptions.
    record : StepRecord
        Means of the terms since the record was last read.
    queue : FeatureQueue or None
        Samples of earlier steps, where the recipe wants them.
    """

    def __init__(
        self,
        network: Network,
        method: Method,
        inputs: Inputs,
        recipe: Recipe,
        steps_per_epoch: int,
        n_steps: int,
        *,
        direct: bool = False,
    ) -> None:
        super().__init__()
        self.network, self.method, self.inputs, self.recipe = network, method, inputs, recipe
        self.steps_per_epoch, self.n_steps = steps_per_epoch, n_steps
        self.steps_done = 0
        self.passes = Passes(network, recipe.compile)
        self.record = StepRecord()
        queued = recipe.queue > 0 and method.needs_target and not method.owns_training
        self.queue = FeatureQueue(recipe.queue) if queued else None
        self._generator: torch.Generator | None = None
        self._graphs: StepGraphs | None = None
        self.automatic_optimization = not (method.owns_training or direct)

    def transfer_batch_to_device(self, batch: Step, device: torch.device, dataloader_idx: int) -> Step:
        """The batch as it is where it lies on the device already, as samples in memory do."""
        if batch.x_s.device == batch.y_s.device == batch.x_t.device == device:
            return batch
        moved: Step = super().transfer_batch_to_device(batch, device, dataloader_idx)
        return moved

    def training_step(self, step: Step, batch_idx: int) -> Tensor | None:
        """The objective of one step; None where the step has been made."""
        loss = self._make_step(step)
        self.steps_done = step.number + 1
        if self.steps_done % self.steps_per_epoch == 0:  # a checkpoint may be written before the epoch is said to end
            self._move_data_on()
        return loss

    def on_train_epoch_end(self) -> None:
        """Tell the data where the next epoch begins, after the callbacks have looked at this one."""
        self._move_data_on()

    def _move_data_on(self) -> None:
        data = getattr(self._trainer, "datamodule", None)
        if isinstance(data, PairData):
            data.first_step = self.steps_done

    def progress(self) -> dict[str, Any]:
        """What a checkpoint keeps beside weights: the steps done, and what later ones need of them."""
        queue = {} if self.queue is None else self.queue.state_dict()
        return {"step": self.steps_done, "record": self.record.state_dict(), "queue": queue}

    def go_on_from(self, progress: Mapping[str, Any]) -> None:
        """Go on from the progress of a checkpoint."""
        self.steps_done = progress["step"]
        self.record.load_state_dict(progress["record"])
        if self.queue is not None:
            self.queue.load_state_dict(progress["queue"], self.device)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the progress to a checkpoint of Lightning's trainer; those of `adapt` are its own."""
        checkpoint["progress"] = self.progress()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the progress from a checkpoint of Lightning's trainer, and be ready for its weights."""
        if "progress" in checkpoint:  # those of earlier versions have none
            self.go_on_from(checkpoint["progress"])
        # It reads weights before it converts the module: those in float64 would be rounded to float32.
        if self._trainer is not None and self._trainer.precision == "64-true":
            self.double()

    def _make_step(self, step: Step) -> Tensor | None:
        # Random numbers depend on the step alone: dropout and augmentation after a resumption are what they were.
        _seed_generators(derive_seed(self.recipe.seed, "step", step.number, self.global_rank), step.x_s.device)
        generator = self._step_generator(step.number, step.x_s.device)
        if self.method.owns_training:
            make_own_step(self, step, generator)
            self._look_at_record(step)
            return None
        weights = self.method.weights(step.number / self.steps_per_epoch, step.number / self.n_steps)
        if self.recipe.consistency > 0 and self.method.needs_target:
            weights["consistency"] = self.recipe.consistency
        if self.automatic_optimization:
            outcome = self._outcome(step, weights)
        else:
            outcome = self._gradients().backward(step, weights, () if self.queue is None else self.queue.sizes)
        self.record.add_stacked(step.number, outcome.names, outcome.n_losses, outcome.values, weights)
        self._look_at_record(step)
        if self.automatic_optimization:
            return outcome.loss
        self._update()
        return None

    def _gradients(self) -> StepGraphs:
        if self._graphs is None:
            (optimiser,) = self.trainer.optimizers
            wanted = self.recipe.cuda_graphs and self.recipe.precision != "64-true" and self.device.type == "cuda"
            capture = wanted and self.method.capturable
            assert self._generator is not None
            self._graphs = StepGraphs(
                self._outcome, _parameters(optimiser.param_groups), [self._generator], capture=capture
            )
        return self._graphs

    def forget_graphs(self) -> None:
        """Give back the memory that the graphs of the steps hold, gradients among it."""
        if self._graphs is not None:
            self._graphs.forget()
            self._graphs = None

    def _outcome(self, step: Step, weights: Mapping[str, float | Tensor]) -> Outcome:
        """The loss of a step, with what is recorded of it."""
        assert self._generator is not None
        own, second = self._forward(step, self._generator, second_view="consistency" in weights)
        batch = self._global_batch(own)
        cross_entropy = F.cross_entropy(batch.logits_s, batch.y_s, label_smoothing=self.recipe.label_smoothing)
        objective = self._objective(batch, step.number, weights)
        if second is not None:
            objective = self._with_consistency(objective, batch, second)
        loss: Tensor = cross_entropy + objective.total
        with torch.no_grad():
            right = (batch.logits_s.argmax(dim=1) == batch.y_s).float().mean()
        losses = {"loss": loss, "cross_entropy": cross_entropy, **objective.values}
        return Outcome(loss, *stacked(losses, {"source_accuracy": right}))

    def clip_gradient(self, groups: list[dict[str, Any]]) -> None:
        """Shorten the gradient of an optimiser's groups of parameters to the length in the recipe, if there is one."""
        if self.recipe.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(_parameters(groups), self.recipe.gradient_clip)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the recipe, and by what a trainer of one's own was told.

        The trainer's own clipping refuses to in mixed precision, lest fused optimisers scale gradients.
        """
        self.clip_gradient(optimizer.param_groups)
        if gradient_clip_val is not None and gradient_clip_val > 0:  # zero is the trainer's word for none
            parameters = _parameters(optimizer.param_groups)
            if gradient_clip_algorithm == "value":
                torch.nn.utils.clip_grad_value_(parameters, gradient_clip_val)
            else:
                torch.nn.utils.clip_grad_norm_(parameters, gradient_clip_val)

    def _update(self) -> None:
        """What the trainer does with gradients, without its hooks."""
        (optimiser,), (schedule,) = self.trainer.optimizers, self.trainer.lr_scheduler_configs
        self.clip_gradient(optimiser.param_groups)
        optimiser.step()
        assert isinstance(schedule.scheduler, torch.optim.lr_scheduler.LambdaLR)
        schedule.scheduler.step()

    def _look_at_record(self, step: Step) -> None:
        if step.x_s.device.type == "cpu" or step.number % CHECK_EVERY == 0:
            self.record.check_finite()

    def _objective(self, batch: Batch, number: int, weights: Mapping[str, float | Tensor]) -> Objective:
        joined = batch if self.queue is None else self.queue.join(batch)
        try:
            objective = self.method.objective(
                batch,
                weights,
                joined,
                join_predictions=self.recipe.queue_predictions,
                full_gradient=self.recipe.queue_full_gradient,
            )
        except (ValueError, RuntimeError) as error:  # distances refuse samples that are not finite
            if not checks_values() or all(bool(part.isfinite().all()) for part in batch):
                raise
            raise NonFiniteLossError(number, ("the output of the network",)) from error
        return objective

    def _with_consistency(self, objective: Objective, batch: Batch, logits: Tensor) -> Objective:
        """The objective with the cross-entropy between the predictions of two views of the target."""
        first = batch.p_t.detach()
        # Not "at least as large": predictions that are not finite must not pass for uncertain ones.
        certain = ~(first.amax(dim=1) < self.recipe.consistency_threshold)
        each = F.cross_entropy(self._gather(at_least_float32(logits)), first, reduction="none")
        # A mean over all images, certain or not: few certain ones do not get the weight of many.
        value = torch.where(certain, each, 0.0).mean()
        total = objective.total + objective.weights["consistency"] * value
        return Objective(total, {**objective.values, "consistency": value}, objective.weights)

    def _forward(self, step: Step, generator: torch.Generator, *, second_view: bool) -> tuple[Batch, Tensor | None]:
        """The batch of a step, and the logits of a second view of its target where one is asked for."""
        x_s = self.inputs.training(step.x_s, generator).to(self.dtype)
        if not self.method.needs_target:
            z_s, logits_s = self.passes.one(x_s)
            return Batch(z_s, logits_s, step.y_s, z_s[:0], logits_s[:0]), None
        x_t = self.inputs.training(step.x_t, generator).to(self.dtype)
        if not second_view:
            return self.forward_domains(x_s, step.y_s, x_t), None
        again = self.inputs.training_again(step.x_t, generator).to(self.dtype)
        if self.recipe.joint_forward:
            return self.forward_domains(x_s, step.y_s, x_t), self.passes.one(again).logits
        (z_s, logits_s), (z_t, logits_t), second = self.passes.each(x_s, x_t, again)
        return Batch(z_s, logits_s, step.y_s, z_t, logits_t), second.logits

    def forward_domains(self, x_s: Tensor, y_s: Tensor, x_t: Tensor) -> Batch:
        """The batch of samples as the network takes them, one domain after the other or both together."""
        if self.recipe.joint_forward:
            z, logits = self.passes.one(torch.cat([x_s, x_t]))
            n = len(x_s)
            return Batch(z[:n], logits[:n], y_s, z[n:], logits[n:])
        (z_s, logits_s), (z_t, logits_t) = self.passes.each(x_s, x_t)
        return Batch(z_s, logits_s, y_s, z_t, logits_t)

    def _step_generator(self, number: int, device: torch.device) -> torch.Generator:
        if self._generator is None or self._generator.device != device:
            self._generator = torch.Generator(device)
        return self._generator.manual_seed(derive_seed(self.recipe.seed, "augment", number, self.global_rank))

    def _global_batch(self, batch: Batch) -> Batch:
        """The batch of all devices. Losses stay in full precision whatever the network computes in."""
        return Batch(*(self._gather(part) for part in batch.widened()))

    def _gather(self, part: Tensor) -> Tensor:
        """The rows of all devices: each has its part of the batch, or nothing where the method needs no target."""
        if world_size() == 1:
            return part
        counts = [len(rows) for rows in torch.empty(self.recipe.batch_size).tensor_split(world_size())]
        return gather_rows(part, counts if len(part) else [0] * len(counts))

    def check_finite(self) -> None:
        """Raise unless the losses of all steps and the weights they led to are finite; waits for the device."""
        self.record.check_finite()
        values = [*self.network.state_dict().values(), *self.method.state_dict().values()]
        if not bool(torch.stack([value.isfinite().all() for value in values]).all()):
            raise NonFiniteLossError(self.steps_done - 1, ("the gradient",))  # of a loss that is finite

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The recipe's optimiser and schedule, over the parameters of the network and of the method."""
        recipe = self.recipe
        groups = self.network.parameter_groups(recipe.lr, recipe.backbone_factor, recipe.head_factor)
        if own := self.method.shared_parameters():
            groups.append({"params": own, "lr": recipe.lr * recipe.head_factor, "name": "method"})
        # Fused: one launch on a GPU, and one pass over the memory on a CPU.
        decay, fused = recipe.weight_decay, self.device.type in ("cpu", "cuda")
        optimiser: torch.optim.Optimizer
        if recipe.optimiser == "sgd":
            nesterov = recipe.nesterov and recipe.momentum > 0
            optimiser = torch.optim.SGD(
                groups, momentum=recipe.momentum, nesterov=nesterov, weight_decay=decay, fused=fused
            )
        else:
            kind = torch.optim.AdamW if recipe.optimiser == "adamw" else torch.optim.Adam
            optimiser = kind(groups, weight_decay=decay, fused=fused)
        if self.method.owns_training:
            return own_optimisers(self.method, optimiser)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, self.rate)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def rate(self, step: int) -> float:
        """Factor of the learning rate after a number of steps, by the recipe's schedule."""
        recipe = self.recipe
        if recipe.schedule == "inverse":
            return float((1 + recipe.schedule_gamma * step) ** -recipe.schedule_power)
        if recipe.schedule == "cosine":
            return 0.5 + 0.5 * math.cos(math.pi * min(step / self.n_steps, 1.0))
        return 1.0
