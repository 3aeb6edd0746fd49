"""What the commands that use a finished run share: its arguments, and how model and data are read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bures.cli._progress import progress_bar
from bures.data import Domain, load_domain
from bures.devices import find_device
from bures.training import SavedModel, load_model

__all__ = [
    "BatchSize",
    "Best",
    "DataRoot",
    "Device",
    "Part",
    "PartOption",
    "RunArgument",
    "Strict",
    "read_data",
    "read_model",
]


class Part(StrEnum):
    """Parts of the digit sets."""

    TRAIN = "train"
    TEST = "test"


RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder of `bures adapt`, or a model file (.safetensors).")
]
Best = Annotated[
    bool, typer.Option("--best", help="The network of the epoch with the best label-free score, not of the last.")
]
PartOption = Annotated[Part, typer.Option("--part", help="Part of mnist and usps; other data have no parts.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data sets; default $BURES_DATA.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples forwarded at once.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at images that cannot be decoded.")]


def read_model(run: Path, *, best: bool, device: str = "cpu") -> SavedModel:
    """The model of a run, on a device."""
    return load_model(run, best=best).to(find_device(device))


def read_data(
    spec: str, model: SavedModel, *, part: Part, data_root: Path | None, strict: bool, labels: bool
) -> Domain:
    """The samples, images at the size that the model stores."""
    with progress_bar("reading images") as report:
        return load_domain(
            spec,
            data_root=data_root,
            train=part is Part.TRAIN,
            strict=strict,
            size=model.spec.stored_size,
            in_memory=None,
            progress=report,
            labels=labels,
        )
