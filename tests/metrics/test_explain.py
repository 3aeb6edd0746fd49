"""Every figure of `bures.explain` computed a second time, from the reference or from the other public functions."""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
import reference
import torch

import bures
from bures.data import GaussianClasses
from bures.metrics._explain import _half_of_each
from bures.metrics._explanation import ROWS_SHOWN, ClassTerms, Explanation

QUICK = {"n_permutations": 0, "n_bootstrap": 0}
KINDS = ["hard", "soft", "continuous"]


def explain(p, **options):
    return bures.explain(*p.data, conditioning=p.conditioning, **{**QUICK, **options})


def close(value, expected, scale=1.0):
    return abs(value - expected) <= 1e-9 * scale


# ------------------------------------------------------------------------------------------- the terms


@pytest.mark.parametrize("bandwidth", ["shared", "per-block", "median", 1.7])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_terms_are_those_of_theorem_5_and_sum_to_ckb(draw_problem, kind, kernel, bandwidth):
    p = draw_problem(kind, n=14, m=12, seed=1)
    options = {"kernel": kernel, "bandwidth": bandwidth, "eps": 0.03}
    parts = explain(p, **options)
    k_ss, k_tt, k_ts = reference.gram_blocks(p.xs, p.xt, kernel, bandwidth)
    k_ys, k_yt = (reference.label_gram(rows) for rows in (p.rows_s, p.rows_t))
    trace_s, trace_t = (np.trace(reference.operator_matrix(x, y, 0.03)) for x, y in ((k_ss, k_ys), (k_tt, k_yt)))
    expected, scale = reference.theorem_5(k_ss, k_tt, k_ts, k_ys, k_yt, 0.03)
    assert close(parts.trace_s, trace_s, scale)
    assert close(parts.trace_t, trace_t, scale)
    assert close(parts.fidelity, (scale - expected) / 2, scale)
    assert parts.trace_s + parts.trace_t - 2 * parts.fidelity == pytest.approx(parts.squared_distance, rel=1e-12)
    value = bures.ckb(*p.data, conditioning=p.conditioning, **options)
    assert close(parts.squared_distance, value, scale)
    assert parts.distance == pytest.approx(math.sqrt(value), rel=1e-8)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_term_is_what_ckw_adds(draw_problem, kind, kernel):
    p = draw_problem(kind, n=14, m=12, seed=2)
    parts = explain(p, kernel=kernel)
    ckw = bures.ckw(*p.data, conditioning=p.conditioning, kernel=kernel)
    assert parts.ckw == pytest.approx(ckw, rel=1e-10)
    ckb = bures.ckb(*p.data, conditioning=p.conditioning, kernel=kernel)
    assert parts.mean_term == pytest.approx(ckw - ckb, rel=1e-8)


def test_per_block_bandwidths_have_no_mean_term(draw_problem):
    parts = explain(draw_problem(seed=2), bandwidth="per-block")
    assert math.isnan(parts.mean_term)
    assert all(math.isnan(c.mean_term) for c in parts.classes)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("kind", KINDS)
def test_bandwidths_and_eps_are_those_used(draw_problem, kind, kernel, weighted):
    p = draw_problem(kind, n=14, m=12, seed=3)
    rng = np.random.default_rng(0)
    ws, wt = (rng.uniform(0.2, 3, 14), rng.uniform(0.2, 3, 12)) if weighted else (None, None)
    weights = {"sample_weight_s": ws, "sample_weight_t": wt}
    parts = explain(p, kernel=kernel, label_kernel=kernel, eps=0.5, bandwidth="per-block", **weights)
    power = 1 if kernel == "gaussian" else 2  # the Laplacian kernel's width is sigma
    widths = reference.feature_widths(p.xs, p.xt, kernel, "per-block", ws, wt)
    label_widths = [reference.label_width(y, kernel, "mean", w) for y, w in ((p.rows_s, ws), (p.rows_t, wt))]
    np.testing.assert_allclose(parts.bandwidths, np.power(widths, power), rtol=1e-10)
    np.testing.assert_allclose(parts.label_bandwidths, np.power(label_widths, power), rtol=1e-10)
    assert parts.eps == 0.5
    assert (parts.n_source, parts.n_target) == (14, 12)


