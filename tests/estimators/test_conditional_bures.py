"""The conditional Bures adapter: its objective is the library's distance, and its map brings it down."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad
from sklearn.naive_bayes import GaussianNB

import bures
from bures.estimators import AdaptedClassifier, ConditionalBuresAdapter
from bures.estimators._alignment import AffineMap, Alignment


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    zs, codes = rng.normal(size=(20, 3)), np.arange(20) % 3
    zt, pt = 1 + rng.normal(size=(15, 3)) * 2, rng.dirichlet(np.full(3, 0.5), size=15)
    return zs + codes[:, None], codes, zt, pt


@pytest.mark.parametrize("distance", ["ckb", "ckw"])
@pytest.mark.parametrize("eps", [1e-2, "auto"])
@pytest.mark.parametrize("rows", [20, 2], ids=["n>r", "n<r"])
def test_the_objective_is_the_distance_of_the_library(problem, distance, eps, rows):
    zs, codes, zt, pt = problem
    zs, codes = zs[:rows], codes[:rows]
    rng = np.random.default_rng(1)
    mapping = AffineMap(zs.mean(axis=0), rng.normal(size=(3, 3)), rng.normal(size=3))
    alignment = Alignment.fit(zs, codes, zt, pt, distance=distance, eps=eps, reg=1.0)
    moved = zs + mapping.displacement(zs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bures.MissingClassWarning)
        expected = getattr(bures, distance)(moved, codes, zt, pt, kernel="linear", eps=eps)
    assert alignment.value(mapping) == pytest.approx(expected, rel=1e-9)


def test_the_gradient_is_that_of_differences(problem):
    alignment = Alignment.fit(*problem, distance="ckw", eps=1e-2, reg=1.0)

    def read(parameters):
        leaf = torch.tensor(parameters).reshape(4, 3).requires_grad_()
        return leaf, alignment.squared_distance(leaf[:3], leaf[3])

    def gradient(parameters):
        leaf, value = read(parameters)
        value.backward()
        return leaf.grad.numpy().ravel()

    start = np.random.default_rng(2).normal(size=12)
    assert check_grad(lambda p: read(p)[1].item(), gradient, start) < 1e-5 * np.abs(gradient(start)).max()


@pytest.mark.parametrize("distance", ["ckb", "ckw"])
def test_a_light_ridge_reaches_the_target_and_a_heavy_one_stays(problem, distance):
    zs, codes, _, _ = problem
    matrix = np.array([[2.0, 0.5, 0.0], [0.5, 1.5, 0.0], [0.0, 0.0, 0.5]])
    zt, rows = zs @ matrix + [1.0, -2.0, 3.0], np.eye(3)[codes]
    start = AffineMap.identity(zs)
    light = Alignment.fit(zs, codes, zt, rows, distance=distance, eps=1e-2, reg=1e-9)
    heavy = Alignment.fit(zs, codes, zt, rows, distance=distance, eps=1e-2, reg=1e6)
    reached, stayed = light.minimise(start, 2000)[0], heavy.minimise(start, 2000)[0]
    assert light.value(reached) < 1e-4 * light.value(start)
    np.testing.assert_allclose(stayed.matrix, np.eye(3), atol=1e-4)
    if distance == "ckw":  # positive definite, so that the shortest way to the target is the map itself
        np.testing.assert_allclose(zs + reached.displacement(zs), zt, atol=0.05)
    else:
        np.testing.assert_array_equal(reached.shift, 0)


def test_with_equal_domains_nothing_moves(problem):
    zs, codes, _, _ = problem
    alignment = Alignment.fit(zs, codes, zs, np.eye(3)[codes], distance="ckw", eps=1e-2, reg=0.1)
    found, _ = alignment.minimise(AffineMap.identity(zs), 100)
    np.testing.assert_allclose(found.displacement(zs), 0, atol=1e-5)


def test_the_result_does_not_depend_on_units_or_origin():
    xs, ys, xt, _ = bures.data.drifting_class(60, drift=1.0)
    # Naive Bayes sees no units; the ridge of a logistic regression would.
    options = {"estimator": GaussianNB(), "n_rounds": 2}
    reference = ConditionalBuresAdapter(**options).fit_source_target(xs, ys, xt).transform(xs, sample_domain=1)
    scaled = ConditionalBuresAdapter(**options).fit_source_target(1e3 * xs + 7, ys, 1e3 * xt + 7)
    np.testing.assert_allclose((scaled.transform(1e3 * xs + 7, sample_domain=1) - 7) / 1e3, reference, atol=1e-3)


def test_off_the_principal_components_the_map_is_the_identity():
    rng = np.random.default_rng(0)
    xs, xt, ys = rng.normal(size=(40, 6)), 2 * rng.normal(size=(30, 6)) + 1, np.arange(40) % 2
    adapter = ConditionalBuresAdapter(n_components=2).fit_source_target(xs, ys, xt)
    axes = adapter.coordinates_.axes
    step = adapter.transform(xs, sample_domain=1) - xs
    assert np.abs(step @ axes).max() > 0.1
    np.testing.assert_allclose(step - step @ axes @ axes.T, 0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("distance", ["ckb", "ckw"])
def test_the_distance_to_the_target_falls(distance, kernel):
    xs, ys, xt, _ = bures.data.drifting_class(80, drift=1.0)
    adapter = ConditionalBuresAdapter(distance, kernel=kernel, n_components=30, reg=1e-2)
    adapter.fit_source_target(xs, ys, xt)
    zt = adapter.transform(xt, sample_domain=[-1] * 80)
    before = adapter.transform(xs, sample_domain=[-1] * 80)
    metric = getattr(bures, distance)
    start, end = (
        metric(z, ys, zt, adapter.pseudo_labels_, kernel="linear")
        for z in (before, adapter.transform(xs, sample_domain=1))
    )
    assert end < 0.5 * start
    assert adapter.distances_[-1] * adapter.scale_**2 == pytest.approx(end, rel=1e-6)


def test_rounds_end_when_no_pseudo_label_changes():
    xs, ys, xt, _ = bures.data.drifting_class(60, drift=0.0)
    adapter = ConditionalBuresAdapter(n_rounds=20).fit_source_target(xs, ys, xt)
    assert 1 <= adapter.n_rounds_ < 20
    assert len(adapter.distances_) == adapter.n_rounds_
    assert ConditionalBuresAdapter(n_rounds=1).fit_source_target(xs, ys, xt).n_rounds_ == 1


def test_a_turned_target_is_followed():
    # Two flat classes, one above the other: what tells them apart is a direction of little variance, which turns.
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    xs = rng.normal(size=(400, 2)) * [1.0, 0.2] + np.where(y, 1.0, -1.0)[:, None] * [0.0, 0.5]
    angle = np.radians(35)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    xt = (rng.normal(size=(400, 2)) * [1.0, 0.2] + np.where(y, 1.0, -1.0)[:, None] * [0.0, 0.5]) @ turn.T
    plain = AdaptedClassifier().fit_source_target(xs, y, xt).score(xt, y)
    adapted = AdaptedClassifier(ConditionalBuresAdapter()).fit_source_target(xs, y, xt).score(xt, y)
    assert adapted > plain + 0.05
