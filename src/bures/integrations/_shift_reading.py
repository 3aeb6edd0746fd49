"""What a network says of the shift between two samples: the numbers that monitors log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bures.arrays import describe
from bures.selection import negative_ckb
from bures.shift._priors import estimated_frequencies

__all__ = ["ShiftReading", "read_shift"]


class ShiftReading(NamedTuple):
    """What `read_shift` found.

    Attributes
    ----------
    ckb : float
        Squared CKB between labelled source features and pseudo-labelled target features; NaN where the features of
        both domains are one point.
    label_shift : float
        Total variation between class frequencies of the source and those estimated for the target: the share of
        samples that would have to change class.
    source_accuracy : float
        On the source samples that were given.
    target_accuracy_estimate : float
        From confidences alone.
    target_accuracy : float or None
        Where target labels were given.
    priors : array (K,)
        Class frequencies of the target, estimated.
    """

    ckb: float
    label_shift: float
    source_accuracy: float
    target_accuracy_estimate: float
    target_accuracy: float | None
    priors: NDArray[np.float64]


def read_shift(
    z_s: Tensor,
    logits_s: Tensor,
    y_s: Tensor,
    z_t: Tensor,
    logits_t: Tensor,
    y_t: Tensor | None = None,
    *,
    eps: str | float = 1e-2,
) -> ShiftReading:
    """Conditional shift, label shift and accuracies of one network on two samples.

    Parameters
    ----------
    z_s, logits_s, y_s : Tensor (n, d), (n, K), (n,)
        Features, logits and classes of source samples, at best ones that the network was not trained on.
    z_t, logits_t : Tensor (m, d), (m, K)
        Features and logits of target samples.
    y_t : Tensor (m,), optional
        Their classes, where they are known. They decide `ShiftReading.target_accuracy` and nothing else.
    eps : float or "auto", optional
        As in `bures.ckb`.

    Returns
    -------
    ShiftReading

    Notes
    -----
    The frequencies are those of black-box shift estimation, from how often each class is taken for another on the
    source. The accuracy is estimated by average thresholded confidence: as many source samples as are wrong lie below
    a confidence, and the share of the target above it is the estimate. Both trust that the network errs in the target
    as it does in the source, and both are flattered by samples it was trained on.

    References
    ----------
    .. [1] Z. Lipton, Y.-X. Wang and A. Smola, "Detecting and Correcting for Label Shift with Black Box Predictors",
       ICML 2018.
    .. [2] S. Garg et al., "Leveraging Unlabeled Data to Predict Out-of-Distribution Performance", ICLR 2022.

    Examples
    --------
    >>> import torch
    >>> from bures.integrations.lightning import read_shift
    >>> y_s, y_t = torch.arange(60) % 2, (torch.arange(60) % 4 > 0).long()
    >>> logits = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    >>> reading = read_shift(torch.randn(60, 3), logits[y_s], y_s, torch.randn(60, 3), logits[y_t])
    >>> round(reading.label_shift, 2), reading.source_accuracy
    (0.25, 1.0)
    """
    if logits_s.ndim != 2 or logits_t.ndim != 2 or logits_s.shape[1] != logits_t.shape[1]:
        raise ValueError(
            f"logits_s has shape {tuple(logits_s.shape)} and logits_t {tuple(logits_t.shape)}; accepted are (n, K) and "
            "(m, K) with the same classes"
        )
    for name, y, rows in (("y_s", y_s, logits_s), ("y_t", y_t, logits_t)):
        if y is not None and (y.shape != rows.shape[:1] or y.is_floating_point()):
            raise ValueError(f"{name} is a {describe(y)} beside {len(rows)} logits; accepted are as many integers")
    k = logits_s.shape[1]
    p_s, p_t = (logits.double().softmax(dim=1) for logits in (logits_s, logits_t))
    # It comes first because it checks its arguments.
    distance = -negative_ckb(z_s.double(), y_s, z_t.double(), p_t, eps=eps, max_samples=max(len(z_s), len(z_t)))
    found_s, found_t = p_s.argmax(dim=1), p_t.argmax(dim=1)
    joint = torch.bincount(k * found_s + y_s, minlength=k * k).reshape(k, k)
    counts = torch.bincount(found_t, minlength=k)
    frequencies = estimated_frequencies(joint.cpu().numpy(), counts.cpu().numpy(), 0, np.random.default_rng(0))
    right = found_s == y_s
    return ShiftReading(
        ckb=distance,
        label_shift=frequencies.total_variation,
        source_accuracy=float(right.double().mean()),
        target_accuracy_estimate=_share_above(p_s.amax(dim=1), int((~right).sum()), p_t.amax(dim=1)),
        target_accuracy=None if y_t is None else float((found_t == y_t).double().mean()),
        priors=frequencies.target,
    )


def _share_above(confidence_s: Tensor, wrong: int, confidence_t: Tensor) -> float:
    """Share of the target above the confidence below which ``wrong`` source samples lie."""
    ranked = confidence_s.sort().values
    threshold = ranked[wrong] if wrong < len(ranked) else torch.inf
    return float((confidence_t >= threshold).double().mean())
