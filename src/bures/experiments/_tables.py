"""Tables of accuracies from the results of sweeps: mean and standard deviation over seeds, last epoch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from bures.experiments._bench_table import NOT_RUN, Spread
from bures.experiments._outcomes import method_label, outcomes
from bures.experiments._render import markdown_lines

__all__ = ["accuracy_table", "to_markdown"]

MEAN = "mean"
MOST_WITHOUT_MEAN = 2  # tasks; the mean of more is shown too


def accuracy_table(results: Iterable[Mapping[str, Any]], tasks: Sequence[str] | None = None) -> pd.DataFrame:
    """Accuracies on the target in percent, as text "mean ± sd", a row for each recipe, its changes, and method.

    Parameters
    ----------
    results : iterable of mapping
        As `bures.experiments.read_results` gives them; those without an accuracy are left out.
    tasks : sequence of str, optional
        The columns, such as ``"usps->mnist"``; None is every task, in order of appearance, and the mean over tasks
        where there are more than two.

    Returns
    -------
    DataFrame
        Index recipe and method. A source-only network has two rows: with its own BatchNorm statistics, and with those
        of the target. A task that was run once has no deviation; the mean over tasks is that of the tasks' means.

    Examples
    --------
    >>> from bures.experiments import accuracy_table, to_markdown
    >>> run = {"recipe_name": "digits", "changes": {}, "task": "usps->mnist", "method": "ckb"}
    >>> runs = [{**run, "key": str(s), "seed": s, "final": {"accuracy": 0.9 + s / 100}} for s in (0, 1)]
    >>> print(to_markdown(accuracy_table(runs)))
    | recipe | method | usps → mnist |
    | --- | --- | ---: |
    | `digits` | ckb | 90.5 ± 0.7 |
    """
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    seen: dict[str, None] = {}
    for run in outcomes(results):
        row = found.setdefault((run.recipe, method_label(run.method, run.variant)), {})
        row.setdefault(run.task, []).append(run.last)
        seen[run.task] = None
    columns = list(seen) if tasks is None else list(tasks)
    cells = [_cells([Spread.of(row[task]) if task in row else None for task in columns]) for row in found.values()]
    if len(columns) > MOST_WITHOUT_MEAN:
        columns.append(MEAN)
    return pd.DataFrame(cells, pd.MultiIndex.from_tuples(list(found), names=["recipe", "method"]), columns)


def _cells(spreads: Sequence[Spread | None]) -> list[str]:
    """What a row shows of the tasks and, of more than two, of their mean."""
    texts = [NOT_RUN if spread is None else str(spread) for spread in spreads]
    if len(spreads) <= MOST_WITHOUT_MEAN:
        return texts
    means = [spread.mean for spread in spreads if spread is not None]
    complete = len(means) == len(spreads)
    return [*texts, str(Spread(statistics.fmean(means), None, 1)) if complete else NOT_RUN]


def to_markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, numbers to the right.

    Parameters
    ----------
    table : DataFrame
        As `accuracy_table` gives it.

    Returns
    -------
    str
        Lines without a last line break.

    Examples
    --------
    >>> from bures.experiments import accuracy_table, to_markdown
    >>> print(to_markdown(accuracy_table([])))
    | recipe | method |
    | --- | --- |
    """
    rows = (
        [f"`{recipe}`", method, *cells]
        for (recipe, method), cells in zip(table.index, table.itertuples(index=False), strict=True)
    )
    return "\n".join(markdown_lines([_short(str(column)) for column in table.columns], rows))


def _short(task: str) -> str:
    """A task without the name of the benchmark: office10/amazon->office10/dslr is amazon → dslr."""
    return " → ".join(side.rpartition("/")[2] for side in task.split("->"))
