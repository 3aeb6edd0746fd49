"""The calls: one array with domains or two arrays, which rows move, labels that are never read, names, pickles."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import bures
from bures import estimators
from bures.estimators import (
    CORAL,
    GFK,
    KGOT,
    OTIT,
    TCA,
    AdaptedClassifier,
    ConditionalBuresAdapter,
    OTClassReg,
    SubspaceAlignment,
)

pytest.importorskip("ot")

ADAPTERS = [
    CORAL(),
    GFK(),
    KGOT(n_landmarks=20),
    KGOT("linear"),
    OTIT(),
    OTClassReg(),
    TCA(3),
    SubspaceAlignment(),
    ConditionalBuresAdapter(n_rounds=2),
    ConditionalBuresAdapter(kernel="gaussian", n_components=10, n_rounds=2),
]
KEEP_FEATURES = [CORAL(), KGOT("linear"), OTIT(), OTClassReg(), ConditionalBuresAdapter(n_rounds=2)]
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=repr)


class Stacked(NamedTuple):
    xs: np.ndarray
    ys: np.ndarray
    xt: np.ndarray
    X: np.ndarray
    y: np.ndarray
    domain: np.ndarray


@pytest.fixture(scope="module")
def data() -> Stacked:
    xs, ys, xt, _ = bures.data.drifting_class(45, drift=0.5)
    xt = xt[:30]
    X, y = np.concatenate([xs, xt]), np.concatenate([ys, np.full(30, -1)])
    domain = np.concatenate([np.full(45, 1), np.full(30, -2)])
    order = np.random.default_rng(0).permutation(75)
    return Stacked(xs, ys, xt, X[order], y[order], domain[order])


@each_adapter
def test_one_array_and_two_arrays_agree(data, adapter):
    one = clone(adapter).fit(data.X, data.y, sample_domain=data.domain)
    source = data.domain > 0
    two = clone(adapter).fit_source_target(data.X[source], data.y[source], data.X[~source])
    np.testing.assert_array_equal(one.transform(data.xs, sample_domain=1), two.transform(data.xs, sample_domain=1))
    both = one.transform(data.X, sample_domain=data.domain)
    np.testing.assert_allclose(both[source], one.transform(data.X[source], sample_domain=1), atol=1e-9)
    np.testing.assert_allclose(both[~source], one.transform(data.X[~source], sample_domain=[-1] * 30), atol=1e-9)
    np.testing.assert_allclose(both[~source], one.transform(data.X[~source]), atol=1e-9)
    again = clone(adapter).fit_transform(data.X, data.y, sample_domain=data.domain)
    np.testing.assert_array_equal(both, again)


@pytest.mark.parametrize("adapter", KEEP_FEATURES, ids=repr)
def test_target_rows_stay_where_features_stay_features(data, adapter):
    adapter = clone(adapter).fit_source_target(data.xs, data.ys, data.xt)
    np.testing.assert_array_equal(adapter.transform(data.xt, sample_domain=[-3] * 30), data.xt)
    assert adapter.transform(data.xs, sample_domain=1).shape == data.xs.shape
    assert not np.allclose(adapter.transform(data.xs, sample_domain=1), data.xs)


@each_adapter
def test_a_pipeline_predicts_new_rows_as_target_rows(data, adapter):
    """What comes without a domain is what is to be predicted; the step behind the adapter learns source rows alone."""
    mapped = clone(adapter).fit_source_target(data.xs, data.ys, data.xt)
    estimator = LogisticRegression().fit(mapped.transform(data.xs, sample_domain=1), data.ys)
    pipeline = make_pipeline(mapped, estimator)
    pair = AdaptedClassifier(adapter, LogisticRegression()).fit_source_target(data.xs, data.ys, data.xt)
    np.testing.assert_allclose(pipeline.predict_proba(data.xt), pair.predict_proba(data.xt), atol=1e-12)


@each_adapter
def test_labels_of_target_rows_are_not_read(data, adapter):
    reference = clone(adapter).fit(data.X, data.y, sample_domain=data.domain).transform(data.X, sample_domain=1)
    for filler in (np.nan, None, 99.0):
        y = data.y.astype(object)
        y[data.domain < 0] = filler
        other = clone(adapter).fit(data.X, y, sample_domain=data.domain).transform(data.X, sample_domain=1)
        np.testing.assert_array_equal(other, reference)


@each_adapter
def test_the_classifier_predicts_target_rows_in_the_names_of_the_classes(data, adapter):
    names = np.array(["ape", "bee", "cat"])
    classifier = AdaptedClassifier(adapter).fit_source_target(data.xs, names[data.ys], data.xt)
    predicted = classifier.predict(data.xt)
    assert set(predicted) <= set(names)
    np.testing.assert_array_equal(classifier.classes_, names)
    np.testing.assert_array_equal(names[classifier.predict_proba(data.xt).argmax(axis=1)], predicted)
    mapped = classifier.adapter_.transform(data.xs, sample_domain=1)
    np.testing.assert_array_equal(
        classifier.predict(data.xs, sample_domain=[1] * 45), classifier.estimator_.predict(mapped)
    )
    np.testing.assert_array_equal(
        classifier.predict(data.xs, sample_domain=1), classifier.predict(data.xs, sample_domain=[1] * 45)
    )
    assert not hasattr(adapter, "n_features_in_")  # the adapter that was passed is not touched


@each_adapter
def test_an_adapter_without_target_says_so(data, adapter):
    name = type(adapter).__name__
    with pytest.raises(ValueError, match=rf"sample_domain is None.*{name} needs target rows.*fit_source_target"):
        clone(adapter).fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"no target rows \(< 0\)"):
        clone(adapter).fit(data.X, data.y, sample_domain=[1] * 75)
    with pytest.raises(ValueError, match=r"no source rows \(> 0\)"):
        clone(adapter).fit(data.X, data.y, sample_domain=[-1] * 75)
    with pytest.raises(ValueError, match=rf"{name} needs target rows"):
        AdaptedClassifier(adapter).fit(data.X, data.y)


@pytest.mark.parametrize(
    ("domain", "message"),
    [([1, -1], r"shape \(2,\)"), ([0] * 75, "zero"), (["a"] * 75, "dtype"), ([np.nan] * 75, "not finite")],
    ids=["length", "zero", "strings", "nan"],
)
def test_domains_that_are_none_are_refused(data, domain, message):
    with pytest.raises(ValueError, match=message):
        CORAL().fit(data.X, data.y, sample_domain=domain)


def test_several_domains_of_a_side_are_pooled(data):
    split = np.where(data.domain > 0, 1 + np.arange(75) % 2, -1 - np.arange(75) % 3)
    reference = CORAL().fit(data.X, sample_domain=data.domain)
    pooled = CORAL().fit(data.X, sample_domain=split)
    for ours, theirs in ((1, 1), (split, data.domain)):
        np.testing.assert_array_equal(
            pooled.transform(data.X, sample_domain=ours), reference.transform(data.X, sample_domain=theirs)
        )


@pytest.mark.parametrize("adapter", [OTClassReg(), ConditionalBuresAdapter()], ids=repr)
def test_adapters_that_use_classes_ask_for_them(data, adapter):
    with pytest.raises(ValueError, match="requires y to be passed"):
        adapter.fit(data.X, sample_domain=data.domain)
    with pytest.raises(ValueError, match="y has 3 entries but X has 75 rows"):
        adapter.fit(data.X, [0, 1, 2], sample_domain=data.domain)
    y = data.y.astype(float)
    y[np.flatnonzero(data.domain > 0)[0]] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity in source rows"):
        adapter.fit(data.X, y, sample_domain=data.domain)
    names = np.where(data.domain > 0, np.array(["a", "b", "c", "d"])[data.y % 4], None)
    for missing in (np.nan, None, pd.NA):
        names[np.flatnonzero(data.domain > 0)[0]] = missing
        with pytest.raises(ValueError, match="y contains None or NaN in source rows"):
            adapter.fit(data.X, names, sample_domain=data.domain)


def test_the_source_only_classifier_needs_no_target(data):
    classifier = AdaptedClassifier().fit(data.xs, data.ys)
    reference = LogisticRegression(max_iter=1000).fit(data.xs, data.ys)
    np.testing.assert_array_equal(classifier.predict(data.xt), reference.predict(data.xt))


def test_the_classifier_offers_what_its_estimator_offers(data):
    ridge = AdaptedClassifier(CORAL(), RidgeClassifier()).fit_source_target(data.xs, data.ys, data.xt)
    assert not hasattr(ridge, "predict_proba")
    assert ridge.decision_function(data.xt).shape == (30, 3)


def test_pseudo_labels_need_probabilities(data):
    with pytest.raises(TypeError, match="has no predict_proba"):
        ConditionalBuresAdapter(estimator=RidgeClassifier()).fit_source_target(data.xs, data.ys, data.xt)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (CORAL(reg=0), "reg=0.0 is out of range"),
        (GFK("all"), "n_components='all' is unknown"),
        (GFK(0), "n_components=0 is out of range"),
        (SubspaceAlignment(0), "n_components=0 is out of range"),
        (TCA(mu=-1), "mu=-1.0 is out of range"),
        (TCA(kernel="cosine"), "kernel='cosine' is unknown"),
        (TCA(bandwidth="per-block"), "bandwidth='per-block' is unknown"),
        (KGOT("cosine"), "kernel='cosine' is unknown"),
        (KGOT(n_landmarks=0), "n_landmarks=0 is out of range"),
        (OTIT(reg=-1), "reg=-1.0 is out of range"),
        (OTIT(max_iter=0), "max_iter=0 is out of range"),
        (OTClassReg(reg_class=0), "reg_class=0.0 is out of range"),
        (ConditionalBuresAdapter("mmd"), "distance='mmd' is unknown"),
        (ConditionalBuresAdapter(eps=0), "eps=0.0 is out of range"),
        (ConditionalBuresAdapter(n_rounds=0), "n_rounds=0 is out of range"),
    ],
    ids=repr,
)
def test_options_are_checked_in_fit_and_named(data, adapter, message):
    with pytest.raises(ValueError, match=message):
        adapter.fit_source_target(data.xs, data.ys, data.xt)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (SubspaceAlignment(1.5), "n_components=1.5 is not an integer; accepted is an integer of at least 1"),
        (OTIT(max_iter=1e2), "max_iter=100.0 is not an integer"),
        (ConditionalBuresAdapter(n_rounds="3"), "n_rounds='3' is not an integer"),
    ],
    ids=repr,
)
def test_counts_that_are_no_integers_are_named(data, adapter, message):
    with pytest.raises(TypeError, match=message):
        adapter.fit_source_target(data.xs, data.ys, data.xt)


@each_adapter
def test_names_of_columns_are_kept_and_compared(data, adapter):
    columns = ["left", "right"]
    frame = pd.DataFrame(data.X, columns=columns)
    fitted = clone(adapter).fit(frame, data.y, sample_domain=data.domain)
    np.testing.assert_array_equal(fitted.feature_names_in_, columns)
    out = fitted.get_feature_names_out()
    assert len(out) == fitted.transform(frame).shape[1]
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(frame[columns[::-1]])
    with pytest.raises(ValueError, match="feature names"):
        clone(adapter).fit_source_target(frame, data.y, frame[columns[::-1]])
    table = clone(adapter).set_output(transform="pandas").fit(frame, data.y, sample_domain=data.domain).transform(frame)
    assert list(table.columns) == list(out)


@each_adapter
def test_pickles_predict_the_same(data, adapter):
    classifier = AdaptedClassifier(adapter).fit_source_target(data.xs, data.ys, data.xt)
    copy = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(copy.predict_proba(data.xt), classifier.predict_proba(data.xt))


@each_adapter
def test_a_fit_can_be_repeated(data, adapter):
    first, second = (
        clone(adapter).fit_source_target(data.xs, data.ys, data.xt).transform(data.xs, sample_domain=1)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_options_can_be_read_and_set_through_the_classifier():
    classifier = AdaptedClassifier(CORAL(), LogisticRegression())
    classifier.set_params(adapter__reg=0.5, estimator__C=2.0)
    assert classifier.get_params()["adapter__reg"] == 0.5
    assert clone(classifier).estimator.C == 2.0


def test_domains_are_routed_as_metadata(data):
    with config_context(enable_metadata_routing=True):
        adapter, classifier = CORAL().get_metadata_routing(), AdaptedClassifier(CORAL()).get_metadata_routing()
        domains = {"sample_domain": True}
        assert adapter.fit.requests == adapter.transform.requests == classifier.fit.requests == domains
        assert classifier.predict.requests == {**domains, "allow_source": True}  # the latter as skada's scorers pass it
        assert CORAL().set_fit_request(sample_domain=False).get_metadata_routing().fit.requests == {
            "sample_domain": False
        }


def test_searches_score_each_row_as_of_its_domain():
    xs, ys, xt, yt = bures.data.drifting_class(45, drift=0.5)
    X = np.concatenate([xs, 3 * xt + 5])  # the target in units of its own
    y, domain = np.concatenate([ys, yt]), np.repeat([1, -1], 45)
    classifier = AdaptedClassifier(CORAL(reg=1e-3)).fit(X, y, sample_domain=domain)
    expected = np.mean(classifier.predict(X, sample_domain=domain) == y)
    assert classifier.score(X, y, sample_domain=domain) == expected
    assert classifier.score(X, y) != expected  # all rows as of the target
    weight = (domain < 0).astype(float)
    assert classifier.score(X, y, weight, domain) == np.mean(classifier.predict(3 * xt + 5) == yt)
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(classifier, X, y, cv=folds, params={"sample_domain": domain}, error_score="raise")
    for score, (train, test) in zip(scores, folds.split(X, y), strict=True):
        again = clone(classifier).fit(X[train], y[train], sample_domain=domain[train])
        assert score == np.mean(again.predict(X[test], sample_domain=domain[test]) == y[test])


def test_without_pot_the_extra_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    for adapter in (OTIT(), OTClassReg()):
        with pytest.raises(ImportError, match=rf"{type(adapter).__name__} needs POT.*bures\[ot\]"):
            adapter.fit_source_target(data.xs, data.ys, data.xt)


def test_the_package_loads_neither_lightning_nor_pot():
    code = "import sys, bures.estimators; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sklearn" in done.stdout
    for heavy in ("lightning", "'ot'", "matplotlib", "torchvision"):
        assert heavy not in done.stdout


@pytest.mark.parametrize("name", estimators.__all__)
def test_public_names_are_documented(name):
    text = getattr(estimators, name).__doc__
    for section in ("Parameters", "Attributes", "Examples", ">>> "):
        assert section in text
    assert name == "AdaptedClassifier" or "References" in text
