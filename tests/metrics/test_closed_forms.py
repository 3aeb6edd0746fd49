"""Theorem 5 against Definition 1: with explicit features the operators are matrices that can be written down."""

import numpy as np
import pytest
import reference
import scipy.linalg
import torch

import bures
from bures.data import GaussianClasses
from bures.factors import UnconditionalFactor, bind_label_kernel
from bures.labels import read_labels
from bures.metrics._problem import cross_matrix

TOLERANCE = 1e-9
EPS = [1e-4, 1e-2, 1.0, 10.0]


def polynomial(x, y):
    return (x @ y.T + 1) ** 2


def polynomial_features(x):
    """φ with φ(x)ᵀφ(y) = (xᵀy + 1)² - 1; the constant vanishes in every covariance."""
    d = x.shape[1]
    pairs = [(i, j) for i in range(d) for j in range(i, d)]
    products = [x[:, i] * x[:, j] * (1 if i == j else np.sqrt(2)) for i, j in pairs]
    return np.column_stack([np.sqrt(2) * x, *products])


def sqrtm_bures(r_s, r_t):
    """Definition 1 with SciPy's matrix square root."""
    root = scipy.linalg.sqrtm(r_s)
    return float(np.trace(r_s + r_t - 2 * np.real(scipy.linalg.sqrtm(root @ r_t @ root))))


def assert_same(value, expected, scale):
    assert abs(value - expected) <= TOLERANCE * scale


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("label_bandwidth", [0.5, 2.0])
@pytest.mark.parametrize(("n", "m", "k"), [(30, 20, 3), (25, 40, 2), (60, 60, 6)])
def test_linear_kernel_gives_bures_between_regularised_conditional_covariances(
    draw_problem, n, m, k, label_bandwidth, eps
):
    """R = Σzz - Σzy (Σyy + eps / (1 - a) I)^-1 Σyz from explicit matrices."""
    p = draw_problem("hard", n=n, m=m, d=4, k=k, seed=k)
    ridge = eps / (1 - np.exp(-2 / label_bandwidth))
    r_s = reference.conditional_covariance(p.xs, p.rows_s, ridge)
    r_t = reference.conditional_covariance(p.xt, p.rows_t, ridge)
    value = bures.ckb(*p.data, kernel="linear", label_bandwidth=label_bandwidth, eps=eps)
    scale = np.trace(r_s) + np.trace(r_t)
    assert_same(value, reference.bures_covariance(r_s, r_t), scale)
    assert_same(value, sqrtm_bures(r_s, r_t), scale)


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_theorem_5_is_definition_1_for_explicit_feature_maps(draw_problem, kind, eps):
    """Polynomial kernels on X and on Y, given as functions, against eq. (3) with their feature maps."""
    p = draw_problem(kind, n=35, m=30, d=2, k=2, seed=1)
    r_s = reference.conditional_covariance(polynomial_features(p.xs), polynomial_features(p.rows_s), eps)
    r_t = reference.conditional_covariance(polynomial_features(p.xt), polynomial_features(p.rows_t), eps)
    value = bures.ckb(*p.data, conditioning=p.conditioning, kernel=polynomial, label_kernel=polynomial, eps=eps)
    scale = np.trace(r_s) + np.trace(r_t)
    assert_same(value, reference.bures_covariance(r_s, r_t), scale)
    assert_same(value, sqrtm_bures(r_s, r_t), scale)


@pytest.mark.parametrize("eps", EPS)
def test_weighted_theorem_5_is_definition_1_with_weighted_covariances(draw_problem, eps):
    p = draw_problem("soft", n=35, m=30, d=2, k=3, seed=2)
    rng = np.random.default_rng(0)
    ws, wt = rng.uniform(0.1, 2, 35), rng.uniform(0.1, 2, 30)
    r_s = reference.conditional_covariance(polynomial_features(p.xs), p.rows_s, eps, ws)
    r_t = reference.conditional_covariance(polynomial_features(p.xt), p.rows_t, eps, wt)
    value = bures.ckb(
        *p.data, kernel=polynomial, label_kernel="linear", eps=eps, sample_weight_s=ws, sample_weight_t=wt
    )
    assert_same(value, reference.bures_covariance(r_s, r_t), np.trace(r_s) + np.trace(r_t))


