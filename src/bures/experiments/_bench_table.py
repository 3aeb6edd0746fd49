"""The table of a grid: our accuracies with mean and deviation, beside them the paper's, and what was not run."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from bures.arrays import check_flags
from bures.experiments._grid import ADABN, Grid
from bures.experiments._outcomes import Outcome, method_label, outcomes, variant_text
from bures.experiments._paper import PaperRow, paper_table
from bures.experiments._shallow import SHALLOW_RECIPE

__all__ = ["NOT_RUN", "BenchTable", "Entry", "Spread", "TableRow", "bench_table"]

NOT_RUN = "not run"
NOT_HERE = "not run here"
CHOICES = ("last", "label_free", "oracle")


class Spread(NamedTuple):
    """Mean and standard deviation of n seeds in percent; one seed has no deviation."""

    mean: float
    sd: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Mean and deviation of some values."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.sd is None else f"{self.mean:.1f} ± {self.sd:.1f}"


@dataclass(frozen=True)
class Entry:
    """A place in a table: accuracies for each choice of the epoch, how many seeds were asked for, and the commands."""

    last: Spread | None = None
    label_free: Spread | None = None
    oracle: Spread | None = None
    declared: int = 0
    commands: tuple[str, ...] = ()

    def text(self, choice: str = "last", missing: str = NOT_RUN) -> str:
        """What the table shows; seeds that are missing are told."""
        value: Spread | None = getattr(self, choice)
        if value is None:
            return missing if choice == "last" or self.last is None else "–"
        return f"{value} ({value.n}/{self.declared})" if 0 < value.n < self.declared else str(value)


@dataclass(frozen=True)
class TableRow:
    """A line of a table: of ours, or one that the paper reports."""

    recipe: str
    method: str
    variant: str
    entries: Mapping[str, Entry]
    mean: Entry
    from_paper: bool = False
    missing: str = NOT_RUN

    @property
    def label(self) -> str:
        """The method, and what differs from the recipe."""
        return method_label(self.method, self.variant)

    @property
    def usual_count(self) -> tuple[int, int] | None:
        """Seeds finished and declared in most of its cells; None where no cell that was begun lacks a seed."""
        counts = [(entry.last.n, entry.declared) for entry in self.entries.values() if entry.last is not None]
        if self.from_paper or all(n >= declared for n, declared in counts):
            return None
        return max(sorted(counts), key=Counter(counts).__getitem__)

    @property
    def seeds(self) -> str:
        """How many seeds are behind the row: all that were declared, or, as ``1/3``, how many of them."""
        if self.from_paper or self.missing == NOT_HERE:
            return ""
        counts = sorted({entry.last.n for entry in self.entries.values() if entry.last is not None})
        if not counts:
            return f"0/{max((entry.declared for entry in self.entries.values()), default=0)}"
        if self.usual_count is None:
            return str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        n, declared = self.usual_count
        return str(n) if n >= declared else f"{n}/{declared}"

    def text(self, entry: Entry, choice: str = "last") -> str:
        """What a table with a column of `seeds` shows of a cell: its own count only where it differs from the row's."""
        value: Spread | None = getattr(entry, choice)
        if value is None:
            return entry.text(choice, self.missing)
        same = self.usual_count in (None, (value.n, entry.declared))
        return str(value) if same else f"{value} ({value.n}/{entry.declared})"

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was run."""
        return not self.from_paper and all(entry.last is None for entry in self.entries.values())

    @property
    def is_waiting(self) -> bool:
        """Whether it could be run and nothing of it was."""
        return self.missing == NOT_RUN and self.is_empty

    @property
    def is_bound(self) -> bool:
        """Whether it was trained on the labels of the target."""
        return not self.from_paper and self.method == "target"


@dataclass(frozen=True)
class BenchTable:
    """A table of accuracies in percent: rows, columns and what a reader must know.

    Parameters
    ----------
    title : str
    tasks : tuple of str
        The columns, ``"source:target"``.
    rows : tuple of TableRow
    notes : tuple of str, optional
    short : mapping of str to str, optional
        Short names of domains, for the heads of columns.
    """

    title: str
    tasks: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = field(default=())
    short: Mapping[str, str] = field(default_factory=dict)

    def head(self, task: str) -> str:
        """A task as the head of its column."""
        return " → ".join(self.short.get(side, side) for side in task.split(":"))

    def best(self, task: str | None) -> float | None:
        """The highest mean of our rows that could be had without target labels, on a task or on all of them."""
        entries = [
            row.mean if task is None else row.entries[task]
            for row in self.rows
            if not row.from_paper and not row.is_bound
        ]
        means = [round(entry.last.mean, 1) for entry in entries if entry.last is not None]
        return max(means, default=None)

    def finished(self) -> BenchTable:
        """The table without the rows of which nothing was run; notes name them."""
        notes = list(self.notes)
        for waiting, what in ((False, "Not run here"), (True, "Declared and not run yet")):
            by_recipe: dict[str, list[str]] = {}
            for row in self.rows:
                if row.is_empty and row.is_waiting == waiting:
                    by_recipe.setdefault(row.recipe, []).append(row.label)
            if by_recipe:
                names = "; ".join(f"{recipe}: {', '.join(labels)}" for recipe, labels in by_recipe.items())
                notes.append(f"{what}: {names}.")
        return replace(self, rows=tuple(row for row in self.rows if not row.is_empty), notes=tuple(notes))


def bench_table(
    grid: Grid,
    results: Iterable[Mapping[str, Any]],
    *,
    methods: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    recipes: Sequence[str] | None = None,
    paper: bool = True,
) -> BenchTable:
    """The table of a grid from the results that there are.

    Parameters
    ----------
    grid : Grid
        Its cells make the rows, whether they were run or not.
    results : iterable of mapping
        As `bures.experiments.read_results` gives them; results of other tasks are ignored. Rows that the grid does
        not declare, such as those with changes of a recipe, come last.
    methods, tasks, recipes : sequence of str, optional
        Only these; shallow methods have the recipe ``shallow``.
    paper : bool, optional
        Whether the paper's figures stand beside ours.

    Returns
    -------
    BenchTable
        Last epoch for every task; the mean over tasks for the last epoch, the label-free choice and the oracle.

    Examples
    --------
    >>> from bures.experiments import bench_table, load_grid
    >>> table = bench_table(load_grid("imageclef"), [])
    >>> row = table.rows[0]
    >>> row.label, row.entries["I:P"].text(missing=row.missing)
    ('ckb', 'not run here')
    """
    check_flags(paper=paper)
    if tasks is not None:
        grid = replace(grid, tasks=tuple(tasks))
    declared = _declared(grid)
    by_task = {grid.task_key(task): task for task in grid.tasks}
    runs: dict[tuple[str, str, str], dict[str, dict[int, Outcome]]] = {key: defaultdict(dict) for key in declared}
    for found in outcomes(results):
        if found.task in by_task:
            row = runs.setdefault((found.recipe, found.method, found.variant), defaultdict(dict))
            row[by_task[found.task]].setdefault(found.seed, found)
    rows = [_row(grid, key, found, declared.get(key, {})) for key, found in runs.items()]
    rows = [
        row for row in rows if (methods is None or row.method in methods) and (recipes is None or row.recipe in recipes)
    ]
    order = {recipe: number for number, recipe in reversed(list(enumerate(row.recipe for row in rows)))}
    rows.sort(key=lambda row: order[row.recipe])  # recipes together, in the order in which they begin
    notes = [note for note in (grid.about, "" if grid.not_here is None else f"Not run here: {grid.not_here}.") if note]
    if methods is None and recipes is None:
        empty = dict.fromkeys(grid.tasks, Entry())
        rows += [TableRow(recipe, method, "", empty, Entry(), missing=NOT_HERE) for recipe, method in grid.not_run]
    if paper and grid.paper is not None:
        table = paper_table(grid.paper)
        rows, alone = _with_paper(grid, rows, table.rows, table.network, methods)
        if alone:
            notes.append(f"In the paper alone, and not run here: {', '.join(alone)}.")
    if grid.short:
        notes.append(", ".join(f"{short}: {name}" for name, short in grid.short.items()) + ".")
    return BenchTable(grid.title, grid.tasks, tuple(rows), tuple(notes), grid.short)


def _declared(grid: Grid) -> dict[tuple[str, str, str], dict[str, int]]:
    """Number of seeds that the grid asks for, by row and task; a source-only network makes two rows."""
    counts: dict[tuple[str, str, str], dict[str, int]] = {}
    names = {grid.task_key(task): task for task in grid.tasks}
    for cell in grid.cells():
        changes = getattr(cell, "changes", {})
        variant = variant_text(changes)
        recipe = getattr(cell, "recipe", SHALLOW_RECIPE)
        both = cell.method == "source" and recipe != SHALLOW_RECIPE
        for method in (cell.method, ADABN) if both else (cell.method,):
            tasks = counts.setdefault((recipe, method, variant), {})
            task = names[f"{cell.source}->{cell.target}"]
            tasks[task] = tasks.get(task, 0) + 1
    return counts


def _row(
    grid: Grid,
    key: tuple[str, str, str],
    found: Mapping[str, Mapping[int, Outcome]],
    declared: Mapping[str, int],
) -> TableRow:
    entries = {task: _entry(found.get(task, {}), declared.get(task, 0)) for task in grid.tasks}
    missing = NOT_RUN if grid.not_here is None else NOT_HERE
    return TableRow(*key, entries, _mean(found, grid.tasks, max(declared.values(), default=0)), missing=missing)


def _entry(found: Mapping[int, Outcome], declared: int) -> Entry:
    runs = [found[seed] for seed in sorted(found)]
    spreads: dict[str, Any] = {}
    for choice in CHOICES:
        values = [getattr(run, choice) for run in runs]
        spreads[choice] = Spread.of(values) if values and None not in values else None
    return Entry(**spreads, declared=declared, commands=tuple(run.command for run in runs))


def _mean(found: Mapping[str, Mapping[int, Outcome]], tasks: Sequence[str], declared: int) -> Entry:
    """The mean of the tasks' means; its deviation is that over seeds, where all tasks have the same ones."""
    if any(not found.get(task) for task in tasks):
        return Entry(declared=declared)
    seeds = [set(found[task]) for task in tasks]
    same = all(own == seeds[0] for own in seeds) and len(seeds[0]) > 1
    spreads: dict[str, Any] = {}
    for choice in CHOICES:
        values = {task: {seed: getattr(run, choice) for seed, run in found[task].items()} for task in tasks}
        if any(value is None for own in values.values() for value in own.values()):
            spreads[choice] = None
            continue
        mean = statistics.fmean(statistics.fmean(own.values()) for own in values.values())
        sd = None
        if same:
            sd = statistics.stdev(statistics.fmean(values[task][seed] for task in tasks) for seed in sorted(seeds[0]))
        spreads[choice] = Spread(mean, sd, min(len(own) for own in seeds))
    return Entry(**spreads, declared=declared)


def _with_paper(
    grid: Grid, rows: list[TableRow], printed: Sequence[PaperRow], network: str, methods: Sequence[str] | None
) -> tuple[list[TableRow], list[str]]:
    """The paper's rows, each after the first of ours that it stands beside, the rest at the end; names of the rest."""
    ours = [row.method for row in rows]
    after: dict[int, TableRow] = {}
    last: list[TableRow] = []
    for line in printed:
        entries = {task: Entry(Spread(*line.values[task], 1)) for task in grid.tasks}
        whole = set(grid.tasks) == set(line.values)
        mean = Entry() if line.mean is None or not whole else Entry(Spread(line.mean, None, 1))
        row = TableRow(f"paper, {network}", line.name, "", entries, mean, from_paper=True, missing="")
        beside = next((method for method in line.methods if method in ours), None)
        if beside is not None:
            after[ours.index(beside)] = row
        elif methods is None and not set(line.methods) & set(grid.methods):  # else it was not asked for
            last.append(row)
    merged: list[TableRow] = []
    for number, row in enumerate(rows):
        merged += [row, *([after[number]] if number in after else [])]
    return merged + last, [row.method for row in last]
