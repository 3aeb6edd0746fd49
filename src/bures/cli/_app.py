"""The application: its commands, how it reports errors, and its exit codes."""

from __future__ import annotations

import inspect
import sys
import traceback
import warnings
from typing import Annotated

import typer
from rich.console import Console

import bures
from bures.cli._progress import leading_process
from bures.cli._streams import outlive_readers
from bures.cli.adapt import adapt_command
from bures.cli.bench import bench
from bures.cli.distance import distance
from bures.cli.doctor import doctor
from bures.cli.evaluate import evaluate
from bures.cli.export import export
from bures.cli.features import features
from bures.cli.figure import figure
from bures.cli.methods import methods
from bures.cli.predict import predict
from bures.cli.report import report
from bures.cli.shift import shift
from bures.cli.test import two_sample_test
from bures.cli.tune import tune_command
from bures.training import TrainingError

__all__ = ["app", "main"]

ERROR = 2  # exit code of every error, as typer has it for wrong usage

app = typer.Typer(
    name="bures",
    help="Measure and remove conditional domain shift: the difference between P(X|Y) in two domains.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("adapt")(adapt_command)
app.command("tune")(tune_command)
app.command()(predict)
app.command()(evaluate)
app.command()(report)
app.command()(export)
app.command()(distance)
app.command("test")(two_sample_test)
app.command()(shift)
app.command()(doctor)
app.command()(methods)
app.command()(bench)
app.command()(figure)
app.add_typer(features, name="features")

for _command in (*app.registered_commands, *features.registered_commands):
    # A terminal of any width fills the lines of a paragraph; those of a docstring would be broken twice.
    _paragraphs = inspect.cleandoc(getattr(_command.callback, "__doc__", None) or "").split("\n\n")
    _command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in _paragraphs)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(bures.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the command; ``--debug`` is read in `main`, which meets the error."""


def main() -> None:
    """Run the command line; an error is one line on the standard error stream and exit code 2."""
    with outlive_readers():
        _run()


def _run() -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.quiet = not leading_process()  # others would repeat what the first says
    warnings.showwarning = lambda message, *_args, **_kwargs: console.print(f"warning: {message}", markup=False)
    try:
        app()
    except (OSError, ValueError, TypeError, ImportError, TrainingError) as error:
        if "--debug" in sys.argv:  # raised, it would end with 1, which is a shift in `bures test`
            traceback.print_exc()
        else:
            console.print(f"error: {error}", markup=False, highlight=False)
        sys.exit(ERROR)
