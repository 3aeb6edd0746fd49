"""From the caller's arguments to Gram blocks and label factors: what every conditional quantity starts from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bures.arrays import (
    Array,
    as_feature_pair,
    as_sample_weight,
    check_choice,
    is_tensor_call,
)
from bures.factors import LABEL_BANDWIDTH_RULES, Factor, LabelKernel, check_eps, label_kernel, resolve_eps
from bures.kernels import (
    BANDWIDTH_RULES,
    Bandwidth,
    GramBlocks,
    Kernel,
    check_bandwidth,
    check_kernel,
    gram_blocks,
)
from bures.labels import Conditioning, Labels, class_prior_weights, read_labels
from bures.spectral import nuclear_norm

__all__ = ["METHODS", "BuresTerms", "ConditionalProblem", "bures_terms", "conditional_problem"]

METHODS = ("auto", "svd")


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


def bures_terms(blocks: GramBlocks, factor_s: Factor, factor_t: Factor) -> BuresTerms:
    """Theorem 5 with any factors of B: two traces and a nuclear norm."""
    dtype = blocks.ss.dtype
    cross = factor_s.apply(factor_t.apply(blocks.ts).T).T
    return BuresTerms(
        trace_s=(blocks.ss * factor_s.trace_weights(dtype)).sum(),
        trace_t=(blocks.tt * factor_t.trace_weights(dtype)).sum(),
        fidelity=nuclear_norm(cross),
    )


@dataclass(frozen=True)
class ConditionalProblem:
    """Two samples with their conditioning variable, weights, Gram blocks and regulariser."""

    tensor_call: bool
    xs: Tensor
    xt: Tensor
    labels_s: Labels
    labels_t: Labels
    weights_s: Tensor
    weights_t: Tensor
    blocks: GramBlocks
    label_kernel_s: LabelKernel
    label_kernel_t: LabelKernel
    eps: Tensor

    def terms(self) -> BuresTerms:
        """The terms of the squared CKB distance."""
        return bures_terms(self.blocks, self.label_kernel_s.factor(self.eps), self.label_kernel_t.factor(self.eps))


def conditional_problem(
    xs: Array,
    ys: Array,
    xt: Array,
    yt: Array,
    *,
    conditioning: Conditioning,
    kernel: Kernel,
    bandwidth: Bandwidth,
    label_kernel_name: Kernel,
    label_bandwidth: Bandwidth,
    eps: str | float,
    method: str,
    sample_weight_s: Array | None,
    sample_weight_t: Array | None,
    prior: Array | None,
    bandwidth_rules: tuple[str, ...] = BANDWIDTH_RULES,
    kernel_up_to_constant: bool = True,
) -> ConditionalProblem:
    """Check every argument and build the problem; the arguments are those of `bures.ckb`."""
    check_kernel(kernel)
    check_bandwidth(bandwidth, rules=bandwidth_rules)
    check_kernel(label_kernel_name, name="label_kernel")
    check_bandwidth(label_bandwidth, rules=LABEL_BANDWIDTH_RULES, name="label_bandwidth")
    check_eps(eps)
    check_choice("method", method, METHODS)
    tensor_call = is_tensor_call(
        xs=xs, ys=ys, xt=xt, yt=yt, sample_weight_s=sample_weight_s, sample_weight_t=sample_weight_t
    )
    s, t = as_feature_pair(xs, xt)
    labels_s, labels_t = read_labels(ys, yt, conditioning, len(s), len(t), like=s)
    ws = as_sample_weight("sample_weight_s", sample_weight_s, len(s), like=s)
    wt = as_sample_weight("sample_weight_t", sample_weight_t, len(t), like=t)
    if prior is not None:
        ws, wt, _ = class_prior_weights(labels_s, labels_t, ws, wt, prior)
    numpy_callable = not tensor_call
    blocks = gram_blocks(
        s,
        t,
        kernel=kernel,
        bandwidth=bandwidth,
        ws=ws,
        wt=wt,
        up_to_constant=kernel_up_to_constant,
        numpy_callable=numpy_callable,
    )
    with torch.no_grad():
        kernel_s, kernel_t = (
            label_kernel(
                labels,
                weights,
                kernel=label_kernel_name,
                bandwidth=label_bandwidth,
                argument=argument,
                numpy_callable=numpy_callable,
            )
            for labels, weights, argument in ((labels_s, ws, "ys"), (labels_t, wt, "yt"))
        )
        return ConditionalProblem(
            tensor_call,
            s,
            t,
            labels_s,
            labels_t,
            ws,
            wt,
            blocks,
            kernel_s,
            kernel_t,
            resolve_eps(eps, kernel_s, kernel_t),
        )
