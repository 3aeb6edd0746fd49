"""Weights are repetitions, priors undo label shift, and eps="auto" keeps one share of the between-class variance."""

import numpy as np
import pytest
import reference
import torch

import bures
from bures.data import GaussianClasses

FIXED = {"bandwidth": 2.0, "label_bandwidth": 0.9}
ADAPTIVE = [
    {"bandwidth": "shared", "label_bandwidth": "mean"},
    {"bandwidth": "per-block", "label_bandwidth": "mean"},
    {"bandwidth": "median", "label_bandwidth": "median"},
]
KINDS = ["hard", "soft", "continuous"]


def rule_name(options):
    return "-".join(map(str, options.values()))


def weighted_call(metric, p, ws, wt, **options):
    weights = {"sample_weight_s": ws, "sample_weight_t": wt}
    if metric in ("ckb", "ckw"):
        return getattr(bures, metric)(*p.data, conditioning=p.conditioning, **weights, **options)
    if metric == "bures":
        return bures.bures(p.xs, p.xt, **weights)
    options = {key: value for key, value in options.items() if key != "label_bandwidth"}
    return getattr(bures, metric)(p.xs, p.xt, **weights, **options)


def repeat(p, counts_s, counts_t):
    """The problem with sample i taken counts[i] times."""
    i, j = np.repeat(np.arange(len(p.xs)), counts_s), np.repeat(np.arange(len(p.xt)), counts_t)
    return p._replace(xs=p.xs[i], ys=p.ys[i], xt=p.xt[j], yt=p.yt[j], rows_s=p.rows_s[i], rows_t=p.rows_t[j])


CASES = [(metric, kind) for metric in ("ckb", "ckw") for kind in KINDS] + [
    (metric, "hard") for metric in ("kernel_bures", "bures", "mmd")
]


@pytest.mark.parametrize("options", [FIXED, *ADAPTIVE], ids=rule_name)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_weights_are_no_weights_for_every_rule(draw_problem, kind, options):
    p = draw_problem(kind, seed=1)
    value = weighted_call("ckb", p, np.full(11, 7.0), np.full(9, 0.01), **options)
    assert value == pytest.approx(weighted_call("ckb", p, None, None, **options), rel=1e-12)


@pytest.mark.parametrize(("metric", "kind"), CASES)
def test_equal_weights_are_no_weights(draw_problem, metric, kind):
    p = draw_problem(kind, seed=2)
    value = weighted_call(metric, p, np.full(11, 7.0), np.full(9, 0.01))
    assert value == pytest.approx(weighted_call(metric, p, None, None), rel=1e-11)


@pytest.mark.parametrize("options", [FIXED, *ADAPTIVE], ids=rule_name)
def test_only_the_ratios_of_weights_matter(draw_problem, options):
    p = draw_problem(seed=3)
    rng = np.random.default_rng(0)
    ws, wt = rng.uniform(0.2, 3, 11), rng.uniform(0.2, 3, 9)
    value = weighted_call("ckb", p, 1e6 * ws, 1e-6 * wt, **options)
    assert value == pytest.approx(weighted_call("ckb", p, ws, wt, **options), rel=1e-12)


# Each domain doubles in size. Weights say nothing about the number of samples (only their ratios matter), so what pools
# the domains (the shared bandwidth, the pooled y of ckw) agrees when both grow in proportion.
COUNTS_S, COUNTS_T = np.array([1, 3, 2, 2, 1, 3] * 2), np.array([4, 1, 1, 2] * 2)


