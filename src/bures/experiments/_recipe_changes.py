"""Whether finished runs were made with the recipes of today: a ledger knows cells by the names of their recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bures.experiments._cell import Cell, rounded
from bures.methods import method_options
from bures.training import Recipe

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
        What the ledger holds of the cell. Fields that its recipe lacks are younger than the run and had their
        defaults: later versions add fields so that trainings without them stay what they were. The validators, which
        change no training, are ignored; a result without any recipe tells nothing.

    Examples
    --------
    >>> from bures.experiments import Cell, changed_fields
    >>> cell = Cell("usps", "mnist", "digits", "ckb", 0)
    >>> then = cell.build().to_dict() | {"lr": 0.1}
    >>> changed_fields(cell, {"recipe": then})
    ['lr']
    """
    if not result.get("recipe"):
        return []
    then, now = _defaults() | result["recipe"], rounded(cell.build().to_dict())
    changed = [name for name in now if name not in (*APART, *WATCHING) and then[name] != now[name]]
    weights = [None if recipe["weights"] is None else Path(recipe["weights"]).name for recipe in (then, now)]
    if weights[0] != weights[1]:
        changed.append("weights")
    if isinstance(then["options"], Mapping):
        for name, default in method_options(cell.method).items():  # those of other methods do not matter
            if then["options"].get(name, default) != now["options"].get(name, default):
                changed.append(f"options.{name}")
    return changed


@cache
def _defaults() -> dict[str, Any]:
    defaults: dict[str, Any] = rounded(Recipe().to_dict())
    return defaults


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
