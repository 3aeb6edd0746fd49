"""Tables of the documentation that are made from results: ``<!-- table NAME -->``, the table, ``<!-- end -->``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bures.files import write_text

__all__ = ["check_only", "fill_tables", "markdown_table", "update"]


def fill_tables(text: str, known: Mapping[str, Callable[[], str]]) -> str:
    """A page with the tables after its markers brought up to date."""

    def fill(match: re.Match[str]) -> str:
        if match[2] not in known:
            raise ValueError(f"no table is called {match[2]!r}; known are {', '.join(known)}")
        return f"{match[1]}\n\n{known[match[2]]()}\n\n<!-- end -->"

    return re.sub(r"(<!-- table ([^\n]+?) -->)\n.*?<!-- end -->", fill, text, flags=re.S)


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[object]], sides: str) -> str:
    """A table in Markdown; ``sides`` has a letter for each column, l where its text stands to the left, else r."""
    rules = [{"l": "---", "r": "---:"}[side] for side in sides]
    assert len(rules) == len(heads)
    bars = "\\|"  # in a cell they would end it
    lines = [heads, rules, *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", bars) for cell in line) + " |" for line in lines)


def check_only(description: str | None, arguments: list[str] | None = None) -> bool:
    """What the command line of a tool that fills pages says: whether pages are only compared."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 where a page is out of date")
    return bool(parser.parse_args(arguments).check)


def update(page: Path, fill: Callable[[str], str], *, check: bool) -> bool:
    """Bring a page up to date, or only compare; whether it was out of date."""
    text = page.read_text(encoding="utf-8")
    new = fill(text)
    if new == text:
        return False
    tool = Path(sys.argv[0]).name
    print(f"{page.name} is out of date: run python tools/{tool}" if check else f"updated {page.name}")
    if not check:
        write_text(page, new)
    return True
