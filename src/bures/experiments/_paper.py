"""The paper's own figures, as typed from its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

__all__ = ["PaperRow", "PaperTable", "paper_table", "paper_table_names"]


@dataclass(frozen=True)
class PaperRow:
    """A line of one of the paper's tables.

    Parameters
    ----------
    name : str
        The method, as the paper calls it.
    methods : tuple of str
        Methods of this library that it stands beside, best match first; empty where there is none.
    values : mapping
        From tasks to mean and deviation, None where the paper gives no deviation.
    mean : float, optional
        Mean over the tasks as printed.
    """

    name: str
    methods: tuple[str, ...]
    values: Mapping[str, tuple[float, float | None]]
    mean: float | None


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: the network it was made with, and its rows."""

    network: str
    rows: tuple[PaperRow, ...]


def paper_table(name: str) -> PaperTable:
    """One of the paper's tables of accuracies in percent.

    Parameters
    ----------
    name : str
        One of `paper_table_names`.

    Examples
    --------
    >>> from bures.experiments import paper_table
    >>> {row.name: row.values["usps:mnist"] for row in paper_table("digits").rows}["CKB"]
    (96.6, 0.4)
    """
    tables = _content()
    if name not in tables:
        raise ValueError(f"paper={name!r} is unknown; accepted are {', '.join(tables)}")
    table = tables[name]
    rows = []
    for row in table["rows"]:
        pairs = [tuple(value) if isinstance(value, list) else (value, None) for value in row["values"]]
        values = dict(zip(table["tasks"], pairs, strict=True))
        rows.append(PaperRow(row["name"], tuple(row["method"]), values, row.get("mean")))
    return PaperTable(table["network"], tuple(rows))


def paper_table_names() -> list[str]:
    """Names of the paper's tables.

    Returns
    -------
    list of str
        What `paper_table` takes.

    Examples
    --------
    >>> from bures.experiments import paper_table_names
    >>> "digits" in paper_table_names()
    True
    """
    return list(_content())


@cache
def _content() -> dict[str, Any]:
    text = (files("bures.experiments") / "paper_tables.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content
