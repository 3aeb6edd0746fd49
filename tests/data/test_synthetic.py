"""Synthetic domains have the structure they claim."""

import numpy as np
import pytest
import reference

import bures
from bures.data import DomainPair, GaussianClasses, drifting_class, exchanged_regions, rotated_moons

FREQUENCIES = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.0, 0.0], [3.0, 1.0], [-2.0, 4.0]])
COVARIANCES = np.array([[[1.0, 0.3], [0.3, 0.5]], [[2.0, -0.5], [-0.5, 1.0]], [[0.2, 0.0], [0.0, 3.0]]])
POPULATION = GaussianClasses(FREQUENCIES, MEANS, COVARIANCES)


def test_samples_have_the_frequencies_means_and_covariances_of_the_population():
    n = 40_000
    x, y = POPULATION.sample(n, 0)
    assert x.shape == (n, 2)
    for c in range(3):
        count = np.sum(y == c)
        assert count / n == pytest.approx(FREQUENCIES[c], abs=5 * np.sqrt(0.25 / n))
        spread = np.sqrt(np.diag(COVARIANCES[c]) / count)
        assert (np.abs(x[y == c].mean(0) - MEANS[c]) < 5 * spread).all()
        np.testing.assert_allclose(reference.covariance(x[y == c]), COVARIANCES[c], atol=5 * 3 * np.sqrt(2 / count))


def test_singular_covariances_are_sampled_within_their_range():
    flat = GaussianClasses([1.0], [[1.0, 2.0]], [[[4.0, 0.0], [0.0, 0.0]]])
    x, _ = flat.sample(200, 1)
    np.testing.assert_allclose(x[:, 1], 2.0, atol=1e-12)
    assert x[:, 0].std() > 1


@pytest.mark.parametrize("label_bandwidth", [None, 0.7])
@pytest.mark.parametrize("eps", [1e-4, 1e-2, 1.0])
def test_conditional_covariance_is_the_regularised_residual_of_the_population_moments(eps, label_bandwidth):
    """Total covariance less what a ridge regression on the one-hot classes explains, written out by hand."""
    mean = sum(f * m for f, m in zip(FREQUENCIES, MEANS, strict=True))
    total = sum(f * (c + np.outer(m - mean, m - mean)) for f, m, c in zip(FREQUENCIES, MEANS, COVARIANCES, strict=True))
    s_yy = np.array([[f * (i == j) - f * g for j, g in enumerate(FREQUENCIES)] for i, f in enumerate(FREQUENCIES)])
    s_xy = np.column_stack([f * (m - mean) for f, m in zip(FREQUENCIES, MEANS, strict=True)])
    different = sum(f * g for i, f in enumerate(FREQUENCIES) for j, g in enumerate(FREQUENCIES) if i != j)
    sigma2 = 2 * different if label_bandwidth is None else label_bandwidth
    ridge = eps / (1 - np.exp(-2 / sigma2))
    expected = total - s_xy @ np.linalg.inv(s_yy + ridge * np.eye(3)) @ s_xy.T
    value = POPULATION.conditional_covariance(eps, label_bandwidth=label_bandwidth)
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-10 * np.trace(expected))


def test_without_regulariser_only_the_variance_within_classes_is_left():
    within = np.einsum("c,cij->ij", FREQUENCIES, COVARIANCES)
    np.testing.assert_allclose(POPULATION.conditional_covariance(), within, rtol=1e-12)
    np.testing.assert_allclose(POPULATION.conditional_covariance(1e-9), within, rtol=0, atol=1e-6)


def test_the_conditional_covariance_of_one_class_is_its_covariance():
    alone = GaussianClasses([1.0], MEANS[:1], COVARIANCES[:1])
    np.testing.assert_allclose(alone.conditional_covariance(0.1), COVARIANCES[0], rtol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e-2])
def test_population_distance_is_definition_1_with_its_conditional_covariances(eps):
    other = GaussianClasses([0.2, 0.3, 0.5], MEANS[::-1], 2 * COVARIANCES[::-1])
    r_s, r_t = POPULATION.conditional_covariance(eps), other.conditional_covariance(eps)
    expected = reference.bures_covariance(r_s, r_t)
    assert POPULATION.ckb(other, eps) == pytest.approx(expected, rel=1e-9)
    assert POPULATION.ckb(other, eps) == pytest.approx(other.ckb(POPULATION, eps), rel=1e-9)
    assert abs(POPULATION.ckb(POPULATION, eps)) <= 1e-12 * np.trace(r_s)


