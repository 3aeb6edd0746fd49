"""Two samples as one, moved to their common mean, and the bandwidths of its blocks ss, tt and ts."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from bures.kernels import Bandwidth

__all__ = ["Blocks", "gradient_rates", "mean_squared_distances", "pool", "widths_of_blocks"]

Blocks: TypeAlias = tuple[float, float, float]
"""A number for each of the blocks ss, tt and ts."""


def pool(xs: Tensor, xt: Tensor) -> tuple[Tensor, float, float]:
    """The samples one after another, about their common mean; as in `bures.kernels.standardise`.

    With them comes their unit, a power of two, and the size in this unit of the largest entry that was given.
    """
    # By NumPy, on one core: torch gives every operation its own share of the cores, and rows wander between them.
    parts, n = (xs.detach().numpy(), xt.detach().numpy()), len(xs)
    lowest, highest = ([float(limit.reduce(part, axis=None)) for part in parts] for limit in (np.minimum, np.maximum))
    if not math.isfinite(sum(lowest) + sum(highest)):
        return torch.cat([xs.detach(), xt.detach()]), 1.0, math.inf
    largest = max(-lowest[0], -lowest[1], *highest)
    harmless = 2.0**-20 < largest < 2.0**20  # the squares are far from both ends of the range
    normal = largest >= torch.finfo(xs.dtype).tiny  # of others no gradient is finite, and they are taken for zero
    size = math.ldexp(1.0, math.frexp(largest)[1] - 1) if normal else 1.0
    scale = 1.0 if harmless else size
    if scale != 1:
        parts = parts[0] / scale, parts[1] / scale
    # Less the first sample, and less the mean of that: constants become zero, which a mean alone would round.
    pooled, first = xs.new_empty(n + len(xt), xs.shape[1]), parts[0][0]
    x = pooled.numpy()
    np.subtract(parts[0], first, out=x[:n])
    np.subtract(parts[1], first, out=x[n:])
    x -= np.add.reduce(x, axis=0) / len(x)
    return pooled, scale, size / scale


def widths_of_blocks(
    bandwidth: Bandwidth, means: Blocks, largest: float, x: Tensor, scale: float, size: float, part: float
) -> Blocks:
    """Sigma squared of the three blocks, as in `bures.kernels.gram_blocks`.

    ``means`` are the mean squared distances of the blocks, ``largest`` is the largest squared norm of a sample, ``x``,
    ``scale`` and ``size`` are those of `pool`, and ``part`` of the samples belong to the source.
    """
    limits = torch.finfo(x.dtype)
    if not isinstance(bandwidth, str):
        width = min(max(float(bandwidth) / scale / scale, limits.tiny), limits.max)
        return width, width, width
    if bandwidth == "shared":
        pooled = part**2 * means[0] + (1 - part) ** 2 * means[1] + 2 * part * (1 - part) * means[2]
        means = (pooled, pooled, pooled)
    eps = float(limits.eps)
    # The rounding of the samples as they were given, and that of matrix products.
    floor = x.shape[1] * (4 * eps * size) ** 2 + 8 * eps * largest
    return max(means[0], floor), max(means[1], floor), max(means[2], floor)


def mean_squared_distances(
    samples: tuple[Tensor, ...], norms: tuple[Tensor, ...], weights: tuple[Tensor, Tensor]
) -> tuple[Blocks, float]:
    """Weighted mean squared distance of each block, without the distances, and the source's part of the samples.

    The samples are centred together, so no digits are lost unless the domains are further apart than they are wide:
    ten times, and float32 has five digits left, here as in the distances themselves.
    """
    means = [(w.to(x.dtype) @ x).double().numpy() for w, x in zip(weights, samples, strict=True)]
    squares = [w.numpy() @ norm.double().numpy() for w, norm in zip(weights, norms, strict=True)]
    s, t = (max(float(square - mean @ mean), 0.0) for square, mean in zip(squares, means, strict=True))
    between = means[0] - means[1]
    n_s, n_t = (int(torch.count_nonzero(w)) for w in weights)
    return (2 * s, 2 * t, s + t + float(between @ between)), n_s / (n_s + n_t)


def gradient_rates(widths: Blocks, dtype: torch.dtype) -> Blocks:
    """What turns the derivative by the kernel into weights of the gradient, for samples in the unit of `pool`.

    Of these a pair (i, j) of the pooled sample adds weight (x_j - x_i). Pairs between the samples are there twice,
    hence half of the factor -2 of the norm. Rates are cut where sums of them leave the range of the dtype: beside so
    narrow a width other samples are at a kernel of zero, or at no distance.
    """
    limit = torch.finfo(dtype).max / 64
    rate_s, rate_t, rate_ts = (min(4 / width, limit) for width in widths)
    return rate_s, rate_t, -rate_ts
