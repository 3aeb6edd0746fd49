"""``bures figure``: the figures of the documentation, from what runs have left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.cli._streams import tell
from bures.files import check_output

__all__ = ["figure"]

# What the command line calls an option, where the library has another name.
FLAGS = {"tasks": "task", "n": "samples", "n_classes": "classes", "data_root": "data-root"}
# Suffixes of pictures that are not written. Others, as in v1.2-figure, are part of a name.
OTHER_SUFFIXES = (".jpg", ".jpeg", ".gif", ".webp", ".eps", ".tif", ".tiff", ".bmp", ".html")
SOME, HOW = "Of some figures", "How it is written"
NAMES = "ablation, alignment, convergence, hyperparameters, network, time, training, tsne, validators"


def figure(
    name: Annotated[str | None, typer.Argument(help=f"One of: {NAMES}.")] = None,
    inputs: Annotated[
        list[Path] | None, typer.Argument(help="Ledgers, manifests or run folders; see --list.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the figures and what they are made from.")] = False,
    results: Annotated[Path, typer.Option(help="Folder of ledgers and manifests.")] = Path("results"),
    task: Annotated[
        list[str] | None, typer.Option(help="Only this task, SOURCE:TARGET; may be repeated.", rich_help_panel=SOME)
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Only runs of this recipe (default: most runs).", rich_help_panel=SOME)
    ] = None,
    method: Annotated[str | None, typer.Option(help="Of this method.", rich_help_panel=SOME)] = None,
    accuracy: Annotated[
        float | None, typer.Option(help="Percent until which time is taken (default: 90).", rich_help_panel=SOME)
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="linear or gaussian.", rich_help_panel=SOME)] = None,
    network: Annotated[str | None, typer.Option(help="Backbone (default: lenet).", rich_help_panel=SOME)] = None,
    classes: Annotated[int | None, typer.Option(min=2, help="Number of classes.", rich_help_panel=SOME)] = None,
    samples: Annotated[
        int | None, typer.Option(min=10, help="Samples of a domain at most.", rich_help_panel=SOME)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of samples and maps.", rich_help_panel=SOME)] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data sets (default: the run's).", rich_help_panel=SOME)
    ] = None,
    style: Annotated[str, typer.Option(help="light, dark or print.", rich_help_panel=HOW)] = "light",
    formats: Annotated[
        str | None,
        typer.Option("--format", help="svg, pdf, png, by commas (default: all of them).", rich_help_panel=HOW),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The files without their suffix (default: NAME), or one file with it.",
            rich_help_panel=HOW,
        ),
    ] = None,
) -> None:
    """Draw a figure as vector and PNG files, from ledgers, manifests and run folders, or computed."""
    from bures.figures import draw_figure, figure_info, save_figure, style_named
    from bures.figures._save import FORMATS

    if listed or name is None:
        _list()
        return
    info = figure_info(name)
    style_named(style)
    stem = output if output is not None else Path(name)
    if stem.suffix.lower() in OTHER_SUFFIXES:
        accepted = ", ".join(f".{kind}" for kind in FORMATS)
        raise ValueError(
            f"--output {str(stem)!r} ends in {stem.suffix}, which is not written; accepted are {accepted}, or a name "
            "without a suffix for all of them"
        )
    if formats is None and stem.suffix[1:].lower() in FORMATS:  # one file, which is named as a whole
        stem, formats = stem.with_suffix(""), stem.suffix[1:].lower()
    kinds = [part.strip() for part in (",".join(FORMATS) if formats is None else formats).split(",") if part.strip()]
    if not kinds or set(kinds) - set(FORMATS):
        raise ValueError(
            f"--format {formats!r} is unknown; accepted are {', '.join(FORMATS)}, with commas between them"
        )
    if inputs and not info.reads:
        raise ValueError(f"the figure {name!r} is computed and reads nothing, but {inputs[0]} is given")
    for kind in kinds:
        check_output(f"{stem}.{kind}")  # before the work, not after it
    given: dict[str, Any] = {
        "tasks": task or None,
        "recipe": recipe,
        "method": method,
        "accuracy": accuracy,
        "kernel": kernel,
        "network": network,
        "n_classes": classes,
        "n": samples,
        "seed": seed,
        "data_root": data_root,
    }
    options = {option: value for option, value in given.items() if value is not None}
    if wrong := [FLAGS.get(option, option) for option in options if option not in info.options]:
        accepted = ", ".join(f"--{FLAGS.get(option, option)}" for option in info.options)
        raise ValueError(f"--{wrong[0]} is no option of the figure {name!r}; accepted are {accepted}")
    drawn = draw_figure(name, inputs or (), results=results, style=style, **options)
    for path in save_figure(drawn, stem, kinds, style=style):
        tell(f"Written: {path}")


def _list() -> None:
    from bures.figures import figure_info, figure_names

    infos = [figure_info(name) for name in figure_names()]
    defaults = [f" ({info.default})" if info.default else "" for info in infos]
    rows = [
        (info.name, info.summary, (info.reads or "nothing, it is computed") + default)
        for info, default in zip(infos, defaults, strict=True)
    ]
    console = Console()
    if not console.is_terminal:
        for row in rows:
            print("\t".join(row))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("figure", "shows", "reads"):
        table.add_column(head, no_wrap=head == "figure")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
