"""Targets: the scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from bures import estimators
from bures.estimators import AdaptedClassifier, CKBClassifier
from tests.fuzz import inputs
from tests.fuzz.campaign import Case, target

OPTIONS: dict[str, dict[str, Any]] = {
    "CORAL": {"reg": 1.0, "align_means": True},
    "GFK": {"n_components": 2},
    "KGOT": {"kernel": "gaussian", "bandwidth": "shared", "n_landmarks": 5, "reg": 1.0},
    "OTIT": {"reg": 0.05, "max_iter": 50},
    "OTClassReg": {"reg": 0.05, "reg_class": 0.1, "max_iter": 3, "max_inner_iter": 30},
    "TCA": {"n_components": 3, "kernel": "linear", "bandwidth": "shared", "mu": 1.0},
    "SubspaceAlignment": {"n_components": 2},
    "ConditionalBuresAdapter": {"distance": "ckw", "kernel": "linear", "n_components": 5, "reg": 0.1, "n_rounds": 1,
                                "max_iter": 3},
    "CKBAdapter": {"distance": "ckb", "kernel": "linear", "n_components": 5, "reg": 0.1, "n_rounds": 1, "max_iter": 3},
}  # fmt: skip
NETWORK = {"hidden": 4, "features": 3, "epochs": 1, "batch_size": 4}
# What scikit-learn says of an array names it as X, or speaks of an array, samples or features.
NAMES = ("X", "y ", "y contains", "sample_domain", "array", "xs", "ys", "xt", "classes", "Unknown label type",
         "Complex data", "could not convert string", "the source has", "the target has")  # fmt: skip
MODERATE = (1.0, 1.0, 1e-3, 1e3, 1e-8, 1e8)


def draw_domains(case: Case) -> tuple[Any, Any, Any, Any, str | None]:
    """``(X, y, sample_domain, plain X, fault)`` of both domains in one array."""
    n, m, d, k = case.one_of(10, 4, 1), case.one_of(10, 4, 1), case.one_of(1, 2, 4, 15), case.whole(1, 3)
    x = inputs.draw_features(case.draw, case.rng, n + m, d, scale=case.one_of(*MODERATE))
    y = inputs.Given(np.arange(n + m) % max(k, 2), None, np.arange(n + m) % max(k, 2))
    if case.one_of(False, False, True):
        y = inputs.draw_classes(case.draw, case.rng, n + m, k)
    domain = np.where(np.arange(n + m) < n, 1, -2)
    fault = x.fault or y.fault
    if case.whole(0, 12) == 12:
        fault = case.one_of("zero", "short", "one-sided", "text", "nan")
        domain = {
            "zero": lambda: 0 * domain,
            "short": lambda: domain[:-1],
            "one-sided": lambda: np.abs(domain),
            "text": lambda: np.full(n + m, "s"),
            "nan": lambda: np.full(n + m, np.nan),
        }[fault]()
    if fault is None and len(np.unique(y.plain[:n])) < 2:
        fault = "one class"
    case.say(x=x, y=y, sample_domain=domain, fault=fault)
    value = x.value
    return (
        (value.numpy() if hasattr(value, "numpy") and not hasattr(value, "iloc") else value),
        y.value,
        domain,
        x,
        fault,
    )


@target(*(f"bures.estimators.{name}" for name in OPTIONS), weight=3)
def adapters(case: Case) -> None:
    name = case.one_of(*OPTIONS)
    x, y, domain, given, fault = draw_domains(case)
    options, wrong = inputs.bad_options(case.draw, OPTIONS[name])
    case.say(estimator=name, options=options)
    adapter = getattr(estimators, name)(**options)
    names = (*NAMES, *OPTIONS[name])
    moved = case.call(
        adapter.fit_transform, x, y, sample_domain=domain, names=names, fault=wrong or fault or few(given)
    )
    if wrong:
        return
    case.finite(moved, f"what {name} makes of the rows")
    case.require(len(moved) == len(given.plain), "rows are lost")
    again = case.call(adapter.transform, x, sample_domain=domain, names=names, fault=fault)
    case.require(
        np.allclose(moved, again, rtol=1e-6, atol=1e-6 * (1 + np.abs(moved).max())), "transform changes its mind"
    )


def few(given: Any) -> str | None:
    return "few" if len(given.plain) < 4 else None


@target("bures.estimators.AdaptedClassifier", weight=1.5)
def adapted_classifier(case: Case) -> None:
    name = case.one_of("CORAL", "SubspaceAlignment", "TCA", "KGOT", None)
    x, y, domain, given, fault = draw_domains(case)
    model = AdaptedClassifier(None if name is None else getattr(estimators, name)(**OPTIONS[name]))
    case.say(adapter=name)
    try:
        model.predict(given.plain)
        case.require(False, "an estimator that is not fitted predicts")
    except NotFittedError:
        pass
    case.call(model.fit, x, y, sample_domain=domain, names=(*NAMES, "n_components"), fault=fault or few(given))
    predicted = case.call(model.predict, x, names=NAMES, fault=fault)
    case.require(set(predicted) <= set(model.classes_), "a class that was never seen")


@target("bures.estimators.CKBClassifier", weight=0.5)
def network_classifier(case: Case) -> None:
    x, y, domain, given, fault = draw_domains(case)
    options, wrong = inputs.bad_options(case.draw, NETWORK)
    case.say(options=options)
    model = CKBClassifier(method=case.one_of("ckb", "source"), **options)
    names = (*NAMES, *NETWORK)
    lonely = min((domain > 0).sum(), (domain < 0).sum()) < 2 if domain.dtype.kind == "i" else False
    fault = fault or ("one sample" if lonely else None)
    case.call(model.fit, x, y, sample_domain=domain, names=names, fault=wrong or fault or few(given))
    if wrong:
        return
    p = case.call(model.predict_proba, x, names=names, fault=fault)
    case.finite(p)
    case.require(bool(np.allclose(p.sum(axis=1), 1, atol=1e-5)), "probabilities that do not sum to one")
