"""Options of the commands that train."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from bures.training import recipe_names

__all__ = [
    "DATA",
    "MACHINE",
    "TRAINING",
    "Accelerator",
    "DataRoot",
    "Partial",
    "Quiet",
    "RecipeName",
    "refuse_beside_resume",
]

DATA, TRAINING, MACHINE = "Data", "Training", "Machine"

DataRoot = Annotated[
    Path | None, typer.Option(help="Folder of the data sets (default: $BURES_DATA).", rich_help_panel=DATA)
]
Partial = Annotated[
    bool, typer.Option("--partial", help="The target may lack classes of the source.", rich_help_panel=DATA)
]
RecipeName = Annotated[
    str | None, typer.Option(help=f"A YAML file, or one of: {', '.join(recipe_names())}.", rich_help_panel=TRAINING)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")]
Accelerator = Annotated[str, typer.Option(help="auto, cpu, gpu.", rich_help_panel=MACHINE)]


def refuse_beside_resume(context: typer.Context, what: str, allowed: Collection[str]) -> None:
    """Raise an error where an option is typed that the folder of a run decides: ignored, it would seem to be heeded."""
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        typed = source is not None and source.name == "COMMANDLINE"
        if typed and option.name not in ("resume", *allowed):
            raise ValueError(f"--resume takes {what}, but {option.opts[0]} is given; give no others")
