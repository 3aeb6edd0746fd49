"""Calibration against closed forms: bins that can be counted by hand, temperatures that can be solved for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from bures.data import HiddenLabels
from bures.selection import (
    Bin,
    expected_calibration_error,
    fit_temperature,
    importance_weights,
    reliability,
    scale_probabilities,
)


def binary(confidences):
    c = np.asarray(confidences, dtype=float)
    return np.stack([c, 1 - c], axis=1)


def logit(q):
    return math.log(q / (1 - q))


def test_bins_are_counted_by_hand():
    p = binary([0.55, 0.65, 0.95, 0.95, 1.0])
    y = np.array([0, 1, 0, 1, 0])
    found = reliability(p, y, n_bins=10)
    assert found.bins == (
        Bin(1, pytest.approx(0.55), 1.0),
        Bin(1, pytest.approx(0.65), 0.0),
        Bin(3, pytest.approx(2.9 / 3), pytest.approx(2 / 3)),
    )
    expected = (0.45 + 0.65 + 0.9) / 5
    assert found.error == pytest.approx(expected) == expected_calibration_error(p, y, n_bins=10)
    assert HiddenLabels(y, ("a", "b")).reliability(p) == reliability(p, y)
    assert found.to_dict()["bins"][0]["samples"] == 1


def test_the_error_is_that_of_a_loop_over_bins():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=300)
    y = rng.integers(4, size=300)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    error = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert expected_calibration_error(p, y) == pytest.approx(error)


def test_a_confidence_on_a_border_and_a_single_bin():
    p, y = binary([0.6, 0.8, 0.8, 0.8, 0.8]), np.array([0, 0, 0, 0, 1])
    assert [part.samples for part in reliability(p, y, n_bins=5).bins] == [1, 4]
    assert reliability(p, y, n_bins=np.int64(5)) == reliability(p, y, n_bins=5)
    whole = reliability(p, y, n_bins=1)
    assert whole.error == pytest.approx(abs(0.8 - p.max(axis=1).mean()))


@given(st.floats(0.55, 0.99), st.integers(6, 19))
def test_the_temperature_of_one_confidence_is_the_ratio_of_logits(confidence, right):
    """All predictions alike and q of them right: sigmoid(logit(c) / T) = q."""
    y = np.array([0] * right + [1] * (20 - right))
    q = right / 20
    if q <= 0.5:
        assert fit_temperature(binary([confidence] * 20), y) == pytest.approx(100.0)
        return
    expected = logit(confidence) / logit(q)
    assert fit_temperature(binary([confidence] * 20), y) == pytest.approx(min(max(expected, 0.01), 100), rel=1e-6)


def test_the_temperature_is_that_of_a_general_minimiser():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(200, 5))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    true = np.exp(z / 2.5) / np.exp(z / 2.5).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(5, p=row) for row in true])
    w = rng.exponential(size=200)

    def loss(t):
        q = np.exp(z / t) / np.exp(z / t).sum(axis=1, keepdims=True)
        return -(w * np.log(q[np.arange(200), y])).mean()

    expected = minimize_scalar(loss, bounds=(0.1, 20), method="bounded", options={"xatol": 1e-9}).x
    assert fit_temperature(p, y, sample_weight=w) == pytest.approx(expected, rel=1e-5)
    assert 1.5 < fit_temperature(p, y) < 4


def test_weights_make_the_temperature_that_of_the_target():
    """Two kinds of samples: sure and half of the time wrong, or rightly sure. The target has more of the first."""
    p = binary([0.9] * 40)
    kind = np.repeat([0, 1], 20)
    y = np.concatenate([np.repeat([0, 1], [12, 8]), np.repeat([0, 1], [19, 1])])
    frequencies = np.array([0.8, 0.2])
    weights = (frequencies / 0.5)[kind]
    accuracy = 0.8 * 12 / 20 + 0.2 * 19 / 20
    expected = logit(0.9) / logit(accuracy)
    assert fit_temperature(p, y, sample_weight=weights) == pytest.approx(expected, rel=1e-6)
    assert fit_temperature(p, y) == pytest.approx(logit(0.9) / logit(31 / 40), rel=1e-6)


def test_under_covariate_shift_the_weighted_temperature_calibrates_the_target():
    """The network is wrong where the target mostly is: its temperature there is higher than in the source."""
    rng = np.random.default_rng(0)

    def draw(mean, n):
        x = rng.normal(loc=mean, size=(n, 1))
        accuracy = 1 / (1 + np.exp(2 * x[:, 0] - 2.5))  # falls with x, P(Y|X) is the same everywhere
        return x, binary([0.95] * n), (rng.uniform(size=n) > accuracy).astype(int)

    xs, *_ = draw(0.0, 4000)
    xv, pv, yv = draw(0.0, 4000)
    xt, pt, yt = draw(1.0, 4000)
    plain = fit_temperature(pv, yv)
    weighted = fit_temperature(pv, yv, sample_weight=importance_weights(xs, xt, xv))
    known = fit_temperature(pt, yt)  # what target labels would give
    assert abs(1 / weighted - 1 / known) < 0.35 * abs(1 / plain - 1 / known)
    errors = [expected_calibration_error(scale_probabilities(pt, t), yt) for t in (1.0, plain, weighted)]
    assert errors[2] < errors[1] < errors[0]


def test_scaling_is_a_softmax_of_divided_logits_and_keeps_the_class():
    z = np.random.default_rng(0).normal(size=(30, 4)) * 5
    p = torch.as_tensor(z).softmax(dim=1)
    for t in (0.5, 1.0, 3.0):
        scaled = scale_probabilities(p, t)
        torch.testing.assert_close(scaled, (torch.as_tensor(z) / t).softmax(dim=1), rtol=1e-6, atol=1e-12)
        assert torch.equal(scaled.argmax(dim=1), p.argmax(dim=1))
    assert scale_probabilities(p.float(), 2.0).dtype == torch.float32
    vanished = scale_probabilities(np.array([[1.0, 0.0]]), 50.0)
    assert 0.5 < float(vanished[0, 0]) < 1


def test_ends_of_the_scale():
    assert fit_temperature(binary([0.9] * 4), [0, 0, 0, 0]) == 0.01  # always right: surer still
    assert fit_temperature(binary([0.9] * 4), [0, 0, 1, 1]) == 100.0  # says nothing
    assert fit_temperature(np.full((4, 2), 0.5), [0, 0, 1, 1]) == 1.0  # no temperature changes it
    assert fit_temperature(np.ones((4, 1)), [0, 0, 0, 0]) == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_calibration_error(binary([0.9]), [0], n_bins=0), "n_bins=0 is out of range"),
        (lambda: expected_calibration_error(binary([0.9]), [0, 1]), "labels has 2 entries but there are 1 rows"),
        (lambda: expected_calibration_error(binary([0.9]), [2]), "labels contains class 2"),
        (lambda: scale_probabilities(binary([0.9]), 0.0), "temperature=0.0 is out of range"),
        (lambda: fit_temperature(binary([0.9]), [0], sample_weight=[0.0]), "sample_weight is zero for every sample"),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
