"""Degenerate input gives finite values and finite gradients, and the right value wherever it is known."""

from __future__ import annotations

import linecache
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn.functional import one_hot, softmax

import bures

N, M, D, K = 14, 11, 4, 3
DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

both_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


@dataclass
class Batch:
    """Features, integer source classes and target probabilities: what a training step has."""

    z_s: Tensor
    y_s: Tensor
    z_t: Tensor
    p_t: Tensor

    def leaves(self) -> tuple[Tensor, Tensor]:
        return self.z_s.clone().requires_grad_(), self.z_t.clone().requires_grad_()

    def labels(self, style: str) -> tuple[Tensor, Tensor]:
        if style == "hard":
            return self.y_s, self.p_t.argmax(dim=1)
        if style == "hard-soft":
            return self.y_s, self.p_t
        # A column may be all zeros in the source (an absent class): smoothing would hide the exact zeros.
        return one_hot(self.y_s, self.p_t.shape[1]).to(self.p_t), self.p_t


def ordinary(dtype: torch.dtype, n: int = N, m: int = M, d: int = D, k: int = K, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    z_s, z_t, logits = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((n, d), (m, d), (m, k))
    )
    return Batch(z_s.to(dtype), torch.arange(n) % k, z_t.to(dtype), softmax(3 * logits, dim=1).to(dtype))


def changed(**changes: Callable[[Batch], Tensor]) -> Callable[[torch.dtype], Batch]:
    """An ordinary batch with some of its members replaced."""

    def build(dtype: torch.dtype) -> Batch:
        batch = ordinary(dtype)
        return Batch(
            **{**vars(batch), **{name: change(batch).to(getattr(batch, name)) for name, change in changes.items()}}
        )

    return build


def scaled(factor: float) -> Callable[[torch.dtype], Batch]:
    return changed(z_s=lambda b: factor * b.z_s, z_t=lambda b: factor * b.z_t)


def nearly_uniform(spread: float) -> Callable[[torch.dtype], Batch]:
    # The softmax itself runs in the batch's dtype, as a network's does.
    return changed(p_t=lambda b: softmax(spread * b.p_t, dim=1))


def nearly_one_class(spread: float) -> Callable[[torch.dtype], Batch]:
    return changed(p_t=lambda b: softmax(torch.tensor([20.0, 0.0, 0.0]).to(b.p_t) + spread * b.p_t, dim=1))


def identical(batch: Batch) -> Batch:
    return Batch(batch.z_s, batch.y_s, batch.z_s, one_hot(batch.y_s).to(batch.p_t))


def with_outlier(z: Tensor) -> Tensor:
    z = z.clone()
    z[0] = 1e8
    return z


