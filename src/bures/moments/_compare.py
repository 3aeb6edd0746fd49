"""From the moments of two domains to a distance: options, checks, bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bures.arrays import check_choice, constant
from bures.columns import check_same_columns
from bures.factors import AUTO_EPS_SHARE, check_eps
from bures.kernels import KERNELS, Bandwidth, check_bandwidth
from bures.metrics._ckw import warn_of_missing_classes
from bures.metrics._problem import BuresTerms
from bures.moments._distances import (
    MomentDistance,
    bures_terms,
    class_mean_terms,
    class_means_bound,
    conditional_covariance,
    hard_label_contrast,
    projection_bound,
)
from bures.spectral import METHODS

if TYPE_CHECKING:
    from bures.moments._sums import MomentSums

__all__ = ["METRICS", "check_label_options", "measure"]

METRICS = ("ckb", "ckw", "kernel_bures", "mmd")
RESOLUTION = {"float64": 5e-8, "mixed": 2e-4}
"""Rounding of a distance beside the traces and itself: above the largest seen, 1.2e-8 and 1.6e-4, of few values.

Where a covariance has directions without variance, float32 fills these with a share of 1e-7, and the root counts.
"""

RESOLUTION_OF_MEANS = {"float64": 1e-8, "mixed": 1e-5}
"""The same for `mmd`, which takes no roots."""


def measure(
    s: MomentSums,
    t: MomentSums,
    metric: str,
    *,
    eps: str | float,
    label_kernel: str | None,
    label_bandwidth: Bandwidth | None,
    method: str,
) -> MomentDistance:
    """The distance named ``metric`` between the moments of a source and a target."""
    check_choice("metric", metric, METRICS)
    check_choice("method", method, METHODS)
    check_eps(eps)
    _check_comparable(s, t)
    tau = _lost_traces(s, t)
    if metric in ("ckb", "ckw"):
        terms = _conditional_terms(s, t, eps, label_kernel, label_bandwidth, method)
    elif metric == "kernel_bures":
        terms = bures_terms(_covariance(s), _covariance(t), s.n_weighted - 1, t.n_weighted - 1, method)
    else:
        squares = (s.scatter.mean_x - t.scatter.mean_x).square().sum()
        terms = BuresTerms(_covariance(s).trace(), _covariance(t).trace(), torch.zeros_like(squares))
    squared = squares if metric == "mmd" else terms.squared_distance
    bound = None if tau is None else projection_bound(*tau)
    if metric == "ckw":
        means, importance, frequency_s, frequency_t = class_mean_terms(s.scatter, t.scatter, s.n_classes)
        warn_of_missing_classes(frequency_s, frequency_t, range(s.n_classes), stacklevel=4)
        squared = squared + importance @ means
        if bound is not None and tau is not None:
            bound += class_means_bound(*tau, importance, frequency_s, frequency_t)
    traces = float(terms.trace_s), float(terms.trace_t)
    if bound is not None:
        resolution = RESOLUTION_OF_MEANS if metric == "mmd" else RESOLUTION
        bound += resolution[s.precision] * (sum(traces) + abs(float(squared)))
    return MomentDistance(float(squared), bound, *traces, metric=metric)


def check_label_options(moments: MomentSums, label_kernel: str | None, label_bandwidth: Bandwidth | None) -> None:
    """Raise unless moments, which may be empty, can be measured with these options: before a long stream is read."""
    _contrasts(moments, label_kernel, label_bandwidth)


def _check_comparable(s: MomentSums, t: MomentSums) -> None:
    for name in ("feature_map", "n_classes", "precision"):
        ours, theirs = s.description()[name], t.description()[name]
        if ours != theirs:
            raise ValueError(
                f"the source moments have {name}={ours!r}, the target moments {theirs!r}; "
                "moments can be compared only if they agree in this"
            )
    check_same_columns(s.columns, t.columns, names=("the table of the source moments", "that of the target moments"))
    for domain, moments in (("source", s), ("target", t)):
        if not moments.weight > 0:
            raise ValueError(f"the {domain} moments hold no sample of positive weight; call update first")
    if s.scatter.xx.device != t.scatter.xx.device:
        raise ValueError(
            f"the source moments are on device {s.scatter.xx.device}, the target moments on {t.scatter.xx.device}; "
            "make both with a map on one device"
        )


def _covariance(moments: MomentSums) -> Tensor:
    return moments.scatter.xx / moments.scatter.weight


def _conditional_terms(
    s: MomentSums,
    t: MomentSums,
    eps: str | float,
    label_kernel: str | None,
    label_bandwidth: Bandwidth | None,
    method: str,
) -> BuresTerms:
    label_kernel = label_kernel or _fixed_label_kernel(s, t)
    contrasts = [_contrasts(moments, label_kernel, label_bandwidth) for moments in (s, t)]
    if isinstance(eps, str):
        one_hot = [between_classes for _, between_classes in contrasts]
        regulariser = AUTO_EPS_SHARE * (one_hot[0] + one_hot[1]) / (2 * _classes_in_use(s, t))
    else:
        regulariser = constant(float(eps), s.scatter.xx)
    r_s, r_t = (
        conditional_covariance(moments.scatter, moments.label_columns, contrast, regulariser)
        for moments, (contrast, _) in zip((s, t), contrasts, strict=True)
    )
    return bures_terms(r_s, r_t, s.n_weighted - 1, t.n_weighted - 1, method)


def _fixed_label_kernel(s: MomentSums, t: MomentSums) -> str | None:
    """The kernel that soft labels have; hard ones beside them take it too, or equal samples would be at a distance."""
    kernels = ["linear" if m.label_map is None else m.label_map.kernel for m in (s, t) if m.labels == "soft"]
    if len(set(kernels)) > 1:
        raise ValueError(
            f"the source moments have the label kernel {kernels[0]!r}, the target moments {kernels[1]!r}; "
            "make both with a label_map of one kernel, or both without"
        )
    return kernels[0] if kernels else None


def _contrasts(
    moments: MomentSums, label_kernel: str | None, label_bandwidth: Bandwidth | None
) -> tuple[Tensor, Tensor]:
    """What multiplies the products of the label features, and k(y, y) - k(y, y') for two classes."""
    one = constant(1.0, moments.scatter.xx)
    if moments.labels == "hard":
        kernel, bandwidth = label_kernel or "gaussian", "mean" if label_bandwidth is None else label_bandwidth
        check_choice("label_kernel", kernel, KERNELS)
        check_bandwidth(bandwidth, rules=("mean",), name="label_bandwidth")
        contrast = hard_label_contrast(moments.scatter.mean_y, kernel, bandwidth)
        return contrast, contrast
    label_map = moments.label_map
    kernel = "linear" if label_map is None else label_map.kernel
    if label_bandwidth is not None or label_kernel not in (None, kernel):
        raise ValueError(
            f"label_kernel={label_kernel!r} and label_bandwidth={label_bandwidth!r} do not apply to soft labels, whose "
            f"kernel was fixed with their features (here {kernel!r}); leave both at None, or pass another label_map"
        )
    if label_map is None or label_map.bandwidth is None:
        return one, one
    # One-hot rows of two classes are at squared Euclidean distance 2 and at L1 distance 2.
    width = label_map.bandwidth if kernel == "gaussian" else math.sqrt(label_map.bandwidth)
    return one, constant(-math.expm1(-2 / width), one)


def _classes_in_use(s: MomentSums, t: MomentSums) -> int:
    """K as `bures.ckb` counts it: the classes that occur, or the columns of a matrix."""
    if "soft" in (s.labels, t.labels):
        return s.n_classes
    return int(((s.scatter.mean_y > 0) | (t.scatter.mean_y > 0)).sum())


def _lost_traces(s: MomentSums, t: MomentSums) -> tuple[float, float] | None:
    """The mean of k(x, x) - |phi(x)|^2 in each domain; None where the map certifies nothing."""
    feature_map = s.feature_map
    if not feature_map.is_projection:
        return None
    if feature_map.kernel == "linear":
        return 0.0, 0.0  # nothing is projected away
    offset = s.compute_map.offset
    kept = [_covariance(m).trace() + (m.scatter.mean_x + offset).square().sum() for m in (s, t)]
    return max(0.0, float(1 - kept[0])), max(0.0, float(1 - kept[1]))