@pytest.mark.parametrize(("metric", "kind"), CASES)
def test_integer_weights_are_repeated_samples(draw_problem, metric, kind):
    p = draw_problem(kind, n=12, m=8, seed=4)
    value = weighted_call(metric, p, COUNTS_S, COUNTS_T, **FIXED)
    repeated = weighted_call(metric, repeat(p, COUNTS_S, COUNTS_T), None, None, **FIXED)
    assert value == pytest.approx(repeated, rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_integer_weights_are_repeated_samples_in_any_number_where_nothing_is_pooled(draw_problem, kind):
    p = draw_problem(kind, n=12, m=8, seed=4)
    counts = np.array([5, 1, 3, 4] * 2)
    value = weighted_call("ckb", p, COUNTS_S, counts, **FIXED)
    assert value == pytest.approx(weighted_call("ckb", repeat(p, COUNTS_S, counts), None, None, **FIXED), rel=1e-10)


@pytest.mark.parametrize("bandwidth", ["shared", "per-block"])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("kind", KINDS)
def test_integer_weights_are_repeated_samples_for_the_mean_rules(draw_problem, kind, kernel, bandwidth):
    p = draw_problem(kind, n=12, m=8, seed=5)
    options = {"kernel": kernel, "bandwidth": bandwidth, "label_bandwidth": "mean"}
    value = weighted_call("ckb", p, COUNTS_S, COUNTS_T, **options)
    repeated = weighted_call("ckb", repeat(p, COUNTS_S, COUNTS_T), None, None, **options)
    assert value == pytest.approx(repeated, rel=1e-10)


@pytest.mark.parametrize(("metric", "kind"), CASES)
def test_weight_zero_removes_a_sample(draw_problem, metric, kind):
    p = draw_problem(kind, n=12, m=10, k=2, seed=6)
    ws, wt = np.array([0, 1, 1, 1, 0, 1] * 2), np.array([1, 1, 1, 0, 1] * 2)
    value = weighted_call(metric, p, ws, wt, **FIXED)
    assert value == pytest.approx(weighted_call(metric, repeat(p, ws, wt), None, None, **FIXED), rel=1e-10)


@pytest.mark.parametrize("options", ADAPTIVE, ids=rule_name)
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("kind", KINDS)
def test_weight_zero_removes_a_sample_from_the_bandwidth_too(draw_problem, kind, kernel, options):
    p = draw_problem(kind, n=12, m=10, seed=7)
    ws, wt = np.array([0, 1, 1, 1, 0, 1] * 2), np.array([1, 1, 1, 0, 1] * 2)
    value = weighted_call("ckb", p, ws, wt, kernel=kernel, **options)
    expected = weighted_call("ckb", repeat(p, ws, wt), None, None, kernel=kernel, **options)
    assert value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_a_sample_of_weight_zero_may_be_large(draw_problem, kernel):
    p = draw_problem("hard", n=12, m=10, seed=7)
    large, ys = np.concatenate([p.xs, np.full((3, p.xs.shape[1]), -99999.0)]), np.concatenate([p.ys, p.ys[:3]])
    arrays = [torch.from_numpy(part) for part in (large, ys, p.xt, p.yt)]
    xs, ys, xt, yt = (part.float() if part.is_floating_point() else part for part in arrays)
    w = torch.tensor([1.0] * 12 + [0.0] * 3)
    calls = {
        "ckb": lambda x, y, w: bures.ckb(x, y, xt, yt, kernel=kernel, sample_weight_s=w),
        "mmd": lambda x, _, w: bures.mmd(x, xt, kernel=kernel, sample_weight_s=w),
        "kernel_bures": lambda x, _, w: bures.kernel_bures(x, xt, kernel=kernel, sample_weight_s=w),
        "bures": lambda x, _, w: bures.bures(x, xt, sample_weight_s=w),
    }
    for name, call in calls.items():
        torch.testing.assert_close(call(xs, ys, w), call(xs[:12], ys[:12], None), rtol=1e-4, atol=1e-5, msg=name)


def confident(gap, n=20):
    """Two domains; the target's predictions differ by ``gap``, but for some of another class behind them."""
    rng = np.random.default_rng(0)
    rest = gap * rng.random((n, 1))
    p_t = np.concatenate([np.hstack([1 - rest, rest]), np.tile([0.0, 1.0], (4, 1))])
    return rng.normal(size=(n, 3)), np.arange(n) % 2, rng.normal(size=(n + 4, 3)), p_t


@pytest.mark.parametrize("metric", ["ckb", "ckw"])
@pytest.mark.parametrize("weight", [0.0, 1e-30])
@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-10])
def test_predictions_that_hardly_count_do_not_drown_the_differences_of_others(metric, weight, gap):
    xs, ys, xt, p_t = confident(gap)
    weights = np.append(np.ones(20), np.full(4, weight))
    # One bandwidth for all, for the rule counts the samples of any weight.
    found = getattr(bures, metric)(xs, ys, xt, p_t, sample_weight_t=weights, bandwidth=2.0)
    expected, _ = getattr(reference, metric)(xs, np.eye(2)[ys], xt[:20], p_t[:20], bandwidth=2.0)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rule", ["median", "number"])
