r"""Products of float32 matrices from products of half-precision ones, which a GPU multiplies many times faster.

A float32 matrix is the sum of two of half precision, :math:`A = A_1 + A_2`, to 22 of its 24 binary digits. Of the four
products in :math:`A B` that of the two remainders is left out, and the others are summed in float32. A Gram matrix
takes two products, as :math:`A_2^\top A_1` is the transpose of :math:`A_1^\top A_2`.

Entries are to be at most one or so, as those of matrices of norm one are: they are multiplied by a power of two, which
keeps remainders clear of the lower end of half precision.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from bures.arrays import is_transformed

__all__ = [
    "Halves",
    "add_product",
    "add_small_product",
    "gram",
    "gram_of_halves",
    "has_half_products",
    "multiply",
    "split",
]

UNIT = 2.0**10  # entries up to 64 fit, and remainders of entries down to 1e-4 keep all of their digits


LARGE = 1024  # sides from which products of halves are worth their splitting


class Halves(NamedTuple):
    """A float32 matrix (m, n), times `UNIT`, as a sum of two in half precision."""

    high: Tensor
    low: Tensor


def has_half_products(matrix: Tensor) -> bool:
    """Whether the device of a matrix multiplies halves with sums in float32, by a call that this torch has."""
    return matrix.is_cuda and _device_has_half_products(matrix.device)


@cache
def _device_has_half_products(device: torch.device) -> bool:
    one = torch.ones(16, 16, dtype=torch.half, device=device)
    try:
        _add(_product(one, one), one, one)
    except (NotImplementedError, RuntimeError, TypeError):  # an older torch does not know the argument
        return False
    return True


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """The product A B of two matrices, by halves where that is faster."""
    if not _is_worth_splitting(a, b):
        return a @ b
    unit_a, unit_b = _unit(a), _unit(b)
    result = torch.zeros(len(a), b.shape[1], dtype=a.dtype, device=a.device)
    return add_product(result, split(a * unit_a), split(b * unit_b), beta=0, alpha=1).div_(unit_a * unit_b)


def gram(x: Tensor) -> Tensor:
    """The product X^T X of a matrix, by halves where that is faster."""
    if not _is_worth_splitting(x, x):
        return x.mT @ x
    unit = _unit(x)
    return gram_of_halves(split(x * unit)).div_(unit * unit)


def split(matrix: Tensor) -> Halves:
    """A float32 matrix (m, n), with entries up to 60 or so, in two halves."""
    high, low = (torch.empty_like(matrix, dtype=torch.half) for _ in range(2))
    torch.mul(matrix, UNIT, out=high)
    torch.sub(high, matrix, alpha=UNIT, out=low)  # computed in float32, and rounded once
    return Halves(high, low.neg_())


def gram_of_halves(x: Halves, *, quick: bool = False) -> Tensor:
    """The product X^T X (n, n); from the high halves alone if ``quick``."""
    scale = UNIT**-2
    if quick:
        return _product(x.high.T, x.high).mul_(scale)
    mixed = _product(x.high.T, x.low)
    return _add(mixed + mixed.T, x.high.T, x.high, beta=scale, alpha=scale)


def add_product(matrix: Tensor, a: Halves, b: Halves, *, beta: float, alpha: float) -> Tensor:
    """The sum of beta times a matrix and alpha times A B."""
    alpha *= UNIT**-2
    matrix = _add(matrix, a.high, b.high, beta=beta, alpha=alpha)
    matrix = _add(matrix, a.high, b.low, alpha=alpha)
    return _add(matrix, a.low, b.high, alpha=alpha)


def add_small_product(matrix: Tensor, a: Halves, b: Tensor) -> Tensor:
    """The sum of a matrix and A B for a small B: rounded to half precision, as A is, it changes the sum little."""
    return _add(matrix, a.high, torch.mul(b, UNIT).half(), alpha=UNIT**-2)


def _is_worth_splitting(a: Tensor, b: Tensor) -> bool:
    if torch.compiler.is_compiling() or is_transformed():
        return False
    large = min(*a.shape[-2:], b.shape[-1]) >= LARGE
    return large and a.ndim == b.ndim == 2 and a.dtype == b.dtype == torch.float32 and has_half_products(a)


def _unit(matrix: Tensor) -> Tensor:
    """The power of two that brings the largest entry near one."""
    largest = matrix.abs().amax()
    return torch.where(largest > 0, torch.exp2(-torch.ceil(torch.log2(largest))), 1.0)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def _add(matrix: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if a.is_cuda:
        return torch.addmm(matrix, a, b, out_dtype=torch.float32, beta=beta, alpha=alpha)
    return torch.addmm(matrix, a.float(), b.float(), beta=beta, alpha=alpha)
