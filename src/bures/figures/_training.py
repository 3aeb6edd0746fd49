"""A training as it went: accuracy on the target against the epoch, and the distances on an axis of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bures.experiments._outcomes import epoch_column
from bures.figures._ledgers import chosen_results, folder_result, ledger_results, on_tasks, task_words
from bures.figures._style import Style, style_named

__all__ = ["run_results", "training_curves", "training_figure"]

CURVES = ("accuracy", "ckb", "ckw")


def training_curves(results: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Means over seeds of what the epochs of runs were like.

    Parameters
    ----------
    results : sequence of mapping
        Runs of one method and one recipe, as `bures.experiments.read_results` gives them, or as
        `bures.figures.run_results` makes them of a run folder.

    Returns
    -------
    dict of str to DataFrame
        For each task a row for each epoch; columns are pairs of "accuracy" (percent, of the target), "ckb" or "ckw"
        (squared distances of training batches, without their weights) and "mean", "lowest" or "highest" over seeds.
        CKW is the sum of CKB and of the distance of the class means, so that runs without that term have no such
        column.

    Examples
    --------
    >>> from bures.figures import training_curves
    >>> epochs = {"target_accuracy": [0.5, 0.75], "ckb": [0.5, 0.25], "means": [0.5, 0.125]}
    >>> run = {"task": "a->b", "recipe_name": "r", "method": "ckw", "seed": 0, "epochs": epochs}
    >>> training_curves([run])["a->b"]["ckw", "mean"].tolist()
    [1.0, 0.375]
    """
    kinds = {(result["recipe_name"], result["method"]) for result in results}
    if len(kinds) != 1:
        raise ValueError(f"results are of {len(kinds)} pairs of recipe and method; accepted are runs of one")
    curves = {}
    for task in dict.fromkeys(result["task"] for result in results):
        runs = [_columns(result) for result in results if result["task"] == task]
        parts = {}
        for name in CURVES:
            having = [run[name] for run in runs if name in run]
            if having and len(having) == len(runs):
                length = min(map(len, having))
                stack = np.array([curve[:length] for curve in having], dtype=float)
                parts[name] = pd.DataFrame(
                    {"mean": stack.mean(axis=0), "lowest": stack.min(axis=0), "highest": stack.max(axis=0)}
                )
        if "accuracy" not in parts:
            raise ValueError(
                f"the runs of {task_words(task)} have no accuracies of their epochs; the target needs labels"
            )
        if "ckb" not in parts:
            recipe, method = next(iter(kinds))
            source, target = task.split("->")
            raise ValueError(
                f"the runs of {task_words(task)} keep no distance of their epochs: the method needs a term of CKB, and "
                f"older ledgers leave it out; give a run folder instead, made with: bures adapt --source {source} "
                f"--target {target} --recipe {recipe} --method {method}"
            )
        table = pd.concat(parts, axis=1)
        table.index = pd.RangeIndex(1, len(table) + 1, name="epoch")
        table.attrs |= {"recipe": next(iter(kinds))[0], "method": next(iter(kinds))[1], "n": len(runs)}
        curves[task] = table
    return curves


def run_results(
    path: str | Path, *, method: str = "ckw", recipe: str | None = None, tasks: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Runs whose training can be drawn, from a ledger or a run folder.

    Parameters
    ----------
    path : path
        A ledger (.jsonl) or a folder of `bures adapt`.
    method, recipe, tasks : optional
        Which runs of a ledger; a run folder holds one.
    """
    path = Path(path)
    if path.is_dir():
        return [folder_result(path)]
    results = [result for result in ledger_results(path) if result["method"] == method]
    if not results:
        raise ValueError(f"{path} holds no run of {method!r}; make it with: bures bench {path.stem} --methods {method}")
    return on_tasks(chosen_results(results, recipe=recipe), tasks)


def training_figure(curves: Mapping[str, pd.DataFrame], *, style: str = "light") -> Figure:
    """Accuracy and distances against the epoch, a panel for each task.

    Parameters
    ----------
    curves : mapping of str to DataFrame
        Of `training_curves`.
    style : {"light", "dark", "print"}, optional
        See `style_named`.

    Returns
    -------
    Figure
        Lines are means over seeds; bands reach from the smallest to the largest.
    """
    look = style_named(style)
    with look.applied():
        columns = min(len(curves), 3)
        rows = -(-len(curves) // columns)
        figure = Figure(figsize=(max(6.0, 4.5 * columns), 0.9 + 3.0 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        handles: dict[str, Any] = {}
        for axes, (task, table) in zip(grid, curves.items(), strict=False):
            handles |= _panel(axes, table, look)
            axes.set_title(task_words(task))
        for axes in grid[len(curves) :]:
            axes.set_axis_off()
        first = next(iter(curves.values())).attrs
        seeds = "one seed" if first["n"] == 1 else f"mean and range of {first['n']} seeds"
        figure.suptitle(f"{first['method']}, recipe {first['recipe']}: {seeds}")
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)
    return figure


def _panel(axes: Any, table: pd.DataFrame, look: Style) -> dict[str, Any]:
    second = axes.twinx()
    names = {
        "accuracy": "accuracy on the target (left)",
        "ckb": "CKB of training batches (right)",
        "ckw": "CKW = CKB + class means (right)",
    }
    handles = {}
    for number, name in enumerate(names):
        if name not in table.columns.get_level_values(0):
            continue
        part, side = table[name], axes if name == "accuracy" else second
        shown = {"color": look.colour(number), "marker": look.marker(number), "ls": look.dash(number)}
        every = max(1, len(part) // 12)
        (handles[names[name]],) = side.plot(part.index, part["mean"], markevery=every, **shown)
        side.fill_between(part.index, part["lowest"], part["highest"], color=look.colour(number), alpha=0.18, lw=0)
    axes.set(xlabel="epoch", ylabel="accuracy (%)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    second.set_ylabel("squared distance")
    second.set_ylim(bottom=0)
    second.spines["right"].set_visible(True)
    axes.set_zorder(second.get_zorder() + 1)  # the accuracy is above the distances
    axes.patch.set_visible(False)
    return handles


def _columns(result: Mapping[str, Any]) -> dict[str, list[float]]:
    found = {}
    accuracy, ckb, means = (epoch_column(result, name) for name in ("target_accuracy", "ckb", "means"))
    if accuracy and None not in accuracy:
        found["accuracy"] = [100 * value for value in accuracy if value is not None]
    if ckb:  # a term that starts late has no value before: a gap in the line
        found["ckb"] = [np.nan if value is None else value for value in ckb]
        if means:
            found["ckw"] = [
                np.nan if one is None or other is None else one + other for one, other in zip(ckb, means, strict=True)
            ]
    return found