def test_kernels_without_bandwidth_report_none(draw_problem):
    parts = explain(draw_problem(), kernel="linear", label_kernel="linear")
    assert parts.bandwidths is None
    assert parts.label_bandwidths is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_effective_rank_comes_from_the_eigenvalues_of_r(draw_problem, kind, kernel, weighted):
    p = draw_problem(kind, n=14, m=12, seed=4)
    rng = np.random.default_rng(1)
    ws, wt = (rng.uniform(0.2, 3, 14), rng.uniform(0.2, 3, 12)) if weighted else (None, None)
    parts = explain(p, kernel=kernel, bandwidth=2.0, sample_weight_s=ws, sample_weight_t=wt)
    k_ss, k_tt, _ = reference.gram_blocks(p.xs, p.xt, kernel, 2.0)
    for value, gram, rows, w in (
        (parts.effective_rank_s, k_ss, p.rows_s, ws),
        (parts.effective_rank_t, k_tt, p.rows_t, wt),
    ):
        operator = reference.operator_matrix(gram, reference.label_gram(rows, w=w), parts.eps, w)
        assert value == pytest.approx(reference.effective_rank(operator), rel=1e-9)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_effective_rank_of_isotropic_noise_is_its_dimension(d):
    rng = np.random.default_rng(d)
    x = rng.normal(size=(60, d))
    x = (x - x.mean(0)) @ np.linalg.inv(np.linalg.cholesky(reference.covariance(x))).T
    y = np.zeros(60, int)
    assert bures.explain(x, y, x, y, kernel="linear", **QUICK).effective_rank_s == pytest.approx(d, rel=1e-9)


# ------------------------------------------------------------------------------------------- the classes


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_a_class_has_the_kernel_bures_distance_of_its_samples(draw_problem, kernel):
    p = draw_problem("hard", n=20, m=16, seed=5)
    parts = explain(p, kernel=kernel)
    bandwidth = "shared" if parts.bandwidths is None else parts.bandwidths[0]
    for c, terms in enumerate(parts.classes):
        expected = bures.kernel_bures(p.xs[p.ys == c], p.xt[p.yt == c], kernel=kernel, bandwidth=bandwidth)
        assert close(terms.kernel_bures, expected, parts.trace_s + parts.trace_t)
        assert (terms.name, terms.n_source, terms.n_target) == (c, np.sum(p.ys == c), np.sum(p.yt == c))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_soft_class_weights_samples_by_their_probability(draw_problem, weighted):
    p = draw_problem("soft", n=20, m=16, seed=6)
    rng = np.random.default_rng(2)
    ws, wt = (rng.uniform(0.2, 3, 20), rng.uniform(0.2, 3, 16)) if weighted else (np.ones(20), np.ones(16))
    parts = explain(p, bandwidth=2.0, sample_weight_s=ws, sample_weight_t=wt)
    for c, terms in enumerate(parts.classes):
        masses = ws * p.ys[:, c], wt * p.yt[:, c]
        expected, scale = reference.kernel_bures(p.xs, p.xt, bandwidth=2.0, ws=masses[0], wt=masses[1])
        assert close(terms.kernel_bures, expected, scale)
        assert terms.n_source == pytest.approx(p.ys[:, c].sum(), rel=1e-12)
        assert terms.n_target == pytest.approx(p.yt[:, c].sum(), rel=1e-12)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_class_mean_terms_are_distances_of_class_means_and_sum_to_the_mean_term(draw_problem, kind):
    p = draw_problem(kind, n=20, m=16, seed=7)
    parts = explain(p, bandwidth=2.0)
    grams = reference.gram_blocks(p.xs, p.xt, "gaussian", 2.0)
    weights, squares = reference.class_mean_terms(*grams, p.rows_s, p.rows_t)
    np.testing.assert_allclose([c.mean_term for c in parts.classes], squares, rtol=1e-10)
    assert parts.mean_term == pytest.approx(weights @ squares, rel=1e-10)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_change_without_a_class_is_ckb_without_it_at_the_same_bandwidths(draw_problem, kernel):
    p = draw_problem("hard", n=24, m=18, seed=8)
    parts = explain(p, kernel=kernel, label_bandwidth=0.9)
    bandwidth = "shared" if parts.bandwidths is None else parts.bandwidths[0]
    for c, terms in enumerate(parts.classes):
        i, j = p.ys != c, p.yt != c
        options = {"kernel": kernel, "bandwidth": bandwidth, "label_bandwidth": 0.9, "eps": parts.eps}
        without = bures.ckb(p.xs[i], p.ys[i], p.xt[j], p.yt[j], **options)
        assert close(terms.change_without, without - parts.squared_distance, parts.trace_s + parts.trace_t)


