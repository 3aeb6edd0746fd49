"""The one look of all figures: colours that colour-blind readers tell apart, and never colour alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.patheffects import withStroke

from bures.arrays import check_choice

__all__ = ["STYLES", "Style", "style_named"]

# Okabe and Ito's palette; on white without its yellow, which is too faint there, on dark without its black.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DARK_PALETTE = ("#56B4E9", "#E69F00", "#2FC99A", "#E39CC4", "#F0E442", "#4C9BE0", "#F2824A")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
HATCHES = ("", "///", "\\\\\\", "...", "xxx", "---", "ooo", "+++")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


@dataclass(frozen=True)
class Style:
    """Colours and sizes of a figure.

    Parameters
    ----------
    name : str
        "light", "dark" or "print".
    ink, paper, faint : str
        Colours of text and lines, of the ground, and of what should not stand out.
    palette : tuple of str
        Colours of what is compared, in this order.
    size : float
        Font size in points.
    hatched : bool
        Whether bars are hatched too: a printer may know no colours.

    Examples
    --------
    >>> from bures.figures import style_named
    >>> style = style_named("dark")
    >>> style.colour(0), style.marker(1), style.colour(7) == style.colour(0)
    ('#56B4E9', 's', False)
    """

    name: str
    ink: str
    paper: str
    faint: str
    palette: tuple[str, ...]
    size: float
    hatched: bool

    def colour(self, number: int) -> str:
        """Colour of the thing with this number; after the last they come again, half way to grey."""
        again, place = divmod(number, len(self.palette))
        if not again % 2:
            return self.palette[place]
        red, green, blue = (0.5 * value + 0.25 for value in to_rgb(self.palette[place]))
        return to_hex((red, green, blue))

    def marker(self, number: int) -> str:
        """Marker of the thing with this number."""
        return MARKERS[number % len(MARKERS)]

    def hatch(self, number: int) -> str:
        """Hatching of the bar with this number."""
        return HATCHES[number % len(HATCHES)] if self.hatched else ""

    def dash(self, number: int) -> Any:
        """Line style of the thing with this number."""
        return DASHES[number % len(DASHES)]

    @property
    def error_bar(self) -> dict[str, Any]:
        """How error bars are drawn: seen on the ground and on bars of any colour."""
        around = [withStroke(linewidth=2.8, foreground=self.paper)]
        return {"color": self.ink, "capsize": 3, "lw": 1.2, "path_effects": around}

    @property
    def heat(self) -> LinearSegmentedColormap:
        """A scale of one hue, from the ground to a strong colour: its lightness says as much as its colour."""
        ends = ["#E8F1F8", "#0072B2", "#00263D"] if self.paper == "white" else ["#12324A", "#3A8FC4", "#D5ECFA"]
        return LinearSegmentedColormap.from_list("bures", ends)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Matplotlib's settings within a block; drawing and saving both need them, for ticks are made late."""
        ink, size = self.ink, self.size
        colours = dict.fromkeys(
            ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "legend.labelcolor"), ink
        )
        grounds = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), self.paper)
        defaults: Any = mpl.rcParamsDefault
        settings: Any = {
            **defaults,
            **colours,
            **grounds,
            "font.size": size,
            "axes.titlesize": size + 1,
            "axes.labelsize": size,
            "xtick.labelsize": size - 1,
            "ytick.labelsize": size - 1,
            "legend.fontsize": size - 1,
            "figure.titlesize": size + 2,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "grid.color": self.faint,
            "grid.linewidth": 0.6,
            "hatch.linewidth": 0.6,
            "hatch.color": ink,
            "lines.linewidth": 1.6,
            "lines.markersize": 5,
            "legend.frameon": False,
            "legend.facecolor": self.paper,
            "figure.constrained_layout.use": False,
            "svg.hashsalt": "bures",  # the same figure gives the same file
            "pdf.fonttype": 42,
            "savefig.dpi": 200,
        }
        settings = {name: value for name, value in settings.items() if name not in ("backend", "interactive")}
        with mpl.rc_context(settings):
            yield


STYLES = {
    style.name: style
    for style in (
        Style("light", "#1A1A1A", "white", "#C8C8C8", PALETTE, 10.0, False),
        Style("dark", "#ECECEC", "#131416", "#55585E", DARK_PALETTE, 10.0, False),
        Style("print", "black", "white", "#BBBBBB", PALETTE, 9.0, True),
    )
}


def style_named(name: str) -> Style:
    """The style of a name.

    Parameters
    ----------
    name : {"light", "dark", "print"}
        For white pages, for dark pages, and for paper, where bars are hatched too.

    Examples
    --------
    >>> from bures.figures import style_named
    >>> style_named("print").hatched
    True
    """
    check_choice("style", name, tuple(STYLES))
    return STYLES[name]
