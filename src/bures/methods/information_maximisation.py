"""Information maximisation: certain predictions, of all classes."""

from __future__ import annotations

from bures.methods._method import Method
from bures.methods._registry import register
from bures.methods._terms import prediction_terms

__all__ = ["information_maximisation"]


@register("im", matches="predictions", paper="Krause et al., NIPS 2010", cost="nK")
def information_maximisation(
    *,
    entropy: float = 0.5,
    diversity: float | None = None,
    confusion: float = 0.0,
    neighbours: float = 0.0,
    n_neighbours: int = 2,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Certain and varied predictions of the target: :math:`CE + \lambda_1 Ent - \lambda_d H(\bar p)`.

    Krause, Perona and Gomes, "Discriminative clustering by regularized information maximization", NIPS 2010. It aligns
    nothing, and gives much of what alignment methods claim: a control. Without ``diversity`` both terms have the weight
    of the entropy, as in the publication: the mutual information of samples and predictions. That weight is `ckb`'s.
    """
    diversity = entropy if diversity is None else diversity
    return Method("im", prediction_terms(entropy, diversity, confusion, neighbours, n_neighbours, entropy_start, ramp))
