"""Recipes from files, and those that come with the library."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from bures.files import read_text, read_yaml
from bures.training._recipe import Recipe

__all__ = ["is_recipe_file", "load_recipe", "recipe_content", "recipe_names"]

BASE = "based_on"  # of a file, beside the fields of a recipe


def recipe_names() -> list[str]:
    """Names of the recipes that come with the library.

    Examples
    --------
    >>> from bures.training import recipe_names
    >>> {"paper-text", "paper-code"} <= set(recipe_names())
    True
    """
    return sorted(item.name.removesuffix(".yaml") for item in _recipe_folder().iterdir() if item.name.endswith(".yaml"))


def load_recipe(name: str | Path) -> Recipe:
    """Read a recipe by its name or from a YAML file.

    Parameters
    ----------
    name : str or path
        One of `recipe_names`, or a file that ends in ``.yaml`` or ``.yml``. A file may begin with ``based_on: NAME``, a
        recipe of the library or a file beside it, and name only what it changes; ``options`` are changed one by one.

    Examples
    --------
    >>> from bures.training import load_recipe
    >>> load_recipe("paper-code").options["entropy"]
    0.05
    """
    text, content = str(name), recipe_content(name)
    try:
        return Recipe(**content)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text}: {error}") from error


def recipe_content(name: str | Path, *, library: bool = True) -> dict[str, Any]:
    """What a recipe, given as for `load_recipe`, and those it is based on name; other fields have their defaults.

    Without ``library`` it is what the files among them name: choices of the user.

    Examples
    --------
    >>> from bures.training._recipe_files import recipe_content
    >>> sorted(recipe_content("demo"))[:2]
    ['augment', 'batch_size']
    """
    return _with_base(str(name), (), library)


def _with_base(name: str, above: tuple[str, ...], library: bool) -> dict[str, Any]:
    """What a recipe names, on top of what that names which it is based on; ``above`` are those based on this one."""
    above = (*above, _identity(name))
    content = _own_content(name) if library or is_recipe_file(name) else {}
    base = content.pop(BASE, None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise ValueError(f"{name}: {BASE}={base!r} is no text; accepted is the name of a recipe or of a file")
    if is_recipe_file(base):
        base = str(Path(name).parent / base)
    if _identity(base) in above:
        raise ValueError(f"{name}: {BASE}={base!r} leads back to itself; accepted is a recipe not based on this one")
    try:
        inherited = _with_base(base, above, library)
    except (ValueError, FileNotFoundError) as error:
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(f"{name}: {BASE}: {error}") from error
    if isinstance(content.get("options"), dict) and isinstance(inherited.get("options"), dict):
        content["options"] = inherited["options"] | content["options"]
    return inherited | content


def _identity(name: str) -> str:
    """A name for a recipe that it has however its file is called."""
    return os.path.realpath(name) if is_recipe_file(name) else name


def _own_content(name: str) -> dict[str, Any]:
    if not is_recipe_file(name):
        if name not in recipe_names():
            raise ValueError(
                f"recipe={name!r} is unknown; accepted are {', '.join(recipe_names())} and files that end in .yaml"
            )
        return deepcopy(_library_content(name))
    path = Path(name)
    if not path.is_file():
        raise FileNotFoundError(f"recipe={name!r} is not a file")
    return _parse(name, read_text(path, name))


@cache  # of grids each cell asks, and once more for every run that it may be in common with another grid
def _library_content(name: str) -> dict[str, Any]:
    return _parse(name, (_recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8"))


def is_recipe_file(name: str | Path) -> bool:
    """Whether a recipe is given as a file, not by the name of one that comes with the library."""
    return str(name).endswith((".yaml", ".yml"))


def _recipe_folder() -> Any:
    return files("bures.training") / "recipes"


def _parse(name: str, text: str) -> dict[str, Any]:
    content = read_yaml(text, name)
    if content is None:
        content = {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError(f"{name} holds a {type(content).__name__}; accepted are fields with their values")
    known = {item.name for item in fields(Recipe)} | {BASE}
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{name}: a recipe has no field {unknown[0]!r}; accepted are {', '.join(sorted(known))}")
    return content