def test_change_without_a_class_keeps_the_adaptive_bandwidths_of_each_block_and_domain(draw_problem):
    p = draw_problem("hard", n=24, m=18, seed=9)
    parts = explain(p, bandwidth="per-block", label_bandwidth="mean", eps="auto")
    k_ss, k_tt, k_ts = reference.gram_blocks(p.xs, p.xt, "gaussian", "per-block")
    k_ys, k_yt = reference.label_gram(p.rows_s), reference.label_gram(p.rows_t)
    for c, terms in enumerate(parts.classes):
        i, j = np.flatnonzero(p.ys != c), np.flatnonzero(p.yt != c)
        grams = k_ss[np.ix_(i, i)], k_tt[np.ix_(j, j)], k_ts[np.ix_(j, i)], k_ys[np.ix_(i, i)], k_yt[np.ix_(j, j)]
        without, scale = reference.theorem_5(*grams, parts.eps)
        assert close(terms.change_without, without - parts.squared_distance, scale)


def test_change_without_a_soft_class_takes_its_share_out_of_every_sample(draw_problem):
    p = draw_problem("soft", n=20, m=16, seed=10)
    parts = explain(p, bandwidth=2.0, label_bandwidth=0.9)
    for c, terms in enumerate(parts.classes):
        rest = {"sample_weight_s": 1 - p.ys[:, c], "sample_weight_t": 1 - p.yt[:, c]}
        without = bures.ckb(*p.data, bandwidth=2.0, label_bandwidth=0.9, eps=parts.eps, **rest)
        assert close(terms.change_without, without - parts.squared_distance, parts.trace_s + parts.trace_t)


def test_a_class_missing_from_one_domain_is_named_and_has_no_distance(draw_problem):
    p = draw_problem("hard", n=20, m=16, seed=11)
    names = np.array(["ant", "bee", "cat"])
    yt = names[np.where(p.yt == 1, 2, p.yt)]
    parts = bures.explain(p.xs, names[p.ys], p.xt, yt, **QUICK)
    assert parts.missing_classes == ("bee",)
    assert [c.name for c in parts.classes] == ["ant", "bee", "cat"]
    bee = parts.classes[1]
    assert math.isnan(bee.kernel_bures)
    assert math.isnan(bee.mean_term)
    assert math.isfinite(bee.change_without)
    assert bee.n_target == 0
    with pytest.warns(bures.MissingClassWarning):
        assert parts.ckw == pytest.approx(bures.ckw(p.xs, names[p.ys], p.xt, yt), rel=1e-10)


def test_the_only_class_cannot_be_left_out():
    rng = np.random.default_rng(3)
    y = np.zeros(12, int)
    parts = bures.explain(rng.normal(size=(12, 2)), y, rng.normal(size=(12, 2)), y, **QUICK)
    assert math.isnan(parts.classes[0].change_without)
    assert math.isfinite(parts.classes[0].kernel_bures)


def test_the_class_that_shifts_has_the_largest_distance_and_matters_most():
    rng = np.random.default_rng(4)
    y = np.repeat([0, 1, 2], 30)
    xs, xt = rng.normal(size=(90, 2)), rng.normal(size=(90, 2)) * np.where(y == 1, 4.0, 1.0)[:, None]
    parts = bures.explain(xs, y, xt, y, **QUICK)
    assert max(parts.classes, key=lambda c: c.kernel_bures).name == 1
    assert min(parts.classes, key=lambda c: c.change_without).name == 1
    assert parts.classes[1].change_without < 0


def test_a_continuous_variable_has_no_classes_and_no_null_level(draw_problem):
    parts = explain(draw_problem("continuous", n=20, m=16), n_permutations=5, n_bootstrap=5)
    assert parts.classes == ()
    assert parts.missing_classes == ()
    assert parts.n_permutations == 0
    assert math.isnan(parts.null_mean)
    assert math.isfinite(parts.debiased)


# ------------------------------------------------------------------------------------------- the null level


def all_values_within_classes(p, bandwidth, label_bandwidth, eps):
    """The distance for every way of dealing the pooled samples of each class out to the two domains."""
    x = np.vstack([p.xs, p.xt])
    y = np.concatenate([p.ys, p.yt])
    n, values = len(p.xs), []
    choices = [itertools.combinations(np.flatnonzero(y == c), int(np.sum(p.ys == c))) for c in np.unique(y)]
    for chosen in itertools.product(*choices):
        source = np.concatenate([np.array(part, dtype=int) for part in chosen])
        target = np.setdiff1d(np.arange(len(y)), source)
        assert len(source) == n
        options = {"bandwidth": bandwidth, "label_bandwidth": label_bandwidth, "eps": eps}
        values.append(bures.ckb(x[source], y[source], x[target], y[target], **options))
    return np.array(values)


