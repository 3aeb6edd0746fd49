"""Tables of grids as text: Markdown, LaTeX with booktabs, HTML and CSV; for a terminal by Rich."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from jinja2 import Environment
from markupsafe import Markup, escape
from rich.table import Table
from rich.text import Text

from bures.arrays import check_choice, check_flags
from bures.experiments._bench_table import BenchTable, Entry, TableRow
from bures.training._csv import table_csv

__all__ = ["FOOTNOTE", "FORMATS", "markdown_lines", "render_table", "rich_tables"]

FORMATS = ("terminal", "markdown", "latex", "html", "csv")
SPREAD = re.compile(r"± \S+")
SUMMARY = (("last", "mean"), ("label_free", "label-free"), ("oracle", "oracle †"))
FOOTNOTE = (
    "Accuracy in percent on the target after the last epoch, mean ± standard deviation over seeds. Column seeds: how "
    "many, n/m where n of m are finished; a cell with another count has it in brackets. The last three columns are "
    "means over the tasks: at the last epoch, at the epoch chosen without labels, and † at the best epoch by target "
    "labels, which is an oracle and no result. `target` is trained on target labels: an upper bound."
)


def render_table(table: BenchTable, format: str = "markdown", *, commands: bool = False) -> str:
    """A table as text.

    Parameters
    ----------
    table : BenchTable
        As `bench_table` gives it.
    format : {"markdown", "latex", "html", "csv"}
        LaTeX needs the package booktabs. HTML is a page of its own, with the commands behind the numbers. CSV has a
        line for each method and task, with commands.
    commands : bool, optional
        List the commands that repeat the runs under a table in Markdown or LaTeX (there as comments).

    Examples
    --------
    >>> from bures.experiments import bench_table, load_grid, render_table
    >>> print(render_table(bench_table(load_grid("digits"), [], methods=["ckw"], recipes=["digits"])))
    | recipe | method | seeds | usps → mnist | mnist → usps | mean | label-free | oracle † |
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
    | `digits` | ckw | 0/5 | not run | not run | not run | not run | not run |
    """
    check_flags(commands=commands)
    check_choice("format", format, FORMATS[1:])
    writer = {"markdown": _markdown, "latex": _latex, "html": _html, "csv": _csv}[format]
    return writer(table, commands)


def heads(table: BenchTable) -> list[str]:
    """The columns of accuracies."""
    return [*map(table.head, table.tasks), *(name for _, name in SUMMARY)]


def texts(table: BenchTable, row: TableRow) -> list[str]:
    """What a row shows in these columns."""
    own = [row.text(row.entries[task]) for task in table.tasks]
    if row.from_paper:
        return [*own, row.text(row.mean), "", ""]
    return [*own, *(row.text(row.mean, choice) for choice, _ in SUMMARY)]


def marks(table: BenchTable, row: TableRow) -> list[bool]:
    """Which of these are the best of their column, among ours."""
    entries = [*((task, row.entries[task]) for task in table.tasks), (None, row.mean)]
    ours = not row.from_paper and not row.is_bound
    best = [
        ours and entry.last is not None and round(entry.last.mean, 1) == table.best(task) for task, entry in entries
    ]
    return [*best, False, False]


def _commands(table: BenchTable) -> list[str]:
    found = (command for row in table.rows for entry in row.entries.values() for command in entry.commands)
    return list(dict.fromkeys(command for command in found if command))


def _markdown(table: BenchTable, commands: bool) -> str:
    rows = []
    for row in table.rows:
        cells = texts(table, row)
        bold = [f"**{text}**" if best else text for text, best in zip(cells, marks(table, row), strict=True)]
        recipe = row.recipe if row.from_paper or not row.recipe or " " in row.recipe else f"`{row.recipe}`"
        rows.append([recipe, row.label, row.seeds, *bold])
    lines = markdown_lines(["seeds", *heads(table)], rows)
    if commands:
        lines += ["", "```", *_commands(table), "```"]
    return "\n".join(lines)


def markdown_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of recipes and methods, with numbers in these columns, in Markdown."""
    rules = "| --- | --- |" + " ---: |" * len(columns)
    return [_pipes(["recipe", "method", *columns]), rules, *map(_pipes, rows)]


