"""Options that several training commands take alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bures.training import recipe_names

__all__ = ["DATA", "MACHINE", "TRAINING", "Accelerator", "DataRoot", "Partial", "Quiet", "RecipeName"]

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
