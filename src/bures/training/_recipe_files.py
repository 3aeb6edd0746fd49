"""Recipes from files, and those that come with the library."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from bures.files import read_text, read_yaml
from bures.training._recipe import Recipe

__all__ = ["is_recipe_file", "load_recipe", "recipe_content", "recipe_names"]


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
        One of `recipe_names`, or a file that ends in ``.yaml`` or ``.yml``.

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


def recipe_content(name: str | Path) -> dict[str, Any]:
    """What a recipe names itself, given as for `load_recipe`; other fields have their defaults.

    Examples
    --------
    >>> from bures.training._recipe_files import recipe_content
    >>> sorted(recipe_content("demo"))[:2]
    ['augment', 'batch_size']
    """
    text = str(name)
    if not is_recipe_file(name):
        if text not in recipe_names():
            raise ValueError(
                f"recipe={text!r} is unknown; accepted are {', '.join(recipe_names())} and files that end in .yaml"
            )
        return deepcopy(_library_content(text))
    path = Path(text)
    if not path.is_file():
        raise FileNotFoundError(f"recipe={text!r} is not a file")
    return _parse(text, read_text(path, text))


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
    known = {item.name for item in fields(Recipe)}
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{name}: a recipe has no field {unknown[0]!r}; accepted are {', '.join(sorted(known))}")
    return content
