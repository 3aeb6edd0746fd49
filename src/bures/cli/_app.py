"""The application: its commands, how it reports errors, and its exit codes."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Annotated

import typer
from rich.console import Console

import bures
from bures.cli._commands import Commands
from bures.cli._naming import spoken
from bures.cli._progress import leading_process
from bures.cli._streams import outlive_readers
from bures.training import TrainingError

__all__ = ["app", "main"]

ERROR = 2  # exit code of every error, as typer has it for wrong usage

app = typer.Typer(
    name="bures",
    cls=Commands,
    help="Measure and remove conditional domain shift: the difference between P(X|Y) in two domains.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    warnings.showwarning = lambda message, *_args, **_kwargs: console.print(
        f"warning: {spoken(str(message), {})}", markup=False
    )
    # Of a picture that is large and read all the same. It names no file; one that is too large is named elsewhere.
    warnings.filterwarnings("ignore", message="Image size .* could be decompression bomb", category=RuntimeWarning)
    # For each character. Figures that name classes have said so before, once for all.
    warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
    try:
        app()
    except (OSError, ValueError, TypeError, ImportError, TrainingError) as error:
        if "--debug" in sys.argv:  # raised, it would end with 1, which is a shift in `bures test`
            traceback.print_exc()
        else:
            console.print(f"error: {error}", markup=False, highlight=False)
        sys.exit(ERROR)
