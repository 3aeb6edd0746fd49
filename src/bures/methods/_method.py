"""What an adaptation method is: named terms that see both domains, each with a weight that may change over training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bures.arrays import amplified_gradient, at_least_float32, check_choice, check_flags, check_not_negative

if TYPE_CHECKING:
    from bures.networks import Network

__all__ = ["Batch", "ConditionalTerm", "FeatureTerm", "Method", "Objective", "Schedule", "Term"]


class Batch(NamedTuple):
    """What a step knows of both domains: features and logits of each, and the labels of the source alone.

    Shapes are (n, d), (n, K), (n,), (m, d), (m, K).
    """

    z_s: Tensor
    logits_s: Tensor
    y_s: Tensor
    z_t: Tensor
    logits_t: Tensor

    @property
    def p_t(self) -> Tensor:
        """Predicted probabilities of the target (m, K)."""
        return self.logits_t.softmax(dim=1)

    def widened(self) -> Batch:
        """The batch as losses compute with it: float32 at least, whatever the network computes in, and int64 labels."""
        y_s = self.y_s if self.y_s.is_floating_point() or self.y_s.is_complex() else self.y_s.long()
        z_s, logits_s, z_t, logits_t = map(at_least_float32, (self.z_s, self.logits_s, self.z_t, self.logits_t))
        return Batch(z_s, logits_s, y_s, z_t, logits_t)


LOGGED = (
    "epoch",
    "step",
    "loss",
    "cross_entropy",
    "consistency",
    "source_accuracy",
    "target_accuracy",
    "target_score",
    "target_effective_classes",
    "lr",
    "seconds",
)
"""What the log of a training calls other things than terms."""

LOGGED_PREFIXES = ("weight_", "score_")

STEEPNESS = 10.0  # of the sigmoid schedule, as published


@dataclass(frozen=True)
class Schedule:
    r"""The weight of a term: zero until ``start``, then rising to ``value`` within ``ramp`` epochs.

    Parameters
    ----------
    value : float
        The weight at the end.
    start : float, optional
        Epoch from which the term counts.
    ramp : float, optional
        Epochs in which the weight rises. None is the whole training, from its first step to its last.
    shape : {"linear", "sigmoid"}, optional
        Rise evenly, or as :math:`2 / (1 + e^{-10 p}) - 1` in the share p of the ramp that has passed (Ganin et al.,
        "Domain-adversarial training of neural networks", JMLR 2016), which is at 0.96 of the value after 40 %.

    Examples
    --------
    >>> from bures.methods import Schedule
    >>> weight = Schedule(2.0, start=5, ramp=10)
    >>> [weight(epoch) for epoch in (0, 5, 10, 15, 100)]
    [0.0, 0.0, 1.0, 2.0, 2.0]
    >>> weight = Schedule(1.0, ramp=None, shape="sigmoid")
    >>> [round(weight(epoch, progress=epoch / 20), 3) for epoch in (0, 2, 20)]
    [0.0, 0.462, 1.0]
    """

    value: float
    start: float = 0.0
    ramp: float | None = 0.0
    shape: str = "linear"

    def __post_init__(self) -> None:
        check_choice("shape", self.shape, ("linear", "sigmoid"))
        for name in ("value", "start", "ramp"):
            number = getattr(self, name)
            if not (number is None and name == "ramp"):
                check_not_negative(name, number)

    def __call__(self, epoch: float, progress: float = 1.0) -> float:
        """Weight at a point of training, counted in epochs and as the share of the training that is done."""
        if epoch < self.start:
            return 0.0
        if self.ramp is None:
            share = progress
        elif self.ramp == 0:
            return self.value
        else:
            share = (epoch - self.start) / self.ramp
        share = min(share, 1.0)
        return self.value * (share if self.shape == "linear" else 2 / (1 + math.exp(-STEEPNESS * share)) - 1)


class Term(nn.Module):
    """One named part of an objective, with its schedule. A subclass computes it from a batch in ``forward``.

    ``joins_queue`` tells whether the term sees samples of earlier steps too, where a recipe keeps them in a queue. It
    is for terms that compare domains; those that ask something of each prediction learn nothing from old ones.
    ``of_many_predictions`` marks terms on the target's predictions as a whole, such as how often each class is
    predicted: they see the queue where the recipe asks for it.
    ``capturable`` tells whether a CUDA graph can replay the term: that it never looks at values on the host, and
    what it keeps for the next step it writes in place. Terms that do not say so run as they are.
    """

    joins_queue: ClassVar[bool] = True
    of_many_predictions: ClassVar[bool] = False
    capturable: bool = False

    def __init__(self, name: str, schedule: Schedule) -> None:
        super().__init__()
        self.name = name
        self.schedule = schedule

    def setup(self, n_features: int, n_classes: int) -> None:
        """Make parameters and buffers whose size depends on the features and classes; most terms have none."""

    def weighted(self, batch: Batch, weight: float | Tensor) -> tuple[Tensor, Tensor]:
        """Value of the term, for the log, and what it adds to the objective at a weight."""
        value: Tensor = self(batch)
        return value, weight * value

    def extra_repr(self) -> str:
        """Name and schedule, for ``repr``."""
        return f"{self.name!r}, {self.schedule}"


class ConditionalTerm(Term):
    """A loss over features and labels, ``loss(z_s, y_s, z_t, p_t)``."""

    def __init__(self, name: str, schedule: Schedule, loss: nn.Module) -> None:
        super().__init__(name, schedule)
        self.loss = loss
        self.capturable = getattr(loss, "capturable", False)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        value: Tensor = self.loss(batch.z_s, batch.y_s, batch.z_t, batch.p_t)
        return value


class FeatureTerm(Term):
    """A loss over features alone, ``loss(z_s, z_t)``."""

    def __init__(self, name: str, schedule: Schedule, loss: nn.Module) -> None:
        super().__init__(name, schedule)
        self.loss = loss
        self.capturable = getattr(loss, "capturable", False)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        value: Tensor = self.loss(batch.z_s, batch.z_t)
        return value


class Objective(NamedTuple):
    """The weighted sum of a method's terms, and each term's value and weight for the log."""

    total: Tensor
    values: dict[str, Tensor]
    weights: Mapping[str, float | Tensor]


class Method(nn.Module):
    """The part of a training objective that sees both domains.

    Parameters
    ----------
    name : str
        What the method is called in recipes and tables.
    terms : iterable of Term
        Its terms, each with a name of its own; a term is computed only while its weight is positive.
    adapts_batchnorm : bool, optional
        Evaluate with BatchNorm statistics of the target.
    trains_on_target : bool, optional
        The supervised upper bound: the labelled domain is the target itself. Not an adaptation method.

    Examples
    --------
    >>> import torch
    >>> from bures.methods import Batch, make_method
    >>> batch = Batch(torch.randn(8, 4), torch.randn(8, 3), torch.arange(8) % 3, torch.randn(6, 4), torch.randn(6, 3))
    >>> objective = make_method("ckb")(batch, epoch=0)
    >>> sorted(objective.values)
    ['ckb', 'entropy']
    """

    owns_training: ClassVar[bool] = False
    """Whether the method makes its own training steps, see `OwnTraining`."""

    def __init__(
        self,
        name: str,
        terms: Iterable[Term] = (),
        *,
        adapts_batchnorm: bool = False,
        trains_on_target: bool = False,
    ) -> None:
        check_flags(adapts_batchnorm=adapts_batchnorm, trains_on_target=trains_on_target)
        super().__init__()
        self.name = name
        self.terms = nn.ModuleList(terms)
        _check_term_names(name, [term.name for term in self.terms])
        self.adapts_batchnorm = adapts_batchnorm
        self.trains_on_target = trains_on_target

    @property
    def needs_target(self) -> bool:
        """Whether a step needs a target batch at all."""
        return len(self.terms) > 0

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can replay the method: whether all its terms say so."""
        return all(bool(term.capturable) for term in self.terms)

    def prepare(self, network: Network, shape: tuple[int, ...]) -> None:
        """Look at the network and the shape (C, H, W) or (d,) of its samples before training; most methods need not.

        A method that cannot work with them raises a ValueError here.
        """

    def check_length(self, n_steps: int) -> None:
        """Look at the length of the training before it begins; a method that needs more raises a ValueError."""

    def shared_parameters(self) -> list[nn.Parameter]:
        """Parameters that the optimiser of the network trains too."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def setup(self, n_features: int, n_classes: int) -> None:
        """Prepare the terms for features (n, n_features) and n_classes classes, before training."""
        for term in self.terms:
            assert isinstance(term, Term)
            term.setup(n_features, n_classes)

    def forward(
        self,
        batch: Batch,
        epoch: float,
        progress: float = 1.0,
        joined: Batch | None = None,
        *,
        join_predictions: bool = False,
        full_gradient: bool = False,
    ) -> Objective:
        """The method's part of the objective at a point of training.

        The point is counted in epochs, and as the share of the training that is done for schedules that rise over the
        whole of it; without a share they are at their end. ``joined`` is the batch with samples of earlier steps, for
        the terms that compare domains and, with ``join_predictions``, for those on many predictions. With
        ``full_gradient`` the gradient through the batch of those that compare domains is scaled up, too, to what it
        would be if all these samples were new.
        """
        weights = self.weights(epoch, progress)
        return self.objective(batch, weights, joined, join_predictions=join_predictions, full_gradient=full_gradient)

    def weights(self, epoch: float, progress: float = 1.0) -> dict[str, float]:
        """The weights of the terms that count at a point of training, by name."""
        found = {}
        for term in self.terms:
            assert isinstance(term, Term)
            weight = term.schedule(epoch, progress)
            if weight > 0:
                found[term.name] = weight
        return found

    def objective(
        self,
        batch: Batch,
        weights: Mapping[str, float | Tensor],
        joined: Batch | None = None,
        *,
        join_predictions: bool = False,
        full_gradient: bool = False,
    ) -> Objective:
        """The method's part of the objective, of the terms that have a weight."""
        batch = _read_batch(batch) if len(self.terms) else batch
        joined = batch if joined is None else joined.widened()
        amplified = _amplified(joined, batch) if join_predictions or full_gradient else joined
        values: dict[str, Tensor] = {}
        total = torch.zeros((), device=batch.z_s.device)
        for term in self.terms:
            assert isinstance(term, Term)
            if term.name in weights:
                if join_predictions and term.of_many_predictions:
                    seen = amplified
                elif term.joins_queue:
                    seen = amplified if full_gradient else joined
                else:
                    seen = batch
                values[term.name], contribution = term.weighted(seen, weights[term.name])
                total = total + contribution
        return Objective(total, values, weights)


