"""Class frequencies of a domain without labels, by black-box shift estimation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "BOOTSTRAP_UP_TO",
    "ClassFrequencies",
    "class_weights",
    "counted_frequencies",
    "estimated_frequencies",
    "plausible_weights",
]

RIDGE = 1e-2
"""Pull of the weights towards one, relative to the mean square of the frequencies, while a network is learning."""

ESTIMATE_RIDGE = 1e-4
"""The same for an estimate that is reported: hardly any bias, and still an answer where a class is never predicted."""

BOOTSTRAP_UP_TO = 200
"""With more classes than this no interval is computed."""


@dataclass(frozen=True)
class ClassFrequencies:
    """Frequencies (K,) of the classes in both domains, and an interval of 95 % for the target's.

    ``weights`` are the ratios target / source; the interval is NaN where none was computed.
    """

    source: NDArray[np.float64]
    target: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def total_variation(self) -> float:
        """Half the sum of absolute differences: the share of samples that would have to change class."""
        return float(np.abs(self.source - self.target).sum() / 2)


def class_weights(joint: Tensor, predicted: Tensor, *, ridge: float = RIDGE) -> Tensor:
    r"""Ratios :math:`\pi_t(c) / \pi_s(c)` of class frequencies, by black-box shift estimation.

    Parameters
    ----------
    joint : Tensor (K, K)
        Frequencies of (predicted class, true class) on the source.
    predicted : Tensor (K,)
        Frequencies of predicted classes on the target.
    ridge : float, optional
        Pull towards equal weights, relative to the mean square of ``joint``.

    Returns
    -------
    Tensor (K,)
        Non-negative weights whose mean over the source is one: the solution of :math:`C w = q` with a ridge towards
        equal weights, which decides where predictions carry no information yet.

    Notes
    -----
    Lipton, Wang and Smola, "Detecting and Correcting for Label Shift with Black Box Predictors", ICML 2018, with the
    regularisation of Azizzadenesheli et al., ICLR 2019.

    Examples
    --------
    >>> import torch
    >>> from bures.shift._priors import class_weights
    >>> class_weights(torch.diag(torch.tensor([0.5, 0.5])).double(), torch.tensor([0.8, 0.2]).double())
    tensor([1.5941, 0.4059], dtype=torch.float64)
    """
    k = len(predicted)
    pull = (ridge * joint.square().sum() / k).clamp_min(torch.finfo(joint.dtype).tiny)
    gram = joint.T @ joint + pull * torch.eye(k, dtype=joint.dtype, device=joint.device)
    change, _ = torch.linalg.solve_ex(gram, joint.T @ (predicted - joint.sum(dim=1)))
    weights: Tensor = (1 + change).clamp_min(0)
    mean = weights @ joint.sum(dim=0)
    return weights / torch.where(mean > 0, mean, 1.0)


def counted_frequencies(
    count_s: NDArray[np.int64], count_t: NDArray[np.int64], n_bootstrap: int, rng: np.random.Generator
) -> ClassFrequencies:
    """Frequencies from true labels: class counts (K,) of both domains."""
    source, target = count_s / count_s.sum(), count_t / count_t.sum()
    drawn = rng.multinomial(count_t.sum(), target, size=n_bootstrap) / count_t.sum() if n_bootstrap else None
    ratio = np.divide(target, source, out=np.zeros_like(target), where=source > 0)
    return ClassFrequencies(source, target, *_interval(drawn, len(source)), ratio)


def estimated_frequencies(
    joint: NDArray[np.int64], predicted: NDArray[np.int64], n_bootstrap: int, rng: np.random.Generator
) -> ClassFrequencies:
    """Frequencies from predictions: counts (predicted, true) (K, K) on the source, and predicted (K,) on the target.

    They are right if each class is confused with the others as often in the target as in the source, which is so
    where P(X|Y) is the same. The bootstrap draws both samples anew.
    """
    n, m, k = int(joint.sum()), int(predicted.sum()), len(predicted)

    def ratios(joint: NDArray[np.float64], predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        return class_weights(torch.from_numpy(joint), torch.from_numpy(predicted), ridge=ESTIMATE_RIDGE).numpy()

    source = joint.sum(axis=0) / n
    weights = ratios(joint / n, predicted / m)
    drawn = None
    if n_bootstrap and k <= BOOTSTRAP_UP_TO:
        joints = rng.multinomial(n, joint.ravel() / n, size=n_bootstrap).reshape(-1, k, k) / n
        targets = rng.multinomial(m, predicted / m, size=n_bootstrap) / m
        drawn = np.stack([ratios(j, q) * j.sum(axis=0) for j, q in zip(joints, targets, strict=True)])
    return ClassFrequencies(source, weights * source, *_interval(drawn, k), weights)


def plausible_weights(
    joint: NDArray[np.int64], predicted: NDArray[np.int64], count: int, rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """Other ratios target / source (K,) that the counts of `estimated_frequencies` allow for, by its bootstrap."""
    n, m, k = int(joint.sum()), int(predicted.sum()), len(predicted)
    pairs = (
        (rng.multinomial(n, joint.ravel() / n).reshape(k, k) / n, rng.multinomial(m, predicted / m) / m)
        for _ in range(count)
    )
    return [class_weights(*map(torch.from_numpy, pair), ridge=ESTIMATE_RIDGE).numpy() for pair in pairs]


def _interval(drawn: NDArray[np.float64] | None, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if drawn is None or len(drawn) == 0:
        return np.full(k, np.nan), np.full(k, np.nan)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return low, high
