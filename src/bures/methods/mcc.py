"""Minimum class confusion: predictions that do not waver between classes."""

from __future__ import annotations

from bures.methods._method import Method, Schedule
from bures.methods._registry import register
from bures.methods._terms import TEMPERATURE, ClassConfusionTerm

__all__ = ["mcc"]


@register("mcc", matches="predictions", paper="Jin et al., ECCV 2020", cost="nK²")
def mcc(*, weight: float = 1.0, temperature: float = TEMPERATURE, start: float = 0.0, ramp: float = 0.0) -> Method:
    r"""Predictions of the target that do not waver between classes: :math:`CE + \mu\, \mathrm{MCC}`.

    .. math::
        \mathrm{MCC} = \frac1K \sum_{c \ne c'} \tilde C_{cc'}, \quad C = P^\top W P, \quad
        \tilde C_{cc'} = \frac{C_{cc'}}{\sum_k C_{ck}}

    Jin, Wang, Long and Wang, "Minimum class confusion for versatile domain adaptation", ECCV 2020, with the published
    :math:`\mu = 1` and the temperature 2.5 of the authors' program for Office. P are softmax predictions of logits
    divided by the ``temperature``; sample i has weight :math:`W_{ii} \propto 1 + e^{-H(p_i)}`, with mean one and, as in
    the authors' program, a constant of the graph. It looks at the target alone.
    """
    return Method("mcc", [ClassConfusionTerm(Schedule(weight, start, ramp), temperature)])
