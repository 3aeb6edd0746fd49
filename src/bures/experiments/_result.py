"""What a line of a ledger must look like for the tables and figures that are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bures.kinds import FIELDS, LIST, NUMBER, TEXT, WHOLE, check_kinds

__all__ = ["check_result"]

KINDS = {
    "schema": WHOLE,
    **dict.fromkeys(("task", "recipe_name", "method", "command"), TEXT),
    "seed": WHOLE,
    **dict.fromkeys(("changes", "recipe", "hardware", "final"), FIELDS),
    **dict.fromkeys(("final.best", "final.accuracy_by_batchnorm", "final.scores"), FIELDS),
    **dict.fromkeys(("final.accuracy", "final.best.accuracy", "final.accuracy_by_batchnorm.*"), NUMBER),
    # Epochs are a list of rows, or a mapping of columns.
    "epochs": FIELDS + LIST,
    "epochs.*": FIELDS + LIST,
    "epochs.target_accuracy": LIST,
    "epochs.target_accuracy.*": NUMBER,
    "epochs.*.target_accuracy": NUMBER,
}
NEEDED = ("task", "recipe_name", "method", "seed")  # of a result with an accuracy


def check_result(result: Mapping[str, Any]) -> None:
    """Raise a ValueError where a field is not of the kind that its readers take for granted.

    Examples
    --------
    >>> from bures.experiments._result import check_result
    >>> check_result({"key": "a", "seed": "three"})
    Traceback (most recent call last):
    ValueError: seed is 'three'; accepted is a whole number
    """
    check_kinds(result, KINDS)
    for name in ("key", *NEEDED):
        if any("\ud800" <= character <= "\udfff" for character in str(result.get(name))):
            raise ValueError(f"{name} holds half a character, which JSON can spell and no file can hold")
    epochs = result.get("epochs") or ()
    columns = isinstance(epochs, Mapping)
    for part in epochs.values() if isinstance(epochs, Mapping) else epochs:
        if not isinstance(part, list if columns else Mapping):
            raise ValueError(f"epochs holds {str(part)[:60]!r}; accepted are columns, or a list of rows")
    if (result.get("final") or {}).get("accuracy") is not None:
        for name in NEEDED:
            if result.get(name) is None:
                raise ValueError(f"{name} is missing from a result with an accuracy")
