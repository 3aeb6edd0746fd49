"""Batch nuclear-norm maximisation: predictions that are certain and of many classes."""

from __future__ import annotations

from torch import Tensor

from bures.arrays import full_precision
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register
from bures.spectral import nuclear_norm

__all__ = ["NuclearNormTerm", "bnm"]


@register("bnm", matches="predictions", paper="Cui et al., CVPR 2020", cost="nK min(n, K)")
def bnm(*, weight: float = 1.0, start: float = 0.0, ramp: float = 0.0) -> Method:
    r"""Predictions of the target that are certain and of many classes: :math:`CE - \lambda \frac1m \|P_t\|_*`.

    Cui et al., "Towards discriminability and diversity: batch nuclear-norm maximization under label insufficient
    situations", CVPR 2020, with the published :math:`\lambda = 1`. The nuclear norm of the softmax predictions
    :math:`P_t` (m, K) is largest where each is certain and classes are equally frequent; the term is its negative. The
    authors' program takes the mean of the singular values, which divides the norm by the smaller of m and K: with
    fewer classes than samples its :math:`\lambda = 1` is ``weight`` m / K.
    """
    return Method("bnm", [NuclearNormTerm("nuclear-norm", Schedule(weight, start, ramp))])


class NuclearNormTerm(Term):
    """Minus the nuclear norm of the target's predictions over their number."""

    joins_queue = False
    of_many_predictions = True
    capturable = True

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        with full_precision(batch.logits_t):
            p = batch.p_t
            return -nuclear_norm(p) / len(p)
