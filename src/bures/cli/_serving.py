"""What the commands that use a finished run share: its arguments, and how model and data are read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bures.arrays import check_positive
from bures.cli._naming import said_of_domain
from bures.cli._progress import progress_bar
from bures.data import Domain, load_domain
from bures.data._registry import feature_file
from bures.devices import find_device
from bures.selection._calibration import COLDEST, HOTTEST
from bures.training import RunFolder, SavedModel, load_model
from bures.training._run_folder import check_not_of_run

__all__ = [
    "BatchSize",
    "Best",
    "Part",
    "PartOption",
    "RunArgument",
    "TemperatureOption",
    "check_not_read",
    "read_data",
    "read_model",
    "read_temperature",
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
BatchSize = Annotated[int | None, typer.Option(min=1, help="Samples forwarded at once (default: by their size).")]
TemperatureOption = Annotated[
    str,
    typer.Option(
        "--temperature",
        metavar="T",
        help="Divide the logits by this number, or by what the run found on held-out source samples: 'source', or "
        "'target' with these weighted to be like the target.",
    ),
]


def read_model(run: Path, *, best: bool, device: str = "cpu") -> SavedModel:
    """The model of a run, on a device."""
    return load_model(run, best=best).to(find_device(device))


def check_not_read(output: Path, *read: str | Path, data_root: Path | None = None) -> None:
    """Raise an error where a command would write over a file that it reads, or of a run: data or model would be lost.

    ``read`` are files, and domains as they were typed, which are looked for as they are when they are read.
    """
    for name in read:
        file = feature_file(name, data_root)
        if file is not None and output.exists() and output.samefile(file):
            raise ValueError(f"output={str(output)!r} is read by this command; choose another file")
    check_not_of_run(output)


def read_data(
    spec: str, model: SavedModel, *, part: Part, data_root: Path | None, strict: bool, labels: bool
) -> Domain:
    """The samples, images at the size that the model stores."""
    with progress_bar("reading images") as report, said_of_domain("DATA"):
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


def read_temperature(text: str, run: Path, *, best: bool) -> float:
    """A temperature: a number, or that which a run has found for its last or its best network."""
    if text not in ("source", "target"):
        try:
            return check_positive("--temperature", float(text))
        except ValueError:
            raise ValueError(
                f"--temperature {text!r} is unknown; accepted are a positive number, 'source' and 'target'"
            ) from None
    if not run.is_dir():
        raise ValueError(f"--temperature {text} reads what a run has found, but {run} is a file; give a run folder")
    final = RunFolder(run).read_manifest().get("final") or {}
    found = ((final.get("best") or {}) if best else final).get("temperature")
    if found is None:
        raise ValueError(
            f"--temperature {text} needs source samples held out from training, and {run} has none; train with "
            "--set source_holdout=0.1, or give a number"
        )
    scale = float(found[text])
    if scale in (COLDEST, HOTTEST):
        all_of_them = "right" if scale == COLDEST else "wrong, or near to it,"
        raise ValueError(
            f"--temperature {text}: the samples that {run} held out were all {all_of_them} and say nothing of how sure "
            "predictions should be; hold out more of them (--set source_holdout), or give a number"
        )
    return scale
