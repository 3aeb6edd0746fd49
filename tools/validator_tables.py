"""The study of validators as Markdown, from the ledgers in results/ or in the folder named on the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from page_tables import markdown_table

from bures.experiments import load_grid
from bures.figures import grid_ledgers, save_figure, validator_figure, validator_table
from bures.figures._ledgers import task_words
from bures.figures._validators import BLIND
from bures.selection import DEFAULT_VALIDATOR, compare_validators, preferred_validator, study
from bures.selection._study_rows import end_rows, judged_runs

ROOT = Path(__file__).resolve().parent.parent
WORST = 5  # tasks with the most costly choices


@cache
def ledgers(folder: Path = ROOT / "results") -> dict[str, list[dict[str, Any]]]:
    """The ledgers of all grids, each run once."""
    return grid_ledgers([folder / "*.jsonl"])


def every_run(folder: Path) -> list[dict[str, Any]]:
    return [result for results in ledgers(folder).values() for result in results]


def study_table(folder: Path = ROOT / "results") -> str:
    """What each validator's choices are worth, ledger by ledger, and which runs could not take part."""
    table = validator_table(ledgers(folder))
    heads = ["results", "validator", "runs", "correlation, epochs", "correlation, runs", "regret, epochs"]
    heads += ["against the last", "regret, runs"]
    lines = []
    for (name, validator), row in table.iterrows():
        shown = "last epoch, any run" if validator == BLIND else f"`{validator}`"
        cells = [load_grid(name).title, shown, int(row["runs"])]
        cells += [_number(row[column], "+.2f") for column in ("correlation_epochs", "correlation_runs")]
        cells += [
            _number(row["regret"], ".2f"),
            _number(row["gain_over_last"], "+.2f"),
            _number(row["regret_runs"], ".1f"),
        ]
        lines.append(cells)
    return "\n\n".join([markdown_table(heads, lines, "llrrrrrr"), *_left_out(table)])


def _left_out(table: Any) -> Iterable[str]:
    """Sentences on runs that have no scores of the validators compared."""
    for name, count in table.attrs["left_out"].items():
        if name not in table.index:
            yield f"{load_grid(name).title}: no training of this ledger has scores of validators yet."
            continue
        validators = [f"`{validator}`" for validator in sorted(table.loc[name].index) if validator != BLIND]
        if len(validators) == 1:
            yield (
                f"{load_grid(name).title}: its runs are older than the log of several validators and have scores of "
                f"{validators[0]} alone, which there is nothing to compare with."
            )
        if count:
            title = load_grid(name).title
            yield f"{title}: runs left out because they lack scores of some of these validators: {count}."


def verdict_table(folder: Path = ROOT / "results") -> str:
    """The other validators beside the default, and whether it stands."""
    results = every_run(folder)
    if DEFAULT_VALIDATOR not in _scored(results):
        return f"No run has scores of the default, `{DEFAULT_VALIDATOR}`, yet: nothing can be compared with it."
    table = compare_validators(results)
    if table.empty:
        return f"No run has scores of a second validator yet: `{DEFAULT_VALIDATOR}` stands unchallenged, not confirmed."
    head = ["against " + f"`{DEFAULT_VALIDATOR}`", "tasks", "targets", "gain, epochs", "gain, runs", "verdict"]
    lines = []
    for name, row in table.iterrows():
        gains = [_interval(row[choice], row[f"{choice}_margin"]) for choice in ("epochs", "runs")]
        lines.append([f"`{name}`", row["tasks"], row["targets"], *gains, row["verdict"]])
    preferred = preferred_validator(results)
    stands = preferred == DEFAULT_VALIDATOR
    end = "The default stands." if stands else f"The runs speak for `{preferred}`, which is to become the default."
    return "\n\n".join([markdown_table(head, lines, "lrrrrl"), end])


def failure_table(folder: Path = ROOT / "results") -> str:
    """Methods whose last epoch is better than the one the default chooses, and tasks where it takes a bad run."""
    heads = ("results", "method", "runs", "against the last", "correlation, epochs")
    lines = []
    for name, results in ledgers(folder).items():
        if not any(validator == DEFAULT_VALIDATOR for validator in _scored(results)):
            continue
        table = study(results, validators=[DEFAULT_VALIDATOR], by="method").reset_index()
        for _, row in table[table["gain_over_last"] <= -0.05].sort_values("gain_over_last").iterrows():
            numbers = [_number(row["gain_over_last"], "+.1f"), _number(row["correlation_epochs"], "+.2f")]
            lines.append([load_grid(name).title, row["method"], int(row["runs"]), *numbers])
    first = markdown_table(heads, lines, "llrrr") if lines else "With no method is its choice behind the last epoch."
    return "\n\n".join([first, _worst_runs(folder)])


def _worst_runs(folder: Path) -> str:
    """Tasks where the run with the best score is far from the best run."""
    found = []
    for name, results in ledgers(folder).items():
        runs = judged_runs(results)
        rows = end_rows(runs)
        if rows.empty:
            continue
        for task, part in rows[rows["validator"] == DEFAULT_VALIDATOR].groupby("task"):
            best, chosen = part.loc[part["accuracy"].idxmax()], part.loc[part["score"].idxmax()]
            loss = 100 * (best["accuracy"] - chosen["accuracy"])
            words = [f"{runs[int(row['run'])]['method']} ({100 * row['accuracy']:.1f})" for row in (chosen, best)]
            found.append((loss, [load_grid(name).title, task_words(str(task)), *words]))
    worst = [line for loss, line in sorted(found, key=lambda item: -item[0])[:WORST] if loss >= 1]
    if not worst:
        return "In no task is the run that it prefers more than a point behind the best."
    return markdown_table(("results", "task", "its choice of a run", "the best run"), worst, "llll")


def _scored(results: Sequence[dict[str, Any]]) -> set[str]:
    rows = end_rows(judged_runs(results))
    return set() if rows.empty else set(rows["validator"])


def default_validator() -> str:
    return f"`{DEFAULT_VALIDATOR}`"


def draw(stem: Path, folder: Path = ROOT / "results") -> None:
    """The figure for white and for dark pages."""
    table = validator_table(ledgers(folder))
    for style, suffix in (("light", ""), ("dark", "-dark")):
        save_figure(validator_figure(table, style=style), f"{stem}{suffix}", ["svg"], style=style)


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def _interval(value: float, margin: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:+.2f}" + (" (one target)" if math.isinf(margin) else f" ± {margin:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "results")
    chosen = parser.parse_args().folder
    print("\n\n".join([study_table(chosen), verdict_table(chosen), failure_table(chosen)]))
