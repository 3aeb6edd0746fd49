"""The tests themselves: level, power, labels, and what they say of bad input."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.stats import binom

import bures
from bures.files import to_json
from bures.testing import PredictedLabels, out_of_fold_labels


def same(n=40, m=30, k=2, d=3, seed=0):
    """Two samples of one distribution, with other class frequencies."""
    rng = np.random.default_rng(seed)
    ys = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    yt = np.concatenate([np.arange(k), rng.choice(k, size=m - k, p=np.arange(1, k + 1) / (k * (k + 1) / 2))])
    centres = 2 * np.eye(k, d)
    return centres[ys] + rng.normal(size=(n, d)), ys, centres[yt] + rng.normal(size=(m, d)), yt


def test_the_statistic_is_the_distance_of_the_library_and_the_p_value_follows_from_the_null_sample():
    pair = bures.data.drifting_class(50, drift=0.5)
    functions = {"ckw": bures.ckw, "ckb": bures.ckb, "means": lambda *pair: bures.ckw(*pair) - bures.ckb(*pair)}
    for name, function in functions.items():
        result = bures.conditional_test(*pair, statistic=name, n_permutations=99)
        assert result.statistic == pytest.approx(function(*pair), abs=1e-10)
        assert result.p_value == (1 + (result.null >= result.statistic).sum()) / 100
        assert len(result.null) == 99
    marginal = bures.marginal_test(pair.xs, pair.xt, n_permutations=99)
    assert marginal.statistic == pytest.approx(bures.mmd(pair.xs, pair.xt), abs=1e-12)
    spread = bures.marginal_test(pair.xs, pair.xt, statistic="kernel-bures", n_permutations=99)
    assert spread.statistic == pytest.approx(bures.kernel_bures(pair.xs, pair.xt), abs=1e-10)


def test_a_class_has_the_distance_of_its_own_samples():
    pair = bures.data.drifting_class(50, drift=0.5)
    result = bures.conditional_test(*pair, n_permutations=19)
    for row in result.classes:
        xs, xt = pair.xs[pair.ys == row.name], pair.xt[pair.yt == row.name]
        width = result.bandwidths[0]
        expected = bures.kernel_bures(xs, xt, bandwidth=width) + bures.mmd(xs, xt, bandwidth=width)
        assert row.statistic == pytest.approx(expected, abs=1e-8)
        assert (row.n_source, row.n_target) == (len(xs), len(xt))


def test_features_agree_with_the_kernel_where_they_hold_all_of_it():
    pair = bures.data.drifting_class(60, drift=0.6)
    exact = bures.conditional_test(*pair, n_permutations=99, n_features=None)
    features = bures.conditional_test(*pair, n_permutations=99, n_features=100)
    assert features.statistic == pytest.approx(exact.statistic, abs=1e-6)
    np.testing.assert_allclose(features.null, exact.null, rtol=0, atol=1e-6)
    assert exact.n_features is None
    assert features.n_features is not None


def test_torch_and_numpy_and_strings_give_the_same():
    xs, ys, xt, yt = bures.data.drifting_class(40, drift=0.7)
    result = bures.conditional_test(xs, ys, xt, yt, n_permutations=49)
    tensors = bures.conditional_test(*map(torch.tensor, (xs, ys, xt, yt)), n_permutations=49)
    names = np.array(["a", "b", "c"])
    named = bures.conditional_test(xs, names[ys], xt, names[yt], n_permutations=49)
    assert result.p_value == tensors.p_value == named.p_value
    np.testing.assert_allclose(result.null, tensors.null)
    assert [row.name for row in named.classes] == ["a", "b", "c"]


def test_a_kernel_without_bandwidth_has_none_however_many_are_given():
    xs, _, xt, _ = bures.data.drifting_class(30)
    several = bures.marginal_test(xs, xt, kernel="linear", bandwidth=[1.0, 2.0], n_permutations=19)
    assert several.bandwidths == ()
    assert several.statistic == pytest.approx(bures.mmd(xs, xt, kernel="linear"))


def test_the_result_is_frozen_reproducible_and_readable():
    pair = bures.data.drifting_class(60, drift=2.0)
    result = bures.conditional_test(*pair, n_permutations=99, seed=4)
    again = bures.conditional_test(*pair, n_permutations=99, seed=4)
    assert np.array_equal(result.null, again.null)
    assert not np.array_equal(result.null, bures.conditional_test(*pair, n_permutations=99, seed=5).null)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.p_value = 0.0
    with pytest.raises(ValueError, match="read-only"):
        result.null[0] = 0
    text = str(result)
    assert "P(X|Y) differs at level 0.05" in text
    assert "99 permutations" in text
    assert result.shifted_classes == (0,)
    assert text.count("shifted") == 1
    data = json.loads(to_json(result.to_dict(null=True)))
    assert data["rejected"] is True
    assert len(data["null"]) == 99
    assert data["classes"][0]["name"] == 0
    assert "null" not in result.to_dict()


def test_the_plot_shows_the_null_sample_and_the_observed_value():
    import matplotlib as mpl

    with mpl.rc_context({"backend": "Agg"}):
        import matplotlib.pyplot as plt

        result = bures.conditional_test(*bures.data.drifting_class(40, drift=2.0), n_permutations=99)
        axes = result.plot()
        assert result.plot(axes) is axes
        lines = [line.get_xdata()[0] for line in axes.lines]
        assert result.statistic in lines
        plt.close("all")


@pytest.mark.parametrize(
    ("options", "target"),
    [({}, "moved"), ({}, "swapped"), ({"bandwidth": "aggregate"}, "moved"), ({"n_features": 20}, "moved")],
)
def test_strong_shifts_are_found(options, target):
    xs, ys, xt, yt = same(60, 60, seed=1)
    xt, yt = (xt + np.array([0, 0, 1.5]), yt) if target == "moved" else (xt, 1 - yt)
    assert bures.conditional_test(xs, ys, xt, yt, n_permutations=99, **options).p_value == 0.01


def test_swapped_classes_are_invisible_to_ckb_and_seen_by_ckw():
    xs, ys, _, _ = same(60, 60, seed=1)
    assert bures.conditional_test(xs, ys, xs, 1 - ys, statistic="ckb", n_permutations=99).p_value > 0.5
    assert bures.conditional_test(xs, ys, xs, 1 - ys, statistic="ckw", n_permutations=99).p_value == 0.01


def rejections(test, n_sets, draw):
    return sum(test(*draw(seed), seed) <= 0.05 for seed in range(n_sets))


def conditional(**options):
    return lambda xs, ys, xt, yt, seed: (
        bures.conditional_test(xs, ys, xt, yt, n_permutations=19, per_class=False, seed=seed, **options).p_value
    )


def test_without_a_shift_in_the_classes_the_rate_is_the_level_whatever_the_frequencies():
    """200 small data sets with other class frequencies in the target; the slow test below has 1000 of each kind."""
    low, high = binom.ppf([0.001, 0.999], 200, 0.05)
    assert low <= rejections(conditional(n_features=8), 200, lambda seed: same(24, 20, seed=seed)) <= high


@pytest.mark.slow
@pytest.mark.parametrize(
    "test",
    [
        conditional(),
        conditional(statistic="ckb"),
        conditional(statistic="means"),
        conditional(n_features=12),
        conditional(bandwidth="aggregate"),
        lambda xs, ys, xt, yt, seed: bures.marginal_test(xs, xt, n_permutations=19, seed=seed).p_value,
    ],
    ids=["ckw", "ckb", "means", "features", "aggregate", "mmd"],
)
def test_the_level_is_within_the_99_percent_interval_over_1000_data_sets(test, request):
    def draw(seed):
        xs, ys, xt, yt = same(40, 30, k=3, d=4, seed=seed)
        if "mmd" in request.node.callspec.id:  # of P(X), under which the frequencies must be the same
            rng = np.random.default_rng([seed, 1])
            xs, xt = rng.normal(size=(40, 4)), rng.normal(size=(30, 4))
        return xs, ys, xt, yt

    low, high = binom.ppf([0.005, 0.995], 1000, 0.05)
    assert low <= rejections(test, 1000, draw) <= high


# Predicted labels


def test_mixing_true_and_predicted_labels_is_an_error_that_says_why():
    xs, ys, xt, yt = same()
    predicted_s, predicted_t = out_of_fold_labels(xs, ys, xt)
    for arguments, options in (
        ((xs, ys, xt, predicted_t), {}),
        ((xs, predicted_s, xt, yt), {}),
        ((xs, ys, xt, yt), {"labels": ("true", "predicted")}),
        ((xs, ys, xt, np.eye(2)[yt]), {"conditioning": "hard"}),
    ):
        with pytest.raises(ValueError, match=r"(?s)true labels.*several times.*out_of_fold_labels"):
            bures.conditional_test(*arguments, n_permutations=19, **options)
    assert bures.conditional_test(xs, predicted_s, xt, predicted_t, n_permutations=19).labels == "predicted"
    assert bures.conditional_test(xs, ys, xt, yt, labels="predicted", n_permutations=19).labels == "predicted"
    with pytest.raises(ValueError, match="labels says that ys holds true labels"):
        bures.conditional_test(xs, predicted_s, xt, predicted_t, labels="true", n_permutations=19)


class Recorder:
    """A classifier that remembers what it was trained on and what it predicted."""

    seen = ()

    def get_params(self, deep=False):
        return {}

    def fit(self, x, y):
        self.trained = {tuple(row) for row in x}
        return self

    def predict(self, x):
        Recorder.seen = (*Recorder.seen, (self.trained, [tuple(row) for row in x]))
        return np.zeros(len(x), dtype=int)

    def __sklearn_clone__(self):
        return Recorder()


def test_no_classifier_predicts_what_it_was_trained_on_and_each_predicts_both_domains():
    xs, ys, xt, _ = same(25, 15)
    Recorder.seen = ()
    out_of_fold_labels(xs, ys, xt, classifier=Recorder(), n_folds=5)
    assert len(Recorder.seen) == 5
    target = {tuple(row) for row in xt}
    predicted = [row for _, rows in Recorder.seen for row in rows]
    assert sorted(predicted) == sorted(map(tuple, np.vstack([xs, xt])))  # every sample once
    for trained, rows in Recorder.seen:
        assert len(trained) == 20
        assert not trained & set(rows)
        assert not trained & target
        assert sum(row in target for row in rows) == 3


def test_predictions_keep_strings_and_tensors():
    xs, ys, xt, yt = same(60, 60, d=2)
    names = np.array(["cat", "dog"])[ys]
    source, target = out_of_fold_labels(xs, names, xt)
    assert set(np.asarray(source)) <= {"cat", "dog"}
    assert np.mean(np.asarray(target) == np.array(["cat", "dog"])[yt]) > 0.8
    tensors = out_of_fold_labels(*map(torch.tensor, (xs, ys, xt)))
    assert isinstance(tensors.source.values, torch.Tensor)
    assert bures.conditional_test(torch.tensor(xs), tensors.source, torch.tensor(xt), tensors.target, n_permutations=19)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statistic": "mmd"}, "statistic='mmd' is unknown; accepted are 'ckw', 'ckb', 'means'"),
        ({"n_permutations": 10**20}, r"n_permutations=1000+ is out of range; accepted is an integer up to 10000000"),
        ({"n_permutations": 18}, r"n_permutations=18 can never reject at level=0.05.*1/19 = 0.053; pass at least 19"),
        ({"n_permutations": 50, "level": 0.01}, "pass at least 99"),
        ({"n_permutations": 0}, "n_permutations=0 is out of range; accepted is an integer of at least 1"),
        ({"level": 1.5}, "level=1.5 is out of range"),
        ({"seed": -1}, "seed=-1 is not accepted"),
        ({"labels": "guessed"}, "labels='guessed' is unknown"),
        ({"bandwidth": "per-block"}, "bandwidth='per-block' is unknown"),
        ({"bandwidth": []}, "bandwidth is an empty list"),
        ({"n_features": 0}, "n_features=0 is out of range"),
        ({"n_features": "many"}, "n_features='many' is unknown"),
        ({"eps": -1}, "eps=-1.0 is out of range"),
        ({"kernel": lambda x, y: x @ y.T, "n_features": 10}, "pass n_features=None"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        bures.conditional_test(*same(), **options)


def test_exactly_enough_permutations_can_reject():
    pair = bures.data.drifting_class(60, drift=2.0)
    assert bures.conditional_test(*pair, n_permutations=19).rejected
    assert bures.conditional_test(*pair, n_permutations=99, level=0.01).rejected


def test_labels_that_cannot_be_permuted_within_are_refused_with_a_way_out():
    xs, ys, xt, yt = same()
    soft_s, soft_t = np.eye(2)[ys] * 0.8 + 0.1, np.eye(2)[yt] * 0.8 + 0.1
    with pytest.raises(ValueError, match=r"ys holds class probabilities.*conditioning='hard'"):
        bures.conditional_test(xs, soft_s, xt, soft_t)
    hard = bures.conditional_test(xs, soft_s, xt, soft_t, conditioning="hard", n_permutations=19)
    assert hard.statistic == pytest.approx(bures.ckw(xs, ys, xt, yt))
    with pytest.raises(ValueError, match=r"ys is continuous.*Cut it into intervals"):
        bures.conditional_test(xs, xs[:, 0], xt, xt[:, 0], conditioning="continuous")
    with pytest.raises(ValueError, match=r"yt is None.*out_of_fold_labels.*marginal_test"):
        bures.conditional_test(xs, ys, xt, None)


def test_one_class_only_is_a_marginal_test_and_says_so():
    xs, _, xt, _ = same()
    one = bures.conditional_test(xs, np.zeros(40, int), xt, np.zeros(30, int), n_permutations=49)
    assert one.statistic == pytest.approx(bures.mmd(xs, xt) + bures.kernel_bures(xs, xt))
    assert "there is one class only" in str(one)


def test_classes_of_one_sample_are_tested_and_named():
    xs, ys, xt, yt = same(12, 12)
    ys, yt = np.array([*ys[:-1], 7]), np.array([*yt[:-1], 7])
    result = bures.conditional_test(xs, ys, xt, yt, n_permutations=99)
    row = next(row for row in result.classes if row.name == 7)
    assert (row.n_source, row.n_target) == (1, 1)
    assert row.p_value == 1.0  # both orders of two samples have the same distance
    assert any("one sample only" in note for note in result.notes)


def test_too_few_samples_for_any_finding_are_said_to_be():
    result = bures.conditional_test([[0.0], [1.0]], [0, 0], [[5.0], [6.0]], [0, 0], n_permutations=99)
    assert any("6 ways only" in note for note in result.notes)
    assert result.p_value >= 1 / 6


def test_constant_features_find_nothing():
    _, ys, _, yt = same()
    for n_features in (None, 5):
        result = bures.conditional_test(np.ones((40, 3)), ys, np.ones((30, 3)), yt, n_features=n_features)
        assert result.p_value == 1.0
        assert result.effect_size == 0.0
        assert "all samples are equal" in str(result)
    assert bures.marginal_test(np.full((9, 2), 0.1), np.full((8, 2), 0.1)).p_value == 1.0


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("statistic", ["ckw", "ckb", "means"])
def test_rounding_is_no_shift_of_a_class_of_equal_samples(kernel, statistic):
    """Beside another class the kernel's values of equal samples are rounded, by their place and so by their domain."""
    rng = np.random.default_rng(5)
    for n, m in ((150, 155), (301, 303), (1001, 333)):
        ys, yt = np.arange(n) % 2, np.arange(m) % 2
        for width in (3, 5, 7):
            xs, xt = rng.normal(size=(n, width)), rng.normal(size=(m, width))
            xs[ys == 0], xt[yt == 0] = 0.3, 0.3
            options = {"statistic": statistic, "kernel": kernel, "n_permutations": 19}
            row = bures.conditional_test(xs, ys, xt, yt, **options).classes[0]
            assert (row.p_value, row.effect_size) == (1.0, 0.0)
            xs[ys == 1], xt[yt == 1] = 1.7, 1.7
            result = bures.conditional_test(xs, ys, xt, yt, per_class=False, **options)
            assert (result.p_value, result.effect_size, result.z_score) == (1.0, 0.0, 0.0)
            assert "all samples are equal" in str(result)


