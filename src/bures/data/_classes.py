"""Classes of two domains brought into one order, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from bures.data._domain import Domain

__all__ = ["align_classes"]


def align_classes(source: Domain, target: Domain, *, partial: bool = False) -> Domain:
    """The target with the classes of the source, in the source's order.

    Parameters
    ----------
    source : Domain
        Names the classes.
    target : Domain
        Its classes are found by name. A domain that names none is taken to have those of the source.
    partial : bool, optional
        Whether the target may lack classes of the source.

    Returns
    -------
    Domain
        The target; its labels, where it has any, count the classes of the source.

    Examples
    --------
    >>> import torch
    >>> from bures.data import Domain, TensorSamples, align_classes
    >>> source = Domain("here", TensorSamples(torch.eye(2)), ["cat", "dog"], labels=[0, 1])
    >>> target = Domain("there", TensorSamples(torch.eye(2)), ["dog", "cat"], labels=[0, 0])
    >>> align_classes(source, target).labels
    tensor([1, 1])
    """
    if not target.class_names or target.class_names == source.class_names:
        return replace(target, class_names=source.class_names)
    number = {name: label for label, name in enumerate(source.class_names)}
    strange = [name for name in target.class_names if name not in number]
    if strange:
        raise ValueError(
            f"target {target.name!r} has the {_listed(strange)}, unknown in source {source.name!r} "
            f"({_listed(source.class_names)}); a network can only predict classes of the source: rename or remove them"
        )
    missing = [name for name in source.class_names if name not in target.class_names]
    if missing and not partial:
        raise ValueError(
            f"target {target.name!r} lacks the {_listed(missing)} of source {source.name!r}; "
            "allow this with partial=True (--partial), or remove them from the source"
        )
    labels = target.labels
    if labels is not None:
        labels = torch.tensor([number[name] for name in target.class_names])[labels]
    return replace(target, class_names=source.class_names, labels=labels)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    listed = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return f"class{'es' if len(names) > 1 else ''} {listed}"
