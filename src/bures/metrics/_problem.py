"""From the caller's arguments to Gram blocks and label factors: what every conditional quantity starts from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bures.arrays import FUNCTION_NAMES, Array, Names, check_choice, is_tensor_call, read_samples
from bures.factors import (
    DOUBLE,
    LABEL_BANDWIDTH_RULES,
    Factor,
    LabelKernel,
    Precision,
    bind_label_kernel,
    check_eps,
    resolve_eps,
)
from bures.kernels import (
    BANDWIDTH_RULES,
    Bandwidth,
    GramBlocks,
    Kernel,
    check_bandwidth,
    check_kernel,
    gram_blocks,
)
from bures.labels import Conditioning, Labels, check_prior, class_prior_weights, read_labels
from bures.metrics._fused import FusedProblem, can_fuse, fused_squared_distance
from bures.metrics._small_device import SmallDeviceLabels, small_value_and_gradient, suits_small_device
from bures.spectral import METHODS, SMALL, nuclear_norm

__all__ = [
    "BuresTerms",
    "ConditionalProblem",
    "assemble_problem",
    "bures_terms",
    "check_options",
    "conditional_problem",
    "cross_matrix",
]


WELL_CONDITIONED = 1e-3
"""From this eps on label kernels may be decomposed in float32: 1 / eps costs three of its seven digits."""


@dataclass(frozen=True)
class BuresTerms:
    """The three terms of a squared Bures distance between two operators."""

    trace_s: Tensor
    trace_t: Tensor
    fidelity: Tensor

    @property
    def squared_distance(self) -> Tensor:
        """Squared distance; rounding may leave it a little below zero."""
        return self.trace_s + self.trace_t - 2 * self.fidelity


def bures_terms(blocks: GramBlocks, factor_s: Factor, factor_t: Factor, method: str = "auto") -> BuresTerms:
    """Theorem 5 with any factors of B: two traces and a nuclear norm."""
    dtype = blocks.ss.dtype
    cross = cross_matrix(blocks.ts, factor_s, factor_t)
    if method == "auto" and cross.dtype != dtype:
        # The samples are float32, for which "auto" is this; decompositions are for samples in float64.
        method = "polar"
    return BuresTerms(
        trace_s=(blocks.ss * factor_s.trace_weights(dtype)).sum(),
        trace_t=(blocks.tt * factor_t.trace_weights(dtype)).sum(),
        fidelity=nuclear_norm(cross, method).to(dtype),
    )


def cross_matrix(block: Tensor, factor_s: Factor, factor_t: Factor) -> Tensor:
    """The matrix under the nuclear norm, (H D C)_t^T K_ts (H D C)_s."""
    return factor_s.apply(factor_t.apply(block).T).T


@dataclass(frozen=True)
class ConditionalProblem:
    """Gram blocks of two samples, and their labels and weights under a label kernel.

    ``prior`` holds the class frequencies both domains were weighted to, where these were given.
    ``blocks`` may lack a constant, which centring removes; ``gram(up_to_constant=False)`` gives the kernel's values.
    """

    tensor_call: bool
    samples: tuple[Tensor, Tensor]
    gram: partial[GramBlocks]
    known_blocks: list[GramBlocks]
    source: LabelKernel
    target: LabelKernel
    eps: Tensor
    prior: Tensor | None
    method: str

    @property
    def blocks(self) -> GramBlocks:
        """The Gram blocks, evaluated at first use (copies with other weights share them)."""
        if not self.known_blocks:
            self.known_blocks.append(self.gram())
        return self.known_blocks[0]

    def terms(self) -> BuresTerms:
        """The terms of the squared CKB distance."""
        return bures_terms(self.blocks, *self._factors(), self.method)

    def squared_distance(self) -> Tensor:
        """The squared CKB distance alone, in one pass where that can be."""
        kernel, bandwidth = self.gram.keywords["kernel"], self.gram.keywords["bandwidth"]
        if not can_fuse(self.samples[0], kernel, bandwidth, self.method):
            return self.terms().squared_distance

        def reference(xs: Tensor, xt: Tensor) -> Tensor:
            blocks = gram_blocks(xs, xt, **self.gram.keywords)
            return bures_terms(blocks, *self._factors(), self.method).squared_distance

        method, precision, dtype = self.method, DOUBLE, self.samples[0].dtype
        if method == "low-rank" and min(map(len, self.samples)) < SMALL:
            method = "gram"  # as `nuclear_norm` has it
        if not self.eps.is_cuda and float(self.eps) >= WELL_CONDITIONED:
            precision = Precision(dtype, dtype if method == "low-rank" else torch.float64)
        weights = self.source.weights, self.target.weights
        factors = tuple(partial(side.factor, self.eps, precision) for side in (self.source, self.target))
        small = None
        if suits_small_device(*self.samples, self.source, self.target):
            labels = SmallDeviceLabels(self.source, self.target, self.eps)
            small = partial(small_value_and_gradient, labels=labels, bandwidth=bandwidth)
        problem = FusedProblem(weights, (factors[0], factors[1]), bandwidth, method, reference, small)
        return fused_squared_distance(*self.samples, problem)

    def _factors(self) -> tuple[Factor, Factor]:
        with torch.no_grad():
            return self.source.factor(self.eps), self.target.factor(self.eps)


def conditional_problem(
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
    eps: str | float,
    method: str = "auto",
    sample_weight_s: Array | None = None,
    sample_weight_t: Array | None = None,
    prior: Array | None = None,
    bandwidth_rules: tuple[str, ...] = BANDWIDTH_RULES,
    names: Names = FUNCTION_NAMES,
) -> ConditionalProblem:
    """Check every argument and build the problem; the arguments and their defaults are those of `bures.ckb`."""
    check_options(
        kernel=kernel,
        bandwidth=bandwidth,
        label_kernel=label_kernel,
        label_bandwidth=label_bandwidth,
        eps=eps,
        prior=prior,
        method=method,
        bandwidth_rules=bandwidth_rules,
    )
    arrays = dict(zip(names, (xs, ys, xt, yt), strict=True))
    tensor_call = is_tensor_call(**arrays, sample_weight_s=sample_weight_s, sample_weight_t=sample_weight_t)
    s, t, ws, wt = read_samples(xs, xt, sample_weight_s, sample_weight_t, names=names)
    labels_s, labels_t = read_labels(ys, yt, conditioning, len(s), len(t), like=s, names=names)
    return assemble_problem(
        s,
        t,
        labels_s,
        labels_t,
        ws,
        wt,
        kernel=kernel,
        bandwidth=bandwidth,
        label_kernel=label_kernel,
        label_bandwidth=label_bandwidth,
        eps=eps,
        method=method,
        prior=prior,
        tensor_call=tensor_call,
        names=names,
    )


def assemble_problem(
    s: Tensor,
    t: Tensor,
    labels_s: Labels,
    labels_t: Labels,
    ws: Tensor,
    wt: Tensor,
    *,
    kernel: Kernel,
    bandwidth: Bandwidth,
    label_kernel: Kernel,
    label_bandwidth: Bandwidth,
    eps: str | float,
    method: str,
    prior: Array | None,
    tensor_call: bool,
    names: Names = FUNCTION_NAMES,
) -> ConditionalProblem:
    """The problem of samples, labels and weights that have been read."""
    frequencies = None
    if prior is not None:
        ws, wt, frequencies = class_prior_weights(labels_s, labels_t, ws, wt, prior)
    numpy_callable = not tensor_call
    gram = partial(
        gram_blocks,
        s,
        t,
        kernel=kernel,
        bandwidth=bandwidth,
        ws=ws,
        wt=wt,
        precise_between=method in ("auto", "polar"),
        numpy_callable=numpy_callable,
    )
    bind = partial(bind_label_kernel, kernel=label_kernel, bandwidth=label_bandwidth, numpy_callable=numpy_callable)
    with torch.no_grad():
        source, target = bind(labels_s, ws, argument=names.ys), bind(labels_t, wt, argument=names.yt)
        regulariser = resolve_eps(eps, source, target)
    return ConditionalProblem(tensor_call, (s, t), gram, [], source, target, regulariser, frequencies, method)


def check_options(
    *,
    kernel: Kernel,
    bandwidth: Bandwidth,
    label_kernel: Kernel,
    label_bandwidth: Bandwidth,
    eps: str | float,
    prior: Array | None,
    method: str,
    bandwidth_rules: tuple[str, ...] = BANDWIDTH_RULES,
) -> None:
    """Raise unless the options of a conditional distance are among those accepted."""
    check_kernel(kernel)
    check_bandwidth(bandwidth, rules=bandwidth_rules)
    check_kernel(label_kernel, name="label_kernel")
    check_bandwidth(label_bandwidth, rules=LABEL_BANDWIDTH_RULES, name="label_bandwidth")
    check_eps(eps)
    check_prior(prior)
    check_choice("method", method, METHODS)
