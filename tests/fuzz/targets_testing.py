"""Targets: two-sample tests and the shift report."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

import bures
from bures.testing import PredictedLabels, out_of_fold_labels
from tests.fuzz import inputs
from tests.fuzz.campaign import Case, target
from tests.fuzz.targets_metrics import FEATURES, LABELS, OPTIONS, draw_pair, overflows

NAMES = (*FEATURES, *LABELS, *OPTIONS, "statistic", "n_permutations", "level", "seed", "labels", "n_features",
         "per_class", "predicted_s", "classifier", "n_bootstrap", "max_samples", "n_folds")  # fmt: skip


def check_test(case: Case, result: bures.ShiftTest) -> None:
    """A p-value in its range, finite numbers, and words."""
    case.require(0 < result.p_value <= 1, f"p-value {result.p_value!r}")
    case.finite([result.statistic, *result.null], "a statistic")
    case.finite([result.effect_size, result.z_score], "the effect size or z-score")
    for row in result.classes:
        case.require(0 < row.p_value <= row.p_adjusted <= 1, f"p-values of a class: {row}")
        case.finite([row.statistic, row.effect_size], "a number of a class")
    case.require(str(result) and repr(result) and result.to_dict(null=True), "nothing to show")
    if case.whole(0, 20) == 20:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        result.plot()
        plt.close("all")


def kernel_options(case: Case) -> dict[str, Any]:
    return {
        "kernel": case.one_of("gaussian", "gaussian", "laplacian", "linear"),
        "bandwidth": case.one_of("shared", "median", "aggregate", 1.0, [0.5, 2.0]),
        **dict(zip(("n_permutations", "level"), case.one_of((19, 0.05), (9, 0.5), (1, 0.5)), strict=True)),
        "seed": case.whole(0, 9),
    }


@target(
    "bures.testing.conditional_test",
    "bures.conditional_test",
    "bures.testing.ShiftTest",
    "bures.ShiftTest",
    "bures.testing.ClassTest",
    weight=2,
)
def conditional_test(case: Case) -> None:
    pair = draw_pair(case)
    options = kernel_options(case) | {
        "statistic": case.one_of("ckw", "ckb", "means"),
        "eps": case.one_of(1e-2, "auto"),
        "n_features": case.one_of("auto", "auto", None, 4),
        "per_class": case.one_of(None, True, False),
    }
    aggregate = options["kernel"] == "linear" and not isinstance(options["bandwidth"], (str, float))
    options, wrong = inputs.bad_options(case.draw, options)
    # True labels beside predictions are refused, and so are probabilities: permutations need classes.
    mixed = 2 in (pair.ys.plain.ndim, pair.yt.plain.ndim)
    if mixed and pair.ys.plain.ndim == 2 == pair.yt.plain.ndim and case.one_of(True, False):
        options["conditioning"], mixed = "hard", False
    apart = "no class in common" if not mixed and not common_classes(pair) else None
    case.say(options=options)
    fault = wrong or pair.fault or ("mixed" if mixed else None) or apart or ("linear" if aggregate else None)
    fault = fault or ("overflow" if overflows(pair, options) or pair.largest > 1e150 else None)
    # Options exclude each other (features of a linear kernel, several bandwidths): the messages say so.
    fault = fault or ("options" if options["kernel"] == "linear" or options["n_features"] == 4 else None)
    result = case.call(bures.conditional_test, *pair.data, names=NAMES, fault=fault, **options)
    if not wrong:
        check_test(case, result)


def common_classes(pair: Any) -> bool:
    classes = [
        set(np.unique(g.plain if g.plain.ndim == 1 else g.plain.argmax(axis=1)).tolist()) for g in (pair.ys, pair.yt)
    ]
    return bool(classes[0] & classes[1])


@target("bures.testing.marginal_test", "bures.marginal_test", weight=2)
def marginal_test(case: Case) -> None:
    pair = draw_pair(case)
    options = kernel_options(case) | {
        "statistic": case.one_of("mmd", "kernel-bures"),
        "n_features": case.one_of("auto", "auto", None, 4),
    }
    options, wrong = inputs.bad_options(case.draw, options)
    case.say(options=options)
    fault = wrong or pair.feature_fault or ("overflow" if overflows(pair, options) else None)
    fault = fault or ("options" if options["kernel"] == "linear" or options["n_features"] == 4 else None)
    result = case.call(bures.marginal_test, *pair.features, names=NAMES, fault=fault, **options)
    if not wrong:
        check_test(case, result)


@target("bures.testing.out_of_fold_labels", "bures.testing.LabelPair", "bures.testing.PredictedLabels")
def predicted_labels(case: Case) -> None:
    pair = draw_pair(case)
    options, wrong = inputs.bad_options(case.draw, {"n_folds": case.whole(2, 5), "seed": case.whole(0, 3)})
    case.say(options=options)
    fault = wrong or pair.feature_fault or pair.ys.fault or ("soft" if pair.ys.plain.ndim == 2 else None)
    fault = fault or ("few" if len(pair.xs.plain) < 5 else None) or ("overflow" if pair.largest > 1e150 else None)
    found = case.call(
        out_of_fold_labels, pair.xs.value, pair.ys.value, pair.xt.value, names=NAMES, fault=fault, **options
    )
    case.require(len(found.source) == len(pair.xs.plain) and len(found.target) == len(pair.xt.plain), "labels are lost")
    case.require(isinstance(found.source, PredictedLabels), "labels that are not marked as predicted")


@target(
    "bures.shift.shift_report",
    "bures.shift_report",
    *(f"bures.shift.{name}" for name in ("Advice", "ClassShift", "Finding", "ShiftReport")),
    "bures.ShiftReport",
    weight=0.7,
)
def shift_report(case: Case) -> None:
    pair = draw_pair(case)
    options: dict[str, Any] = {
        "statistic": case.one_of("ckw", "ckb", "means"),
        **dict(zip(("n_permutations", "level"), case.one_of((19, 0.05), (9, 0.5), (1, 0.5)), strict=True)),
        "n_bootstrap": case.one_of(0, 5),
        "max_samples": case.one_of(4000, 6),
    }
    options, wrong = inputs.bad_options(case.draw, options)
    style = case.one_of("true", "none", "predicted")
    case.say(options=options, style=style)
    xs, ys, xt, yt = pair.data
    fault = wrong or pair.feature_fault or pair.ys.fault or ("soft" if pair.ys.plain.ndim == 2 else None)
    if style == "none":
        yt = None
        fault = fault or ("few" if len(pair.xs.plain) < 5 or options["max_samples"] == 6 else None)
    elif style == "predicted":
        options |= {"labels": "predicted", "predicted_s": ys}
        fault = fault or pair.yt.fault
    else:
        fault = fault or pair.yt.fault
    if style != "none" and pair.yt.plain.ndim == 2:
        fault = fault or "probabilities"
    fault = fault or ("overflow" if pair.largest > 1e150 else None)
    report = case.call(bures.shift_report, xs, ys, xt, yt, names=NAMES, fault=fault, **options)
    if wrong:
        return
    for finding in report.findings:
        case.require(finding.found is None or 0 < finding.p_adjusted <= 1, f"a finding: {finding}")
    case.require(report.headline and str(report), "nothing to read")
    page, text = report.to_html(), report.to_json()
    case.require("<html" in page and "NaN" not in text and "Infinity" not in text, "JSON with what JSON has not")
    case.require(len(report.to_frame()) == len(report.classes), "rows are lost")
    case.require(all(math.isfinite(row.frequency_source) for row in report.classes), "a frequency that is no number")
    case.require(not isinstance(report.level, Tensor), "a tensor in a report")
