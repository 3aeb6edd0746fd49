"""Squared distances, the bandwidth rules and the Gram blocks against their plain definitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist, squareform
from torch import Tensor

import bures
from bures.kernels import gram_blocks, median, squared_distances, standardise, upper_triangle

N, M, D = 9, 7, 4
RNG = np.random.default_rng(0)
XS, XT = RNG.normal(size=(N, D)), RNG.normal(size=(M, D)) * 1.7 + 0.5
POOLED = np.concatenate([XS, XT])
WS, WT = RNG.dirichlet(np.ones(N)), RNG.dirichlet(np.ones(M))

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def uniform(n: int) -> Tensor:
    return torch.full((n,), 1 / n, dtype=torch.float64)


def blocks(kernel="gaussian", bandwidth="shared", xs=XS, xt=XT, ws=None, wt=None, **options):
    s, t = torch.as_tensor(xs), torch.as_tensor(xt)
    ws = uniform(len(s)) if ws is None else torch.as_tensor(ws)
    wt = uniform(len(t)) if wt is None else torch.as_tensor(wt)
    return gram_blocks(s, t, kernel=kernel, bandwidth=bandwidth, ws=ws, wt=wt, **options)


@both_dtypes
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_squared_distances_are_sums_of_squared_differences(dtype, offset):
    a, b = torch.as_tensor(XS + offset, dtype=dtype), torch.as_tensor(XT + offset, dtype=dtype)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
    pairs = ((XS, XS), (XT, XT), (XT, XS))
    for distances, pair in zip(squared_distances(a, b), pairs, strict=True):
        np.testing.assert_allclose(distances, cdist(*pair, "sqeuclidean"), atol=40 * tolerance)


@both_dtypes
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_squared_distances_within_have_a_zero_diagonal_and_are_never_negative(dtype, scale):
    a = torch.as_tensor(scale * np.concatenate([XS + 10, XS + 10]), dtype=dtype)
    for distances in squared_distances(a, a[:-3])[:2]:
        assert not distances.diagonal().any()
        assert float(distances.min()) >= 0
        rounding = 1e4 * torch.finfo(dtype).eps * scale**2  # the rows have squared norms of some hundreds
        torch.testing.assert_close(distances, distances.T, rtol=0, atol=rounding)


def duplicated(rows: np.ndarray) -> Tensor:
    return torch.as_tensor(np.concatenate([rows, rows[:3], rows[:1]])).requires_grad_()


@pytest.mark.parametrize("block", [0, 1, 2], ids=["within-a", "within-b", "between"])
def test_gradient_of_distances_is_that_of_squared_differences_also_for_equal_rows(block):
    a, b = duplicated(XS), duplicated(XS[1:])
    distances = squared_distances(a, b)[block]
    rows, columns = ((a, a), (b, b), (b, a))[block]
    weights = torch.as_tensor(RNG.normal(size=distances.shape))
    gradients = torch.autograd.grad((weights * distances).sum(), (a, b))
    differences = (rows[:, None] - columns).square().sum(-1)
    expected = torch.autograd.grad((weights * differences).sum(), (a, b), allow_unused=True, materialize_grads=True)
    for gradient, exact in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, exact, rtol=1e-10, atol=1e-12)


def test_gradients_of_distances_pass_gradcheck():
    a, b = torch.as_tensor(XS[:4]).requires_grad_(), torch.as_tensor(XT[:3]).requires_grad_()
    assert torch.autograd.gradcheck(squared_distances, (a, b))
    assert torch.autograd.gradgradcheck(squared_distances, (a, b))


@both_dtypes
@pytest.mark.parametrize("magnitude", [1e-30, 1e-3, 1.0, 1e18])
def test_standardise_is_a_common_shift_and_a_power_of_two(dtype, magnitude):
    s, t = (torch.as_tensor(magnitude * x, dtype=dtype) for x in (XS + 5, XT + 5))
    a, b, scale = standardise(s, t)
    exponent = np.log2(float(scale))
    assert exponent == round(exponent)
    assert float(torch.cat([a, b]).abs().max()) <= 4
    assert float(torch.cat([a, b]).mean(dim=0).abs().max()) < 1e-6
    torch.testing.assert_close((b[0] - a[0]) * scale, t[0] - s[0], rtol=1e-5, atol=magnitude * 1e-5)


def test_standardise_leaves_zeros_alone():
    a, b, scale = standardise(torch.zeros(3, 2), torch.zeros(2, 2))
    assert not a.any()
    assert not b.any()
    assert float(scale) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11])
def test_median_is_that_of_numpy(count):
    values = RNG.normal(size=count)
    assert float(median(torch.as_tensor(values))) == np.median(values)


def test_upper_triangle_holds_each_pair_once():
    square = squareform(np.arange(6.0))
    assert upper_triangle(torch.as_tensor(square)).tolist() == [0, 1, 2, 3, 4, 5]
    assert upper_triangle(torch.zeros(1, 1)).numel() == 0


POWER = {"gaussian": ("sqeuclidean", 1), "laplacian": ("cityblock", 2)}
each_kernel = pytest.mark.parametrize("kernel", POWER)


@each_kernel
def test_median_rule_is_the_median_of_all_pairs_of_different_samples(kernel):
    metric, power = POWER[kernel]
    pairs = squareform(cdist(POOLED, POOLED, metric), checks=False)
    widths = blocks(kernel, "median").bandwidths
    assert [float(width) for width in widths] == pytest.approx([np.median(pairs) ** power] * 3, rel=1e-12)


@each_kernel
def test_shared_rule_is_the_mean_over_all_pooled_pairs_with_the_diagonal(kernel):
    metric, power = POWER[kernel]
    expected = cdist(POOLED, POOLED, metric).mean() ** power
    widths = blocks(kernel, "shared").bandwidths
    assert [float(width) for width in widths] == pytest.approx([expected] * 3, rel=1e-12)


@each_kernel
def test_per_block_rule_is_the_mean_of_each_block(kernel):
    metric, power = POWER[kernel]
    expected = [cdist(x, y, metric).mean() ** power for x, y in ((XS, XS), (XT, XT), (XT, XS))]
    assert [float(width) for width in blocks(kernel, "per-block").bandwidths] == pytest.approx(expected, rel=1e-12)


@each_kernel
def test_mean_rules_weight_the_samples(kernel):
    metric, power = POWER[kernel]
    pooled = np.concatenate([WS * N, WT * M]) / (N + M)
    shared = (pooled @ cdist(POOLED, POOLED, metric) @ pooled) ** power
    assert float(blocks(kernel, "shared", ws=WS, wt=WT).bandwidths[0]) == pytest.approx(shared, rel=1e-12)
    between = (WT @ cdist(XT, XS, metric) @ WS) ** power
    assert float(blocks(kernel, "per-block", ws=WS, wt=WT).bandwidths[2]) == pytest.approx(between, rel=1e-12)


def test_median_rule_leaves_out_samples_of_weight_zero():
    weights = np.r_[0.0, np.full(N - 1, 1 / (N - 1))]
    with_weight = blocks("gaussian", "median", ws=weights).bandwidths[0]
    assert float(with_weight) == pytest.approx(float(blocks("gaussian", "median", xs=XS[1:]).bandwidths[0]), rel=1e-12)


def test_median_rule_falls_back_on_the_mean_where_most_samples_are_equal():
    xs = np.zeros((20, 2))
    xs[0] = 1.0
    widths = blocks("gaussian", "median", xs=xs, xt=np.zeros((20, 2))).bandwidths
    assert float(widths[0]) == pytest.approx(
        float(blocks("gaussian", "shared", xs=xs, xt=np.zeros((20, 2))).bandwidths[0])
    )
    assert float(widths[0]) > 0


@each_kernel
@pytest.mark.parametrize("rule", ["shared", "median", "per-block"])
def test_bandwidths_are_constants_of_the_graph(kernel, rule):
    leaf = torch.as_tensor(XS).requires_grad_()
    result = blocks(kernel, rule, xs=leaf)
    assert not any(width.requires_grad for width in result.bandwidths)
    assert result.ss.requires_grad


@pytest.mark.parametrize("up_to_constant", [True, False])
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 50.0])
def test_kernels_are_their_formulas(bandwidth, up_to_constant):
    constant = 1.0 if up_to_constant else 0.0
    for kernel, expected in (
        ("gaussian", lambda x, y: np.exp(-cdist(x, y, "sqeuclidean") / bandwidth)),
        ("laplacian", lambda x, y: np.exp(-cdist(x, y, "cityblock") / np.sqrt(bandwidth))),
    ):
        result = blocks(kernel, bandwidth, up_to_constant=up_to_constant)
        np.testing.assert_allclose(result.ss + constant, expected(XS, XS), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(result.tt + constant, expected(XT, XT), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(result.ts + constant, expected(XT, XS), rtol=1e-12, atol=1e-15)
        assert [float(width) for width in result.bandwidths] == pytest.approx([bandwidth] * 3, rel=1e-12)


def test_linear_kernel_is_the_inner_product_up_to_a_common_origin():
    exact = blocks("linear", up_to_constant=False)
    assert exact.bandwidths is None
    centre = POOLED.mean(axis=0)
    np.testing.assert_allclose(blocks("linear").ts, (XT - centre) @ (XS - centre).T, atol=1e-12)
    # Without a moved origin the values are those of the formula, but for what centring removes.
    h_m, h_n = np.eye(M) - 1 / M, np.eye(N) - 1 / N
    np.testing.assert_allclose(h_m @ exact.ts.numpy() @ h_n, h_m @ (XT @ XS.T) @ h_n, atol=1e-12)


def test_a_wide_kernel_keeps_its_digits_in_float32():
    """k - 1 is about -1e-9 here; computed as k it would be rounding of one."""
    xs, xt = torch.as_tensor(XS, dtype=torch.float32), torch.as_tensor(XT, dtype=torch.float32)
    value = float(bures.kernel_bures(xs, xt, bandwidth=1e9))
    reference = float(bures.kernel_bures(xs.double(), xt.double(), bandwidth=1e9))
    assert reference > 0
    assert value == pytest.approx(reference, rel=1e-3)
    # It is then the Bures distance of the covariances, times 2 / sigma^2.
    assert reference == pytest.approx(2e-9 * bures.bures(XS, XT), rel=1e-3)


@each_kernel
def test_large_offsets_change_nothing(kernel):
    near, far = blocks(kernel, "shared"), blocks(kernel, "shared", xs=XS + 1e6, xt=XT + 1e6)
    for name in ("ss", "tt", "ts"):
        torch.testing.assert_close(getattr(far, name), getattr(near, name), rtol=1e-7, atol=1e-9)
    assert float(far.bandwidths[0]) == pytest.approx(float(near.bandwidths[0]), rel=1e-9)


def test_a_function_may_return_what_numpy_reads():
    own = bures.kernel_bures(XS, XT, kernel=lambda x, y: pd.DataFrame(x @ y.T))
    assert own == pytest.approx(bures.kernel_bures(XS, XT, kernel="linear"), rel=1e-9)


@pytest.mark.parametrize("language", ["numpy", "torch"])
def test_a_function_of_two_samples_is_a_kernel(language):
    def polynomial(x, y):
        assert isinstance(x, np.ndarray if language == "numpy" else Tensor)
        return (1 + x @ y.T) ** 2

    convert = np.asarray if language == "numpy" else torch.as_tensor
    value = float(bures.kernel_bures(convert(XS), convert(XT), kernel=polynomial))

    # The explicit feature map of (1 + x'y)^2.
    def features(x):
        products = [x[:, i] * x[:, j] * (1 if i == j else np.sqrt(2)) for i in range(D) for j in range(i, D)]
        return np.column_stack([np.sqrt(2) * x, *products])

    assert value == pytest.approx(bures.bures(features(XS), features(XT)), rel=1e-8)


def test_a_gradient_flows_through_a_function_given_as_a_kernel():
    leaf = torch.as_tensor(XT).requires_grad_()
    named = torch.autograd.grad(bures.kernel_bures(torch.as_tensor(XS), leaf, kernel="linear"), leaf)[0]
    own = torch.autograd.grad(bures.kernel_bures(torch.as_tensor(XS), leaf, kernel=lambda x, y: x @ y.T), leaf)[0]
    torch.testing.assert_close(own, named, rtol=1e-8, atol=1e-10)
