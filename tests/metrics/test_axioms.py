"""With one fixed kernel the root of CKB is a pseudo-metric, blind to order, names, shifts and permuted classes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bures

# One RKHS for all distributions compared: bandwidths are numbers.
FIXED = {"bandwidth": 2.0, "label_bandwidth": 0.9}

cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "sizes": st.tuples(*[st.integers(1, 14)] * 3),
        "d": st.integers(1, 6),
        "k": st.integers(1, 4),
        "kind": st.sampled_from(["hard", "soft", "continuous"]),
        "kernel": st.sampled_from(["gaussian", "laplacian", "linear"]),
        "label_kernel": st.sampled_from(["gaussian", "laplacian", "linear"]),
        "eps": st.sampled_from([1e-4, 1e-2, 1.0, 10.0]),
        "spread": st.sampled_from([0.0, 0.1, 1.0, 10.0]),
    }
)


def draw_samples(case):
    """Labelled samples of three distributions; some have repeated rows or no spread at all."""
    rng = np.random.default_rng(case["seed"])
    samples = []
    for n in case["sizes"]:
        if case["kind"] == "hard":
            y = rng.integers(case["k"], size=n)
        elif case["kind"] == "soft":
            y = rng.dirichlet(np.ones(case["k"]), size=n)
        else:
            y = rng.normal(size=(n, case["k"]))
        x = case["spread"] * rng.normal(size=(n, case["d"])) @ rng.normal(size=(case["d"], case["d"]))
        x[n // 2 + 1 :] = x[: len(x[n // 2 + 1 :])] if rng.random() < 0.2 else x[n // 2 + 1 :]
        samples.append((x, y))
    return samples


def options(case):
    return {**FIXED, **{key: case[key] for key in ("kernel", "label_kernel", "eps")}, "conditioning": case["kind"]}


def squared_and_scale(p, q, kwargs):
    """The squared distance, and tr R_p + tr R_q."""
    parts = bures.explain(*p, *q, **kwargs, n_permutations=0, n_bootstrap=0)
    return bures.ckb(*p, *q, **kwargs), parts.trace_s + parts.trace_t


# Rounding is relative to the traces. Where the kernel is wide the traces are small beside the kernel's values, hence
# the floor; every kernel value here is of the order of `unit` or less.
ROUNDING = 1e-12


def unit(case):
    return max(1.0, case["spread"] ** 2) * 1e-3


@settings(max_examples=150)
@given(case=cases)
def test_distance_is_symmetric_and_not_negative(case):
    p, q, _ = draw_samples(case)
    forward, scale = squared_and_scale(p, q, options(case))
    backward = bures.ckb(*q, *p, **options(case))
    tolerance = ROUNDING * (scale + unit(case))
    assert abs(forward - backward) <= tolerance
    assert forward >= -tolerance


@settings(max_examples=150)
@given(case=cases)
def test_distance_of_a_sample_to_itself_is_zero(case):
    p, _, _ = draw_samples(case)
    value, scale = squared_and_scale(p, p, options(case))
    assert abs(value) <= ROUNDING * (scale + unit(case))


@settings(max_examples=250)
@given(case=cases)
def test_root_of_the_distance_satisfies_the_triangle_inequality(case):
    p, q, r = draw_samples(case)
    (pq, scale_1), (pr, scale_2), (rq, scale_3) = (
        squared_and_scale(a, b, options(case)) for a, b in ((p, q), (p, r), (r, q))
    )
    tolerance = np.sqrt(ROUNDING * (scale_1 + scale_2 + scale_3 + unit(case)))
    d_pq, d_pr, d_rq = (np.sqrt(max(square, 0.0)) for square in (pq, pr, rq))
    assert d_pq <= d_pr + d_rq + tolerance


@settings(max_examples=100)
@given(case=cases)
@pytest.mark.parametrize("metric", [bures.kernel_bures, bures.bures, bures.mmd], ids=lambda m: m.__name__)
def test_marginal_distances_are_pseudo_metrics(metric, case):
    (p, _), (q, _), (r, _) = draw_samples(case)
    fixed = {} if metric is bures.bures else {"kernel": case["kernel"], "bandwidth": 2.0}
    unbounded = metric is bures.bures or case["kernel"] == "linear"
    largest = max(float(np.sum(x**2) / len(x)) for x in (p, q, r)) if unbounded else 1.0
    squares = [metric(a, b, **fixed) for a, b in ((p, q), (q, p), (p, r), (r, q), (p, p))]
    tolerance = ROUNDING * largest
    assert abs(squares[0] - squares[1]) <= tolerance
    assert abs(squares[4]) <= tolerance
    d_pq, _, d_pr, d_rq, _ = (np.sqrt(max(square, 0.0)) for square in squares)
    assert d_pq <= d_pr + d_rq + np.sqrt(tolerance)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_ckw_is_symmetric_and_zero_on_itself(draw_problem, kind):
    p = draw_problem(kind, n=12, m=10, seed=1)
    forward = bures.ckw(*p.data, **FIXED)
    assert forward == pytest.approx(bures.ckw(p.xt, p.yt, p.xs, p.ys, **FIXED), rel=1e-12)
    assert abs(bures.ckw(p.xs, p.ys, p.xs, p.ys, **FIXED)) <= ROUNDING


RULES = [
    ("gaussian", "shared"),
    ("gaussian", "per-block"),
    ("gaussian", "median"),
    ("laplacian", "shared"),
    ("laplacian", "per-block"),
    ("laplacian", "median"),
    ("linear", "shared"),
]


@pytest.mark.parametrize(("kernel", "bandwidth"), RULES)
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_order_of_samples_does_not_matter(draw_problem, kind, kernel, bandwidth):
    p = draw_problem(kind, n=20, m=15, seed=2)
    rng = np.random.default_rng(0)
    i, j = rng.permutation(20), rng.permutation(15)
    fixed = {"conditioning": p.conditioning, "kernel": kernel, "bandwidth": bandwidth}
    shuffled = bures.ckb(p.xs[i], p.ys[i], p.xt[j], p.yt[j], **fixed)
    assert shuffled == pytest.approx(bures.ckb(*p.data, **fixed), rel=1e-11)


@pytest.mark.parametrize("metric", [bures.ckb, bures.ckw], ids=lambda m: m.__name__)
@pytest.mark.parametrize("names", [["b", "c", "a"], [7, -1, 100], ["3", "20", "100"]], ids=str)
def test_renaming_the_classes_of_both_domains_changes_nothing(draw_problem, names, metric):
    p = draw_problem("hard", n=20, m=15, seed=3)
    renamed = metric(p.xs, np.array(names)[p.ys], p.xt, np.array(names)[p.yt])
    assert renamed == pytest.approx(metric(*p.data), rel=1e-12)


@pytest.mark.parametrize(
    ("metric", "kernel", "bandwidth"),
    [
        (metric, kernel, bandwidth)
        for metric in (bures.ckb, bures.ckw)
        for kernel, bandwidth in [*RULES, ("gaussian", 2.0), ("laplacian", 2.0)]
        if metric is bures.ckb or bandwidth != "per-block"
    ],
)
def test_a_common_shift_of_both_samples_changes_nothing(draw_problem, metric, kernel, bandwidth):
    p = draw_problem("hard", n=20, m=15, d=3, seed=4)
    vector = np.array([3.0, -50.0, 700.0])
    fixed = {"kernel": kernel, "bandwidth": bandwidth}
    shifted = metric(p.xs + vector, p.ys, p.xt + vector, p.yt, **fixed)
    # A coordinate near 700 is itself rounded to 1e-13; that much of the data is lost before the metric sees it.
    assert shifted == pytest.approx(metric(*p.data, **fixed), rel=1e-10)


@pytest.mark.parametrize(("kernel", "bandwidth"), RULES)
@pytest.mark.parametrize("factor", [1e-6, 0.3, 1e5])
def test_scaling_both_samples_changes_nothing_with_adaptive_bandwidths(draw_problem, kernel, bandwidth, factor):
    p = draw_problem("hard", n=20, m=15, seed=5)
    fixed = {"kernel": kernel, "bandwidth": bandwidth}
    expected = bures.ckb(*p.data, **fixed) * (factor**2 if kernel == "linear" else 1)
    assert bures.ckb(factor * p.xs, p.ys, factor * p.xt, p.yt, **fixed) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_rotating_both_samples_changes_nothing(draw_problem, kernel):
    p = draw_problem("hard", n=20, m=15, d=4, seed=6)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    rotated = bures.ckb(p.xs @ rotation, p.ys, p.xt @ rotation, p.yt, kernel=kernel)
    assert rotated == pytest.approx(bures.ckb(*p.data, kernel=kernel), rel=1e-11)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 5), kernel=st.sampled_from(["gaussian", "laplacian", "linear"]))
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_permuting_the_classes_of_the_target_leaves_ckb_unchanged(draw_problem, kind, seed, k, kernel):
    p = draw_problem(kind, n=15, m=12, k=k, seed=seed)
    order = np.random.default_rng(seed).permutation(k)
    permuted = order[p.yt] if kind == "hard" else p.yt[:, order]
    kwargs = {"kernel": kernel, "label_bandwidth": "mean"}
    parts = bures.explain(*p.data, **kwargs, n_permutations=0, n_bootstrap=0)
    difference = bures.ckb(p.xs, p.ys, p.xt, permuted, **kwargs) - bures.ckb(*p.data, **kwargs)
    assert abs(difference) <= ROUNDING * (parts.trace_s + parts.trace_t)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_two_swapped_classes_are_invisible_to_ckb_and_plain_to_ckw(kind):
    """The blind spot: each class stands where the other did, and the conditional covariances are the same."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 25)
    x = rng.normal(size=(50, 2)) + 5 * y[:, None]
    ys, yt = (y, 1 - y) if kind == "hard" else (np.eye(2)[y], np.eye(2)[1 - y])
    assert abs(bures.ckb(x, ys, x, yt)) <= ROUNDING
    assert abs(bures.ckw(x, ys, x, ys)) <= ROUNDING
    assert bures.ckw(x, ys, x, yt) > 1.0
