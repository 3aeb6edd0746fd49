r"""The pass of `bures.metrics._fused` over two small samples of equal size, in few and cheap operations.

With forty samples an operation costs more in its call than in its arithmetic, and a call of NumPy costs less than one
of torch. So torch multiplies and decomposes here, and NumPy does what goes entry by entry, in the same memory. The
kernel of the pooled sample is one matrix, whose block of source rows and target columns is empty until the gradient
needs it.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bures.deflation import GRAM_RESOLUTION, TINY, converging, eigh_of_gram
from bures.exact_distances import smallest_square
from bures.kernels import Bandwidth
from bures.metrics._pooled import gradient_rates, pool, widths_of_blocks

__all__ = ["LabelWeights", "paired_distance"]

LEAST_SHARE = 1e-3
"""Of the size of its factors, what a matrix has whose square tells its singular vectors from rounding."""

Matrices: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""For the blocks ss, tt and ts of a kernel. Slopes are derivatives by it; that by ts is halved and has changed sign."""


class LabelWeights(NamedTuple):
    """What the labels of two samples of equal size n ask of the kernel of their features, in float64.

    For CKB, ``factor`` is C^T H D (n, n) of the source, and ``weights`` are D H C C^T H D (n, n) of the target. For the
    distance of class means, ``means`` (2 n, 2 n) are what the kernel of the pooled sample is weighted with.
    """

    factor: Tensor | None = None
    weights: Tensor | None = None
    means: Tensor | None = None


def paired_distance(
    xs: Tensor, xt: Tensor, labels: LabelWeights, bandwidth: Bandwidth, *, wanted: bool
) -> tuple[float, Tensor | None] | None:
    """The squared distance of samples (n, d) in float32 and, where it is wanted, its gradient (2 n, d).

    None where distances beside the bandwidth are noise, where singular vectors would be, or a feature is not finite.
    """
    n, dtype = xs.shape[0], xs.dtype
    x, scale, size = pool(xs, xt)
    if not math.isfinite(size):
        return None
    source, target = x.tensor_split((n,))
    kernel = x.new_empty(2 * n, 2 * n)
    kernel[:, :n].addmm_(x, source.T, beta=0, alpha=-2)
    kernel[n:, n:].addmm_(target, target.T, beta=0, alpha=-2)
    pairs = kernel.numpy()
    pairs[:n, n:] = 0  # what memory held before may be no number, of which NumPy would warn below
    norms = pairs.diagonal() / -2  # rounded as the products are, so that equal samples are at no distance
    pairs += norms
    pairs += norms[:, None]
    np.maximum(pairs, 0, out=pairs)
    blocks = _blocks(pairs)
    mean_s, mean_t, mean_ts = (float(np.add.reduce(block, axis=None)) / n**2 for block in blocks)
    largest = float(norms.max())
    widths = widths_of_blocks(bandwidth, (mean_s, mean_t, mean_ts), largest, x, scale, size, part=0.5)
    if min(widths) < smallest_square(largest, dtype):
        return None
    for block, width in zip(blocks, widths, strict=True):
        block *= -1 / width
        np.expm1(block, out=block)
    value, slopes = 0.0, list[Matrices]()
    if labels.means is not None:
        within_s, within_t, between = _blocks(labels.means.to(dtype).numpy())
        value += _inner(blocks[0], within_s) + _inner(blocks[1], within_t) + 2 * _inner(blocks[2], between)
        slopes.append((within_s, within_t, -between))
    if labels.factor is not None and labels.weights is not None:
        covariances = _covariances(blocks, labels.factor, labels.weights, wanted=wanted)
        if covariances is None:
            return None
        value += covariances[0]
        slopes.extend(covariances[1:])
    if not wanted:
        return value, None
    for block, slope, rate in zip(blocks, zip(*slopes, strict=True), gradient_rates(widths, dtype), strict=True):
        block += 1
        block *= reduce(add, slope)
        block *= rate
    pairs[:n, n:] = blocks[2].T
    pairs.ravel()[:: 2 * n + 1] -= np.add.reduce(pairs, axis=1)
    with torch.inference_mode(False):
        gradient = xs.new_empty(2 * n, xs.shape[1])  # a plain tensor, which a graph may keep
    torch.mm(kernel, x, out=gradient)
    return value, gradient if scale == 1 else gradient.div_(scale)


def _blocks(pairs: NDArray[Any]) -> Matrices:
    n = len(pairs) // 2
    return pairs[:n, :n], pairs[n:, n:], pairs[n:, :n]


def _inner(block: NDArray[Any], weights: NDArray[Any]) -> float:
    return float(np.add.reduce(block * weights, axis=None))


def _covariances(
    blocks: Matrices, factor: Tensor, weights: Tensor, *, wanted: bool
) -> tuple[float] | tuple[float, Matrices] | None:
    """The squared CKB distance and, where they are wanted, its slopes; None where singular vectors would be noise."""
    dtype = torch.float32
    rounded = factor.to(dtype)
    own_s, own_t = (rounded.T @ rounded).numpy(), weights.to(dtype).numpy()
    traces = _inner(blocks[0], own_s) + _inner(blocks[1], own_t)
    right = torch.from_numpy(blocks[2].astype(np.float64)) @ factor.T
    if not wanted:
        return (traces - 2 * _norm(right, weights),)
    found = _norm_and_vectors(right, weights)
    if found is None:
        return None
    norm, left, turned = found
    between = (left.to(dtype) @ (turned.to(dtype).T @ rounded)).numpy()
    return traces - 2 * norm, (own_s, own_t, between)


def _norm(right: Tensor, weights: Tensor) -> float:
    """Nuclear norm of M = C_t^T H D R, of which R is given and D H C_t C_t^T H D are the weights."""
    (values,) = converging(lambda gram: (torch.linalg.eigvalsh(gram),), right.T @ (weights @ right))
    return float(values.clamp_min(0).sqrt().sum())


def _norm_and_vectors(right: Tensor, weights: Tensor) -> tuple[float, Tensor, Tensor] | None:
    """The same norm, D H C_t U and V, with the singular vectors U and V of M.

    M^T M = R^T W R asks for the weights alone, and D H C_t U = W R V / s, so that C_t is not needed. Its square halves
    the digits: those of float64 are as many as the kernel has. None where M is small beside R, as the columns of R
    hardly change from sample to sample of a collapsed target: s and W R V are then rounding, each its own, and their
    quotient no vector of bounded length.
    """
    weighted = weights @ right
    values, v = eigh_of_gram(right.T @ weighted)
    s, left = values.numpy(), (weighted @ v).numpy()
    size = math.sqrt(float(weights.diagonal().max())) * float(torch.linalg.vector_norm(right))
    if not s[-1] > LEAST_SHARE * size:
        return None
    left /= np.maximum(s, GRAM_RESOLUTION * s[-1] + TINY)
    return float(s.sum()), torch.from_numpy(left), v
