"""``bures export``: a model for use without this library, or in one file to hand on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bures.cli._serving import Best, RunArgument, check_not_read, read_model
from bures.files import check_output, is_stream
from bures.training import export_onnx, save_model
from bures.training._saved_model import model_file

__all__ = ["export"]


class Format(StrEnum):
    """Kinds of files."""

    ONNX = "onnx"
    SAFETENSORS = "safetensors"


def export(
    run: RunArgument,
    kind: Annotated[
        Format | None, typer.Option("--format", help="Kind of file (default: by the name of the output, else onnx).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file. Default for onnx: beside the model, such as RUN/model.onnx."),
    ] = None,
    best: Best = False,
    opset: Annotated[int, typer.Option(min=18, help="Version of ONNX's operators.")] = 18,
    tolerance: Annotated[float, typer.Option(help="Largest difference of ONNX from torch.")] = 1e-4,
) -> None:
    """Write a model to one file.

    onnx: runs without torch and is compared with torch before it is written; needs the extra "onnx".

    It takes uint8 images of the size that training stored (normalisation is inside), or float32 feature vectors.

    It gives probabilities and features; the names of the classes are in its metadata.

    safetensors: weights and description. Read it with bures.training.load_model(FILE), or give it to predict as RUN.
    """
    named = None if output is None else next((part for part in Format if output.suffix == f".{part}"), None)
    differs = kind is not None and named not in (None, kind)
    kind = kind or named or Format.ONNX
    given = model_file(run, best=best)
    if kind is Format.SAFETENSORS and output is None:
        raise ValueError(f"--output is missing; {given} already is a safetensors file: say where the copy goes")
    file = check_output(given.with_suffix(".onnx") if output is None else output)
    check_not_read(file, given)
    if differs:
        raise ValueError(f"--output {output} has the name of another kind of file than --format {kind}; change one")
    streams = is_stream(file)  # the model itself may go to the standard output
    model = read_model(run, best=best)
    classes = len(model.class_names)
    if kind is Format.SAFETENSORS:
        save_model(file, model.network, model.spec, model.class_names, model.feature_names)
        typer.echo(f"{file}  {model.spec.name}, {classes} classes; read it with bures.training.load_model", err=streams)
        return
    written = export_onnx(model, file, tolerance=tolerance, opset=opset)
    kind_of_input = "uint8" if written.input_name == "images" else "float32"
    shape = ", ".join(map(str, ("n", *written.input_shape)))
    typer.echo(
        f"{file}  {model.spec.name}: {written.input_name} {kind_of_input} ({shape}) → probabilities (n, {classes}), "
        f"features; largest difference from torch {written.difference:.1e}",
        err=streams,
    )
