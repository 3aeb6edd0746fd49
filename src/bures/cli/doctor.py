"""``bures doctor``: whether two domains are fit for training, before hours are spent on it."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bures.cli._naming import said_of_domain
from bures.cli._options import AsJson, DataRoot
from bures.cli._progress import progress_bar
from bures.data import Diagnosis, diagnose, load_domain
from bures.data._diagnosis import LISTED_CLASSES, describe_domain, show_count
from bures.files import to_json
from bures.provenance import shell_command

__all__ = ["doctor"]

NOT_FIT = 1  # exit code where a finding is an error
STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


def doctor(
    source: Annotated[
        str, typer.Option(help="Image folder, feature file, file.npz#domain or name such as mnist or office10/dslr.")
    ],
    target: Annotated[str, typer.Option(help="The same for the target; labels are counted if there are any.")],
    data_root: DataRoot = None,
    strict: Annotated[bool, typer.Option("--strict", help="Take files that cannot be read as errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at two domains: classes, balance, duplicates, sizes, values, and settings to start with.

    Exit code 0: nothing stands in the way; 1: a finding is an error; 2: the domains could not be read.
    """
    # What is said of bad files while loading becomes part of the diagnosis.
    with warnings.catch_warnings(record=True) as said, progress_bar("reading the domains") as report:
        warnings.simplefilter("always")
        domains = []
        for side, spec in (("--source", source), ("--target", target)):
            with said_of_domain(side):
                domains.append(load_domain(spec, data_root=data_root, progress=report))
    loading = [str(warning.message) for warning in said if issubclass(warning.category, UserWarning)]
    with progress_bar("looking at the samples") as report:
        diagnosis = diagnose(*domains, loading=loading, strict=strict, progress=report)
    console = Console()
    if as_json:
        print(to_json(diagnosis.to_dict(), indent=1))
    elif console.is_terminal:
        console.print(render(diagnosis, source, target))
    else:  # no boxes, no wrapping: for grep and for log files
        print(diagnosis)
    if diagnosis.level == "error":
        raise typer.Exit(NOT_FIT)


def render(diagnosis: Diagnosis, source: str, target: str) -> RenderableType:
    """The diagnosis for a terminal. Names from files are shown as they are: no part of them is taken for markup."""
    parts: list[RenderableType] = [
        Text.assemble((side, "bold"), "  ", describe_domain(domain)) for side, domain in diagnosis.sides()
    ]
    if 0 < len(diagnosis.class_counts()) <= LISTED_CLASSES:
        parts += [Text(), _class_table(diagnosis)]
    parts += [Text(), _finding_table(diagnosis)]
    if diagnosis.settings:
        command = shell_command("adapt", "--source", source, "--target", target, *diagnosis.options())
        parts += [Text(), Text.assemble(("to start with", "bold"), "  ", command)]
    return Group(*parts, Text(), Text(diagnosis.verdict(), style=STYLES[diagnosis.level]))


def _class_table(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("class")
    for side in ("source", "target"):
        table.add_column(side, justify="right")
    for name, *counts in diagnosis.class_counts():
        # A class without samples in one domain is what one looks for in this table.
        cells = [Text(show_count(count), style=STYLES["warning"] if count == 0 else "") for count in counts]
        table.add_row(Text(name), *cells)
    return table


def _finding_table(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column()
    for finding in diagnosis.findings:
        text = Text(finding.text)
        if finding.remedy:
            text.append(f"\n{finding.remedy}", style="dim")
        table.add_row(Text(finding.level, style=STYLES[finding.level]), Text(finding.topic), text)
    return table
