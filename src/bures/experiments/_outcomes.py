"""What the results of a ledger say: accuracies after the last epoch, at the label-free choice, and of the oracle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = [
    "Outcome",
    "changes_of",
    "epoch_accuracies",
    "epoch_column",
    "method_label",
    "outcomes",
    "variant_text",
]


class Outcome(NamedTuple):
    """One accuracy of a run in percent, and what could be had by other choices of the epoch.

    ``label_free`` is the epoch with the best score that needs no labels, ``oracle`` the best epoch by the labels of
    the target: not a choice that anyone could make, shown so that readers see what others have reported as one. Both
    are None where there are no epochs to choose from, or they were not measured.
    """

    recipe: str
    method: str
    variant: str
    task: str
    seed: int
    last: float
    label_free: float | None
    oracle: float | None
    command: str


def outcomes(results: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """The accuracies of results; a source-only network has two, with its own BatchNorm statistics and the target's.

    Parameters
    ----------
    results : iterable of mapping
        As `bures.experiments.read_results` gives them. Results without an accuracy are left out.

    Examples
    --------
    >>> from bures.experiments import outcomes
    >>> final = {"accuracy": 0.5, "best": {"accuracy": 0.75}}
    >>> result = {
    ...     "key": "a|b|r|ckb|0",
    ...     "task": "a->b",
    ...     "recipe_name": "r",
    ...     "method": "ckb",
    ...     "seed": 0,
    ...     "final": final,
    ...     "epochs": {"target_accuracy": [0.8, 0.75, 0.5]},
    ...     "command": "bures adapt",
    ... }
    >>> [(found.last, found.label_free, found.oracle) for found in outcomes([result])]
    [(50.0, 75.0, 80.0)]
    """
    found = []
    for result in results:
        final = result.get("final") or {}
        if final.get("accuracy") is None:
            continue
        best = (final.get("best") or {}).get("accuracy")
        curve = epoch_accuracies(result)
        oracle = max(*curve, final["accuracy"]) if curve else None  # a head finish comes behind the last epoch
        common = (result["recipe_name"], _variant_of(result), result["task"], result["seed"], result.get("command", ""))
        policies = final.get("accuracy_by_batchnorm") or {}
        found.append(_outcome(common, result["method"], final["accuracy"], best, oracle))
        if result["method"] == "source" and "target" in policies:
            found.append(_outcome(common, "source+adabn", policies["target"], None, None))
    return found


def _outcome(
    common: tuple[str, str, str, int, str], method: str, last: float, best: float | None, oracle: float | None
) -> Outcome:
    recipe, variant, task, seed, command = common
    label_free, top = (None if value is None else 100 * value for value in (best, oracle))
    return Outcome(recipe, method, variant, task, seed, 100 * last, label_free, top, command)


def epoch_accuracies(result: Mapping[str, Any]) -> list[float]:
    """Accuracy on the target after each epoch; empty where it was not measured.

    Parameters
    ----------
    result : mapping
        Of a ledger; in lines of the first schema an epoch is a mapping, later ones have a list for each column.

    Examples
    --------
    >>> from bures.experiments import epoch_accuracies
    >>> epoch_accuracies({"epochs": {"target_accuracy": [0.5, 0.75]}})
    [0.5, 0.75]
    """
    return [value for value in epoch_column(result, "target_accuracy") if value is not None]


def epoch_column(result: Mapping[str, Any], name: str) -> list[Any]:
    """A column of the epochs of a run: a list of the column, or of the rows that have it; empty where none does."""
    epochs = result.get("epochs") or []
    if isinstance(epochs, Mapping):
        return list(epochs.get(name) or [])
    column = [row.get(name) for row in epochs]
    return column if any(value is not None for value in column) else []


def changes_of(result: Mapping[str, Any]) -> list[str]:
    """Names of the fields in which a run differs from its recipe."""
    if result.get("changes") is not None:
        return list(result["changes"])
    return [part.partition("=")[0] for part in _changes_in_key(result)]


def _variant_of(result: Mapping[str, Any]) -> str:
    """What differs from the recipe, as text; empty where nothing does."""
    if result.get("changes") is not None:
        return variant_text(result["changes"])
    return ", ".join(map(_plain, _changes_in_key(result)))


def _changes_in_key(result: Mapping[str, Any]) -> list[str]:
    """The changes as `Cell.key` has them: lines of the first schema say them there alone."""
    return str(result.get("key", "")).split("|")[5:]


def variant_text(changes: Mapping[str, Any]) -> str:
    """Changes of a recipe, as text."""
    return ", ".join(f"{name}={_plain(json.dumps(value))}" for name, value in sorted(changes.items()))


def method_label(method: str, variant: str) -> str:
    """A method as tables name it, with what differs from the recipe: such runs are no further seeds of those without.

    Examples
    --------
    >>> from bures.experiments._outcomes import method_label
    >>> method_label("ckb", "lr=0.1"), method_label("ckb", "")
    ('ckb (lr=0.1)', 'ckb')
    """
    return f"{method} ({variant})" if variant else method


def _plain(text: str) -> str:
    return text.replace('"', "")
