"""The library agrees with the paper's formulas written out in NumPy, to 1e-9 of tr R_s + tr R_t."""

import numpy as np
import pytest
import reference

import bures

TOLERANCE = 1e-9


def polynomial(x, y):
    """(xᵀy + 1)²: a Gram matrix for two samples, and one value for two rows."""
    return (x @ y.T + 1) ** 2


FEATURE_KERNELS = [
    *[(kernel, rule) for kernel in ("gaussian", "laplacian") for rule in ("shared", "per-block", "median", 1.7)],
    ("linear", "shared"),
    (polynomial, "shared"),
]
ONE_RKHS = [(kernel, rule) for kernel, rule in FEATURE_KERNELS if rule != "per-block"]
LABEL_KERNELS = [
    *[(kernel, rule) for kernel in ("gaussian", "laplacian") for rule in ("mean", "median", 0.8)],
    ("linear", "mean"),
    (polynomial, "mean"),
]
KINDS = ["hard", "soft", "continuous", ("hard", "soft")]
EPS = [1e-4, 1e-2, 1.0, 10.0]


def name(value):
    return "-".join(getattr(part, "__name__", str(part)) for part in value) if isinstance(value, tuple) else str(value)


def assert_same(value, expected, scale):
    assert abs(value - expected) <= TOLERANCE * scale


@pytest.mark.parametrize("labels", LABEL_KERNELS, ids=name)
@pytest.mark.parametrize("features", FEATURE_KERNELS, ids=name)
@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_ckb_is_theorem_5_for_every_kernel_rule_and_eps(draw_problem, kind, features, labels):
    p = draw_problem(kind, n=10, m=8, seed=3)
    (kernel, bandwidth), (label_kernel, label_bandwidth) = features, labels
    grams = reference.gram_blocks(p.xs, p.xt, kernel, bandwidth)
    label_grams = [reference.label_gram(rows, label_kernel, label_bandwidth) for rows in (p.rows_s, p.rows_t)]
    for eps in EPS:
        value = bures.ckb(
            *p.data,
            conditioning=p.conditioning,
            kernel=kernel,
            bandwidth=bandwidth,
            label_kernel=label_kernel,
            label_bandwidth=label_bandwidth,
            eps=eps,
        )
        assert_same(value, *reference.theorem_5(*grams, *label_grams, eps))


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 9), (9, 2), (5, 30), (30, 5), (40, 40)])
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_ckb_is_theorem_5_for_unequal_and_small_samples(draw_problem, kind, n, m):
    p = draw_problem(kind, n=n, m=m, d=4, k=2, seed=n + m)
    assert_same(bures.ckb(*p.data, conditioning=p.conditioning), *reference.ckb(*p.rows))


@pytest.mark.parametrize("d", [1, 2, 25])
def test_ckb_is_theorem_5_for_few_and_many_features(draw_problem, d):
    p = draw_problem("hard", d=d, seed=d)
    assert_same(bures.ckb(*p.data), *reference.ckb(*p.rows))


STRINGS = {
    "the same classes": ("abcabcabca", "ccbabacb"),
    "a class missing from the target": ("abcabcabca", "aabbabab"),
    "a class missing from the source": ("abababaabb", "ccbabacb"),
    "each domain with a class of its own": ("abababaabb", "bcbcbccb"),
    "no class in common": ("aaaaabbbbb", "ccccdddd"),
    "one class in the source": ("aaaaaaaaaa", "abababba"),
}


@pytest.mark.parametrize("case", STRINGS)
@pytest.mark.parametrize("label_kernel", ["gaussian", "laplacian", "linear", polynomial], ids=lambda k: name((k,)))
def test_ckb_takes_strings_and_classes_missing_from_a_domain(draw_problem, case, label_kernel):
    ys, yt = (np.array(list(labels)) for labels in STRINGS[case])
    p = draw_problem("hard", n=10, m=8, seed=5)
    classes = sorted({*ys, *yt})
    expected = {"label_kernel": label_kernel, "label_bandwidth": 0.8}
    rows = reference.one_hot(ys, classes), reference.one_hot(yt, classes)
    value = bures.ckb(p.xs, ys, p.xt, yt, **expected)
    assert_same(value, *reference.ckb(p.xs, rows[0], p.xt, rows[1], **expected))


