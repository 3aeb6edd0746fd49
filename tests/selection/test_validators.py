"""Validators against closed forms, definitions written out in NumPy, and the distances they are named after."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import bures
from bures.metrics._problem import ConditionalProblem
from bures.selection import (
    Evidence,
    controlled_risk,
    importance_weights,
    information,
    make_validator,
    negative_ckb,
    negative_ckw,
    negative_dev,
    negative_entropy,
    negative_iwcv,
    neighbourhood_density,
    relative_nuclear_norm,
    reverse_accuracy,
    source_accuracy,
    validator_names,
    weighted_risk,
)
from bures.selection import _predictions as predictions_module
from bures.selection._distances import shared_distances


def softmax_rows(n, k, seed=0, scale=2.0):
    z = np.exp(scale * np.random.default_rng(seed).normal(size=(n, k)))
    return z / z.sum(axis=1, keepdims=True)


def domains(n=60, m=50, k=3, d=4, shift=0.5, seed=0):
    """Features of Gaussian classes, source labels, and true target labels."""
    rng = np.random.default_rng(seed)
    ys, yt = np.arange(n) % k, np.arange(m) % k
    centres = 4 * rng.normal(size=(k, d))
    return centres[ys] + rng.normal(size=(n, d)), ys, centres[yt] + rng.normal(size=(m, d)) + shift, yt


def test_entropy_and_information_are_those_of_scipy():
    p = softmax_rows(30, 5)
    entropies = stats.entropy(p, axis=1)
    assert negative_entropy(p) == pytest.approx(-entropies.mean(), rel=1e-12)
    assert information(p) == pytest.approx(stats.entropy(p.mean(axis=0)) - entropies.mean(), rel=1e-12)


@pytest.mark.parametrize("chunk", [1, 100, 2**22])
def test_neighbourhood_density_is_the_mean_entropy_over_the_others(chunk, monkeypatch):
    monkeypatch.setattr(predictions_module, "CHUNK", chunk)
    p = softmax_rows(23, 4)
    f = p / np.linalg.norm(p, axis=1, keepdims=True)
    entropies = []
    for i in range(23):
        weights = np.exp(np.array([f[i] @ f[j] for j in range(23) if j != i]) / 0.05)
        entropies.append(stats.entropy(weights))
    assert neighbourhood_density(p) == pytest.approx(np.mean(entropies), rel=1e-10)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_neighbourhood_density_of_pure_clusters(size):
    """With orthogonal one-hot clusters only the members of a cluster are neighbours; in one cluster, all are."""
    clusters = np.repeat(np.eye(5), size, axis=0)
    assert neighbourhood_density(clusters, temperature=0.01) == pytest.approx(math.log(size - 1), abs=1e-12)
    collapsed = np.repeat([[1.0, 0.0]], 40, axis=0)
    assert neighbourhood_density(collapsed) == pytest.approx(math.log(39), rel=1e-12)


def test_of_many_samples_the_same_part_is_taken_every_time():
    p = softmax_rows(200, 3)
    small = neighbourhood_density(p, max_samples=50)
    assert small == neighbourhood_density(p, max_samples=50) != neighbourhood_density(p)
    assert small <= math.log(49)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=5).filter(lambda counts: sum(counts) > 0))
def test_nuclear_norm_of_sure_predictions_is_the_sum_of_roots_of_the_counts(counts):
    p = np.eye(len(counts))[np.repeat(np.arange(len(counts)), counts)]
    largest = math.sqrt(len(p) * min(p.shape))
    assert relative_nuclear_norm(p) == pytest.approx(np.sqrt(counts).sum() / largest, rel=1e-7)


@pytest.mark.parametrize("shape", [(40, 6), (5, 9)])
def test_nuclear_norm_is_that_of_numpy(shape):
    p = softmax_rows(*shape)
    expected = np.linalg.norm(p, "nuc") / math.sqrt(shape[0] * min(shape))
    assert relative_nuclear_norm(p) == pytest.approx(expected, rel=1e-9)


def test_two_distances_of_the_same_evidence_share_their_decomposition(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    xs, xt = (torch.randn(n, 5, generator=generator) for n in (40, 30))
    ys, p = torch.arange(40) % 3, torch.randn(30, 3, generator=generator).softmax(dim=1)
    apart = negative_ckb(xs, ys, xt, p), negative_ckw(xs, ys, xt, p)
    calls = []
    original = ConditionalProblem.squared_distance
    monkeypatch.setattr(ConditionalProblem, "squared_distance", lambda own: calls.append(own) or original(own))
    with shared_distances():
        assert (negative_ckb(xs, ys, xt, p), negative_ckw(xs, ys, xt, p)) == apart
        assert len(calls) == 1
        assert negative_ckw(xs, ys, xt, p, pseudo_labels="hard") != apart[1]  # other options are another distance
        assert negative_ckb(xs + 1, ys, xt, p) != apart[0]  # and so are other samples
    assert len(calls) == 3
    negative_ckw(xs, ys, xt, p)
    assert len(calls) == 4


def test_work_is_shared_between_the_same_arrays_not_between_those_in_the_same_place():
    generator = torch.Generator().manual_seed(0)
    xs, xt = (torch.randn(n, 5, generator=generator) for n in (40, 30))
    ys, p = torch.arange(40) % 3, torch.randn(30, 3, generator=generator).softmax(dim=1)
    apart = [negative_ckb(factor * xs, ys, xt, p) for factor in range(1, 9)]
    with shared_distances():  # each product is gone when the next is made, which may then have its place
        assert [negative_ckb(factor * xs, ys, xt, p) for factor in range(1, 9)] == apart


@pytest.mark.parametrize(("score", "distance"), [(negative_ckb, bures.ckb), (negative_ckw, bures.ckw)])
def test_conditional_scores_are_the_distances_with_a_minus_sign(score, distance):
    xs, ys, xt, _ = domains()
    p = softmax_rows(50, 3, scale=1.0)
    assert score(xs, ys, xt, p) == pytest.approx(-distance(xs, ys, xt, p), rel=1e-9)
    hard = score(xs, ys, xt, p, pseudo_labels="hard", eps=0.1)
    assert hard == pytest.approx(-distance(xs, ys, xt, p.argmax(axis=1), eps=0.1), rel=1e-9)


def test_the_larger_conditional_score_is_that_of_the_better_model():
    xs, ys, xt, yt = domains()
    right, renamed = np.eye(3)[yt], np.eye(3)[(yt + 1) % 3]
    mixed = np.random.default_rng(0).permutation(right)
    assert negative_ckb(xs, ys, xt, right) > negative_ckb(xs, ys, xt, mixed)
    assert negative_ckb(xs, ys, xt, right) == pytest.approx(
        negative_ckb(xs, ys, xt, renamed), abs=1e-6
    )  # it cannot see
    assert negative_ckw(xs, ys, xt, right) > max(negative_ckw(xs, ys, xt, wrong) for wrong in (mixed, renamed))


def test_a_collapse_counts_against_a_model_although_classes_are_missing():
    """All of the target taken for one class: hard pseudo-labels leave the others out, soft ones do not."""
    xs, ys, xt, yt = domains()
    right, collapsed = np.eye(3)[yt], np.eye(3)[np.zeros_like(yt)]
    collapsed_x = xs[ys == 0].mean(axis=0) + 0.1 * (xt - xt.mean(axis=0))
    soft = negative_ckw(xs, ys, collapsed_x, collapsed)
    assert soft < negative_ckw(xs, ys, xt, right)
    assert soft < negative_ckw(xs, ys, collapsed_x, collapsed, pseudo_labels="hard")


@pytest.mark.parametrize("score", [negative_ckb, negative_ckw])
def test_features_that_are_one_point_have_no_score_and_nearly_constant_ones_do(score):
    ys, p = np.arange(20) % 2, softmax_rows(20, 2)
    point = np.full((20, 3), 0.7)
    assert math.isnan(score(point, ys, point, p))
    assert math.isfinite(score(point, ys, point + np.array([0, 0, 1e-3]), p))


def test_a_class_that_the_source_sample_lacks_gives_its_probability_to_the_others():
    xs, ys, xt, _ = domains(k=2)
    p = softmax_rows(50, 3)
    expected = p[:, :2] + p[:, 2:] / 2
    assert negative_ckw(xs, ys, xt, p) == pytest.approx(-bures.ckw(xs, ys, xt, expected), rel=1e-6)


def test_thousands_of_classes_and_a_single_one():
    k, n = 3000, 400
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, n, 4)), rng.integers(k, size=n)
    p = softmax_rows(n, k)
    many = Evidence(
        target_probabilities=p, target_features=x[0], source_features=x[1], source_labels=y,
        validation_features=x[2], validation_probabilities=p[::-1].copy(), validation_labels=y,
    )  # fmt: skip
    single = Evidence(
        target_probabilities=np.ones((n, 1)), target_features=x[0], source_features=x[1], source_labels=0 * y,
        validation_features=x[2], validation_probabilities=np.ones((n, 1)), validation_labels=0 * y,
    )  # fmt: skip
    for name in validator_names():
        assert math.isfinite(make_validator(name).score(many)), name
        assert math.isfinite(make_validator(name).score(single)), name
    for name in ("entropy", "im", "dev", "iwcv"):
        assert make_validator(name).score(single) == pytest.approx(0.0, abs=1e-9)


def test_reverse_validation_by_means_is_the_nearest_mean_of_the_pseudo_labelled_target():
    xs, ys, xt, yt = domains(shift=0.2)
    p = 0.9 * np.eye(3)[yt] + 0.1 / 3
    means = np.array([np.average(xt, axis=0, weights=p[:, c]) for c in range(3)])
    nearest = ((xs[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert reverse_accuracy(xs, ys, xt, p) == pytest.approx((nearest == ys).mean())
    assert reverse_accuracy(xs, ys, xt, np.eye(3)[(yt + 1) % 3]) < 0.1
    one = np.eye(3)[np.zeros_like(yt)]
    assert reverse_accuracy(xs, ys, xt, one) == pytest.approx((ys == 0).mean())


def test_reverse_validation_takes_any_classifier_and_leaves_it_alone():
    xs, ys, xt, yt = domains()
    classifier = LinearDiscriminantAnalysis()
    expected = LinearDiscriminantAnalysis().fit(xt, yt).score(xs, ys)
    validator = make_validator("reverse", classifier=classifier)
    evidence = Evidence(target_probabilities=np.eye(3)[yt], target_features=xt, source_features=xs, source_labels=ys)
    assert validator.score(evidence) == pytest.approx(expected)
    assert not hasattr(classifier, "classes_")
    assert reverse_accuracy(xs, ys, xt, np.eye(3)[0 * yt], classifier=classifier) == pytest.approx((ys == 0).mean())


def test_importance_weights_of_gaussians_are_the_closed_form():
    """N(0, 1) against N(a, 1): the ratio is exp(a x - a^2 / 2), also with unequal numbers of samples."""
    rng = np.random.default_rng(0)
    a = 0.8
    xs, xt = rng.normal(size=(40_000, 1)), a + rng.normal(size=(20_000, 1))
    at = np.linspace(-2, 2, 9)[:, None]
    found = importance_weights(xs, xt, at, max_samples=50_000)
    np.testing.assert_allclose(found, np.exp(a * at[:, 0] - a**2 / 2), rtol=0.06)


def test_importance_weights_without_a_shift_or_a_feature_are_one():
    x = np.random.default_rng(0).normal(size=(500, 2))
    np.testing.assert_allclose(importance_weights(x, x, x), 1.0, rtol=1e-3)
    constant = np.ones((50, 2))
    np.testing.assert_allclose(importance_weights(constant, constant[:10], constant), 1.0, rtol=1e-2)
    apart = importance_weights(x, x + 1e6, x)
    assert bool(torch.isfinite(apart).all())


def test_risks_are_their_formulas():
    rng = np.random.default_rng(0)
    losses, weights = rng.exponential(size=30), rng.exponential(size=30)
    assert weighted_risk(losses, weights) == pytest.approx((losses * weights).mean())
    weighted = losses * weights
    covariance = np.cov(weighted, weights, ddof=0)
    eta = -covariance[0, 1] / covariance[1, 1]
    assert controlled_risk(losses, weights) == pytest.approx(weighted.mean() + eta * weights.mean() - eta)
    assert controlled_risk(losses, np.ones(30)) == pytest.approx(losses.mean())


def test_the_control_variate_takes_variance_away_and_both_estimate_the_targets_risk():
    """Source N(0, 1), target N(1, 1), loss x: the risk in the target is 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 200)) + 0.0
    w = np.exp(x - 0.5)
    plain = np.array([weighted_risk(*pair) for pair in zip(x + 3, w, strict=True)])
    controlled = np.array([controlled_risk(*pair) for pair in zip(x + 3, w, strict=True)])
    assert plain.mean() == pytest.approx(4.0, abs=0.1)
    assert controlled.mean() == pytest.approx(4.0, abs=0.1)
    assert controlled.std() < 0.7 * plain.std()


