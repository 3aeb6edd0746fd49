"""Conditional kernel Bures: the paper's method, its joint variant, and its ablation without entropy."""

from __future__ import annotations

from bures.kernels import Bandwidth
from bures.losses import CKBLoss
from bures.methods._label_shift import LabelMMDTerm
from bures.methods._method import ConditionalTerm, Method, Schedule, Term
from bures.methods._registry import register
from bures.methods._terms import prediction_terms

__all__ = ["ckb", "ckb_mmd", "ckb_no_entropy"]


@register("ckb", matches="conditional", paper="Luo and Ren, CVPR 2021", cost="n²d + n³")
def ckb(
    *,
    entropy: float = 0.5,
    diversity: float = 0.0,
    confusion: float = 0.0,
    neighbours: float = 0.0,
    n_neighbours: int = 2,
    weight: float = 1.0,
    eps: str | float = 1e-2,
    pseudo_labels: str = "soft",
    bandwidth: Bandwidth = "per-block",
    start: float = 0.0,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Kernel covariances of the features given the class: :math:`CE + \lambda_1 Ent + \lambda_2 CKB`.

    Luo and Ren, "Conditional Bures Metric for Domain Adaptation", CVPR 2021, eq. (6). Defaults are those of the paper's
    text, :math:`(\lambda_1, \lambda_2) = (0.5, 1)`, :math:`\varepsilon = 10^{-2}`; ``start`` and ``entropy_start`` are
    the epochs from which the terms count, ``ramp`` the epochs in which they rise. These are not in the paper:
    ``diversity`` weights the term of information maximisation that keeps all classes in the predictions, ``confusion``
    that of `mcc`, and ``neighbours`` one by which each prediction is drawn to those of the ``n_neighbours`` target
    samples with the most similar features.
    """
    alignment = _ckb(weight, eps, pseudo_labels, bandwidth, start, ramp)
    return Method(
        "ckb",
        [*prediction_terms(entropy, diversity, confusion, neighbours, n_neighbours, entropy_start, ramp), alignment],
    )


@register("ckb-no-entropy", matches="conditional", paper="Luo and Ren, CVPR 2021", cost="n²d + n³")
def ckb_no_entropy(
    *,
    weight: float = 1.0,
    eps: str | float = 1e-2,
    pseudo_labels: str = "soft",
    bandwidth: Bandwidth = "per-block",
    start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""The paper's ablation of ckb without the entropy of predictions: :math:`CE + \lambda_2 CKB`."""
    return Method("ckb-no-entropy", [_ckb(weight, eps, pseudo_labels, bandwidth, start, ramp)])


@register("ckb+mmd", matches="joint", paper="Luo and Ren, CVPR 2021", cost="n²d + n³")
def ckb_mmd(
    *,
    entropy: float = 0.5,
    diversity: float = 0.0,
    confusion: float = 0.0,
    neighbours: float = 0.0,
    n_neighbours: int = 2,
    weight: float = 1.0,
    eps: str | float = 1e-2,
    pseudo_labels: str = "soft",
    bandwidth: Bandwidth = "per-block",
    start: float = 0.0,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
    label_shift: bool = True,
) -> Method:
    r"""Kernel covariances given the class, and class frequencies: :math:`CE + \lambda_1 Ent + \lambda_2 (CKB + MMD)`.

    Eq. (7) of the paper of `ckb`. The MMD is between source labels and target predictions, with one bandwidth for its
    three blocks and its gradient through the predictions. With ``label_shift``, which is ours, the source labels are
    weighted to the class frequencies of the target, estimated from predictions; without, as in the paper, the target
    is pressed into those of the source.
    """
    terms = [
        *prediction_terms(entropy, diversity, confusion, neighbours, n_neighbours, entropy_start, ramp),
        _ckb(weight, eps, pseudo_labels, bandwidth, start, ramp),
        LabelMMDTerm(Schedule(weight, start, ramp), label_shift=label_shift),
    ]
    return Method("ckb+mmd", terms)


def _ckb(weight: float, eps: str | float, pseudo_labels: str, bandwidth: Bandwidth, start: float, ramp: float) -> Term:
    loss = CKBLoss(eps=eps, pseudo_labels=pseudo_labels, bandwidth=bandwidth)
    return ConditionalTerm("ckb", Schedule(weight, start, ramp), loss)
