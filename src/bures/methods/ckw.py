"""Conditional kernel Wasserstein, and its means alone."""

from __future__ import annotations

from bures.arrays import check_not_negative
from bures.kernels import Bandwidth
from bures.losses import CKBLoss, ClassMeansLoss
from bures.methods._method import ConditionalTerm, Method, Schedule, Term
from bures.methods._registry import register
from bures.methods._terms import prediction_terms

__all__ = ["ckw", "class_means"]


@register("ckw", matches="conditional", paper="this library", cost="n²d + n³")
def ckw(
    *,
    entropy: float = 0.5,
    diversity: float = 0.0,
    confusion: float = 0.0,
    neighbours: float = 0.0,
    n_neighbours: int = 2,
    weight: float = 1.0,
    means: float = 1.0,
    eps: str | float = 1e-2,
    pseudo_labels: str = "soft",
    bandwidth: Bandwidth = "shared",
    start: float = 0.0,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Kernel means and covariances of the features by class: :math:`CE + \lambda_1 Ent + \lambda_2 (CKB + \mu M)`.

    :math:`M = \sum_c \pi_c \|\mu^s_c - \mu^t_c\|^2` is weighted by ``means``. All defaults are ours; those that `ckb`
    has too are its. The step beyond the paper: CKB cannot tell which class is where, the means can. With ``means=1``
    and a shared bandwidth, the two terms are the squared CKW distance.
    """
    covariance = CKBLoss(eps=eps, pseudo_labels=pseudo_labels, bandwidth=bandwidth)
    terms = [
        *prediction_terms(entropy, diversity, confusion, neighbours, n_neighbours, entropy_start, ramp),
        ConditionalTerm("ckb", Schedule(weight, start, ramp), covariance),
        _means(weight * check_not_negative("means", means), pseudo_labels, bandwidth, start, ramp),
    ]
    return Method("ckw", terms)


@register("class-means", matches="conditional", paper="this library", cost="n²d")
def class_means(
    *,
    entropy: float = 0.5,
    diversity: float = 0.0,
    confusion: float = 0.0,
    neighbours: float = 0.0,
    n_neighbours: int = 2,
    weight: float = 1.0,
    pseudo_labels: str = "soft",
    bandwidth: Bandwidth = "shared",
    start: float = 0.0,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Kernel means of the features given the class: a control for `ckw` without its covariances.

    All defaults are ours; those that `ckb` has too are its.
    """
    means = _means(weight, pseudo_labels, bandwidth, start, ramp)
    return Method(
        "class-means",
        [*prediction_terms(entropy, diversity, confusion, neighbours, n_neighbours, entropy_start, ramp), means],
    )


def _means(weight: float, pseudo_labels: str, bandwidth: Bandwidth, start: float, ramp: float) -> Term:
    # One bandwidth for all pairs, whatever the covariance part uses: means of different kernels cannot be compared.
    shared = "shared" if bandwidth == "per-block" else bandwidth
    loss = ClassMeansLoss(pseudo_labels=pseudo_labels, bandwidth=shared)
    return ConditionalTerm("means", Schedule(weight, start, ramp), loss)
