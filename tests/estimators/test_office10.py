"""The shallow methods on ResNet-50 features of Office-Caltech10.

Set BURES_DATA to a folder that holds ``office10/resnet50.npz`` (keys ``<domain>_x`` and ``<domain>_y``); the tests
skip without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

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

FILE = Path(os.environ.get("BURES_DATA", os.devnull)) / "office10" / "resnet50.npz"
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="BURES_DATA names no folder with office10/resnet50.npz")
pytest.importorskip("ot")

TASKS = [("amazon", "webcam"), ("webcam", "amazon")]

# Ten classes: a map that mixes them up is near 0.1. The methods that match all of P(X) lose accuracy here, because
# class frequencies differ between the domains; the second number is what the mean of the tasks may fall by at most.
METHODS = [
    (CORAL(), 0.04),
    (GFK(), 0.08),
    (SubspaceAlignment(), 0.08),
    (TCA(), 0.2),
    (OTIT(), 0.2),
    (OTClassReg(), 0.1),
    (KGOT(), 0.02),
    (KGOT("linear"), 0.02),
    (ConditionalBuresAdapter("ckb", n_rounds=2), 0.01),
]


@pytest.fixture(scope="module")
def tasks():
    """At most 200 rows of each domain, in an order that mixes the classes."""
    rng = np.random.default_rng(0)
    domains = {}
    with np.load(FILE) as data:
        for name in ("amazon", "dslr", "webcam"):
            x, y = data[f"{name}_x"], data[f"{name}_y"]
            chosen = rng.permutation(len(x))[:200]
            domains[name] = (x[chosen].astype(np.float64), y[chosen].astype(np.int64))
    return [(*domains[s], *domains[t]) for s, t in TASKS]


def mean_accuracy(adapter, tasks):
    scores = [AdaptedClassifier(adapter).fit_source_target(*task[:3]).score(*task[2:]) for task in tasks]
    return np.mean(scores)


@pytest.fixture(scope="module")
def source_only(tasks):
    return mean_accuracy(None, tasks)


@pytest.mark.parametrize(("adapter", "loss"), METHODS, ids=lambda value: repr(value))
@pytest.mark.filterwarnings("ignore:the marginals of the transport plan")
def test_the_classes_survive(tasks, source_only, adapter, loss):
    assert mean_accuracy(adapter, tasks) > source_only - loss


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_the_conditional_adapter_beats_the_source_only_classifier(tasks, source_only, kernel):
    assert mean_accuracy(ConditionalBuresAdapter(kernel=kernel, n_rounds=3), tasks) > source_only + 0.01
