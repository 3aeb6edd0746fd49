"""Controls without adaptation: what a network learns from the source alone, and from the target's own labels."""

from __future__ import annotations

from bures.methods._method import Method
from bures.methods._registry import register

__all__ = ["source", "source_adabn", "target"]


@register("source")
def source() -> Method:
    """Cross-entropy on the source, nothing else."""
    return Method("source")


@register("source+adabn")
def source_adabn() -> Method:
    """Cross-entropy on the source; BatchNorm statistics of the target at evaluation.

    A network that never saw target statistics is a weak baseline partly by accident: gains are quoted over the better
    of this and `source`.
    """
    return Method("source+adabn", adapts_batchnorm=True)


@register("target")
def target() -> Method:
    """Cross-entropy on the target's own labels: the supervised upper bound, not an adaptation method."""
    return Method("target", trains_on_target=True)
