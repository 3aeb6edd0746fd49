"""Each method on a shift it is made for: it must beat the source-only classifier by far more than chance."""

from __future__ import annotations

import numpy as np
import pytest

import bures
from bures.data import DomainPair
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


def other_units(seed: int) -> DomainPair:
    """The target is measured with another scale and zero."""
    xs, ys, xt, yt = bures.data.drifting_class(150, drift=0.5, seed=seed)
    return DomainPair(xs, ys, 3 * xt + 5, yt)


def offset_features(seed: int) -> DomainPair:
    """Eight features, of which four that tell little of the class are offset in the target."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=(2, 150))
    x = rng.normal(size=(2, 150, 8))
    x[..., 0] += 3 * (2 * y - 1)
    x[..., 1:5] += 0.8 * (2 * y - 1)[..., None]
    x[1, :, 1:5] += 4
    return DomainPair(x[0], y[0], x[1], y[1])


def turned_subspace(seed: int) -> DomainPair:
    """Three classes in a plane of ten dimensions, which is turned away by 85 degrees in the target."""
    rng = np.random.default_rng(seed)
    xs, ys, xt, yt = bures.data.drifting_class(150, drift=0.0, seed=seed)
    angle, axes = np.radians(85), np.eye(10)
    turned = np.cos(angle) * axes[:2] + np.sin(angle) * axes[2:4]
    noise = 0.3 * rng.normal(size=(2, 150, 10))
    return DomainPair(xs @ axes[:2] + noise[0], ys, xt @ turned + noise[1], yt)


def moons(seed: int) -> DomainPair:
    return bures.data.rotated_moons(150, angle=20, seed=seed)


CASES = [
    (other_units, CORAL(), 0.1),
    (other_units, KGOT(), 0.1),
    (other_units, KGOT("linear"), 0.1),
    (other_units, OTIT(), 0.1),
    (other_units, OTClassReg(), 0.1),
    (other_units, ConditionalBuresAdapter(), 0.1),
    (other_units, ConditionalBuresAdapter(kernel="gaussian"), 0.1),
    (offset_features, CORAL(), 0.2),
    (offset_features, GFK(), 0.2),
    (offset_features, SubspaceAlignment(), 0.2),
    (offset_features, TCA(), 0.2),
    (offset_features, OTIT(), 0.2),
    (offset_features, OTClassReg(), 0.2),
    (offset_features, KGOT(), 0.2),
    (offset_features, ConditionalBuresAdapter(), 0.2),
    (turned_subspace, GFK(2), 0.2),
    (turned_subspace, SubspaceAlignment(2), 0.2),
    (moons, KGOT(), 0.1),
    (moons, ConditionalBuresAdapter(), 0.02),
    (moons, ConditionalBuresAdapter("ckb"), 0.02),
    (moons, OTIT(), 0.02),
]


@pytest.mark.parametrize(
    ("shift", "adapter", "margin"), CASES, ids=lambda value: getattr(value, "__name__", repr(value))
)
def test_the_adapted_classifier_beats_the_source_only_one(shift, adapter, margin):
    gains = []
    for seed in range(3):
        xs, ys, xt, yt = shift(seed)
        plain, adapted = (AdaptedClassifier(a).fit_source_target(xs, ys, xt) for a in (None, adapter))
        gains.append(adapted.score(xt, yt) - plain.score(xt, yt))
    assert np.mean(gains) > margin
    assert min(gains) > 0


@pytest.mark.parametrize(
    "adapter",
    [CORAL(), GFK(2), SubspaceAlignment(2), TCA(2), OTIT(), OTClassReg(), KGOT(), ConditionalBuresAdapter()],
    ids=repr,
)
def test_without_a_shift_little_is_lost(adapter):
    xs, ys, xt, yt = bures.data.drifting_class(150, drift=0.0)
    plain, adapted = (AdaptedClassifier(a).fit_source_target(xs, ys, xt) for a in (None, adapter))
    assert plain.score(xt, yt) > 0.95
    assert adapted.score(xt, yt) > plain.score(xt, yt) - 0.05
