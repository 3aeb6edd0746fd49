"""``bures methods``: what there is to choose from."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.files import to_json
from bures.methods import MethodInfo, method_info, method_names, method_options

__all__ = ["methods"]

NOTES = (
    "Matches: the distributions that are brought together in both domains, of features P(X) (marginal), of features "
    "and labels P(X, Y) (joint), of features given the label P(X|Y) (conditional); a target label is a prediction. "
    "Methods on predictions ask them to be certain or varied and compare no domains.",
    "Cost of a step beyond the network, up to a constant, for n samples of d features in K classes; h and w are widths "
    "of discriminators and of image networks, H and W sides of images, D a number of random features.",
    "Use: bures adapt --method NAME --set options.OPTION=VALUE. Options with their defaults: bures methods --json.",
)


def methods(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with options.")] = False) -> None:
    """List the adaptation methods: what each matches, where it was published, what it costs and needs."""
    infos = [method_info(name) for name in method_names()]
    console = Console()
    if as_json:
        print(to_json([_described(info) for info in infos], indent=1))
    elif console.is_terminal:
        console.print(_table(infos))
        for note in NOTES:
            console.print(note, style="dim", highlight=False, markup=False)
    else:  # no boxes, no wrapping: for grep and for log files
        for info in infos:
            print("\t".join(_cells(info)))


def _described(info: MethodInfo) -> dict[str, Any]:
    return dataclasses.asdict(info) | {"options": method_options(info.name)}


def _cells(info: MethodInfo) -> tuple[str, ...]:
    extra = "" if info.requires is None else f"bures[{info.requires}]"
    needs = ", ".join(filter(None, (extra, info.samples if info.samples != "any" else "")))
    return info.name, info.matches, info.summary, info.paper, info.cost, needs


def _table(infos: list[MethodInfo]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", no_wrap=True)
    table.add_column("matches", no_wrap=True)
    for name in ("in short", "paper", "cost of a step", "needs"):
        table.add_column(name)
    for info in infos:
        table.add_row(*(Text(cell) for cell in _cells(info)))  # an extra in brackets is not markup
    return table