@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-10])
def test_a_narrow_label_bandwidth_tells_confident_predictions_apart(rule, gap):
    xs, ys, xt, p_t = confident(gap)
    options = {"label_bandwidth": "median" if rule == "median" else gap**2}
    found = bures.ckb(xs, ys, xt, p_t, **options)
    assert found == pytest.approx(reference.ckb(xs, np.eye(2)[ys], xt, p_t, **options)[0], rel=1e-9)


def test_weight_zero_removes_a_sample_from_the_unbiased_mmd(draw_problem):
    p = draw_problem(n=12, m=10, seed=8)
    ws, wt = np.array([0, 1, 1, 1, 0, 1] * 2), np.array([1, 1, 1, 0, 1] * 2)
    kept = repeat(p, ws, wt)
    value = bures.mmd(p.xs, p.xt, unbiased=True, bandwidth=2.0, sample_weight_s=ws, sample_weight_t=wt)
    assert value == pytest.approx(bures.mmd(kept.xs, kept.xt, unbiased=True, bandwidth=2.0), rel=1e-10)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(11, -1.0), "negative weight"),
        (np.zeros(11), "zero for every sample"),
        (np.ones(10), r"shape \(10,\)"),
        (np.full(11, np.nan), "NaN"),
    ],
)
def test_weights_that_are_no_weights_are_refused(draw_problem, weights, message):
    with pytest.raises(ValueError, match=f"sample_weight_s.*{message}"):
        bures.ckb(*draw_problem().data, sample_weight_s=weights)


# ------------------------------------------------------------------------------------------- priors


def prior_weights(rows, prior, w):
    """Weights by hand: every sample by the mean of prior / frequency under its class probabilities."""
    frequency = sum(w_i * row for w_i, row in zip(w, rows, strict=True)) / w.sum()
    ratio = np.array([p / f if p > 0 else 0.0 for p, f in zip(prior, frequency, strict=True)])
    return np.array([w_i * sum(row * ratio) for w_i, row in zip(w, rows, strict=True)])


def resolve(prior, p, ws, wt):
    if isinstance(prior, str):
        by_name = {"source": (p.rows_s, ws), "target": (p.rows_t, wt)}
        if prior == "uniform":
            return np.full(p.rows_s.shape[1], 1 / p.rows_s.shape[1])
        rows, w = by_name[prior]
        return w @ rows / w.sum()
    return np.asarray(prior)


