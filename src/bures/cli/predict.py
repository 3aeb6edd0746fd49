"""``bures predict``: classes and probabilities of new samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bures.cli._naming import said_as
from bures.cli._options import DataRoot, Device, Strict
from bures.cli._progress import progress_bar
from bures.cli._serving import (
    BatchSize,
    Best,
    Part,
    PartOption,
    RunArgument,
    TemperatureOption,
    check_not_read,
    read_data,
    read_model,
    read_temperature,
)
from bures.data import TensorSamples, write_features
from bures.files import check_output
from bures.selection import scale_probabilities
from bures.training._csv import predictions_csv, write_predictions
from bures.training._saved_model import model_file

__all__ = ["predict"]


def predict(
    run: RunArgument,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Image folder (flat, or with class folders), feature file, file.npz#domain or name."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file. Default: the standard output.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Give no class to samples whose largest probability is below this."),
    ] = None,
    temperature: TemperatureOption = "1",
    features: Annotated[
        Path | None, typer.Option(help="Also write the features that the network computes, to this .npz file.")
    ] = None,
    best: Best = False,
    part: PartOption = Part.TEST,
    data_root: DataRoot = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    strict: Strict = False,
) -> None:
    """Write the class of each sample, and the probability of every class, as CSV.

    Labels are not needed, and not read where there are any. Samples keep the order of the file, or of their names.
    With --threshold a further column says why a sample has no class.
    """
    output = None if output is None else check_output(output)
    with said_as({"output": "--features"}):
        features = None if features is None else check_output(features)
    if features is not None and features.suffix.lower() != ".npz":
        raise ValueError(f"--features {str(features)!r} ends in {features.suffix!r}; features are written to .npz")
    if output is not None and features is not None and output.resolve() == features.resolve():
        raise ValueError(f"--output and --features are both {str(output)!r}; give each a file of its own")
    scale = read_temperature(temperature, run, best=best)
    for option, file in (("--output", output), ("--features", features)):
        if file is not None:
            with said_as({"output": option}):
                check_not_read(file, model_file(run, best=best), data, data_root=data_root)
    model = read_model(run, best=best, device=device)
    domain = read_data(data, model, part=part, data_root=data_root, strict=strict, labels=False)
    with progress_bar("predicting") as report:
        found = model.predict(domain, batch_size=batch_size, progress=report)
    if features is not None:
        computed = TensorSamples(found.features)
        write_features(features, replace(domain, samples=computed, class_names=model.class_names, feature_names=None))
    probabilities = scale_probabilities(found.probabilities, scale)
    if output is not None:
        write_predictions(output, domain, probabilities, model.class_names, threshold=threshold)
    else:
        # As bytes: a table is UTF-8 whatever the terminal's encoding.
        table = predictions_csv(domain, probabilities, model.class_names, threshold=threshold)
        typer.echo(table.encode(), nl=False)
    if threshold is not None:
        unsure = int((probabilities.max(dim=1).values < threshold).sum())
        typer.echo(f"no class for {unsure} of {len(domain)} samples: their confidence is below {threshold:g}", err=True)