def _pipes(cells: Sequence[str]) -> str:
    """A line of a table in Markdown; no cell ends it, or itself, before its time."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "→": r"$\to$",
    "†": r"$\dagger$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def latex_text(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda match: LATEX[match[0]], text)


def _latex(table: BenchTable, commands: bool) -> str:
    head = [latex_text(name) for name in ("recipe", "method", "seeds", *heads(table))]
    lines = [r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
    previous = None
    for row in table.rows:
        if previous is not None and not row.from_paper and row.recipe != previous:
            lines.append(r"\midrule")
        previous = previous if row.from_paper else row.recipe
        cells = zip((latex_text(text) for text in texts(table, row)), marks(table, row), strict=True)
        bold = [rf"\textbf{{{text}}}" if best else text for text, best in cells]
        lines.append(" & ".join([latex_text(row.recipe), latex_text(row.label), latex_text(row.seeds), *bold]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if commands:
        # Line by line: what follows a line break in a command would be LaTeX.
        lines += [f"% {line}" for command in _commands(table) for line in command.splitlines()]
    return "\n".join(lines)


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ table.title }}</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --quiet: #6b6b6b; }
@media (prefers-color-scheme: dark) { :root { --quiet: #a0a0a0; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 110rem; }
h1 { font-size: 1.35rem; }
.scroll { overflow: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .45rem; text-align: right; }
td span { white-space: nowrap; }
th { white-space: pre; font-weight: 600; vertical-align: bottom; }
th { background: Canvas; box-shadow: inset 0 -2px var(--line); }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
td:nth-child(2) { background: Canvas; }
tr.group td { border-top: 1px solid var(--line); }
tr.paper td { color: var(--quiet); font-style: italic; }
tr.bound td { color: var(--quiet); }
td.none { color: var(--quiet); font-size: .85em; }
td.count { color: var(--quiet); white-space: nowrap; }
td.sum, th.sum { background: linear-gradient(var(--soft), var(--soft)), Canvas; }
td[title] { cursor: help; }
code { font-size: .9em; }
p, details { max-width: 60rem; }
pre { overflow-x: auto; font-size: .85em; }
/* Where a table is larger than the window, its head and its methods stay in sight. */
@media (min-width: 60rem) { .scroll { max-height: 94vh; } th { position: sticky; top: 0; z-index: 1; } }
@media (max-width: 60rem) { :is(th, td):nth-child(2) { position: sticky; left: 0; } }
@media print {
  @page { size: landscape; margin: 1cm; }
  body { margin: 0; padding: 0; font-size: 11px; }
  .scroll { max-height: none; overflow: visible; }
  table { font-size: 9px; }
  th, td { padding: .1rem .2rem; position: static; }
  tr { break-inside: avoid; }
  details { display: none; }
}
</style>
</head>
<body>
<h1>{{ table.title }}</h1>
{% for note in table.notes %}<p>{{ note }}</p>{% endfor %}
<div class="scroll"><table>
<thead><tr><th>recipe</th><th>method</th><th>seeds</th>
{%- for name in heads %}<th{% if loop.index > table.tasks|length %} class="sum"{% endif %}>{{ name }}</th>{% endfor -%}
</tr></thead>
<tbody>
{% for row in rows %}<tr class="{{ row.kind }}"><td>{{ row.recipe }}</td><td>{{ row.label }}</td>
{#- -#}<td class="count">{{ row.seeds }}</td>
{%- for cell in row.cells %}<td class="{{ cell.kind }}"{% if cell.title %} title="{{ cell.title }}"{% endif %}>
{%- if cell.best %}<b>{{ cell.text }}</b>{% else %}{{ cell.text }}{% endif %}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table></div>
<p>{{ footnote }}</p>
{% if n_commands %}<details><summary>{{ n_commands }} commands that repeat the runs</summary>
<pre>{{ commands }}</pre></details>{% endif %}
</body>
</html>
"""


def _html(table: BenchTable, commands: bool) -> str:
    page = Environment(autoescape=True).from_string(PAGE)
    rows = [{"kind": kind, **_html_row(table, row)} for kind, row in _kinds(table)]
    return page.render(
        table=table,
        heads=[name.replace(" → ", " →\n") if len(name) > 9 else name for name in heads(table)],
        rows=rows,
        commands="\n".join(_commands(table)),
        n_commands=len(_commands(table)),
        footnote=FOOTNOTE.replace("`", ""),
    )


