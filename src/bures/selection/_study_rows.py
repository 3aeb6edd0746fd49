"""What the study of validators reads of finished runs: their scores and accuracies, epoch by epoch and at the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from bures.arrays import describe
from bures.selection._validator import FIRST_VALIDATOR

__all__ = ["comparable_runs", "end_rows", "epoch_rows", "judged_runs"]

Result = Mapping[str, Any]

PREFIX = "score_"
TARGET = "target"  # the method that trains on the target's labels: no run that could be chosen without them


def judged_runs(results: Iterable[Result]) -> list[Result]:
    """The runs whose choice can be judged: with target accuracies, and not trained on the target's labels."""
    runs = list(results)
    for number, result in enumerate(runs):
        epochs = result.get("epochs") or () if isinstance(result, Mapping) else None
        if epochs is None or not (isinstance(epochs, Mapping) or all(isinstance(row, Mapping) for row in epochs)):
            raise TypeError(
                f"results has a {describe(result)} at {number}; accepted are mappings with epochs, "
                "a mapping of columns or a list of rows"
            )
    return [result for result in runs if result.get("method") != TARGET and _accuracies(result)]


def comparable_runs(results: Iterable[Result]) -> tuple[list[Result], list[str]]:
    """Runs that were scored by the same validators, so that these are compared on the same choices.

    Parameters
    ----------
    results : iterable of mapping
        As `study` takes them.

    Returns
    -------
    runs : list
        Those with scores of at least these validators.
    validators : list of str
        The set of two or more validators that most runs have; where no run has two, all that occur.

    Examples
    --------
    >>> from bures.selection import comparable_runs
    >>> older = {"epochs": {"target_accuracy": [0.5], "target_score": [1.0]}}
    >>> newer = {"epochs": {"target_accuracy": [0.5], "score_im": [1.0], "score_snd": [2.0]}}
    >>> runs, validators = comparable_runs([older, older, newer])
    >>> len(runs), validators
    (1, ['im', 'snd'])
    """
    runs = judged_runs(results)
    scored = [frozenset({**_end_scores(run), **_epoch_scores(run)}) for run in runs]
    several = Counter(names for names in scored if len(names) > 1)
    if not several:
        return [run for run, names in zip(runs, scored, strict=True) if names], sorted(frozenset().union(*scored))
    chosen = max(several, key=lambda names: (several[names], len(names), sorted(names)))
    return [run for run, names in zip(runs, scored, strict=True) if chosen <= names], sorted(chosen)


def epoch_rows(runs: Sequence[Result], by: str | None = None) -> pd.DataFrame:
    """A row for each run, epoch and validator, for runs with scores of their epochs.

    Columns: validator, task, run, epoch, score, accuracy, the accuracies of the last and of the best epoch of the
    run, whether scored or not, and ``by``.
    """
    rows: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        common = _common(run, number, by)
        accuracies = _accuracies(run)
        ends = {"last": list(accuracies.values())[-1], "oracle": max(accuracies.values())}
        for name, scores in _epoch_scores(run).items():
            rows += [
                {**common, "validator": name, "epoch": epoch, "score": score, "accuracy": accuracies[epoch], **ends}
                for epoch, score in scores.items()
                if epoch in accuracies
            ]
    return pd.DataFrame(rows)


def end_rows(runs: Sequence[Result], by: str | None = None) -> pd.DataFrame:
    """A row for each run and validator: score and accuracy after the last epoch.

    Columns: validator, task, run, score, accuracy and ``by``.
    """
    rows: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        last, accuracy = list(_accuracies(run).items())[-1]
        scores = {name: values[last] for name, values in _epoch_scores(run).items() if last in values}
        common = _common(run, number, by) | {"accuracy": accuracy}
        for name, score in {**_end_scores(run), **scores}.items():
            rows.append({**common, "validator": name, "score": score})
    return pd.DataFrame(rows)


def _common(run: Result, number: int, by: str | None) -> dict[str, Any]:
    return ({} if by is None else {by: _field(run, by)}) | {"task": run.get("task", ""), "run": number}


def _field(result: Result, by: str) -> str:
    value = result.get(by, (result.get("recipe") or {}).get(by))
    if value is None:
        raise ValueError(f"by={by!r} is no field of every result; for example 'task', 'method' or 'recipe_name'")
    return str(value)


def _accuracies(run: Result) -> dict[int, float]:
    """Target accuracies by the number of the epoch, in order."""
    return _numbers(run, "target_accuracy")


def _epoch_scores(run: Result) -> dict[str, dict[int, float]]:
    """Scores by validator and epoch; epochs of which a validator says nothing are left out."""
    columns = (run.get("epochs") or {}) if isinstance(run.get("epochs"), Mapping) else _names(run)
    found = {name.removeprefix(PREFIX): _numbers(run, name) for name in columns if name.startswith(PREFIX)}
    found.setdefault(_selecting(run), _numbers(run, "target_score"))
    return {name: scores for name, scores in found.items() if scores}


def _end_scores(run: Result) -> dict[str, float]:
    """Scores after the last epoch as the manifest sums them up: ledgers may keep these alone."""
    scores = (run.get("final") or {}).get("scores") or {}
    return {name: float(value) for name, value in scores.items() if _is_number(value)}


def _selecting(run: Result) -> str:
    """The validator whose score is called ``target_score``; runs older than the choice do not name it."""
    return str((run.get("recipe") or {}).get("select", FIRST_VALIDATOR))


def _names(run: Result) -> list[str]:
    return list(dict.fromkeys(name for row in run.get("epochs") or () for name in row))


def _numbers(run: Result, name: str) -> dict[int, float]:
    """A column of the epochs by their number: of rows, as run folders have them, or of columns, as ledgers do."""
    epochs = run.get("epochs") or []
    if isinstance(epochs, Mapping):
        values = enumerate(epochs.get(name) or [], 1)
        return {number: float(value) for number, value in values if _is_number(value)}
    rows = sorted(epochs, key=lambda row: int(row["epoch"]))
    return {int(row["epoch"]): float(row[name]) for row in rows if _is_number(row.get(name))}


def _is_number(value: Any) -> bool:
    """Whether a cell holds a finite number: logs have empty ones and NaN, JSON has null."""
    return value not in (None, "") and math.isfinite(float(value))
