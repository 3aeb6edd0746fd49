"""What an adaptation method is: named terms that see both domains, each with a weight that may change over training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

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


@dataclass(frozen=True)
class Schedule:
    """The weight of a term: zero until ``start``, then rising evenly to ``value`` within ``ramp`` epochs.

    Examples
    --------
    >>> from bures.methods import Schedule
    >>> weight = Schedule(2.0, start=5, ramp=10)
    >>> [weight(epoch) for epoch in (0, 5, 10, 15, 100)]
    [0.0, 0.0, 1.0, 2.0, 2.0]
    """

    value: float
    start: float = 0.0
    ramp: float = 0.0

    def __post_init__(self) -> None:
        for name in ("value", "start", "ramp"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r} is out of range; accepted are numbers from 0 up")

    def __call__(self, epoch: float) -> float:
        """Weight at a point of training, counted in epochs."""
        if epoch < self.start:
            return 0.0
        if self.ramp == 0:
            return self.value
        return self.value * min((epoch - self.start) / self.ramp, 1.0)


class Term(nn.Module):
    """One named part of an objective, with its schedule. A subclass computes it from a batch in ``forward``."""

    def __init__(self, name: str, schedule: Schedule) -> None:
        super().__init__()
        self.name = name
        self.schedule = schedule

    def setup(self, n_features: int, n_classes: int) -> None:
        """Make parameters and buffers whose size depends on the features and classes; most terms have none."""

    def extra_repr(self) -> str:
        """Name and schedule, for ``repr``."""
        return f"{self.name!r}, {self.schedule}"


class ConditionalTerm(Term):
    """A loss over features and labels, ``loss(z_s, y_s, z_t, p_t)``."""

    def __init__(self, name: str, schedule: Schedule, loss: nn.Module) -> None:
        super().__init__(name, schedule)
        self.loss = loss

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        value: Tensor = self.loss(batch.z_s, batch.y_s, batch.z_t, batch.p_t)
        return value


class FeatureTerm(Term):
    """A loss over features alone, ``loss(z_s, z_t)``."""

    def __init__(self, name: str, schedule: Schedule, loss: nn.Module) -> None:
        super().__init__(name, schedule)
        self.loss = loss

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        value: Tensor = self.loss(batch.z_s, batch.z_t)
        return value


class Objective(NamedTuple):
    """The weighted sum of a method's terms, and each term's value and weight for the log."""

    total: Tensor
    values: dict[str, Tensor]
    weights: dict[str, float]


class Method(nn.Module):
    """The part of a training objective that sees both domains.

    Parameters
    ----------
    name : str
        What the method is called in recipes and tables.
    terms : iterable of Term
        Its terms; a term is computed only while its weight is positive.
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

    def __init__(
        self,
        name: str,
        terms: Iterable[Term] = (),
        *,
        adapts_batchnorm: bool = False,
        trains_on_target: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.terms = nn.ModuleList(terms)
        self.adapts_batchnorm = adapts_batchnorm
        self.trains_on_target = trains_on_target

    @property
    def needs_target(self) -> bool:
        """Whether a step needs a target batch at all."""
        return len(self.terms) > 0

    def setup(self, n_features: int, n_classes: int) -> None:
        """Prepare the terms for features (n, n_features) and n_classes classes, before training."""
        for term in self.terms:
            assert isinstance(term, Term)
            term.setup(n_features, n_classes)

    def forward(self, batch: Batch, epoch: float) -> Objective:
        """The method's part of the objective at a point of training, counted in epochs."""
        values: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        total = torch.zeros((), device=batch.z_s.device)
        for term in self.terms:
            assert isinstance(term, Term)
            weight = term.schedule(epoch)
            if weight > 0:
                values[term.name], weights[term.name] = term(batch), weight
                total = total + weight * values[term.name]
        return Objective(total, values, weights)
