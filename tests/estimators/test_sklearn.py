"""scikit-learn's own checks of estimators.

The checks call ``fit(X, y)`` and know nothing of domains, where an adapter refuses to work: it needs a target. So the
adapters are checked through subclasses that take every second row for target. The classifier without an adapter
needs no target and is checked as it is.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

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


class EverySecondRowIsTarget:
    def fit(self, X, y=None, sample_domain=None):
        if sample_domain is None:
            n = len(X) if hasattr(X, "__len__") else len(np.asarray(X))
            sample_domain = np.where(np.arange(n) % 2, -1, 1)
        return super().fit(X, y, sample_domain=sample_domain)


class CheckedCORAL(EverySecondRowIsTarget, CORAL):
    pass


class CheckedGFK(EverySecondRowIsTarget, GFK):
    pass


class CheckedKGOT(EverySecondRowIsTarget, KGOT):
    pass


class CheckedOTIT(EverySecondRowIsTarget, OTIT):
    pass


class CheckedOTClassReg(EverySecondRowIsTarget, OTClassReg):
    pass


class CheckedTCA(EverySecondRowIsTarget, TCA):
    pass


class CheckedSubspaceAlignment(EverySecondRowIsTarget, SubspaceAlignment):
    pass


class CheckedConditionalBuresAdapter(EverySecondRowIsTarget, ConditionalBuresAdapter):
    pass


class CheckedAdaptedClassifier(EverySecondRowIsTarget, AdaptedClassifier):
    pass


ESTIMATORS = [
    CheckedCORAL(),
    CheckedGFK(),
    CheckedKGOT(),
    CheckedKGOT("linear"),
    CheckedOTIT(),
    CheckedOTClassReg(max_iter=3),
    CheckedTCA(),
    CheckedSubspaceAlignment(),
    CheckedConditionalBuresAdapter(n_rounds=2),
    CheckedConditionalBuresAdapter("ckb", kernel="gaussian", n_components=10, n_rounds=2, max_iter=10),
    CheckedAdaptedClassifier(CORAL()),
    AdaptedClassifier(),
]


def expected_failures(estimator):
    if isinstance(estimator, CheckedAdaptedClassifier):
        return {"check_estimators_dtypes": "every second row of its 20 happens to be of one class"}
    return {}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator, check):
    check(estimator)
