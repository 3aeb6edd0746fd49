"""Targets: the distances, as functions and as losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bures
from bures.metrics import MissingClassWarning
from tests.fuzz import inputs
from tests.fuzz.campaign import Case, target
from tests.fuzz.inputs import Given

FEATURES, LABELS = ("xs", "xt", "sample_weight"), ("ys", "yt", "prior", "conditioning")
OPTIONS = ("kernel", "bandwidth", "label_kernel", "label_bandwidth", "eps", "method", "unbiased")
METHODS = ("auto", "auto", "svd", "gram", "deflation", "low-rank", "polar")


@dataclass
class Pair:
    """Two labelled samples as a caller has them."""

    xs: Given
    ys: Given
    xt: Given
    yt: Given
    speaks_torch: bool

    @property
    def data(self) -> tuple[Any, Any, Any, Any]:
        return self.xs.value, self.ys.value, self.xt.value, self.yt.value

    @property
    def features(self) -> tuple[Any, Any]:
        return self.xs.value, self.xt.value

    @property
    def fault(self) -> str | None:
        return next((given.fault for given in (self.xs, self.ys, self.xt, self.yt) if given.fault), None)

    @property
    def feature_fault(self) -> str | None:
        return self.xs.fault or self.xt.fault

    @property
    def single(self) -> bool:
        """Whether the distance is computed in float32."""
        return self.speaks_torch and any(given.plain.dtype != np.float64 for given in (self.xs, self.xt))

    @property
    def largest(self) -> float:
        return max((float(np.abs(given.plain.astype(float)).max(initial=0)) for given in (self.xs, self.xt)), default=0)


def draw_pair(case: Case, *, speaks_torch: bool | None = None, most: int = 12) -> Pair:
    """Two samples that may be equal, of other sizes or scales, with classes or probabilities."""
    draw, rng = case.draw, case.rng
    if speaks_torch is None:
        speaks_torch = case.one_of(False, False, True)
    n, m, d, k = case.whole(1, most), case.whole(1, most), case.one_of(1, 2, 3, 5, 20), case.whole(1, 4)
    xs = inputs.draw_features(draw, rng, n, d, torch_only=speaks_torch)
    wrong_width = case.whole(0, 40) == 40
    xt = inputs.draw_features(draw, rng, m, d + wrong_width, torch_only=speaks_torch)
    if not speaks_torch:
        xs, xt = (Given(np.asarray(g.value), g.fault, g.plain) if isinstance(g.value, Tensor) else g for g in (xs, xt))
    soft_s, soft_t = case.one_of((False, False), (False, False), (False, True), (True, True))
    ys = (inputs.draw_probabilities if soft_s else inputs.draw_classes)(draw, rng, n, k, torch_only=speaks_torch)
    yt = (inputs.draw_probabilities if soft_t else inputs.draw_classes)(draw, rng, m, k, torch_only=speaks_torch)
    if wrong_width:
        xt.fault = xt.fault or "another number of columns"
    for given in (xs, ys, xt, yt):  # torch beside NumPy is refused, too
        if isinstance(given.value, Tensor) != speaks_torch and given.fault:
            given.fault = "mixed"
    case.say(xs=xs, ys=ys, xt=xt, yt=yt, speaks_torch=speaks_torch)
    return Pair(xs, ys, xt, yt, speaks_torch)


def draw_weights(case: Case, pair: Pair) -> tuple[dict[str, Any], str | None]:
    """Weights of both samples; none beside tensors, where NumPy weights would be refused."""
    if pair.speaks_torch:
        return {}, None
    given = {
        f"sample_weight_{side}": inputs.draw_weights(case.draw, case.rng, len(x.plain))
        for side, x in (("s", pair.xs), ("t", pair.xt))
    }
    case.say(**given)
    fault = next((one.fault for one in given.values() if one.fault), None)
    return {name: one.value for name, one in given.items()}, fault


def tolerance(case: Case, pair: Pair, options: dict[str, Any]) -> float:
    """What rounding may do to a squared distance, whose terms are at most about one for radial kernels."""
    rough = options.get("method") in ("gram", "low-rank", "polar")
    rounding = 2e-4 if pair.single else 1e-5 if rough else 1e-7
    if options.get("kernel") == "linear" or options.get("kernel") is None:
        d = pair.xs.plain.shape[1] if pair.xs.plain.ndim == 2 else 1
        return rounding * (1e-300 + 4 * d * pair.largest**2)
    return rounding


def overflows(pair: Pair, options: dict[str, Any]) -> bool:
    """Whether the squares of the features leave the range of float32, in which tensors are computed."""
    d = pair.xs.plain.shape[1] if pair.xs.plain.ndim == 2 else 1
    return options.get("kernel", "linear") == "linear" and pair.single and pair.largest**2 * 16 * 12 * d > 3e38


def check_distance(case: Case, function: Any, pair: Pair, options: dict[str, Any], *, labelled: bool) -> None:
    """A finite value that is not negative, and one further property."""
    names = FEATURES + OPTIONS + (LABELS if labelled else ())
    options, wrong = inputs.bad_options(case.draw, options)
    weights, weight_fault = draw_weights(case, pair)
    case.say(options=options)
    data = pair.data if labelled else pair.features
    fault = wrong or weight_fault or (pair.fault if labelled else pair.feature_fault)
    fault = fault or ("overflow" if overflows(pair, options) else None)
    value = case.finite(case.call(function, *data, names=names, fault=fault, **options, **weights))
    if wrong or fault:  # accepted after all, as True is for a flag: nothing more is promised
        return
    allowed = tolerance(case, pair, options)
    if not options.get("unbiased"):
        case.require(float(value) >= -allowed, f"negative: {value!r}")
    also = case.one_of("symmetric", "order", "itself", "gradient", "language")
    case.say(also=also)
    turned = data[2:] + data[:2] if labelled else data[::-1]
    if also == "symmetric" and "prior" not in options:
        swapped = {f"sample_weight_{b}": weights[f"sample_weight_{a}"] for a, b in ("st", "ts") if weights}
        other = case.call(function, *turned, names=names, **options, **swapped)
        case.close(value, other, allowed, "not symmetric")
    elif also == "order" and not weights:
        order = case.rng.permutation(len(pair.xs.plain))
        rows = [take(part, order) for part in data[: len(data) // 2]]
        other = case.call(function, *rows, *data[len(data) // 2 :], names=names, **options)
        case.close(value, other, allowed, "depends on the order of the samples")
    elif also == "itself" and not options.get("unbiased"):
        half = data[: len(data) // 2]
        zero = case.finite(case.call(function, *half, *half, names=names, **options))
        case.close(zero, 0.0, allowed, "not zero for equal samples")
    elif also == "gradient" and pair.speaks_torch:
        check_gradient(case, function, data, names, options, at=(0, 2) if labelled else (0, 1))
    elif also == "language" and not weights and not pair.speaks_torch:
        torch_options = {k: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        other = case.call(function, *map(to_torch, data), names=names, **torch_options)
        case.close(value, other, allowed, "torch and NumPy differ")


def check_gradient(
    case: Case, function: Any, data: Any, names: Any, options: dict[str, Any], at: tuple[int, ...]
) -> None:
    """Finite gradients with respect to some arguments."""
    leaves = list(data)
    for i in at:
        leaves[i] = leaves[i].detach().clone()
        if leaves[i].is_floating_point():
            leaves[i].requires_grad_()
    value = case.call(function, *leaves, names=names, **options)
    if value.requires_grad:
        value.backward()
        for i in at:
            # In half precision a right gradient may overflow, as it may for samples that are closer than 1e-25.
            if (
                leaves[i].grad is not None
                and leaves[i].dtype.itemsize > 2
                and float(leaves[i].detach().abs().max()) > 1e-25
            ):
                case.finite(leaves[i].grad, f"the gradient with respect to argument {i}")


def take(value: Any, order: Any) -> Any:
    """Some rows of what a caller passes."""
    if hasattr(value, "iloc"):
        return value.iloc[order]
    return [value[i] for i in order] if isinstance(value, list) else value[order]


def to_torch(value: Any) -> Any:
    """The same numbers as a float64 tensor, classes as integers."""
    array = np.asarray(value)
    return torch.from_numpy(array.astype(np.int64 if array.ndim == 1 and array.dtype.kind in "iu" else np.float64))


def conditional_options(case: Case, *, one_rkhs: bool) -> dict[str, Any]:
    """Options of a conditional distance."""
    kernel = case.one_of("gaussian", "gaussian", "laplacian", "linear")
    rules = ("shared", "median", 0.7, 1e-30, 1e30) if one_rkhs else ("shared", "median", "per-block", 0.7, 1e-30, 1e30)
    options: dict[str, Any] = {
        "kernel": kernel,
        "bandwidth": case.one_of(*rules),
        "label_kernel": case.one_of("gaussian", "gaussian", "laplacian", "linear"),
        "label_bandwidth": case.one_of("mean", "mean", "median", 0.5, 1e-30, 1e30),
        "eps": case.one_of(1e-2, 1e-2, "auto", 1e-6, 1.0, 1e10),
        "method": case.one_of(*METHODS),
    }
    return options


@target("bures.metrics.ckb", "bures.ckb", weight=4)
def ckb(case: Case) -> None:
    check_distance(case, bures.ckb, draw_pair(case), conditional_options(case, one_rkhs=False), labelled=True)


@target("bures.metrics.ckw", "bures.ckw", "bures.metrics.MissingClassWarning", "bures.MissingClassWarning", weight=4)
def ckw(case: Case) -> None:
    case.require(issubclass(MissingClassWarning, Warning), "MissingClassWarning is no warning")
    check_distance(case, bures.ckw, draw_pair(case), conditional_options(case, one_rkhs=True), labelled=True)


@target("bures.metrics.kernel_bures", "bures.kernel_bures", weight=3)
def kernel_bures(case: Case) -> None:
    options = {
        "kernel": case.one_of("gaussian", "laplacian", "linear"),
        "bandwidth": case.one_of("shared", "median", "per-block", 0.7, 1e-30, 1e30),
    }
    check_distance(case, bures.kernel_bures, draw_pair(case), options, labelled=False)


@target("bures.metrics.mmd", "bures.mmd", weight=3)
def mmd(case: Case) -> None:
    options = {
        "kernel": case.one_of("gaussian", "laplacian", "linear"),
        "bandwidth": case.one_of("shared", "median", 0.7, 1e-30, 1e30),
        "unbiased": False,
    }
    check_distance(case, bures.mmd, draw_pair(case), options, labelled=False)


@target("bures.metrics.bures", weight=3)
def bures_of_samples(case: Case) -> None:
    check_distance(case, bures.bures, draw_pair(case), {}, labelled=False)


@target("bures.metrics.bures_covariance", "bures.bures_covariance", weight=2)
def bures_covariance(case: Case) -> None:
    d, speaks_torch = case.whole(1, 6), case.one_of(False, True)
    covs: list[Any] = []
    fault = None
    faults: list[str] = []
    for _ in range(2):
        scale = case.one_of(*inputs.SCALES)
        root = inputs.draw_matrix(case.draw, case.rng, d, case.whole(1, 6), 1.0)
        cov = scale * root @ root.T
        if case.whole(0, 9) == 9:
            fault = case.one_of("asymmetric", "indefinite", "rectangle", "nan", "None")
            faults.append(fault)
            cov = {
                "asymmetric": lambda c: c + (np.arange(d)[:, None] == 0) * 1e40 * (d > 1),
                "indefinite": lambda c: c - 1e40 * np.eye(d),
                "rectangle": lambda c: np.vstack([c, c[:1]]),
                "nan": lambda c: np.full((d, d), np.nan),
                "None": lambda c: None,
            }[fault](cov)
        covs.append(inputs.as_tensors(cov)[0] if speaks_torch else cov)
    case.say(covs=covs, fault=fault)
    fault = None if fault == "asymmetric" and d == 1 and len(set(faults)) == 1 else fault
    value = case.finite(case.call(bures.bures_covariance, *covs, names=("cov_s", "cov_t"), fault=fault))
    if fault:
        return
    unit = sum(float(np.trace(np.asarray(cov))) for cov in covs)
    case.require(float(value) >= -1e-7 * unit, f"negative: {value!r}")
    case.close(value, bures.bures_covariance(*covs[::-1]), 1e-7 * unit, "not symmetric")
    case.close(bures.bures_covariance(covs[0], covs[0]), 0.0, 1e-7 * unit, "not zero for equal matrices")


@target(
    "bures.metrics.explain",
    "bures.explain",
    "bures.metrics.Explanation",
    "bures.Explanation",
    "bures.metrics.ClassTerms",
    weight=0.7,
)
def explain(case: Case) -> None:
    pair = draw_pair(case, most=8)
    options, wrong = inputs.bad_options(
        case.draw,
        conditional_options(case, one_rkhs=False)
        | {"n_permutations": case.whole(0, 2), "n_bootstrap": case.whole(0, 2), "seed": 0},
    )
    case.say(options=options)
    names = (*FEATURES, *LABELS, *OPTIONS, "n_permutations", "n_bootstrap", "seed")
    fault = wrong or pair.fault or ("overflow" if overflows(pair, options) else None)
    found = case.call(bures.explain, *pair.data, names=names, fault=fault, **options)
    if fault:
        return
    case.finite([found.squared_distance, found.trace_s, found.trace_t, found.fidelity], "a term")
    plain = {name: value for name, value in options.items() if not name.startswith("n_") and name != "seed"}
    value = bures.ckb(*pair.data, **plain)
    case.close(found.squared_distance, value, tolerance(case, pair, options), "explain and ckb differ")
    case.require(str(found) and found._repr_html_(), "nothing to show")
