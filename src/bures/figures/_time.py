"""What the methods cost: seconds of an epoch, and seconds until a given accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bures.experiments._outcomes import epoch_column
from bures.figures._ledgers import chosen_results, hardware_words, task_words
from bures.figures._style import Style, style_named

__all__ = ["time_figure", "time_table"]

COLUMNS = ("seconds", "lowest", "highest", "to_accuracy", "to_lowest", "to_highest", "reached", "n")


def time_table(
    results: Sequence[Mapping[str, Any]],
    *,
    accuracy: float = 90.0,
    recipe: str | None = None,
    tasks: Sequence[str] = (),
) -> pd.DataFrame:
    """Seconds per epoch and until a given accuracy, for each method of a ledger.

    Parameters
    ----------
    results : sequence of mapping
        As `bures.experiments.read_results` gives them.
    accuracy : float, optional
        In percent, on the target.
    recipe : str, optional
        Of this recipe alone; without it, of the one with most finished trainings.
    tasks : sequence of str, optional
        Only these.

    Returns
    -------
    DataFrame
        A row for each method, the fastest first: median, smallest and largest "seconds" of an epoch, evaluation
        included, over the "n" runs (tasks and seeds); and the same "to_accuracy", the end of the first epoch with
        that accuracy, over the runs that "reached" it. Ledgers that keep no clock of the epochs are taken to have
        epochs of equal length.

    Examples
    --------
    >>> from bures.figures import time_table
    >>> run = {"key": "", "task": "a->b", "recipe_name": "r", "method": "ckb", "seed": 0, "changes": {}}
    >>> run |= {"epochs": {"target_accuracy": [0.5, 0.95]}, "final": {"seconds": 8.0}}
    >>> time_table([run]).loc["ckb", ["seconds", "to_accuracy"]].tolist()
    [4.0, 8.0]
    """
    if not 0 < accuracy <= 100:
        raise ValueError(f"accuracy={accuracy!r} is out of range; accepted are percents above 0 and up to 100")
    # Shallow methods have no epochs; where they are most of a ledger they must not decide what is shown.
    timed = [result for result in results if _clock(result)]
    if not timed:
        raise ValueError(
            "no training says how many seconds its epochs took; make some with: bures bench GRID --methods source,ckb"
        )
    chosen = chosen_results(timed, recipe=recipe, tasks=tasks)
    rows = {}
    for method in dict.fromkeys(result["method"] for result in chosen):
        runs = [result for result in chosen if result["method"] == method]
        epochs = [_clock(run)[-1] / len(_clock(run)) for run in runs]
        reached = [seconds for run in runs if (seconds := _seconds_to(run, accuracy / 100)) is not None]
        rows[method] = (*_spread(epochs), *_spread(reached), len(reached), len(runs))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).sort_values("seconds", kind="stable")
    found = list(dict.fromkeys(result["task"] for result in chosen))
    table.attrs |= {
        "accuracy": float(accuracy),
        "recipe": chosen[0]["recipe_name"],
        "tasks": found,
        "hardware": hardware_words(chosen),
    }
    return table


def time_figure(table: pd.DataFrame, *, style: str = "light") -> Figure:
    """Two panels of bars: an epoch, and the time until the accuracy.

    Parameters
    ----------
    table : DataFrame
        Of `time_table`.
    style : {"light", "dark", "print"}, optional
        See `style_named`.

    Returns
    -------
    Figure
        Bars are medians over runs, lines reach from the smallest to the largest.
    """
    look = style_named(style)
    words = [task_words(task) for task in table.attrs["tasks"]]
    tasks = ", ".join(words) if len(words) <= 3 else f"{len(words)} tasks"
    with look.applied():
        figure = Figure(figsize=(8.6, 1.7 + 0.36 * len(table)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _bars(left, table[["seconds", "lowest", "highest"]], [""] * len(table), look, 0)
        notes = [
            "" if reached == n else f"  ({reached} of {n} runs)" if reached else "not reached"
            for reached, n in zip(table["reached"], table["n"], strict=True)
        ]
        _bars(right, table[["to_accuracy", "to_lowest", "to_highest"]], notes, look, 1)
        left.set_yticks(range(len(table)), list(table.index))
        left.set_ylim(len(table) - 0.4, -0.6)  # no empty lines at the ends
        left.set(xlabel="seconds", title="one epoch, evaluation included")
        right.set(xlabel="seconds", title=f"until {table.attrs['accuracy']:g} % of the target is right")
        few, many = table["n"].min(), table["n"].max()
        runs = f"{few}" if few == many else f"{few} to {many}"
        bars = "one run each" if many == 1 else f"medians of {runs} runs, lines from the fastest to the slowest"
        figure.suptitle(f"Recipe {table.attrs['recipe']}, {tasks}; {table.attrs['hardware']}\n{bars}")
    return figure


def _bars(axes: Any, part: pd.DataFrame, notes: Sequence[str], look: Style, number: int) -> None:
    middle, low, high = (part[name].to_numpy(float) for name in part.columns)
    places = np.arange(len(part))
    filled = {"color": look.colour(number), "edgecolor": look.ink, "lw": 0.6, "hatch": look.hatch(number + 1)}
    axes.barh(places, np.nan_to_num(middle), 0.62, **filled)
    there = ~np.isnan(middle)
    spread = np.stack([middle - low, high - middle])[:, there]
    axes.errorbar(middle[there], places[there], xerr=spread, fmt="none", **look.error_bar)
    label: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
    for place, note in zip(places, notes, strict=True):
        text = f"{three_digits(middle[place])}{note}" if there[place] else note
        axes.annotate(text, (np.nan_to_num(high[place]), place), **label)
    axes.set_xlim(0, 1.4 * np.nanmax(high) if there.any() else 1)
    axes.tick_params(axis="y", length=0)


def three_digits(seconds: float) -> str:
    """Three significant digits, zeros among them, so that numbers below one another compare.

    Examples
    --------
    >>> from bures.figures._time import three_digits
    >>> three_digits(5.0), three_digits(0.24), three_digits(80.61), three_digits(1234.5)
    ('5.00', '0.240', '80.6', '1234')
    """
    return f"{seconds:#.3g}".rstrip(".") if seconds < 1000 else f"{seconds:.0f}"


def _clock(result: Mapping[str, Any]) -> list[float]:
    """Seconds at the end of each epoch."""
    column = epoch_column(result, "seconds")
    if column and None not in column:
        return [float(value) for value in column if value is not None]
    total = (result.get("final") or {}).get("seconds")
    n = len(epoch_column(result, "target_accuracy") or epoch_column(result, "step"))
    return [total * (number + 1) / n for number in range(n)] if total is not None else []


def _seconds_to(result: Mapping[str, Any], accuracy: float) -> float | None:
    curve = zip(epoch_column(result, "target_accuracy"), _clock(result), strict=False)
    return next((seconds for value, seconds in curve if value is not None and value >= accuracy), None)


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return (float(np.median(values)), min(values), max(values)) if values else (np.nan, np.nan, np.nan)
