"""Input at the edge: equal rows, constant features, n < d, single rows and classes, a missing class; invariances."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

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
    GFK(50),
    KGOT(),
    KGOT("linear"),
    OTIT(),
    OTClassReg(),
    TCA(),
    TCA(kernel="gaussian"),
    SubspaceAlignment(),
    SubspaceAlignment(50),
    ConditionalBuresAdapter(n_rounds=2),
    ConditionalBuresAdapter("ckb", n_rounds=2),
    ConditionalBuresAdapter(kernel="gaussian", n_rounds=2),
]
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=repr)
RNG = np.random.default_rng(0)


def constant_feature(xs, ys, xt):
    return xs * [1.0, 0.0, 1.0], ys, xt * [1.0, 0.0, 1.0] + [0.0, 7.0, 0.0]


CASES = {
    "duplicates": lambda xs, ys, xt: (np.repeat(xs[:4], 5, axis=0), np.arange(20) % 2, np.repeat(xt[:3], 5, axis=0)),
    "constant feature": constant_feature,
    "all rows equal": lambda xs, ys, xt: (np.ones((20, 3)), ys, np.ones((15, 3))),
    "all rows zero": lambda xs, ys, xt: (np.zeros((20, 3)), ys, np.zeros((15, 3))),
    "equal rows in each domain": lambda xs, ys, xt: (np.ones((20, 3)), ys, np.full((15, 3), 5.0)),
    "one sample per class": lambda xs, ys, xt: (xs[:2], np.array([0, 1]), xt),
    "one target row": lambda xs, ys, xt: (xs, ys, xt[:1]),
    "one feature": lambda xs, ys, xt: (xs[:, :1], ys, xt[:, :1]),
    "fewer rows than features": lambda xs, ys, xt: (RNG.normal(size=(6, 40)), ys[:6], RNG.normal(size=(5, 40))),
    "class of one": lambda xs, ys, xt: (xs, np.r_[2, ys[1:]], xt),
    "class missing from the target": lambda xs, ys, xt: (xs + 50 * ys[:, None], ys, xt),
    "large offset": lambda xs, ys, xt: (xs + 1e7, ys, xt + 1e7),
    "large scale": lambda xs, ys, xt: (xs * 1e8, ys, xt * 1e8),
    "small scale": lambda xs, ys, xt: (xs * 1e-8, ys, xt * 1e-8),
    "far apart": lambda xs, ys, xt: (xs, ys, xt + 1e5),
    "integers": lambda xs, ys, xt: (np.rint(xs * 9).astype(int), ys, np.rint(xt * 9).astype(int)),
}


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 3)), np.arange(20) % 2, rng.normal(size=(15, 3))


@each_adapter
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_result_is_finite_and_predicts_classes(data, adapter, case):
    xs, ys, xt = CASES[case](*data)
    classifier = AdaptedClassifier(adapter).fit_source_target(xs, ys, xt)
    for rows, sign in ((xs, 1), (xt, -1), (xt + 1, 1)):
        z = classifier.adapter_.transform(rows, sample_domain=np.full(len(rows), sign))
        assert np.isfinite(z).all()
        assert z.shape[0] == len(rows)
    assert np.isin(classifier.predict(xt), ys).all()


@each_adapter
def test_one_class_is_adapted_too(data, adapter):
    xs, _, xt = data
    fitted = clone(adapter).fit_source_target(xs, np.zeros(20), xt)
    assert np.isfinite(fitted.transform(xs, sample_domain=1)).all()


@pytest.mark.parametrize("adapter", [CORAL(), KGOT("linear"), ConditionalBuresAdapter()], ids=repr)
def test_where_nothing_varies_source_goes_to_target_without_rounding(adapter):
    xs, xt = np.ones((6, 3)), np.full((4, 3), 5.0)
    fitted = clone(adapter).fit_source_target(xs, np.arange(6) % 2, xt)
    np.testing.assert_allclose(fitted.transform(xs, sample_domain=1), np.full((6, 3), 5.0), rtol=1e-6)


@pytest.mark.parametrize("adapter", [CORAL(), OTIT(), OTClassReg(), KGOT("linear")], ids=repr)
@pytest.mark.parametrize(("scale", "offset"), [(1e4, 0.0), (1e-4, 0.0), (1.0, 1e4)], ids=["large", "small", "moved"])
def test_a_change_of_units_changes_nothing(data, adapter, scale, offset):
    xs, ys, xt = data
    reference = clone(adapter).fit_source_target(xs, ys, xt).transform(xs, sample_domain=1)
    fitted = clone(adapter).fit_source_target(scale * xs + offset, ys, scale * xt + offset)
    np.testing.assert_allclose(
        (fitted.transform(scale * xs + offset, sample_domain=1) - offset) / scale, reference, atol=1e-6
    )


@pytest.mark.parametrize("adapter", [GFK(2), SubspaceAlignment(2), CORAL(), KGOT("linear"), KGOT(n_landmarks=35)])
def test_a_rotation_of_the_features_turns_the_result(data, adapter):
    xs, ys, xt = data
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    z, turned = (
        (a.transform(s, sample_domain=1), a.transform(t, sample_domain=[-1] * 15))
        for a, s, t in (
            (clone(adapter).fit_source_target(xs, ys, xt), xs, xt),
            (clone(adapter).fit_source_target(xs @ turn, ys, xt @ turn), xs @ turn, xt @ turn),
        )
    )
    # Inner products between the domains see what a classifier sees.
    np.testing.assert_allclose(turned[0] @ turned[1].T, z[0] @ z[1].T, atol=1e-6 * np.abs(z[0] @ z[1].T).max())


@each_adapter
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_order_of_the_rows_does_not_matter(data, adapter):
    xs, ys, xt = data
    order = np.random.default_rng(0).permutation(20)
    first = clone(adapter).fit_source_target(xs, ys, xt).transform(xs, sample_domain=1)
    second = clone(adapter).fit_source_target(xs[order], ys[order], xt).transform(xs, sample_domain=1)
    # Axes have no sign, so that lengths are compared where they can turn.
    np.testing.assert_allclose(second @ second.T, first @ first.T, atol=1e-3 * np.abs(first @ first.T).max())


@each_adapter
@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, 1e6])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_rounding_of_constant_features_is_not_blown_up(adapter, value):
    rows, domain = np.full((55, 3), value), np.repeat([1, -1], [30, 25])
    moved = clone(adapter).fit_transform(rows, np.arange(55) % 2, sample_domain=domain)
    assert np.abs(moved).max() <= max(10.0, 10 * value)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), rtol=1e-9, atol=1e-9 * max(1, value))
