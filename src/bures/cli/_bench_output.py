"""What ``bures bench`` shows: tables of one or several grids, what failed and what is left, and paired tests."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.cli._streams import tell
from bures.files import write_text
from bures.provenance import shell_command

if TYPE_CHECKING:
    import pandas as pd

    from bures.experiments import BenchTable, Sweep

__all__ = ["Place", "again", "report", "show_table", "show_tests"]


class Place(NamedTuple):
    """Where a table stands among those of several grids."""

    grid: str
    first: bool
    last: bool


def again() -> str:
    """The command that goes on: the same as this one."""
    return shell_command(*sys.argv[1:])


def show_table(table: BenchTable, format: str, output: Path | None, commands: bool, place: Place | None) -> None:
    """Print or write a table; with a place among several, so that it can be told from the others."""
    if format == "terminal":
        _show_in_terminal(table, output, place)
        return
    text = _text(table, format, commands, place)
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)


def _text(table: BenchTable, format: str, commands: bool, place: Place | None) -> str:
    from bures.experiments import render_table
    from bures.training._csv import table_csv

    text = render_table(table, format, commands=commands).rstrip("\n") + "\n"
    if place is None:
        return text
    if format == "csv":  # one table for programs, that has the grids in a column
        head, *rows = csv.reader(io.StringIO(text))
        text = table_csv(["grid", *head], ([place.grid, *row] for row in rows))
        return text if place.first else text.partition("\n")[2]
    title = " ".join(table.title.split())
    heading = f"% {title}\n" if format == "latex" else f"## {title}\n\n"
    return ("" if place.first else "\n") + heading + text


def _show_in_terminal(table: BenchTable, output: Path | None, place: Place | None) -> None:
    from bures.experiments._render import FOOTNOTE, rich_tables

    file = None if output is None else io.StringIO()
    console = Console(file=file)
    if not console.is_terminal:
        console = Console(file=file, width=1000)  # a pipe or a file wraps nothing
    if place is not None and not place.first:
        console.print()
    for part in rich_tables(table, console.width):
        console.print(part)
    footnote = [FOOTNOTE.replace("`", "")] if place is None or place.last else []  # the same for all
    for note in (*table.notes, *footnote):
        console.print(note, markup=False, highlight=False, soft_wrap=not console.is_terminal)
    if output is not None and file is not None:
        write_text(output, file.getvalue())


def report(sweeps: Mapping[str, Sweep]) -> bool:
    """Say what failed and what is left of the grids; True where something failed."""
    for sweep in sweeps.values():
        by_reason: dict[str, list[str]] = {}
        for key, trace in sweep.failures.items():
            by_reason.setdefault(trace.strip().splitlines()[-1], []).append(key)
        for reason, keys in by_reason.items():  # files that are not there fail hundreds of cells in one way
            first, others = keys[0], len(keys) - 1
            more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
            tell(f"failed: {first}{more}\n  {reason}\n  log: {sweep.logs[first]}")
    left = {name: len(sweep.left) for name, sweep in sweeps.items() if sweep.left}
    if left:
        where = "" if len(sweeps) == 1 else f" ({', '.join(f'{count} of {name}' for name, count in left.items())})"
        tell(f"{sum(left.values())} cells are left{where}; go on with: {again()}")
    return any(sweep.failures for sweep in sweeps.values())


def show_tests(matrix: pd.DataFrame, reference: str, over: str, title: str | None, *, beside: bool) -> None:
    """Print the tests, those of several grids with a title; ``beside`` a table that programs read, as a note."""
    from bures.experiments import paired_tests
    from bures.experiments._significance import pairs_tasks

    by_task = pairs_tasks(matrix, over)
    pairs = "tasks, means over the seeds that both have" if by_task else "seeds of tasks, not independent evidence"
    heading = "" if title is None else f"{title}: "
    what = Text(f"{heading}{reference} against the others, signed-rank test over {pairs}")
    shown = Table(title=what, title_justify="left")
    shown.add_column("method")
    for name in ("pairs", "difference", "wins", "ties", "losses", "p", "p Holm"):
        shown.add_column(name, justify="right")
    for test in paired_tests(matrix, reference, over=over):
        counts = [str(count) for count in (test.wins, test.ties, test.losses)]
        cells = [str(test.n), f"{test.difference:+.2f}", *counts, f"{test.p:.2g}", f"{test.p_holm:.2g}"]
        shown.add_row(Text(test.method), *cells)
    Console(stderr=beside).print(shown)
