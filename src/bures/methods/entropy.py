"""Entropy minimisation: the paper's objective without CKB."""

from __future__ import annotations

from bures.methods._method import Method
from bures.methods._registry import register
from bures.methods._terms import EntropyTerm

__all__ = ["entropy_minimisation"]


@register("entropy", matches="predictions", paper="Grandvalet and Bengio, NIPS 2005", cost="nK")
def entropy_minimisation(*, entropy: float = 0.5, entropy_start: float = 0.0, ramp: float = 0.0) -> Method:
    r"""Cross-entropy on the source and entropy on the target, :math:`CE + \lambda_1 Ent`.

    Grandvalet and Bengio, "Semi-supervised learning by entropy minimization", NIPS 2005. In the paper's ablation this
    is the objective without :math:`\mathcal{L}_{CKB}`; the weight 0.5 is that of `ckb`.
    """
    return Method("entropy", [EntropyTerm(entropy, entropy_start, ramp)])
