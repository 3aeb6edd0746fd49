"""The numbers of a report: calibration, planes and distances by their definitions."""

import folders
import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import bures
from bures.report import reliability
from bures.report._plane import GRID, on_grid, principal_plane, tsne_plane
from bures.report._shift import measure_shift
from bures.report._svg import Change, Series, line_chart, nice_ticks, shift_chart
from bures.report._words import points
from bures.training._kept import read_kept


def expected_calibration_error(confidence, right, bins):
    """By its definition, one bin after the other."""
    total = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            total += inside.sum() / len(confidence) * abs(right[inside].mean() - confidence[inside].mean())
    return total


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_calibration_error_is_that_of_the_definition(bins):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.1, 1.0, size=500)
    right = rng.random(500) < confidence**2
    result = reliability(confidence, right, bins=bins)
    assert result.ece == pytest.approx(expected_calibration_error(confidence, right, bins), abs=1e-12)
    assert result.counts.sum() == 500
    assert result.overconfidence == pytest.approx(confidence.mean() - right.mean(), abs=1e-12)


def test_a_model_that_is_right_as_often_as_it_says_has_no_error():
    confidence = np.repeat([0.25, 0.5, 1.0], 4)
    right = np.array([1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1], dtype=bool)
    assert reliability(confidence, right, bins=10).ece == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("confidence", "right", "message"),
    [
        ([], [], "not empty"),
        ([0.5], [True, False], r"shape \(1,\) and right \(2,\)"),
        ([1.5], [True], "accepted are probabilities"),
        ([np.nan], [True], "accepted are probabilities"),
    ],
)
def test_confidences_that_are_none_are_refused(confidence, right, message):
    with pytest.raises(ValueError, match=message):
        reliability(confidence, right)


def test_the_plane_is_that_of_the_principal_components():
    x = np.random.default_rng(0).normal(size=(40, 6)) @ np.diag([5, 3, 1, 1, 0.5, 0.1])
    expected = PCA(2).fit_transform(x)
    np.testing.assert_allclose(np.abs(principal_plane(x)), np.abs(expected), atol=1e-9)
    assert principal_plane(x[:, :1]).shape == (40, 2)
    assert not principal_plane(np.ones((5, 3))).any()


def test_places_keep_their_proportions_on_the_grid():
    plane = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    grid = on_grid(plane)
    assert grid.min() >= 0
    assert grid.max() == GRID
    assert grid[1, 0] - grid[0, 0] == pytest.approx(2 * (grid[2, 1] - grid[0, 1]), abs=2)
    assert len(set(map(tuple, on_grid(np.zeros((3, 2))).tolist()))) == 1


def test_tsne_parts_classes_and_refuses_what_has_no_plane():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(30, 4)), rng.normal(size=(30, 4)) + 20])
    plane = tsne_plane(x)
    within = np.linalg.norm(plane[:30] - plane[:30].mean(axis=0), axis=1).mean()
    assert np.linalg.norm(plane[:30].mean(axis=0) - plane[30:].mean(axis=0)) > 2 * within
    assert tsne_plane(x[:5]) is None
    assert tsne_plane(np.ones((20, 3))) is None


@pytest.mark.parametrize("labelled", [True, False])
def test_shift_is_the_distance_of_the_kept_features(labelled, tmp_path):
    kept = read_kept(folders.write_run(tmp_path / "run", ("a", "b", "c"), labelled=labelled).samples)
    shift = measure_shift(kept)
    ys = kept.source.labels.numpy()
    yt = (kept.target.labels if labelled else kept.target.prediction).numpy()
    before = [side.before.double().numpy() for side in (kept.source, kept.target)]
    after = [side.features.double().numpy() for side in (kept.source, kept.target)]
    assert shift.by_labels is labelled
    for found, (xs, xt) in ((shift.before, before), (shift.after, after)):
        n, m = len(xs), len(xt)
        assert found["ckb"] == pytest.approx(bures.ckb(xs, ys[:n], xt, yt[:m]))
        assert found["ckw"] == pytest.approx(bures.ckw(xs, ys[:n], xt, yt[:m]))
        assert found["mmd"] == pytest.approx(bures.mmd(xs, xt))


def test_distances_of_features_that_are_all_the_same_are_left_out_or_zero(tmp_path):
    kept = read_kept(folders.write_run(tmp_path / "run").samples)
    for side in (kept.source, kept.target):
        side.features.copy_(torch.ones_like(side.features))
    assert all(value is None or value == pytest.approx(0, abs=1e-9) for value in measure_shift(kept).after.values())


def test_ticks_cover_and_are_few():
    tiny = ((0, 1e-14), (0, 3e-17), (-1e-17, 0), (0, 5e-324), (1e6, 1e6 + 1e-9), (0, 1e300))
    for low, high in ((0, 1), (-3.2, 0.5), (0.86, 0.871), (5, 5), (0, 12345), *tiny):
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low <= high <= ticks[-1]
        assert 2 <= len(set(ticks)) == len(ticks) <= 8


@pytest.mark.parametrize("value", [0.0, 2e-17, -2e-17, 5e-324, None])
def test_a_chart_is_drawn_of_distances_that_are_zero_but_for_rounding(value):
    assert "<svg" in shift_chart("ckb", [Change("source", 0, value, value)])
    if value is not None:
        assert "<svg" in line_chart("mmd", [Series("source", 0, [1.0, 2.0], [value, value])])


def test_points_have_a_sign():
    assert [points(value) for value in (0.0404, -0.5, 0.00001, None)] == ["+4.0", "\N{MINUS SIGN}50.0", "±0.0", "–"]
