"""`CKBClassifier` and `CKBAdapter`: scikit-learn's checks, the ways to fit, routing, and skada's tools around them."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import sklearn
import torch
from skada_peer import import_skada
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import bures
from bures.estimators import AdaptedClassifier, CKBAdapter, CKBClassifier, ConditionalBuresAdapter
from bures.training import TrainingError

NAMES = np.array(["ape", "bee", "cat"])


def quick(**options):
    return CKBClassifier(**{"hidden": 16, "features": 8, "epochs": 10, "batch_size": 32, "lr": 5e-3, **options})


@pytest.fixture(scope="module")
def data():
    """Rows of both domains in one array, target labels hidden behind -1, and the true ones."""
    xs, ys, xt, yt = bures.data.drifting_class(90, drift=0.5)
    order = np.random.default_rng(0).permutation(180)
    X, truth = np.concatenate([xs, xt])[order], np.concatenate([ys, yt])[order]
    domain = np.repeat([1, -2], 90)[order]
    return X, np.where(domain > 0, truth, -1), domain, truth


@pytest.mark.filterwarnings("ignore:all .* rows are source:UserWarning")
@parametrize_with_checks([quick(lr=1e-2), CKBAdapter(), CKBAdapter(kernel="gaussian", n_components=5)])
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_scikit_learn_checks_with_the_defaults():
    assert {result["status"] for result in check_estimator(CKBClassifier(), on_skip=None)} <= {"passed", "skipped"}


@pytest.mark.parametrize("estimator", [CKBClassifier(epochs=1, batch_size=16), AdaptedClassifier(adapter=None)])
def test_minus_one_beside_numbered_classes_without_domains_is_warned_of(estimator):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4
    hidden = np.where(np.arange(40) < 25, y, -1)
    with pytest.warns(UserWarning, match="y is -1 in 15 of 40 rows, .* pass sample_domain") as found:
        estimator.fit(X, hidden)
    assert found[0].filename == __file__
    # Warnings are errors in tests: there is none where domains are given, nor where -1 is plainly a class.
    estimator.fit(X, hidden, sample_domain=np.where(hidden < 0, -1, 1))
    for classes in (y, y - 2, np.where(y == 0, -1, 1), y % 3 - 1, y.astype(float), np.array(list("abcd"))[y]):
        estimator.fit(X, classes)


def test_without_domains_every_row_is_source_and_minus_one_a_class(data):
    X, _, _, truth = data
    y = np.where(truth == 0, -1, 1)
    classifier = quick().fit(X, y)
    np.testing.assert_array_equal(classifier.classes_, [-1, 1])
    assert classifier.score(X, y) > 0.9
    np.testing.assert_array_equal(classifier.predict(X), classifier.predict(X, sample_domain=np.ones(180)))


def test_one_array_and_two_arrays_agree_and_target_labels_are_not_read(data):
    X, y, domain, _ = data
    source = domain > 0
    reference = quick().fit_source_target(X[source], NAMES[y[source]], X[~source]).predict_proba(X[~source])
    for filler in (None, np.nan, "cat", "unknown"):
        labels = NAMES[y].astype(object)
        labels[~source] = filler
        fitted = quick().fit(X, labels, sample_domain=domain)
        np.testing.assert_array_equal(fitted.predict_proba(X[~source]), reference)
    assert set(fitted.predict(X)) <= set(NAMES)


def test_probabilities_are_those_of_the_network_with_the_statistics_of_the_domain(data):
    X, y, domain, _ = data
    source = domain > 0
    fitted = quick().fit(X, y, sample_domain=domain)
    both = fitted.predict_proba(X, sample_domain=domain)
    np.testing.assert_array_equal(
        fitted.predict_proba(X, sample_domain=1), fitted.predict_proba(X, sample_domain=np.ones(len(X)))
    )
    rows = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    for network, mask in ((fitted.source_network_, source), (fitted.network_, ~source)):
        np.testing.assert_allclose(both[mask], network.predict_proba(rows[mask]).numpy(), atol=1e-12)
    np.testing.assert_allclose(both.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X, sample_domain=domain)), both)
    # The same weights: only buffers differ, and they are the domain's own means.
    for ours, theirs in zip(fitted.network_.parameters(), fitted.source_network_.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    bottleneck = fitted.network_.head.bottleneck
    np.testing.assert_allclose(
        bottleneck[2].running_mean, bottleneck[:2](rows[~source]).detach().mean(dim=0), atol=1e-5
    )
    features = fitted.predict_features(X, sample_domain=domain)
    assert features.shape == (180, 8)
    logits = fitted.network_.head.classifier(torch.from_numpy(features[~source])).detach()
    np.testing.assert_allclose(logits.softmax(dim=1), both[~source], atol=1e-12)


def test_training_minimises_the_metric_and_is_quiet(data, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, domain, truth = data
    state = torch.get_rng_state()
    fitted = quick(epochs=15).fit(X, y, sample_domain=domain)
    assert torch.equal(torch.get_rng_state(), state)
    assert set(fitted.history_[0]) == {"loss", "cross_entropy", "entropy", "ckb", "source_accuracy"}
    assert fitted.n_steps_ == 15 * (90 // 32)
    assert fitted.history_[-1]["loss"] < fitted.history_[0]["loss"]
    assert "ckb" not in quick().fit(X, truth).fit(X[domain > 0], y[domain > 0]).history_[0]
    assert capfd.readouterr() == ("", "")
    assert os.listdir(tmp_path) == []


def test_the_metric_helps_where_the_units_changed():
    digits = sklearn.datasets.load_digits()
    xs, xt = digits.data[:500], 6 + digits.data[500:1000] / 3
    ys, yt = digits.target[:500], digits.target[500:1000]
    scores = {
        name: CKBClassifier(name, epochs=12).fit_source_target(xs, ys, xt).score(xt, yt) for name in ("source", "ckb")
    }
    assert scores["ckb"] > scores["source"] + 0.1


def test_same_seed_same_classifier_also_after_pickling_and_cloning(data):
    X, y, domain, _ = data
    fitted = quick(seed=3).fit(X, y, sample_domain=domain)
    probabilities = fitted.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), probabilities)
    again = clone(fitted).fit(X, y, sample_domain=domain)
    np.testing.assert_array_equal(again.predict_proba(X), probabilities)
    other = quick(seed=4).fit(X, y, sample_domain=domain)
    assert not np.allclose(other.predict_proba(X), probabilities)


def test_options_may_be_numbers_of_numpy_as_searches_draw_them(data):
    X, y, domain, _ = data
    numbers = {"hidden": 8, "features": 4, "epochs": 2, "batch_size": 32, "seed": 3, "lr": 2.0**-9}
    drawn = {name: np.asarray(value)[()] for name, value in numbers.items()} | {"lr": np.float32(2.0**-9)}
    one, other = (CKBClassifier(**options).fit(X, y, sample_domain=domain) for options in (numbers, drawn))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_pipelines_and_searches_pass_the_domains_on(data):
    X, y, domain, _ = data
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), quick()).fit(X, y, sample_domain=domain)
        direct = quick().fit(StandardScaler().fit_transform(X), y, sample_domain=domain)
        np.testing.assert_allclose(
            pipeline.predict_proba(X, sample_domain=domain),
            direct.predict_proba(StandardScaler().fit_transform(X), sample_domain=domain),
        )
        search = GridSearchCV(quick(), {"epochs": [1, 10], "method": ["ckb", "source"]}, cv=2, error_score="raise")
        # Each fold has rows of both domains; -1 would never be predicted, so that target rows only lower scores.
        search.fit(X, y, sample_domain=domain)
        assert search.best_params_["epochs"] == 10
        assert set(search.best_estimator_.classes_) == {0, 1, 2}
        assert cross_val_score(quick(), X, y, params={"sample_domain": domain}, cv=2, error_score="raise").shape == (2,)


@pytest.fixture
def skada():
    return import_skada()


@pytest.fixture
def routed():
    with config_context(enable_metadata_routing=True):
        yield


def test_skada_splits_and_scores(data, skada, routed):
    from skada.metrics import (
        CircularValidation,
        DeepEmbeddedValidation,
        ImportanceWeightedScorer,
        PredictionEntropyScorer,
        SoftNeighborhoodDensity,
        SupervisedScorer,
    )
    from skada.model_selection import SourceTargetShuffleSplit, StratifiedDomainShuffleSplit

    X, y, domain, truth = data
    cv = SourceTargetShuffleSplit(n_splits=2, test_size=0.3, random_state=0)
    alone, behind = quick(epochs=3), skada.make_da_pipeline(StandardScaler(), quick(epochs=3))
    for scorer, estimator in (
        (PredictionEntropyScorer(), alone),
        (SoftNeighborhoodDensity(), alone),
        (CircularValidation(), alone),
        (ImportanceWeightedScorer(), alone),
        (DeepEmbeddedValidation(), behind),  # its features are those of skada's networks, or of a pipeline
    ):
        found = cross_val_score(
            estimator, X, y, params={"sample_domain": domain}, cv=cv, scoring=scorer, error_score="raise"
        )
        assert np.isfinite(found).all(), scorer
    found = cross_val_score(
        quick(), X, y, params={"sample_domain": domain, "target_labels": truth},
        cv=StratifiedDomainShuffleSplit(n_splits=2, test_size=0.3, random_state=0), scoring=SupervisedScorer(),
        error_score="raise",
    )  # fmt: skip
    assert (found > 0.6).all()  # of three classes
    search = GridSearchCV(quick(), {"epochs": [1, 10]}, cv=cv, scoring=SupervisedScorer(), error_score="raise")
    assert search.fit(X, y, sample_domain=domain, target_labels=truth).best_params_ == {"epochs": 10}


def test_skada_scores_a_classifier_behind_an_adapter(data, skada, routed):
    from skada import metrics
    from skada.model_selection import SourceTargetShuffleSplit

    X, y, domain, _ = data
    alone = AdaptedClassifier(CKBAdapter())
    for name, estimator in (
        ("PredictionEntropyScorer", alone),
        ("SoftNeighborhoodDensity", alone),
        ("CircularValidation", alone),
        ("ImportanceWeightedScorer", alone),
        ("MixValScorer", alone),
        ("DeepEmbeddedValidation", skada.make_da_pipeline(StandardScaler(), AdaptedClassifier(CKBAdapter()))),
    ):
        found = cross_val_score(
            estimator, X, y, params={"sample_domain": domain}, scoring=getattr(metrics, name)(), error_score="raise",
            cv=SourceTargetShuffleSplit(n_splits=2, test_size=0.3, random_state=0),
        )  # fmt: skip
        assert np.isfinite(found).all(), name


def test_skada_pipelines(data, skada, routed):
    X, y, domain, truth = data
    target = domain < 0
    for steps in ((StandardScaler(), quick()), (CKBAdapter(), LogisticRegression())):
        pipeline = skada.make_da_pipeline(*map(clone, steps))
        pipeline.fit(X, y.copy(), sample_domain=domain)
        predicted = pipeline.predict(X[target], sample_domain=domain[target])
        assert (predicted == truth[target]).mean() > 0.8
        np.testing.assert_array_equal(pipeline.predict(X[target]), predicted)  # rows without a domain are target rows
    # skada's pipeline of adapter and classifier is our own pair of them.
    own = AdaptedClassifier(CKBAdapter(), LogisticRegression()).fit(X, y, sample_domain=domain)
    np.testing.assert_array_equal(own.predict(X[target]), predicted)
    search = GridSearchCV(
        skada.make_da_pipeline(CKBAdapter(), LogisticRegression()), {"ckbadapter__reg": [0.1, 10.0]},
        cv=skada.model_selection.SourceTargetShuffleSplit(n_splits=2, random_state=0),
        scoring=skada.metrics.SupervisedScorer(), error_score="raise",
    )  # fmt: skip
    search.fit(X, y.copy(), sample_domain=domain, target_labels=truth)
    assert search.best_score_ > 0.8


def test_the_adapter_is_the_covariance_part_of_its_parent(data):
    X, y, domain, _ = data
    ours = CKBAdapter().fit(X, y, sample_domain=domain)
    parent = ConditionalBuresAdapter("ckb").fit(X, y, sample_domain=domain)
    np.testing.assert_array_equal(*(adapter.transform(X, sample_domain=1) for adapter in (ours, parent)))
    xs, xt, ys = X[domain > 0], X[domain < 0], y[domain > 0]
    again = CKBAdapter().fit_source_target(xs, ys, xt)
    np.testing.assert_array_equal(*(adapter.transform(X, sample_domain=1) for adapter in (again, ours)))
    moved = ours.transform(xs, sample_domain=1)
    np.testing.assert_allclose(moved.mean(axis=0), xs.mean(axis=0))
    before, after = (bures.ckb(x, ys, xt, ours.pseudo_labels_, kernel="linear") for x in (xs, moved))
    assert after < before


def test_an_adapter_without_target_moves_nothing_and_warns(data):
    X, y, *_ = data
    with pytest.warns(UserWarning, match=r"all 180 rows are source, and CKBAdapter moves none.*fit_source_target"):
        adapter = CKBAdapter().fit(X, y)
    np.testing.assert_array_equal(adapter.transform(X, sample_domain=1), X)
    with pytest.warns(UserWarning, match="moves none"):
        adapter = CKBAdapter(kernel="gaussian", n_components=6).fit(X, y)
    assert adapter.transform(X).shape == adapter.transform(X, sample_domain=-np.ones(180)).shape


BAD = {
    "method": ({"method": "ckq"}, r"method='ckq' is unknown"),
    "own steps": ({"method": "cycada"}, r"method='cycada' cannot train here.*own training steps"),
    "target labels": ({"method": "target"}, r"method='target' cannot train here.*target labels"),
    "options": ({"options": {"entropi": 1}}, r"no method has an option 'entropi'"),
    "no options": ({"options": 3}, r"options=3 is no mapping"),
    "epochs": ({"epochs": 0}, r"epochs=0 is out of range"),
    "batch size": ({"batch_size": 0}, r"batch_size=0 is out of range"),
    "lr": ({"lr": -1.0}, r"lr=-1.0 is out of range"),
    "device": ({"device": "abacus"}, r"device='abacus' cannot be used"),
    "seed": ({"seed": -1}, r"seed=-1 is out of range"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_named(data, case):
    X, y, domain, _ = data
    options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, y, sample_domain=domain)


def test_bad_rows_are_named(data):
    X, y, domain, truth = data
    with pytest.raises(ValueError, match=r"one class in source rows, (np\.int64\(1\)|1);"):
        quick().fit(X, np.where(domain > 0, 1, 2), sample_domain=domain)
    with pytest.raises(ValueError, match="the target has 1 sample; CKBClassifier needs at least two"):
        quick().fit_source_target(X, NAMES[y], X[:1])
    with pytest.raises(ValueError, match="no source rows"):
        quick().fit(X, y, sample_domain=-np.ones(180))
    with pytest.raises(ValueError, match="sample_domain has shape"):
        quick().fit(X, truth).predict(X, sample_domain=[1, -1])
    with pytest.raises(ValueError, match="X has 3 features, but CKBClassifier is expecting 2"):
        quick().fit(X, y, sample_domain=domain).predict(np.zeros((4, 3)))
    with pytest.raises(TrainingError, match="not finite"):
        quick(lr=1e30).fit(X, y, sample_domain=domain)


def test_the_names_are_public_without_loading_scikit_learn_for_all():
    assert bures.CKBClassifier is CKBClassifier
    assert bures.CKBAdapter is CKBAdapter
    assert {"CKBClassifier", "CKBAdapter"} <= set(dir(bures))
    assert "CKBClassifier" not in bures.__all__
