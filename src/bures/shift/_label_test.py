"""The test of whether class frequencies are the same in both domains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bures.testing._aggregate import TIE

__all__ = ["label_test"]


def label_test(
    count_s: NDArray[np.int64], count_t: NDArray[np.int64], n_permutations: int, rng: np.random.Generator
) -> tuple[float, float]:
    r"""Pearson's :math:`\chi^2` between class counts (K,) of two domains, and its p-value by permuting the labels.

    To permute labels is to draw the source's without replacement from all, so that the counts are drawn directly.
    The p-value holds for rare classes too, where that of the :math:`\chi^2` distribution does not, and is never 0.
    """
    total = count_s + count_t
    n, m = int(count_s.sum()), int(count_t.sum())
    drawn = rng.multivariate_hypergeometric(total, n, size=n_permutations)
    expected = np.maximum(total, 1) * (n / (n + m))
    # With the totals given, the target's deviations are those of the source with the sign changed.
    statistics = ((np.vstack([count_s, drawn]) - total * (n / (n + m))) ** 2 / expected).sum(axis=1) * (1 + n / m)
    observed = statistics[0]
    return float(observed), float((statistics >= observed * (1 - TIE)).sum()) / (1 + n_permutations)
