"""The permutation test itself, for any of the statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bures.arrays import check_count, check_positive, check_seed
from bures.kernels import Kernel
from bures.testing._aggregate import aggregate, holm, permutation_p_value
from bures.testing._design import Design
from bures.testing._engines import Engine
from bures.testing._permutations import log_arrangements, orders_within
from bures.testing._representation import Bandwidths, is_exact, make_engine, resolve_bandwidths, value_sizes
from bures.testing._result import ClassTest, ShiftTest
from bures.wording import listed

__all__ = ["CLASSES_TESTED", "RESOLUTION", "Question", "check_test_options", "run_test"]

CLASS_DIRECTIONS = 64
"""A class with more samples than this in both domains is compared along so many leading directions of its samples."""

MOST_PERMUTATIONS = 10**7
"""The values of all are kept in memory; a p-value is known to four digits with so many."""

CLASSES_TESTED = 200
"""With more classes than this, ``per_class=None`` leaves their p-values out: no correction could reject any."""

RANGE = 1e70
"""Differences above this, or below its inverse, have fourth powers, which spectra need, that float64 does not hold."""

RESOLUTION = 1e-8
"""Differences below this share of the variance within classes are rounding."""

ROUNDING = 16 * torch.finfo(torch.float64).eps
"""So are differences below this share of the kernel's values, however small the variance within classes is."""


@dataclass(frozen=True)
class Question:
    """What is asked of the pooled samples: which parts of the difference the statistic adds up, and its name."""

    kind: str
    statistic: str
    spread: bool
    means: bool

    def values(self, engine: Engine, orders: Tensor) -> Tensor:
        """The statistic (b,) for orders (b, N)."""
        result = torch.zeros(len(orders), dtype=torch.float64, device=orders.device)
        if self.spread:
            result = result + engine.spread(orders)
        if self.means:
            result = result + engine.means(orders) @ engine.design.importance
        return result


def check_test_options(n_permutations: object, level: object, seed: object) -> None:
    """Raise unless the number of permutations allows a rejection at the level."""
    alpha = check_positive("level", level)
    if alpha >= 1:
        raise ValueError(f"level={level!r} is out of range; accepted is a number between 0 and 1")
    count = check_count("n_permutations", n_permutations)
    if count > MOST_PERMUTATIONS:
        raise ValueError(f"n_permutations={count} is out of range; accepted is an integer up to {MOST_PERMUTATIONS}")
    check_seed(seed)
    needed = math.ceil(1 / alpha - 1e-9) - 1
    if count < needed:
        raise ValueError(
            f"n_permutations={count} can never reject at level={alpha:g}: the smallest p-value is "
            f"1/{count + 1} = {1 / (count + 1):.2g}; pass at least {needed}"
        )


def run_test(
    pooled: Tensor,
    strata: Tensor,
    n_source: int,
    class_names: Sequence[Any],
    question: Question,
    *,
    kernel: Kernel,
    bandwidth: Bandwidths,
    eps: str | float,
    n_features: str | int | None,
    n_permutations: int,
    level: float,
    seed: int,
    per_class: bool,
    labels: str,
    missing: tuple[Any, ...],
    notes: tuple[str, ...],
    numpy_callable: bool,
    progress: Callable[[int, int], None] | None,
) -> ShiftTest:
    """Permute samples (N, d) within strata (N,), source first, and compare the statistic with itself."""
    seed = check_seed(seed)  # torch takes no integer of NumPy's
    if isinstance(kernel, str):
        _check_range(pooled)
    exact = is_exact(n_features, len(pooled))
    design = Design.build(strata, n_source, len(class_names), eps, factors=exact and question.spread)
    widths = resolve_bandwidths(pooled, kernel, bandwidth)
    made = [
        make_engine(
            pooled,
            design,
            kernel=kernel,
            sigma2=sigma2,
            n_features=n_features,
            seed=seed,
            numpy_callable=numpy_callable,
        )
        for sigma2 in widths
    ]
    engines = [engine for engine, _ in made]
    trace_error = max(error for _, error in made)
    parts = (
        [_Class.build(engine, design, c) for c in range(len(class_names)) for engine in engines] if per_class else []
    )

    values, class_values = _all_values(engines, parts, question, n_permutations, seed, progress)
    if not (values.isfinite().all() and class_values.isfinite().all()):  # NaN is below and above nothing
        raise ValueError(f"kernel={kernel!r} has values of which no finite statistic can be formed; scale it down")
    scale = max(engine.scale for engine in engines)
    sizes = [value_sizes(pooled, engine, kernel, sigma2) for engine, sigma2 in zip(engines, widths, strict=True)]
    rounding = ROUNDING * torch.stack(sizes).amax(dim=0)
    observed, null, p_value, effect, z_score = _summary(values, scale, float(rounding.max()))
    by_class = class_values.reshape(len(class_names), len(engines), -1) if parts else class_values
    classes = _class_tests(by_class, parts, design, class_names, len(engines), rounding)
    notes += _notes(design, class_names, classes, n_permutations, level, scale <= float(rounding.max()), trace_error)
    return ShiftTest(
        kind=question.kind,
        statistic_name=question.statistic,
        statistic=observed,
        p_value=p_value,
        null=null.cpu().numpy(),
        effect_size=effect,
        z_score=z_score,
        classes=classes,
        missing_classes=missing,
        level=float(level),
        n_source=n_source,
        n_target=len(pooled) - n_source,
        n_permutations=int(n_permutations),
        bandwidths=tuple(width for width in widths if width is not None),
        n_features=None if exact else int(engines[0].features.shape[1]),  # type: ignore[union-attr]
        labels=labels,
        seed=seed,
        notes=notes,
    )