def test_kernel_bures_is_the_bures_distance_of_explicit_feature_covariances(draw_problem):
    p = draw_problem(n=35, m=30, d=2, seed=3)
    r_s, r_t = (reference.covariance(polynomial_features(x)) for x in (p.xs, p.xt))
    value = bures.kernel_bures(p.xs, p.xt, kernel=polynomial)
    assert_same(value, sqrtm_bures(r_s, r_t), np.trace(r_s) + np.trace(r_t))


def test_kernel_bures_with_the_linear_kernel_is_bures(draw_problem):
    p = draw_problem(n=35, m=30, d=4, seed=4)
    scale = np.trace(reference.covariance(p.xs)) + np.trace(reference.covariance(p.xt))
    assert_same(bures.kernel_bures(p.xs, p.xt, kernel="linear"), bures.bures(p.xs, p.xt), scale)


def test_ckw_with_explicit_features_adds_distances_of_class_means(draw_problem):
    p = draw_problem("hard", n=35, m=30, d=2, k=3, seed=5)
    phi_s, phi_t = polynomial_features(p.xs), polynomial_features(p.xt)
    means = 0.0
    for c in range(3):
        frequency = (np.mean(p.ys == c) + np.mean(p.yt == c)) / 2
        means += frequency * np.sum((phi_s[p.ys == c].mean(0) - phi_t[p.yt == c].mean(0)) ** 2)
    scale = np.trace(reference.covariance(phi_s)) + np.trace(reference.covariance(phi_t))
    difference = bures.ckw(*p.data, kernel=polynomial) - bures.ckb(*p.data, kernel=polynomial)
    assert_same(difference, means, scale)


def test_mmd_with_explicit_features_is_the_distance_of_means(draw_problem):
    p = draw_problem(n=20, m=15, d=3, seed=6)
    expected = np.sum((polynomial_features(p.xs).mean(0) - polynomial_features(p.xt).mean(0)) ** 2)
    assert_same(bures.mmd(p.xs, p.xt, kernel=polynomial), expected, expected)
    assert_same(bures.mmd(p.xs, p.xt, kernel="linear"), np.sum((p.xs.mean(0) - p.xt.mean(0)) ** 2), expected)


@pytest.mark.parametrize(("scale_s", "scale_t"), [(1.0, 3.0), (2.0, 2.0), (0.0, 5.0)])
def test_bures_of_scaled_covariances_is_the_squared_difference_of_scales(scale_s, scale_t):
    covariance = reference.covariance(np.random.default_rng(0).normal(size=(20, 3)))
    expected = (scale_s - scale_t) ** 2 * np.trace(covariance)
    value = bures.bures_covariance(scale_s**2 * covariance, scale_t**2 * covariance)
    assert_same(value, expected, (scale_s**2 + scale_t**2) * np.trace(covariance))


def test_bures_of_commuting_covariances_compares_the_roots_of_their_eigenvalues():
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    a, b = rng.uniform(0.1, 4, size=(2, 5))
    expected = np.sum((np.sqrt(a) - np.sqrt(b)) ** 2)
    assert_same(bures.bures_covariance(basis * a @ basis.T, basis * b @ basis.T), expected, a.sum() + b.sum())


# ------------------------------------------------------------------------------------------- populations


def exact_sample(population, n, seed):
    """A sample whose class frequencies, class means and class covariances are exactly the population's."""
    rng = np.random.default_rng(seed)
    counts = np.rint(population.frequencies * n).astype(int)
    np.testing.assert_allclose(counts / n, population.frequencies)
    features = []
    for count, mean, covariance in zip(counts, population.means, population.covariances, strict=True):
        noise = rng.normal(size=(count, len(mean)))
        noise = (noise - noise.mean(0)) @ np.linalg.inv(scipy.linalg.sqrtm(reference.covariance(noise)))
        features.append(mean + noise @ np.real(scipy.linalg.sqrtm(covariance)))
    return np.concatenate(features), np.repeat(np.arange(len(counts)), counts)


