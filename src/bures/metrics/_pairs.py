"""Many pairs of domains in one call: the leading dimensions of the features number the pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bures.arrays import (
    Array,
    as_features,
    as_sample_weight,
    check_finite,
    is_tensor_call,
    numpy_to_tensor,
    refuse_masked,
)
from bures.labels import Labels, class_prior_weights, read_labels
from bures.metrics._problem import assemble_problem, check_options

__all__ = ["ckb_of_pairs", "is_batched"]


def is_batched(xs: Array, xt: Array) -> bool:
    """Whether the features of both domains have more than two dimensions."""
    return all(len(getattr(x, "shape", ())) > 2 for x in (xs, xt))


def ckb_of_pairs(
    xs: Array,
    ys: Array,
    xt: Array,
    yt: Array,
    *,
    conditioning: Any,
    method: str,
    sample_weight_s: Array | None,
    sample_weight_t: Array | None,
    **options: Any,
) -> Any:
    """Squared CKB distances (...) of pairs of samples (..., n, d) and (..., m, d); the options are those of `ckb`.

    Classes are numbered together over all pairs.
    """
    check_options(method=method, **options)
    for name in ("kernel", "bandwidth", "label_kernel", "label_bandwidth"):
        if callable(options[name]) or options[name] == "median":
            raise ValueError(
                f"{name}={options[name]!r} is for one pair of samples at a time; pass features of two dimensions"
            )
    given = {"xs": xs, "ys": ys, "xt": xt, "yt": yt}
    weights = {"sample_weight_s": sample_weight_s, "sample_weight_t": sample_weight_t}
    tensor_call = is_tensor_call(**given, **weights)
    s, t = _read_features("xs", xs), _read_features("xt", xt)
    if s.shape[:-2] != t.shape[:-2] or s.shape[-1] != t.shape[-1]:
        raise ValueError(
            f"xs has shape {tuple(s.shape)} but xt has {tuple(t.shape)}; "
            "both must have the same leading dimensions and the same number of features"
        )
    dtype = torch.promote_types(s.dtype, t.dtype)
    s, t = s.to(dtype), t.to(dtype)
    lead, n, m = s.shape[:-2], s.shape[-2], t.shape[-2]
    pairs = math.prod(lead)
    flat_s, flat_t = (_flatten(name, y, (*lead, k)) for name, y, k in (("ys", ys, n), ("yt", yt, m)))
    labels_s, labels_t = read_labels(flat_s, flat_t, conditioning, pairs * n, pairs * m, like=s)
    ws, wt = (
        torch.stack([as_sample_weight(name, row, k, like=s) for row in _rows_of_weights(name, w, (*lead, k), pairs)])
        for (name, w), k in zip(weights.items(), (n, m), strict=True)
    )

    values_s, values_t = (
        labels.values.reshape(pairs, k, *labels.values.shape[1:]) for labels, k in ((labels_s, n), (labels_t, m))
    )
    prior = options.pop("prior")
    if prior is not None:  # one by one: whether the classes of a pair allow it cannot be seen in all pairs at once
        weighted = [
            class_prior_weights(_with_values(labels_s, y_s), _with_values(labels_t, y_t), w_s, w_t, prior)[:2]
            for y_s, y_t, w_s, w_t in zip(values_s, values_t, ws, wt, strict=True)
        ]
        ws, wt = (torch.stack(side) for side in zip(*weighted, strict=True))

    def distance(s: Tensor, values_s: Tensor, ws: Tensor, t: Tensor, values_t: Tensor, wt: Tensor) -> Tensor:
        one, other = _with_values(labels_s, values_s), _with_values(labels_t, values_t)
        problem = assemble_problem(s, t, one, other, ws, wt, method=method, prior=None, tensor_call=True, **options)
        return problem.terms().squared_distance

    features_s, features_t = s.reshape(pairs, n, -1), t.reshape(pairs, m, -1)
    result = torch.func.vmap(distance)(features_s, values_s, ws, features_t, values_t, wt).reshape(lead)
    return result if tensor_call else result.numpy()


def _read_features(name: str, value: Array) -> Tensor:
    x = as_features(name, value)
    check_finite(name, x.reshape(-1, x.shape[-1]))
    return x


def _flatten(name: str, value: Array, expected: tuple[int, ...]) -> Any:
    """Labels (..., n) or (..., n, K) of all pairs one after another."""
    refuse_masked(name, value)
    y = value if isinstance(value, Tensor) else np.asarray(value)
    shape = tuple(y.shape)
    if shape != expected and (shape[:-1] != expected or not shape):
        raise ValueError(f"{name} has shape {shape}; accepted is {expected} for classes, or rows {(*expected, 'K')}")
    return y.reshape(math.prod(expected), *shape[len(expected) :])


def _rows_of_weights(name: str, weight: Array | None, expected: tuple[int, ...], pairs: int) -> list[Any]:
    if weight is None:
        return [None] * pairs
    w = weight if isinstance(weight, Tensor) else numpy_to_tensor(name, weight)
    if tuple(w.shape) != expected:
        raise ValueError(f"{name} has shape {tuple(w.shape)}; accepted is one weight per sample, {expected}")
    return list(w.reshape(pairs, -1))


def _with_values(labels: Labels, values: Tensor) -> Labels:
    return Labels(labels.kind, values, labels.names, labels.n_classes, labels.resolution)
