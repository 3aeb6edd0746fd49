"""Calibration: whether a confidence of 0.8 is right in 80 % of cases, and the temperature that makes it so."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

from bures.arrays import Array, as_sample_weight, check_count, check_positive
from bures.selection._evidence import read_labels, read_probabilities

__all__ = [
    "COLDEST",
    "HOTTEST",
    "Bin",
    "Reliability",
    "expected_calibration_error",
    "fit_temperature",
    "reliability",
    "scale_probabilities",
    "sum_by_confidence",
]

COLDEST, HOTTEST = 1e-2, 1e2


class Bin(NamedTuple):
    """Predictions of similar confidence.

    Attributes
    ----------
    samples : int
        How many there are.
    confidence : float
        Their mean confidence.
    accuracy : float
        The share that is right.
    """

    samples: int
    confidence: float
    accuracy: float


class Reliability(NamedTuple):
    """How far confidence is from accuracy; `reliability` finds it.

    Attributes
    ----------
    error : float
        Expected calibration error.
    bins : tuple of Bin
        What it is made of; bins without samples are left out.
    """

    error: float
    bins: tuple[Bin, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"error": self.error, "bins": [part._asdict() for part in self.bins]}


def reliability(probabilities: Array, labels: Array, *, n_bins: int = 15) -> Reliability:
    """Confidence against accuracy, in bins of equal width.

    Parameters
    ----------
    probabilities : array (n, K)
        Predicted class probabilities.
    labels : integer array (n,)
        The true classes.
    n_bins : int, optional
        Number of bins of confidences from 0 to 1.

    Returns
    -------
    Reliability
        ``error`` is the expected calibration error, ``bins`` what a reliability diagram shows.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import reliability
    >>> p = np.array([[0.75, 0.25]] * 4)
    >>> reliability(p, np.array([0, 0, 0, 1])).bins
    (Bin(samples=4, confidence=0.75, accuracy=0.75),)
    """
    n_bins = check_count("n_bins", n_bins)
    p, y = _read(probabilities, labels)
    confidence, predicted = p.max(dim=1)
    right = (predicted == y).double()
    counts, *sums = sum_by_confidence(confidence, right, n_bins)
    error = float((sums[0] - sums[1]).abs().sum() / len(p))
    bins = (Bin(int(n), float(c / n), float(r / n)) for n, c, r in zip(counts, *sums, strict=True) if n > 0)
    return Reliability(error, tuple(bins))


def sum_by_confidence(confidence: Tensor, right: Tensor, n_bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """In bins of equal width: how many samples, the sum of their confidences, and how many are right; float64."""
    # A confidence on the border of two bins belongs to the lower one, so that 1 is in the last.
    numbers = ((confidence * n_bins).ceil().long() - 1).clamp(0, n_bins - 1)
    counts = torch.bincount(numbers, minlength=n_bins).double()
    sums = [torch.bincount(numbers, weights=values.double(), minlength=n_bins) for values in (confidence, right)]
    return counts, sums[0], sums[1]


def expected_calibration_error(probabilities: Array, labels: Array, *, n_bins: int = 15) -> float:
    r"""Expected calibration error: how far confidence and accuracy are apart, on average over bins of confidence.

    Parameters
    ----------
    probabilities : array (n, K)
        Predicted class probabilities.
    labels : integer array (n,)
        The true classes.
    n_bins : int, optional
        Number of bins of equal width.

    Returns
    -------
    float
        :math:`\sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|`, from 0 to 1.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import expected_calibration_error
    >>> expected_calibration_error(np.array([[1.0, 0.0]] * 4), np.array([0, 0, 0, 1]))  # always sure, right in 3 of 4
    0.25
    """
    return reliability(probabilities, labels, n_bins=n_bins).error


def scale_probabilities(probabilities: Array, temperature: float) -> Tensor:
    r"""Probabilities at another temperature: the softmax of the logits divided by it.

    Parameters
    ----------
    probabilities : array (n, K)
        At temperature 1. Logits are not needed: they are the logarithms up to a constant of each row.
    temperature : float
        Above 1 predictions become less sure, below 1 surer; the most probable class stays.

    Returns
    -------
    Tensor (n, K)
        :math:`p_{ic}^{1/T} / \sum_{c'} p_{ic'}^{1/T}`, of the dtype of the probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import scale_probabilities
    >>> scale_probabilities(np.array([[0.9, 0.1]]), 2.0)
    tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """
    t = check_positive("temperature", temperature)
    p = read_probabilities("probabilities", probabilities)
    return p if t == 1 else (_logits(p) / t).softmax(dim=1).to(p.dtype)


def fit_temperature(probabilities: Array, labels: Array, *, sample_weight: Array | None = None) -> float:
    r"""The temperature at which predictions are calibrated best: that of the smallest mean negative log-likelihood.

    Parameters
    ----------
    probabilities : array (n, K)
        Predictions for samples that were not trained on, as a rule of the source.
    labels : integer array (n,)
        Their classes.
    sample_weight : array (n,), optional
        Weights of the samples. With density ratios (`importance_weights`) the temperature is that for the *target*, as
        far as the domains differ in P(X) alone; without, that for the source.

    Returns
    -------
    float
        From 0.01, where every prediction is right and could be surer still, to 100, where they say nothing.

    Notes
    -----
    The log-likelihood is concave in :math:`\beta = 1/T`. Its derivative
    :math:`\sum_i w_i (z_{i y_i} - \sum_c p_{ic}(\beta) z_{ic})` falls with :math:`\beta` and its root is bracketed, so
    the answer does not depend on a start or a learning rate.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017. Park, Bastani, Weimer and
    Lee, "Calibrated prediction with covariate shift via unsupervised domain adaptation", AISTATS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import fit_temperature
    >>> p = np.array([[0.9, 0.1]] * 4)
    >>> round(fit_temperature(p, np.array([0, 0, 0, 1])), 4)  # right in 3 of 4: 0.9 becomes 0.75
    2.0
    """
    p, y = _read(probabilities, labels)
    weights = as_sample_weight("sample_weight", sample_weight, len(p), like=p)
    z = _logits(p)
    own = weights @ z.gather(1, y[:, None])[:, 0]

    def slope(beta: float) -> float:
        return float(own - weights @ ((beta * z).softmax(dim=1) * z).sum(dim=1))

    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(low) <= 0:  # also where all classes are equally probable everywhere, and no temperature matters
        return 1.0 if float((z.max(dim=1).values - z.min(dim=1).values).max()) == 0 else HOTTEST
    if slope(high) >= 0:
        return COLDEST
    return 1 / float(brentq(slope, low, high, xtol=1e-12, rtol=1e-12))


def _logits(p: Tensor) -> Tensor:
    """Logarithms in float64; what has vanished in rounding becomes the smallest number there is."""
    return p.double().clamp(min=torch.finfo(torch.float32).tiny).log()


def _read(probabilities: Array, labels: Array) -> tuple[Tensor, Tensor]:
    p = read_probabilities("probabilities", probabilities).double()
    y = read_labels("labels", labels, p.shape[1])
    if len(y) != len(p):
        raise ValueError(f"labels has {len(y)} entries but there are {len(p)} rows of probabilities")
    return p, y
