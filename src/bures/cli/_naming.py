"""Errors of the library name its arguments; whoever has typed a command knows them as options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand

__all__ = ["NamingCommand", "said_as", "said_of_domain", "spoken"]

# What the library calls arguments that commands take by another name.
OTHER_NAMES = {
    "classes": "n_classes",
    "html": "output",
    "jobs": "n_jobs",
    "network": "name",
    "permutations": "n_permutations",
    "resume": "output",
    "samples": "n",
    "task": "tasks",
    "trials": "n_trials",
}

QUOTED = r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*")"""
"""What was given, as messages show it: a folder may be named seed=3. A quote inside of a word is an apostrophe."""


class NamingCommand(TyperCommand):
    """A command whose errors call arguments by the options that were typed."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with said_as(_typed(ctx)):
            return super().invoke(ctx)


@contextmanager
def said_as(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors raised in the block name options in place of arguments.

    Parameters
    ----------
    names : mapping of str to str
        By the argument of the library, what the user knows it as.

    Examples
    --------
    >>> from bures.cli._naming import said_as
    >>> with said_as({"spec": "--source"}):
    ...     raise ValueError("spec='cats' is no path")
    Traceback (most recent call last):
    ValueError: --source 'cats' is no path
    """
    try:
        yield
    except Exception as error:
        if error.args and isinstance(error.args[0], str):  # the system's own errors begin with a number
            error.args = (spoken(error.args[0], names), *error.args[1:])
        raise


def said_of_domain(option: str) -> Any:
    """`said_as` around the reading of the domain that was given as ``option``."""
    return said_as(dict.fromkeys(("spec", "path", "domain"), option))


def spoken(text: str, names: Mapping[str, str]) -> str:
    """A message of the library with what the user types in place of arguments.

    Where it says both, as in ``partial=True (--partial)``, the option is left. Folders and files keep their names. A
    message that begins with the name of a YAML file is about what is written there, whatever was typed beside it.

    Examples
    --------
    >>> from bures.cli._naming import spoken
    >>> spoken("lr=-1 is out of range (in a recipe lr: 0.1, or --set lr=0.1)", {"lr": "--lr"})
    '--lr -1 is out of range (in a recipe lr: 0.1, or --set lr=0.1)'
    >>> spoken("target lacks a class; allow this with partial=True (--partial)", {})
    'target lacks a class; allow this with --partial'
    >>> spoken("spec='data/seed=3' is no folder, nor is data/spec=4", {"spec": "--source", "seed": "--seed"})
    "--source 'data/seed=3' is no folder, nor is data/spec=4"
    >>> spoken("mine.yaml: lr=-1 is out of range", {"lr": "--lr"})
    'mine.yaml: lr=-1 is out of range'
    """
    text = re.sub(r"\b\w+=True \((--[\w-]+)\)", r"\1", text)
    if not names or re.match(r"[^\n:]*\.ya?ml: ", text):
        return text
    known = "|".join(map(re.escape, names))
    argument = re.compile(rf"{QUOTED}|(?<![^\s(])(?<!--set )({known})=(?=\S)")
    return argument.sub(lambda found: f"{names[found[1]]} " if found[1] else found[0], text)


def _typed(context: Any) -> dict[str, str]:
    """Arguments and options that were typed; the others keep the names that recipes have for them."""
    names: dict[str, str] = {}
    others: dict[str, str] = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is None or source.name != "COMMANDLINE":
            continue
        option = max(parameter.opts, key=len)  # of -o and --output the latter
        if not option.startswith("-"):  # an argument without a name of its own
            option = (parameter.metavar or option.upper()).rstrip(".")
        names[parameter.name] = option
        if parameter.name in OTHER_NAMES:
            others[OTHER_NAMES[parameter.name]] = option
    return others | names