@pytest.mark.parametrize("bandwidth", [3.0, "shared", "per-block"])
def test_the_null_level_is_that_of_all_permutations_within_classes(draw_problem, bandwidth):
    p = draw_problem("hard", n=5, m=5, d=2, k=2, seed=12, shift=2.0)
    p = p._replace(xt=3 * p.xt)
    parts = explain(p, bandwidth=bandwidth, label_bandwidth=0.9, n_permutations=2000)
    exact = all_values_within_classes(p, bandwidth, 0.9, parts.eps)
    assert len(exact) >= 60
    error = exact.std() / math.sqrt(2000)
    assert abs(parts.null_mean - exact.mean()) < 4 * error
    assert np.quantile(exact, 0.92) <= parts.null_95 <= np.quantile(exact, 0.98)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_samples_of_weight_zero_are_not_in_the_null_level_of_per_block_bandwidths(draw_problem, kind):
    p = draw_problem(kind, n=12, m=10, d=2, k=2, seed=12)
    absent = p._replace(xs=np.vstack([p.xs, 50 * p.xs[:2]]), ys=np.concatenate([p.ys, p.ys[:2]]))
    options = {"bandwidth": "per-block", "n_permutations": 20, "n_bootstrap": 0}
    without = explain(p, sample_weight_s=np.ones(12), **options)
    beside = explain(absent, sample_weight_s=np.repeat([1.0, 0.0], [12, 2]), **options)
    assert beside.null_mean == pytest.approx(without.null_mean, rel=1e-9)


def test_the_null_level_does_not_depend_on_who_came_from_which_domain(draw_problem):
    """Exchanging samples of one class between the domains changes the value, not the null level."""
    p = draw_problem("hard", n=30, m=30, k=2, seed=13, shift=2.0)
    xs, xt = p.xs.copy(), p.xt.copy()
    for c in (0, 1):
        i, j = np.flatnonzero(p.ys == c), np.flatnonzero(p.yt == c)
        half = min(len(i), len(j)) // 2
        xs[i[:half]], xt[j[:half]] = p.xt[j[:half]], p.xs[i[:half]]
    options = {"bandwidth": 3.0, "n_permutations": 300}
    apart, mixed = explain(p, **options), explain(p._replace(xs=xs, xt=xt), **options)
    assert mixed.squared_distance < 0.8 * apart.squared_distance
    assert mixed.null_mean == pytest.approx(apart.null_mean, rel=0.05)
    assert mixed.null_95 == pytest.approx(apart.null_95, rel=0.1)


