"""Targets: validators, calibration and density ratios."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from bures import selection
from bures.selection import Evidence, make_validator, validator_names, validator_options
from tests.fuzz import inputs
from tests.fuzz.campaign import Case, target
from tests.fuzz.inputs import Given

COLUMNS = (
    "target_probabilities",
    "target_features",
    "source_features",
    "source_labels",
    "validation_features",
    "validation_probabilities",
    "validation_labels",
)
NAMES = (*COLUMNS, "target arrays", "source arrays", "validation arrays", "the features have", "the probabilities have",
         "probabilities", "labels", "temperature", "n_bins", "sample_weight", "at ", "regularisation", "max_samples",
         "losses", "weights", "pseudo_labels", "eps", "loss", "validator", "classifier")  # fmt: skip


def draw_evidence(case: Case) -> dict[str, Given]:
    """All that a validator may need, of three sizes."""
    draw, rng = case.draw, case.rng
    sizes = {part: case.whole(1, 10) for part in ("target", "source", "validation")}
    d, k = case.one_of(1, 2, 4), case.whole(1, 4)
    given = {}
    for name in COLUMNS:
        n = sizes[name.partition("_")[0]]
        if name.endswith("features"):
            given[name] = inputs.draw_features(draw, rng, n, d)
        elif name.endswith("labels"):
            given[name] = inputs.draw_classes(draw, rng, n, k)
        else:
            given[name] = inputs.draw_probabilities(draw, rng, n, k)
    case.say(**given)
    return given


def fault_of(given: dict[str, Given], names: Any) -> str | None:
    faults = [given[name].fault for name in names if given[name].fault]
    if faults:
        return str(faults[0])
    # int8 and bool features are refused nowhere; class numbers in an object array are
    return next((name for name in names if large(given[name])), None)


def large(given: Given) -> bool:
    return given.plain.dtype.kind in "fiu" and bool(np.abs(given.plain.astype(float)).max(initial=0) > 1e14)


@target(
    *(f"bures.selection.{name}" for name in (
        "Evidence", "Validator", "make_validator", "validator_names", "validator_options", "information",
        "negative_ckb", "negative_ckw", "negative_dev", "negative_entropy", "negative_iwcv", "neighbourhood_density",
        "relative_nuclear_norm", "reverse_accuracy", "source_accuracy")),
    weight=3,
)  # fmt: skip
def validators(case: Case) -> None:
    name = case.one_of(*validator_names())
    given = draw_evidence(case)
    options, wrong = inputs.bad_options(case.draw, validator_options(name))
    case.say(validator=name, options=options)
    validator = case.call(make_validator, name, names=(*NAMES, *options), fault=wrong, **options)
    fault = wrong or fault_of(given, validator.needs)
    needed = {need: given[need].value for need in validator.needs}
    if case.one_of(True, False):
        score = case.call(validator.function, *needed.values(), names=(*NAMES, *options), fault=fault, **(
            options if wrong is None else {}))  # fmt: skip
    else:
        evidence = case.call(Evidence, names=NAMES, fault=fault_of(given, validator.needs), **needed)
        score = case.call(validator.score, evidence, names=(*NAMES, *options), fault=fault)
    if fault:
        return
    alone = name == "snd" and len(given["target_probabilities"].plain) == 1
    features = np.concatenate([given[f"{side}_features"].plain.astype(float) for side in ("source", "target")])
    spread = np.abs(features - features[0]).max()
    alone |= name in ("ckb", "ckw") and spread <= 2e-6 * np.abs(features).max()  # one point: as documented
    case.require(isinstance(score, float), f"the score is a {type(score).__name__}")
    case.require(math.isfinite(score) or (alone and math.isnan(score)), f"the score is {score!r}")


@target(
    *(f"bures.selection.{name}" for name in (
        "Bin", "Reliability", "reliability", "expected_calibration_error", "fit_temperature", "scale_probabilities")),
    weight=2,
)  # fmt: skip
def calibration(case: Case) -> None:
    n, k = case.whole(1, 12), case.whole(1, 4)
    p = inputs.draw_probabilities(case.draw, case.rng, n, k)
    y = inputs.draw_classes(case.draw, case.rng, n, k)
    w = inputs.draw_weights(case.draw, case.rng, n)
    bins = case.one_of(1, 15, 15, 0, -1, "nonsense", 2.5)
    temperature = case.one_of(1.0, 0.5, 1e-2, 1e2, 1e-30, 1e30, 0, -1, math.nan, math.inf, "nonsense", None)
    case.say(p=p, y=y, w=w, bins=bins, temperature=temperature)
    what = case.one_of("reliability", "temperature", "scale")
    fault = p.fault or (y.fault if what != "scale" else None)
    if what == "reliability":
        fault = fault or (None if bins in (1, 15) else "n_bins")
        found = case.call(selection.reliability, p.value, y.value, n_bins=bins, names=NAMES, fault=fault)
        case.require(0 <= found.error <= 1, f"a calibration error of {found.error}")
        case.require(sum(part.samples for part in found.bins) == n, "samples are lost")
        case.close(selection.expected_calibration_error(p.value, y.value, n_bins=bins), found.error, 0.0, "two errors")
    elif what == "temperature":
        found = case.call(
            selection.fit_temperature, p.value, y.value, sample_weight=w.value, names=NAMES, fault=fault or w.fault
        )
        case.require(0.01 <= found <= 100, f"a temperature of {found}")
    else:
        usable = isinstance(temperature, (int, float)) and 0 < temperature < math.inf
        fault = fault or (None if usable else "temperature")
        scaled = case.call(selection.scale_probabilities, p.value, temperature, names=NAMES, fault=fault)
        case.finite(scaled)
        sums = scaled.double().sum(dim=1)
        case.require(bool(((sums - 1).abs() < 1e-2).all() and (scaled >= 0).all()), "no probabilities any more")


@target(*(f"bures.selection.{name}" for name in ("importance_weights", "weighted_risk", "controlled_risk")))
def density_ratios(case: Case) -> None:
    d = case.one_of(1, 3)
    if case.one_of(True, False):
        features = [inputs.draw_features(case.draw, case.rng, case.whole(1, 8), d) for _ in range(3)]
        case.say(features=features)
        options, wrong = inputs.bad_options(case.draw, {"regularisation": 1.0, "max_samples": case.one_of(4096, 2)})
        fault = wrong or next((one.fault or "large" for one in features if one.fault or large(one)), None)
        found = case.call(
            selection.importance_weights, *(one.value for one in features),
            names=(*NAMES, "source_features", "target_features"), fault=fault, **options,
        )  # fmt: skip
        case.finite(found)
        case.require(bool((found >= 0).all()), "a negative density ratio")
        return
    n = case.whole(1, 8)
    losses = inputs.draw_features(case.draw, case.rng, n, 1)
    values = losses.value if losses.fault else losses.plain[:, 0]
    w = inputs.draw_weights(case.draw, case.rng, n)
    weights = np.ones(n) if w.value is None else w.value
    case.say(losses=values, weights=weights)
    fault = losses.fault or w.fault
    risk = case.call(selection.weighted_risk, values, weights, names=NAMES, fault=fault)
    controlled = case.call(selection.controlled_risk, values, weights, names=NAMES, fault=fault)
    if fault is None and not large(losses) and float(np.max(weights)) < 1e100:
        case.finite([risk, controlled])
    case.require(not isinstance(risk, torch.Tensor), "a tensor for a risk")


@target(
    *(f"bures.selection.{name}" for name in ("study", "compare_validators", "comparable_runs", "preferred_validator")),
    weight=0.3,
)
def study(case: Case) -> None:
    rows: list[Any] = []
    for _ in range(case.whole(0, 6)):
        scores = {f"score_{name}": float(case.rng.normal()) for name in ("im", "snd")[: case.whole(0, 2)]}
        accuracy = case.one_of(None, "", float(case.rng.random()), math.nan)
        epochs: Any = [{"epoch": epoch, "target_accuracy": accuracy, **scores} for epoch in range(case.whole(0, 3))]
        rows.append({"task": case.one_of("a->b", "b->a"), "method": "ckb", "epochs": epochs})
    damaged = case.one_of(None, None, "no epochs", "text", "list")
    if damaged and rows:
        rows[0] = {"no epochs": {k: v for k, v in rows[0].items() if k != "epochs"}, "text": "nonsense",
                   "list": {**rows[0], "epochs": [1, 2]}}[damaged]  # fmt: skip
    case.say(rows=rows)
    fault = damaged or "few"
    by = case.one_of(None, "task", "method", "nonsense")
    table = case.call(selection.study, rows, by=by, names=("result", "validators", "by=", "epochs"), fault=fault)
    case.require(len(table) > 0, "a study without rows")
    runs, names = case.call(selection.comparable_runs, rows, names=("result",), fault=fault)
    case.require(len(runs) <= len(rows) and names, "runs that were never made")
    words = ("result", "current")
    compared = case.call(selection.compare_validators, rows, current=names[0], names=words, fault=fault)
    case.require(set(compared.columns) >= {"tasks", "verdict"}, "columns are lost")
    case.call(selection.preferred_validator, rows, names=words, fault=fault)
