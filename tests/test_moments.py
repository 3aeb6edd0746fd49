"""Mergeable moments: the exact distances from sums, whatever the order, the chunks and the machines."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bures
from bures import ConditionalMoments
from bures.moments import read_chunks

K = 3
METRICS = ["ckb", "ckw", "kernel_bures", "mmd"]
TOLERANCE = {"float64": 1e-8, "mixed": 1e-6}
each_precision = pytest.mark.parametrize("precision", TOLERANCE)


def all_landmarks(p, kernel="gaussian", **options):
    return bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=len(p.xs) + len(p.xt), kernel=kernel, **options)


def moments(phi, x, y, k=K, weight=None, **options):
    return ConditionalMoments(phi, k, **options).update(x, y, weight)


def in_chunks(phi, x, y, sizes, k=K, weight=None, **options):
    m = ConditionalMoments(phi, k, **options)
    for rows in np.split(np.arange(len(x)), np.cumsum(sizes)[:-1]):
        m.update(x[rows], y[rows], None if weight is None else weight[rows])
    return m


def exact(metric, p, **options):
    if metric in ("ckb", "ckw"):
        return getattr(bures, metric)(*p.data, **options)
    return getattr(bures, metric)(p.xs, p.xt, **{name: options[name] for name in ("kernel",) if name in options})


# ---------------------------------------------------------------------------------------- the exact n x n values


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize(("n", "m", "d"), [(40, 30, 3), (60, 50, 2), (35, 40, 20)])
def test_with_all_landmarks_every_distance_is_the_exact_one(draw_problem, metric, kernel, n, m, d):
    p = draw_problem("hard", n=n, m=m, d=d, seed=n)
    phi = bures.LinearMap.fit(p.xs, p.xt) if kernel == "linear" else all_landmarks(p, kernel)
    m_s, m_t = moments(phi, p.xs, p.ys), moments(phi, p.xt, p.yt)
    result = m_s.measure(m_t, metric)
    scale = result.trace_s + result.trace_t
    assert abs(result.squared_distance - exact(metric, p, kernel=kernel)) <= 1e-8 * scale
    assert getattr(m_s, metric)(m_t) == result.squared_distance
    assert isinstance(result.squared_distance, float)
    assert result.metric == metric


def test_ckb_is_theorem_5_of_the_independent_reference(draw_problem):
    for seed in range(3):
        p = draw_problem("hard", n=25, m=20, seed=seed)
        phi = all_landmarks(p)
        m_s, m_t = moments(phi, p.xs, p.ys), moments(phi, p.xt, p.yt)
        for eps in (1e-4, 1e-2, 1.0):
            value, scale = reference.ckb(*p.rows, eps=eps)
            assert abs(m_s.ckb(m_t, eps=eps) - value) <= 1e-8 * scale
            value, scale = reference.ckw(*p.rows, eps=eps)
            assert abs(m_s.ckw(m_t, eps=eps) - value) <= 1e-8 * scale
        value, scale = reference.kernel_bures(p.xs, p.xt)
        assert abs(m_s.kernel_bures(m_t) - value) <= 1e-8 * scale
        assert abs(m_s.mmd(m_t) - reference.mmd(p.xs, p.xt)) <= 1e-8


@pytest.mark.parametrize("label_kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("label_bandwidth", ["mean", 0.8])
@pytest.mark.parametrize("eps", [1e-3, 0.1, "auto"])
def test_options_of_the_labels_are_those_of_ckb(draw_problem, label_kernel, label_bandwidth, eps):
    p = draw_problem("hard", n=30, m=25, seed=1)
    phi = all_landmarks(p)
    m_s, m_t = moments(phi, p.xs, p.ys, k=5), moments(phi, p.xt, p.yt, k=5)  # two of five classes never occur
    options = {"label_kernel": label_kernel, "label_bandwidth": label_bandwidth, "eps": eps}
    for metric in ("ckb", "ckw"):
        assert abs(getattr(m_s, metric)(m_t, **options) - exact(metric, p, **options)) <= 1e-9


@pytest.mark.parametrize("method", ["svd", "gram", "polar"])
def test_every_method_gives_the_same_value(draw_problem, method):
    p = draw_problem("hard", n=30, m=25)
    phi = all_landmarks(p)
    m_s, m_t = moments(phi, p.xs, p.ys), moments(phi, p.xt, p.yt)
    assert abs(m_s.ckb(m_t, method=method) - m_s.ckb(m_t)) < 1e-7


@pytest.mark.parametrize("kind", ["soft", ("hard", "soft")], ids=str)
@pytest.mark.parametrize("eps", [1e-2, "auto"])
@pytest.mark.parametrize("label_kernel", ["linear", "gaussian", "laplacian"])
def test_soft_labels_with_a_label_map_are_those_of_ckb(draw_problem, kind, label_kernel, eps):
    p = draw_problem(kind, n=30, m=25, seed=2)
    phi = all_landmarks(p)

    def side(x, y):
        if y.ndim == 1:
            return moments(phi, x, y)
        label_map = None
        if label_kernel != "linear":
            label_map = bures.NystroemMap.fit(y, n_landmarks=len(y), kernel=label_kernel)
        return moments(phi, x, y, labels="soft", label_map=label_map)

    m_s, m_t = side(p.xs, p.ys), side(p.xt, p.yt)
    options = {"eps": eps, "label_kernel": label_kernel}
    for metric in ("ckb", "ckw"):
        assert abs(getattr(m_s, metric)(m_t, **options) - exact(metric, p, **options)) <= 1e-8


@pytest.mark.parametrize("swapped", [False, True])
def test_hard_labels_beside_soft_ones_have_their_kernel(draw_problem, swapped):
    p = draw_problem(("hard", "soft"), n=30, m=25, seed=2)
    phi = all_landmarks(p)
    sides = moments(phi, p.xs, p.ys), moments(phi, p.xt, p.yt, labels="soft")
    m_s, m_t = sides[::-1] if swapped else sides
    assert abs(m_s.ckb(m_t) - exact("ckb", p, label_kernel="linear")) <= 1e-8
    rows = moments(phi, p.xs, p.rows_s, labels="soft")
    label_map = bures.NystroemMap.fit(p.rows_s, n_landmarks=len(p.rows_s))
    mapped = moments(phi, p.xs, p.rows_s, labels="soft", label_map=label_map)
    for same in (rows, mapped):
        assert abs(sides[0].ckb(same)) <= 1e-8
    with pytest.raises(
        ValueError, match="source moments have the label kernel 'gaussian', the target moments 'linear'"
    ):
        mapped.ckb(rows)


def test_integers_beside_soft_labels_are_one_hot_rows(draw_problem):
    p = draw_problem("hard", n=30, m=25)
    phi = all_landmarks(p)
    rows = moments(phi, p.xs, p.rows_s, labels="soft")
    assert rows.ckb(moments(phi, p.xt, p.yt, labels="soft")) == rows.ckb(moments(phi, p.xt, p.rows_t, labels="soft"))


# ------------------------------------------------------------------------------------------------------ weights


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_weights_are_those_of_the_exact_distance(draw_problem, kind):
    p = draw_problem(kind, n=30, m=25, seed=3)
    rng = np.random.default_rng(0)
    ws, wt = rng.uniform(0.1, 3, 30), rng.uniform(0.1, 3, 25)
    phi = all_landmarks(p, bandwidth=2.0)
    options = {"bandwidth": 2.0, "sample_weight_s": ws, "sample_weight_t": wt}
    m_s, m_t = (moments(phi, x, y, weight=w, labels=kind) for x, y, w in ((p.xs, p.ys, ws), (p.xt, p.yt, wt)))
    for metric in ("ckb", "ckw"):
        label_kernel = "gaussian" if kind == "hard" else "linear"
        expected = getattr(bures, metric)(*p.data, label_kernel=label_kernel, **options)
        assert abs(getattr(m_s, metric)(m_t) - expected) <= 1e-9
    assert abs(m_s.kernel_bures(m_t) - bures.kernel_bures(p.xs, p.xt, **options)) <= 1e-9
    assert abs(m_s.mmd(m_t) - bures.mmd(p.xs, p.xt, **options)) <= 1e-9


@given(
    seed=st.integers(0, 10_000),
    copies=st.lists(st.integers(0, 3), min_size=30, max_size=30).filter(lambda c: sum(c) > 3),
    kind=st.sampled_from(["hard", "soft"]),
    precision=st.sampled_from(["float64", "mixed"]),
)
@settings(max_examples=25)
def test_a_weight_counts_as_repetitions(draw_problem, seed, copies, kind, precision):
    p = draw_problem(kind, n=30, m=25, seed=seed)
    phi = bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=12)
    target = moments(phi, p.xt, p.yt, labels=kind, precision=precision)
    repeated = np.repeat(np.arange(30), copies)
    weighted = moments(phi, p.xs, p.ys, weight=np.array(copies, dtype=float), labels=kind, precision=precision)
    plain = moments(phi, p.xs[repeated], p.ys[repeated], labels=kind, precision=precision)
    assert weighted.weight == plain.weight == sum(copies)
    np.testing.assert_allclose(weighted.class_weight, plain.class_weight, atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bures.MissingClassWarning)
        for metric in METRICS:
            a, b = weighted.measure(target, metric), plain.measure(target, metric)
            assert abs(a.squared_distance - b.squared_distance) <= TOLERANCE[precision] * (a.trace_s + a.trace_t)


@each_precision
def test_samples_of_weight_zero_may_lie_anywhere(draw_problem, precision):
    p = draw_problem("hard", n=60, m=50, seed=2)
    phi = bures.LinearMap.fit(p.xs, p.xt)
    padded, weight = np.vstack([p.xs + 1e6, p.xs]), np.repeat([0.0, 1.0], 60)
    with_padding = moments(phi, padded, np.tile(p.ys, 2), weight=weight, precision=precision)
    without, target = (moments(phi, x, y, precision=precision) for x, y in ((p.xs, p.ys), (p.xt, p.yt)))
    assert with_padding.ckb(target) == pytest.approx(without.ckb(target), rel=1e-9 if precision == "float64" else 1e-5)
    assert (with_padding.n_samples, with_padding.n_weighted) == (120, 60)


def test_decay_weighs_earlier_updates_less(draw_problem):
    p = draw_problem("hard", n=60, m=25)
    phi = bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=12)
    decayed = in_chunks(phi, p.xs, p.ys, [20, 20, 20], decay=0.5)
    weight = np.repeat([0.25, 0.5, 1.0], 20)
    weighted = moments(phi, p.xs, p.ys, weight=weight)
    target = moments(phi, p.xt, p.yt)
    assert decayed.weight == pytest.approx(weight.sum(), rel=1e-14)
    assert abs(decayed.ckw(target) - weighted.ckw(target)) < 1e-12
    assert decayed.n_samples == 60


# ----------------------------------------------------------------------------------- order, chunks, merges, bound


@st.composite
def splits(draw, n):
    cuts = sorted(draw(st.lists(st.integers(1, n - 1), max_size=6, unique=True)))
    return np.diff([0, *cuts, n])


@given(
    seed=st.integers(0, 10_000),
    kernel=st.sampled_from(["gaussian", "laplacian", "linear", "fourier"]),
    kind=st.sampled_from(["hard", "soft"]),
    precision=st.sampled_from(["float64", "mixed"]),
    offset=st.sampled_from([0.0, 1e3]),
    sizes=splits(400),
)
@settings(max_examples=60)
def test_order_chunks_and_merges_change_nothing(draw_problem, seed, kernel, kind, precision, offset, sizes):
    p = draw_problem(kind, n=400, m=300, seed=seed)  # enough for products in float32, in "mixed"
    xs, xt = p.xs + offset, p.xt + offset
    if kernel == "linear":
        phi = bures.LinearMap.fit(xs, xt)
    elif kernel == "fourier":
        phi = bures.RandomFourierMap.fit(xs, xt, n_features=24, seed=seed)
    else:
        phi = bures.NystroemMap.fit(xs, xt, n_landmarks=25, kernel=kernel, seed=seed)
    options = {"precision": precision, "labels": kind}
    order = np.random.default_rng(seed).permutation(400)
    whole = moments(phi, xs, p.ys, **options)
    chunked = in_chunks(phi, xs[order], p.ys[order], sizes, **options)
    parts = [moments(phi, xs[rows], p.ys[rows], **options) for rows in np.split(order, np.cumsum(sizes)[:-1])]
    merged = parts[0]
    for part in parts[1:]:
        merged = part + merged
    target = moments(phi, xt, p.yt, **options)
    for metric in METRICS:
        result = whole.measure(target, metric)
        for other in (chunked, merged):
            difference = other.measure(target, metric).squared_distance - result.squared_distance
            assert abs(difference) <= TOLERANCE[precision] * (result.trace_s + result.trace_t)
    assert chunked.n_samples == merged.n_samples == 400
    assert chunked.n_chunks == merged.n_chunks == len(sizes)


@given(
    seed=st.integers(0, 10_000),
    kernel=st.sampled_from(["gaussian", "laplacian"]),
    landmarks=st.sampled_from(["uniform", "k-means++", "pivoted-cholesky"]),
    share=st.floats(0.02, 1.0),
    scale=st.sampled_from([0.2, 1.0, 5.0]),
    kind=st.sampled_from(["hard", "soft"]),
    precision=st.sampled_from(["float64", "mixed"]),
)
@settings(max_examples=80)
def test_the_bound_is_never_violated(draw_problem, seed, kernel, landmarks, share, scale, kind, precision):
    p = draw_problem(kind, n=40, m=30, d=2, seed=seed)
    sample = 25  # the map is fitted on a part of the stream; the bound is about all of it
    sigma2 = scale * bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=1, kernel=kernel).bandwidth
    phi = bures.NystroemMap.fit(
        p.xs[:sample], p.xt[:sample], n_landmarks=max(1, int(2 * sample * share)), kernel=kernel, bandwidth=sigma2,
        landmarks=landmarks, seed=seed,
    )  # fmt: skip
    options = {"precision": precision, "labels": kind}
    m_s, m_t = moments(phi, p.xs, p.ys, **options), moments(phi, p.xt, p.yt, **options)
    label_kernel = "gaussian" if kind == "hard" else "linear"
    for metric in METRICS:
        result = m_s.measure(m_t, metric)
        labels = {"label_kernel": label_kernel} if metric in ("ckb", "ckw") else {}
        arguments = p.data if labels else (p.xs, p.xt)
        value = getattr(bures, metric)(*arguments, kernel=kernel, bandwidth=sigma2, **labels)
        rounding = TOLERANCE[precision] * (result.trace_s + result.trace_t)
        assert -rounding <= value - result.squared_distance <= result.bound


@each_precision
@pytest.mark.parametrize("digits", [None, 0])
@pytest.mark.parametrize("d", [1, 2])
def test_the_bound_holds_where_covariances_have_directions_without_variance(d, digits, precision):
    """More samples than products are formed in float64 for, of few dimensions or few distinct values."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        xs, xt = rng.normal(size=(400, d)), [1.0, 3.0][seed % 2] * rng.normal(size=(500, d)) + seed // 2
        if digits is not None:
            xs, xt = xs.round(digits), xt.round(digits)
        ys, yt = np.arange(400) % 2, np.arange(500) % 2
        for kernel in ("gaussian", "laplacian"):
            options = {"kernel": kernel, "bandwidth": 3.0}
            phi = bures.NystroemMap.fit(xs, xt, n_landmarks=100, landmarks="pivoted-cholesky", **options)
            m_s, m_t = (ConditionalMoments(phi, 2, precision=precision).update(x, y) for x, y in ((xs, ys), (xt, yt)))
            for metric in METRICS:
                pair = (xs, ys, xt, yt) if metric in ("ckb", "ckw") else (xs, xt)
                result = m_s.measure(m_t, metric)
                error = abs(getattr(bures, metric)(*pair, **options) - result.squared_distance)
                assert error <= result.bound


