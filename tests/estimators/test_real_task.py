"""Every adapter on digits that are turned and faded in the target: its classifier must beat the one without."""

import numpy as np
import pytest
from turned_digits import turned_pixels

import bures.estimators
from bures.estimators import (
    CORAL,
    GFK,
    KGOT,
    OTIT,
    TCA,
    AdaptedClassifier,
    CKBAdapter,
    ConditionalBuresAdapter,
    OTClassReg,
    SubspaceAlignment,
)

pytest.importorskip("ot")

MARGIN = 0.06

ADAPTERS = [
    CORAL(),
    GFK(),
    KGOT(),
    KGOT("linear"),
    OTClassReg(),
    OTIT(),
    SubspaceAlignment(),
    TCA(mu=1e-2),  # the penalty of the default keeps the means of these features apart
    ConditionalBuresAdapter(),
    ConditionalBuresAdapter("ckb"),
    CKBAdapter(),
    ConditionalBuresAdapter(kernel="gaussian"),
]


@pytest.fixture(scope="module")
def data():
    return [part[:300].numpy().astype(np.float64 if part.is_floating_point() else np.int64) for part in turned_pixels()]


def accuracy(adapter, data):
    x_s, y_s, x_t, y_t = data
    return AdaptedClassifier(adapter).fit_source_target(x_s, y_s, x_t).score(x_t, y_t)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=repr)
def test_an_adapter_beats_the_source_on_turned_digits(adapter, data):
    assert accuracy(adapter, data) > accuracy(None, data) + MARGIN


def test_all_adapters_are_here():
    classifiers = {"AdaptedClassifier", "CKBClassifier"}
    adapters = set(bures.estimators.__all__) - classifiers
    assert {type(adapter).__name__ for adapter in ADAPTERS} == adapters
