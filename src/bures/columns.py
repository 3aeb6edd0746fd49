"""Columns of two tables brought into one order, by name."""

from __future__ import annotations

from collections.abc import Sequence

from bures.wording import listed

__all__ = ["check_same_columns", "column_names", "column_order"]

NAMED = 10  # columns that a message names


def column_names(table: object) -> tuple[str, ...] | None:
    """The names of a data frame's columns; None for arrays, and where a column has no name but a number."""
    columns = getattr(table, "columns", None)
    if columns is None or callable(columns):
        return None
    names = tuple(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def column_order(
    first: Sequence[str] | None, second: Sequence[str] | None, *, names: tuple[str, str] = ("xs", "xt")
) -> list[int] | None:
    """Where the columns of a first table lie in a second; an error where the second has others.

    Parameters
    ----------
    first, second : sequence of str, optional
        Names of the columns. None: they have none, and are matched by their position.
    names : tuple of str, optional
        What the tables are called in a message.

    Returns
    -------
    list of int, optional
        Numbers of the second table's columns, in the order of the first; None where they lie in that order, or where
        one of the tables has no names.

    Examples
    --------
    >>> from bures.columns import column_order
    >>> column_order(["width", "length"], ["length", "width"])
    [1, 0]
    """
    if first is None or second is None or tuple(first) == tuple(second):
        return None
    place = {name: number for number, name in enumerate(second)}
    missing = [name for name in first if name not in place]
    known = set(first)
    unexpected = [name for name in second if name not in known]
    wrong = {"lacks the": missing, "has the unexpected": unexpected}
    if missing or unexpected:
        said = " and ".join(
            f"{verb} {listed(map(repr, columns), NAMED, noun='column')}" for verb, columns in wrong.items() if columns
        )
        raise ValueError(
            f"{names[1]} {said}; its columns are matched with those of {names[0]} by name: rename, add "
            "or remove columns until both have the same (their order does not matter)"
        )
    if len(place) < len(second) or len(known) < len(first):
        raise ValueError(
            f"{names[0]} or {names[1]} has two columns of one name, in another order than the other; give every column "
            "a name of its own"
        )
    return [place[name] for name in first]


def check_same_columns(first: Sequence[str] | None, second: Sequence[str] | None, *, names: tuple[str, str]) -> None:
    """Raise where two results have been made of columns in different order; None, of an array, goes with all."""
    order = column_order(first, second, names=names)
    if first is not None and second is not None and order is not None:
        place = next(number for number, found in enumerate(order) if found != number)
        raise ValueError(
            f"{names[0]} and {names[1]} have the same columns in different order (column {place} is "
            f"{first[place]!r} and {second[place]!r}), of which the sums are made; give the columns one order"
        )
