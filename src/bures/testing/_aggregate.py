"""p-values from the statistics of all orders, the observed one first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["TIE", "aggregate", "holm", "permutation_p_value"]

TIE = 1e-9
"""Statistics closer than this share of the largest count as equal: rounding must not decide between equal orders."""


def permutation_p_value(values: Tensor, resolution: float = 0.0) -> float:
    """(1 + number of permuted values as large as the observed one) / (1 + number of permutations); never 0.

    ``values`` (1 + B,) begins with the observed one.
    """
    slack = max(TIE * float(values.abs().max()), resolution)
    return float((values >= values[0] - slack).sum()) / len(values)


def aggregate(values: Tensor, resolution: float = 0.0) -> Tensor:
    """One statistic from several (b, 1 + B): the largest after each was standardised over all its orders.

    The observed value takes part in mean and deviation as every permuted one does, so that the orders stay
    exchangeable and the p-value of the result is exact. ``resolution`` is the rounding of the values: a statistic
    that varies less has nothing to say.
    """
    if len(values) == 1:
        return values[0]
    deviation = values.std(dim=1, keepdim=True, correction=0)
    standardised = (values - values.mean(dim=1, keepdim=True)) / deviation.clamp_min(max(resolution, 1e-300))
    return torch.where(deviation > resolution, standardised, 0.0).amax(dim=0)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted by Holm's step-down rule, in the order given.

    Parameters
    ----------
    p_values : sequence of float
        Of tests that are made together.

    Returns
    -------
    list of float
        Rejecting where these are at most the level keeps the probability of any false rejection below it.

    Examples
    --------
    >>> from bures.experiments import holm
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
