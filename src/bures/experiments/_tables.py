"""Tables of accuracies from the results of sweeps: mean and standard deviation over seeds, last epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from bures.experiments._outcomes import method_label, outcomes
from bures.experiments._render import pipes

__all__ = ["accuracy_table", "to_markdown"]

MEAN = "mean"


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
    rows = pd.DataFrame(_flatten(results), columns=["recipe", "task", "method", "accuracy"])
    tasks = list(dict.fromkeys(rows["task"])) if tasks is None else list(tasks)
    groups = rows.groupby(["recipe", "method", "task"], sort=False)["accuracy"]
    # A task without a run has a column as well.
    means, deviations = (part.unstack("task").reindex(columns=tasks) for part in (groups.mean(), groups.std()))
    table = pd.DataFrame(
        {task: [_cell(*pair) for pair in zip(means[task], deviations[task], strict=True)] for task in tasks},
        index=means.index,
    )
    if len(tasks) > 2:
        complete = means[tasks].mean(axis=1, skipna=False)
        table[MEAN] = [_cell(value, float("nan")) for value in complete]
    return table.reindex(list(dict.fromkeys(zip(rows["recipe"], rows["method"], strict=True))))


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
    head = ["recipe", "method", *(_short(str(column)) for column in table.columns)]
    lines = [pipes(head), "| --- | --- |" + " ---: |" * len(table.columns)]
    for (recipe, method), row in zip(table.index, table.itertuples(index=False), strict=True):
        lines.append(pipes([f"`{recipe}`", method, *row]))
    return "\n".join(lines)


def _short(task: str) -> str:
    """A task without the name of the benchmark: office10/amazon->office10/dslr is amazon → dslr."""
    return " → ".join(side.rpartition("/")[2] for side in task.split("->"))


def _flatten(results: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for run in outcomes(results):
        method = method_label(run.method, run.variant)
        yield {"recipe": run.recipe, "task": run.task, "method": method, "accuracy": run.last}


def _cell(mean: float, deviation: float) -> str:
    if pd.isna(mean):
        return "not run"
    return f"{mean:.1f}" if pd.isna(deviation) else f"{mean:.1f} ± {deviation:.1f}"