def random_population(seed, frequencies, d=3):
    rng = np.random.default_rng(seed)
    k = len(frequencies)
    roots = rng.normal(size=(k, d, d))
    return GaussianClasses(frequencies, 2 * rng.normal(size=(k, d)), roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(d))


SOURCE, TARGET = random_population(0, [0.5, 0.3, 0.2]), random_population(1, [0.2, 0.2, 0.6])


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("label_bandwidth", ["mean", 0.7])
def test_population_distance_is_that_of_a_sample_with_the_population_moments(eps, label_bandwidth):
    xs, ys = exact_sample(SOURCE, 50, 0)
    xt, yt = exact_sample(TARGET, 40, 1)
    number = None if label_bandwidth == "mean" else label_bandwidth
    value = bures.ckb(xs, ys, xt, yt, kernel="linear", label_bandwidth=label_bandwidth, eps=eps)
    scale = sum(np.trace(p.conditional_covariance(eps, label_bandwidth=number)) for p in (SOURCE, TARGET))
    assert_same(value, SOURCE.ckb(TARGET, eps, label_bandwidth=number), scale)


def test_large_samples_approach_the_population_distance():
    """Theorem 6: the error shrinks with n; at n = 900 it is a few per cent of the traces."""
    population = SOURCE.ckb(TARGET, 1e-2)
    scale = sum(np.trace(p.conditional_covariance(1e-2)) for p in (SOURCE, TARGET))
    errors = {}
    for n in (30, 900):
        seeds = range(12 if n == 30 else 2)
        samples = [(*SOURCE.sample(n, seed), *TARGET.sample(n, seed + 100)) for seed in seeds]
        errors[n] = np.mean([abs(bures.ckb(*sample, kernel="linear") - population) for sample in samples])
    assert errors[900] < 0.03 * scale
    assert errors[900] < errors[30] / 2


# ------------------------------------------------------------------------------------------- B and its factors


def library_factor(kind, rows, y, weights, kernel, bandwidth, eps):
    like = torch.zeros(1, dtype=torch.float64)
    labels = read_labels(y, y, kind, len(y), len(y), like=like)[0]
    kernel = bind_label_kernel(labels, torch.as_tensor(weights), kernel=kernel, bandwidth=bandwidth, argument="ys")
    return kernel.factor(torch.tensor(eps, dtype=torch.float64))