DEGENERATE: dict[str, Callable[[torch.dtype], Batch]] = {
    "identical-samples": lambda dtype: identical(ordinary(dtype)),
    "duplicated-rows": changed(z_s=lambda b: b.z_s[:2].repeat(N // 2, 1), z_t=lambda b: b.z_s[:1].expand(M, D)),
    "shared-rows": changed(z_t=lambda b: b.z_s[:M]),
    "constant-features": changed(z_s=lambda b: torch.full_like(b.z_s, 0.7), z_t=lambda b: torch.full_like(b.z_t, 0.7)),
    "constant-per-domain": changed(
        z_s=lambda b: torch.full_like(b.z_s, 0.3), z_t=lambda b: torch.full_like(b.z_t, 0.7)
    ),
    "one-constant-domain": changed(z_t=lambda b: torch.full_like(b.z_t, 0.7)),
    "one-constant-column": changed(
        z_s=lambda b: b.z_s * torch.tensor([1, 0, 1, 1]), z_t=lambda b: b.z_t * torch.tensor([1, 0, 1, 1])
    ),
    "zero-features": scaled(0.0),
    "one-sample-each": lambda dtype: ordinary(dtype, n=1, m=1),
    "one-source-sample": lambda dtype: ordinary(dtype, n=1),
    "one-target-sample": lambda dtype: ordinary(dtype, m=1),
    "one-feature": lambda dtype: ordinary(dtype, d=1),
    "fewer-samples-than-features": lambda dtype: ordinary(dtype, n=4, m=3, d=200),
    "one-class": lambda dtype: ordinary(dtype, k=1),
    "one-class-of-three-in-both": changed(
        y_s=lambda b: torch.zeros(N), p_t=lambda b: torch.tensor([1.0, 0, 0]).expand(M, K)
    ),
    "class-missing-from-source": changed(y_s=lambda b: b.y_s % 2),
    "class-missing-from-target": changed(p_t=lambda b: one_hot(torch.arange(M) % 2, K)),
    "no-class-in-common": changed(y_s=lambda b: torch.zeros(N), p_t=lambda b: torch.tensor([0, 1.0, 0]).expand(M, K)),
    "one-sample-per-class": lambda dtype: Batch(
        ordinary(dtype).z_s[:K], torch.arange(K), ordinary(dtype).z_t[:K], torch.eye(K).to(dtype)
    ),
    "one-hot-predictions": changed(p_t=lambda b: one_hot(b.p_t.argmax(1), K)),
    "uniform-predictions": changed(p_t=lambda b: torch.full_like(b.p_t, 1 / K)),
    "exact-zero-probabilities": changed(
        p_t=lambda b: torch.cat([b.p_t[:, :1], 1 - b.p_t[:, :1], 0 * b.p_t[:, :1]], dim=1)
    ),
    "norm-1e6": scaled(1e6),
    "norm-1e-6": scaled(1e-6),
    "norm-1e15": scaled(1e15),
    "norm-1e-15": scaled(1e-15),
    "heavy-outlier": changed(z_s=lambda b: with_outlier(b.z_s)),
    "domains-far-apart": changed(z_t=lambda b: b.z_t + 1e5),
    "domains-of-different-scale": changed(z_t=lambda b: 1e6 * b.z_t),
    **{f"nearly-uniform-{spread:g}": nearly_uniform(spread) for spread in (1e-3, 1e-6, 1e-8)},
    **{f"nearly-one-class-{spread:g}": nearly_one_class(spread) for spread in (1e-3, 1e-6, 1e-8)},
}

each_case = pytest.mark.parametrize("case", DEGENERATE)

SHARED, MEDIAN, BLOCKS, FIXED = ({"bandwidth": bandwidth} for bandwidth in ("shared", "median", "per-block", 1.5))
LAPLACIAN, LINEAR = {"kernel": "laplacian"}, {"kernel": "linear"}


def variants(function: Callable[..., Tensor], *options: dict[str, object]) -> list[object]:
    name = getattr(function, "__name__", "")
    return [
        pytest.param(function, option, id="-".join([name, *(str(value) for value in option.values())]))
        for option in options
    ]


CONDITIONAL = [
    *variants(bures.ckb, SHARED, BLOCKS, MEDIAN, FIXED, LAPLACIAN, LAPLACIAN | BLOCKS, LAPLACIAN | MEDIAN, LINEAR),
    *variants(bures.ckw, SHARED, MEDIAN, FIXED, LAPLACIAN, LINEAR),
]
SOME_CONDITIONAL = [*variants(bures.ckb, BLOCKS, MEDIAN), *variants(bures.ckw, SHARED)]
MARGINAL = [
    *variants(bures.kernel_bures, SHARED, BLOCKS, MEDIAN, FIXED, LAPLACIAN, LAPLACIAN | BLOCKS, LINEAR),
    *variants(bures.mmd, SHARED, MEDIAN, FIXED, LAPLACIAN, LINEAR),
    *variants(bures.bures, {}),
]
LOSSES = [
    *variants(bures.CKBLoss, SHARED | {"eps": "auto"}, BLOCKS, MEDIAN | {"label_bandwidth": "median"}, FIXED),
    *variants(bures.CKBLoss, {"pseudo_labels": "hard"}),
    *variants(bures.CKWLoss, SHARED, MEDIAN | {"pseudo_labels": "hard"}),
    *variants(bures.MMDLoss, SHARED, MEDIAN, FIXED),
]
MARGINAL_LOSSES = [
    *variants(bures.KernelBuresLoss, BLOCKS, MEDIAN),
    *variants(bures.MMDLoss, SHARED),
    *variants(bures.BuresLoss, {}),
]


def assert_finite(value: Tensor, *leaves: Tensor) -> None:
    """Value and gradient are finite, of the features' dtype, and the gradient reaches every leaf."""
    assert torch.isfinite(value), f"value {value}"
    value.backward()
    for leaf in leaves:
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all(), f"gradient {leaf.grad}"


@pytest.fixture(autouse=True)
def missing_classes_are_expected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bures.MissingClassWarning)
        yield


@both_dtypes
@each_case
@pytest.mark.parametrize(
    ("metric", "options", "style"),
    [
        pytest.param(*variant.values, style, id=f"{variant.id}-{style}")
        for style in ("hard", "soft", "hard-soft")
        for variant in (CONDITIONAL if style == "hard-soft" else SOME_CONDITIONAL)
    ],
)
def test_conditional_distance_and_gradient_are_finite(metric, options, style, case, dtype):
    batch = DEGENERATE[case](dtype)
    z_s, z_t = batch.leaves()
    y_s, y_t = batch.labels(style)
    value = metric(z_s, y_s, z_t, y_t, **options)
    assert value.dtype == dtype
    assert_finite(value, z_s, z_t)


@both_dtypes
@each_case
@pytest.mark.parametrize(("metric", "options"), MARGINAL)
def test_marginal_distance_and_gradient_are_finite(metric, options, case, dtype):
    z_s, z_t = DEGENERATE[case](dtype).leaves()
    value = metric(z_s, z_t, **options)
    assert value.dtype == dtype
    assert_finite(value, z_s, z_t)


@both_dtypes
@each_case
@pytest.mark.parametrize(("loss", "options"), LOSSES)
def test_loss_over_labels_and_gradient_are_finite(loss, options, case, dtype):
    batch = DEGENERATE[case](dtype)
    z_s, z_t = batch.leaves()
    p_t = batch.p_t.clone().requires_grad_()
    leaves = (p_t,) if loss is bures.MMDLoss else (z_s, z_t)
    assert_finite(loss(**options)(z_s, batch.y_s, z_t, p_t), *leaves)


@both_dtypes
@each_case
@pytest.mark.parametrize(("loss", "options"), MARGINAL_LOSSES)
def test_loss_over_features_and_gradient_are_finite(loss, options, case, dtype):
    z_s, z_t = DEGENERATE[case](dtype).leaves()
    assert_finite(loss(**options)(z_s, z_t), z_s, z_t)


@both_dtypes
@pytest.mark.parametrize("eps", [1e-8, 1e-6, 1e-4, 1e-2, 1.0, 1e2, "auto"])
@pytest.mark.parametrize("style", ["hard", "soft", "hard-soft"])
@pytest.mark.parametrize("case", ["shared-rows", "one-hot-predictions", "uniform-predictions", "nearly-uniform-1e-06"])
def test_every_eps_gives_a_finite_distance_and_gradient(case, style, eps, dtype):
    batch = DEGENERATE[case](dtype)
    for metric in (bures.ckb, bures.ckw):
        z_s, z_t = batch.leaves()
        y_s, y_t = batch.labels(style)
        assert_finite(metric(z_s, y_s, z_t, y_t, eps=eps), z_s, z_t)


@both_dtypes
@pytest.mark.parametrize("label_bandwidth", ["mean", "median", 1e-3, 1e3])
@pytest.mark.parametrize("label_kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize(
    "case", ["one-hot-predictions", "uniform-predictions", *(c for c in DEGENERATE if "nearly" in c)]
)
def test_every_label_kernel_stands_collapsed_predictions(case, label_kernel, label_bandwidth, dtype):
    batch = DEGENERATE[case](dtype)
    for metric in (bures.ckb, bures.ckw):
        z_s, z_t = batch.leaves()
        options = {"label_kernel": label_kernel, "label_bandwidth": label_bandwidth, "eps": 1e-6}
        assert_finite(metric(z_s, batch.y_s, z_t, batch.p_t, **options), z_s, z_t)


@both_dtypes
@pytest.mark.parametrize("values", ["ordinary", "constant", "duplicated", "norm-1e6", "norm-1e-6", "two-columns"])
def test_continuous_conditioning_stands_degenerate_values(values, dtype):
    batch = ordinary(dtype)
    v_s, v_t = batch.z_s[:, 0].sin(), batch.z_t[:, 0].sin()
    y_s, y_t = {
        "ordinary": (v_s, v_t),
        "constant": (torch.ones_like(v_s), torch.ones_like(v_t)),
        "duplicated": (v_s.sign(), v_t.sign()),
        "norm-1e6": (1e6 * v_s, 1e6 * v_t),
        "norm-1e-6": (1e-6 * v_s, 1e-6 * v_t),
        "two-columns": (batch.z_s[:, :2], batch.z_t[:, :2]),
    }[values]
    for metric in (bures.ckb, bures.ckw):
        for label_bandwidth in ("mean", "median"):
            z_s, z_t = batch.leaves()
            value = metric(z_s, y_s, z_t, y_t, conditioning="continuous", label_bandwidth=label_bandwidth)
            assert_finite(value, z_s, z_t)


# Known values. `size` is the sum of the traces, the scale at which rounding is measured.


def terms(batch: Batch, style: str = "hard-soft", **options: object) -> bures.Explanation:
    y_s, y_t = batch.labels(style)
    return bures.explain(batch.z_s, y_s, batch.z_t, y_t, n_permutations=0, n_bootstrap=0, **options)


@both_dtypes
@pytest.mark.parametrize("case", ["constant-features", "zero-features"])
@pytest.mark.parametrize(("metric", "options"), CONDITIONAL)
def test_conditional_distance_of_constant_features_is_zero(metric, options, case, dtype):
    batch = DEGENERATE[case](dtype)
    z_s, z_t = batch.leaves()
    value = metric(z_s, batch.y_s, z_t, batch.p_t, **options)
    value.backward()
    assert abs(value.item()) <= TOLERANCE[dtype]
    # Equal samples pull on each other by nothing, whichever way the bandwidth is floored.
    if case == "zero-features":
        assert not z_s.grad.any()
        assert not z_t.grad.any()


@both_dtypes
@pytest.mark.parametrize("case", ["constant-features", "zero-features"])
@pytest.mark.parametrize(("metric", "options"), MARGINAL)
def test_marginal_distance_of_constant_features_is_zero(metric, options, case, dtype):
    batch = DEGENERATE[case](dtype)
    assert abs(float(metric(batch.z_s, batch.z_t, **options))) <= TOLERANCE[dtype]


@both_dtypes
@pytest.mark.parametrize("style", ["hard", "soft", "hard-soft"])
@pytest.mark.parametrize(("metric", "options"), CONDITIONAL)
def test_identical_samples_are_at_distance_zero(metric, options, style, dtype):
    batch = DEGENERATE["identical-samples"](dtype)
    y_s, y_t = batch.labels(style)
    # With the linear kernel the traces are those of 4-d unit Gaussians; with the others they are at most one each.
    size = 8.0 if options.get("kernel") == "linear" else 2.0
    assert abs(float(metric(batch.z_s, y_s, batch.z_t, y_t, **options))) <= TOLERANCE[dtype] * size


@both_dtypes
@pytest.mark.parametrize(("metric", "options"), MARGINAL)
def test_identical_samples_are_at_marginal_distance_zero(metric, options, dtype):
    batch = DEGENERATE["identical-samples"](dtype)
    size = 8.0 if options.get("kernel") == "linear" or metric is bures.bures else 2.0
    assert abs(float(metric(batch.z_s, batch.z_t, **options))) <= TOLERANCE[dtype] * size


@both_dtypes
@pytest.mark.parametrize("options", [SHARED, BLOCKS, MEDIAN, FIXED, LAPLACIAN, LINEAR], ids=str)
@pytest.mark.parametrize("style", ["hard", "soft"])
@pytest.mark.parametrize("case", ["one-class", "one-class-of-three-in-both", "no-class-in-common"])
def test_labels_that_say_nothing_leave_the_kernel_bures_distance(case, style, options, dtype):
    batch = DEGENERATE[case](dtype)
    y_s, y_t = batch.labels(style)
    conditional = float(bures.ckb(batch.z_s, y_s, batch.z_t, y_t, **options))
    marginal = float(bures.kernel_bures(batch.z_s, batch.z_t, **options))
    assert marginal > 1e-3
    assert conditional == pytest.approx(marginal, abs=20 * TOLERANCE[dtype])


@both_dtypes
def test_uniform_predictions_in_both_domains_leave_the_kernel_bures_distance(dtype):
    batch = ordinary(dtype)
    uniform_s, uniform_t = torch.full((N, K), 1 / K, dtype=dtype), torch.full((M, K), 1 / K, dtype=dtype)
    conditional = float(bures.ckb(batch.z_s, uniform_s, batch.z_t, uniform_t))
    assert conditional == pytest.approx(float(bures.kernel_bures(batch.z_s, batch.z_t)), abs=2 * TOLERANCE[dtype])


@pytest.mark.parametrize("spread", [1e-3, 1e-6, 1e-8])
@pytest.mark.parametrize("collapse", [nearly_uniform, nearly_one_class])
def test_float32_predictions_that_almost_agree_lose_no_digits(collapse, spread):
    batch = collapse(spread)(torch.float32)
    single = terms(batch)
    double = terms(Batch(batch.z_s.double(), batch.y_s, batch.z_t.double(), batch.p_t))
    size = double.trace_s + double.trace_t
    assert abs(single.squared_distance - double.squared_distance) <= 1e-4 * size
    # 0 < B <= I: what is left of X when Y is known is a part of X.
    assert (
        0
        < double.trace_t
        <= terms(Batch(batch.z_s, batch.y_s, batch.z_t, torch.full_like(batch.p_t, 1 / K))).trace_t * (1 + 1e-6)
    )


@both_dtypes
def test_a_large_eps_removes_the_conditioning(dtype):
    batch = ordinary(dtype)
    marginal = float(bures.kernel_bures(batch.z_s, batch.z_t))
    gaps = [
        abs(float(bures.ckb(batch.z_s, batch.y_s, batch.z_t, batch.p_t, eps=eps)) - marginal)
        for eps in (1e-2, 1.0, 1e2)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-3


@both_dtypes
@pytest.mark.parametrize("style", ["hard", "soft"])
def test_conditional_covariance_of_one_source_sample_is_zero(style, dtype):
    result = terms(ordinary(dtype, n=1), style)
    assert result.trace_s == pytest.approx(0, abs=TOLERANCE[dtype])
    assert result.squared_distance == pytest.approx(result.trace_t, abs=TOLERANCE[dtype])
    assert result.trace_t > 0.1


@both_dtypes
def test_distances_between_two_single_samples(dtype):
    batch = ordinary(dtype, n=1, m=1)
    y = torch.zeros(1, dtype=torch.int64)
    gap = 2 - 2 * math.exp(-float((batch.z_s - batch.z_t).square().sum()) / 1.5)
    tolerance = 10 * TOLERANCE[dtype]
    assert float(bures.ckb(batch.z_s, y, batch.z_t, y, bandwidth=1.5)) == pytest.approx(0, abs=tolerance)
    assert float(bures.kernel_bures(batch.z_s, batch.z_t, bandwidth=1.5)) == pytest.approx(0, abs=tolerance)
    assert float(bures.bures(batch.z_s, batch.z_t)) == pytest.approx(0, abs=tolerance)
    assert float(bures.mmd(batch.z_s, batch.z_t, bandwidth=1.5)) == pytest.approx(gap, abs=tolerance)
    assert float(bures.ckw(batch.z_s, y, batch.z_t, y, bandwidth=1.5)) == pytest.approx(gap, abs=tolerance)


@both_dtypes
def test_bures_distance_to_one_sample_is_the_trace_of_the_covariance(dtype):
    batch = ordinary(dtype, m=1)
    expected = float(batch.z_s.double().var(dim=0, correction=0).sum())
    assert float(bures.bures(batch.z_s, batch.z_t)) == pytest.approx(expected, rel=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("sizes", [(1, 5), (5, 1), (1, 1)], ids=str)
def test_unbiased_mmd_of_one_sample_is_an_error(sizes):
    batch = ordinary(torch.float64, *sizes)
    with pytest.raises(ValueError, match=r"x[st] has one sample.*needs two.*unbiased=False"):
        bures.mmd(batch.z_s, batch.z_t, unbiased=True)
    with pytest.raises(ValueError, match="unbiased=False"):
        bures.MMDLoss(unbiased=True)(batch.z_s, batch.z_t)


@both_dtypes
@pytest.mark.parametrize(
    "case",
    [
        case
        for case in DEGENERATE
        if "-sample-each" not in case and "one-source" not in case and "one-target" not in case
    ],
)
def test_unbiased_mmd_and_gradient_are_finite(case, dtype):
    z_s, z_t = DEGENERATE[case](dtype).leaves()
    assert_finite(bures.mmd(z_s, z_t, unbiased=True), z_s, z_t)


@both_dtypes
@pytest.mark.parametrize("factor", [1e15, 1e6, 1e-6, 1e-15])
@pytest.mark.parametrize(
    ("metric", "options"),
    [p for p in CONDITIONAL + MARGINAL if p.values[1] in (SHARED, MEDIAN, BLOCKS, LAPLACIAN)],
)
def test_bandwidth_rules_make_distances_free_of_scale(metric, options, factor, dtype):
    def evaluate(scale: float) -> tuple[float, Tensor]:
        batch = scaled(scale)(dtype)
        z_s, z_t = batch.leaves()
        labelled = (z_s, batch.y_s, z_t, batch.p_t) if metric in (bures.ckb, bures.ckw) else (z_s, z_t)
        value = metric(*labelled, **options)
        value.backward()
        return value.item(), z_t.grad * scale

    (value, gradient), (reference, reference_gradient) = evaluate(factor), evaluate(1.0)
    assert value == pytest.approx(reference, abs=4 * TOLERANCE[dtype])
    error = float((gradient - reference_gradient).norm() / reference_gradient.norm())
    assert error <= 1e3 * TOLERANCE[dtype]


@both_dtypes
@pytest.mark.parametrize("factor", [1e15, 1e6, 1e-6, 1e-15])
@pytest.mark.parametrize(
    ("metric", "options"), [p for p in CONDITIONAL + MARGINAL if p.values[1] == LINEAR or p.values[0] is bures.bures]
)
def test_linear_distances_grow_with_the_square_of_the_scale(metric, options, factor, dtype):
    def evaluate(scale: float) -> float:
        batch = scaled(scale)(dtype)
        labelled = (
            (batch.z_s, batch.y_s, batch.z_t, batch.p_t) if metric in (bures.ckb, bures.ckw) else (batch.z_s, batch.z_t)
        )
        return float(metric(*labelled, **options)) / scale**2

    assert evaluate(factor) == pytest.approx(evaluate(1.0), rel=10 * TOLERANCE[dtype])


@pytest.mark.parametrize(("metric", "options"), CONDITIONAL + MARGINAL)
def test_an_offset_of_1e6_on_unit_features_changes_nothing_in_float64(metric, options):
    def evaluate(offset: float) -> tuple[float, Tensor]:
        batch = ordinary(torch.float64)
        # Numbers near 1e6 lose 20 of 53 bits; both calls get features with the same, exact differences.
        z_s, z_t = (((z + 1e6) - 1e6 + offset).requires_grad_() for z in (batch.z_s, batch.z_t))
        labelled = (z_s, batch.y_s, z_t, batch.p_t) if metric in (bures.ckb, bures.ckw) else (z_s, z_t)
        value = metric(*labelled, **options)
        value.backward()
        return value.item(), z_t.grad

    (value, gradient), (reference, reference_gradient) = evaluate(1e6), evaluate(0.0)
    assert value == pytest.approx(reference, rel=1e-8)
    torch.testing.assert_close(gradient, reference_gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("label_kernel", ["gaussian", "laplacian", "linear"])
def test_an_offset_of_continuous_labels_changes_nothing(label_kernel):
    generator = torch.Generator().manual_seed(0)
    xs, xt = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (N, M))
    times = torch.randint(9, (N,), generator=generator).double(), torch.randint(9, (M,), generator=generator).double()
    options = {"conditioning": "continuous", "label_kernel": label_kernel}
    near, far = (bures.ckb(xs, times[0] + t, xt, times[1] + t, **options) for t in (0.0, 1.7e9))
    torch.testing.assert_close(far, near, rtol=1e-6, atol=0)


def test_labels_too_large_for_eps_are_named():
    x, y = np.random.default_rng(0).normal(size=(2, 12, 2))
    with pytest.raises(ValueError, match=r"eps=0\.01 is lost in rounding; divide ys by a constant, or raise eps"):
        bures.ckb(x, 1e9 * y, x, 1e9 * y, conditioning="continuous", label_kernel="linear")


@both_dtypes
def test_a_class_in_one_domain_only_is_reported_and_left_out_of_the_means(dtype):
    batch = DEGENERATE["class-missing-from-target"](dtype)
    y_t = batch.p_t.argmax(dim=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(bures.MissingClassWarning, match=r"missing.*\b2\b.*(from|target).*means"):
            bures.ckw(batch.z_s, batch.y_s, batch.z_t, y_t)
        bures.ckb(batch.z_s, batch.y_s, batch.z_t, y_t)
        bures.CKWLoss()(batch.z_s, batch.y_s, batch.z_t, batch.p_t)
    result = terms(batch, "hard")
    assert math.isnan(result.classes[2].mean_term)
    frequency = [(float((batch.y_s == c).double().mean()) + float((y_t == c).double().mean())) / 2 for c in range(2)]
    expected = sum(pi * row.mean_term for pi, row in zip(frequency, result.classes[:2], strict=True))
    assert result.mean_term == pytest.approx(expected, rel=1e-5)


def covariance(kind: str, seed: int, dtype: torch.dtype, scale: float = 1.0, d: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rank = {"regular": 2 * d, "singular": d - 2, "rank-one": 1, "zero": 0}[kind]
    root = torch.randn(d, rank, generator=generator, dtype=torch.float64)
    return (scale * (root @ root.T)).to(dtype)


COVARIANCES = ["regular", "singular", "rank-one", "zero"]


@both_dtypes
@pytest.mark.parametrize("scale_s", ["tiny", "one", "huge"])
@pytest.mark.parametrize("scale_t", ["tiny", "one", "huge"])
@pytest.mark.parametrize("kind_s", COVARIANCES)
@pytest.mark.parametrize("kind_t", COVARIANCES)
def test_covariance_distance_and_gradient_are_finite(kind_s, kind_t, scale_s, scale_t, dtype):
    exponent = 30 if dtype == torch.float32 else 200
    scales = {"tiny": 10.0**-exponent, "one": 1.0, "huge": 10.0**exponent}
    cov_s = covariance(kind_s, 0, dtype, scales[scale_s]).requires_grad_()
    cov_t = covariance(kind_t, 1, dtype, scales[scale_t]).requires_grad_()
    assert_finite(bures.bures_covariance(cov_s, cov_t), cov_s, cov_t)


@both_dtypes
@pytest.mark.parametrize("kind", COVARIANCES)
def test_covariance_distance_to_zero_is_the_trace(kind, dtype):
    cov = covariance(kind, 0, dtype)
    assert float(bures.bures_covariance(cov, torch.zeros_like(cov))) == pytest.approx(float(cov.trace()), rel=1e-6)


@both_dtypes
@pytest.mark.parametrize("kind", COVARIANCES)
def test_covariance_is_at_distance_zero_from_itself(kind, dtype):
    cov = covariance(kind, 0, dtype)
    assert abs(float(bures.bures_covariance(cov, cov))) <= TOLERANCE[dtype] * 2 * float(cov.trace())


@both_dtypes
def test_covariance_distance_of_rank_one_matrices_is_that_of_lines(dtype):
    u, v = torch.tensor([1.0, 2.0, -1.0], dtype=dtype), torch.tensor([0.5, 1.0, 3.0], dtype=dtype)
    expected = float(u @ u + v @ v - 2 * (u @ v).abs())
    assert float(bures.bures_covariance(torch.outer(u, u), torch.outer(v, v))) == pytest.approx(expected, rel=1e-6)


@both_dtypes
@pytest.mark.parametrize("exponent", [-30, -12, 12, 30])
def test_covariance_distance_is_homogeneous(exponent, dtype):
    factor = 10.0**exponent
    value, reference = (
        float(bures.bures_covariance(covariance("regular", 0, dtype, scale), covariance("regular", 1, dtype, scale)))
        for scale in (factor, 1.0)
    )
    assert value / factor == pytest.approx(reference, rel=10 * TOLERANCE[dtype])


def test_bures_of_samples_is_the_covariance_distance_where_samples_are_fewer_than_features():
    batch = ordinary(torch.float64, n=5, m=4, d=9)
    cov_s, cov_t = (torch.cov(z.T, correction=0) for z in (batch.z_s, batch.z_t))
    value = float(bures.bures(batch.z_s, batch.z_t))
    assert value == pytest.approx(float(bures.bures_covariance(cov_s, cov_t)), rel=1e-6)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, str]:
    """Random shapes and scales, with duplicated, constant and equal rows, absent classes and collapsed predictions."""
    dtype = draw(st.sampled_from(DTYPES))
    n, m, d, k = (draw(st.integers(1, high)) for high in (9, 9, 6, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    z_s, z_t = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    structure = draw(st.sampled_from(["none", "duplicates", "constant-columns", "low-rank", "equal", "integers"]))
    if structure == "duplicates":
        z_s, z_t = z_s[rng.integers(n, size=n)], z_s[rng.integers(n, size=m)]
    elif structure == "constant-columns":
        constant = rng.random(d) < 0.5
        z_s[:, constant] = z_t[:, constant] = 0.3
    elif structure == "low-rank":
        z_s, z_t = (np.outer(z[:, 0], np.ones(d)) for z in (z_s, z_t))
    elif structure == "equal":
        z_t = np.resize(z_s, (m, d))
    elif structure == "integers":
        z_s, z_t = z_s.round(), z_t.round()
    scale_s = 10.0 ** draw(st.integers(-12, 12))
    scale_t = draw(st.sampled_from([scale_s, 1.0, 10 * scale_s]))
    offset = draw(st.sampled_from([0.0, 1.0, 1e3]))
    logits = rng.normal(size=(m, k)) * 10.0 ** draw(st.integers(-8, 3))
    p_t = softmax(torch.as_tensor(logits, dtype=dtype), dim=1)
    y_s = torch.as_tensor(rng.integers(draw(st.integers(1, k)), size=n))
    features = (torch.as_tensor(scale * (z + offset), dtype=dtype) for scale, z in ((scale_s, z_s), (scale_t, z_t)))
    source, target = features
    return Batch(source, y_s, target, p_t), draw(st.sampled_from(["hard", "soft", "hard-soft"]))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    batches(),
    st.sampled_from(["gaussian", "laplacian", "linear"]),
    st.sampled_from(["shared", "median", 1.5]),
    st.sampled_from(["gaussian", "laplacian", "linear"]),
    st.sampled_from(["mean", "median", 0.5]),
    st.sampled_from([1e-8, 1e-4, 1e-2, 1e2, "auto"]),
)
def test_any_batch_gives_finite_distances_and_gradients(drawn, kernel, bandwidth, label_kernel, label_bandwidth, eps):
    batch, style = drawn
    y_s, y_t = batch.labels(style)
    options = {"kernel": kernel, "bandwidth": bandwidth}
    for metric in (bures.ckb, bures.ckw):
        z_s, z_t = batch.leaves()
        value = metric(
            z_s, y_s, z_t, y_t, label_kernel=label_kernel, label_bandwidth=label_bandwidth, eps=eps, **options
        )
        assert_finite(value, z_s, z_t)
    for metric in (bures.kernel_bures, bures.mmd, bures.bures):
        z_s, z_t = batch.leaves()
        assert_finite(metric(z_s, z_t, **({} if metric is bures.bures else options)), z_s, z_t)


def missing_from_the_target(missing: int) -> tuple[str, str]:
    """What is said of classes of which the target has no sample, and the line that it is said of."""
    y_s = np.arange(2 * (missing + 1)) % (missing + 1)
    x_s, x_t = np.random.default_rng(0).normal(size=(len(y_s), 2)), np.random.default_rng(1).normal(size=(4, 2))
    with pytest.warns(bures.MissingClassWarning) as said:
        bures.ckw(x_s, y_s, x_t, np.zeros(4, dtype=int))
    return str(said[0].message), linecache.getline(said[0].filename, said[0].lineno).strip()


def test_up_to_five_missing_classes_are_listed_and_the_call_is_named():
    message, line = missing_from_the_target(5)
    assert message.startswith("missing: classes 1, 2, 3, 4, 5 from the target;")
    assert line == "bures.ckw(x_s, y_s, x_t, np.zeros(4, dtype=int))"
    assert missing_from_the_target(6)[0].startswith("missing: classes 1, 2, 3, 4, 5, ... and 1 more from the target;")


def test_a_class_that_neither_domain_has_is_not_missing():
    rng = np.random.default_rng(0)
    rows_s, rows_t = np.eye(3)[np.arange(8) % 2], np.eye(3)[np.arange(6) % 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(bures.ckw(rng.normal(size=(8, 2)), rows_s, rng.normal(size=(6, 2)), rows_t))


@pytest.mark.parametrize("make", [bures.CKBLoss, bures.CKWLoss, bures.ClassMeansLoss])
@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("off", [1.2e-7, 9e-5])
def test_probabilities_of_one_class_are_one(make, n, off):
    """What rounding, or a sum that is one within the tolerance, makes of them is no pattern."""
    generator = torch.Generator().manual_seed(0)
    z_s, z_t = (torch.randn(n, 3, generator=generator) for _ in range(2))
    exact = torch.ones(n, 1)
    p_t = exact + off * torch.randint(-1, 2, (n, 1), generator=generator)
    assert len(p_t.unique()) == 3
    classes = torch.zeros(n, dtype=torch.int64)
    for y_s in (classes, p_t.flip(0)):
        expected = make()(z_s, classes if y_s.ndim == 1 else exact, z_t, exact)
        assert float(make()(z_s, y_s, z_t, p_t)) == float(expected)
