"""Classes of two domains brought into one order, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from bures.arrays import check_flags
from bures.data._domain import Domain
from bures.wording import listed

__all__ = ["align_classes", "listed_classes", "with_classes"]


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
    check_flags(partial=partial)
    if not target.class_names or target.class_names == source.class_names:
        return replace(target, class_names=source.class_names)
    strange = [name for name in target.class_names if name not in source.class_names]
    if strange:
        raise ValueError(
            f"target {target.name!r} has the {listed_classes(strange)}, unknown in source {source.name!r} "
            f"({listed_classes(source.class_names)}); a network can only predict classes of the source: "
            "rename or remove them"
        )
    missing = [name for name in source.class_names if name not in target.class_names]
    if missing and not partial:
        raise ValueError(
            f"target {target.name!r} lacks the {listed_classes(missing)} of source {source.name!r}; "
            "allow this with partial=True (--partial), or remove them from the source"
        )
    return with_classes(target, source.class_names)


def with_classes(domain: Domain, class_names: Sequence[str]) -> Domain:
    """The domain with these classes, found by name; every class that its labels use must be among them."""
    labels = domain.labels
    if labels is not None:
        number = {name: label for label, name in enumerate(class_names)}
        # A class without samples may be unknown; the domain refuses the number -1 where it is used.
        labels = torch.tensor([number.get(name, -1) for name in domain.class_names])[labels]
    return replace(domain, class_names=tuple(class_names), labels=labels)


def listed_classes(names: Iterable[str]) -> str:
    """A few classes by name: class 'a', or classes 'a', 'b', ..."""
    return listed(map(repr, names), noun="class")
