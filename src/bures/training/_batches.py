"""Training steps as data: for each step a batch of the source with labels and a batch of the target without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from bures.arrays import check_count
from bures.data import Domain, TensorSamples
from bures.training._holdout import n_kept
from bures.training._loading import end_with_parent
from bures.training._placement import move_samples
from bures.training._plan import SamplePlan, derive_seed
from bures.training._recipe import Recipe

__all__ = ["PairData", "Step", "largest_batch"]


class Step(NamedTuple):
    """What one training step reads.

    Attributes
    ----------
    number : int
        Counted from 0.
    x_s, y_s : Tensor (n, ...), (n,)
        Source samples and their labels.
    x_t : Tensor (m, ...)
        Target samples.
    """

    number: int
    x_s: Tensor
    y_s: Tensor
    x_t: Tensor


class _Steps(Dataset[Step]):
    """Steps by number; a worker process decodes the whole step."""

    def __init__(
        self, source: Domain, target: Domain, plans: tuple[SamplePlan, SamplePlan], rank: int, n_ranks: int
    ) -> None:
        assert source.labels is not None
        self.source, self.target, self.plans = source, target, plans
        self.labels = source.labels
        if isinstance(source.samples, TensorSamples):
            self.labels = self.labels.to(source.samples.device)
        self.rank, self.n_ranks = rank, n_ranks

    def __getitem__(self, number: int) -> Step:
        # The plan gives the step of all devices; each takes its part, so that their number changes no result.
        s, t = (plan.indices(number).tensor_split(self.n_ranks)[self.rank] for plan in self.plans)
        y_s = self.labels[s.to(self.labels.device)]
        return Step(number, self.source.samples.take(s), y_s, self.target.samples.take(t))


class _RestOfEpoch(DistributedSampler[int]):
    """Numbers of the steps from the data's first to the end of its epoch, looked up anew for every epoch.

    The same on every device, for each takes its part of a step. Lightning's trainer would deal out the steps of other
    samplers among the devices, in an order of its own; one that is distributed already it leaves as it is.
    """

    def __init__(self, data: PairData) -> None:
        self.data = data

    def _numbers(self) -> range:
        first, length = self.data.first_step, self.data.steps_per_epoch
        return range(first, (first // length + 1) * length)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers())

    def __len__(self) -> int:
        return len(self._numbers())


class PairData(L.LightningDataModule):
    """Batches of both domains for Lightning, one loader for the two.

    Samples in memory are indexed, on the accelerator where they fit; files are decoded by worker processes.

    Parameters
    ----------
    source : Domain
        With labels.
    target : Domain
        Without labels: a domain that still has them is refused.
    recipe : Recipe
        Batch size, epoch and seed are read.
    n_workers : int, optional
        Processes that decode image files, 0 for this one; None is the number of torch's threads less one, from 1 to 8.

    Attributes
    ----------
    steps_per_epoch : int
        Length of an epoch.
    first_step : int
        Step, counted over all epochs, with which the loader begins. `AdaptationModule` moves it on at the end of an
        epoch; in a loop of one's own it is set for each.

    Examples
    --------
    >>> from bures.data import optdigits
    >>> from bures.training import PairData, Recipe
    >>> target, evaluator = optdigits().hide_labels()
    >>> data = PairData(optdigits(), target, Recipe(batch_size=100))
    >>> data.steps_per_epoch
    17
    """

    def __init__(self, source: Domain, target: Domain, recipe: Recipe, n_workers: int | None = None) -> None:
        super().__init__()
        if source.labels is None:
            raise ValueError(f"source {source.name!r} is unlabelled; training needs its labels")
        if target.labels is not None:
            raise ValueError("target has labels, which training must not see; pass target.hide_labels()[0]")
        self.source, self.target = source, target
        self.n_workers = None if n_workers is None else check_count("n_workers", n_workers, minimum=0)
        labels = source.labels if recipe.class_balanced else None
        self.plans = (
            _plan("source", source, recipe, labels),
            _plan("target", target, recipe, None),
        )
        passes = [plan.steps_per_pass for plan in self.plans]
        lengths = {"shorter": min(passes), "longer": max(passes)}
        self.steps_per_epoch = recipe.epoch if isinstance(recipe.epoch, int) else lengths[recipe.epoch]
        self.first_step = 0

    def move(self, device: torch.device) -> None:
        """Keep samples that lie in memory on the device from now on, where they fit."""
        if not self._in_memory:  # worker processes read both domains, and they cannot use the device
            return
        self.source, self.target = (move_samples(domain, device) for domain in (self.source, self.target))
        for plan, domain in zip(self.plans, (self.source, self.target), strict=True):
            assert isinstance(domain.samples, TensorSamples)
            plan.device = domain.samples.device

    @property
    def _in_memory(self) -> bool:
        return all(isinstance(domain.samples, TensorSamples) for domain in (self.source, self.target))

    def state_dict(self) -> dict[str, Any]:
        """Where the next epoch begins, for a checkpoint of the trainer's."""
        return {"first_step": self.first_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint of the trainer's."""
        self.first_step = state_dict["first_step"]

    def train_dataloader(self) -> DataLoader[Step]:
        """The steps from ``first_step`` to the end of its epoch."""
        rank, n_ranks = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        steps = _Steps(self.source, self.target, self.plans, rank, n_ranks)
        streaming: dict[str, Any] = {}
        if not self._in_memory:
            usual = min(max(torch.get_num_threads() - 1, 1), 8)
            workers = usual if self.n_workers is None else self.n_workers
            streaming = {"num_workers": workers, "pin_memory": torch.cuda.is_available()}
            streaming["worker_init_fn"] = end_with_parent
        return DataLoader(steps, batch_size=None, sampler=_RestOfEpoch(self), **streaming)


def _plan(side: str, domain: Domain, recipe: Recipe, labels: Tensor | None) -> SamplePlan:
    if len(domain) < 2:
        raise ValueError(f"{side} {domain.name!r} has one sample; training needs at least two of each domain")
    if recipe.batch_size > len(domain):
        raise ValueError(
            f"batch_size={recipe.batch_size} is larger than {side} {domain.name!r}, which has {len(domain)} samples; "
            f"accepted is up to {len(domain)}"
        )
    return SamplePlan(len(domain), recipe.batch_size, derive_seed(recipe.seed, side), labels)


def largest_batch(source: Domain, target: Domain, recipe: Recipe) -> int:
    """The largest batch size that a recipe can have for these domains, whatever it has now."""
    if recipe.build_method().trains_on_target or source.labels is None:  # an unlabelled source is refused later
        return len(target)
    return min(len(target), n_kept(source, recipe.source_holdout) if recipe.source_holdout else len(source))