def test_weighted_validators_are_weights_times_losses():
    xs, _, xt, _ = domains()
    xv, yv, *_ = domains(n=40, seed=1)
    p = softmax_rows(40, 3)
    weights = importance_weights(xs, xt, xv).numpy()
    cross_entropy, wrong = -np.log(p[np.arange(40), yv]), (p.argmax(axis=1) != yv).astype(float)
    assert negative_iwcv(xs, xt, xv, p, yv) == pytest.approx(-(weights * cross_entropy).mean())
    assert negative_iwcv(xs, xt, xv, p, yv, loss="zero-one") == pytest.approx(-(weights * wrong).mean())
    assert negative_dev(xs, xt, xv, p, yv, loss="zero-one") == pytest.approx(-controlled_risk(wrong, weights))
    assert source_accuracy(p, yv) == pytest.approx(1 - wrong.mean())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_validator("oracle"), "validator='oracle' is unknown; accepted are 'bnm', 'ckb', .*'source'"),
        (lambda: make_validator("snd", tau=1), "validator 'snd' has no option 'tau'; accepted are: temperature, max"),
        (lambda: make_validator("im", tau=1), "validator 'im' has no option 'tau'; accepted are: none"),
        (lambda: neighbourhood_density(np.eye(3), temperature=0), "temperature=0.0 is out of range"),
        (lambda: neighbourhood_density(np.eye(3), max_samples=-1), "max_samples=-1 is out of range"),
        (lambda: negative_ckw(np.eye(2), [0, 1], np.eye(2), np.eye(2), pseudo_labels="no"), "pseudo_labels='no' is"),
        (lambda: negative_ckw(np.eye(2), [0, 2], np.eye(2), np.eye(2)), "source_labels contains class 2; .*0 to 1"),
        (lambda: negative_ckw(np.eye(2), [0], np.eye(2), np.eye(2)), "source_labels has 1 rows but there are 2"),
        (lambda: importance_weights(np.eye(2), np.eye(3), np.eye(2)), "have 2, 3 and 2 columns"),
        (lambda: weighted_risk([], []), "losses has shape"),
        (lambda: weighted_risk([1.0], [-1.0]), "weights contains the negative weight"),
        (lambda: negative_iwcv(*np.ones((3, 2, 2)), np.eye(2), [0, 1], loss="hinge"), "loss='hinge' is unknown"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(TypeError, match=r"max_samples=0\.5 is not an integer"):
        neighbourhood_density(np.eye(3), max_samples=0.5)
    assert math.isnan(neighbourhood_density(np.eye(2)[:1]))
