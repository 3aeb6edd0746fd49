"""Cells that another grid has in common and has finished: a key names one run, whichever table it was made for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bures.experiments._cell import Cell
from bures.experiments._grid import Grid, grid_names
from bures.experiments._ledger import Ledger
from bures.experiments._recipe_changes import changed_fields

__all__ = ["finished_elsewhere", "grid_results"]


def finished_elsewhere(cells: Iterable[Any], ledger: str | Path) -> dict[str, dict[str, Any]]:
    """Results of cells that this ledger lacks and the ledger of another grid in the same folder holds.

    Runs of recipes that have changed since are left out, and so are shallow cells, which are too cheap to look for.

    Parameters
    ----------
    cells : iterable of cells
        What is looked for.
    ledger : path
        The ledger of their own grid; it need not exist.

    Returns
    -------
    dict
        Results by key.
    """
    path = Path(ledger)
    wanted = {cell.key: cell for cell in cells if isinstance(cell, Cell)}
    for key in Ledger(path).results():
        wanted.pop(key, None)
    found: dict[str, dict[str, Any]] = {}
    for other in (path.with_name(f"{name}.jsonl") for name in grid_names()):
        if not wanted or other == path:
            continue
        try:
            results = Ledger(other).results()
        except ValueError as error:  # not the ledger that was asked for: its runs are made anew
            warnings.warn(f"{error}; its runs are not looked at", UserWarning, stacklevel=2)
            continue
        for key, result in results.items():
            if key in wanted and not changed_fields(wanted[key], result):
                found[key] = result
                del wanted[key]
    return found


def grid_results(grid: Grid, folder: str | Path) -> list[dict[str, Any]]:
    """What is finished of a grid, in its own ledger and in those of grids that share cells with it.

    Parameters
    ----------
    grid : Grid
        As `load_grid` gives it.
    folder : path
        Where the ledgers lie.

    Returns
    -------
    list of dict
        Those of the own ledger first.

    Examples
    --------
    >>> from bures.experiments import grid_results, load_grid
    >>> grid_results(load_grid("ablation"), "no-such-folder")
    []
    """
    path = Path(folder) / f"{grid.name}.jsonl"
    own, other = Ledger(path).results(), finished_elsewhere(grid.cells(), path)
    return [*own.values(), *other.values()]