def test_a_shift_is_found_in_a_class_whose_samples_differ_little_and_are_far_from_the_others():
    rng = np.random.default_rng(0)
    ys, yt = np.arange(60) % 2, np.arange(50) % 2
    xs, xt = rng.normal(size=(60, 2)) + 1e6 * ys[:, None], rng.normal(size=(50, 2)) + 1e6 * yt[:, None]
    xt[yt == 1, 0] += 1.5
    for kernel in ("gaussian", "linear"):
        found = bures.conditional_test(xs, ys, xt, yt, statistic="means", kernel=kernel, n_permutations=199)
        assert found.shifted_classes == (1,)


def test_a_class_of_one_domain_is_left_out_with_a_warning():
    xs, ys, xt, yt = same(k=3)
    with pytest.warns(bures.MissingClassWarning, match="class 1 occurs in one domain only"):
        result = bures.conditional_test(xs, ys, xt[yt != 1], yt[yt != 1], n_permutations=19)
    kept = ys != 1
    assert result.statistic == pytest.approx(bures.ckw(xs[kept], ys[kept], xt[yt != 1], yt[yt != 1]))
    assert result.missing_classes == (1,)
    assert result.n_source == kept.sum()
    with pytest.raises(ValueError, match="no class occurs in both domains"):
        bures.conditional_test(xs, ys, xt, yt + 5)