PRIORS = ["source", "target", "uniform", [0.2, 0.5, 0.3], [0.0, 0.4, 0.6]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize("kind", ["hard", "soft", ("hard", "soft")], ids=str)
@pytest.mark.parametrize("metric", ["ckb", "ckw"])
def test_a_prior_weights_samples_by_prior_over_frequency(draw_problem, metric, kind, prior, weighted):
    """And in ckw the prior itself takes the place of the class frequencies."""
    p = draw_problem(kind, n=14, m=12, seed=9)
    rng = np.random.default_rng(2)
    ws, wt = (rng.uniform(0.2, 3, 14), rng.uniform(0.2, 3, 12)) if weighted else (np.ones(14), np.ones(12))
    wanted = resolve(prior, p, ws, wt)
    by_hand = {"ws": prior_weights(p.rows_s, wanted, ws), "wt": prior_weights(p.rows_t, wanted, wt)}
    expected, scale = reference.ckb(*p.rows, **by_hand, bandwidth=2.0)
    if metric == "ckw":
        grams = reference.gram_blocks(p.xs, p.xt, "gaussian", 2.0)
        weights, squares = reference.class_mean_terms(*grams, p.rows_s, p.rows_t, priors=wanted, **by_hand)
        expected += np.nansum(weights * squares)
    value = weighted_call(metric, p, ws if weighted else None, wt if weighted else None, prior=prior, bandwidth=2.0)
    assert abs(value - expected) <= 1e-9 * scale


def test_a_prior_given_as_a_tensor_serves_tensors(draw_problem):
    p = draw_problem(seed=10)
    prior = [0.2, 0.5, 0.3]
    value = bures.ckb(*(torch.as_tensor(array) for array in p.data), prior=torch.tensor(prior))
    assert value.item() == pytest.approx(bures.ckb(*p.data, prior=prior), rel=1e-6)


def test_equal_class_frequencies_make_the_prior_idle():
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 6)
    data = rng.normal(size=(18, 2)), y, 2 * rng.normal(size=(18, 2)), y
    for prior in ("source", "target", "uniform"):
        assert bures.ckb(*data, prior=prior) == pytest.approx(bures.ckb(*data), rel=1e-11)


@pytest.mark.parametrize("prior", ["uniform", "source", [0.5, 0.5, 0.0]], ids=str)
def test_a_prior_needs_support_in_both_domains(draw_problem, prior):
    p = draw_problem(n=12, m=9, seed=11)
    yt = np.where(p.yt == 0, 1, p.yt)
    with pytest.raises(ValueError, match=r"prior gives class 0 the frequency .* but the target has no sample of it"):
        bures.ckb(p.xs, p.ys, p.xt, yt, prior=prior)


def test_a_class_without_prior_needs_no_support(draw_problem):
    p = draw_problem(n=12, m=9, seed=11)
    yt = np.where(p.yt == 0, 1, p.yt)
    kept = p.ys != 0
    value = bures.ckb(p.xs, p.ys, p.xt, yt, prior=[0.0, 0.4, 0.6], **FIXED)
    expected = bures.ckb(p.xs[kept], p.ys[kept], p.xt, yt, prior=[0.4, 0.6], **FIXED)
    assert value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("balanced", "prior='balanced' is unknown"),
        ([0.5, 0.5], r"shape \(2,\)"),
        ([0.5, 0.5, 0.5], "sums to 1.5"),
        ([-0.5, 1.0, 0.5], ">= 0"),
    ],
)
def test_priors_that_are_no_frequencies_are_refused(draw_problem, prior, message):
    with pytest.raises(ValueError, match=message):
        bures.ckb(*draw_problem().data, prior=prior)


def test_a_continuous_variable_has_no_prior(draw_problem):
    with pytest.raises(ValueError, match="needs classes"):
        bures.ckb(*draw_problem("continuous").data, conditioning="continuous", prior="uniform")


