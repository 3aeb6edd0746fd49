"""The command line: a thin shell over the library, one file per command."""

from bures.cli._app import main

__all__ = ["main"]
