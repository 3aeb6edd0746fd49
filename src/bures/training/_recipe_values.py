"""Values of a recipe's fields as YAML files and command lines give them, read as the types that the fields have."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["as_number", "read_epoch", "read_field", "read_options", "read_validators"]


def read_field(name: str, value: Any, kind: str) -> Any:
    """A field as its type asks; numbers may come as text, for YAML takes 1e-3 as such."""
    accepted = kind.replace("str", "text").replace("bool", "true or false").replace(" | None", ", or nothing")
    if value is None and "None" in kind:
        return None
    if kind.startswith("bool"):
        if not isinstance(value, bool):
            raise ValueError(f"{name}={value!r} is no truth value; accepted is {accepted}")
        return value
    if kind.startswith("str"):
        if not isinstance(value, str):
            raise ValueError(f"{name}={value!r} is no text; accepted is {accepted}")
        return value
    number = as_number(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or abs(number) > sys.float_info.max:
        raise ValueError(f"{name}={value!r} is no number; accepted is {accepted}")
    if kind.startswith("int"):
        if number != number or number != int(number):
            raise ValueError(f"{name}={value!r} is not whole; accepted is {accepted}")
        return int(number)
    return float(number)


def read_epoch(value: Any) -> int:
    number = as_number(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"epoch={value!r} is unknown; accepted are 'shorter', 'longer' and a number of steps")
    return number


def read_validators(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(item, str) for item in names):
        raise ValueError(f"validators={value!r} is no list of names; accepted is for example [im, snd]")
    return tuple(dict.fromkeys(names))


def read_options(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"options={value!r} is no mapping; accepted are names and values")
    return {name: as_number(option) for name, option in value.items()}


def as_number(value: Any) -> Any:
    """A number given as text, as a number; anything else as it is."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