MEANS = [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
COVARIANCES = [np.diag([0.2, 0.2]), np.diag([2.0, 0.3]), np.diag([0.3, 3.0])]
BALANCED, SKEWED = (GaussianClasses(f, MEANS, COVARIANCES) for f in ([0.2, 0.4, 0.4], [0.7, 0.1, 0.2]))


def label_shift_samples(n=120, seeds=8):
    return [(*BALANCED.sample(n, seed), *SKEWED.sample(n, seed + 200)) for seed in range(seeds)]


def soften(sample):
    xs, ys, xt, yt = sample
    return xs, 0.9 * np.eye(3)[ys] + 0.1 / 3, xt, 0.9 * np.eye(3)[yt] + 0.1 / 3


def level_without_shift(transform=lambda sample: sample):
    samples = [(*BALANCED.sample(120, seed), *BALANCED.sample(120, seed + 100)) for seed in range(8)]
    return np.mean([bures.ckb(*transform(sample)) for sample in samples])


@pytest.mark.parametrize("prior", ["source", "target", "uniform", [0.3, 0.4, 0.3]], ids=str)
def test_under_pure_label_shift_a_prior_brings_the_distance_to_its_null_level(prior):
    """The null level: samples change domains within their class, so that P(X|Y) is the same by construction."""
    results = [bures.explain(*s, prior=prior, n_permutations=20, n_bootstrap=0) for s in label_shift_samples()]
    level = np.mean([r.squared_distance for r in results]) / np.mean([r.null_mean for r in results])
    assert level == pytest.approx(1, abs=0.25)
    assert np.mean([r.squared_distance <= r.null_95 for r in results]) >= 0.5


@pytest.mark.parametrize("transform", [lambda sample: sample, soften], ids=["hard", "soft"])
def test_pure_label_shift_counts_without_a_prior_and_hardly_with_one(transform):
    samples = [transform(sample) for sample in label_shift_samples()]
    null = level_without_shift(transform)
    without = np.mean([bures.ckb(*sample) for sample in samples])
    assert without > 3 * null
    for prior in ("source", "target", "uniform", [0.3, 0.4, 0.3]):
        # Weighting costs effective samples, so the level is that of somewhat smaller samples.
        assert np.mean([bures.ckb(*sample, prior=prior) for sample in samples]) - null < (without - null) / 3


def test_with_a_prior_a_conditional_shift_is_still_seen():
    moved = GaussianClasses(SKEWED.frequencies, MEANS, 9 * np.array(COVARIANCES))
    sample = *BALANCED.sample(120, 0), *moved.sample(120, 1)
    parts = bures.explain(*sample, prior="uniform", n_permutations=50, n_bootstrap=0)
    assert parts.squared_distance > 2 * parts.null_95


# ------------------------------------------------------------------------------------------- eps="auto"


def resolved(*data, **options):
    return bures.explain(*data, **options, n_permutations=0, n_bootstrap=0)


@pytest.mark.parametrize("label_kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_auto_eps_is_a_share_of_the_label_variance_of_one_class(draw_problem, kind, label_kernel):
    p = draw_problem(kind, n=20, m=13, k=4, seed=12)
    contrast = 1.0
    if label_kernel != "linear":  # 1 - a, averaged over the domains: one-hot rows of two classes are at distance 2
        widths = [reference.label_width(rows, label_kernel) for rows in (p.rows_s, p.rows_t)]
        contrast = np.mean([1 - np.exp(-2 / width) for width in widths])
    expected = 0.15 * contrast / 4
    assert resolved(*p.data, label_kernel=label_kernel, eps="auto").eps == pytest.approx(expected, rel=1e-12)
    value = bures.ckb(*p.data, label_kernel=label_kernel, eps="auto")
    assert value == pytest.approx(bures.ckb(*p.data, label_kernel=label_kernel, eps=expected), rel=1e-12)


def kept_share(k, eps):
    """Share of the variance between K balanced classes that is left in R: all variance here is between classes."""
    y = np.tile(np.arange(k), 2)
    x = np.eye(k)[y]
    parts = resolved(x, y, x, y, kernel="linear", eps=eps)
    return parts.trace_s / np.trace(reference.covariance(x))


@pytest.mark.parametrize("k", [5, 10, 20, 31, 45, 65])
def test_auto_eps_keeps_the_same_share_of_between_class_variance_for_any_number_of_classes(k):
    assert kept_share(k, "auto") == pytest.approx(0.15 / 1.15, rel=1e-9)


@pytest.mark.parametrize(("k", "eps", "share"), [(10, 1e-2, 0.13), (31, 1e-2, 0.32), (65, 1e-2, 0.50), (65, 0.1, 0.91)])
def test_a_fixed_eps_keeps_more_the_more_classes_there_are(k, eps, share):
    assert kept_share(k, eps) == pytest.approx(share, abs=0.005)


def test_auto_eps_needs_classes(draw_problem):
    with pytest.raises(ValueError, match="eps='auto' needs classes"):
        bures.ckb(*draw_problem("continuous").data, conditioning="continuous", eps="auto")
