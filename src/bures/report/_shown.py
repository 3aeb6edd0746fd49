"""The runs of a page: what each is called there, how it is drawn, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bures.report._runs import RunRecord, baseline_of, sibling_baseline
from bures.report._svg import COLOURS

__all__ = ["Shown", "name_runs"]


@dataclass(frozen=True)
class Shown:
    """A run of the page: its record, what it is called there, its style, and what it is compared with."""

    record: RunRecord
    label: str
    style: int
    baseline: RunRecord | None


def name_runs(records: Sequence[RunRecord]) -> list[Shown]:
    """Names that differ: the method, with the seed or the folder where that is not enough."""
    ways: list[Callable[[RunRecord], str]] = [
        lambda run: run.method,
        lambda run: f"{run.method}, seed {run.manifest.get('seed')}",
        lambda run: f"{run.method} in {run.path.resolve().parent.name}",
        lambda run: f"{run.method} in {run.path.resolve().name}",
    ]
    labels = [str(record.path) for record in records]
    for way in ways:
        names = [way(record) for record in records]
        if len(set(names)) == len(names):
            labels = names
            break
    shown, colour = [], 0
    for record, label in zip(records, labels, strict=True):
        style = 0
        if record.method != "source":
            style, colour = 1 + colour % COLOURS, colour + 1
        baseline = baseline_of(record, records) or sibling_baseline(record)
        shown.append(Shown(record, label, style, baseline))
    return shown
