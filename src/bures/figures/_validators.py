"""Which validator to trust: what the choices of each lose against an oracle, over the runs of several ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bures.experiments import grid_names
from bures.figures._ledgers import ledger_results
from bures.figures._style import Style, style_named
from bures.selection import comparable_runs, study

__all__ = ["grid_ledgers", "validator_figure", "validator_table"]

Ledgers = Mapping[str, Sequence[Mapping[str, Any]]]

BLIND = "none"  # the row of the last epoch, and of a run that is drawn blindly
PANELS = (("regret", "among the epochs of a run"), ("regret_runs", "among the runs of a task"))


def grid_ledgers(paths: Sequence[str | Path]) -> dict[str, list[dict[str, Any]]]:
    """Results by the name of their ledger.

    Parameters
    ----------
    paths : sequence of paths
        Ledgers; ``FOLDER/*.jsonl`` stands for those of all grids in a folder.

    Returns
    -------
    dict of str to list of dict
        Where a run is in several ledgers, the first has it.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    seen: set[str] = set()
    for path in map(Path, paths):
        known = [path.with_name(f"{name}.jsonl") for name in grid_names()]
        several = [item for item in known if item.is_file()] if path.name == "*.jsonl" else [path]
        if not several:
            raise FileNotFoundError(f"{path.parent} holds no ledger of a grid; make one with: bures bench digits")
        for item in several:
            results = [result for result in ledger_results(item) if result["key"] not in seen]
            seen |= {result["key"] for result in results}
            found.setdefault(item.stem, []).extend(results)
    return found


def validator_table(ledgers: Ledgers) -> pd.DataFrame:
    """The study of validators, ledger by ledger, each on runs that the same validators have scored.

    Parameters
    ----------
    ledgers : mapping
        Results by the name of their ledger, as `bures.experiments.read_results` gives them.

    Returns
    -------
    DataFrame
        A row for each ledger and validator with the columns of `bures.selection.study`, and for each ledger a row
        ``none``: the last epoch, and a run that is drawn blindly. ``attrs["left_out"]`` has, for each ledger, how many
        of its trainings were not scored by these validators.

    Examples
    --------
    >>> from bures.figures import validator_table
    >>> epochs = {"target_accuracy": [0.75, 0.5], "score_im": [1, 2], "score_snd": [2, 1]}
    >>> validator_table({"digits": [{"task": "a->b", "epochs": epochs}]})["regret"].to_dict()
    {('digits', 'snd'): 0.0, ('digits', 'im'): 25.0, ('digits', 'none'): 25.0}
    """
    parts, left_out = {}, {}
    for name, results in ledgers.items():
        runs, validators = comparable_runs(results)
        trainings = [result for result in results if result.get("epochs") and result.get("method") != "target"]
        left_out[name] = len(trainings) - len(runs)
        if runs:
            part = study(runs, validators=validators)
            first = part.iloc[0]
            blind = {"runs": first["runs"], "gain_over_last": 0.0, "regret": first["regret"] + first["gain_over_last"]}
            blind |= {"accuracy": first["accuracy"] - first["gain_over_last"], "regret_runs": first["regret_any_run"]}
            parts[name] = pd.concat([part, pd.DataFrame([blind], index=[BLIND])])
    if not parts:
        raise ValueError(
            "no run of the ledgers has scores of validators; accepted are trainings of bures bench whose recipe names "
            "validators, such as: bures bench digits --recipes digits"
        )
    table = pd.concat(parts, names=["results", "validator"])
    table["runs"] = table["runs"].astype(int)
    table.attrs["left_out"] = left_out
    return table


def validator_figure(table: pd.DataFrame, *, style: str = "light") -> Figure:
    """Regrets of the validators in their two choices, a marker for each ledger.

    Parameters
    ----------
    table : DataFrame
        Of `validator_table`.
    style : {"light", "dark", "print"}, optional
        See `style_named`.

    Returns
    -------
    Figure
        Validators are sorted by what they gain over no validator, the best first; the last row is the last epoch on the
        left, and a run drawn blindly on the right.
    """
    look = style_named(style)
    names = [*_order(table), BLIND]
    ledgers = list(dict.fromkeys(table.index.get_level_values("results")))
    with look.applied():
        figure = Figure(figsize=(8.6, 1.9 + 0.34 * len(names)), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for panel, (column, title) in zip(axes, PANELS, strict=True):
            for number, ledger in enumerate(ledgers):
                _points(panel, table.loc[ledger, column].reindex(names), look, number, len(ledgers))
            panel.set(xlabel="regret in percentage points", title=f"choice {title}")
            panel.axhline(len(names) - 1.5, color=look.faint, lw=0.8)
            panel.grid(axis="x")
            panel.set_axisbelow(True)
            panel.set_xlim(left=0)
        axes[0].set_yticks(range(len(names)), ["last epoch, any run" if name == BLIND else name for name in names])
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        labels = [f"{ledger} ({table.loc[ledger, 'runs'].max()} runs)" for ledger in ledgers]
        handles = [
            axes[0].plot([], [], ls="", marker=look.marker(number), color=look.colour(number), label=label)[0]
            for number, label in enumerate(labels)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))
        figure.suptitle("Accuracy that the choice of a validator loses against the best there is")
    return figure


def _order(table: pd.DataFrame) -> list[str]:
    """By the regret less that of a blind choice: ledgers differ in how much there is to lose."""
    regrets = table[[column for column, _ in PANELS]]
    blind = regrets.xs(BLIND, level="validator").reindex(regrets.index.get_level_values("results"))
    gains = (regrets - blind.to_numpy()).groupby("validator").mean().sum(axis=1)
    return [str(name) for name in gains.sort_values(kind="stable").index if name != BLIND]


def _points(axes: Any, values: pd.Series[float], look: Style, number: int, of: int) -> None:
    """One ledger; its points stand a little above or below those of the others."""
    places = np.arange(len(values)) + (0.5 * (number - (of - 1) / 2) / max(of, 2))
    axes.plot(
        values.to_numpy(float), places, ls="", marker=look.marker(number), color=look.colour(number), clip_on=False
    )