def test_equal_populations_that_exchange_class_names_are_at_distance_zero():
    swapped = GaussianClasses(FREQUENCIES[[1, 0, 2]], MEANS[[1, 0, 2]], COVARIANCES[[1, 0, 2]])
    assert abs(POPULATION.ckb(swapped, 1e-2)) <= 1e-12 * np.trace(POPULATION.conditional_covariance(1e-2))


@pytest.mark.parametrize(
    ("frequencies", "means", "covariances", "message"),
    [
        ([0.5, 0.6], MEANS[:2], COVARIANCES[:2], "frequencies sum to 1.1"),
        ([1.5, -0.5], MEANS[:2], COVARIANCES[:2], ">= 0"),
        ([0.5, 0.5], MEANS, COVARIANCES, "means has shape"),
        ([0.5, 0.5], MEANS[:2], COVARIANCES, "covariances"),
    ],
)
def test_populations_that_are_none_are_refused(frequencies, means, covariances, message):
    with pytest.raises(ValueError, match=message):
        GaussianClasses(frequencies, means, covariances)


@pytest.mark.parametrize("make", [drifting_class, exchanged_regions, rotated_moons], ids=lambda f: f.__name__)
def test_a_seed_fixes_the_samples(make):
    first, again, other = make(50, seed=1), make(50, seed=1), make(50, seed=2)
    assert isinstance(first, DomainPair)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.xs, other.xs)
    assert [len(part) for part in first] == [50] * 4


def test_drift_moves_the_first_class_of_the_target_and_nothing_else():
    still, drifted = drifting_class(3000, drift=0.0, seed=3), drifting_class(3000, drift=2.0, seed=3)
    np.testing.assert_array_equal(still.xs, drifted.xs)
    np.testing.assert_array_equal(still.yt, drifted.yt)
    for c in (1, 2):
        np.testing.assert_allclose(still.xt[still.yt == c], drifted.xt[drifted.yt == c])
    first = still.yt == 0
    moved = drifted.xt[first].mean(0) - still.xt[first].mean(0)
    np.testing.assert_allclose(moved, 2 * np.array([0.8, -0.6]), atol=0.1)
    assert np.trace(reference.covariance(drifted.xt[first])) > 2 * np.trace(reference.covariance(still.xt[first]))


def test_without_drift_both_domains_are_samples_of_one_distribution():
    pair = drifting_class(4000, drift=0.0, seed=4)
    for c in range(3):
        a, b = pair.xs[pair.ys == c], pair.xt[pair.yt == c]
        np.testing.assert_allclose(a.mean(0), b.mean(0), atol=0.1)
        np.testing.assert_allclose(reference.covariance(a), reference.covariance(b), atol=0.06)


def test_distance_grows_with_the_drift():
    values = [bures.ckb(*drifting_class(150, drift=drift, seed=5)) for drift in (0.0, 1.0, 2.0, 4.0)]
    assert values == sorted(values)
    assert values[-1] > 5 * values[0]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_exchanged_regions_leave_the_marginals_alone(share):
    pair = exchanged_regions(6000, share=share, seed=6)
    assert abs(pair.ys.mean() - pair.yt.mean()) < 5 * np.sqrt(0.5 / 6000)
    np.testing.assert_allclose(pair.xs.mean(0), pair.xt.mean(0), atol=0.15)
    np.testing.assert_allclose(reference.covariance(pair.xs), reference.covariance(pair.xt), atol=0.25)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_samples_that_change_class_is_half_of_share(share):
    """The second lobes hold half of the samples; they lie at x = 0.6 above and 2.5 below."""
    pair = exchanged_regions(6000, share=share, seed=7)
    upper = pair.xt[:, 1] > 0  # the lobes of the first class
    assert np.mean(np.where(upper, 0, 1) != pair.yt) == pytest.approx(share / 2, abs=0.03)
    assert np.mean(np.where(pair.xs[:, 1] > 0, 0, 1) != pair.ys) < 0.01