def _check_range(pooled: Tensor) -> None:
    """Raise where powers of differences would be infinite or zero, and all orders alike."""
    largest = float((pooled - pooled[0]).abs().max())
    if largest > RANGE or 0 < largest < 1 / RANGE:
        raise ValueError(
            f"xs and xt hold values that differ by up to {largest:.1e}; accepted are differences between "
            f"{1 / RANGE:.0e} and {RANGE:.0e}, whose powers float64 holds: multiply both by the same constant"
        )


@dataclass(frozen=True)
class _Class:
    """The engine of one class, and how an order of all samples becomes an order of its own."""

    engine: Engine
    places: Tensor
    local: Tensor

    @classmethod
    def build(cls, engine: Engine, design: Design, c: int) -> _Class:
        places = (design.strata == c).nonzero().flatten()
        n_source = int((places < design.n_source).sum())
        local = torch.zeros(len(design.strata), dtype=torch.int64, device=places.device)
        local[places] = torch.arange(len(places), device=places.device)
        own = Design.build(torch.zeros_like(places), n_source, 1, 1.0, factors=True)
        return cls(engine.part(places, own, CLASS_DIRECTIONS), places, local)

    def orders(self, orders: Tensor) -> Tensor:
        return self.local[orders[:, self.places]]


def _all_values(
    engines: list[Engine],
    parts: list[_Class],
    question: Question,
    count: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[Tensor, Tensor]:
    """Statistics (engines, 1 + B) and (parts, 1 + B), the observed ones first."""
    design = engines[0].design
    device = design.strata.device
    batch = min(engine.batch for engine in engines)
    values, class_values, done = [], [], 0
    for order in orders_within(design.strata.cpu(), count, batch, seed):
        orders = order.to(device)
        values.append(torch.stack([question.values(engine, orders) for engine in engines]))
        if parts:
            class_values.append(torch.stack([_in_batches(part, question, orders) for part in parts]))
        done += len(orders)
        if progress is not None:
            progress(done, count + 1)
    return torch.cat(values, dim=1), torch.cat(class_values, dim=1) if parts else torch.empty(0, count + 1)


def _in_batches(part: _Class, question: Question, orders: Tensor) -> Tensor:
    pieces = torch.split(part.orders(orders), part.engine.batch)
    return torch.cat([question.values(part.engine, piece) for piece in pieces])


def _summary(values: Tensor, scale: float, rounding: float) -> tuple[float, Tensor, float, float, float]:
    """Observed statistic, null sample, p-value, effect size and z score from statistics (engines, 1 + B)."""
    # Where the samples of each class are equal so are all orders, and their statistics differ by rounding alone. That
    # can be far above the rounding of the kernel's values: a nuclear norm of noise is a sum of square roots of it.
    differ = scale > rounding
    resolution = max(RESOLUTION * scale, rounding) if differ else math.inf
    combined = aggregate(values, resolution)
    p_value = permutation_p_value(combined, resolution if len(values) == 1 else 0.0)
    null = combined[1:]
    deviation = float(null.std(correction=0))
    z_score = float(combined[0] - null.mean()) / deviation if deviation > resolution else 0.0
    excess = values[:, 0] - values[:, 1:].mean(dim=1)
    effect = float(excess.max()) / scale if differ else 0.0
    return float(combined[0]), null, p_value, effect, z_score


def _class_tests(
    values: Tensor, parts: list[_Class], design: Design, names: Sequence[Any], n_engines: int, rounding: Tensor
) -> tuple[ClassTest, ...]:
    counts = [count.tolist() for count in design.counts]
    if not parts:
        return ()
    found = []
    for c in range(len(names)):
        own = parts[c * n_engines : (c + 1) * n_engines]
        found.append(_summary(values[c], max(part.engine.scale for part in own), float(rounding[own[0].places].max())))
    adjusted = holm([p_value for _, _, p_value, _, _ in found])
    return tuple(
        ClassTest(
            name=name,
            n_source=int(n),
            n_target=int(m),
            statistic=statistic,
            p_value=p_value,
            p_adjusted=corrected,
            effect_size=effect,
        )
        for name, n, m, (statistic, _, p_value, effect, _), corrected in zip(
            names, *counts, found, adjusted, strict=True
        )
    )


def _notes(
    design: Design,
    names: Sequence[Any],
    classes: tuple[ClassTest, ...],
    n_permutations: int,
    level: float,
    all_equal: bool,
    trace_error: float,
) -> tuple[str, ...]:
    """What a reader of the p-values should know."""
    notes = []
    n, m = design.counts
    if log_arrangements(n, m) < -math.log(level):
        number = round(math.exp(log_arrangements(n, m)))
        notes.append(
            f"the samples can be dealt to the domains in {number} ways only, so that no p-value below "
            f"{1 / number:.2g} is possible: more samples are needed to find anything at level {level:g}"
        )
    single = (torch.minimum(n, m) == 1).nonzero().flatten().tolist()
    if single and len(names) > 1:
        named = listed((names[c] for c in single), noun="class")
        notes.append(f"one sample only in one of the domains: {named}; little can be said of such classes")
    if classes and len(classes) / (1 + n_permutations) > level:
        notes.append(
            f"no class can be significant at level {level:g} after correction for {len(classes)} classes: that takes "
            f"at least {math.ceil(len(classes) / level) - 1} permutations, and there were {n_permutations}"
        )
    if all_equal:
        notes.append("within classes all samples are equal, so that there is nothing to permute")
    if trace_error > 0.2:
        notes.append(
            f"the features hold {1 - trace_error:.0%} of the kernel's variance; "
            "a larger n_features, or None for the kernel itself, would see more"
        )
    return tuple(notes)