def test_the_bound_is_of_the_size_of_the_error(draw_problem):
    p = draw_problem("hard", n=200, m=200, d=2, seed=1)
    value = bures.ckb(*p.data)
    bounds = []
    for n_landmarks in (10, 20, 40, 80):
        phi = bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=n_landmarks, landmarks="pivoted-cholesky")
        result = moments(phi, p.xs, p.ys).measure(moments(phi, p.xt, p.yt))
        bounds.append(result.bound)
        assert result.bound < 20 * (value - result.squared_distance) + 1e-7
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 1e-3 * bounds[0]


def test_the_bound_of_ckw_covers_what_the_means_of_classes_lose():
    """With one landmark nearly all of it: the covariances of points, one for each class, are nothing."""
    x, y = np.array([[0.0], [3.0], [0.0], [3.0]]), np.array([0, 0, 1, 1])
    phi = bures.NystroemMap.fit(x, x + 9, n_landmarks=1, bandwidth=1.0)
    m_s, m_t = moments(phi, x, y), moments(phi, x + 9, y)
    assert m_s.measure(m_t, "ckw").bound > m_s.measure(m_t, "ckb").bound + 0.5


def test_random_fourier_features_certify_nothing_and_come_close(draw_problem):
    p = draw_problem("hard", n=100, m=90, seed=1)
    errors = []
    for n_features in (20, 500):
        phi = bures.RandomFourierMap.fit(p.xs, p.xt, n_features=n_features, seed=0)
        result = moments(phi, p.xs, p.ys).measure(moments(phi, p.xt, p.yt))
        assert result.bound is None
        errors.append(abs(result.squared_distance - bures.ckb(*p.data)))
    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 0.02