def test_of_many_classes_left_out_the_first_are_named_and_the_rest_counted():
    rng = np.random.default_rng(0)
    ys, yt = np.repeat(np.arange(14), 3), np.zeros(9, dtype=int)
    message = "classes 1, 2, 3, 4, 5, ... and 8 more occur in one domain only; their samples"
    with pytest.warns(bures.MissingClassWarning, match=message):
        result = bures.conditional_test(rng.normal(size=(42, 2)), ys, rng.normal(size=(9, 2)), yt, n_permutations=19)
    assert "left out          1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ... and 1 more   (in one domain only)" in str(
        result
    )


def test_thousands_of_classes_are_answered():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(1500), 2)
    x = rng.normal(size=(1500, 3))[y]
    result = bures.conditional_test(
        x + 0.1 * rng.normal(size=x.shape), y, x + 0.1 * rng.normal(size=x.shape), y, n_permutations=19, n_features=16
    )
    assert 0.05 <= result.p_value <= 1
    assert result.classes == ()
    assert any("1500 classes: they were not tested one by one" in note for note in result.notes)


def test_many_classes_need_more_permutations_and_the_result_says_how_many():
    xs, ys, xt, yt = same(60, 60, k=10, d=10)
    result = bures.conditional_test(xs, ys, xt, yt, n_permutations=99)
    assert any("at least 199 permutations" in note for note in result.notes)


