"""Random exchanges of samples between two domains, within classes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["log_arrangements", "orders_within", "unordered"]


def orders_within(strata: Tensor, count: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Batches (b, N) of orders of N samples in which every place keeps its class; the first of all is the identity.

    Place i of an order holds the number of a sample of class ``strata[i]``. As places keep their class, the class
    counts of both domains, and all that follows from them, are the same for every order.

    Parameters
    ----------
    strata : Tensor (N,)
        The class of each sample, source samples first; integers on the CPU.
    count : int
        How many orders beside the identity.
    batch : int
        How many orders at a time.
    seed : int
        Seed of the orders; how they are batched does not change them.
    """
    generator = torch.Generator().manual_seed(seed)
    places = torch.argsort(strata, stable=True)
    yield torch.arange(len(strata))[None]
    for start in range(0, count, batch):
        keys = torch.rand(min(batch, count - start), len(strata), generator=generator, dtype=torch.float64)
        order = torch.empty(keys.shape, dtype=torch.int64)
        order[:, places] = torch.argsort(keys + strata, dim=1)  # by class, and at random within
        yield order


def log_arrangements(n_source: Tensor, n_target: Tensor) -> float:
    """Logarithm of the number of ways to deal the samples of each class (K,) to the two domains."""
    n, m = n_source.double(), n_target.double()
    return float((torch.lgamma(n + m + 1) - torch.lgamma(n + 1) - torch.lgamma(m + 1)).sum().clamp_min(0))


def unordered(pooled: Tensor) -> Tensor:
    """The samples (N, d) in an order that does not depend on the one they came in.

    What is chosen by a fixed seed from this list, landmarks for instance, depends on which samples there are and not
    on the domain they are from. Chosen from the list as given, it would: the observed split would differ from every
    permuted one in how many landmarks each domain has, and the level of the test would not be exact.
    """
    weights = torch.rand(pooled.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scale = pooled.abs().amax().clamp_min(math.ulp(0.0))
    keys = (pooled / scale * (1 + weights).to(pooled.device)).sum(dim=1)
    return pooled[torch.argsort(keys, stable=True)]