@each_precision
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_a_large_common_offset_costs_nothing(draw_problem, precision, kernel):
    p = draw_problem("hard", n=80, m=60, seed=4)
    grid = 2.0**-12
    xs, xt = np.round(p.xs / grid) * grid, np.round(p.xt / grid) * grid
    values = []
    for offset in (0.0, 2.0**36):
        a, b = xs + offset, xt + offset  # exact: multiples of 2^-12 below 2^40
        phi = bures.LinearMap.fit(a, b) if kernel == "linear" else bures.NystroemMap.fit(a, b, n_landmarks=20)
        m_s, m_t = (in_chunks(phi, x, y, [30, len(x) - 30], precision=precision) for x, y in ((a, p.ys), (b, p.yt)))
        result = m_s.measure(m_t, "ckw")
        values.append(result.squared_distance)
    assert abs(values[1] - values[0]) <= TOLERANCE[precision] * (result.trace_s + result.trace_t) * 10


def test_drift_within_the_stream_costs_nothing(draw_problem):
    """A first chunk far from all others and of little weight: sums around its mean would lose most digits."""
    p = draw_problem("hard", n=80, m=60, seed=4)
    phi = bures.LinearMap.fit(p.xs, p.xt)
    xs, ys, weight = np.vstack([p.xs[:1] + 1e7, p.xs]), np.append(0, p.ys), np.append(1e-12, np.ones(80))
    r_s, r_t = (
        reference.conditional_covariance(x, np.eye(K)[y], 1e-2, w) for x, y, w in ((xs, ys, weight), (p.xt, p.yt, None))
    )
    drifting, steady = in_chunks(phi, xs, ys, [1, 80], weight=weight), moments(phi, p.xs, p.ys)
    target = moments(phi, p.xt, p.yt)
    expected = reference.bures_covariance(r_s, r_t)
    assert drifting.ckb(target, label_kernel="linear") == pytest.approx(expected, rel=1e-7)
    assert steady.ckb(target, label_kernel="linear") != pytest.approx(expected, rel=1e-3), "the far sample counts"


