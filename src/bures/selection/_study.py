"""Which validator to trust: their choices against target accuracy, over finished runs whose targets have labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from bures.selection._study_rows import end_rows, epoch_rows, judged_runs

__all__ = ["Columns", "epoch_regret", "groups", "run_regret", "study"]

Columns = Mapping[str, NDArray[Any]]


def study(
    results: Iterable[Mapping[str, Any]], *, validators: Sequence[str] | None = None, by: str | None = None
) -> pd.DataFrame:
    """Compare validators by what their choices would have been worth.

    Parameters
    ----------
    results : iterable of mapping
        Finished runs, as `bures.experiments.read_results` gives them, or manifests of run folders: each with
        ``epochs``, rows or columns that have ``target_accuracy`` and the scores. ``score_NAME`` is the column of a
        validator, ``target_score`` that of the one that the run's recipe selects by; scores after the last epoch alone
        may stand in ``final``. Runs of one ``task`` (all, where that is missing) are compared with each other. Left
        out are runs without target accuracies, and those of the method ``target``, which trains on the labels.
    validators : sequence of str, optional
        Whose rows to give; None is all that occur. Each is judged by the runs that have its scores: see
        `comparable_runs` for runs on which validators can be compared.
    by : str, optional
        A field of the results, such as ``"task"`` or ``"method"``: a row for each of its values and each validator.

    Returns
    -------
    DataFrame
        A row for each validator, the best choice of epochs first, with accuracies in percentage points:

        - ``runs``: runs with scores of their epochs.
        - ``correlation_epochs``: rank correlation (Spearman) of score and accuracy over the epochs of a run, mean over
          runs. A run of which all epochs have one score or one accuracy says nothing and is left out.
        - ``correlation_runs``: the same over the last epochs of the runs of a task, mean over tasks.
        - ``accuracy``: of the epoch with the best score, mean over runs.
        - ``gain_over_last``: this less the accuracy of the last epoch.
        - ``regret``: accuracy of the best epoch, known to an oracle alone, less that of the chosen one.
        - ``regret_runs``: of the runs of a task, accuracy of the best after the last epoch less that of the run with
          the best score there, mean over tasks with at least two runs.
        - ``regret_any_run``: the same for a run that is drawn blindly.

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
    runs = judged_runs(results)
    keys = ["validator"] if by is None else [by, "validator"]
    epochs, ends = _parts(epoch_rows(runs, by), keys), _parts(end_rows(runs, by), keys)
    names = list(dict.fromkeys([*epochs, *ends]))
    if not names:
        raise ValueError("no result has both target accuracies and scores of its epochs; there is nothing to compare")
    if validators is not None:
        found = sorted({name[-1] for name in names})
        if unknown := sorted(set(validators) - set(found)):
            raise ValueError(
                f"no result has scores of validator {unknown[0]!r}; there are scores of {', '.join(found)}"
            )
        names = [name for name in names if name[-1] in validators]
    rows = [{**_choice_of_epochs(epochs.get(name)), **_choice_of_runs(ends.get(name))} for name in names]
    table = pd.DataFrame(rows, index=pd.MultiIndex.from_tuples(names, names=keys)).reset_index()
    order = ["regret", "validator"] if by is None else [by, "regret", "validator"]
    return table.sort_values(order, kind="stable").set_index(keys)


def _parts(rows: pd.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], pd.DataFrame]:
    if rows.empty:
        return {}
    return {tuple(part[list(keys)].iloc[0]): part for _, part in rows.groupby(list(keys))}


def _choice_of_epochs(rows: pd.DataFrame | None) -> dict[str, float]:
    """What the choices of one validator among the epochs of each run are worth."""
    if rows is None:
        return dict.fromkeys(("correlation_epochs", "accuracy", "gain_over_last", "regret"), math.nan) | {"runs": 0}
    runs = [run for _, run in groups(rows, "run")]
    chosen, last, oracle = (100 * np.array(values) for values in zip(*map(_chosen, runs), strict=True))
    return {
        "runs": len(runs),
        "correlation_epochs": _mean([_spearman(run) for run in runs]),
        "accuracy": float(chosen.mean()),
        "gain_over_last": float((chosen - last).mean()),
        "regret": float((oracle - chosen).mean()),
    }


def _choice_of_runs(rows: pd.DataFrame | None) -> dict[str, float]:
    """What the choice of one validator among the runs of each task is worth."""
    tasks = [] if rows is None else [task for _, task in groups(rows, "task") if len(task["run"]) > 1]
    return {
        "correlation_runs": _mean([_spearman(task) for task in tasks]),
        "regret_runs": 100 * _mean([run_regret(task) for task in tasks]),
        "regret_any_run": 100 * _mean([task["accuracy"].max() - task["accuracy"].mean() for task in tasks]),
    }


def groups(rows: pd.DataFrame, keys: str | list[str]) -> Iterator[tuple[Any, Columns]]:
    """The columns of each group of rows, with its name and sorted by it; frames of a few rows are slow."""
    columns = {str(name): values.to_numpy() for name, values in rows.items()}
    places: dict[Any, Any] = dict(rows.groupby(keys).indices)
    for name in sorted(places):
        yield name, {column: values[places[name]] for column, values in columns.items()}


def _chosen(run: Columns) -> tuple[float, float, float]:
    """Accuracy of the epoch with the best score (the first of equals, as training keeps it), the last and the best."""
    order = np.argsort(run["epoch"], kind="stable")
    return run["accuracy"][order[run["score"][order].argmax()]], run["last"][0], run["oracle"][0]


def epoch_regret(run: Columns) -> float:
    """What a choice among the epochs of a run loses against the best of them."""
    chosen, _, oracle = _chosen(run)
    return oracle - chosen


def run_regret(task: Columns) -> float:
    """What a choice among the runs of a task loses against the best of them."""
    return float(task["accuracy"].max() - task["accuracy"][task["score"].argmax()])


def _spearman(rows: Columns) -> float:
    """Correlation of the ranks of score and accuracy; NaN where one of them is the same everywhere."""
    ranks = [rankdata(rows[name]) for name in ("score", "accuracy")]
    if any((rank == rank[0]).all() for rank in ranks):
        return math.nan
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan
