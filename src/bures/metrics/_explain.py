"""A CKB distance taken apart: terms, classes, bias and null level."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

from bures.arrays import Array, check_count, check_seed, full_precision
from bures.devices import cpu_by_default
from bures.factors import Factor, LabelKernel, UnconditionalFactor
from bures.kernels import Bandwidth, GramBlocks, Kernel, gram_blocks
from bures.labels import Conditioning, Labels
from bures.metrics._ckw import class_mean_terms, mean_term
from bures.metrics._explanation import ClassTerms, Explanation
from bures.metrics._problem import BuresTerms, ConditionalProblem, bures_terms, conditional_problem, cross_matrix
from bures.spectral import nuclear_norm_error

__all__ = ["explain"]


@cpu_by_default()
def explain(
    xs: Array,
    ys: Array,
    xt: Array,
    yt: Array,
    *,
    conditioning: Conditioning = None,
    kernel: Kernel = "gaussian",
    bandwidth: Bandwidth = "shared",
    label_kernel: Kernel = "gaussian",
    label_bandwidth: Bandwidth = "mean",
    eps: str | float = 1e-2,
    method: str = "auto",
    sample_weight_s: Array | None = None,
    sample_weight_t: Array | None = None,
    prior: Array | None = None,
    n_permutations: int = 100,
    n_bootstrap: int = 100,
    seed: int = 0,
) -> Explanation:
    r"""Explain a squared CKB distance: its terms, its classes, its bias and what it would be without a shift.

    Parameters
    ----------
    xs, ys, xt, yt : array (n, d), (n,) or (n, K), (m, d), (m,) or (m, K)
        Features and labels of source and target, as in `ckb`.
    conditioning, kernel, bandwidth, label_kernel, label_bandwidth, eps, method, sample_weight_s, sample_weight_t, prior
        As in `ckb`.
    n_permutations : int, optional
        Permutations behind the null level; each costs about one `ckb`. 0 leaves it out.
    n_bootstrap : int, optional
        Half samples behind the debiased value; each costs an eighth of one `ckb` at large n. 0 leaves it out.
    seed : int, optional
        Seed of both resamplings.

    Returns
    -------
    Explanation
        A frozen result with a readable ``repr`` and an HTML form for notebooks.

    Notes
    -----
    Bandwidths and eps are those of the full samples throughout. **Null level**: samples change domains at random
    within their class (the most probable one for soft labels), so only P(X|Y) is mixed and class counts stay. With
    ``bandwidth="per-block"`` every permutation has bandwidths of its own, as there is no one kernel to keep.
    **Debiased value**: the estimator of Theorem 6 is biased upward; with :math:`h` the mean distance between half
    samples of each class, :math:`2 d^2 - h` is free of the part of the bias that falls like 1/n. In many dimensions
    the bias falls more slowly and part of it stays: compare with the null level. The interval is 1.96 standard
    deviations of the half samples, which estimate that of :math:`d^2`, to either side. It is for the class counts that
    there are: where these are random too, the distance varies more.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 40)
    >>> source = rng.normal(size=(80, 2))
    >>> target = rng.normal(size=(80, 2)) * np.where(y == "dog", 3.0, 1.0)[:, None]
    >>> bures.explain(source, y, target, y)
    Conditional Kernel Bures
      squared distance    ...
    """
    n_permutations = check_count("n_permutations", n_permutations, minimum=0, alternatives="; 0 leaves it out")
    n_bootstrap = check_count("n_bootstrap", n_bootstrap, minimum=0, alternatives="; 0 leaves it out")
    seed = check_seed(seed)
    with full_precision(xs), torch.no_grad():
        problem = conditional_problem(
            xs,
            ys,
            xt,
            yt,
            conditioning=conditioning,
            kernel=kernel,
            bandwidth=bandwidth,
            label_kernel=label_kernel,
            label_bandwidth=label_bandwidth,
            eps=eps,
            method=method,
            sample_weight_s=sample_weight_s,
            sample_weight_t=sample_weight_t,
            prior=prior,
        )
        one_rkhs = bandwidth != "per-block"
        factor_s, factor_t = problem.source.factor(problem.eps), problem.target.factor(problem.eps)
        terms = bures_terms(problem.blocks, factor_s, factor_t, problem.method)
        value = float(terms.squared_distance)
        generator = torch.Generator().manual_seed(seed)
        present = _of_positive_weight(problem)
        null = _null_sample(present, n_permutations, generator)
        debiased, interval = _debias(present, value, n_bootstrap, generator)
        blocks = problem.blocks
        widths, label_width_s, label_width_t = blocks.bandwidths, problem.source.bandwidth, problem.target.bandwidth
        return Explanation(
            squared_distance=value,
            trace_s=float(terms.trace_s),
            trace_t=float(terms.trace_t),
            fidelity=float(terms.fidelity),
            mean_term=float(mean_term(problem)) if one_rkhs else math.nan,
            bandwidths=None if widths is None else (float(widths[0]), float(widths[1]), float(widths[2])),
            label_bandwidths=None
            if label_width_s is None or label_width_t is None
            else (float(label_width_s), float(label_width_t)),
            eps=float(problem.eps),
            effective_rank_s=_effective_rank(blocks.ss, factor_s),
            effective_rank_t=_effective_rank(blocks.tt, factor_t),
            n_source=len(problem.source.labels),
            n_target=len(problem.target.labels),
            classes=_class_terms(problem, value, one_rkhs),
            debiased=debiased,
            interval=interval,
            null_mean=float(null.mean()) if len(null) else math.nan,
            null_95=float(torch.quantile(null, 0.95)) if len(null) else math.nan,
            n_permutations=len(null),
            n_bootstrap=int(n_bootstrap),
            method_error=2 * nuclear_norm_error(cross_matrix(blocks.ts, factor_s, factor_t), problem.method),
        )


def _effective_rank(block: Tensor, factor: Factor) -> float:
    operator = factor.apply(factor.apply(block).T).double()
    square = float(operator.square().sum())
    return float(operator.trace()) ** 2 / square if square > 0 else 0.0


def _of_positive_weight(problem: ConditionalProblem) -> ConditionalProblem:
    """The problem without samples of weight zero, which are not there: a resample must not bring them back."""
    index_s, index_t = (side.weights.nonzero().flatten() for side in (problem.source, problem.target))
    if (len(index_s), len(index_t)) == (len(problem.source.labels), len(problem.target.labels)):
        return problem
    return dataclasses.replace(
        problem,
        samples=(problem.samples[0][index_s], problem.samples[1][index_t]),
        source=_sub_kernel(problem.source, index_s),
        target=_sub_kernel(problem.target, index_t),
        known_blocks=[_sub_blocks(problem.blocks, index_s, index_t)],
    )


def _sub_terms(problem: ConditionalProblem, index_s: Tensor, index_t: Tensor) -> BuresTerms:
    """The distance between some samples of each domain; bandwidths and eps stay, weights are rescaled."""
    blocks = _sub_blocks(problem.blocks, index_s, index_t)
    factor_s, factor_t = (
        _sub_kernel(kernel, index).factor(problem.eps)
        for kernel, index in ((problem.source, index_s), (problem.target, index_t))
    )
    return bures_terms(blocks, factor_s, factor_t, _value_method(problem))


def _value_method(problem: ConditionalProblem) -> str:
    """How the many distances of a resampling are computed: values of eight digits are enough, and come faster."""
    large = len(problem.source.labels) + len(problem.target.labels) > 1000
    return "gram" if large and problem.method == "auto" else problem.method


def _sub_kernel(kernel: LabelKernel, index: Tensor) -> LabelKernel:
    weights = kernel.weights[index]
    return dataclasses.replace(kernel, labels=kernel.labels.take(index), weights=weights / weights.sum())


def _sub_blocks(blocks: GramBlocks, index_s: Tensor, index_t: Tensor) -> GramBlocks:
    return GramBlocks(
        blocks.ss[index_s][:, index_s], blocks.tt[index_t][:, index_t], blocks.ts[index_t][:, index_s], None
    )


def _strata(labels: Labels) -> Tensor:
    """A class for each sample: its own, or the most probable one; one class for all without classes."""
    if labels.kind == "hard":
        return labels.values
    if labels.kind == "soft":
        return labels.values.argmax(dim=1)
    return torch.zeros(len(labels), dtype=torch.int64, device=labels.values.device)


def _null_sample(problem: ConditionalProblem, count: int, generator: torch.Generator) -> Tensor:
    """Squared distances after permuting the pooled samples within classes."""
    if problem.source.labels.n_classes is None or count == 0:
        return torch.empty(0)
    n = len(problem.source.labels)
    mixed_blocks = _mixed_blocks(problem)
    strata = torch.cat([_strata(problem.source.labels), _strata(problem.target.labels)]).cpu()
    # Hard labels and weights belong to places, which the permutation keeps; soft labels move with their samples.
    soft = "soft" in (problem.source.labels.kind, problem.target.labels.kind)
    rows = torch.cat([problem.source.labels.rows(), problem.target.labels.rows()]) if soft else None
    factor_s, factor_t = problem.source.factor(problem.eps), problem.target.factor(problem.eps)
    values = []
    for _ in range(count):
        order = _permute_within(strata, generator).to(problem.source.weights.device)
        if rows is not None:
            factor_s = _with_rows(problem.source, rows[order[:n]]).factor(problem.eps)
            factor_t = _with_rows(problem.target, rows[order[n:]]).factor(problem.eps)
        terms = bures_terms(mixed_blocks(order), factor_s, factor_t, _value_method(problem))
        values.append(terms.squared_distance.double().cpu())
    return torch.stack(values)


def _mixed_blocks(problem: ConditionalProblem) -> Callable[[Tensor], GramBlocks]:
    """What gives the blocks of the pooled samples in another order, of which the first are the source's."""
    n = len(problem.source.labels)
    options = problem.gram.keywords
    if options["bandwidth"] == "per-block" and options["kernel"] in ("gaussian", "laplacian"):
        # Blocks of several kernels: what two samples have in one says nothing of what they have in another.
        samples = torch.cat(problem.samples)
        options = {**options, "ws": problem.source.weights, "wt": problem.target.weights}
        return lambda order: gram_blocks(samples[order[:n]], samples[order[n:]], **options)
    blocks = problem.blocks
    between = blocks.ts.to(blocks.ss.dtype)
    pooled = torch.cat([torch.cat([blocks.ss, between.T], dim=1), torch.cat([between, blocks.tt], dim=1)])

    def taken(order: Tensor) -> GramBlocks:
        mixed = pooled[order][:, order]
        return GramBlocks(mixed[:n, :n], mixed[n:, n:], mixed[n:, :n], None)

    return taken


