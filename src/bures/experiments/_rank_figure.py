"""The critical-difference diagram: average ranks on a line, methods that are not told apart joined by bars."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from bures.experiments._significance import Ranking

__all__ = ["rank_figure"]

LINE = 0.27  # inches between labels
SCALE = 4.4  # inches of the axis
INK, BAR = "0.25", "C0"

Place = Callable[[float], float]  # from a rank to where it lies on the axis


def rank_figure(ranking: Ranking, *, title: str = "") -> Figure:
    """Average ranks of methods, the best on the left, with Nemenyi's critical difference.

    Parameters
    ----------
    ranking : Ranking
        As `rank_methods` gives it.
    title : str, optional
        Above the diagram.

    Returns
    -------
    Figure
        Bars join methods whose ranks differ by less than the critical difference.

    Examples
    --------
    >>> import pandas as pd
    >>> from bures.experiments import rank_figure, rank_methods
    >>> matrix = pd.DataFrame({"a": [9.0, 8, 9, 9], "b": [5.0, 5, 5, 9], "c": [1.0, 2, 3, 4]})
    >>> figure = rank_figure(rank_methods(matrix), title="Three methods")
    """
    names, k = list(ranking.ranks), len(ranking.ranks)
    groups = ranking.groups()
    half = math.ceil(k / 2)
    bars = 0.16 * len(groups) + 0.2  # inches below the axis
    height = 1.3 + bars + LINE * half
    side = 0.085 * max(map(len, names)) + 0.65  # inches for the labels
    left, right = side, side + SCALE
    figure = Figure(figsize=(right + side, height))
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axis.set_axis_off()
    top = height - 1.05
    axis.set(xlim=(0, right + side), ylim=(0, height))

    def place(rank: float) -> float:
        return left + (rank - 1) / max(k - 1, 1) * (right - left)

    _scale(axis, place, k, top)
    _difference(axis, place, ranking, top + 0.52, right + side - 0.15)
    for number, group in enumerate(groups):
        y = top - 0.18 - 0.16 * number
        ends = [place(ranking.ranks[group[0]]) - 0.04, place(ranking.ranks[group[-1]]) + 0.04]
        axis.plot(ends, [y, y], color=BAR, lw=3.5, solid_capstyle="round")
    for number, name in enumerate(names):
        on_left = number < half
        step = number if on_left else k - 1 - number
        edge = left - 0.15 if on_left else right + 0.15
        _label(axis, name, ranking.ranks[name], place(ranking.ranks[name]), top, (edge, top - bars - LINE * step - 0.1))
    axis.text(0.15, height - 0.12, title, va="top", fontsize=11, weight="bold")
    axis.text(0.15, height - 0.36, _caption(ranking), va="top", fontsize=8, color=INK)
    return figure


def _scale(axis: Any, place: Place, k: int, top: float) -> None:
    axis.plot([place(1), place(k)], [top, top], color=INK, lw=1)
    step = 1 if k <= 15 else 2 if k <= 30 else 5
    for rank in range(1, k + 1, step):
        axis.plot([place(rank)] * 2, [top, top + 0.07], color=INK, lw=1)
        axis.text(place(rank), top + 0.1, str(rank), ha="center", va="bottom", fontsize=8)


def _difference(axis: Any, place: Place, ranking: Ranking, y: float, end: float) -> None:
    """The length that counts, drawn to the scale of the axis."""
    span = place(1 + ranking.critical_difference) - place(1)
    start = end - span
    axis.plot([start, start + span], [y, y], color=INK, lw=1.5)
    for x in (start, start + span):
        axis.plot([x, x], [y - 0.05, y + 0.05], color=INK, lw=1.5)
    text = f"critical difference {ranking.critical_difference:.2f}"
    axis.text(start + span, y + 0.08, text, ha="right", va="bottom", fontsize=8)


def _label(axis: Any, name: str, rank: float, x: float, top: float, corner: tuple[float, float]) -> None:
    """A method beside the axis, and the line that leads to its rank."""
    edge, y = corner
    on_left = edge < x
    axis.plot([x, x, edge], [top, y, y], color=INK, lw=0.7)
    axis.plot([x], [top], "o", color=INK, ms=3)
    text = f"{name}  {rank:.1f}" if on_left else f"{rank:.1f}  {name}"
    side = {"ha": "right", "x": edge - 0.06} if on_left else {"ha": "left", "x": edge + 0.06}
    axis.text(y=y, s=text, va="center", fontsize=9, **side)


def _caption(ranking: Ranking) -> str:
    friedman = "" if math.isnan(ranking.p) else f"; Friedman p = {ranking.p:.2g}"
    return f"average rank over {ranking.n} {ranking.over}, 1 is best{friedman}"