def test_blocks_within_a_chunk_are_summed_like_chunks(draw_problem, monkeypatch):
    p = draw_problem("soft", n=80, m=60)
    phi = bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=20)
    label_map = bures.NystroemMap.fit(p.ys, n_landmarks=10)
    options = {"labels": "soft", "label_map": label_map, "weight": np.linspace(0.1, 1, 80)}
    whole = moments(phi, p.xs, p.ys, **options)
    monkeypatch.setattr("bures.moments._sums.block_rows", lambda *_: 7)
    blocks = moments(phi, p.xs, p.ys, **options)
    for name, tensor in whole.scatter.tensors().items():
        torch.testing.assert_close(getattr(blocks.scatter, name), tensor, atol=1e-12, rtol=1e-12)


def test_many_classes_are_summed_like_few(draw_problem, monkeypatch):
    p = draw_problem("hard", n=80, m=60)
    phi = bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=20)
    few = moments(phi, p.xs, p.ys)
    monkeypatch.setattr("bures.moments._scatter.FEW_CLASSES", 0)
    many = moments(phi, p.xs, p.ys)
    torch.testing.assert_close(many.scatter.yx, few.scatter.yx, atol=1e-12, rtol=1e-12)


@each_precision
def test_mixed_and_double_agree(draw_problem, precision):
    p = draw_problem("hard", n=400, m=300, d=20, seed=5)
    phi = bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=60)
    for dtype in (np.float32, np.float64):
        m_s, m_t = (moments(phi, x.astype(dtype), y, precision=precision) for x, y in ((p.xs, p.ys), (p.xt, p.yt)))
        assert m_s.scatter.xx.dtype == torch.float64
        for metric in METRICS:
            result = m_s.measure(m_t, metric)
            double = moments(phi, p.xs, p.ys).measure(moments(phi, p.xt, p.yt), metric)
            assert abs(result.squared_distance - double.squared_distance) <= 1e-6 * (result.trace_s + result.trace_t)


# ----------------------------------------------------------------------------------------------------- degenerate


def degenerate_cases():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), np.arange(12) % K
    return {
        "identical": (x, y, x, y),
        "duplicates": (np.repeat(x[:2], 6, axis=0), y, np.repeat(x[:1], 12, axis=0), y),
        "constant": (np.full((12, 2), 0.7), y, np.full((12, 2), 0.7), y),
        "zero": (np.zeros((12, 2)), y, np.zeros((12, 2)), y),
        "one sample per class": (x[:K], np.arange(K), x[K : 2 * K], np.arange(K)),
        "one sample": (x[:1], y[:1], x[1:2], y[1:2]),
        "one class": (x, np.zeros(12, dtype=int), 2 * x, np.zeros(12, dtype=int)),
        "no class in common": (x, np.zeros(12, dtype=int), 2 * x, np.ones(12, dtype=int)),
        "large": (1e8 * x, y, 1e8 * x[::-1], y),
        "small": (1e-8 * x, y, 1e-8 * x[::-1], y),
    }


@each_precision
@pytest.mark.parametrize("case", degenerate_cases())
@pytest.mark.filterwarnings("ignore::bures.MissingClassWarning")
def test_degenerate_samples_give_the_exact_distance(case, precision):
    xs, ys, xt, yt = degenerate_cases()[case]
    phi = bures.NystroemMap.fit(xs, xt, n_landmarks=len(xs) + len(xt))
    m_s, m_t = (moments(phi, x, y, precision=precision) for x, y in ((xs, ys), (xt, yt)))
    for metric in METRICS:
        value = getattr(bures, metric)(*((xs, ys, xt, yt) if metric in ("ckb", "ckw") else (xs, xt)))
        result = m_s.measure(m_t, metric)
        assert abs(result.squared_distance - value) <= result.bound + 1e-12


@each_precision
def test_the_distance_to_oneself_is_zero(draw_problem, precision):
    p = draw_problem("hard", n=40, m=30)
    phi = bures.NystroemMap.fit(p.xs, p.xt, n_landmarks=30)
    m = moments(phi, p.xs, p.ys, precision=precision)
    for metric in METRICS:
        assert abs(getattr(m, metric)(m)) < 1e-13


