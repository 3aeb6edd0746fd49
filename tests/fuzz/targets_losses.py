"""Targets: losses on a training batch, and every registered method as one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bures
from bures.methods import (
    Batch,
    ConditionalTerm,
    FeatureTerm,
    Method,
    Schedule,
    make_method,
    method_info,
    method_names,
    method_options,
)
from bures.methods._registry import _FACTORIES
from tests.fuzz import inputs
from tests.fuzz.campaign import Case, quiet, target
from tests.fuzz.targets_metrics import METHODS

ARGUMENTS = ("z_s", "y_s", "z_t", "p_t", "xs", "xt", "features", "labels")
BATCH_SCALES = (1.0, 1.0, 1.0, 1e-3, 1e3, 1e-8, 1e8, 1e-15, 1e15)


def draw_batch(case: Case, *, most: int = 10, scales: tuple[float, ...] = BATCH_SCALES) -> tuple[Any, ...]:
    """``(z_s, y_s, z_t, p_t, fault)`` as tensors; features are leaves."""
    n, m, d, k = case.whole(1, most), case.whole(1, most), case.one_of(1, 2, 4, 16), case.whole(1, 4)
    dtype = case.one_of(torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
    scale = case.one_of(*scales) if dtype != torch.float16 else 1.0
    z_s, z_t = (torch.from_numpy(inputs.draw_matrix(case.draw, case.rng, size, d, scale)).to(dtype) for size in (n, m))
    fault = None if all(bool(z.isfinite().all()) for z in (z_s, z_t)) else "overflow"
    y = inputs.draw_classes(case.draw, case.rng, n, k, torch_only=True)
    p = inputs.draw_probabilities(case.draw, case.rng, m, k, torch_only=True)
    given = [y.value, p.value]
    for one in (y, p):
        if not isinstance(one.value, Tensor):  # a loss takes tensors; what else there is, is for the functions
            given[0 if one is y else 1] = torch.from_numpy(one.plain.astype(np.int64 if one is y else one.plain.dtype))
        else:
            fault = fault or one.fault
    which = case.whole(0, 12)
    if which >= 10:
        fault = case.one_of("nan", "empty", "narrow")
        z = (z_s, z_t)[which % 2].clone()
        z = {"nan": lambda: torch.where(torch.arange(d) == 0, torch.nan, z), "empty": lambda: z[:0],
             "narrow": lambda: torch.cat([z, z], dim=1)}[fault]()  # fmt: skip
        z_s, z_t = (z, z_t) if which % 2 == 0 else (z_s, z)
    case.say(z_s=z_s, y_s=given[0], z_t=z_t, p_t=given[1], fault=fault)
    return z_s.requires_grad_(), given[0], z_t.requires_grad_(), given[1], fault


def check_loss(case: Case, loss: Any, batch: tuple[Any, ...], *, negative: float = 0.0) -> None:
    """A finite value of at least float32 with finite gradients."""
    *data, fault = batch
    value = case.call(loss, *data, names=ARGUMENTS, fault=fault)
    case.finite(value)
    if fault:
        return
    case.require(value.shape == () and value.dtype.itemsize >= 4, f"the value is a {value.dtype} {tuple(value.shape)}")
    case.require(float(value.detach()) >= -negative, f"negative: {value!r}")
    if value.requires_grad:
        value.backward()
        for name, part in zip(("z_s", "y_s", "z_t", "p_t"), data, strict=True):
            if part.grad is not None and part.dtype != torch.float16:  # in which a right gradient may overflow
                case.finite(part.grad, f"the gradient with respect to {name}")


def conditional_loss(case: Case, kind: Any, rules: tuple[Any, ...]) -> None:
    batch = draw_batch(case)
    options, wrong = inputs.bad_options(
        case.draw,
        {
            "pseudo_labels": case.one_of("soft", "soft", "hard"),
            "kernel": case.one_of("gaussian", "gaussian", "laplacian"),
            "bandwidth": case.one_of(*rules),
            "label_kernel": case.one_of("gaussian", "linear"),
            "label_bandwidth": case.one_of("mean", "median", 0.5),
            "eps": case.one_of(1e-2, "auto", 1e-5),
            "method": case.one_of(*METHODS),
        },
    )
    case.say(options=options)
    loss = case.call(kind, names=tuple(options), fault=wrong, **options)
    if not wrong:
        case.require(repr(loss), "nothing to show")
        check_loss(case, loss, batch, negative=2e-3)


@target("bures.losses.CKBLoss", "bures.CKBLoss", weight=3)
def ckb_loss(case: Case) -> None:
    if case.one_of(True, False):
        check_loss(case, bures.CKBLoss(), draw_batch(case, most=40), negative=2e-3)
    else:
        conditional_loss(case, bures.CKBLoss, ("per-block", "shared", "median", 1.0))


@target("bures.losses.CKWLoss", "bures.CKWLoss", weight=2)
def ckw_loss(case: Case) -> None:
    conditional_loss(case, bures.CKWLoss, ("shared", "median", 1.0))


@target("bures.losses.ClassMeansLoss", "bures.ClassMeansLoss")
def class_means_loss(case: Case) -> None:
    conditional_loss(case, bures.ClassMeansLoss, ("shared", "median", 1.0))


@target("bures.losses.KernelBuresLoss", "bures.KernelBuresLoss")
def kernel_bures_loss(case: Case) -> None:
    two_batches(case, bures.KernelBuresLoss(bandwidth=case.one_of("per-block", "shared", "median", 2.0)))


@target("bures.losses.BuresLoss", "bures.BuresLoss")
def bures_loss(case: Case) -> None:
    two_batches(case, bures.BuresLoss())


@target("bures.losses.MMDLoss", "bures.MMDLoss", weight=2)
def mmd_loss(case: Case) -> None:
    loss = bures.MMDLoss(kernel=case.one_of("gaussian", "laplacian"), bandwidth=case.one_of("shared", "median", 1.0))
    if case.one_of(True, False):
        two_batches(case, loss)
        return
    z_s, y_s, z_t, p_t, fault = draw_batch(case)
    if fault not in (None, "overflow", "nan", "narrow"):
        check_loss(case, loss, (z_s, y_s, z_t, p_t, fault))
    elif fault != "empty":  # the features play no part here
        p_t = p_t.clone().requires_grad_() if p_t.is_floating_point() else p_t
        check_loss(case, loss, (z_s, y_s, z_t, p_t, None if fault is None else fault), negative=1e-5)


def two_batches(case: Case, loss: Any) -> None:
    z_s, _, z_t, _, fault = draw_batch(case)
    if fault not in (None, "overflow", "nan", "empty", "narrow"):
        fault = None  # of the labels
    unit = max(1.0, *(float(z.detach().double().abs().max()) ** 2 * z.shape[1] for z in (z_s, z_t) if z.numel()))
    fault = fault or ("overflow" if isinstance(loss, bures.BuresLoss) and unit > 1e35 else None)
    value = case.call(loss, z_s, z_t, names=ARGUMENTS, fault=fault)
    if fault:
        return
    case.finite(value)
    case.require(float(value.detach()) >= -2e-3 * unit, f"negative: {value!r}")
    value.backward()
    if z_s.dtype != torch.float16:  # in which a right gradient may overflow
        case.finite(z_s.grad, "the gradient of z_s")
        case.finite(z_t.grad, "the gradient of z_t")


@target("bures.running_losses.RunningCKWLoss", "bures.RunningCKWLoss", weight=2)
def running_ckw_loss(case: Case) -> None:
    first = draw_batch(case)
    z_s, _, _, p_t, fault = first
    d, k = z_s.shape[1] if z_s.ndim == 2 else 1, p_t.shape[-1] if p_t.ndim else 1
    options, wrong = inputs.bad_options(
        case.draw,
        {"n_waves": case.one_of(2, 8, 16), "decay": case.one_of(0.0, 0.9), "bandwidth": case.one_of(None, 1.0)},
    )
    if wrong == "bandwidth" and options["bandwidth"] is None:
        wrong = None
    case.say(options=options)
    names = (*ARGUMENTS, "n_features", "n_classes", *options)
    loss = case.call(bures.RunningCKWLoss, max(d, 1), max(k, 1), names=names, fault=wrong, **options)
    if wrong:
        return
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    try:
        check_loss(case, loss, first, negative=2e-3)
    except Exception:
        for name, value in loss.state_dict().items():
            case.require(torch.equal(value, before[name]), f"a refused batch has changed {name}")
        raise
    if fault is None:
        with quiet():
            case.finite(loss(*(part.detach() for part in first[:4])), "the second value")


def own_methods() -> tuple[str, ...]:
    """The methods of the library; tests register others."""
    return tuple(name for name in method_names() if _FACTORIES[name].__module__.startswith("bures.methods."))


@cache
def methods_with_a_loss() -> tuple[str, ...]:
    """Methods that are a loss on a batch; the others make their own training steps."""
    return tuple(name for name in own_methods() if not make_method(name).owns_training)


@target(
    *(f"bures.methods.{name}" for name in ("Batch", "ConditionalTerm", "FeatureTerm", "Method", "MethodInfo",
      "Objective", "Schedule", "Term", "make_method", "method_info", "method_names", "method_options")),
    weight=4,
)  # fmt: skip
def registered_methods(case: Case) -> None:
    name = case.one_of(*methods_with_a_loss())
    case.say(method=name)
    info = method_info(name)
    case.require(info.name == name and info.summary, "a method without a summary")
    options, wrong = inputs.bad_options(case.draw, method_options(name), rate=6)
    case.say(options=options)
    method = case.call(make_method, name, names=(*options, "value", "start", "ramp"), fault=wrong, **options)
    if wrong:
        return
    z_s, y_s, z_t, p_t, fault = draw_batch(case, scales=(1.0, 1.0, 1e-3, 1e3, 1e-8, 1e8))
    if fault is not None:  # a batch comes from a network, whose shapes are right; NaN is for the trainer to find
        return
    k = p_t.shape[1]
    dtype = torch.promote_types(z_s.dtype, torch.float32)
    z_s, z_t = z_s.detach().to(dtype).requires_grad_(), z_t.detach().to(dtype).requires_grad_()
    logits_s = torch.from_numpy(case.rng.normal(size=(len(z_s), k))).to(dtype).requires_grad_()
    logits_t = p_t.to(dtype).clamp_min(1e-30).log().requires_grad_()
    batch = Batch(z_s, logits_s, y_s.long(), z_t, logits_t)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        method.setup(z_s.shape[1], k)
        method = method.to(dtype)
        objective = method(batch, epoch=float(case.one_of(0, 1, 100)))
        case.finite(objective.total, f"the objective of {name}")
        if objective.total.requires_grad:
            objective.total.backward()
            for part in ("z_s", "z_t", "logits_s", "logits_t"):
                gradient = getattr(batch, part).grad
                if gradient is not None:
                    case.finite(gradient, f"the gradient of {name} with respect to {part}")


@target("bures.methods.register")
def terms_of_ones_own(case: Case) -> None:
    numbers = {"value": 1.0, "start": case.one_of(0.0, 2.0), "ramp": case.one_of(0.0, 3.0, None), "shape": "sigmoid"}
    options, wrong = inputs.bad_options(case.draw, numbers, rate=2)
    case.say(options=options)
    if wrong == "ramp" and options["ramp"] is None:
        wrong = None
    schedule = case.call(Schedule, names=tuple(numbers), fault=wrong, **options)
    if wrong:
        return
    for epoch in (0.0, 1.0, 1e6):
        case.require(0 <= schedule(epoch, 0.5) <= 1, "a weight outside its range")
    terms = [FeatureTerm("bures", schedule, bures.BuresLoss()), ConditionalTerm("ckb", schedule, bures.CKBLoss())]
    case.require(len(Method("own", terms).terms) == 2, "terms are lost")