def test_integers_number_the_columns_of_soft_labels_beside_them(draw_problem):
    p = draw_problem(("hard", "soft"), k=4, seed=8)
    ys = np.minimum(p.ys, 1)  # only two of four classes occur
    expected = reference.ckb(p.xs, np.eye(4)[ys], p.xt, p.rows_t)
    assert_same(bures.ckb(p.xs, ys, p.xt, p.yt), *expected)


def test_soft_rows_declared_hard_count_as_their_most_probable_class(draw_problem):
    p = draw_problem("soft", seed=2)
    expected = reference.ckb(p.xs, np.eye(3)[p.ys.argmax(1)], p.xt, np.eye(3)[p.yt.argmax(1)])
    assert_same(bures.ckb(*p.data, conditioning="hard"), *expected)


def test_a_continuous_vector_is_one_column(draw_problem):
    p = draw_problem("continuous", k=1, seed=4)
    value = bures.ckb(p.xs, p.ys[:, 0], p.xt, p.yt[:, 0], conditioning="continuous")
    assert_same(value, *reference.ckb(*p.rows))


WEIGHTED_RULES = ["shared", "per-block", "median", 1.7]


@pytest.mark.parametrize("sides", ["source", "target", "both"])
@pytest.mark.parametrize("bandwidth", WEIGHTED_RULES)
@pytest.mark.parametrize("label_bandwidth", ["mean", 0.8])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_weighted_ckb_is_its_definition(draw_problem, kind, kernel, label_bandwidth, bandwidth, sides):
    p = draw_problem(kind, n=10, m=8, seed=6)
    rng = np.random.default_rng(1)
    ws = rng.uniform(0.2, 3, size=10) if sides != "target" else None
    wt = rng.uniform(0.2, 3, size=8) if sides != "source" else None
    options = {"kernel": kernel, "bandwidth": bandwidth, "label_bandwidth": label_bandwidth, "eps": 0.02}
    value = bures.ckb(*p.data, conditioning=p.conditioning, sample_weight_s=ws, sample_weight_t=wt, **options)
    assert_same(value, *reference.ckb(*p.rows, ws=ws, wt=wt, **options))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("features", FEATURE_KERNELS, ids=name)
def test_kernel_bures_is_theorem_5_without_conditioning(draw_problem, features, weighted):
    p = draw_problem(seed=9)
    kernel, bandwidth = features
    rng = np.random.default_rng(2)
    ws, wt = (rng.uniform(0.2, 3, 11), rng.uniform(0.2, 3, 9)) if weighted else (None, None)
    value = bures.kernel_bures(p.xs, p.xt, kernel=kernel, bandwidth=bandwidth, sample_weight_s=ws, sample_weight_t=wt)
    assert_same(value, *reference.kernel_bures(p.xs, p.xt, kernel=kernel, bandwidth=bandwidth, ws=ws, wt=wt))


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_kernel_bures_is_ckb_with_an_infinite_regulariser(draw_problem, kernel):
    p = draw_problem(seed=10)
    expected, scale = reference.kernel_bures(p.xs, p.xt, kernel=kernel)
    assert_same(bures.ckb(*p.data, kernel=kernel, eps=1e12), expected, scale)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "m", "d"), [(11, 9, 3), (4, 30, 6), (30, 4, 6), (3, 3, 40), (50, 50, 1)])
