"""How messages say things that several parts of the package have to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["first_line_of", "listed", "reason_of", "table_lines"]


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


def reason_of(error: BaseException, most: int | None = None) -> str:
    r"""What an error says, on one line, cut after so many characters; its kind where it says nothing.

    Examples
    --------
    >>> from bures.wording import reason_of
    >>> reason_of(ValueError("two\n  lines")), reason_of(AssertionError())
    ('two lines', 'AssertionError')
    """
    return " ".join(str(error).split())[:most] or type(error).__name__


def first_line_of(error: BaseException) -> str:
    r"""The first line of what an error says, for those that go on with advice of their own; else as `reason_of`.

    Examples
    --------
    >>> from bures.wording import first_line_of
    >>> first_line_of(RuntimeError("no such device\nFor debugging ...")), first_line_of(RuntimeError())
    ('no such device', 'RuntimeError')
    """
    return str(error).strip().partition("\n")[0].rstrip() or type(error).__name__


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> list[str]:
    """A table of classes as lines of text: the first column to the left, the others to the right.

    Parameters
    ----------
    head : sequence of str
        Names of the columns.
    rows : sequence of sequences of str
        A cell for each column, a row for each class.
    most : int
        How many rows are shown; a last line says how many more there are.

    Examples
    --------
    >>> from bures.wording import table_lines
    >>> for line in table_lines(["class", "n"], [["cat", "12"], ["dog", "7"], ["emu", "1"]], 2):
    ...     print(line)
      class   n
      cat    12
      dog     7
      ... and 1 more classes
    """
    table = [head, *rows[:most]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  " + "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]).rstrip()
        for cells in table
    ]
    hidden = len(rows) - most
    return [*lines, f"  ... and {hidden} more classes"] if hidden > 0 else lines
