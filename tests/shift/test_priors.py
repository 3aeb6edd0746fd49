"""Class frequencies and their test, against known populations and SciPy."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

from bures.shift._label_test import label_test
from bures.shift._priors import class_weights, counted_frequencies, estimated_frequencies


def confused(rng, frequencies, confusion, n):
    """True and predicted classes where class c is predicted as k with probability confusion[k, c]."""
    true = rng.choice(len(frequencies), size=n, p=frequencies)
    return true, (rng.random(n) > np.cumsum(confusion, axis=0)[:, true]).sum(axis=0)


def test_the_statistic_is_pearsons_and_the_p_value_agrees_with_its_limit():
    count_s, count_t = np.array([30, 50, 20]), np.array([45, 60, 45])
    statistic, p_value = label_test(count_s, count_t, 20_000, np.random.default_rng(0))
    expected = chi2_contingency(np.stack([count_s, count_t]), correction=False)
    assert statistic == pytest.approx(expected.statistic)
    assert p_value == pytest.approx(expected.pvalue, abs=0.01)


def test_the_p_value_is_never_zero_and_one_where_nothing_differs():
    rng = np.random.default_rng(0)
    assert label_test(np.array([100, 0]), np.array([0, 100]), 99, rng)[1] == 1 / 100
    assert label_test(np.array([50, 50]), np.array([50, 50]), 99, rng)[1] == 1.0
    assert label_test(np.array([50]), np.array([20]), 99, rng)[1] == 1.0  # one class


def test_the_interval_of_the_estimate_covers_the_truth_about_as_often_as_it_says():
    """100 repetitions: 95 % less four standard errors, for every class."""
    source, target = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    confusion = np.array([[0.8, 0.1, 0.1], [0.1, 0.7, 0.1], [0.1, 0.2, 0.8]])
    covered, errors = np.zeros(3), np.zeros(3)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        true, predicted = confused(rng, source, confusion, 300)
        joint = np.bincount(3 * predicted + true, minlength=9).reshape(3, 3)
        counts = np.bincount(confused(rng, target, confusion, 300)[1], minlength=3)
        found = estimated_frequencies(joint, counts, 100, rng)
        covered += (found.low <= target) & (target <= found.high)
        errors += found.target - target
    assert (covered / 100 > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 100)).all()
    assert (np.abs(errors / 100) < 0.02).all()  # counting predictions would be off by 0.05 and more


def test_counted_frequencies_and_total_variation():
    found = counted_frequencies(np.array([30, 10, 0]), np.array([10, 20, 10]), 200, np.random.default_rng(0))
    np.testing.assert_allclose(found.target, [0.25, 0.5, 0.25])
    np.testing.assert_allclose(found.weights, [1 / 3, 2, 0])
    assert found.total_variation == pytest.approx(0.5)
    assert ((found.low < found.target) & (found.target < found.high)).all()
    assert np.isnan(counted_frequencies(np.array([1, 1]), np.array([1, 1]), 0, np.random.default_rng(0)).low).all()


def test_weights_have_mean_one_over_the_source_also_where_a_class_is_cut_off_at_zero():
    joint = torch.tensor([[0.4, 0.2, 0.0], [0.1, 0.1, 0.0], [0.0, 0.0, 0.2]], dtype=torch.float64)
    weights = class_weights(joint, torch.tensor([0.9, 0.02, 0.08], dtype=torch.float64))
    assert weights[1] == 0
    assert float(weights @ joint.sum(dim=0)) == pytest.approx(1)


def test_an_estimate_of_many_samples_is_hardly_pulled_to_equal_weights():
    """Without the ridge the counts below give the frequencies exactly."""
    joint = np.array([[400, 120], [100, 380]])
    found = estimated_frequencies(joint, (joint @ [0.4, 1.6]).astype(int), 0, np.random.default_rng(0))
    np.testing.assert_allclose(found.target, [0.2, 0.8], atol=1e-3)
    assert np.isnan(found.low).all()