def test_a_missing_class_is_reported_and_left_out_as_by_ckw(draw_problem):
    p = draw_problem("hard", n=30, m=25, seed=1)
    yt = np.minimum(p.yt, 1)
    phi = all_landmarks(p)
    m_s, m_t = moments(phi, p.xs, p.ys), moments(phi, p.xt, yt)
    with pytest.warns(bures.MissingClassWarning, match="missing: class 2 from the target") as caught:
        value = m_s.ckw(m_t)
    assert caught[0].filename == __file__
    with pytest.warns(bures.MissingClassWarning, match="class 2 from the source"):
        m_t.measure(m_s, "ckw")
    with pytest.warns(bures.MissingClassWarning):
        assert abs(value - bures.ckw(p.xs, p.ys, p.xt, yt)) < 1e-9
    assert abs(m_s.ckb(m_t) - bures.ckb(p.xs, p.ys, p.xt, yt)) < 1e-9  # and no warning: they are errors here


# ------------------------------------------------------------------------------------------------------ bad input

XS = np.random.default_rng(0).normal(size=(20, 2))
YS = np.arange(20) % K
PS = np.full((20, K), 1 / K)
NAN = XS.copy()
NAN[4, 1] = np.nan
PHI = bures.NystroemMap.fit(XS, n_landmarks=6)
BAD_CHUNKS = {
    "NaN": ({"x": NAN}, r"x contains NaN or infinity in 1 of 20 rows \(first: row 4\)"),
    "another width": ({"x": XS[:, :1]}, r"x has 1 features but the feature map was fitted on 2"),
    "three dimensions": ({"x": XS[:, :, None]}, r"x is a ndarray of shape \(20, 2, 1\).*accepted is an array"),
    "strings": ({"x": XS.astype(str)}, r"x could not be read as an array of real numbers"),
    "a class too many": ({"y": YS + 1}, r"y contains class 3 \(row 2\); accepted are integers from 0 to 2"),
    "a negative class": ({"y": YS - 1}, r"y contains class -1 \(row 0\)"),
    "fewer labels": ({"y": YS[:-1]}, r"y is a ndarray of shape \(19,\).*shape \(20,\)"),
    "real labels": ({"y": YS + 0.5}, r"accepted are integers from 0 to 2"),
    "names": ({"y": np.array(["a"] * 20)}, r"accepted are integers from 0 to 2"),
    "rows beside hard labels": ({"y": PS}, r"labels='soft' takes rows of probabilities"),
    "negative weight": ({"w": -np.ones(20)}, r"sample_weight contains the negative weight -1.0"),
    "NaN weight": ({"w": np.full(20, np.nan)}, r"sample_weight contains NaN"),
    "fewer weights": ({"w": np.ones(3)}, r"sample_weight has shape \(3,\).*shape \(20,\)"),
}
BAD_SOFT = {
    "logits": (3 * PS, r"y has 20 of 20 rows that are not probabilities"),
    "columns": (np.full((20, 2), 0.5), r"y has 2 columns; accepted is one for each of the 3 classes"),
    "NaN": (PS * np.nan, r"y contains NaN or infinity"),
    "fewer rows": (PS[:-1], r"y has 19 labels but x has 20 samples"),
    "classes": (YS + 1, r"y contains class 3"),
}


@pytest.mark.parametrize("case", BAD_CHUNKS)
def test_a_bad_chunk_is_named_and_leaves_the_moments_as_they_were(case):
    changes, message = BAD_CHUNKS[case]
    chunk = {"x": XS, "y": YS, "w": None, **changes}
    m = ConditionalMoments(PHI, K).update(XS, YS).update(XS[:10], YS[:10])
    before = m.state_dict()
    with pytest.raises((ValueError, TypeError), match=f"(?s)^chunk 2, rows 30 to 49 of the stream: .*{message}"):
        m.update(chunk["x"], chunk["y"], chunk["w"])
    for name, value in m.state_dict().items():
        assert torch.equal(value, before[name]) if isinstance(value, torch.Tensor) else value == before[name]
    assert m.update(XS, YS).n_samples == 50


@pytest.mark.parametrize("case", BAD_SOFT)
def test_bad_soft_labels_are_named(case):
    y, message = BAD_SOFT[case]
    m = ConditionalMoments(PHI, K, labels="soft")
    with pytest.raises(ValueError, match=f"(?s)^chunk 0, rows 0 to 19 of the stream: .*{message}"):
        m.update(XS, y)
    assert m.n_samples == 0


def test_an_overflow_in_float32_is_refused():
    m = ConditionalMoments(bures.LinearMap.fit(XS), K, precision="mixed")
    with pytest.raises(ValueError, match=r"chunk 0, rows 0 to 19 .*overflow in precision='mixed'"):
        m.update(1e30 * XS, YS)
    assert m.weight == 0


@pytest.mark.parametrize("labels", ["hard", "soft"])
def test_an_empty_chunk_changes_nothing(labels):
    m = ConditionalMoments(PHI, K, labels=labels, decay=0.5).update(XS, YS)
    before = m.state_dict()
    y = YS[:0] if labels == "hard" else PS[:0]
    for empty in ((XS[:0], y), (XS[:0], y, np.ones(0)), ([], [])):
        assert m.update(*empty) is m
    for name, value in m.state_dict().items():
        assert torch.equal(value, before[name]) if isinstance(value, torch.Tensor) else value == before[name]


def test_a_chunk_of_weight_zero_changes_no_distance():
    m, other = ConditionalMoments(PHI, K), ConditionalMoments(PHI, K).update(2 * XS, YS)
    m.update(5 * XS, YS, np.zeros(20))
    with pytest.raises(ValueError, match="source moments hold no sample of positive weight"):
        m.ckb(other)
    m.update(XS, YS)
    assert m.ckb(other) == pytest.approx(ConditionalMoments(PHI, K).update(XS, YS).ckb(other), abs=1e-13)


