"""How messages say things that several parts of the package have to say."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["listed"]


def listed(names: Iterable[object], most: int = 5, *, noun: str = "", separator: str = ", ") -> str:
    """The first of several names, and how many more there are.

    Parameters
    ----------
    names : iterable
        What is named, as ``str`` gives it.
    most : int, optional
        How many are named.
    noun : str, optional
        What they are, in the singular; it stands before them, in the plural where there are several.
    separator : str, optional

    Examples
    --------
    >>> from bures.wording import listed
    >>> listed(range(8), 3)
    '0, 1, 2, ... and 5 more'
    >>> listed(["cat"], noun="class"), listed(["cat", "dog"], noun="class")
    ('class cat', 'classes cat, dog')
    """
    words = [str(name) for name in names]
    hidden = len(words) - most
    text = separator.join([*words[:most], f"... and {hidden} more"] if hidden > 0 else words)
    if not noun:
        return text
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{noun if len(words) == 1 else plural} {text}"