@pytest.mark.parametrize("kind", ["hard", "soft", ("hard", "soft")], ids=str)
def test_resampling_is_reproducible_by_its_seed(draw_problem, kind):
    p = draw_problem(kind, n=20, m=16, seed=14)
    options = {"n_permutations": 10, "n_bootstrap": 10}
    first, again, other = (explain(p, **options, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first.null_mean != other.null_mean
    assert first.debiased != other.debiased
    assert first.squared_distance == other.squared_distance
    assert first.null_mean <= first.null_95


def test_one_hot_rows_have_the_null_level_of_their_classes(draw_problem):
    p = draw_problem("hard", n=20, m=16, seed=15)
    options = {"n_permutations": 20, "n_bootstrap": 0}
    hard = explain(p, **options)
    soft = bures.explain(p.xs, p.rows_s, p.xt, p.rows_t, **options)
    assert soft.null_mean == pytest.approx(hard.null_mean, rel=1e-9)
    assert soft.null_95 == pytest.approx(hard.null_95, rel=1e-9)


@pytest.mark.parametrize(("drift", "low", "high"), [(0.0, 0, 3), (2.0, 10, 10)])
def test_the_value_lies_within_the_null_without_shift_and_above_it_with_one(drift, low, high):
    above = 0
    for seed in range(10):
        pair = bures.data.drifting_class(60, drift=drift, seed=seed)
        parts = bures.explain(*pair, n_permutations=60, n_bootstrap=0)
        above += parts.squared_distance > parts.null_95
    assert low <= above <= high


@pytest.mark.slow
def test_the_null_level_has_its_nominal_size():
    """Without a shift 5 % of all samples lie above the 95 % point."""
    above = 0
    for seed in range(300):
        parts = bures.explain(*bures.data.drifting_class(40, drift=0.0, seed=seed), n_permutations=99, n_bootstrap=0)
        above += parts.squared_distance > parts.null_95
    assert 4 <= above <= 28  # binomial(300, 0.05) lies there with probability 0.999


# ------------------------------------------------------------------------------------------- the debiased value


SOURCE = GaussianClasses([0.5, 0.5], [[0.0, 0.0], [3.0, 0.0]], [np.eye(2), np.diag([1.0, 2.0])])
TARGET = GaussianClasses([0.5, 0.5], [[1.0, 1.0], [0.0, 2.0]], [np.diag([3.0, 1.0]), 2 * np.eye(2)])


@pytest.mark.parametrize("target", [SOURCE, TARGET], ids=["no shift", "shift"])
def test_the_debiased_value_is_nearer_to_the_population_than_the_raw_one(target):
    population = SOURCE.ckb(target, 1e-2)
    raw, debiased = [], []
    for seed in range(40):
        sample = *SOURCE.sample(40, seed), *target.sample(40, seed + 1000)
        parts = bures.explain(*sample, kernel="linear", n_permutations=0, n_bootstrap=40, seed=seed)
        raw.append(parts.squared_distance)
        debiased.append(parts.debiased)
    assert np.mean(raw) > population
    assert abs(np.mean(debiased) - population) < 0.6 * abs(np.mean(raw) - population)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_the_interval_contains_the_debiased_value(draw_problem, kind, seed):
    parts = explain(draw_problem(kind, n=24, m=20, seed=seed), n_bootstrap=30)
    low, high = parts.interval
    assert low < parts.debiased < high
    assert parts.n_bootstrap == 30


def test_the_debiased_value_is_twice_the_value_less_the_mean_over_all_half_samples(draw_problem):
    """Half samples enumerated: with four samples of a single class there are 6 x 6 of them."""
    p = draw_problem("hard", n=4, m=4, d=2, k=1, seed=16)
    parts = explain(p, bandwidth=3.0, n_bootstrap=1500)
    halves = [
        bures.ckb(p.xs[list(i)], p.ys[list(i)], p.xt[list(j)], p.yt[list(j)], bandwidth=3.0)
        for i in itertools.combinations(range(4), 2)
        for j in itertools.combinations(range(4), 2)
    ]
    expected = 2 * parts.squared_distance - np.mean(halves)
    assert abs(parts.debiased - expected) < 4 * np.std(halves) / math.sqrt(1500)


@pytest.mark.slow
def test_the_interval_covers_the_population_value_about_as_often_as_it_says():
    population = SOURCE.ckb(TARGET, 1e-2)
    covered = 0
    for seed in range(150):
        sample = *SOURCE.sample(80, seed), *TARGET.sample(80, seed + 1000)
        low, high = bures.explain(*sample, kernel="linear", n_permutations=0, n_bootstrap=60, seed=seed).interval
        covered += low <= population <= high
    assert covered >= 0.85 * 150


# ------------------------------------------------------------------------------------------- the object


def test_without_resampling_these_figures_are_nan_and_not_shown(draw_problem):
    p = draw_problem(n=20, m=16)
    bare, full = explain(p), explain(p, n_permutations=5, n_bootstrap=5)
    for name in ("null_mean", "null_95", "debiased"):
        assert math.isnan(getattr(bare, name))
        assert math.isfinite(getattr(full, name))
    assert all(math.isnan(end) for end in bare.interval)
    assert (bare.n_permutations, bare.n_bootstrap) == (0, 0)
    assert bare.squared_distance == full.squared_distance
    for word in ("null level", "debiased"):
        assert word in repr(full)
        assert word not in repr(bare)
        assert word not in bare._repr_html_()


@pytest.mark.parametrize("name", ["n_permutations", "n_bootstrap"])
@pytest.mark.parametrize("value", [-1, 2.5, True, "many"])
def test_counts_are_whole_numbers(draw_problem, name, value):
    assert getattr(bures.explain(*draw_problem().data, **{name: np.int64(3)}), name) == 3
    with pytest.raises(ValueError if value == -1 else TypeError, match=name):
        bures.explain(*draw_problem().data, **{name: value})


def test_repr_shows_the_numbers_and_the_classes(draw_problem):
    p = draw_problem("hard", n=20, m=16, seed=17)
    names = np.array(["ant", "bee", "cat"])
    parts = bures.explain(p.xs, names[p.ys], p.xt, names[p.yt], n_permutations=5, n_bootstrap=5)
    for text in (repr(parts), parts._repr_html_()):
        assert f"{parts.squared_distance:.4g}" in text
        assert f"{parts.null_95:.4g}" in text
        assert f"{parts.debiased:.4g}" in text
        for c in parts.classes:
            assert str(c.name) in text
            assert f"{c.kernel_bures:.4g}" in text


def test_html_escapes_class_names(draw_problem):
    p = draw_problem("hard", n=20, m=16, seed=18)
    names = np.array(["<script>alert(1)</script>", "a & b", 'say "hi"'])
    parts = bures.explain(p.xs, names[p.ys], p.xt, names[np.where(p.yt == 0, 1, p.yt)], **QUICK)
    html = parts._repr_html_()
    assert parts.missing_classes == ("<script>alert(1)</script>",)
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2  # among the missing, and in the table
    assert "a &amp; b" in html


def test_repr_of_many_classes_is_cut_and_says_so():
    rng = np.random.default_rng(5)
    y = np.repeat(np.arange(30), 3)
    parts = bures.explain(rng.normal(size=(90, 2)), y, rng.normal(size=(90, 2)), y, **QUICK)
    assert len(parts.classes) == 30
    assert "and 18 more classes" in repr(parts)
    assert len(repr(parts).splitlines()) < 40


def test_an_explanation_is_frozen(draw_problem):
    parts = explain(draw_problem(n=20, m=16))
    with pytest.raises(dataclasses.FrozenInstanceError):
        parts.squared_distance = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        parts.classes[0].kernel_bures = 0.0


def test_tensors_are_explained_in_python_numbers(draw_problem):
    p = draw_problem(n=20, m=16, seed=19)
    xs, xt = (torch.tensor(x, requires_grad=True) for x in (p.xs, p.xt))
    options = {"n_permutations": 5, "n_bootstrap": 5}
    parts = bures.explain(xs, torch.as_tensor(p.ys), xt, torch.as_tensor(p.yt), **options)
    expected = explain(p, **options)
    assert type(parts.squared_distance) is float
    assert type(parts.classes[0].kernel_bures) is float
    assert parts.squared_distance == pytest.approx(expected.squared_distance, rel=1e-12)
    assert parts.null_mean == pytest.approx(expected.null_mean, rel=1e-10)


# ------------------------------------------------------------------------------------------- what is printed

BY_HAND = Explanation(
    squared_distance=4.0,
    trace_s=3.0,
    trace_t=2.0,
    fidelity=0.5,
    mean_term=1.5,
    bandwidths=(2.0, 2.0, 2.0),
    label_bandwidths=(0.25, 0.5),
    eps=0.01,
    effective_rank_s=1.25,
    effective_rank_t=2.0,
    n_source=5,
    n_target=40,
    classes=(
        ClassTerms("a", 2.0, 20.0, 0.5, 0.25, 1.0),
        ClassTerms("gone", 3.0, 0.0, math.nan, math.nan, math.nan),
        ClassTerms("b", 0.0, 0.0, 2.0, 0.125, -1.0),
    ),
    debiased=3.5,
    interval=(3.0, 4.5),
    null_mean=1.0,
    null_95=4.0,
    n_permutations=99,
    n_bootstrap=50,
)


def test_what_is_printed_of_an_explanation():
    assert repr(BY_HAND) == (
        "Conditional Kernel Bures\n"
        "  squared distance    4   (distance 2)\n"
        "    trace, source     3   (effective rank 1.2)\n"
        "    trace, target     2   (effective rank 2.0)\n"
        "    - 2 x fidelity    -1\n"
        "  null level          1 mean, 4 at 95 %   (within; 99 permutations within classes)\n"
        "  debiased            3.5   (95 % interval 3 to 4.5)\n"
        "  conditional means   1.5   (CKW 5.5)\n"
        "  samples             5 source, 40 target\n"
        "  bandwidth           2\n"
        "  label bandwidth     0.25, 0.5\n"
        "  eps                 0.01\n"
        "  in one domain only  gone\n"
        "\n"
        "  class  source  target  kernel Bures  means  change without\n"
        "  b           0       0             2  0.125              -1\n"
        "  a           2      20           0.5   0.25              +1\n"
        "  gone        3       0             -      -               -"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"null_95": 3.9}, "null level          1 mean, 3.9 at 95 %   (above; 99 permutations within classes)"),
        ({"bandwidths": (2.0, 2.0, 3.0)}, "bandwidth           2, 2, 3"),
        ({"method_error": 0.001}, "approximation       within 0.001 of the exact squared distance"),
    ],
    ids=["above", "three bandwidths", "approximation"],
)
def test_a_line_of_an_explanation(change, line):
    assert f"  {line}" in repr(dataclasses.replace(BY_HAND, **change)).splitlines()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n_permutations": 0}, "null level"),
        ({"null_mean": math.nan}, "null level"),
        ({"n_bootstrap": 0}, "debiased"),
        ({"mean_term": math.nan}, "conditional means"),
        ({"bandwidths": None, "label_bandwidths": None}, "bandwidth"),
        ({"classes": ()}, "kernel Bures "),
    ],
    ids=str,
)
def test_what_is_unknown_is_not_printed(change, word):
    assert word in repr(BY_HAND)
    changed = dataclasses.replace(BY_HAND, **change)
    assert word not in repr(changed)
    assert word not in changed._repr_html_()


