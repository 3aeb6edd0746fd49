"""Enhanced transport distance: transport whose cost listens to the classifier."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bures.arrays import check_finite, check_positive, full_precision
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register
from bures.methods._terms import EntropyTerm
from bures.methods._transport import import_pot, pair_distances, uniform

__all__ = ["EnhancedTransportTerm", "attention", "etd"]

MAX_STEPS = 200  # of Sinkhorn's iteration; a plan that is not quite feasible is good enough for a gradient


@register("etd", matches="joint", paper="Li et al., CVPR 2020", cost="n²(d + K) + 200 n²", requires="ot")
def etd(
    *,
    weight: float = 1.0,
    entropy: float = 0.1,
    temperature: float = 1.0,
    reg: float = 0.05,
    start: float = 0.0,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Entropic transport whose cost listens to the classifier: :math:`CE + \beta Ent + \lambda \sum \gamma c`.

    .. math:: c_{ij} = a_{ij} \frac{\|z^s_i - z^t_j\|^2}{\overline{\|z^s - z^t\|^2}}, \qquad
        a_{ij} = \frac{m\, e^{-p^t_j(y^s_i) / \tau}}{\sum_k e^{-p^t_k(y^s_i) / \tau}}

    Li et al., "Enhanced transport distance for unsupervised domain adaptation", CVPR 2020. Its abstract and the
    paper's account of it determine the parts: a transport cost reweighed by attention, which is the prediction feedback
    of the classifier, entropic regularisation, and the entropy of the target's predictions. They do not determine the
    following, chosen here. The attention is a softmax over the batch of how improbable the classifier finds it that a
    pair shares its class, with temperature :math:`\tau`; rows have mean one. The cost is in units of the mean squared
    distance, a constant, so that weights do not depend on the scale of the features. The plan :math:`\gamma` comes from
    Sinkhorn's iteration by POT with regularisation ``reg``, where the publication trains a network for the Kantorovich
    potential. Attention and plan are constants of the graph. All four defaults are ours.
    """
    import_pot("method 'etd'")  # missing now rather than in the first step
    alignment = EnhancedTransportTerm(Schedule(weight, start, ramp), temperature, reg)
    return Method("etd", [EntropyTerm(entropy, entropy_start, ramp), alignment])


class EnhancedTransportTerm(Term):
    """The cost of an entropic plan, where pairs that the classifier puts in one class are cheaper."""

    def __init__(self, schedule: Schedule, temperature: float, reg: float) -> None:
        super().__init__("transport", schedule)
        self.temperature, self.reg = check_positive("temperature", temperature), check_positive("reg", reg)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        ot = import_pot("method 'etd'")
        with full_precision(batch.z_s):
            distances = pair_distances(batch.z_s, batch.z_t)
            mean = distances.detach().mean()
            unit = torch.where(mean > 0, mean, torch.ones_like(mean))  # zero: the cost is zero, and so is its gradient
            weights = attention(batch.y_s, batch.p_t.detach(), self.temperature).to(distances.dtype)
            cost = weights * distances / unit
            check_finite("the transport cost", cost)  # the solver would go on with it
            n, m = cost.shape
            plan: Tensor = ot.sinkhorn(
                uniform(n, cost),
                uniform(m, cost),
                cost.detach().double(),
                self.reg,
                method="sinkhorn_log",
                numItermax=MAX_STEPS,
                warn=False,
            )
            return (plan.to(cost.dtype) * cost).sum()


def attention(y_s: Tensor, p_t: Tensor, temperature: float) -> Tensor:
    """Weights (n, m) of pairs, larger where the classifier doubts that they share a class; rows have mean one."""
    agreement = one_hot(y_s, p_t.shape[1]).to(p_t) @ p_t.T
    return (-agreement / temperature).softmax(dim=1) * len(p_t)
