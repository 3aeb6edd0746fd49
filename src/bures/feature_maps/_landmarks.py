"""Which samples become the landmarks of a Nyström map."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["LANDMARKS", "kmeans_plus_plus", "pivoted_cholesky", "uniform"]

LANDMARKS = ("uniform", "k-means++", "pivoted-cholesky")


def uniform(n_samples: int, n_landmarks: int, seed: int) -> Tensor:
    """Indices of samples drawn without replacement."""
    return torch.randperm(n_samples, generator=torch.Generator().manual_seed(seed))[:n_landmarks]


def kmeans_plus_plus(rows: Tensor, n_landmarks: int, seed: int) -> Tensor:
    """Indices of samples far from each other: the seeding of k-means."""
    from sklearn.cluster import kmeans_plusplus

    _, index = kmeans_plusplus(rows.cpu().numpy(), n_landmarks, random_state=seed % 2**32)  # its seeds end there
    return torch.as_tensor(index, dtype=torch.int64)


def pivoted_cholesky(
    kernel_row: Callable[[int], Tensor], diagonal: Tensor, n_landmarks: int, tolerance: float, seed: int
) -> Tensor:
    r"""Indices drawn one by one where the kernel is badly explained by those drawn before [1]_.

    Each step draws a sample in proportion to its residual :math:`k(x, x) - \|\Pi \phi(x)\|^2` and adds the column of
    the Cholesky factor that it makes. The sum of the residuals is the trace of what the landmarks leave over. Always
    taking the largest residual instead would collect outliers first.

    Parameters
    ----------
    kernel_row : callable
        The kernel between sample i and all samples, (n,).
    diagonal : Tensor (n,)
        The kernel between each sample and itself.
    n_landmarks : int
        How many at most; fewer when the residual falls to rounding, as it does with duplicated samples.
    tolerance : float
        Stop once the mean residual is at most this share of the mean of the diagonal.
    seed : int
        Seed of the draws.

    References
    ----------
    .. [1] Y. Chen, E. N. Epperly, J. A. Tropp and R. J. Webber, "Randomly pivoted Cholesky: Practical approximation of
       a kernel matrix with few entry evaluations", Comm. Pure Appl. Math. 78, 2025.
    """
    generator = torch.Generator().manual_seed(seed)
    residual = diagonal.clone()
    factor = torch.empty(n_landmarks, len(diagonal), dtype=diagonal.dtype, device=diagonal.device)
    rounding = 16 * torch.finfo(diagonal.dtype).eps * diagonal
    chosen: list[int] = []
    while len(chosen) < n_landmarks and float(residual.sum()) > tolerance * float(diagonal.sum()):
        pivot = int(torch.multinomial(residual.cpu(), 1, generator=generator))
        done = factor[: len(chosen)]
        column = (kernel_row(pivot) - done[:, pivot] @ done) / residual[pivot].sqrt()
        factor[len(chosen)] = column
        residual = residual - column.square()
        residual = torch.where(residual > rounding, residual, 0.0)
        residual[pivot] = 0
        chosen.append(pivot)
    return torch.tensor(chosen)
