"""How many digits the distances keep: self-distance, float32 against float64, half precision and autocast."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot, softmax

import bures
from bures.factors import _class_distances

DTYPES = [torch.float32, torch.float64]
SELF_DISTANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
SINGLE_AGAINST_DOUBLE = 1e-4

both_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
each_kind = pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])


class Sample(NamedTuple):
    x: Tensor
    y: Tensor


class Shape(NamedTuple):
    n: int
    d: int
    k: int
    separation: float

    def __str__(self) -> str:
        return f"n{self.n}-d{self.d}-K{self.k}-{'separated' if self.separation > 1 else 'overlapping'}"


SHAPES = [Shape(n, d, k, gap) for n, d, k in ((7, 3, 2), (40, 2, 5), (40, 512, 10), (62, 16, 31)) for gap in (0.0, 8.0)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def draw(shape: Shape, kind: str, seed: int = 0, scale: float = 1.0) -> Sample:
    """Gaussian classes whose means are `separation` standard deviations apart, in float64."""
    rng = np.random.default_rng(1000 + seed)
    means = np.random.default_rng(0).normal(size=(shape.k, shape.d)) * shape.separation / np.sqrt(2 * shape.d)
    classes = np.arange(shape.n) % shape.k
    x = torch.as_tensor(means[classes] + scale * rng.normal(size=(shape.n, shape.d)))
    y = torch.as_tensor(classes)
    if kind == "soft":
        y = softmax(4 * one_hot(y, shape.k) + torch.as_tensor(rng.normal(size=(shape.n, shape.k))), dim=1)
    elif kind == "continuous":
        y = x[:, 0] + torch.as_tensor(rng.normal(size=shape.n))
    return Sample(x, y)


def cast(sample: Sample, dtype: torch.dtype) -> Sample:
    return Sample(sample.x.to(dtype), sample.y.to(dtype) if sample.y.is_floating_point() else sample.y)


def terms(source: Sample, target: Sample, kind: str, **options: object) -> bures.Explanation:
    return bures.explain(*source, *target, conditioning=kind, n_permutations=0, n_bootstrap=0, **options)


@both_dtypes
@each_kind
@each_shape
@pytest.mark.parametrize("eps", [1e-4, 1.0])
def test_self_distance_is_rounding(shape, kind, eps, dtype):
    sample = cast(draw(shape, kind), dtype)
    result = terms(sample, sample, kind, eps=eps)
    bound = SELF_DISTANCE[dtype] * (result.trace_s + result.trace_t)
    assert bound > 0
    assert abs(result.squared_distance) <= bound
    for metric in (bures.ckb, bures.ckw):
        assert abs(float(metric(*sample, *sample, conditioning=kind, eps=eps))) <= bound


@both_dtypes
@each_kind
@pytest.mark.parametrize("separation", [0.0, 8.0])
def test_self_distance_of_300_samples_of_512_features_is_rounding(kind, separation, dtype):
    sample = cast(draw(Shape(300, 512, 10, separation), kind), dtype)
    result = terms(sample, sample, kind, eps=1e-4)
    assert abs(result.squared_distance) <= SELF_DISTANCE[dtype] * (result.trace_s + result.trace_t)


@both_dtypes
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("bandwidth", ["shared", "per-block", "median"])
def test_self_distance_is_rounding_for_every_kernel_and_rule(kernel, bandwidth, dtype):
    sample = cast(draw(Shape(60, 8, 4, 3.0), "soft"), dtype)
    result = terms(sample, sample, "soft", kernel=kernel, bandwidth=bandwidth)
    assert abs(result.squared_distance) <= SELF_DISTANCE[dtype] * (result.trace_s + result.trace_t)


@both_dtypes
@each_shape
def test_self_distance_of_marginal_distances_is_rounding(shape, dtype):
    x = cast(draw(shape, "hard"), dtype).x
    variance = float(x.double().var(dim=0, correction=0).sum())
    assert abs(float(bures.kernel_bures(x, x))) <= SELF_DISTANCE[dtype]  # the traces are 1 - mean K, below one
    assert abs(float(bures.mmd(x, x))) <= SELF_DISTANCE[dtype]
    assert abs(float(bures.bures(x, x))) <= SELF_DISTANCE[dtype] * 2 * variance


@both_dtypes
def test_self_distance_is_rounding_when_the_samples_are_given_in_another_order(dtype):
    sample = cast(draw(Shape(90, 12, 3, 4.0), "hard"), dtype)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    result = terms(sample, Sample(sample.x[order], sample.y[order]), "hard", eps=1e-4)
    assert abs(result.squared_distance) <= SELF_DISTANCE[dtype] * (result.trace_s + result.trace_t)


@each_kind
@each_shape
@pytest.mark.parametrize("eps", [1e-4, 1e-2])
def test_float32_agrees_with_float64(shape, kind, eps):
    source, target = draw(shape, kind, seed=1), draw(shape, kind, seed=2, scale=1.3)
    single = cast(source, torch.float32), cast(target, torch.float32)
    # What float32 can be asked for: the distance of the rounded numbers.
    double = cast(single[0], torch.float64), cast(single[1], torch.float64)
    reference = terms(*double, kind, eps=eps)
    size = reference.trace_s + reference.trace_t
    assert (
        abs(terms(*single, kind, eps=eps).squared_distance - reference.squared_distance) <= SINGLE_AGAINST_DOUBLE * size
    )
    value = bures.ckw(*single[0], *single[1], conditioning=kind, eps=eps)
    assert value.dtype == torch.float32
    expected = float(bures.ckw(*double[0], *double[1], conditioning=kind, eps=eps))
    assert abs(float(value) - expected) <= SINGLE_AGAINST_DOUBLE * (size + reference.mean_term)


@each_shape
def test_float32_agrees_with_float64_without_labels(shape):
    xs, xt = draw(shape, "hard", seed=1).x.float(), draw(shape, "hard", seed=2, scale=1.3).x.float()
    variance = float(xs.double().var(dim=0, correction=0).sum() + xt.double().var(dim=0, correction=0).sum())
    for metric, size in ((bures.kernel_bures, 2.0), (bures.mmd, 2.0), (bures.bures, variance)):
        assert abs(float(metric(xs, xt)) - float(metric(xs.double(), xt.double()))) <= SINGLE_AGAINST_DOUBLE * size


@pytest.mark.parametrize("bandwidth", ["shared", "per-block"])
def test_float32_agrees_with_float64_far_from_the_origin(bandwidth):
    shape = Shape(60, 8, 3, 2.0)
    source, target = (
        Sample((sample.x + 100).float(), sample.y)
        for sample in (draw(shape, "hard", seed=1), draw(shape, "hard", seed=2, scale=1.5))
    )
    reference = terms(cast(source, torch.float64), cast(target, torch.float64), "hard", bandwidth=bandwidth)
    value = terms(source, target, "hard", bandwidth=bandwidth).squared_distance
    assert abs(value - reference.squared_distance) <= SINGLE_AGAINST_DOUBLE * (reference.trace_s + reference.trace_t)


@each_kind
def test_float32_gradient_agrees_with_float64(kind):
    shape = Shape(40, 16, 4, 3.0)
    source, target = (cast(draw(shape, kind, seed, scale), torch.float32) for seed, scale in ((1, 1.0), (2, 1.5)))
    gradients = []
    for dtype in DTYPES:
        s, t = cast(source, dtype), cast(target, dtype)
        leaf = t.x.clone().requires_grad_()
        bures.ckb(*s, leaf, t.y, conditioning=kind).backward()
        gradients.append(leaf.grad.double())
    assert float((gradients[0] - gradients[1]).norm() / gradients[1].norm()) <= 1e-3


@both_dtypes
@each_kind
def test_the_methods_agree(kind, dtype):
    shape = Shape(40, 16, 4, 3.0)
    source, target = (cast(draw(shape, kind, seed, scale), dtype) for seed, scale in ((1, 1.0), (2, 1.5)))
    results = []
    for method in ("svd", "gram"):
        leaf = target.x.clone().requires_grad_()
        value = bures.ckb(*source, leaf, target.y, conditioning=kind, method=method)
        value.backward()
        results.append((value.item(), leaf.grad))
    size = terms(source, target, kind).trace_s
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-7}[dtype]
    assert abs(results[0][0] - results[1][0]) <= tolerance * size
    assert float((results[0][1] - results[1][1]).norm() / results[0][1].norm()) <= 10 * tolerance


@pytest.mark.parametrize("spread", [0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("bias", [0.0, 15.0], ids=["to-uniform", "to-one-class"])
@pytest.mark.parametrize("label_bandwidth", ["mean", "median"])
@pytest.mark.parametrize("eps", [1e-8, 1e-2])
def test_collapsed_float32_predictions_do_not_break_the_label_gram(spread, bias, label_bandwidth, eps):
    rng = np.random.default_rng(0)
    logits = bias * one_hot(torch.zeros(64, dtype=torch.int64), 10) + spread * torch.as_tensor(
        rng.normal(size=(64, 10))
    )
    p_t = softmax(logits.float(), dim=1)
    source, xt = draw(Shape(50, 8, 10, 2.0), "hard"), torch.as_tensor(rng.normal(size=(64, 8)))
    options = {"label_bandwidth": label_bandwidth, "eps": eps, "n_permutations": 0, "n_bootstrap": 0}
    single = bures.explain(source.x.float(), source.y, xt.float(), p_t, **options)
    double = bures.explain(source.x, source.y, xt, p_t, **options)
    free = bures.explain(source.x, source.y, xt, torch.zeros(64, dtype=torch.int64), **options)
    size = double.trace_s + double.trace_t
    assert abs(single.squared_distance - double.squared_distance) <= SINGLE_AGAINST_DOUBLE * size
    # With 0 < B <= I nothing can be left over that was not there; an indefinite Gram would break this.
    assert 0 <= double.trace_t <= free.trace_t * (1 + 1e-9)
    if spread == 0:
        assert double.trace_t == pytest.approx(free.trace_t, rel=1e-9)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_half_precision_features_give_float32_results(half):
    shape = Shape(40, 16, 4, 3.0)
    xs, xt = draw(shape, "hard", seed=1).x.to(half), draw(shape, "hard", seed=2, scale=1.5).x.to(half)
    y = torch.arange(40) % 4
    calls = {
        "ckb": lambda s, t: bures.ckb(s, y, t, y),
        "ckw": lambda s, t: bures.ckw(s, y, t, y),
        "kernel_bures": bures.kernel_bures,
        "mmd": bures.mmd,
        "bures": bures.bures,
    }
    for name, call in calls.items():
        value, reference = call(xs, xt), float(call(xs.double(), xt.double()))
        assert value.dtype == torch.float32, name
        assert float(value) == pytest.approx(reference, rel=1e-4), name


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_half_precision_probabilities_are_accepted(half):
    shape = Shape(40, 16, 4, 3.0)
    source, target = draw(shape, "soft", seed=1), draw(shape, "soft", seed=2, scale=1.5)
    value = bures.ckb(source.x.float(), source.y.to(half), target.x.float(), target.y.to(half))
    assert float(value) == pytest.approx(float(bures.ckb(*source, *target)), rel=2e-2)


def test_half_precision_gradient_has_the_dtype_of_the_features():
    x = draw(Shape(20, 4, 2, 1.0), "hard").x.bfloat16().requires_grad_()
    y = torch.arange(20) % 2
    bures.ckb(x, y, 1.5 * x.detach(), y).backward()
    assert x.grad.dtype == torch.bfloat16
    assert bool(x.grad.isfinite().all())
    assert bool(x.grad.any())


@both_dtypes
def test_autocast_changes_nothing(dtype):
    shape = Shape(40, 16, 4, 3.0)
    (xs, ps), (xt, pt) = (cast(draw(shape, "soft", seed, scale), dtype) for seed, scale in ((1, 1.0), (2, 1.5)))
    y = torch.arange(40) % 4
    cov_s, cov_t = torch.cov(xs.T), torch.cov(xt.T)

    def everything(leaf: Tensor) -> list[Tensor]:
        return [
            bures.ckb(xs, ps, leaf, pt),
            bures.ckb(xs, y, leaf, y),
            bures.ckb(xs, y, leaf, pt, bandwidth="per-block"),
            bures.ckb(xs, xs[:, 0], leaf, xt[:, 0], conditioning="continuous"),
            bures.ckw(xs, ps, leaf, pt),
            bures.kernel_bures(xs, leaf),
            bures.kernel_bures(xs, leaf, kernel="linear"),
            bures.mmd(xs, leaf),
            bures.bures(xs, leaf),
            bures.bures_covariance(cov_s, cov_t),
        ]

    plain, under_autocast = xt.clone().requires_grad_(), xt.clone().requires_grad_()
    expected = torch.stack(everything(plain))
    expected.sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (xs.float() @ xs.float().T).dtype == torch.bfloat16  # autocast is at work here
        values = torch.stack(everything(under_autocast))
        explained = terms(Sample(xs, ps), Sample(xt, pt), "soft").squared_distance
    values.sum().backward()  # PyTorch wants the backward outside
    assert values.dtype == dtype
    assert torch.equal(values, expected)
    assert torch.equal(under_autocast.grad, plain.grad)
    assert explained == pytest.approx(values[0].item(), rel=1e-5)


def test_numpy_input_is_computed_in_float64_whatever_its_dtype():
    source, target = draw(Shape(40, 16, 4, 3.0), "hard", 1), draw(Shape(40, 16, 4, 3.0), "hard", 2)
    ys, yt = source.y.numpy(), target.y.numpy()
    xs, xt = source.x.float().numpy(), target.x.float().numpy()
    value = bures.ckb(xs, ys, xt, yt)
    assert isinstance(value, float)
    assert value == bures.ckb(xs.astype(np.float64), ys, xt.astype(np.float64), yt)


def test_explain_states_the_terms_of_the_distance():
    source, target = draw(Shape(30, 6, 3, 2.0), "hard", 1), draw(Shape(40, 6, 3, 2.0), "hard", 2)
    result = terms(source, target, "hard", eps=1e-3)
    assert result.squared_distance == pytest.approx(float(bures.ckb(*source, *target, eps=1e-3)), rel=1e-10)
    # tr R = eps tr[G_X (eps n I + G_Y)^-1], Theorem 5, written out.
    for sample, trace in ((source, result.trace_s), (target, result.trace_t)):
        n = len(sample.x)
        centring = np.eye(n) - 1 / n
        labels = one_hot(sample.y).numpy()
        square_x = np.square(sample.x.numpy()[:, None] - sample.x.numpy()).sum(-1)
        square_y = np.square(labels[:, None] - labels).sum(-1)
        g_x = centring @ np.exp(-square_x / result.bandwidths[0]) @ centring
        g_y = centring @ np.exp(-square_y / square_y.mean()) @ centring
        assert trace == pytest.approx(1e-3 * np.trace(g_x @ np.linalg.inv(1e-3 * n * np.eye(n) + g_y)), rel=1e-9)


def test_the_gradient_of_features_near_a_surface_has_three_digits_in_float32():
    """Three dimensions in 48: the singular values under the norm fall over nine decades."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    mixing = torch.randn(3, 48, generator=generator)
    latent = [scale * torch.randn(300, 3, generator=generator) + 2 * one_hot(y) for scale in (1.0, 1.2)]
    z_s, z_t = (torch.relu(x @ mixing) for x in latent)
    p_t = softmax(3 * one_hot(y) + torch.randn(300, 3, generator=generator), dim=1)

    def gradient(dtype: torch.dtype) -> Tensor:
        leaves = [z.to(dtype).requires_grad_() for z in (z_s, z_t)]
        bures.CKBLoss()(leaves[0], y, leaves[1], p_t).backward()
        return torch.cat([leaf.grad for leaf in leaves]).double()

    exact = gradient(torch.float64)
    assert float((gradient(torch.float32) - exact).norm() / exact.norm()) < 2e-3


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-7])
def test_distances_of_labels_that_almost_agree_keep_their_digits(spread):
    """Products of centred rows against differences in extended precision, as shares of the mean."""
    rng = np.random.default_rng(0)
    rows = softmax(spread * torch.as_tensor(rng.normal(size=(50, 6))), dim=1).float().double()
    wide = rows.numpy().astype(np.longdouble)
    exact = ((wide[:, None] - wide) ** 2).sum(axis=2)
    assert exact.mean() > 0
    found = _class_distances(rows, rows, torch.full((50,), 1 / 50, dtype=torch.float64))
    error = np.abs(found.numpy() - exact).max() / exact.mean()
    assert float(error) < 1e-8


@pytest.mark.parametrize("eps", [1e-2, 1e-5, 1e-8])
def test_a_small_regulariser_costs_a_float32_loss_no_digits(eps):
    """Label kernels of condition 1 / eps are decomposed in float64 where float32 would lose digits."""
    generator = torch.Generator().manual_seed(0)
    z_s, z_t, logits = (
        torch.randn(n, d, generator=generator, dtype=torch.float64) for n, d in ((60, 16), (57, 16), (57, 5))
    )
    y_s, p_t = torch.arange(60) % 5, softmax(3 * logits, dim=1).float()
    values, gradients = [], []
    for dtype in (torch.float32, torch.float64):
        leaf = z_s.float().to(dtype).requires_grad_()
        value = bures.CKBLoss(eps=eps)(leaf, y_s, z_t.float().to(dtype), p_t.to(dtype))
        value.backward()
        values.append(value.item())
        gradients.append(leaf.grad.double())
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert float((gradients[0] - gradients[1]).norm()) <= 1e-5 * float(gradients[1].norm())