def _kinds(table: BenchTable) -> Iterator[tuple[str, TableRow]]:
    """Rows, and how they are set off: the first of a recipe begins a group."""
    previous = None
    for row in table.rows:
        kind = "paper" if row.from_paper else "bound" if row.is_bound else "own"
        if not row.from_paper:
            kind += " group" if previous is not None and row.recipe != previous else ""
            previous = row.recipe
        yield kind, row


def _html_row(table: BenchTable, row: TableRow) -> dict[str, object]:
    titles = ["\n".join(row.entries[task].commands) for task in table.tasks] + [""] * len(SUMMARY)
    cells = [
        {
            "text": Markup(SPREAD.sub(r"<span>\g<0></span>", str(escape(text)))),  # a narrow column breaks before it
            "best": best,
            "title": title,
            "kind": " ".join(
                word for word, holds in (("none", text == row.missing), ("sum", number >= len(table.tasks))) if holds
            ),
        }
        for number, (text, best, title) in enumerate(zip(texts(table, row), marks(table, row), titles, strict=True))
    ]
    return {"recipe": row.recipe, "label": row.label, "seeds": row.seeds, "cells": cells}


def _csv(table: BenchTable, commands: bool) -> str:
    columns = ["recipe", "method", "variant", "from", "source", "target", "seeds", "seeds_declared"]
    columns += [f"{choice}_{part}" for choice, _ in SUMMARY for part in ("mean", "sd")] + ["commands"]
    lines = []
    for row in table.rows:
        for task in table.tasks:
            entry = row.entries[task]
            origin = "paper" if row.from_paper else "here" if entry.last is not None else row.missing
            count = entry.last.n if entry.last is not None and not row.from_paper else ""
            head = [row.recipe, row.method, row.variant, origin, *task.split(":"), count, entry.declared or ""]
            lines.append([*head, *_numbers(entry), "\n".join(entry.commands)])
    return table_csv(columns, lines)


def _numbers(entry: Entry) -> list[str]:
    numbers = []
    for choice, _ in SUMMARY:
        value = getattr(entry, choice)
        numbers += ["", ""] if value is None else [f"{value.mean:.3f}", "" if value.sd is None else f"{value.sd:.3f}"]
    return numbers


def rich_tables(table: BenchTable, width: int) -> list[Table]:
    """The table for a terminal, in parts that are not wider than ``width`` characters."""
    names = heads(table)
    lines = [(row, texts(table, row), marks(table, row)) for row in table.rows]
    widths = [max(len(name), *(len(cells[number]) for _, cells, _ in lines), 0) for number, name in enumerate(names)]
    recipes, methods = [row.recipe for row in table.rows], [row.label for row in table.rows]
    fixed = max(map(len, recipes), default=0) + max(map(len, methods), default=0) + 16
    parts: list[list[int]] = [[]]
    for number, own in enumerate(widths):
        if parts[-1] and fixed + sum(widths[other] + 3 for other in parts[-1]) + own + 3 > width:
            parts.append([])
        parts[-1].append(number)
    return [_rich_part(table, names, lines, part, first=not number) for number, part in enumerate(parts)]


def _rich_part(
    table: BenchTable,
    names: Sequence[str],
    lines: Sequence[tuple[TableRow, list[str], list[bool]]],
    part: Sequence[int],
    *,
    first: bool,
) -> Table:
    # As text: a title or a domain in brackets is no markup.
    shown = Table(title=Text(table.title) if first else None, title_justify="left")
    # These fold where a terminal is narrow: of a number that is cut off nothing is left.
    shown.add_column("recipe", overflow="fold")
    shown.add_column("method", overflow="fold")
    shown.add_column("seeds", justify="right", no_wrap=True)
    for number in part:
        shown.add_column(Text(names[number]), justify="right", no_wrap=True)
    for row, cells, best in lines:
        style = "italic dim" if row.from_paper else ""
        own = [Text(cells[number], style="bold" if best[number] else "") for number in part]
        shown.add_row(Text(row.recipe), Text(row.label), Text(row.seeds), *own, style=style)
    return shown