def _with_rows(kernel: LabelKernel, rows: Tensor) -> LabelKernel:
    return dataclasses.replace(kernel, labels=dataclasses.replace(kernel.labels, kind="soft", values=rows))


def _permute_within(strata: Tensor, generator: torch.Generator) -> Tensor:
    """A random order of the samples in which every place keeps its class."""
    shuffled = torch.randperm(len(strata), generator=generator)
    places = torch.argsort(strata, stable=True)
    order = torch.empty_like(places)
    order[places] = shuffled[torch.argsort(strata[shuffled], stable=True)]
    return order


def _debias(
    problem: ConditionalProblem, value: float, count: int, generator: torch.Generator
) -> tuple[float, tuple[float, float]]:
    """Twice the value less the mean over half samples, and the spread of the half samples around it."""
    if count == 0:
        return math.nan, (math.nan, math.nan)
    strata_s, strata_t = _strata(problem.source.labels).cpu(), _strata(problem.target.labels).cpu()
    device = problem.blocks.ss.device
    halves = []
    for _ in range(count):
        index_s, index_t = (_half_of_each(strata, generator).to(device) for strata in (strata_s, strata_t))
        halves.append(_sub_terms(problem, index_s, index_t).squared_distance.double().cpu())
    sample = torch.stack(halves)
    debiased = 2 * value - float(sample.mean())
    # Half samples without replacement spread as much around each other as full samples around their population.
    half_width = 1.96 * float(sample.std()) if count > 1 else math.nan
    return debiased, (debiased - half_width, debiased + half_width)