def test_the_page_of_an_explanation_has_the_same_words():
    html = BY_HAND._repr_html_()
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    cells = [re.findall(r"<t[hd] style='([^']*)'>(.*?)</t[hd]>", row) for row in rows]
    assert [row[0][1] for row in cells[:4]] == ["squared distance", "trace, source", "trace, target", "- 2 x fidelity"]
    assert cells[-4] == [
        ("text-align:left", "class"),
        *(("text-align:right;padding-left:1em", name) for name in
          ("source", "target", "kernel Bures", "means", "change without")),
    ]  # fmt: skip
    assert [cell for _, cell in cells[-1]] == ["gone", "3", "0", "-", "-", "-"]
    assert html.count("<table") == html.count("</table>") == 2


def test_an_explanation_is_exact_unless_it_says_otherwise():
    told = {field.name: getattr(BY_HAND, field.name) for field in dataclasses.fields(BY_HAND)}
    del told["method_error"]
    exact = Explanation(**told)
    assert exact.method_error == 0
    assert "approximation" not in repr(exact)


@pytest.mark.parametrize("more", [0, 1])
def test_classes_beyond_those_shown_are_counted(more):
    classes = tuple(ClassTerms(i, 1.0, 1.0, 1.0, 1.0, 1.0) for i in range(ROWS_SHOWN + more))
    assert ("... and 1 more classes" in repr(dataclasses.replace(BY_HAND, classes=classes))) == bool(more)
    assert ("more classes" in repr(dataclasses.replace(BY_HAND, classes=classes))) == bool(more)


