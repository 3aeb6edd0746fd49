"""``bures evaluate``: how a model does on labelled samples."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.cli._options import AsJson, DataRoot, Device, Strict
from bures.cli._serving import (
    BatchSize,
    Best,
    Part,
    PartOption,
    RunArgument,
    TemperatureOption,
    read_data,
    read_model,
    read_temperature,
)
from bures.files import to_json
from bures.training import Assessment, assess

__all__ = ["evaluate"]

MATRIX = 15  # classes up to which the confusion matrix is shown
CONFUSIONS = 10  # that are named otherwise
SHORT = 6  # letters of a name up to which it heads a column


class BatchNorm(StrEnum):
    """BatchNorm statistics."""

    TRAINING = "training"
    TARGET = "target"


def evaluate(
    run: RunArgument,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Labelled: image folder with class folders, feature file, file.npz#domain or name."
        ),
    ],
    best: Best = False,
    batchnorm: Annotated[
        BatchNorm,
        typer.Option(help="Statistics: training, as saved in the model; target, those of DATA, without its labels."),
    ] = BatchNorm.TRAINING,
    temperature: TemperatureOption = "1",
    part: PartOption = Part.TEST,
    data_root: DataRoot = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Print the accuracy of a model on labelled samples, class by class, and what it takes for what.

    Classes are found by name; the data may lack some of the model's.
    """
    scale = read_temperature(temperature, run, best=best)
    model = read_model(run, best=best, device=device)
    domain = read_data(data, model, part=part, data_root=data_root, strict=strict, labels=True)
    result = assess(model, domain, batchnorm=batchnorm, temperature=scale, batch_size=batch_size)
    if as_json:
        print(to_json({"model": str(run), "best": best, "temperature": scale, **result.to_dict()}))
    else:
        _show(Console(highlight=False), result)


def _show(console: Console, result: Assessment) -> None:
    head = (
        f"{result.domain}: accuracy {100 * result.accuracy:.2f} % ({result.correct} of {result.samples}), "
        f"mean of the classes {100 * result.mean_class_accuracy:.2f} %"
    )
    adapted = "; BatchNorm statistics of these samples" if result.batchnorm == "target" else ""
    if result.calibration is not None:
        sure = sum(part.samples * part.confidence for part in result.calibration.bins) / result.samples
        head += (
            f"; mean confidence {100 * sure:.2f} %, expected calibration error {100 * result.calibration.error:.2f} %"
        )
    _print(console, head + adapted)
    matrix = _table(result, matrix=True)
    fits = _width(console, matrix) <= console.width or not console.is_terminal
    if len(result.class_names) <= MATRIX and fits:
        _print_table(console, matrix)
        _print(console, "Columns after the line: how many samples of a class were taken for which.")
        return
    _print_table(console, _table(result, matrix=False))
    if confused := result.most_confused(CONFUSIONS):
        _print(console, "Most frequent confusions:")
    for confusion in confused:
        _print(console, f"{confusion.samples:6d}  {confusion.true} taken for {confusion.predicted}")


def _table(result: Assessment, *, matrix: bool) -> Table:
    """A row for each class; with ``matrix``, also how often it was taken for each."""
    names = result.class_names
    short = all(len(name) <= SHORT for name in names)
    titles = names if short else tuple(str(number) for number in range(1, len(names) + 1))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    if matrix and not short:
        table.add_column("")
    table.add_column("class")
    for title in ("samples", "right", "accuracy %"):
        table.add_column(title, justify="right", no_wrap=True)
    if matrix:
        table.add_column("")
    for title in titles if matrix else ():
        table.add_column(Text(title), justify="right", no_wrap=True)
    for title, row, counts in zip(titles, result.classes(), result.confusion.tolist(), strict=True):
        accuracy = "-" if row.accuracy is None else f"{100 * row.accuracy:.1f}"
        number = [title] if matrix and not short else []
        cells = ["|", *(str(count) if count else "." for count in counts)] if matrix else []
        # Text: a class may be called [red], which Rich would take for a colour.
        table.add_row(*number, Text(row.name), str(row.samples), str(row.correct), accuracy, *cells)
    return table


def _width(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _print_table(console: Console, table: Table) -> None:
    """Print a table in full width: a file or a pipe has none that it would have to fit."""
    if not console.is_terminal:
        console.width = max(console.width, _width(console, table))
    console.print(table)


def _print(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
