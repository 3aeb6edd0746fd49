"""Which validator to trust: their choices against target accuracy, over finished runs whose targets have labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bures.arrays import describe

__all__ = ["study"]

PREFIX = "score_"


def study(
    results: Iterable[Mapping[str, Any]], *, validators: Sequence[str] | None = None, by: str | None = None
) -> pd.DataFrame:
    """Compare validators by what their choices would have been worth.

    Parameters
    ----------
    results : iterable of mapping
        Finished runs, as `bures.experiments.read_results` gives them, or manifests of run folders: each with
        ``epochs``, rows that have ``target_accuracy`` and the scores. ``score_NAME`` is the column of a validator,
        ``target_score`` that of the one that the run's recipe selects by. Runs of one ``task`` (all, where that is
        missing) are compared with each other. Runs without target accuracies are left out.
    validators : sequence of str, optional
        Whose rows to give; None is all that occur.
    by : str, optional
        A field of the results, such as ``"task"`` or ``"method"``: a row for each of its values and each validator.

    Returns
    -------
    DataFrame
        A row for each validator, the best choice of epochs first, with accuracies in percentage points:

        - ``runs``: runs with at least one score.
        - ``correlation_epochs``: rank correlation (Spearman) of score and accuracy over the epochs of a run, mean over
          runs. A run of which all epochs have one score or one accuracy says nothing and is left out.
        - ``correlation_runs``: the same over the last epochs of the runs of a task, mean over tasks.
        - ``accuracy``: of the epoch with the best score, mean over runs.
        - ``gain_over_last``: this less the accuracy of the last epoch.
        - ``regret``: accuracy of the best epoch, known to an oracle alone, less that of the chosen one.
        - ``regret_runs``: of the runs of a task, accuracy of the best after the last epoch less that of the run with
          the best score there, mean over tasks with at least two runs.

    Examples
    --------
    >>> from bures.selection import study
    >>> epochs = [
    ...     {"epoch": 1, "target_accuracy": 0.5, "score_im": 0.1, "score_snd": 3.0},
    ...     {"epoch": 2, "target_accuracy": 0.9, "score_im": 0.8, "score_snd": 2.0},
    ...     {"epoch": 3, "target_accuracy": 0.8, "score_im": 0.7, "score_snd": 1.0},
    ... ]
    >>> study([{"task": "a->b", "epochs": epochs}])[["correlation_epochs", "gain_over_last", "regret"]].round(1)
               correlation_epochs  gain_over_last  regret
    validator
    im                        1.0            10.0     0.0
    snd                      -0.5           -30.0    40.0
    """
    rows = _epochs(results, by)
    if rows.empty:
        raise ValueError("no result has both target accuracies and scores of its epochs; there is nothing to compare")
    if validators is not None:
        if unknown := sorted(set(validators) - set(rows["validator"])):
            found = ", ".join(sorted(set(rows["validator"])))
            raise ValueError(f"no result has scores of validator {unknown[0]!r}; there are scores of {found}")
        rows = rows[rows["validator"].isin(list(validators))]
    keys = ["validator"] if by is None else [by, "validator"]
    table = pd.DataFrame({key: _summary(part) for key, part in rows.groupby(keys if by else "validator")}).T
    table.index = table.index.set_names(keys)
    table["runs"] = table["runs"].astype(int)
    order = ["regret"] if by is None else [by, "regret"]
    return table.reset_index().sort_values(order, kind="stable").set_index(keys)


def _epochs(results: Iterable[Mapping[str, Any]], by: str | None) -> pd.DataFrame:
    """A row for each run, epoch and validator: task, run, epoch, accuracy and score."""
    rows: list[dict[str, Any]] = []
    for number, result in enumerate(results):
        epochs = result.get("epochs") or () if isinstance(result, Mapping) else None
        if epochs is None or not all(isinstance(row, Mapping) for row in epochs):
            raise TypeError(
                f"results has a {describe(result)} at {number}; accepted are mappings with epochs, a list of mappings"
            )
        group = {} if by is None else {by: _field(result, by)}
        chosen = (result.get("recipe") or {}).get("select", "im")
        for row in epochs:
            accuracy = row.get("target_accuracy")
            if accuracy in (None, ""):
                continue
            scores = {name.removeprefix(PREFIX): value for name, value in row.items() if name.startswith(PREFIX)}
            scores.setdefault(chosen, row.get("target_score"))
            common = {"task": result.get("task", ""), "run": number, "epoch": row["epoch"], "accuracy": float(accuracy)}
            rows += [
                {**group, **common, "validator": name, "score": float(value)}
                for name, value in scores.items()
                if value not in (None, "") and math.isfinite(float(value))
            ]
    return pd.DataFrame(rows)


def _field(result: Mapping[str, Any], by: str) -> str:
    value = result.get(by, (result.get("recipe") or {}).get(by))
    if value is None:
        raise ValueError(f"by={by!r} is no field of every result; for example 'task', 'method' or 'recipe_name'")
    return str(value)


def _summary(part: pd.DataFrame) -> pd.Series[float]:
    """What the choices of one validator are worth."""
    runs = [run.sort_values("epoch") for _, run in part.groupby("run")]
    chosen = np.array([run["accuracy"].iloc[int(run["score"].to_numpy().argmax())] for run in runs])
    last = np.array([run["accuracy"].iloc[-1] for run in runs])
    oracle = np.array([run["accuracy"].max() for run in runs])
    ends = pd.concat([run.iloc[[-1]] for run in runs])
    tasks = [task for _, task in ends.groupby("task") if len(task) > 1]
    lost = [task["accuracy"].max() - task["accuracy"].iloc[int(task["score"].to_numpy().argmax())] for task in tasks]
    return pd.Series(
        {
            "runs": len(runs),
            "correlation_epochs": _mean([_spearman(run) for run in runs]),
            "correlation_runs": _mean([_spearman(task) for task in tasks]),
            "accuracy": 100 * chosen.mean(),
            "gain_over_last": 100 * (chosen - last).mean(),
            "regret": 100 * (oracle - chosen).mean(),
            "regret_runs": 100 * _mean(lost),
        }
    )


def _spearman(rows: pd.DataFrame) -> float:
    """Correlation of the ranks of score and accuracy; NaN where one of them is the same everywhere."""
    ranks = rows[["score", "accuracy"]].rank()
    if (ranks.nunique() < 2).any():
        return math.nan
    return float(np.corrcoef(ranks.to_numpy().T)[0, 1])


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan
