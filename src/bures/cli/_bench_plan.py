"""What ``bures bench`` is asked for: the cells of one or several grids, all known before the first is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bures.cli._job import read_overrides

if TYPE_CHECKING:
    import pandas as pd

    from bures.experiments import BenchTable, Grid, Ledger

__all__ = ["Choice", "Plan", "plan_grids", "read_choice", "read_grids"]

FILTERS = ("methods", "tasks", "seeds", "recipes")
NO_STAGE = "no stage has these methods, tasks, seeds and recipes"


@dataclass(frozen=True)
class Choice:
    """What of the grids is wanted; None stands for everything."""

    methods: list[str] | None = None
    tasks: list[str] | None = None
    seeds: list[int] | None = None
    recipes: list[str] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A grid, what of it is wanted, and where its results are kept."""

    grid: Grid
    choice: Choice
    cells: list[Any]
    ledger: Ledger

    def shared(self) -> dict[str, dict[str, Any]]:
        """What other grids have finished of it by now, those before it in the same command included."""
        from bures.experiments import finished_elsewhere

        return finished_elsewhere(self.cells, self.ledger.path)

    def table(self, known: Iterable[Mapping[str, Any]]) -> BenchTable:
        """Its table, from these results."""
        from bures.experiments import bench_table

        chosen = self.choice
        return bench_table(self.grid, known, methods=chosen.methods, tasks=chosen.tasks, recipes=chosen.recipes)

    def matrix(self, known: Iterable[Mapping[str, Any]], over: str) -> pd.DataFrame:
        """Its accuracies for tests and ranks, on the tasks asked for."""
        from bures.experiments import accuracy_matrix

        chosen = self.choice
        tested = self.grid if chosen.tasks is None else replace(self.grid, tasks=tuple(chosen.tasks))
        return accuracy_matrix(tested, known, over=over, methods=chosen.methods, recipes=chosen.recipes)


class _UnmatchedError(ValueError):
    """What is wanted is nothing of one grid; it may be something of another."""


def read_grids(names: Sequence[str]) -> list[Grid]:
    """The grids, each named once and with a ledger of its own."""
    from bures.experiments import load_grid

    grids: dict[str, Grid] = {}
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"the grid {name} is named twice; name each once")
        grid = load_grid(name)
        if (other := grids.setdefault(grid.name, grid)) is not grid:
            raise ValueError(
                f"the grids {other.spec} and {grid.spec} would share the ledger {grid.name}.jsonl; rename one of the "
                "files, or run them one by one, each with its own --results"
            )
    return list(grids.values())


def plan_grids(grids: Sequence[Grid], choice: Choice, results: Path) -> tuple[list[Plan], dict[str, str]]:
    """What is run of each grid; by name, why others are skipped.

    Of one grid all that was chosen must be there. Each of several takes of the choice what it knows: a name that none
    knows is an error, and so is a choice that leaves nothing of any.
    """
    if len(grids) == 1:
        cells = _cells(grids[0], choice)
        if not cells:
            raise ValueError(f"no cell of {grids[0].name} is left: {NO_STAGE}")
        return [_plan(grids[0], choice, cells, results)], {}
    _check_names(grids, choice)
    plans: list[Plan] = []
    skipped: dict[str, str] = {}
    for grid in grids:
        try:
            plans.append(_plan(grid, *_part(grid, choice), results))
        except _UnmatchedError as error:
            skipped[grid.name] = str(error)
    if not plans:
        by_reason: dict[str, list[str]] = {}
        for name, reason in skipped.items():
            by_reason.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
        raise ValueError(f"nothing of any grid is left; {reasons}")
    return plans, skipped


def _plan(grid: Grid, choice: Choice, cells: list[Any], results: Path) -> Plan:
    from bures.experiments import Ledger

    plan = Plan(grid, choice, cells, Ledger(results / f"{grid.name}.jsonl"))
    plan.table(())  # what no table can be made of is told now, not after the runs
    return plan


def _check_names(grids: Sequence[Grid], choice: Choice) -> None:
    for what in FILTERS:
        known = list(dict.fromkeys(name for grid in grids for name in _known(grid, what)))
        for name in getattr(choice, what) or ():
            if name not in known:
                accepted = ", ".join(map(str, known))
                raise ValueError(f"{what}: {name!r} is in none of the grids; accepted are {accepted}")


def _known(grid: Grid, what: str) -> list[Any]:
    from bures.experiments._grid import ADABN

    names = list(getattr(grid, what))
    return [*names, ADABN] if what == "methods" and "source" in names else names


def _part(grid: Grid, choice: Choice) -> tuple[Choice, list[Any]]:
    """What one of several grids knows of the choice, and its cells."""
    from bures.experiments import Cell

    own: dict[str, Any] = {}
    for what in FILTERS:
        if (given := getattr(choice, what)) is None:
            continue
        known = _known(grid, what)
        own[what] = [name for name in given if name in known]
        if not own[what]:
            raise _UnmatchedError(f"none of the {what} {', '.join(map(str, given))} is in the grid")
    narrowed = replace(choice, **own)
    try:
        cells = _cells(grid, narrowed)
    except (TypeError, ValueError) as error:
        if not choice.changes:  # the grid is wrong by itself
            raise
        raise _UnmatchedError(str(error)) from error
    if not cells:
        raise _UnmatchedError(NO_STAGE)
    if choice.changes and not any(isinstance(cell, Cell) for cell in cells):
        raise _UnmatchedError("no recipe is left that --set could change: shallow methods have none")
    return narrowed, cells


def _cells(grid: Grid, choice: Choice) -> list[Any]:
    from bures.experiments import Cell

    cells = grid.cells(
        methods=choice.methods,
        tasks=choice.tasks,
        seeds=choice.seeds,
        recipes=choice.recipes,
        changes=choice.changes,
    )
    kinds = {(cell.recipe, cell.method): cell for cell in cells if isinstance(cell, Cell)}
    for cell in kinds.values():
        cell.build()  # a change that no recipe takes is told now, not in every log
    return list(cells)


def read_choice(
    methods: list[str] | None,
    tasks: list[str] | None,
    seeds: list[str] | None,
    recipes: list[str] | None,
    override: list[str] | None,
) -> Choice:
    """The filters from the texts of the command line, with commas or given several times."""
    return Choice(
        _split(methods), _read_tasks(tasks), _read_seeds(seeds), _split(recipes), read_overrides(override or [])
    )


def _split(given: list[str] | None) -> list[str] | None:
    if not given:  # typer makes None or an empty list of an option that is not given
        return None
    text = ",".join(given)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"{text!r} names nothing; accepted are names with commas between them")
    return parts


def _read_tasks(given: list[str] | None) -> list[str] | None:
    parts = _split(given)
    return None if parts is None else [part.replace("->", ":").replace("→", ":") for part in parts]


def _read_seeds(given: list[str] | None) -> list[int] | None:
    """Seeds as numbers: 0,2 or 0-4 or both."""
    seeds: list[int] = []
    for part in _split(given) or []:
        first, sign, last = part.partition("-")
        try:
            span = range(int(first), int(last if sign else first) + 1)
        except ValueError:
            span = range(0)
        if not span:  # 3-1 as well: no seeds would stand for all of them
            raise ValueError(f"--seeds {','.join(given or [])!r}: {part!r} is no seed; accepted are 0,1 or 0-4")
        seeds += span
    return seeds or None
