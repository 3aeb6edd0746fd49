"""Every method on samples large enough for it to go its own way, against Theorem 5 in NumPy; degenerate data too."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from scipy.spatial.distance import cdist

import bures

N, M, K, EPS = 170, 190, 5, 1e-2
EXACT = ["auto", "svd", "gram", "deflation", "polar"]
CASES = [
    "ordinary", "fewer-samples-than-features", "duplicates", "one-sample-per-class", "missing-class",
    "constant-target", "zero-target", "one-constant-feature",
]  # fmt: skip
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def problem(case):
    """Features and labels of both domains in float64: hard classes against soft predictions or hard classes."""
    rng = np.random.default_rng(0)
    d = 300 if case == "fewer-samples-than-features" else 12
    ys, yt = rng.integers(K, size=N), rng.integers(K, size=M)
    if case == "missing-class":
        yt[yt == 2] = 0
    centres = rng.normal(size=(K, d))
    xs, xt = centres[ys] + rng.normal(size=(N, d)), centres[yt] + 1.3 * rng.normal(size=(M, d))
    logits = 3 * np.eye(K)[yt] + rng.normal(size=(M, K))
    labels_t = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    if case == "duplicates":
        xs, ys, xt, labels_t = xs[np.arange(N) // 5], ys[np.arange(N) // 5], xt[np.arange(M) // 5], labels_t
    if case == "one-sample-per-class":
        ys, labels_t = np.arange(N), np.arange(M)
    if case == "missing-class":
        labels_t = yt
    if case in ("constant-target", "zero-target"):
        xt = np.full_like(xt, 3.7 if case == "constant-target" else 0.0)
    if case == "one-constant-feature":
        xs[:, 0] = xt[:, 0] = 11.0
    return xs, ys, xt, labels_t


def rows_of(labels, n_classes):
    return labels if labels.ndim == 2 else np.eye(n_classes)[labels]


def gaussian(a, b, width=None):
    distances = cdist(a, b, "sqeuclidean")
    return np.exp(-distances / (distances.mean() or 1.0 if width is None else width))


def theorem_5(xs, ys, xt, yt, width):
    """The squared distance and the sum of the traces that it is relative to; one bandwidth for the features."""
    n_classes = yt.shape[1] if yt.ndim == 2 else int(max(ys.max(), yt.max())) + 1
    features = (gaussian(a, b, width) for a, b in ((xs, xs), (xt, xt), (xt, xs)))
    labels = (gaussian(rows, rows) for rows in (rows_of(ys, n_classes), rows_of(yt, n_classes)))
    return reference.theorem_5(*features, *labels, EPS)


def call(arrays, dtype, **options):
    xs, ys, xt, yt = (torch.as_tensor(a) for a in arrays)
    xs, xt = (x.to(dtype).requires_grad_() for x in (xs, xt))
    value = bures.ckb(xs, ys, xt, yt.to(dtype) if yt.is_floating_point() else yt, eps=EPS, **options)
    return value, *torch.autograd.grad(value, (xs, xt))


@both_dtypes
@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("case", CASES)
def test_every_exact_method_is_theorem_5(case, method, dtype):
    arrays = problem(case)
    value, *gradients = call(arrays, dtype, bandwidth=20.0, method=method)
    expected, traces = theorem_5(*arrays, 20.0)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-12 if method in ("auto", "svd") else 1e-6
    assert value.item() == pytest.approx(expected, abs=tolerance * traces)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    with torch.no_grad():
        xs, ys, xt, yt = (torch.as_tensor(a) for a in arrays)
        plain = bures.ckb(xs.to(dtype), ys, xt.to(dtype), yt, eps=EPS, bandwidth=20.0, method=method)
    assert plain.item() == pytest.approx(expected, abs=tolerance * traces)


@pytest.mark.parametrize("method", [*EXACT, None])
@pytest.mark.parametrize("bandwidth", ["shared", "per-block"])
@pytest.mark.parametrize("case", ["ordinary", "fewer-samples-than-features", "one-sample-per-class", "missing-class"])
def test_a_gradient_in_float32_is_that_in_float64(case, bandwidth, method):
    """The float64 gradient is that of the general path, which transforms take; None: one pass in float64."""
    arrays = problem(case)
    xs, ys, xt, yt = (torch.as_tensor(a) for a in arrays)
    general = torch.func.grad(lambda a, b: bures.ckb(a, ys, b, yt, eps=EPS, bandwidth=bandwidth), argnums=(0, 1))
    expected = general(xs, xt)
    dtype, method_given = (torch.float64, "auto") if method is None else (torch.float32, method)
    found = call(arrays, dtype, bandwidth=bandwidth, method=method_given)[1:]
    for one, other in zip(found, expected, strict=True):
        share = 1e-9 if method is None else 2e-2 if method == "svd" else 2e-3
        assert float((one - other).norm()) <= share * float(other.norm())


def same_dtype(arrays, dtype):
    return [a.astype(str(dtype).removeprefix("torch.")) if a.dtype.kind == "f" else a for a in arrays]


@both_dtypes
@pytest.mark.parametrize("bandwidth", ["per-block", 20.0])
@pytest.mark.parametrize("case", [case for case in CASES if case != "one-sample-per-class"])  # many classes are slow
def test_the_low_rank_value_is_within_the_bound_that_explain_reports(case, bandwidth, dtype):
    arrays = same_dtype(problem(case), dtype)
    options = {"eps": EPS, "bandwidth": bandwidth, "n_permutations": 0, "n_bootstrap": 0}
    exact, quick = bures.explain(*arrays, **options), bures.explain(*arrays, method="low-rank", **options)
    value, *gradients = call(arrays, dtype, bandwidth=bandwidth, method="low-rank")
    plain = call(arrays, dtype, bandwidth=bandwidth, method="svd")[0]
    # The rest of a matrix of low rank is rounding, and counts with the root of its size.
    rounding = (1e-4 if dtype == torch.float32 else 1e-9) * (exact.trace_s + exact.trace_t)
    assert exact.method_error == 0
    assert quick.method_error <= exact.trace_s + exact.trace_t
    assert abs(quick.squared_distance - exact.squared_distance) <= quick.method_error + rounding
    assert abs(value.item() - plain.item()) <= quick.method_error + rounding
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 9e-4, 1e-3])
def test_the_low_rank_value_is_within_its_bound_for_every_eps(eps):
    """Below 1e-3 the label kernel is factored in float64 also for float32 features."""
    arrays = same_dtype(problem("ordinary"), torch.float32)
    options = {"eps": eps, "n_permutations": 0, "n_bootstrap": 0}
    exact, quick = bures.explain(*arrays, **options), bures.explain(*arrays, method="low-rank", **options)
    value = bures.ckb(*arrays, eps=eps, method="low-rank")
    assert abs(value - exact.squared_distance) <= quick.method_error + 1e-4 * (exact.trace_s + exact.trace_t)
    assert value == pytest.approx(quick.squared_distance, abs=1e-4 * (exact.trace_s + exact.trace_t))


@pytest.mark.parametrize("labels", ["hard", "soft", "continuous"])
@pytest.mark.parametrize("method", ["auto", "deflation", "low-rank"])
def test_integer_weights_are_repeated_samples(labels, method):
    """Value and gradient, where every sample stands as often as its weight says."""
    rng = np.random.default_rng(1)
    xs, ys, xt, yt = problem("ordinary")
    if labels == "hard":
        yt = yt.argmax(axis=1)
    if labels == "continuous":
        ys, yt = rng.normal(size=N), rng.normal(size=M)
    counts = rng.integers(3, size=N)
    options = {"bandwidth": 20.0, "label_bandwidth": 1.5, "eps": EPS, "method": method}
    options |= {"conditioning": "continuous"} if labels == "continuous" else {}
    weighted = torch.as_tensor(xs).requires_grad_()
    value = bures.ckb(weighted, ys_(ys), torch.as_tensor(xt), ys_(yt), sample_weight_s=ys_(counts), **options)
    repeated = np.repeat(xs, counts, axis=0)
    expected = bures.ckb(repeated, np.repeat(ys, counts, axis=0), xt, yt, **options)
    share = 0.2 if method == "low-rank" else 1e-9  # the range finder sees another matrix
    assert value.item() == pytest.approx(expected, rel=share)
    value.backward()
    assert not weighted.grad[counts == 0].any()


def ys_(labels):
    return torch.as_tensor(labels)


@pytest.mark.parametrize("method", ["auto", "low-rank"])
def test_autocast_does_not_reach_the_pass(method):
    arrays = problem("ordinary")
    outside = call(arrays, torch.float32, method=method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = call(arrays, torch.float32, method=method)
    for one, other in zip(inside, outside, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)
