r"""The pass of `bures.metrics._fused` over two small samples of equal size, in few and cheap operations.

With forty samples an operation costs more in its call than in its arithmetic, and a call of NumPy costs less than one
of torch. So torch multiplies and decomposes here, and NumPy does what goes entry by entry, in the same memory. The
kernel of the pooled sample is one matrix, whose block of source rows and target columns is empty until the gradient
needs it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from bures.deflation import GRAM_RESOLUTION, TINY, converging, eigh_of_gram
from bures.exact_distances import smallest_square
from bures.kernels import Bandwidth
from bures.metrics._pooled import gradient_rates, pool, widths_of_blocks

__all__ = ["paired_distance"]

LEAST_SHARE = 1e-3
"""Of the size of its factors, what a matrix has whose square tells its singular vectors from rounding."""


def paired_distance(
    xs: Tensor, xt: Tensor, factor: Tensor, weights: Tensor, bandwidth: Bandwidth, *, wanted: bool
) -> tuple[float, Tensor | None] | None:
    """The squared distance of samples (n, d) in float32 and, where it is wanted, its gradient (2 n, d).

    ``factor`` is C^T H D (n, n) of the source and ``weights`` are D H C C^T H D (n, n) of the target, both in float64.
    None where distances beside the bandwidth are noise, where singular vectors would be, or a feature is not finite.
    """
    n = xs.shape[0]
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
    blocks = pairs[:n, :n], pairs[n:, n:], pairs[n:, :n]
    mean_s, mean_t, mean_ts = (float(np.add.reduce(block, axis=None)) / n**2 for block in blocks)
    largest = float(norms.max())
    widths = widths_of_blocks(bandwidth, (mean_s, mean_t, mean_ts), largest, x, scale, size, part=0.5)
    if min(widths) < smallest_square(largest, x.dtype):
        return None
    for block, width in zip(blocks, widths, strict=True):
        block *= -1 / width
        np.expm1(block, out=block)
    rounded = factor.to(x.dtype)
    own = (rounded.T @ rounded).numpy(), weights.to(x.dtype).numpy()
    traces = sum(float(np.add.reduce(block * weight, axis=None)) for block, weight in zip(blocks, own, strict=False))
    right = torch.from_numpy(blocks[2].astype(np.float64)) @ factor.T
    if not wanted:
        return traces - 2 * _norm(right, weights), None
    found = _norm_and_vectors(right, weights)
    if found is None:
        return None
    norm, left, turned = found
    between = (left.to(x.dtype) @ (turned.to(x.dtype).T @ rounded)).numpy()
    for block, weight, rate in zip(blocks, (*own, between), gradient_rates(widths, scale), strict=True):
        block += 1
        block *= weight
        block *= rate
    pairs[:n, n:] = blocks[2].T
    pairs.ravel()[:: 2 * n + 1] -= np.add.reduce(pairs, axis=1)
    with torch.inference_mode(False):
        gradient = xs.new_empty(2 * n, xs.shape[1])  # a plain tensor, which a graph may keep
    return traces - 2 * norm, torch.mm(kernel, x, out=gradient)


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