def test_exchanged_regions_are_seen_by_conditional_distances_only():
    still, exchanged = exchanged_regions(200, share=0.0, seed=8), exchanged_regions(200, share=1.0, seed=8)
    # The same seed and the same regions: the points are the same, only the classes of the target differ.
    np.testing.assert_array_equal(still.xt, exchanged.xt)
    assert bures.ckw(*exchanged) > 5 * bures.ckw(*still)
    assert bures.mmd(exchanged.xs, exchanged.xt) == pytest.approx(bures.mmd(still.xs, still.xt), rel=1e-12)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_is_a_number_from_zero_to_one(share):
    with pytest.raises(ValueError, match="share="):
        exchanged_regions(10, share=share)


def turned(x, degrees):
    """Points turned counterclockwise about the origin, as complex numbers."""
    z = (x[:, 0] + 1j * x[:, 1]) * np.exp(1j * np.radians(degrees))
    return np.column_stack([z.real, z.imag])


def in_order(x, y):
    return np.array(sorted(zip(y, x[:, 0].round(9), x[:, 1].round(9), strict=True)))


@pytest.mark.parametrize("angle", [0.0, 30.0, -75.0, 180.0])
def test_moons_without_noise_are_the_same_figure_turned(angle):
    pair = rotated_moons(101, angle=angle, noise=0.0, seed=9)
    assert sorted(np.bincount(pair.ys)) == [50, 51]
    np.testing.assert_allclose(in_order(turned(pair.xs, angle), pair.ys), in_order(pair.xt, pair.yt), atol=1e-8)


def test_moons_are_turned_about_their_centre():
    pair = rotated_moons(4000, angle=70.0, noise=0.1, seed=10)
    np.testing.assert_allclose(pair.xs.mean(0), 0, atol=5 * 1.0 / np.sqrt(4000))
    np.testing.assert_allclose(pair.xt.mean(0), 0, atol=5 * 1.0 / np.sqrt(4000))


def test_the_target_turned_back_has_the_law_of_the_source():
    pair = rotated_moons(4000, angle=40.0, noise=0.2, seed=11)
    back = turned(pair.xt, -40.0)
    for c in range(2):
        a, b, seen = pair.xs[pair.ys == c], back[pair.yt == c], pair.xt[pair.yt == c]
        np.testing.assert_allclose(a.mean(0), b.mean(0), atol=0.05)
        np.testing.assert_allclose(reference.covariance(a), reference.covariance(b), atol=0.05)
        assert np.abs(a.mean(0) - seen.mean(0)).max() > 0.1


def test_noise_is_the_spread_around_the_moons():
    """Points of the upper moon lie at radius one from its own centre, which is (0, 0) before the figure is centred."""
    pair = rotated_moons(4000, noise=0.05, seed=12)
    upper = pair.xs[pair.ys == 0] + [0.5, 0.25]
    assert (np.linalg.norm(upper, axis=1) - 1).std() == pytest.approx(0.05, rel=0.1)


def test_the_conditional_distances_of_moons_grow_with_the_angle():
    for distance in (bures.ckb, bures.ckw):
        values = [distance(*rotated_moons(150, angle=angle, seed=13)) for angle in (0.0, 30.0, 60.0, 90.0)]
        assert values == sorted(values)
        assert values[-1] > 5 * values[0]


def test_moons_upside_down_have_exchanged_their_classes():
    still, over = rotated_moons(200, angle=0.0, seed=14), rotated_moons(200, angle=180.0, seed=14)
    assert bures.mmd(over.xs, over.xt) < 0.02
    assert bures.ckw(*over) > 5 * bures.ckw(*still)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 1}, "n=1 is out of range; accepted is an integer of at least 2"),
        ({"noise": -0.1}, r"noise=-0\.1 is out of range; accepted is a number of at least 0"),
        ({"noise": float("nan")}, "noise=nan is out of range"),
        ({"angle": float("inf")}, "angle=inf is out of range"),
    ],
)
def test_moons_that_are_none_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rotated_moons(**options)
    for n in (10.0, True):
        with pytest.raises(TypeError, match=f"n={n} is not an integer; accepted is an integer of at least 2"):
            rotated_moons(n=n)