def test_bures_is_the_distance_of_covariance_matrices(draw_problem, n, m, d, weighted):
    p = draw_problem(n=n, m=m, d=d, seed=11)
    rng = np.random.default_rng(3)
    ws, wt = (rng.uniform(0.2, 3, n), rng.uniform(0.2, 3, m)) if weighted else (None, None)
    value = bures.bures(p.xs, p.xt, sample_weight_s=ws, sample_weight_t=wt)
    expected, scale = reference.bures(p.xs, p.xt, ws, wt)
    assert_same(value, expected, scale)
    covariances = reference.covariance(p.xs, w=ws), reference.covariance(p.xt, w=wt)
    # Outside the range of a singular covariance the distance moves with the root of the rounding of the input.
    tolerance = TOLERANCE if min(n, m) > d else 10 * np.sqrt(np.finfo(float).eps)
    assert abs(bures.bures_covariance(*covariances) - expected) <= tolerance * scale
    assert abs(reference.bures_covariance(*covariances) - expected) <= tolerance * scale


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("features", ONE_RKHS, ids=name)
def test_mmd_is_the_mean_over_pairs(draw_problem, features, unbiased):
    p = draw_problem(seed=12)
    kernel, bandwidth = features
    expected = reference.mmd(p.xs, p.xt, kernel=kernel, bandwidth=bandwidth, unbiased=unbiased)
    scale = sum(np.trace(gram) / len(gram) for gram in reference.gram_blocks(p.xs, p.xt, kernel, bandwidth)[:2])
    assert_same(bures.mmd(p.xs, p.xt, unbiased, kernel=kernel, bandwidth=bandwidth), expected, scale)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("features", ONE_RKHS, ids=name)
@pytest.mark.parametrize("kind", ["hard", "soft", ("hard", "soft")], ids=name)
def test_ckw_adds_the_class_means(draw_problem, kind, features, weighted):
    p = draw_problem(kind, n=12, m=10, seed=13)
    rng = np.random.default_rng(4)
    ws, wt = (rng.uniform(0.2, 3, 12), rng.uniform(0.2, 3, 10)) if weighted else (None, None)
    kernel, bandwidth = features
    for eps in EPS:
        options = {"kernel": kernel, "bandwidth": bandwidth, "eps": eps}
        value = bures.ckw(*p.data, conditioning=p.conditioning, sample_weight_s=ws, sample_weight_t=wt, **options)
        assert_same(value, *reference.ckw(*p.rows, ws=ws, wt=wt, **options))


@pytest.mark.parametrize("labels", LABEL_KERNELS, ids=name)
@pytest.mark.parametrize("features", ONE_RKHS, ids=name)
def test_ckw_adds_the_conditional_mean_embeddings_of_a_continuous_variable(draw_problem, features, labels):
    p = draw_problem("continuous", n=10, m=8, k=2, seed=14)
    (kernel, bandwidth), (label_kernel, label_bandwidth) = features, labels
    for eps in (1e-3, 1e-1):
        options = {
            "kernel": kernel,
            "bandwidth": bandwidth,
            "label_kernel": label_kernel,
            "label_bandwidth": label_bandwidth,
            "eps": eps,
        }
        value = bures.ckw(*p.data, conditioning="continuous", **options)
        assert_same(value, *reference.ckw_continuous(*p.rows, **options))


@pytest.mark.parametrize("case", [case for case in STRINGS if case != "the same classes"])
def test_ckw_leaves_out_classes_missing_from_a_domain_and_says_so(draw_problem, case):
    ys, yt = (np.array(list(labels)) for labels in STRINGS[case])
    p = draw_problem("hard", n=10, m=8, seed=15)
    classes = sorted({*ys, *yt})
    rows = reference.one_hot(ys, classes), reference.one_hot(yt, classes)
    expected, scale = reference.ckw(p.xs, rows[0], p.xt, rows[1], label_bandwidth=0.8)
    with pytest.warns(bures.MissingClassWarning) as caught:
        assert_same(bures.ckw(p.xs, ys, p.xt, yt, label_bandwidth=0.8), expected, scale)
    for missing in {*ys.tolist()} ^ {*yt.tolist()}:
        assert repr(missing) in str(caught[0].message)


@pytest.mark.parametrize("metric", [bures.ckw, bures.mmd])
def test_means_of_different_kernels_are_not_compared(draw_problem, metric):
    p = draw_problem()
    data = p.data if metric is bures.ckw else (p.xs, p.xt)
    with pytest.raises(ValueError, match="bandwidth='per-block'"):
        metric(*data, bandwidth="per-block")
