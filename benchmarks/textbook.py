"""Theorem 5 computed as it is written: the baseline of the benchmarks.

An explicit inverse for each trace, an eigendecomposition of each B, the nuclear norm from singular values, and autograd
through the features. Labels are one-hot or soft rows; bandwidths are the means of each kernel matrix.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def textbook_ckb(
    xs: Tensor, ys: Tensor, xt: Tensor, yt: Tensor, eps: float = 1e-2, *, driver: str | None = None
) -> Tensor:
    """Squared CKB; ``driver`` names one of cuSOLVER's singular value decompositions, for tensors on a GPU."""
    traces, norm = textbook_terms(xs, ys, xt, yt, eps, driver=driver)
    return traces - 2 * norm


def textbook_terms(
    xs: Tensor, ys: Tensor, xt: Tensor, yt: Tensor, eps: float = 1e-2, *, driver: str | None = None
) -> tuple[Tensor, Tensor]:
    """The sum of the two traces, and the nuclear norm over the root of n m."""
    n, m = len(xs), len(xt)
    h_s, h_t = _centring(n, xs), _centring(m, xt)
    gy_s, gy_t = h_s @ _gaussian(ys, ys) @ h_s, h_t @ _gaussian(yt, yt) @ h_t
    inverse_s = torch.linalg.inv(eps * n * _eye(n, xs) + gy_s)
    inverse_t = torch.linalg.inv(eps * m * _eye(m, xt) + gy_t)
    c_s, c_t = _eigen_factor(eps * n * inverse_s), _eigen_factor(eps * m * inverse_t)
    trace_s = eps * torch.trace(h_s @ _gaussian(xs, xs) @ h_s @ inverse_s)
    trace_t = eps * torch.trace(h_t @ _gaussian(xt, xt) @ h_t @ inverse_t)
    cross = (h_t @ c_t).T @ _gaussian(xt, xs) @ (h_s @ c_s)
    if driver is None:
        norm = torch.linalg.matrix_norm(cross, ord="nuc")
    else:
        norm = torch.linalg.svd(cross, full_matrices=False, driver=driver).S.sum()
    return trace_s + trace_t, norm / math.sqrt(n * m)


def _gaussian(x: Tensor, y: Tensor) -> Tensor:
    squared = (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T).clamp_min(0)
    return torch.exp(-squared / squared.detach().mean())


def _centring(n: int, like: Tensor) -> Tensor:
    return _eye(n, like) - 1 / n


def _eye(n: int, like: Tensor) -> Tensor:
    return torch.eye(n, dtype=like.dtype, device=like.device)


def _eigen_factor(b: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh((b + b.T) / 2)
    return vectors * values.clamp_min(0).sqrt()