def test_a_hundred_resamples_stand_behind_the_figures_unless_asked_otherwise():
    y = np.arange(8) % 2
    parts = bures.explain(
        np.random.default_rng(0).normal(size=(8, 2)), y, np.random.default_rng(1).normal(size=(8, 2)), y
    )
    assert parts.n_permutations == parts.n_bootstrap == 100


def test_the_seed_is_zero_unless_given():
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    found = [bures.explain(x, y, x + 1, y, n_permutations=5, n_bootstrap=5, **given) for given in ({}, {"seed": 0})]
    assert (found[0].null_mean, found[0].interval) == (found[1].null_mean, found[1].interval)


def test_what_an_approximate_method_may_be_off_is_told():
    x, y = np.random.default_rng(0).normal(size=(120, 200)), np.arange(120) % 2
    options = {"n_permutations": 0, "n_bootstrap": 0}
    exact, quick = (bures.explain(x, y, x + 1, y, method=method, **options) for method in ("svd", "low-rank"))
    assert exact.method_error == 0
    assert 0 < abs(quick.squared_distance - exact.squared_distance) <= quick.method_error


@pytest.mark.parametrize("seed", [-1, 1.5, "one", None, True], ids=repr)
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    y = np.arange(8) % 2
    with pytest.raises(ValueError, match=r"seed="):
        bures.explain(np.eye(8), y, 2 * np.eye(8), y, seed=seed)


