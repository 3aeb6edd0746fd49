"""Options that many commands take alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "DataRoot", "Device", "Strict"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data sets; default $BURES_DATA.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at images that cannot be decoded.")]