def _half_of_each(strata: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the samples of each class at random, at least one."""
    shuffled = torch.randperm(len(strata), generator=generator)
    ordered = shuffled[torch.argsort(strata[shuffled], stable=True)]
    counts = torch.bincount(strata)
    starts = torch.cumsum(counts, 0) - counts
    kept = (counts + 1) // 2
    position = torch.arange(len(strata)) - starts[strata[ordered]]
    return ordered[position < kept[strata[ordered]]]


def _class_terms(problem: ConditionalProblem, value: float, one_rkhs: bool) -> tuple[ClassTerms, ...]:
    if problem.source.labels.n_classes is None:
        return ()
    members_s, members_t = problem.source.labels.membership(), problem.target.labels.membership()
    means = class_mean_terms(problem)[0] if one_rkhs else None
    result = []
    for c, name in enumerate(problem.source.labels.class_names()):
        mass_s, mass_t = problem.source.weights * members_s[:, c], problem.target.weights * members_t[:, c]
        both = bool(mass_s.sum() > 0) and bool(mass_t.sum() > 0)
        result.append(
            ClassTerms(
                name=name,
                n_source=float(members_s[:, c].sum()),
                n_target=float(members_t[:, c].sum()),
                kernel_bures=_weighted_kernel_bures(problem, mass_s, mass_t) if both else math.nan,
                mean_term=float(means[c]) if both and means is not None else math.nan,
                change_without=_value_without(problem, problem.source.weights - mass_s, problem.target.weights - mass_t)
                - value,
            )
        )
    return tuple(result)


def _weighted_kernel_bures(problem: ConditionalProblem, mass_s: Tensor, mass_t: Tensor) -> float:
    index_s, index_t = mass_s.nonzero().flatten(), mass_t.nonzero().flatten()
    factor_s, factor_t = (
        UnconditionalFactor(mass[index] / mass.sum()) for mass, index in ((mass_s, index_s), (mass_t, index_t))
    )
    terms = bures_terms(_sub_blocks(problem.blocks, index_s, index_t), factor_s, factor_t, problem.method)
    return float(terms.squared_distance)


def _value_without(problem: ConditionalProblem, rest_s: Tensor, rest_t: Tensor) -> float:
    """The squared distance with other weights; NaN where nothing is left."""
    tiny = torch.finfo(torch.float64).eps
    if not (bool(rest_s.sum() > tiny) and bool(rest_t.sum() > tiny)):
        return math.nan
    rest_s, rest_t = rest_s.clamp_min(0), rest_t.clamp_min(0)
    weighted = dataclasses.replace(
        problem,
        source=dataclasses.replace(problem.source, weights=rest_s),
        target=dataclasses.replace(problem.target, weights=rest_t),
    )
    return float(_sub_terms(weighted, rest_s.nonzero().flatten(), rest_t.nonzero().flatten()).squared_distance)
