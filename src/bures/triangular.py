"""Inverses and products of lower triangular matrices by blocks, which leave the zeros out and are mostly products."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from bures.arrays import is_transformed

__all__ = ["invert_lower_", "lower_gram", "multiply_by_transposed_lower"]

SMALL_TRIANGLE = 128  # below, one call costs less than the arithmetic it saves
LEAF = 64  # blocks of this side are inverted in one call
BLOCKS_FROM = 1024  # sides on a GPU; up to eight blocks torch takes one after another
MOST_STRIPS = 4
WIDE_STRIP = 1024  # narrower ones leave a GPU idle


def invert_lower_(lower: Tensor) -> Tensor:
    """Invert a lower triangular matrix (..., n, n) in its own memory, by halves, to skip the zeros."""
    n = lower.shape[-1]
    if lower.is_cuda and lower.ndim == 2 and not (torch.compiler.is_compiling() or is_transformed()):
        return _invert_by_blocks_(lower)
    if n <= SMALL_TRIANGLE or lower.is_cuda:
        return lower.copy_(_inverse(lower))
    half = n // 2
    first, last = invert_lower_(lower[..., :half, :half]), invert_lower_(lower[..., half:, half:])
    below = lower[..., half:, :half]
    below.copy_(last @ (below @ first)).neg_()
    return lower


def _invert_by_blocks_(lower: Tensor) -> Tensor:
    """Blocks on the diagonal are inverted in one call, then joined by twos, all pairs in one call."""
    n, side = len(lower), LEAF
    if n < BLOCKS_FROM:
        return lower.copy_(_inverse(lower))
    cut = LEAF * 2 ** ((n // LEAF).bit_length() - 1)
    if cut < n:
        first, last = _invert_by_blocks_(lower[:cut, :cut]), _invert_by_blocks_(lower[cut:, cut:])
        lower[cut:, :cut] = -(last @ (lower[cut:, :cut] @ first))
        return lower
    row, column = lower.stride()

    def blocks(of: int, at_row: int, at_column: int) -> Tensor:
        start = lower.storage_offset() + at_row * row + at_column * column
        return lower.as_strided((n // of, side, side), (of * (row + column), row, column), start)

    diagonal = blocks(side, 0, 0)
    diagonal.copy_(_inverse(diagonal))
    while side < n:
        first, below, last = blocks(2 * side, 0, 0), blocks(2 * side, side, 0), blocks(2 * side, side, side)
        below.baddbmm_(last, below @ first, beta=0, alpha=-1)
        side *= 2
    return lower


def _inverse(lower: Tensor) -> Tensor:
    eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    if lower.ndim > 2:
        eye = eye.expand_as(lower)
    inverse: Tensor = torch.linalg.solve_triangular(lower, eye, upper=False)
    return inverse


def lower_gram(x: Tensor) -> Tensor:
    """The lower triangle of X^T X (n, n) for X (m, n), by strips; what is above may be anything."""
    n = x.shape[1]
    result = x.new_zeros(n, n)
    for start, stop in _strips(n):
        torch.mm(x[:, start:stop].T, x[:, :stop], out=result[start:stop, :stop])
    return result


def multiply_by_transposed_lower(x: Tensor, lower: Tensor) -> Tensor:
    """The product X L^T (m, n) for a lower triangular L (n, n), by strips."""
    result = torch.empty_like(x)
    for start, stop in _strips(len(lower)):
        torch.mm(x[:, :stop], lower[start:stop, :stop].T, out=result[:, start:stop])
    return result


def _strips(n: int) -> list[tuple[int, int]]:
    count = min(max(n // WIDE_STRIP, 1), MOST_STRIPS)
    return list(pairwise(n * i // count for i in range(count + 1)))
