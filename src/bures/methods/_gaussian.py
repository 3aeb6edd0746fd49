"""A sum of Gaussian kernels of several widths, as the methods that match mean embeddings use it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bures.arrays import check_positive
from bures.kernels import GramBlocks, squared_distances, standardise

__all__ = ["MULTIPLES", "gaussian_blocks", "mean_squared_distance", "mixture", "read_multiples"]

MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Widths of the kernels, as multiples of the mean squared distance."""


def read_multiples(multiples: Sequence[float] | float) -> tuple[float, ...]:
    """The multiples of a mixture; raise unless they are positive numbers, at least one."""
    values = (multiples,) if isinstance(multiples, (int, float)) else tuple(multiples)
    if not values or isinstance(multiples, str):
        raise ValueError(f"multiples={multiples!r} is empty or text; accepted are positive numbers, at least one")
    return tuple(check_positive("multiples", value) for value in values)


def gaussian_blocks(xs: Tensor, xt: Tensor, multiples: Sequence[float] = MULTIPLES) -> GramBlocks:
    r"""Blocks of :math:`k - 1` for :math:`k(x, y) = \frac1J \sum_j \exp(-\|x - y\|^2 / (\beta_j \sigma^2))`.

    :math:`\sigma^2` is the mean squared distance of all pairs of the pooled samples, a constant of the graph. Less the
    constant 1, which no difference of means sees, a wide kernel keeps its digits.
    """
    a, b, _ = standardise(xs, xt)
    width = mean_squared_distance(a, b)
    ss, tt, ts = (mixture(block, width, multiples) for block in squared_distances(a, b))
    return GramBlocks(ss, tt, ts, bandwidths=None)


def mixture(distances: Tensor, width: Tensor, multiples: Sequence[float]) -> Tensor:
    """Mean over the kernels of the mixture less one, at squared distances."""
    total = torch.zeros_like(distances)
    for multiple in multiples:
        total = total + torch.expm1(-distances / (multiple * width))
    return total / len(multiples)


def mean_squared_distance(xs: Tensor, xt: Tensor) -> Tensor:
    """Mean squared distance of all pairs of the pooled samples, in O(nd): twice their variance."""
    pooled = torch.cat([xs, xt]).detach().double()
    width = 2 * (pooled - pooled.mean(dim=0)).square().sum(dim=1).mean()
    # Distances below the rounding of the samples carry no information: equal samples get a flat kernel, not noise.
    rounding = 4 * torch.finfo(xs.dtype).eps * pooled.abs().amax()
    floor = (xs.shape[1] * rounding.square()).clamp_min(torch.finfo(xs.dtype).tiny)
    return width.clamp_min(floor).to(xs.dtype)
