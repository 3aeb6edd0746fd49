"""Controls without adaptation: what a network learns from the source alone, and from the target's own labels."""

from __future__ import annotations

from bures.methods._method import Method
from bures.methods._registry import register

__all__ = ["source", "source_adabn", "target"]


@register("source", matches="nothing", paper="control", cost="none")
def source() -> Method:
    """Cross-entropy on the source, nothing else."""
    return Method("source")


@register("source+adabn", matches="marginal", paper="Li et al., ICLR workshop 2017", cost="one pass at evaluation")
def source_adabn() -> Method:
    """Cross-entropy on the source; BatchNorm statistics of the target at evaluation.

    A network that never saw target statistics is a weak baseline partly by accident: gains are quoted over the better
    of this and `source`.
    """
    return Method("source+adabn", adapts_batchnorm=True)


@register("target", matches="nothing", paper="control", cost="none")
def target() -> Method:
    """Cross-entropy on the target's own labels: the supervised upper bound, not an adaptation method."""
    return Method("target", trains_on_target=True)
