"""Terms on the target's predictions that several methods share."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from bures.arrays import check_count, check_not_negative, check_positive, full_precision
from bures.methods._method import Batch, Schedule, Term

__all__ = [
    "TEMPERATURE",
    "ClassConfusionTerm",
    "DiversityTerm",
    "EntropyTerm",
    "NeighboursTerm",
    "prediction_entropies",
    "prediction_entropy",
    "prediction_terms",
]

TEMPERATURE = 2.5  # of the confusion of classes, from the program of its authors


def prediction_entropies(logits: Tensor) -> Tensor:
    """Entropies (m,) of predictions (m, K), from logits: exact where probabilities round to zero."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def prediction_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of predictions (m, K), from logits."""
    return prediction_entropies(logits).mean()


class EntropyTerm(Term):
    """The entropy of the target's predictions, as a mean over the batch (the paper's L_Ent divided by m)."""

    joins_queue = False
    capturable = True

    def __init__(self, weight: float, start: float = 0.0, ramp: float = 0.0) -> None:
        super().__init__("entropy", Schedule(weight, start, ramp))

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        return prediction_entropy(batch.logits_t)


class DiversityTerm(Term):
    """Minus the entropy of the mean prediction: small when all classes are predicted."""

    joins_queue = False
    of_many_predictions = True
    capturable = True

    def __init__(self, weight: float, start: float = 0.0, ramp: float = 0.0) -> None:
        super().__init__("diversity", Schedule(weight, start, ramp))

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        mean = batch.p_t.mean(dim=0)
        return (mean * mean.clamp_min(1e-30).log()).sum()


class ClassConfusionTerm(Term):
    """How much of a class's predicted probability lies on samples that are predicted as other classes too."""

    joins_queue = False
    of_many_predictions = True
    capturable = True

    def __init__(self, schedule: Schedule, temperature: float = TEMPERATURE) -> None:
        super().__init__("confusion", schedule)
        self.temperature = check_positive("temperature", temperature)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        with full_precision(batch.logits_t):
            logits = batch.logits_t / self.temperature
            certainty = 1 + (-prediction_entropies(logits.detach())).exp()
            p = logits.softmax(dim=1)
            confusion = p.T @ (p * (certainty / certainty.mean())[:, None])
            # A class without any probability is confused with none; the sums are otherwise far above this.
            rows = confusion / confusion.sum(dim=1, keepdim=True).clamp_min(1e-30)
            return (rows.sum() - rows.diagonal().sum()) / p.shape[1]


class NeighboursTerm(Term):
    """How much predictions of the target differ from those of the samples whose features are most like theirs.

    One minus the mean product of a sample's prediction and those of its ``n_neighbours`` nearest, by the cosine of the
    angle between features: zero where all of them are certain of one class. A sample is drawn to its neighbours, which
    are constants. It is the attraction of Yang et al., "Attracting and dispersing: a simple approach for source-free
    domain adaptation", NeurIPS 2022; what disperses predictions is `DiversityTerm` here.
    """

    joins_queue = False
    of_many_predictions = True
    capturable = True

    def __init__(self, weight: float, n_neighbours: int, start: float = 0.0, ramp: float = 0.0) -> None:
        super().__init__("neighbours", Schedule(weight, start, ramp))
        self.n_neighbours = check_count("n_neighbours", n_neighbours)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        p = batch.p_t
        count = min(self.n_neighbours, len(p) - 1)
        if count == 0:  # a sample by itself agrees with itself
            return 0.0 * p.sum()
        with full_precision(p):
            directions = F.normalize(batch.z_t.detach(), dim=1)
            similarities = (directions @ directions.T).fill_diagonal_(-math.inf)
            nearest = similarities.topk(count, dim=1).indices
            agreement = (p[:, None] * p.detach()[nearest]).sum(dim=2)
            return 1 - agreement.mean()


def prediction_terms(
    entropy: float,
    diversity: float,
    confusion: float,
    neighbours: float,
    n_neighbours: int,
    start: float,
    ramp: float,
) -> list[Term]:
    """What methods ask of the target's predictions.

    To be certain and, by weights, varied, not confused (`mcc`), and those of their nearest neighbours.
    """
    terms: list[Term] = [EntropyTerm(entropy, start, ramp)]
    if check_not_negative("diversity", diversity) > 0:
        terms.append(DiversityTerm(diversity, start, ramp))
    if check_not_negative("confusion", confusion) > 0:
        terms.append(ClassConfusionTerm(Schedule(confusion, start, ramp)))
    # Made whatever its weight, so that a mistake in the number is told.
    drawn = NeighboursTerm(check_not_negative("neighbours", neighbours), n_neighbours, start, ramp)
    return [*terms, drawn] if neighbours > 0 else terms