def _amplified(joined: Batch, batch: Batch) -> Batch:
    """The joined batch as it is, with a gradient through its new samples as if all of its samples were new.

    They are a small part of what a term sees, and so would be its gradient through them. Multiplied by how many times
    the batch it is, it is that of the term on as many new samples, estimated from those of the batch.
    """
    parts = joined._asdict()
    for name in ("z_s", "logits_s", "z_t", "logits_t"):
        own = getattr(batch, name)
        parts[name] = amplified_gradient(parts[name], len(parts[name]) / max(len(own), 1))
    return Batch(**parts)


def _check_term_names(method: str, names: list[Any]) -> None:
    """Raise where two terms would share a weight and a place in the log, or one take the place of something else."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"method {method!r} has two terms named {name!r}; their weights are told apart by name")
        if name in LOGGED or str(name).startswith(LOGGED_PREFIXES):
            raise ValueError(
                f"method {method!r} has a term named {name!r}, which the log of a training has for something else; "
                f"accepted is any name but {', '.join(LOGGED)} and what begins with {' or '.join(LOGGED_PREFIXES)}"
            )


def _read_batch(batch: Batch) -> Batch:
    """The batch widened; raise where shapes do not fit together, which some terms would compute with."""
    shapes = {name: tuple(part.shape) for name, part in batch._asdict().items()}
    for name, shape in shapes.items():
        if name != "y_s" and (len(shape) != 2 or 0 in shape):
            raise ValueError(f"{name} has shape {shape}; accepted is a row for each sample, of one sample or more")
    if shapes["y_s"][:1] != shapes["z_s"][:1]:
        raise ValueError(f"y_s has shape {shapes['y_s']} but z_s {shapes['z_s']}; accepted is one label per sample")
    for source, target in (("z_s", "z_t"), ("logits_s", "logits_t")):
        if shapes[source][1] != shapes[target][1]:
            raise ValueError(
                f"{source} has shape {shapes[source]} but {target} {shapes[target]}; accepted are as many columns in "
                "both domains"
            )
    return batch.widened()
