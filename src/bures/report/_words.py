"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["MINUS", "count", "duration", "joined", "number", "percent", "points", "shorten"]

MINUS = "\N{MINUS SIGN}"
THIN = "\N{NARROW NO-BREAK SPACE}"
LONGEST = 60  # letters of a name that are shown


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent; a dash where there is none."""
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f}{THIN}%"


def points(difference: float | None) -> str:
    """A difference of shares in percentage points, always with its sign."""
    if difference is None or not math.isfinite(difference):
        return "–"
    rounded = round(100 * difference, 1)
    sign = "±" if rounded == 0 else "+" if rounded > 0 else MINUS
    return f"{sign}{abs(rounded):.1f}"


def count(n: int) -> str:
    """A whole number with groups of three digits.

    Examples
    --------
    >>> from bures.report._words import count
    >>> count(1234567) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"
    True
    """
    return f"{n:,}".replace(",", THIN)


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}".replace("-", MINUS)


def duration(seconds: float | None) -> str:
    """Seconds as hours, minutes and seconds.

    Examples
    --------
    >>> from bures.report._words import duration
    >>> duration(7.25), duration(75), duration(7380)
    ('7.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def joined(names: Sequence[str]) -> str:
    """Names in a sentence.

    Examples
    --------
    >>> from bures.report._words import joined
    >>> joined(["ckb"]), joined(["ckb", "ckw"]), joined(["ckb", "ckw", "dann"])
    ('ckb', 'ckb and ckw', 'ckb, ckw and dann')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def shorten(text: str) -> str:
    """The end of a long name, where file names differ."""
    return text if len(text) <= LONGEST else "…" + text[1 - LONGEST :]