def test_nan_and_lengths_are_named_as_elsewhere():
    xs, ys, xt, yt = same()
    bad = xs.copy()
    bad[3] = np.nan
    with pytest.raises(ValueError, match="xs contains NaN or infinity in 1 of 40 rows"):
        bures.conditional_test(bad, ys, xt, yt)
    with pytest.raises(ValueError, match="ys has 39 labels but xs has 40 samples"):
        bures.conditional_test(xs, ys[:-1], xt, yt)
    with pytest.raises(ValueError, match="xs has 40 samples; 50 folds, by which labels are predicted, need"):
        out_of_fold_labels(xs, ys, xt, n_folds=50)
    with pytest.raises(ValueError, match="ys holds predicted labels"):
        out_of_fold_labels(xs, PredictedLabels(ys), xt)


@pytest.mark.parametrize("n_features", [None, 10])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_what_squares_cannot_hold_is_refused_and_not_found_alike(kernel, n_features):
    xs, ys, xt, yt = bures.data.drifting_class(30, drift=3.0)
    options = {"kernel": kernel, "n_features": n_features, "n_permutations": 19}
    as_given = bures.conditional_test(xs, ys, xt, yt, **options)
    for scale in (1e-65, 1e65):
        assert bures.conditional_test(scale * xs, ys, scale * xt, yt, **options).p_value == as_given.p_value
    for scale in (1e-140, 1e140, 1e200):
        for test, arguments in (
            (bures.conditional_test, (scale * xs, ys, scale * xt, yt)),
            (bures.marginal_test, (scale * xs, scale * xt)),
        ):
            with pytest.raises(ValueError, match=r"accepted are differences between 1e-70 and 1e\+70"):
                test(*arguments, **options)


def test_a_kernel_whose_statistic_is_no_number_is_no_shift():
    def huge(x, y):
        return 1e307 * np.tanh(x @ y.T)

    data = bures.data.drifting_class(30, drift=3.0)
    with pytest.raises(ValueError, match="no finite statistic"):
        bures.conditional_test(*data, kernel=huge, n_permutations=19)
