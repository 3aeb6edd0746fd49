"""What each part of the objective is worth: bars with error bars over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from bures.figures._ledgers import accuracies, chosen_results, task_words
from bures.figures._style import Style, style_named

__all__ = ["ABLATION", "ablation_figure", "ablation_table"]

# Methods and what the paper, or we, call the row.
ABLATION: Mapping[str, str] = MappingProxyType(
    {
        "ckb": "CKB",
        "bures": "Bures",
        "kernel-bures": "kernel Bures",
        "entropy": "without CKB",
        "ckb-no-entropy": "without entropy",
        "class-means": "class means only",
        "ckw": "CKW",
    }
)
# Colours and hatchings say what kind of row it is.
KINDS = {
    "CKB and CKW": ("ckb", "ckw"),
    "another distance in place of CKB": ("bures", "kernel-bures", "class-means"),
    "a term left out": ("entropy", "ckb-no-entropy"),
}
MEAN = "mean"
LABEL = 0.07  # height of a number above a bar, as a share of the axis
PANELS = 4  # tasks that are shown one by one; of more, the mean alone


def ablation_table(
    results: Sequence[Mapping[str, Any]], *, recipe: str | None = None, tasks: Sequence[str] = ()
) -> pd.DataFrame:
    """Accuracies of CKB and of what is left or put in its place.

    Parameters
    ----------
    results : sequence of mapping
        As `bures.experiments.read_results` gives them.
    recipe : str, optional
        Of this recipe alone; without it, of the one with most finished runs.
    tasks : sequence of str, optional
        Only these, such as ``usps:mnist``.

    Returns
    -------
    DataFrame
        A row for each method of the ablation, and ``source`` where it was run; columns are pairs of a task, or
        ``mean`` over all tasks, and "mean", "std" (over seeds, NaN for one) and "n" (seeds). A method that was not
        run has NaN and n = 0; a mean over tasks counts the seeds that all tasks have.

    Examples
    --------
    >>> from bures.figures import ablation_table
    >>> def run(method, seed, accuracy):
    ...     common = {"key": "", "task": "a->b", "recipe_name": "r", "changes": {}}
    ...     return {**common, "method": method, "seed": seed, "final": {"accuracy": accuracy}}
    >>> table = ablation_table([run("ckb", 0, 0.75), run("ckb", 1, 0.25)])
    >>> float(table.loc["ckb", ("a->b", "mean")]), int(table.loc["bures", ("a->b", "n")])
    (50.0, 0)
    """
    chosen = chosen_results(results, recipe=recipe, tasks=tasks)
    found = accuracies([result for result in chosen if result["method"] in {*ABLATION, "source"}])
    if not set(found["method"]) & set(ABLATION):
        name = chosen[0]["recipe_name"]
        raise ValueError(
            f"no method of the ablation was run with the recipe {name!r}; accepted are {', '.join(ABLATION)}"
        )
    # Means over tasks can be compared where each method has all of them.
    names = list(dict.fromkeys(result["task"] for result in chosen))
    by_seed = found.pivot_table(index=["method", "seed"], columns="task", values="accuracy").reindex(columns=names)
    by_seed[MEAN] = by_seed.mean(axis=1, skipna=False)
    rows = [*ABLATION, *(["source"] if "source" in set(found["method"]) else [])]
    parts = {
        name: by_seed[name].groupby("method").agg(["mean", "std", "count"]).reindex(rows) for name in by_seed.columns
    }
    table = pd.concat({name: part.rename(columns={"count": "n"}) for name, part in parts.items()}, axis=1)
    for name in parts:
        table[name, "n"] = table[name, "n"].fillna(0).astype(int)
    table.attrs["recipe"] = chosen[0]["recipe_name"]
    return table


def ablation_figure(table: pd.DataFrame, *, style: str = "light") -> Figure:
    """Bars of an ablation, a panel for each task or, of more than four tasks, one for their mean.

    Parameters
    ----------
    table : DataFrame
        Of `ablation_table`.
    style : {"light", "dark", "print"}, optional
        See `style_named`.

    Returns
    -------
    Figure
        Heights are means and error bars standard deviations over seeds. The dashed line, where it is
        not below the axis, is a network trained on the source alone. Methods that were not run keep their place.
    """
    look = style_named(style)
    names = list(dict.fromkeys(table.columns.get_level_values(0)))
    tasks = [name for name in names if name != MEAN]
    shown = [MEAN] if len(tasks) > PANELS else tasks if len(tasks) == 1 else [*tasks, MEAN]
    with look.applied():
        figure = Figure(figsize=(max(6.4, 3.1 * len(shown)), 4.5), layout="constrained")
        grid = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
        low, high = _limits(table, shown)
        for axes, name in zip(grid, shown, strict=True):
            _panel(axes, table[name], look, low, high)
            title = f"mean over {len(tasks)} tasks" if name == MEAN else task_words(str(name))
            source = table.loc["source", (name, "mean")] if "source" in table.index else np.nan
            axes.set_title(title if np.isnan(source) else f"{title}\nsource only: {source:.1f}")
            axes.set_ylim(low, high)
        grid[0].set_ylabel("accuracy on the target (%)" + (f"\naxis begins at {low:g}" if low > 0 else ""))
        between = "; " if len(shown) > 2 else "\n"  # one panel is too narrow for a line
        signs = "error bars: standard deviation over seeds; dashed: source only"
        figure.suptitle(f"Recipe {table.attrs.get('recipe', '')}{between}{signs}")
        handles = [Patch(label=label, **_filled(names[0], look)) for label, names in KINDS.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _panel(axes: Any, part: pd.DataFrame, look: Style, low: float, high: float) -> None:
    rows = [name for name in part.index if name != "source"]
    source = float(part["mean"].get("source", np.nan))
    for number, name in enumerate(rows):
        mean, std, n = part.loc[name, ["mean", "std", "n"]]
        if n == 0 or np.isnan(mean):
            axes.text(number, low, " not run", rotation=90, ha="center", va="bottom", color=look.ink, alpha=0.7)
            continue
        axes.bar(number, mean - low, bottom=low, width=0.72, **_filled(str(name), look))
        error = 0.0 if np.isnan(std) else std
        if error:
            axes.errorbar(number, mean, yerr=error, fmt="none", **look.error_bar)
        label: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        around = [withStroke(linewidth=3, foreground=look.paper)]
        top = mean + error
        crossed = top <= source <= top + LABEL * (high - low)  # the dashed line would run through the number
        axes.annotate(f"{mean:.1f}", (number, source if crossed else top), path_effects=around, **label)
    if source >= low:
        axes.axhline(source, color=look.ink, ls="--", lw=1, zorder=0.5)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    counts = part.loc[rows, "n"].astype(int)
    unequal = counts[counts > 0].nunique() > 1  # otherwise no bar needs to say it
    labels = [
        ABLATION[str(name)] + (f" ({n} seed{'s' if n > 1 else ''})" if unequal and n else "")
        for name, n in counts.items()
    ]
    axes.set_xticks(range(len(rows)), labels, rotation=40, ha="right")
    axes.tick_params(axis="x", length=0)


def _filled(name: str, look: Style) -> dict[str, Any]:
    number = next(number for number, names in enumerate(KINDS.values()) if name in names)
    return {"facecolor": look.colour(number), "edgecolor": look.ink, "linewidth": 0.6, "hatch": look.hatch(number)}


def _limits(table: pd.DataFrame, shown: Sequence[str]) -> tuple[float, float]:
    """Where the axis begins and ends: small differences must be seen, and where it begins is written beside it."""
    rows = [name for name in table.index if name != "source"]
    means = np.concatenate([table.loc[rows, (name, "mean")].to_numpy(float) for name in shown])
    spreads = np.concatenate([table.loc[rows, (name, "std")].fillna(0).to_numpy(float) for name in shown])
    lowest, highest = np.nanmin(means - spreads), np.nanmax(means + spreads)
    margin = max(0.6 * (highest - lowest), 1.0)
    low = max(0.0, np.floor(lowest - margin))
    return float(low), float(highest + 0.14 * (highest - low))