def label_map(columns=K, seed=0):
    return bures.NystroemMap.fit(np.random.default_rng(seed).dirichlet(np.ones(columns), 20), n_landmarks=5)


UNLIKE = {
    "map": (lambda: ConditionalMoments(bures.LinearMap.fit(XS), K), "feature_map", True),
    "seed": (lambda: ConditionalMoments(bures.NystroemMap.fit(XS, n_landmarks=6, seed=1), K), "feature_map", True),
    "classes": (lambda: ConditionalMoments(PHI, K + 1), "n_classes=3, the others 4", True),
    "precision": (lambda: ConditionalMoments(PHI, K, precision="mixed"), "precision='float64'", True),
    "labels": (lambda: ConditionalMoments(PHI, K, labels="soft"), "labels='hard', the others 'soft'", False),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_unlike_moments_are_neither_merged_nor_compared(case):
    make, message, incomparable = UNLIKE[case]
    ours, theirs = ConditionalMoments(PHI, K).update(XS, YS), make().update(XS, YS)
    before = ours.state_dict()
    with pytest.raises(ValueError, match=message):
        _ = ours + theirs
    with pytest.raises(ValueError, match=r"merged|cannot be merged"):
        ours.merge(theirs)
    assert torch.equal(ours.scatter.xx, before["xx"])
    if incomparable:
        with pytest.raises(ValueError, match="can be compared only if they agree"):
            ours.ckb(theirs)
    else:
        assert np.isfinite(ours.ckb(theirs))


def test_moments_of_different_label_maps_are_not_merged():
    ours, theirs = (
        ConditionalMoments(PHI, K, labels="soft", label_map=label_map(seed=seed)).update(XS, PS) for seed in (0, 1)
    )
    with pytest.raises(ValueError, match="label_map="):
        ours.merge(theirs)
    assert np.isfinite(ours.ckb(theirs))  # each domain may have its own


def test_other_things_are_not_merged():
    with pytest.raises(TypeError):
        _ = ConditionalMoments(PHI, K) + 1
    with pytest.raises(TypeError, match="other is a int"):
        ConditionalMoments(PHI, K).merge(1)


OPTIONS = {
    "no map": ({"feature_map": np.eye(2)}, TypeError, "feature_map is a ndarray; accepted is a fitted map"),
    "no classes": ({"n_classes": 0}, ValueError, "n_classes=0"),
    "labels": ({"labels": "continuous"}, ValueError, "labels='continuous' is unknown"),
    "precision": ({"precision": "float32"}, ValueError, "precision='float32' is unknown"),
    "decay": ({"decay": 1.5}, ValueError, "decay=1.5 is out of range"),
    "hard label map": ({"label_map": label_map()}, ValueError, "label_map takes 3 columns, beside labels='hard'"),
    "narrow label map": ({"label_map": label_map(2), "labels": "soft"}, ValueError, "label_map takes 2 columns"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options_are_named(case):
    changes, error, message = OPTIONS[case]
    with pytest.raises(error, match=message):
        ConditionalMoments(**{"feature_map": PHI, "n_classes": K, **changes})


def test_bad_options_of_a_distance_are_named():
    m = ConditionalMoments(PHI, K).update(XS, YS)
    soft = ConditionalMoments(PHI, K, labels="soft").update(XS, PS)
    for call, message in (
        (lambda: m.ckb(m, eps=0.0), "eps=0.0 is out of range"),
        (lambda: m.ckb(m, method="fast"), "method='fast' is unknown"),
        (lambda: m.ckb(m, label_kernel="cosine"), "label_kernel='cosine' is unknown"),
        (lambda: m.ckb(m, label_bandwidth="median"), "label_bandwidth='median' is unknown"),
        (lambda: m.measure(m, "coral"), "metric='coral' is unknown"),
        (lambda: m.ckb(ConditionalMoments(PHI, K)), "target moments hold no sample"),
        (lambda: soft.ckb(m, label_kernel="gaussian"), "do not apply to soft labels"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# ---------------------------------------------------------------------------------------- states, files, streams


def assert_same_state(a, b):
    for name, value in a.state_dict().items():
        other = b.state_dict()[name]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


@pytest.mark.parametrize("labels", ["hard", "soft"])
def test_saved_and_copied_moments_are_the_same(labels, tmp_path):
    options = {"labels": labels, "label_map": label_map() if labels == "soft" else None, "decay": 0.9}
    m = ConditionalMoments(PHI, K, precision="mixed", **options).update(XS, YS if labels == "hard" else PS)
    path = m.save(tmp_path / "m.safetensors")
    loaded = ConditionalMoments.load(path, PHI, options["label_map"])
    fresh = ConditionalMoments(PHI, K, precision="mixed", **options)
    fresh.load_state_dict(m.state_dict())
    for twin in (loaded, fresh, m.copy(), copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert_same_state(twin, m)
        twin.update(XS, YS)
        assert m.n_samples == 20
        assert float(m.scatter.weight) == 20
    assert m.nbytes >= 8 * m.n_features**2


def test_a_state_of_other_moments_is_refused(tmp_path):
    m = ConditionalMoments(PHI, K).update(XS, YS)
    state = m.state_dict()
    with pytest.raises(ValueError, match="the state has n_classes=3, these moments 4"):
        ConditionalMoments(PHI, 4).load_state_dict(state)
    with pytest.raises(ValueError, match="the state has schema 7"):
        m.load_state_dict({**state, "schema": 7})
    with pytest.raises(ValueError, match="the state has no xx of shape"):
        m.load_state_dict({**state, "xx": torch.zeros(1, 1)})
    path = m.save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="the state has feature_map="):
        ConditionalMoments.load(path, bures.LinearMap.fit(XS))
    with pytest.raises(ValueError, match="holds conditional moments of bures; accepted is a feature map"):
        bures.NystroemMap.load(path)


@pytest.fixture
def streams(tmp_path):
    """The same 200 samples as .npy and as .parquet, hard and soft labels."""
    rng = np.random.default_rng(0)
    x, y, p = rng.normal(size=(200, 2)).astype(np.float32), rng.integers(K, size=200), rng.dirichlet(np.ones(K), 200)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    return tmp_path, x, y, p


@pytest.mark.parametrize("chunk", [7, 64, 1000])
def test_a_file_of_arrays_is_streamed(streams, chunk):
    folder, x, y, p = streams
    expected = moments(PHI, x, y)
    for labels in (folder / "y.npy", y, y.tolist(), torch.from_numpy(y)):
        m = ConditionalMoments(PHI, K).update_from(folder / "x.npy", labels, chunk=chunk)
        assert m.n_chunks == -(-200 // chunk)
        torch.testing.assert_close(m.scatter.xx, expected.scatter.xx, atol=1e-12, rtol=0)
    soft = ConditionalMoments(PHI, K, labels="soft").update_from(folder / "x.npy", p, chunk=chunk)
    torch.testing.assert_close(soft.scatter.yx, moments(PHI, x, p, labels="soft").scatter.yx, atol=1e-12, rtol=0)


@pytest.mark.parametrize("chunk", [7, 64, 1000])
def test_a_parquet_file_is_streamed(streams, chunk):
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    folder, x, y, p = streams
    table = pa.table({"a": x[:, 0], "class": y, "b": x[:, 1]})
    pq.write_table(table, folder / "hard.parquet", row_group_size=50)
    m = ConditionalMoments(PHI, K).update_from(folder / "hard.parquet", "class", chunk=chunk)
    torch.testing.assert_close(m.scatter.xx, moments(PHI, x, y).scatter.xx, atol=1e-12, rtol=0)
    table = pa.table({"p0": p[:, 0], "a": x[:, 0], "b": x[:, 1], "p1": p[:, 1], "p2": p[:, 2]})
    pq.write_table(table, folder / "soft.parquet")
    m = ConditionalMoments(PHI, K, labels="soft").update_from(folder / "soft.parquet", ["p0", "p1", "p2"], chunk=chunk)
    torch.testing.assert_close(m.scatter.yx, moments(PHI, x, p, labels="soft").scatter.yx, atol=1e-12, rtol=0)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_an_interrupted_stream_goes_on_where_it_stopped(streams, suffix, monkeypatch):
    folder, x, y, _ = streams
    path, labels = folder / "x.npy", y
    if suffix == ".parquet":
        pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        path, labels = folder / "x.parquet", "y"
        pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "y": y}), path, row_group_size=30)
    checkpoint = folder / "state.safetensors"
    whole = ConditionalMoments(PHI, K).update_from(path, labels, chunk=32)
    update = ConditionalMoments.update

    def interrupted(self, *chunk):
        if self.n_chunks == 3:
            raise KeyboardInterrupt
        return update(self, *chunk)

    with monkeypatch.context() as patch:
        patch.setattr(ConditionalMoments, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ConditionalMoments(PHI, K).update_from(path, labels, chunk=32, checkpoint=checkpoint)
    resumed = ConditionalMoments.load(checkpoint, PHI)
    assert 0 < resumed.n_samples < 200
    resumed.update_from(path, labels, chunk=32, checkpoint=checkpoint)
    assert resumed.n_samples == 200
    torch.testing.assert_close(resumed.scatter.xx, whole.scatter.xx, atol=1e-12, rtol=0)
    again = ConditionalMoments.load(checkpoint, PHI)
    assert_same_state(again, resumed)
    assert again.update_from(path, labels).n_samples == 200, "at the end there is nothing left"


def test_rows_of_a_second_file_are_never_left_out(streams):
    folder, x, y, _ = streams
    np.save(folder / "second.npy", x)
    np.save(folder / "short.npy", x[:50])
    m = ConditionalMoments(PHI, K).update_from(folder / "x.npy", y)
    assert m.update_from(folder / "x.npy", y).n_samples == 200, "of the same file nothing is left"
    begun = ConditionalMoments(PHI, K).update(x[:100], y[:100])
    merged = ConditionalMoments.load(m.save(folder / "m.safetensors"), PHI).merge(begun)
    for moments in (m, begun, merged):
        before = moments.n_samples
        with pytest.raises(ValueError, match=rf"hold {before} samples that are not of '.*second\.npy'.*merge"):
            moments.update_from(folder / "second.npy", y)
        assert moments.n_samples == before
    both = m + ConditionalMoments(PHI, K).update_from(folder / "second.npy", y)
    assert both.n_samples == 400
    loaded = ConditionalMoments.load(folder / "m.safetensors", PHI)
    with pytest.raises(ValueError, match=r"short\.npy has 50 rows, fewer than the 200 that were seen"):
        loaded.update_from(folder / "short.npy", y[:50])


def test_bad_files_are_named(streams):
    folder, _, y, _ = streams
    m = ConditionalMoments(PHI, K)
    (folder / "x.csv").write_text("a,b\n1,2\n")
    (folder / "noise.npy").write_bytes(b"noise")
    (folder / "noise.parquet").write_bytes(b"noise")
    for arguments, error, message in (
        ((folder / "none.npy", y), FileNotFoundError, "does not exist"),
        ((folder / "x.csv", y), ValueError, r"unknown format; accepted are files \.npy, \.parquet"),
        ((np.zeros((3, 2)), y), TypeError, r"x is a ndarray of .*; accepted is the path of a file: `update` takes"),
        ((folder / "x.npy", y[:-1]), ValueError, "has 200 rows but y has 199"),
        ((folder / "x.npy", "label"), FileNotFoundError, "y='label' is no .npy file"),
        ((folder / "noise.npy", y), ValueError, "cannot be read as .npy"),
    ):
        with pytest.raises(error, match=message):
            m.update_from(*arguments)
    with pytest.raises(ValueError, match="chunk=0 is out of range"):
        m.update_from(folder / "x.npy", y, chunk=0)
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=r"cannot be read as \.parquet"):
        m.update_from(folder / "noise.parquet", "y")


def test_bad_columns_are_named(streams):
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    folder, x, y, _ = streams
    pq.write_table(pa.table({"a": x[:, 0], "name": [str(i) for i in y], "y": y}), folder / "x.parquet")
    m = ConditionalMoments(PHI, K)
    with pytest.raises(ValueError, match=r"y names the column 'label', which is not in .*; it holds 'a', 'name', 'y'"):
        m.update_from(folder / "x.parquet")
    with pytest.raises(ValueError, match="column 'name' is not numeric"):
        m.update_from(folder / "x.parquet", "y")


def test_a_bad_row_in_a_file_is_found_by_its_place_in_the_stream(streams):
    folder, x, y, _ = streams
    x[150] = np.inf
    np.save(folder / "x.npy", x)
    m = ConditionalMoments(PHI, K)
    with pytest.raises(ValueError, match=r"chunk 3, rows 120 to 159 of the stream: .*\(first: row 30\)"):
        m.update_from(folder / "x.npy", y, chunk=40)
    assert m.n_samples == 120


@pytest.fixture
def tables():
    """A source and a target as data frames, the second with its columns in another order, and the map for both."""
    rng = np.random.default_rng(3)
    names = ["width", "length", "weight"]
    y = rng.integers(2, size=60)
    source = pd.DataFrame(rng.normal(size=(60, 3)) * [1, 2, 5] + y[:, None], columns=names)
    target = pd.DataFrame(rng.normal(size=(60, 3)) * [1, 2, 8] + y[:, None], columns=names)[names[::-1]]
    phi = bures.NystroemMap.fit(source.to_numpy(), target[names].to_numpy(), n_landmarks=120)
    exact = bures.ckb(source.to_numpy(), y, target[names].to_numpy(), y)
    return source, target, y, phi, exact


def test_tables_are_put_into_the_order_of_the_first(tables):
    source, target, y, phi, exact = tables
    s, t = ConditionalMoments(phi, 2).update(source, y), ConditionalMoments(phi, 2)
    t.update(target[list(source)][:10], y[:10]).update(target[10:], y[10:])
    assert s.ckb(t) == pytest.approx(exact, rel=1e-6)
    assert s.copy().columns == s.columns == tuple(source)


def test_tables_are_put_into_the_order_of_the_map(tables):
    source, target, y, _, exact = tables
    phi = bures.NystroemMap.fit(source, target, n_landmarks=120)
    s, t = ConditionalMoments(phi, 2).update(source, y), ConditionalMoments(phi, 2).update(target, y)
    assert t.columns == tuple(source)
    assert s.ckb(t) == pytest.approx(exact, rel=1e-6)
    with pytest.raises(ValueError, match=r"this one lacks the column 'width'.*the table the map was fitted on"):
        t.update(target.rename(columns={"width": "depth"}), y)
    other = ConditionalMoments(
        bures.NystroemMap.fit(source.to_numpy(), target[list(source)].to_numpy(), n_landmarks=120), 2
    )
    with pytest.raises(
        ValueError, match="the table of the map and that of the state have the same columns in different"
    ):
        t.load_state_dict(other.update(target, y).state_dict())


def test_tables_of_different_order_are_neither_compared_nor_merged(tables, tmp_path):
    pytest.importorskip("pyarrow")
    source, target, y, phi, exact = tables
    for name, table in (("source", source), ("target", target)):
        table.assign(label=y).to_parquet(tmp_path / f"{name}.parquet")
    s, t = (ConditionalMoments(phi, 2).update_from(tmp_path / f"{name}.parquet") for name in ("source", "target"))
    t = ConditionalMoments.load(t.save(tmp_path / "t.safetensors"), phi)
    message = "have the same columns in different order .column 0 is 'width' and 'weight'.*give the columns one order"
    for measure in (s.ckb, s.mmd, s.merge):
        with pytest.raises(ValueError, match=message):
            measure(t)
    named_otherwise = ConditionalMoments(phi, 2).update(source.rename(columns={"width": "depth"}), y)
    with pytest.raises(ValueError, match="that of the target moments lacks the column 'width'"):
        s.ckb(named_otherwise)
    with pytest.raises(ValueError, match="this one lacks the column 'width'"):
        s.update(source.rename(columns={"width": "depth"}), y)
    array = ConditionalMoments(phi, 2).update(target[list(source)].to_numpy(), y)  # has no names, and goes by position
    assert s.ckb(array) == pytest.approx(exact, rel=1e-6)
    assert (array + s).columns == tuple(source)


@pytest.mark.parametrize(
    "index",
    [None, pd.Index(np.random.default_rng(0).permutation(60)), pd.Index([f"p{i}" for i in range(60)], name="id")],
)
def test_the_index_of_a_table_is_no_feature(tables, tmp_path, index):
    pytest.importorskip("pyarrow")
    source, _, y, phi, _ = tables
    table = source.assign(label=y) if index is None else source.assign(label=y).set_index(index)
    table.to_parquet(tmp_path / "source.parquet")
    ((features, labels),) = read_chunks(tmp_path / "source.parquet")
    np.testing.assert_array_equal(features, source.to_numpy())
    np.testing.assert_array_equal(labels, y)
    assert ConditionalMoments(phi, 2).update_from(tmp_path / "source.parquet").columns == tuple(source)


@pytest.mark.parametrize("name", ["x.npy", "y.npy"])
def test_a_checkpoint_is_not_written_over_what_is_read(streams, name):
    folder, x, y, _ = streams
    m = ConditionalMoments(PHI, K)
    with pytest.raises(ValueError, match=f"checkpoint='.*{name}' is read by this stream"):
        m.update_from(folder / "x.npy", folder / "y.npy", checkpoint=folder / name)
    np.testing.assert_array_equal(np.load(folder / name), x if name == "x.npy" else y)
    with pytest.raises(FileNotFoundError, match="none is not a folder; make it first"):
        m.update_from(folder / "x.npy", folder / "y.npy", checkpoint=folder / "none" / "m.safetensors")
    assert m.n_samples == 0
