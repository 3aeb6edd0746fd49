"""Packages whose names are loaded on first use, so that a part that is not asked for costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        The package's name.
    homes : mapping of str to str
        For each public name the module it lives in; a subpackage is its own home.

    Examples
    --------
    >>> from bures.lazy import lazy_names
    >>> load, _ = lazy_names("bures", {"ckb": "bures.metrics"})
    >>> load("ckb").__name__
    'ckb'
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        value = home if homes[name] == f"{package}.{name}" else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
