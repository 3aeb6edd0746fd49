"""Whether confidences can be believed: accuracy against confidence, and the expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from bures.selection._calibration import sum_by_confidence

__all__ = ["Reliability", "reliability"]


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions in bins of equal width by their confidence.

    Parameters
    ----------
    counts : integer array (B,)
        Predictions in each bin.
    confidence, accuracy : array (B,)
        Their mean confidence and the share that is right; NaN in an empty bin.
    """

    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean over all samples of how far confidence and accuracy of a bin differ."""
        filled = self.counts > 0
        gaps = np.abs(self.confidence[filled] - self.accuracy[filled])
        return float(np.average(gaps, weights=self.counts[filled]))

    @property
    def overconfidence(self) -> float:
        """Mean confidence less accuracy: positive where a model is surer than it is right."""
        filled = self.counts > 0
        gaps = self.confidence[filled] - self.accuracy[filled]
        return float(np.average(gaps, weights=self.counts[filled]))


def reliability(confidence: ArrayLike, right: ArrayLike, *, bins: int = 15) -> Reliability:
    """Accuracy against confidence in bins of equal width.

    Parameters
    ----------
    confidence : array (n,)
        Probabilities of the predicted classes, from 0 to 1.
    right : boolean array (n,)
        Whether the predictions are right.
    bins : int, optional
        Number of bins; bin b has confidences above b / bins up to (b + 1) / bins.

    Returns
    -------
    Reliability
        The bins, and the expected calibration error.

    Examples
    --------
    >>> from bures.report import reliability
    >>> round(reliability([0.9, 0.9, 0.9, 0.9], [True, True, True, False]).ece, 6)
    0.15
    """
    p, hit = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if p.ndim != 1 or p.shape != hit.shape or not len(p):
        raise ValueError(
            f"confidence has shape {p.shape} and right {hit.shape}; accepted are two vectors of one length, not empty"
        )
    if not (np.isfinite(p).all() and p.min() >= 0 and p.max() <= 1 + 1e-6):
        raise ValueError(f"confidence has values from {p.min()} to {p.max()}; accepted are probabilities")
    counts, confidences, hits = (
        part.numpy() for part in sum_by_confidence(torch.from_numpy(p), torch.from_numpy(hit), bins)
    )
    with np.errstate(invalid="ignore"):
        return Reliability(counts.astype(np.int64), confidences / counts, hits / counts)
