"""Targets: domains in memory, synthetic shifts, and the readers of kernels and labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bures import data
from bures.data import Domain, GaussianClasses, HiddenLabels, TensorSamples, align_classes, align_columns, diagnose
from bures.kernels import (
    block_widths,
    check_bandwidth,
    check_kernel,
    gram_blocks,
    in_range,
    median,
    squared_distances,
    standardise,
)
from bures.labels import check_prior, class_prior_weights, read_labels, refuse_hidden
from tests.fuzz import inputs
from tests.fuzz.campaign import Case, target
from tests.fuzz.targets_metrics import LABELS, draw_pair


@target(*(f"bures.data.{name}" for name in ("drifting_class", "exchanged_regions", "rotated_moons", "DomainPair")))
def synthetic_shifts(case: Case) -> None:
    name = case.one_of("drifting_class", "exchanged_regions", "rotated_moons")
    option = {"drifting_class": "drift", "exchanged_regions": "share", "rotated_moons": "angle"}[name]
    n = case.one_of(2, 5, 20)
    options, wrong = inputs.bad_options(case.draw, {"n": n, option: case.one_of(0.0, 0.5, 1.0), "seed": 3}, rate=2)
    case.say(name=name, options=options)
    pair = case.call(getattr(data, name), names=(*options, "noise"), fault=wrong, **options)
    if wrong:
        return
    case.finite(np.concatenate([pair.xs, pair.xt]))
    case.require(len(pair.xs) == len(pair.ys) == len(pair.xt) == len(pair.yt) == n, "another number of samples")


@target("bures.data.GaussianClasses")
def gaussian_classes(case: Case) -> None:
    k, d = case.whole(1, 3), case.whole(1, 3)
    frequencies = case.rng.dirichlet(np.ones(k))
    means = inputs.draw_matrix(case.draw, case.rng, k, d, 1.0)
    roots = case.rng.normal(size=(k, d, d))
    covariances = roots @ roots.transpose(0, 2, 1)
    fault = case.one_of(None, None, None, "frequencies", "means", "covariances", "nan", "text")
    given: dict[str, Any] = {"frequencies": frequencies, "means": means, "covariances": covariances}
    if fault == "nan":
        given[case.one_of(*given)] = case.one_of(frequencies, means, covariances) * np.nan
    elif fault == "text":
        given[case.one_of(*given)] = "nonsense"
    elif fault:
        given[fault] = given[fault][:-1]
    case.say(**given)
    population = case.call(GaussianClasses, names=tuple(given), fault=fault, **given)
    options, wrong = inputs.bad_options(case.draw, {"eps": case.one_of(0.0, 1e-2), "label_bandwidth": None})
    wrong = None if wrong == "label_bandwidth" and options[wrong] is None else wrong
    covariance = case.call(population.conditional_covariance, names=("eps", "label_bandwidth"), fault=wrong, **options)
    if not wrong:
        case.finite(covariance)
        case.close(population.ckb(population), 0.0, 1e-6 * (1 + float(np.trace(covariance))), "not zero to itself")


@target(*(f"bures.data.{name}" for name in ("Domain", "TensorSamples", "HiddenLabels", "align_classes",
        "align_columns", "diagnose", "Diagnosis", "Finding")), weight=2)  # fmt: skip
def domains(case: Case) -> None:
    n, k = case.whole(1, 12), case.whole(1, 4)
    names = ("tensor", "samples", "labels", "class_names", "ids", "source", "target")
    made = []
    for side in ("source", "target"):
        x = inputs.draw_features(case.draw, case.rng, n, 3)
        y = inputs.draw_classes(case.draw, case.rng, n, k)
        value = x.value
        wide = float(np.abs(x.plain.astype(float)).max(initial=0)) > 1e38
        case.say(**{f"{side}_x": x, f"{side}_y": y})
        samples = case.call(TensorSamples, value, names=names, fault=x.fault or ("wide" if wide else None))
        case.finite(samples.tensor)
        classes = tuple("abcd"[:k]) if case.whole(0, 9) else ("a",) * k
        labels = y.value if y.value is None or isinstance(y.value, torch.Tensor) else _tensor(y.value)
        fault = x.fault or y.fault or ("names" if classes == ("a",) * k else None)
        domain = case.call(Domain, side, samples, classes, labels, names=names, fault=fault)
        case.require(repr(domain), "nothing to show")
        made.append(domain)
        if not fault:
            hidden = case.call(HiddenLabels, labels, classes, names=names)
            case.require("tensor" not in repr(hidden), f"labels that are hidden are shown: {hidden!r}")
    source, target_domain = made
    aligned = case.call(align_classes, source, target_domain, names=(*names, "class"), fault=None)
    columns, order = np.array(["u", "v", "w"]), case.rng.permutation(3)
    named = replace(source, feature_names=columns)
    turned = replace(aligned, samples=aligned.samples.columns(torch.from_numpy(order)), feature_names=columns[order])
    back = case.call(align_columns, named, turned, names=names, fault=None)
    case.require(torch.equal(back.samples.tensor, aligned.samples.tensor), "columns are not where they were")
    found = case.call(diagnose, source, aligned, names=names, fault=None)
    case.require(str(found), "nothing to show")


def _tensor(value: Any) -> Any:
    try:
        array = np.asarray(value)
        return torch.from_numpy(array.astype(np.int64)) if array.dtype.kind in "biu" else value
    except (TypeError, ValueError):
        return value


@target(*(f"bures.kernels.{name}" for name in ("check_bandwidth", "check_kernel", "gram_blocks", "median",
        "squared_distances", "standardise", "common_frame", "source_share", "upper_triangle", "evaluate_callable",
        "check_range", "GramBlocks", "block_widths", "in_range")))  # fmt: skip
def gram_matrices(case: Case) -> None:
    n, m, d = case.whole(1, 8), case.whole(1, 8), case.one_of(1, 3, 10)
    dtype = case.one_of(torch.float64, torch.float32)
    scale = case.one_of(1.0, 1e-8, 1e8, 1e-15, 1e15)
    xs, xt = (torch.from_numpy(inputs.draw_matrix(case.draw, case.rng, size, d, scale)).to(dtype) for size in (n, m))
    options, wrong = inputs.bad_options(
        case.draw, {"kernel": case.one_of("gaussian", "laplacian", "linear"), "bandwidth": case.one_of("shared", 1.0)}
    )
    case.say(xs=xs, xt=xt, options=options)
    case.call(check_kernel, options["kernel"], names=("kernel",), fault=wrong)
    case.call(check_bandwidth, options["bandwidth"], names=("bandwidth",), fault=wrong)
    if wrong:
        return
    ws, wt = (torch.full((size,), 1 / size, dtype=torch.float64) for size in (n, m))
    largest = max(float(xs.abs().max()), float(xt.abs().max()))
    fault = "overflow" if options["kernel"] == "linear" and largest > 1e16 and dtype == torch.float32 else None
    blocks = case.call(
        gram_blocks,
        xs,
        xt,
        **options,
        ws=ws,
        wt=wt,
        up_to_constant=case.one_of(True, False),
        names=("xs",),
        fault=fault,
    )
    for name in ("ss", "tt", "ts"):
        case.finite(getattr(blocks, name), f"the block {name}")
    # Kernels of distances are up to one; where samples coincide they may be rounding, by half the digits (`_drown`).
    linear = 1e-5 * (1e-30 + float(blocks.ss.abs().max()))
    rounding = linear if options["kernel"] == "linear" else linear + 4 * torch.finfo(dtype).eps ** 0.5
    case.require(float((blocks.ss - blocks.ss.T).abs().max()) <= rounding, "not symmetric")
    case.require(torch.equal(in_range(xs, ws), xs), "a sample that has a weight moves")
    if n > 1:
        without = torch.cat([torch.zeros(1), torch.full((n - 1,), 1 / (n - 1))]).double()
        moved = in_range(xs, without)
        case.require(torch.equal(moved[1:], xs[1:]), "a sample that has a weight moves")
        case.require(bool(moved[0].abs().max() <= 1.001 * xs[1:].abs().max()), "a sample without a weight is far out")
    a, b, unit = standardise(xs, xt)
    case.require(float(a.abs().max()) <= 4 and float(b.abs().max()) <= 4, "standardised samples are large")
    exact = torch.cdist(b.double(), a.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    found = squared_distances(a, b)[2]
    rounding = 64 * torch.finfo(dtype).eps * (1e-30 + float(a.square().sum(1).max() + b.square().sum(1).max())) * d
    case.require(bool((found.double() - exact).abs().max() <= rounding), "distances by products are wrong")
    case.close(median(exact.flatten()), np.median(exact.numpy()), 1e-12 * (1 + float(exact.max())), "median")
    case.require(float(unit) > 0 and math.log2(float(unit)).is_integer(), f"the unit {unit} is no power of two")
    pooled = torch.cat([a, b]).double()
    mean = float(torch.cdist(pooled, pooled, compute_mode="donot_use_mm_for_euclid_dist").square().mean())
    width = float(block_widths("shared", 1, (a, b), None, (ws, wt), unit)[0])
    # Where samples differ by rounding alone the width has a floor.
    case.require(
        abs(width - mean) <= 1e-4 * mean or mean <= rounding <= 1e6 * width, "the mean squared distance is wrong"
    )


@target(
    *(
        f"bures.labels.{name}"
        for name in ("read_labels", "check_prior", "class_prior_weights", "Labels", "refuse_hidden")
    ),
    weight=2,
)
def label_reading(case: Case) -> None:
    pair = draw_pair(case)
    n, m = len(pair.xs.plain), len(pair.yt.plain)
    like = torch.zeros(1)
    conditioning = case.one_of(
        None, None, None, "hard", "soft", ("hard", "soft"), "continuous", "nonsense", 3, ("hard",)
    )
    fault = pair.ys.fault or pair.yt.fault or (None if conditioning is None else "conditioning")
    case.say(conditioning=conditioning)

    def read() -> Any:
        return read_labels(pair.ys.value, pair.yt.value, conditioning, n, m, like=like)

    source, target_labels = case.call(read, names=LABELS, fault=fault)
    if source.n_classes is None:
        return
    for labels, size in ((source, n), (target_labels, m)):
        members = labels.membership()
        case.require(members.shape == (size, source.n_classes), f"membership of shape {tuple(members.shape)}")
        case.require(bool(((members.sum(dim=1) - 1).abs() < 2e-2).all()), "memberships that do not sum to one")
    prior = case.one_of(
        "source", "target", "uniform", "nonsense", None, [0.5, 0.5], np.full(source.n_classes, 1 / source.n_classes)
    )
    case.say(prior=prior)
    ws, wt = (torch.full((size,), 1 / size, dtype=torch.float64) for size in (n, m))
    case.call(check_prior, prior, names=("prior",), fault="prior")
    weights = case.call(class_prior_weights, source, target_labels, ws, wt, prior, names=("prior",), fault="prior")
    for w in weights:
        case.finite(w)
        case.close(w.sum(), 1.0, 2e-3, "weights that do not sum to one")  # a prior may come from half precision
    case.call(refuse_hidden, ("ys", "yt"), (np.zeros(n), -np.ones(m)), names=("yt",), fault="hidden")
    case.require(False, "hidden labels are taken for a class")
