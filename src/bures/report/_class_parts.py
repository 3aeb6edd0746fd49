"""The part of the page on classes: a table of accuracies and gains, and confusion matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bures.report import _words as words
from bures.report._classes import ClassRow, class_rows, confused, matrix_picture
from bures.report._shown import Shown

__all__ = ["class_part", "confusion_part", "losses"]

TABLE = 25  # classes up to which a confusion matrix shows its numbers
LISTED = 40  # classes up to which all of them are listed at once
EXTREMES = 12  # classes of each end otherwise
ALL_LISTED = 1000  # classes that can be unfolded
CONFUSIONS = 10
SHORT = 3  # letters of a name up to which it stands upright above its column


def class_part(shown: Sequence[Shown]) -> dict[str, Any] | None:
    names = next((run.record.class_names for run in shown if run.record.confusion is not None), None)
    if not names:
        return None
    alike = [run for run in shown if run.record.class_names == names and run.record.confusion is not None]
    rows = class_rows([run.record for run in alike], [run.baseline for run in alike])
    focus = len(alike) - 1
    compared = any(gain is not None for row in rows for gain in row.gain)
    if compared:
        focus = max(i for i in range(len(alike)) if any(row.gain[i] is not None for row in rows))
    first, rest = _ordered(rows, focus, compared)
    return {
        "labels": [(run.label, run.style) for run in alike],
        "compared": [any(row.gain[i] is not None for row in rows) for i in range(len(alike))],
        "focus": alike[focus].label,
        "first": [_class_cells(row) for row in first],
        "rest": [_class_cells(row) for row in rest[:ALL_LISTED]],
        "left_out": max(len(rest) - ALL_LISTED, 0),
        "n": len(rows),
        "left_over": [run.label for run in shown if run.record.confusion is not None and run not in alike],
    }


def _ordered(rows: list[ClassRow], focus: int, compared: bool) -> tuple[list[ClassRow], list[ClassRow]]:
    """The classes to be seen at once, by gain or else by accuracy, and the others."""

    def key(row: ClassRow) -> float:
        value = row.gain[focus] if compared else row.accuracy[focus]
        return math.inf if value is None else value

    ordered = sorted(rows, key=key)
    if len(ordered) <= LISTED:
        return ordered, []
    with_value = [row for row in ordered if key(row) < math.inf]
    first = with_value[:EXTREMES] + (with_value[-EXTREMES:] if len(with_value) > EXTREMES else [])
    chosen = set(map(id, first))
    return first, [row for row in ordered if id(row) not in chosen]


def _class_cells(row: ClassRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "samples": words.count(row.samples),
        "cells": [
            {
                "accuracy": words.percent(accuracy),
                "share": accuracy or 0.0,
                "gain": None if gain is None else words.points(gain),
                "size": 0.0 if gain is None else round(gain, 4),
            }
            for accuracy, gain in zip(row.accuracy, row.gain, strict=True)
        ],
    }


def confusion_part(run: Shown) -> dict[str, Any]:
    matrix, names = run.record.confusion, run.record.class_names
    assert matrix is not None
    small = len(names) <= TABLE
    totals = matrix.sum(axis=1)
    table = [
        {
            "name": name,
            "cells": [
                {"n": int(n), "share": round(float(n / totals[i]), 3) if totals[i] else 0.0, "right": i == j}
                for j, n in enumerate(matrix[i])
            ],
        }
        for i, name in enumerate(names if small else ())
    ]
    return {
        "label": run.label,
        "style": run.style,
        "names": names if small else (),
        "long_names": any(len(name) > SHORT for name in names),
        "table": table,
        "picture": None if small else matrix_picture(matrix),
        "n": len(names),
        "confused": [
            (c.true, c.predicted, c.samples, words.percent(c.share, 0)) for c in confused(run.record, CONFUSIONS)
        ],
    }


def losses(run: Shown) -> list[str]:
    """The class that adaptation made worse by far, if there is one: a gain on the whole can hide it."""
    rows = [row for row in class_rows([run.record], [run.baseline]) if row.samples >= 10 and row.gain[0] is not None]
    worst = min(rows, key=lambda row: row.gain[0] or 0.0, default=None)
    if worst is None or worst.gain[0] is None or worst.gain[0] > -0.1 or worst.accuracy[0] is None:
        return []
    before, after = words.percent(worst.accuracy[0] - worst.gain[0]), words.percent(worst.accuracy[0])
    return [f"But class {worst.name} is recognised less often: {after} of it, where source-only has {before}."]
