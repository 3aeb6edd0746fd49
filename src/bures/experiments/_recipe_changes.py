"""Whether finished runs were made with the recipes of today: a ledger knows cells by the names of their recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bures.experiments._cell import Cell, rounded
from bures.methods import method_options

__all__ = ["changed_fields", "changed_recipes"]

APART = ("options", "weights")  # read in their own way
WATCHING = ("select", "validators")  # what looks at a training changes nothing in it; results say who looked


def changed_fields(cell: Cell, result: Mapping[str, Any]) -> list[str]:
    """Fields of the recipe that are not today what they were when the cell was run.

    Parameters
    ----------
    cell : Cell
        With its recipe as it is now.
    result : mapping
        What the ledger holds of the cell. Fields that it lacks are younger than the run, and ignored; so are the
        validators, which change no training.

    Examples
    --------
    >>> from bures.experiments import Cell, changed_fields
    >>> cell = Cell("usps", "mnist", "digits", "ckb", 0)
    >>> changed_fields(cell, {"recipe": {"lr": 0.1, "epochs": 10, "options": {"entropy": 0.05, "alpha": 1.0}}})
    ['lr']
    """
    then, now = result.get("recipe") or {}, rounded(cell.build().to_dict())
    weights = [None if recipe.get("weights") is None else Path(recipe["weights"]).name for recipe in (then, now)]
    plain = [name for name in now if name in then and name not in (*APART, *WATCHING)]
    changed = [name for name in plain if then[name] != now[name]]
    if "weights" in then and weights[0] != weights[1]:
        changed.append("weights")
    if isinstance(then.get("options"), Mapping):
        for name, default in method_options(cell.method).items():  # those of other methods do not matter
            if then["options"].get(name, default) != now["options"].get(name, default):
                changed.append(f"options.{name}")
    return changed


def changed_recipes(
    cells: Iterable[Any], results: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[int, tuple[str, ...]]]:
    """By recipe, how many finished cells were run with other values than those of today, and of which fields.

    Parameters
    ----------
    cells : iterable of cells
        Shallow ones have no recipe and are ignored.
    results : mapping
        Of finished cells, by key.
    """
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for cell in cells:
        if not isinstance(cell, Cell) or cell.key not in results:
            continue
        if fields := changed_fields(cell, results[cell.key]):
            count, known = found.get(cell.recipe, (0, ()))
            found[cell.recipe] = (count + 1, tuple(dict.fromkeys([*known, *fields])))
    return found
