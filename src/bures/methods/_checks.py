"""Checks that the methods share."""

from __future__ import annotations

from bures.arrays import check_positive

__all__ = ["check_whole"]


def check_whole(name: str, value: object) -> int:
    """Return ``value`` as an int; raise unless it is one positive whole number, which may be a float as in 1e3."""
    number = check_positive(name, value)
    if number != int(number):
        raise ValueError(f"{name}={value!r} is not whole; accepted is a positive whole number")
    return int(number)
