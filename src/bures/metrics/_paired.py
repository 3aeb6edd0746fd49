r"""The pass of `bures.metrics._fused` over two small samples of equal size, in few and cheap operations.

With forty samples an operation costs more in its call than in its arithmetic, and a call of NumPy costs less than one
of torch. So torch multiplies and decomposes here, and NumPy does what goes entry by entry, in the same memory. The
kernel of the pooled sample is one matrix, whose block of source rows and target columns is empty until the gradient
needs it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bures.deflation import GRAM_RESOLUTION, TINY, converging, deflate_level, is_steep
from bures.exact_distances import smallest_square
from bures.kernels import Bandwidth
from bures.metrics._pooled import gradient_rates, pool, widths_of_blocks
from bures.spectral import SMALL, norm_and_polar_factor, nuclear_norm

__all__ = ["paired_distance"]

# Names of one method for float32 matrices, as `bures.spectral` resolves them, below `SMALL` and from there on.
ALIKE_WHEN_SMALL, ALIKE = ("auto", "gram", "low-rank"), ("auto", "deflation")


def paired_distance(
    xs: Tensor, xt: Tensor, factors: tuple[Tensor, Tensor], bandwidth: Bandwidth, method: str, gradient: Tensor | None
) -> float | None:
    """The squared distance, with both factors C^T H D (n, n) in float64; its gradient (2 n, d) goes where given.

    None where distances beside the bandwidth are noise, or a feature is not finite.
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
    rounded = [factor.to(x.dtype) for factor in factors]
    own = [(factor.T @ factor).numpy() for factor in rounded]
    traces = sum(float(np.add.reduce(block * weights, axis=None)) for block, weights in zip(blocks, own, strict=False))
    left = factors[1] @ torch.from_numpy(blocks[2].astype(np.float64))
    if gradient is None:
        return traces - 2 * float(nuclear_norm(left.to(x.dtype) @ rounded[0].T, method))
    if x.dtype == torch.float32 and method in (ALIKE_WHEN_SMALL if n < SMALL else ALIKE):
        norm, between = _norm_and_weights(left, factors[0], rounded)
    else:
        of_cross, polar = norm_and_polar_factor(left.to(x.dtype) @ rounded[0].T, method)
        norm, between = float(of_cross), (rounded[1].T @ polar @ rounded[0]).numpy()
    for block, weights, rate in zip(blocks, (*own, between), gradient_rates(widths, scale), strict=True):
        block += 1
        block *= weights
        block *= rate
    pairs[:n, n:] = blocks[2].T
    pairs.ravel()[:: 2 * n + 1] -= np.add.reduce(pairs, axis=1)
    torch.mm(kernel, x, out=gradient)
    return traces - 2 * norm


def _norm_and_weights(left: Tensor, source: Tensor, rounded: list[Tensor]) -> tuple[float, Any]:
    """Nuclear norm of M = C_t^T H D K D H C_s, of which ``left`` and ``source`` are the parts, and its derivative by K.

    As `bures.deflation` has it, with products in another order: one decomposition in float64 where the matrix is small
    or its spectrum steep, and where it is neither, deflation in float32. The left singular vectors M v / s need the
    digits of float64; once they have unit length, nothing does.
    """
    if len(left) >= SMALL:
        cross = left.to(rounded[0].dtype) @ rounded[0].T
        gram = cross.T @ cross
        if not is_steep(gram):
            norm, polar = deflate_level(cross, gram, overwrite=True)
            return float(norm), (rounded[1].T @ polar @ rounded[0]).numpy()
    cross = left @ source.T
    values, v = converging(torch.linalg.eigh, cross.T @ cross)
    s = np.sqrt(np.maximum(values.numpy(), 0))
    u = (cross @ v).numpy()
    u /= np.maximum(s, GRAM_RESOLUTION * s[-1] + TINY)
    left, right = (part.to(rounded[0].dtype) for part in (torch.from_numpy(u), v))
    return float(s.sum()), (rounded[1].T @ left @ (right.T @ rounded[0])).numpy()
