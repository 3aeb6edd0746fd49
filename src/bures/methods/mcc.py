"""Minimum class confusion: predictions that do not waver between classes."""

from __future__ import annotations

from torch import Tensor

from bures.arrays import check_positive, full_precision
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register
from bures.methods._terms import prediction_entropies

__all__ = ["ClassConfusionTerm", "mcc"]


@register("mcc", matches="predictions", paper="Jin et al., ECCV 2020", cost="nK²")
def mcc(*, weight: float = 1.0, temperature: float = 2.5, start: float = 0.0, ramp: float = 0.0) -> Method:
    r"""Predictions of the target that do not waver between classes: :math:`CE + \mu\, \mathrm{MCC}`.

    .. math::
        \mathrm{MCC} = \frac1K \sum_{c \ne c'} \tilde C_{cc'}, \quad C = P^\top W P, \quad
        \tilde C_{cc'} = \frac{C_{cc'}}{\sum_k C_{ck}}

    Jin, Wang, Long and Wang, "Minimum class confusion for versatile domain adaptation", ECCV 2020, with the published
    :math:`\mu = 1` and the temperature 2.5 of the authors' programme for Office. P are softmax predictions of logits
    divided by the ``temperature``; sample i has weight :math:`W_{ii} \propto 1 + e^{-H(p_i)}`, with mean one and, as in
    the authors' programme, a constant of the graph. It looks at the target alone.
    """
    return Method("mcc", [ClassConfusionTerm(Schedule(weight, start, ramp), temperature)])


class ClassConfusionTerm(Term):
    """How much of a class's predicted probability lies on samples that are predicted as other classes too."""

    joins_queue = False

    def __init__(self, schedule: Schedule, temperature: float) -> None:
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
