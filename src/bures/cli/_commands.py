"""The commands by name, each imported when it is wanted: all of them together take seconds."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from bures.cli._naming import NamingCommand

__all__ = ["COMMANDS", "Command", "Commands"]


class Command(NamedTuple):
    """Where a command is, ``module:name``, and what the list of commands says of it: the beginning of its own help."""

    place: str
    summary: str


COMMANDS = {
    "adapt": Command(
        "adapt:adapt_command",
        "Train on a labelled source and an unlabelled target; write a run folder with the model and its predictions.",
    ),
    "tune": Command(
        "tune:tune_command",
        "Search for fields of a recipe that give the best score without target labels; each trial is a run folder.",
    ),
    "predict": Command(
        "predict:predict", "Write the class of each sample, and the probability of every class, as CSV."
    ),
    "evaluate": Command(
        "evaluate:evaluate",
        "Print the accuracy of a model on labelled samples, class by class, and what it takes for what.",
    ),
    "report": Command(
        "report:report",
        "Write what was run and what came of it as one HTML file that needs no network; several runs stand side by "
        "side.",
    ),
    "export": Command("export:export", "Write a model to one file."),
    "distance": Command("distance:distance", "Print the squared distance between two domains of feature vectors."),
    "test": Command("test:two_sample_test", "Test whether two domains differ."),
    "shift": Command(
        "shift:shift", "Tell label shift, marginal shift and conditional shift apart, and say what to try."
    ),
    "doctor": Command(
        "doctor:doctor",
        "Look at two domains: classes, balance, duplicates, sizes, values, and settings to start with.",
    ),
    "methods": Command(
        "methods:methods",
        "List the adaptation methods: what each matches, where it was published, what it costs and needs.",
    ),
    "bench": Command(
        "bench:bench",
        "Run grids of tasks, methods and seeds, and show their tables beside the paper's figures.",
    ),
    "figure": Command(
        "figure:figure",
        "Draw a figure as vector and PNG files, from ledgers, manifests and run folders, or computed.",
    ),
    "features": Command("features:features", "Turn images into feature files."),
}


class _Summary(TyperCommand):
    """Stands for a command until that is wanted."""


class Commands(TyperGroup):
    """A group whose commands have names and summaries until one of them is run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, command in COMMANDS.items():
            self.add_command(_Summary(name, help=command.summary), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is asked for, in the place of its summary."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if name is None else self.load(name), rest

    def load(self, name: str) -> Any:
        """The command itself, which takes the place of its summary."""
        if not isinstance(self.commands[name], _Summary):
            return self.commands[name]
        place, _, attribute = COMMANDS[name].place.partition(":")
        found = getattr(import_module(f"bures.cli.{place}"), attribute)
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(name)(found)
            found = single
        for command in found.registered_commands:
            command.help = _filled(command.callback)
            command.callback = _with_home_folders(command.callback)
            command.cls = NamingCommand
        self.add_command(typer.main.get_command(found), name)
        return self.commands[name]


def _with_home_folders(callback: Any) -> Callable[..., Any]:
    """The command with a ~ in its paths followed: behind the = of an option, shells leave that to the program."""

    def found(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(found, value))
        return Path(os.path.expanduser(value)) if isinstance(value, Path) else value

    @wraps(callback)
    def run(**options: Any) -> Any:
        return callback(**{name: found(value) for name, value in options.items()})

    return run


def _filled(callback: Any) -> str:
    """The help of a command, a line for each paragraph: those of a docstring would be broken twice by a terminal."""
    paragraphs = inspect.cleandoc(callback.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
