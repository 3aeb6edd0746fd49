"""Each adapter against its definition, written out with NumPy and SciPy, or against another library."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.linalg import eig, expm, logm, null_space, sqrtm, subspace_angles

import bures
from bures.estimators import CORAL, GFK, KGOT, OTIT, TCA, OTClassReg, SubspaceAlignment, _covariance


def sample(n, d, seed, *, offset=0.0):
    rng = np.random.default_rng(seed)
    return offset + rng.normal(size=(n, d)) @ rng.normal(size=(d, d))


@pytest.fixture(params=[(40, 30, 4), (7, 6, 9)], ids=["n>d", "n<d"])
def pair(request):
    n, m, d = request.param
    return sample(n, d, 0), sample(m, d, 1, offset=3.0)


def covariance(x):
    return np.cov(x.T, bias=True)


def target_rows(adapter, x):
    return adapter.transform(x, sample_domain=np.full(len(x), -1))


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-9, 0.0])
def test_principal_axes_are_those_of_the_singular_value_decomposition(spread):
    rows = sample(40, 4, 0)
    rows[:, 3] = rows[:, :3].sum(axis=1) + spread * rows[:, 3]  # from here on a direction has hardly any variance
    rows -= rows.mean(axis=0)
    singular, axes = _covariance.principal_axes(rows)
    _, expected, vectors = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(singular, expected, rtol=1e-6, atol=1e-14 * expected[0])
    np.testing.assert_allclose(np.abs(axes.T @ vectors.T), np.eye(4), atol=1e-7)


# CORAL


@pytest.mark.parametrize("reg", [1e-3, 1.0])
def test_coral_is_the_product_of_roots(pair, reg):
    xs, xt = pair
    ridge = reg * np.mean([x.var(axis=0).mean() for x in pair]) * np.eye(xs.shape[1])
    matrix = np.linalg.inv(sqrtm(covariance(xs) + ridge)) @ sqrtm(covariance(xt) + ridge)
    expected = (xs - xs.mean(axis=0)) @ matrix + xt.mean(axis=0)
    adapter = CORAL(reg).fit_source_target(xs, None, xt)
    np.testing.assert_allclose(adapter.transform(xs, sample_domain=1), expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(
        matrix.T @ (covariance(xs) + ridge) @ matrix, covariance(xt) + ridge, rtol=1e-7, atol=1e-8
    )


def test_coral_gives_the_source_the_moments_of_the_target():
    xs, xt = sample(40, 4, 0), sample(30, 4, 1, offset=3.0)
    moved = CORAL(1e-10).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    np.testing.assert_allclose(covariance(moved), covariance(xt), rtol=1e-6)
    np.testing.assert_allclose(moved.mean(axis=0), xt.mean(axis=0))


@pytest.mark.parametrize("reg", [1e-12, 1e-20, 1e-40])
def test_coral_of_full_rank_does_not_depend_on_a_ridge_that_is_next_to_nothing(reg):
    xs, xt = sample(40, 4, 0), sample(30, 4, 1, offset=3.0)
    matrix = np.linalg.inv(sqrtm(covariance(xs))) @ sqrtm(covariance(xt))
    expected = (xs - xs.mean(axis=0)) @ matrix + xt.mean(axis=0)
    moved = CORAL(reg).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-9)


def test_coral_without_means_keeps_that_of_the_source(pair):
    xs, xt = pair
    moved = CORAL(align_means=False).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    np.testing.assert_allclose(moved.mean(axis=0), xs.mean(axis=0))


# Subspace alignment and GFK


def principal_axes(x, k):
    values, vectors = np.linalg.eigh(covariance(x))
    return vectors[:, np.argsort(values)[::-1][:k]]


def test_subspace_alignment_is_its_definition(pair):
    xs, xt = pair
    ps, pt = principal_axes(xs, 2), principal_axes(xt, 2)
    adapter = SubspaceAlignment(2).fit_source_target(xs, None, xt)
    zs, zt = adapter.transform(xs, sample_domain=1), target_rows(adapter, xt)
    expected_s = (xs - xs.mean(axis=0)) @ ps @ ps.T @ pt
    expected_t = (xt - xt.mean(axis=0)) @ pt
    # Axes have no sign: inner products within and between the domains are compared.
    np.testing.assert_allclose(zs @ zs.T, expected_s @ expected_s.T, atol=1e-10)
    np.testing.assert_allclose(zs @ zt.T, expected_s @ expected_t.T, atol=1e-10)
    np.testing.assert_allclose(zt @ zt.T, expected_t @ expected_t.T, atol=1e-10)


def flow(ps, pt, t):
    """The projector on the geodesic at t, by the logarithm of the product of two reflections: no principal angles."""
    eye = np.eye(len(ps))
    rotation = np.real(logm((eye - 2 * pt @ pt.T) @ (eye - 2 * ps @ ps.T))) / 2
    turned = expm(t * rotation) @ ps
    return turned @ turned.T


def test_gfk_is_the_integral_over_the_geodesic(pair):
    xs, xt = pair
    ps, pt = principal_axes(xs, 2), principal_axes(xt, 2)
    np.testing.assert_allclose(flow(ps, pt, 1.0), pt @ pt.T, atol=1e-10)  # the reference ends where it should
    expected = quad_vec(lambda t: flow(ps, pt, t), 0, 1, epsabs=1e-10)[0]
    adapter = GFK(2).fit_source_target(xs, None, xt)
    np.testing.assert_allclose(adapter.kernel_matrix(), expected, atol=1e-8)
    np.testing.assert_allclose(np.sort(adapter.angles_), np.sort(subspace_angles(ps, pt)), atol=1e-10)
    zs, zt = adapter.transform(xs, sample_domain=1), target_rows(adapter, xt)
    np.testing.assert_allclose(zt @ zs.T, (xt - xt.mean(axis=0)) @ expected @ (xs - xs.mean(axis=0)).T, atol=1e-6)


def test_gfk_between_equal_subspaces_is_the_projector():
    xs = sample(30, 5, 0)
    axes = principal_axes(xs, 2)
    adapter = GFK(2).fit_source_target(xs, None, 1 + 2 * xs)
    np.testing.assert_allclose(adapter.angles_, 0, atol=1e-7)
    np.testing.assert_allclose(adapter.kernel_matrix(), axes @ axes.T, atol=1e-7)


def test_gfk_between_orthogonal_lines():
    rng = np.random.default_rng(0)
    xs, xt = rng.normal(size=(2, 20, 1)) * np.eye(2)[:, None, :]
    adapter = GFK(1).fit_source_target(xs, None, xt)
    sign = np.sign(adapter.kernel_matrix()[0, 1])  # a line has two ways to turn by a right angle
    np.testing.assert_allclose(adapter.kernel_matrix(), [[0.5, sign / np.pi], [sign / np.pi, 0.5]], atol=1e-12)


def test_the_automatic_dimension_is_where_both_domains_disagree_with_the_pool():
    rng = np.random.default_rng(0)
    xs, xt = rng.normal(size=(2, 2000, 12)) * [9, 7, 5, 3, 3, *[0.1] * 7]
    # Three directions are shared, the fourth is the target's alone and the fifth the source's. At four dimensions the
    # pool lacks one of the source's; at five it has one that the source lacks and one that the target lacks.
    xs[:, 3] = 0
    xt[:, 4] = 0
    xs[:, 4] *= 0.5
    for adapter in (GFK(), SubspaceAlignment()):
        assert adapter.fit_source_target(xs, None, xt).n_components_ == 5


def test_the_automatic_dimension_is_at_most_half_the_features():
    x = sample(50, 6, 0)
    assert GFK().fit_source_target(x, None, x + 1).n_components_ == 3


# TCA


@pytest.mark.parametrize(("kernel", "d"), [("gaussian", 3), ("linear", 3), ("linear", 30), ("laplacian", 3)])
def test_tca_solves_its_eigenproblem(kernel, d):
    xs, xt = sample(12, d, 0), sample(9, d, 1, offset=1.0)
    x, n, m, mu = np.concatenate([xs, xt]), 12, 9, 0.5
    if kernel == "linear":
        gram = x @ x.T
    elif kernel == "gaussian":
        squared = np.square(x[:, None] - x).sum(axis=2)
        gram = np.exp(-squared / squared.mean())
    else:
        manhattan = np.abs(x[:, None] - x).sum(axis=2)
        gram = np.exp(-manhattan / manhattan.mean())
    gram /= np.trace(gram) / (n + m)
    e = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)])
    centring = np.eye(n + m) - 1 / (n + m)
    left, right = gram @ centring @ gram, gram @ np.outer(e, e) @ gram + mu * np.eye(n + m)
    values, vectors = eig(np.linalg.solve(right, left))
    order = np.argsort(values.real)[::-1][:2]
    values, vectors = values.real[order], vectors.real[:, order]
    adapter = TCA(2, kernel=kernel, mu=mu).fit_source_target(xs, None, xt)
    np.testing.assert_allclose(adapter.eigenvalues_, values, rtol=1e-8)
    z = np.concatenate([adapter.transform(xs, sample_domain=1), target_rows(adapter, xt)])
    expected = gram @ vectors
    expected /= expected.std(axis=0)
    signs = np.sign((z * expected).sum(axis=0))
    np.testing.assert_allclose(z, expected * signs, atol=1e-6)


# Optimal transport


def test_otit_is_the_transport_of_pot():
    ot = pytest.importorskip("ot")
    xs, xt = sample(12, 3, 0), sample(9, 3, 1, offset=1.0)
    adapter = OTIT(0.1, tol=1e-12).fit_source_target(xs, None, xt)
    unit = xs.var(axis=0).sum() + xt.var(axis=0).sum()
    assert adapter.reg_ == pytest.approx(0.1 * unit)
    theirs = ot.da.SinkhornTransport(reg_e=0.1 * unit, tol=1e-12, max_iter=10000).fit(Xs=xs, Xt=xt)
    np.testing.assert_allclose(adapter.coupling_, theirs.coupling_, atol=1e-9)
    np.testing.assert_allclose(adapter.transform(xs, sample_domain=1), theirs.coupling_ @ xt * 12, atol=1e-6)
    new = sample(5, 3, 2)
    np.testing.assert_allclose(adapter.transform(new, sample_domain=1), theirs.transform(Xs=new), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Sinkhorn did not converge:UserWarning")  # of the call of POT itself
def test_class_regularised_transport_is_that_of_pot():
    ot = pytest.importorskip("ot")
    xs, xt, ys = sample(12, 3, 0), sample(9, 3, 1, offset=1.0), np.arange(12) % 3
    adapter = OTClassReg(0.1, 0.2, tol=1e-12, max_inner_iter=1000).fit_source_target(xs, np.array(list("xyz"))[ys], xt)
    unit = xs.var(axis=0).sum() + xt.var(axis=0).sum()
    theirs = ot.da.SinkhornLpl1Transport(reg_e=0.1 * unit, reg_cl=0.2 * unit, tol=1e-12, max_inner_iter=1000)
    theirs.fit(Xs=xs, ys=ys, Xt=xt)
    np.testing.assert_allclose(adapter.coupling_, theirs.coupling_, atol=1e-8)
    np.testing.assert_allclose(adapter.transform(xs, sample_domain=1), theirs.transform(Xs=xs), atol=1e-6)
    new = sample(5, 3, 2)
    np.testing.assert_allclose(adapter.transform(new, sample_domain=1), theirs.transform(Xs=new), atol=1e-6)


def test_the_class_regulariser_keeps_classes_apart():
    pytest.importorskip("ot")
    xs, xt, ys = sample(30, 2, 0), sample(20, 2, 1), np.arange(30) % 2

    def mixing(coupling):
        mass = np.array([coupling[ys == c].sum(axis=0) for c in (0, 1)])
        return (mass.min(axis=0) / mass.sum(axis=0)).mean()

    free, kept = (OTClassReg(0.1, weight).fit_source_target(xs, ys, xt).coupling_ for weight in (1e-6, 1.0))
    assert mixing(kept) < 0.5 * mixing(free)


def test_transport_with_little_entropy_is_the_assignment():
    pytest.importorskip("ot")
    xs = np.array([[0.0], [1.0], [2.0], [5.0]])
    moved = OTIT(0.01).fit_source_target(xs, None, 100 + 3 * xs[::-1]).transform(xs, sample_domain=1)
    np.testing.assert_allclose(moved, 100 + 3 * xs, atol=1e-2)


# KGOT


@pytest.mark.parametrize("reg", [1e-6, 1.0])
def test_kgot_with_the_linear_kernel_is_the_gaussian_monge_map(pair, reg):
    xs, xt = pair
    ridge = reg * np.mean([x.var(axis=0).mean() for x in pair]) * np.eye(xs.shape[1])
    s, t = covariance(xs) + ridge, covariance(xt) + ridge
    root = np.linalg.inv(sqrtm(s))
    monge = root @ sqrtm(sqrtm(s) @ t @ sqrtm(s)) @ root
    expected = (xs - xs.mean(axis=0)) @ np.real(monge) + xt.mean(axis=0)
    adapter = KGOT("linear", reg=reg).fit_source_target(xs, None, xt)
    np.testing.assert_allclose(adapter.transform(xs, sample_domain=1), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(target_rows(adapter, xt), xt)


def test_the_monge_map_moves_by_the_bures_distance():
    xs, xt = sample(40, 4, 0), sample(30, 4, 1, offset=3.0)
    moved = KGOT("linear", reg=1e-10).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    cost = np.square(moved - xs).sum(axis=1).mean()
    means = np.square(xs.mean(axis=0) - xt.mean(axis=0)).sum()
    assert cost == pytest.approx(bures.bures(xs, xt) + means, rel=1e-6)
    other = CORAL(1e-10).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    assert np.square(other - xs).sum(axis=1).mean() > cost


def test_kgot_moves_by_the_kernel_wasserstein_distance():
    xs, xt = sample(25, 2, 0), sample(20, 2, 1, offset=1.0)
    adapter = KGOT(n_landmarks=45, reg=1e-7).fit_source_target(xs, None, xt)
    start = target_rows(adapter, xs)
    cost = np.square(adapter.transform(xs, sample_domain=1) - start).sum(axis=1).mean()
    expected = bures.kernel_bures(xs, xt) + bures.mmd(xs, xt)
    cost /= adapter.coordinates_.scale**2
    assert cost == pytest.approx(expected, rel=1e-2)


def test_kgot_coordinates_are_those_of_the_kernel():
    xs, xt = sample(15, 2, 0), sample(10, 2, 1)
    adapter = KGOT(bandwidth=2.0, n_landmarks=25).fit_source_target(xs, None, xt)
    zs, zt = target_rows(adapter, xs), target_rows(adapter, xt)
    expected = np.exp(-np.square(xs[:, None] - xt).sum(axis=2) / 2.0)
    np.testing.assert_allclose(zs @ zt.T / adapter.coordinates_.scale**2, expected, atol=1e-6)
    variances = np.linalg.eigvalsh(covariance(np.concatenate([zs, zt])))
    assert np.average(variances, weights=variances) == pytest.approx(1)


def test_null_space_of_the_samples_is_left_alone():
    xs, xt = sample(5, 8, 0), sample(4, 8, 1)
    span = np.concatenate([xs - xs.mean(axis=0), xt - xt.mean(axis=0)])
    away = null_space(span)[:, 0]
    for adapter in (CORAL(), KGOT("linear")):
        adapter.fit_source_target(xs, None, xt)
        step = adapter.transform(xs + away, sample_domain=1) - adapter.transform(xs, sample_domain=1)
        np.testing.assert_allclose(step, np.tile(away, (5, 1)), atol=1e-9)
