"""Which differences between methods are more than chance: paired tests over tasks and seeds, and average ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from bures.arrays import check_choice
from bures.experiments._grid import Grid
from bures.experiments._outcomes import outcomes
from bures.experiments._shallow import SHALLOW, SHALLOW_RECIPE
from bures.testing._aggregate import holm

__all__ = [
    "OVER",
    "PairedTest",
    "Ranking",
    "accuracy_matrix",
    "nemenyi",
    "paired_tests",
    "pairs_tasks",
    "rank_methods",
]

ENOUGH_TASKS = 6  # with fewer pairs no signed-rank test can fall below 0.05 on both sides
OVER = ("auto", "tasks", "seeds")


def accuracy_matrix(
    grid: Grid,
    results: Iterable[Mapping[str, Any]],
    *,
    over: str = "auto",
    methods: Sequence[str] | None = None,
    recipes: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Accuracies after the last epoch in percent, a line for each pair of tests and a column for each method.

    Parameters
    ----------
    grid : Grid
        Its tasks make the lines.
    results : iterable of mapping
        As `bures.experiments.read_results` gives them.
    over : {"auto", "tasks", "seeds"}
        Lines are tasks, with the mean over seeds, or single seeds of tasks. "auto" takes tasks where there are six or
        more: seeds of one task are no independent evidence. A shallow method that draws no random numbers is the same
        for every seed.
    methods, recipes : sequence of str, optional
        Only these. The upper bound ``target`` is never among them.

    Returns
    -------
    DataFrame
        NaN where a run is missing. A method that was run with several recipes has a column for each.

    Examples
    --------
    >>> from bures.experiments import accuracy_matrix, load_grid
    >>> run = {"recipe_name": "digits", "changes": {}, "task": "usps->mnist", "seed": 0, "method": "ckb"}
    >>> accuracy_matrix(load_grid("digits"), [{**run, "key": "ckb", "final": {"accuracy": 0.9}}], over="tasks")
    column        ckb
    task
    usps:mnist   90.0
    mnist:usps    NaN
    """
    check_choice("over", over, OVER)
    by_task = {grid.task_key(task): task for task in grid.tasks}
    rows = [
        {**found._asdict(), "task": by_task[found.task]}
        for found in outcomes(results)
        if found.task in by_task
        and found.method != "target"
        and (methods is None or found.method in methods)
        and (recipes is None or found.recipe in recipes)
    ]
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    frame["column"] = _columns(frame)
    if _takes_tasks(over, len(grid.tasks)):
        matrix = frame.pivot_table(index="task", columns="column", values="last", aggfunc="mean", sort=False)
        return matrix.reindex(index=list(grid.tasks))
    seeds = sorted(frame["seed"].unique())
    index = pd.MultiIndex.from_product([grid.tasks, seeds], names=["task", "seed"])
    matrix = frame.pivot_table(index=["task", "seed"], columns="column", values="last", sort=False).reindex(index)
    constant = [name for name, method in SHALLOW.items() if not method.seeded]
    same = (frame["recipe"] == SHALLOW_RECIPE) & frame["method"].isin(constant)
    for column in frame["column"][same].unique():
        matrix[column] = matrix[column].groupby(level="task").transform("mean")
    return matrix


def _columns(frame: pd.DataFrame) -> pd.Series[str]:
    """Names of the rows of a table: the method, with recipe and changes where there are several."""
    kinds = frame[["recipe", "method", "variant"]].drop_duplicates()
    several = set(kinds["method"][kinds["method"].duplicated()])

    def name(row: Any) -> str:
        if row["method"] not in several:
            return str(row["method"])
        parts = ", ".join(part for part in (row["recipe"], row["variant"]) if part)
        return f"{row['method']} ({parts})"

    return frame.apply(name, axis=1)


def _takes_tasks(over: str, n_tasks: int) -> bool:
    return over == "tasks" or (over == "auto" and n_tasks >= ENOUGH_TASKS)


def pairs_tasks(matrix: pd.DataFrame, over: str) -> bool:
    """Whether `paired_tests` takes the tasks of a matrix with seeds of tasks for its pairs, and not every line."""
    return matrix.index.nlevels > 1 and _takes_tasks(over, matrix.index.get_level_values(0).nunique())


class PairedTest(NamedTuple):
    """A method against a reference.

    Attributes
    ----------
    method : str
        The column.
    n : int
        Pairs that both have.
    difference : float
        Mean of reference minus method, in percent.
    wins, ties, losses : int
        Of the reference.
    p : float
        Of Wilcoxon's signed-rank test, two-sided.
    p_holm : float
        The same, adjusted for all tests made.
    """

    method: str
    n: int
    difference: float
    wins: int
    ties: int
    losses: int
    p: float
    p_holm: float