def test_the_interval_is_two_standard_deviations_of_half_samples_wide_and_needs_two_of_them():
    """One class of four samples on each side: 36 pairs of halves, all of which can be computed."""
    rng = np.random.default_rng(3)
    xs, xt, y = rng.normal(size=(4, 2)), 2 * rng.normal(size=(4, 2)), np.zeros(4, dtype=int)
    options = {"bandwidth": 2.0, "label_bandwidth": 1.0, "eps": 0.1}
    pairs = itertools.product(itertools.combinations(range(4), 2), repeat=2)
    halves = [bures.ckb(xs[list(s)], y[:2], xt[list(t)], y[:2], **options) for s, t in pairs]
    low, high = bures.explain(xs, y, xt, y, n_permutations=0, n_bootstrap=1500, **options).interval
    assert (high - low) / 2 == pytest.approx(1.96 * np.std(halves), rel=0.1)
    for count, known in ((1, False), (2, True)):
        interval = bures.explain(xs, y, xt, y, n_permutations=0, n_bootstrap=count, **options).interval
        assert np.isfinite(interval).all() == known


def test_the_null_level_of_soft_labels_moves_them_with_their_samples():
    rng = np.random.default_rng(4)
    x, p = rng.normal(size=(5, 2)) * np.linspace(0.3, 3, 5)[:, None], rng.dirichlet((8, 1), size=5)
    assert (p.argmax(axis=1) == 0).all()  # one class for the permutations
    options = {"bandwidth": 2.0, "label_bandwidth": 0.1, "eps": 0.05}
    null = [
        bures.ckb(x[list(s)], p[list(s)], x[list(t)], p[list(t)], **options)
        for s in itertools.combinations(range(5), 3)
        for t in [sorted(set(range(5)) - set(s))]
    ]
    parts = bures.explain(x[:3], p[:3], x[3:], p[3:], n_permutations=1500, n_bootstrap=0, **options)
    assert abs(parts.null_mean - np.mean(null)) < 4 * np.std(null) / math.sqrt(1500)
    assert parts.null_95 == pytest.approx(max(null), rel=1e-6)


def test_features_that_do_not_vary_have_no_effective_rank():
    y = np.arange(6) % 2
    parts = bures.explain(np.ones((6, 2)), y, np.random.default_rng(0).normal(size=(6, 2)), y, bandwidth=1.0, **QUICK)
    assert parts.effective_rank_s == 0 < parts.effective_rank_t


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("side", ["s", "t"])
def test_samples_of_weight_zero_are_in_no_resample(draw_problem, kind, side):
    p = draw_problem(kind, n=20, m=16, seed=7)
    data = {"xs": p.xs, "ys": p.ys, "xt": p.xt, "yt": p.yt}
    x, y = data[f"x{side}"], data[f"y{side}"]
    more = {
        f"x{side}": np.concatenate([x, x[:12] + 9]),
        f"y{side}": np.concatenate([y, y[:12]]),
        f"sample_weight_{side}": np.repeat([1.0, 0.0], [len(x), 12]),
    }
    with_them, without = bures.explain(**{**data, **more}), bures.explain(**data)
    for name in ("squared_distance", "null_mean", "null_95", "debiased", "interval"):
        assert getattr(with_them, name) == pytest.approx(getattr(without, name), rel=1e-9), name


def test_few_samples_of_positive_weight_are_resampled(draw_problem):
    p = draw_problem("hard", n=20, m=16)
    w = np.zeros(20)
    w[[0, 5]] = 1
    parts = bures.explain(p.xs, p.ys, p.xt, p.yt, sample_weight_s=w)
    assert np.isfinite([parts.null_mean, parts.debiased, *parts.interval]).all()


def test_half_of_a_class_is_rounded_up():
    half = _half_of_each(torch.tensor([0, 1, 0, 0, 2, 2]), torch.Generator().manual_seed(0))
    strata = torch.tensor([0, 1, 0, 0, 2, 2])[half]
    assert torch.bincount(strata).tolist() == [2, 1, 1]
    assert len(set(half.tolist())) == 4


@pytest.mark.filterwarnings("ignore::bures.MissingClassWarning")
def test_a_class_of_one_domain_only_has_no_distance_and_an_only_class_cannot_be_left_out():
    rng = np.random.default_rng(0)
    one, two = np.zeros(6, dtype=int), np.arange(6) % 2
    for ys, yt in ((one, two), (two, one)):
        only, missing = bures.explain(rng.normal(size=(6, 2)), ys, rng.normal(size=(6, 2)), yt, **QUICK).classes
        assert math.isnan(missing.kernel_bures)
        assert math.isnan(missing.mean_term)
        assert math.isnan(only.change_without)
        assert math.isfinite(only.kernel_bures)
        assert math.isfinite(missing.change_without)
