"""What a line of a ledger must look like for the tables and figures that are made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["check_result"]

NUMBER, TEXT, WHOLE, FIELDS = (int, float), (str,), (int,), (Mapping,)
KINDS: dict[str, tuple[type, ...]] = {
    "schema": WHOLE,
    "task": TEXT,
    "recipe_name": TEXT,
    "method": TEXT,
    "seed": WHOLE,
    "command": TEXT,
    "changes": (Mapping, list),
    "recipe": FIELDS,
    "hardware": FIELDS,
    "final": FIELDS,
    "final.accuracy": NUMBER,
    "final.best": FIELDS,
    "final.best.accuracy": NUMBER,
    "final.accuracy_by_batchnorm": FIELDS,
    "final.scores": FIELDS,
    "epochs": (Mapping, list),
}
NEEDED = ("task", "recipe_name", "method", "seed")  # of a result with an accuracy


def check_result(result: Mapping[str, Any]) -> None:
    """Raise a ValueError where a field is not of the kind that its readers take for granted.

    Examples
    --------
    >>> from bures.experiments._result import check_result
    >>> check_result({"key": "a", "seed": "three"})
    Traceback (most recent call last):
    ValueError: seed is 'three', which is no int
    """
    for name, kinds in KINDS.items():
        value = _at(result, name)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            expected = " or ".join(kind.__name__.lower() for kind in kinds)
            raise ValueError(f"{name} is {str(value)[:60]!r}, which is no {expected}")
    if _at(result, "final.accuracy") is not None:
        for name in NEEDED:
            if result.get(name) is None:
                raise ValueError(f"{name} is missing from a result with an accuracy")
    for name, value in _cells(result):
        if value is not None and (not isinstance(value, (*NUMBER, str)) or isinstance(value, bool)):
            raise ValueError(f"{name} holds {str(value)[:60]!r}; accepted are numbers and null")


def _at(result: Mapping[str, Any], name: str) -> Any:
    """A field by its path; None where it, or what would hold it, is not there."""
    value: Any = result
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _cells(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The cells of the epochs, of rows or of columns, and the accuracies by statistics."""
    for name, value in (_at(result, "final.accuracy_by_batchnorm") or {}).items():
        yield f"final.accuracy_by_batchnorm.{name}", value
    epochs = result.get("epochs") or ()
    if isinstance(epochs, Mapping):
        for name, column in epochs.items():
            if not isinstance(column, list):
                raise ValueError(f"epochs.{name} is {str(column)[:60]!r}, which is no list")
            for value in column:
                yield f"epochs.{name}", value
        return
    for row in epochs:
        if not isinstance(row, Mapping):
            raise ValueError(f"epochs holds {str(row)[:60]!r}, which is no mapping")
        if (accuracy := row.get("target_accuracy")) is not None:
            yield "epochs.target_accuracy", accuracy