def weighted_parts(rows, weights, kernel, bandwidth, eps):
    """H D, and B = eps (G_Y + eps I)^-1 by explicit inverse."""
    q = np.sqrt(weights)
    left = (np.eye(len(q)) - np.outer(q, q)) @ np.diag(q)
    g_y = left @ reference.label_gram(rows, kernel, bandwidth, weights) @ left.T
    return left, eps * np.linalg.inv(g_y + eps * np.eye(len(q)))


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_both_forms_of_proposition_4_agree_and_lie_between_zero_and_one(draw_problem, kind, eps):
    rows = draw_problem(kind, n=20, seed=7).rows_s
    h = reference.centring(20)
    g_y = h @ reference.label_gram(rows) @ h
    first, second = reference.regression_residual(g_y, eps), reference.proposition_4(g_y, eps)
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-10)
    values = scipy.linalg.eigvalsh(second)
    assert values.min() > 0
    assert values.max() <= 1 + 1e-12


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_library_factors_are_factors_of_b(draw_problem, kind, kernel, weighted, eps):
    p = draw_problem(kind, n=14, seed=8)
    rng = np.random.default_rng(5)
    weights = rng.uniform(0.2, 3, 14) if weighted else np.ones(14)
    weights /= weights.sum()
    left, b = weighted_parts(p.rows_s, weights, kernel, "mean", eps)
    factor = library_factor(kind, p.rows_s, p.ys, weights, kernel, "mean", eps)
    applied = factor.apply(torch.eye(14, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(applied.T @ applied, left.T @ b @ left, rtol=0, atol=1e-11)
    np.testing.assert_allclose(factor.trace_weights(torch.float64).numpy(), left.T @ b @ left, rtol=0, atol=1e-11)
    block = rng.normal(size=(14, 5))
    np.testing.assert_allclose(factor.apply(torch.as_tensor(block)).numpy(), applied @ block, rtol=0, atol=1e-11)


def test_the_factor_without_conditioning_is_the_centring_matrix():
    weights = np.random.default_rng(6).dirichlet(np.ones(9))
    q = np.sqrt(weights)
    left = (np.eye(9) - np.outer(q, q)) @ np.diag(q)
    factor = UnconditionalFactor(torch.as_tensor(weights))
    np.testing.assert_allclose(factor.apply(torch.eye(9, dtype=torch.float64)).numpy(), left, rtol=0, atol=1e-15)
    np.testing.assert_allclose(factor.trace_weights(torch.float64).numpy(), left.T @ left, rtol=0, atol=1e-15)


def evd(b, rng):
    return reference.evd_factor(b)


def cholesky(b, rng):
    return scipy.linalg.cholesky((b + b.T) / 2, lower=True)


def symmetric_root(b, rng):
    return reference.psd_root(b)


def rotated(b, rng):
    return cholesky(b, rng) @ np.linalg.qr(rng.normal(size=b.shape))[0]


@pytest.mark.parametrize("factorise", [evd, cholesky, symmetric_root, rotated])
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_any_factor_of_b_gives_the_same_distance(draw_problem, kind, factorise):
    """The paper takes the eigendecomposition of B; the library is free to take what is cheapest."""
    p = draw_problem(kind, n=16, m=13, seed=9)
    rng = np.random.default_rng(7)
    k_ss, k_tt, k_ts = reference.gram_blocks(p.xs, p.xt, "gaussian", 2.0)
    eps, bandwidth = 1e-2, 0.9
    ws, wt = np.full(16, 1 / 16), np.full(13, 1 / 13)
    left_s, b_s = weighted_parts(p.rows_s, ws, "gaussian", bandwidth, eps)
    left_t, b_t = weighted_parts(p.rows_t, wt, "gaussian", bandwidth, eps)
    scale = np.trace(b_s @ left_s @ k_ss @ left_s.T) + np.trace(b_t @ left_t @ k_tt @ left_t.T)
    cross = factorise(b_t, rng).T @ left_t @ k_ts @ left_s.T @ factorise(b_s, rng)
    value = bures.ckb(*p.data, conditioning=p.conditioning, bandwidth=2.0, label_bandwidth=bandwidth, eps=eps)
    assert_same(value, scale - 2 * reference.nuclear_norm(cross), scale)


def test_functions_on_labels_get_what_was_given():
    """A kernel that a caller of NumPy writes need not know of torch, and the other way round."""
    given = []

    def kernel(x, y):
        given.append((type(x), type(y)))
        return x @ y.T

    rng = np.random.default_rng(0)
    data = rng.normal(size=(6, 2)), rng.normal(size=(6, 1)), rng.normal(size=(5, 2)), rng.normal(size=(5, 1))
    bures.ckb(*data, conditioning="continuous", label_kernel=kernel)
    assert set(given) == {(np.ndarray, np.ndarray)}
    given.clear()
    bures.ckb(*map(torch.from_numpy, data), conditioning="continuous", label_kernel=kernel)
    assert set(given) == {(torch.Tensor, torch.Tensor)}


def test_the_matrix_under_the_nuclear_norm_has_target_rows_and_source_columns():
    block = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    factors = [UnconditionalFactor(torch.full((n,), 1 / n, dtype=torch.float64)) for n in (3, 4)]
    centring = [torch.eye(n, dtype=torch.float64) - 1 / n for n in (3, 4)]
    expected = centring[1] @ block @ centring[0] / 12**0.5
    torch.testing.assert_close(cross_matrix(block, *factors), expected, rtol=1e-12, atol=1e-14)
