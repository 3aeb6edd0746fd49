"""Columns of two domains brought into one order, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from bures.columns import column_order
from bures.data._domain import Domain
from bures.data._samples import TensorSamples

__all__ = ["align_columns", "with_columns"]


def align_columns(source: Domain, target: Domain) -> Domain:
    """The target with the columns of the source, in the source's order.

    Parameters
    ----------
    source : Domain
        Names the columns.
    target : Domain
        Its columns are found by name; an error names those that are missing or unexpected. Where one of the domains has
        no names, as when it comes from an array, columns are matched by their position.

    Returns
    -------
    Domain
        The target, its columns in the source's order.

    Examples
    --------
    >>> import torch
    >>> from bures.data import Domain, TensorSamples, align_columns
    >>> source = Domain("here", TensorSamples(torch.eye(2)), [], feature_names=["width", "length"])
    >>> target = Domain("there", TensorSamples(torch.tensor([[5.0, 1.0]])), [], feature_names=["length", "width"])
    >>> align_columns(source, target).samples.tensor
    tensor([[1., 5.]])
    """
    return with_columns(target, source.feature_names, f"source {source.name!r}", f"target {target.name!r}")


def with_columns(domain: Domain, names: Sequence[str] | None, whose: str, what: str) -> Domain:
    """The domain with its columns in the order of ``names``, which are those of ``whose``, in a message on ``what``."""
    order = column_order(names, domain.feature_names, names=(whose, what))
    if order is None or names is None:
        return domain
    assert isinstance(domain.samples, TensorSamples)  # nothing else has columns with names
    return replace(domain, samples=domain.samples.columns(torch.tensor(order)), feature_names=tuple(names))
