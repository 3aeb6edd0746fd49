"""Fonts for the names of classes, which may be in any script: matplotlib's own font has few of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.font_manager import FontProperties

from bures.wording import listed

__all__ = ["fonts_for"]

BOXES = "Last Resort"  # a font that has a box for every character


@contextmanager
def fonts_for(texts: Iterable[str]) -> Iterator[None]:
    """Let what is drawn in the block find installed fonts that have the characters of ``texts``.

    Warns, once, of characters that no installed font has.

    Examples
    --------
    >>> from bures.experiments._fonts import fonts_for
    >>> with fonts_for(["cat", "dog"]):
    ...     pass
    """
    missing = {character for text in texts for character in text if not character.isspace()}
    missing -= _within(font_manager.findfont(FontProperties()), missing)
    families = []
    for font in font_manager.fontManager.ttflist:
        if not missing:
            break
        if not font.name.startswith(BOXES) and (found := _within(font.fname, missing)):
            families.append(font.name)
            missing -= found
    if missing:
        warnings.warn(
            f"no installed font has {listed(sorted(missing), noun='character')}, which the figure shows as boxes; "
            "install one that has, such as one of the Noto fonts",
            UserWarning,
            stacklevel=3,
        )
    with mpl.rc_context({"font.family": [*mpl.rcParams["font.family"], *families]}):
        yield


def _within(file: str, characters: set[str]) -> set[str]:
    """Those of some characters that a font has."""
    try:
        known = font_manager.get_font(file).get_charmap()
    except (OSError, RuntimeError):  # a font that is listed and gone, or that cannot be read
        return set()
    return {character for character in characters if ord(character) in known}
