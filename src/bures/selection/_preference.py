"""Whether another validator should be the default: regrets beside it, task by task, with the noise between targets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd
from scipy import stats

from bures.arrays import check_choice
from bures.selection._study import Columns, epoch_regret, groups, run_regret
from bures.selection._study_rows import end_rows, epoch_rows, judged_runs
from bures.selection._validator import DEFAULT_VALIDATOR, validator_names

__all__ = ["compare_validators", "preferred_validator"]

LEVEL = 0.05  # how often any of the comparisons may take noise for a difference
RELEVANT = 0.1  # percentage points: what tables of accuracies can show
BETTER, WORSE, TIE, SPLIT = "better", "worse", "tie", "split"


def compare_validators(results: Iterable[Mapping[str, Any]], *, current: str = DEFAULT_VALIDATOR) -> pd.DataFrame:
    """Compare the regrets of validators with those of one of them, on the runs that both have scored.

    Parameters
    ----------
    results : iterable of mapping
        As `bures.selection.study` takes them.
    current : str, optional
        The validator that the others are compared with.

    Returns
    -------
    DataFrame
        A row for each other validator, in percentage points and positive where it is better than ``current``:

        - ``epochs``, ``epochs_margin``: how much smaller its regret is in the choice of the epoch of a run, mean over
          tasks of the mean over runs, and half the width of a confidence interval.
        - ``runs``, ``runs_margin``: the same for the choice among the runs of a task.
        - ``tasks``, ``targets``: tasks with runs that both have scored, and how many target domains they have.
        - ``verdict``: "better" where one difference counts for it and none against it, "worse" where it is the other
          way round, "split" where both happen, else "tie". A difference counts that is larger than its margin and at
          least a tenth of a point: with enough runs anything is beyond chance, and not for that worth a change.

    Notes
    -----
    Margins are quantiles of Student's t distribution over target domains, at 0.05 divided by the number of comparisons,
    with a standard error that is robust against dependence within a target. Tasks into one domain choose by scores of
    the same samples: neither they nor the runs of one task are independent evidence. Less than two targets decide
    nothing. A domain has the last part of its name: features of several networks (``a.npz#dslr``, ``b.npz#dslr``) are
    of one domain.

    Examples
    --------
    >>> from bures.selection import compare_validators
    >>> def run(task, *accuracies):
    ...     scores = {"score_im": [1, 2], "score_snd": [2, 1]}
    ...     return {"task": task, "epochs": {"target_accuracy": list(accuracies), **scores}}
    >>> compare_validators([run("a->b", 0.75, 0.5), run("b->a", 0.5, 0.25)])[["epochs", "tasks", "verdict"]]
               epochs  tasks verdict
    validator
    snd          25.0      2  better
    """
    check_choice("current", current, validator_names())
    runs = judged_runs(results)
    epochs, ends = _epoch_regrets(epoch_rows(runs)), end_rows(runs)
    found = sorted({*epochs.columns, *(ends["validator"] if len(ends) else ())})
    if current not in found:
        raise ValueError(f"no result has scores of validator {current!r}; there are scores of {', '.join(found)}")
    others = [name for name in found if name != current]
    rows = {}
    for name in others:
        by_epochs, by_runs = _epoch_differences(epochs, name, current), _run_differences(ends, name, current)
        sides = [_interval(values, len(others)) for values in (by_epochs, by_runs)]
        (epoch, epoch_margin), (run, run_margin) = sides
        tasks = by_epochs.index.union(by_runs.index)
        targets = len({_target(task) for task in tasks})
        rows[name] = (epoch, epoch_margin, run, run_margin, len(tasks), targets, _verdict(sides))
    columns = ["epochs", "epochs_margin", "runs", "runs_margin", "tasks", "targets", "verdict"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("validator")


def preferred_validator(results: Iterable[Mapping[str, Any]], *, current: str = DEFAULT_VALIDATOR) -> str:
    """The validator that the runs speak for: ``current``, unless another is better by more than noise.

    Parameters
    ----------
    results : iterable of mapping
        As `bures.selection.study` takes them.
    current : str, optional
        What is kept where there is no clear winner.

    Returns
    -------
    str
        Of the validators that are better (`compare_validators`) and need no held-out source samples, the one with the
        largest gain over both choices; ``current`` where there is none.

    Examples
    --------
    >>> from bures.selection import preferred_validator
    >>> run = {"task": "a->b", "epochs": {"target_accuracy": [0.75, 0.5], "score_im": [1, 2], "score_snd": [2, 1]}}
    >>> preferred_validator([run]), preferred_validator([run, {**run, "task": "b->a"}])
    ('im', 'snd')
    """
    table = compare_validators(results, current=current)
    better = table[(table["verdict"] == BETTER) & table.index.isin(validator_names(holdout=False))]
    if better.empty:
        return current
    return str((better["epochs"].fillna(0) + better["runs"].fillna(0)).idxmax())


def _epoch_regrets(rows: pd.DataFrame) -> pd.DataFrame:
    """Regret of the choice of an epoch in percent, a row for each run and a column for each validator."""
    if rows.empty:
        return pd.DataFrame(index=pd.MultiIndex.from_arrays([[], []], names=["task", "run"]))
    return 100 * _by_group(rows, ["task", "run", "validator"], epoch_regret).unstack("validator")


def _epoch_differences(regrets: pd.DataFrame, name: str, current: str) -> pd.Series[float]:
    """By task, how much smaller the regret of a validator is, over the epochs of the runs that both have scored."""
    if not {name, current} <= set(regrets.columns):
        return pd.Series(dtype=float)
    return (regrets[current] - regrets[name]).dropna().groupby("task").mean()


def _run_differences(ends: pd.DataFrame, name: str, current: str) -> pd.Series[float]:
    """By task, how much smaller the regret of a validator is, among the runs that both have scored."""
    if ends.empty:
        return pd.Series(dtype=float)
    pair = ends[ends["validator"].isin([name, current])]
    both = pair[pair.groupby("run")["validator"].transform("nunique") == 2]
    both = both[both.groupby("task")["run"].transform("nunique") > 1]
    if both.empty:
        return pd.Series(dtype=float)
    regrets = 100 * _by_group(both, ["task", "validator"], run_regret).unstack("validator")
    return regrets[current] - regrets[name]


def _by_group(rows: pd.DataFrame, keys: list[str], value: Callable[[Columns], float]) -> pd.Series[float]:
    found = {name: value(part) for name, part in groups(rows, keys)}
    return pd.Series(list(found.values()), index=pd.MultiIndex.from_tuples(list(found), names=keys))


def _target(task: str) -> str:
    """The domain that a task leads to, whatever file it was read from; a task that names none stands for itself."""
    return re.split("[#/]", task.rpartition("->")[2])[-1]


def _interval(differences: pd.Series[float], comparisons: int) -> tuple[float, float]:
    """Mean over tasks, and half the width of its confidence interval; infinite for a single target."""
    if differences.empty:
        return math.nan, math.nan
    mean = float(differences.mean())
    by_target = (differences - mean).groupby([_target(task) for task in differences.index]).sum()
    k = len(by_target)
    if k == 1:
        return mean, math.inf
    # Deviations within a target are summed before they are squared: they may all go one way.
    error = math.sqrt(k / (k - 1) * float((by_target**2).sum())) / len(differences)
    return mean, float(stats.t.ppf(1 - LEVEL / (2 * comparisons), k - 1)) * error


def _verdict(sides: Iterable[tuple[float, float]]) -> str:
    """Comparisons with NaN are false: a choice that was never made speaks for nothing."""
    counted = [mean for mean, margin in sides if abs(mean) > margin and abs(mean) >= RELEVANT]
    ahead, behind = any(mean > 0 for mean in counted), any(mean < 0 for mean in counted)
    return SPLIT if ahead and behind else BETTER if ahead else WORSE if behind else TIE
