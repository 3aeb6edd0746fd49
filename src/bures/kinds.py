"""Whether plain values that were read from a file are of the kinds that their readers take for granted."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["FIELDS", "LIST", "NUMBER", "TEXT", "WHOLE", "check_kinds"]

Kinds = tuple[type, ...]

NUMBER: Kinds = (int, float)
WHOLE: Kinds = (int,)
TEXT: Kinds = (str,)
FIELDS: Kinds = (Mapping,)
LIST: Kinds = (list,)
WORDS = {int: "whole number", float: "number", str: "text", Mapping: "mapping", list: "list"}


def check_kinds(content: Mapping[str, Any], kinds: Mapping[str, Kinds]) -> None:
    """Raise a ValueError that names the first value of another kind; what is missing or null is not looked at.

    Parameters
    ----------
    content : mapping
        As JSON gives it. Numbers have to be finite, and truth values are none.
    kinds : mapping of str to types
        By the path of a value, ``"final.best.epoch"``; ``*`` stands for every key or place.

    Examples
    --------
    >>> from bures.kinds import NUMBER, check_kinds
    >>> check_kinds({"epochs": [{"loss": 0.5}, {"loss": "low"}]}, {"epochs.*.loss": NUMBER})
    Traceback (most recent call last):
    ValueError: epochs.1.loss is 'low'; accepted is a number
    """
    for path, accepted in kinds.items():
        for name, value in _at(content, path.split(".")):
            if value is not None and not _is(value, accepted):
                words = " or ".join(dict.fromkeys(f"a {WORDS[kind]}" for kind in accepted if accepted != NUMBER))
                raise ValueError(f"{name} is {str(value)[:60]!r}; accepted is {words or 'a number'}")


def _at(value: Any, path: list[str], name: str = "") -> Iterator[tuple[str, Any]]:
    """The values at a path, with their names."""
    if not path:
        yield name, value
        return
    first, *rest = path
    if isinstance(value, Mapping):
        items = [(key, value[key]) for key in (value if first == "*" else [first]) if key in value]
    else:
        items = list(enumerate(value)) if isinstance(value, list) and first == "*" else []
    for key, item in items:
        yield from _at(item, rest, f"{name}.{key}" if name else str(key))


def _is(value: Any, kinds: Kinds) -> bool:
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return not isinstance(value, (int, float)) or -sys.float_info.max <= value <= sys.float_info.max