def paired_tests(matrix: pd.DataFrame, reference: str, *, over: str = "auto") -> list[PairedTest]:
    """Wilcoxon's signed-rank test of a reference against every other column, with Holm's correction.

    Parameters
    ----------
    matrix : DataFrame
        As `accuracy_matrix` gives it. With seeds of tasks, ``over="seeds"``, methods are compared on seeds that both
        have: a mean over three seeds and one over two of them differ by the third.
    reference : str
        One of its columns.
    over : {"auto", "tasks", "seeds"}
        What makes a pair of a matrix with seeds of tasks: a task, by the mean over its seeds, or every seed. "auto" as
        in `accuracy_matrix`. Lines of other matrices are a pair each.

    Returns
    -------
    list of PairedTest
        Columns without a pair are left out.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from bures.experiments import paired_tests
    >>> rng = np.random.default_rng(0)
    >>> base = rng.normal(70, 5, size=12)
    >>> matrix = pd.DataFrame({"ckb": base + rng.normal(2, 0.5, 12), "source": base})
    >>> (test,) = paired_tests(matrix, "ckb")
    >>> test.wins, round(test.p, 5)
    (12, 0.00049)
    """
    if reference not in matrix.columns:
        accepted = ", ".join(map(str, matrix.columns)) or "none: nothing was run yet"
        raise ValueError(f"reference={reference!r} is not among the methods that were run; accepted are: {accepted}")
    check_choice("over", over, OVER)
    by_task = pairs_tasks(matrix, over)
    found = []
    for column in matrix.columns:
        both = matrix[[reference, column]].dropna() if column != reference else pd.DataFrame()
        if both.empty:
            continue
        each = both[reference] - both[column]
        if by_task:
            each = each.groupby(level=0, sort=False).mean()
        gaps = np.where(each.abs() < 1e-9, 0.0, each)
        p = 1.0 if not gaps.any() else float(stats.wilcoxon(gaps).pvalue)
        counts = (int((gaps > 0).sum()), int((gaps == 0).sum()), int((gaps < 0).sum()))
        found.append((str(column), len(gaps), float(gaps.mean()), *counts, p))
    adjusted = holm([test[-1] for test in found])
    return [PairedTest(*test, p_holm) for test, p_holm in zip(found, adjusted, strict=True)]


@dataclass(frozen=True)
class Ranking:
    """Average ranks of methods, 1 the best, and how far apart they must be.

    Parameters
    ----------
    ranks : dict
        From methods to average ranks, best first.
    critical_difference : float
        Of Nemenyi's test: ranks that differ by less are not told apart.
    n : int
        Lines that were ranked.
    over : str
        What the lines are, in words.
    p : float
        Of Friedman's test that all methods are alike.
    alpha : float
        Level of Nemenyi's test.
    left_out : tuple of str
        Methods with runs missing.

    Examples
    --------
    >>> from bures.experiments import Ranking
    >>> ranking = Ranking({"a": 1.1, "b": 1.9, "c": 3.0}, 1.0, 4, "tasks", 0.02, 0.05, ())
    >>> ranking.groups()
    [('a', 'b')]
    """

    ranks: dict[str, float]
    critical_difference: float
    n: int
    over: str
    p: float
    alpha: float
    left_out: tuple[str, ...]

    def groups(self) -> list[tuple[str, ...]]:
        """Largest sets of methods that are not told apart, best first; those of one method are left out."""
        names, values = list(self.ranks), list(self.ranks.values())
        found: list[tuple[int, int]] = []
        for start in range(len(names)):
            end = max(other for other in range(len(names)) if values[other] - values[start] < self.critical_difference)
            if end > start and (not found or end > found[-1][1]):
                found.append((start, end))
        return [tuple(names[start : end + 1]) for start, end in found]


def rank_methods(matrix: pd.DataFrame, *, alpha: float = 0.05) -> Ranking:
    """Rank the methods on every line: Friedman's test, and Nemenyi's critical difference of the average ranks.

    Parameters
    ----------
    matrix : DataFrame
        As `accuracy_matrix` gives it. Methods that lack a line are left out, and before that lines that more than half
        of the methods lack.
    alpha : float, optional
        Level of the test.

    Examples
    --------
    >>> import pandas as pd
    >>> from bures.experiments import rank_methods
    >>> matrix = pd.DataFrame({"a": [9.0, 8, 9, 9], "b": [5.0, 5, 5, 9], "c": [1.0, 2, 3, 4]})
    >>> rank_methods(matrix).ranks
    {'a': 1.125, 'b': 1.875, 'c': 3.0}
    """
    lines = matrix[matrix.isna().mean(axis=1) <= 0.5]
    complete = lines.dropna(axis=1)
    if complete.shape[1] < 2 or len(complete) < 2:
        raise ValueError(
            f"{complete.shape[1]} methods are complete on {len(complete)} lines; accepted are at least two of each"
        )
    ranks = complete.round(9).rank(axis=1, ascending=False).mean().sort_values(kind="stable")
    columns = [complete[column].to_numpy() for column in complete.columns]
    if len(columns) > 2 and not all((column == columns[0]).all() for column in columns):
        p = float(stats.friedmanchisquare(*columns).pvalue)
    else:
        p = float("nan")  # the test is for three methods or more
    over = "tasks" if matrix.index.nlevels == 1 else "seeds of tasks"
    left_out = tuple(str(column) for column in matrix.columns if column not in complete.columns)
    k, n = complete.shape[1], len(complete)
    means = {str(name): float(value) for name, value in ranks.items()}
    return Ranking(means, nemenyi(k, n, alpha), n, over, p, alpha, left_out)


def nemenyi(k: int, n: int, alpha: float = 0.05) -> float:
    """Critical difference between average ranks of k methods on n lines.

    Parameters
    ----------
    k, n : int
        Numbers of methods and of lines.
    alpha : float, optional
        Level of Nemenyi's test.

    Returns
    -------
    float
        Ranks that differ by less are not told apart.

    Examples
    --------
    >>> from bures.experiments import nemenyi
    >>> round(nemenyi(4, 14), 2)
    1.25
    """
    return float(stats.studentized_range.ppf(1 - alpha, k, math.inf) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n)))
