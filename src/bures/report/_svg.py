"""Charts as SVG inside the page: colours come from its style sheet, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from bures.report._calibration import Reliability
from bures.report._words import MINUS, percent

__all__ = ["COLOURS", "Change", "Series", "line_chart", "nice_ticks", "reliability_chart", "shift_chart"]

WIDTH, HEIGHT = 260, 168
LEFT, RIGHT, TOP, BOTTOM = 36, 8, 8, 22
DRAWN = 240  # points of a line at most
SMALLEST, ROUNDING = 1e-300, 1e-12  # a range that is smaller than this, or than this share of its ends, is one point
COLOURS = 7  # of the style sheet, beside that of source-only


class Series(NamedTuple):
    """One line: its name, the style of its run, and its points."""

    label: str
    style: int
    x: Sequence[float]
    y: Sequence[float]


def nice_ticks(low: float, high: float, n: int = 4) -> list[float]:
    """About n round numbers that cover an interval.

    Examples
    --------
    >>> from bures.report._svg import nice_ticks
    >>> nice_ticks(0.13, 0.91)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high - low > max(SMALLEST, ROUNDING * max(abs(low), abs(high))):
        low, high = low - 0.5 * (abs(low) or 1), low + 0.5 * (abs(low) or 1)
    raw = (high - low) / n
    exponent = math.floor(math.log10(raw))
    power = 10.0**exponent
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda size: abs(size - raw))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 1 - exponent) for index in range(first, last + 1)]


def line_chart(title: str, series: Sequence[Series], *, as_percent: bool = False) -> Markup:
    """Lines over epochs."""
    values = [value for line in series for value in line.y]
    if as_percent:
        ticks = nice_ticks(max(min(values) - 0.02, 0.0), min(max(values) + 0.02, 1.0))
        ticks = [tick for tick in ticks if -1e-9 <= tick <= 1 + 1e-9]
    else:
        ticks = nice_ticks(min(min(values), 0.0), max(values))
    epochs = [value for line in series for value in line.x]
    first, last = min(epochs), max(epochs)

    def across(epoch: float) -> float:
        share = 0.5 if last == first else (epoch - first) / (last - first)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (value - ticks[0]) / (ticks[-1] - ticks[0]) * (HEIGHT - TOP - BOTTOM)

    parts = [_grid(ticks, up, as_percent), _epoch_axis(first, last, across)]
    for line in series:
        step = max(1, math.ceil(len(line.x) / DRAWN))
        chosen = [*range(0, len(line.x) - 1, step), len(line.x) - 1]
        shown = [(across(line.x[i]), up(line.y[i])) for i in chosen]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in shown)
        end = percent(line.y[-1]) if as_percent else f"{line.y[-1]:.4g}"
        hint = f"{line.label}: {end} in epoch {line.x[-1]:.0f}"
        parts.append(
            f'<g class="run r{line.style}"><title>{escape(hint)}</title><polyline points="{path}"/>'
            f'<circle cx="{shown[-1][0]:.1f}" cy="{shown[-1][1]:.1f}" r="3.2"/></g>'
        )
    summary = "; ".join(f"{line.label} ends at {line.y[-1]:.4g}" for line in series)
    return _svg("lines", WIDTH, HEIGHT, f"{title} by epoch: {summary}", parts)


def _grid(ticks: Sequence[float], up: Callable[[float], float], as_percent: bool) -> str:
    lines = []
    for tick in ticks:
        y = up(tick)
        text = f"{100 * tick:.0f}" if as_percent else f"{tick:.4g}".replace("-", MINUS)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{text}</text>'
        )
    return "".join(lines)


def _epoch_axis(first: float, last: float, across: Callable[[float], float]) -> str:
    span = last - first
    step = max(1, round(span / 4))
    marks = [first] if span == 0 else [first + step * i for i in range(int(span // step) + 1)]
    return "".join(
        f'<text class="tick" x="{across(mark):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{mark:.0f}</text>'
        for mark in marks
    )


class Change(NamedTuple):
    """One row of a chart of changes: a run, its style, and its values before and after."""

    label: str
    style: int
    before: float | None
    after: float | None


def shift_chart(title: str, rows: Sequence[Change]) -> Markup:
    """Values before and after training, a row for each run: an open circle, an arrow, a full circle."""
    values = [value for row in rows for value in (row.before, row.after) if value is not None]
    top = max(values, default=0.0)
    ticks = nice_ticks(0.0, top if top > SMALLEST else 1.0, 3)
    width, height = 340, 30 * len(rows) + 26

    def across(value: float) -> float:
        return 16 + value / ticks[-1] * (width - 34)

    parts = []
    for tick in ticks:
        x = across(tick)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 20}"/>'
            f'<text class="tick" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{tick:.3g}</text>'
        )
    for number, row in enumerate(rows):
        y = 18 + 30 * number
        words = f"{row.label}: {_plain(row.before)} before, {_plain(row.after)} after"
        marks = [f"<title>{escape(words)}</title>"]
        if row.before is not None and row.after is not None:
            marks.append(f'<line x1="{across(row.before):.1f}" x2="{across(row.after):.1f}" y1="{y}" y2="{y}"/>')
        if row.before is not None:
            marks.append(f'<circle class="open" cx="{across(row.before):.1f}" cy="{y}" r="5"/>')
        if row.after is not None:
            marks.append(f'<circle cx="{across(row.after):.1f}" cy="{y}" r="5.5"/>')
        parts.append(f'<g class="run r{row.style}">{"".join(marks)}</g>')
    summary = "; ".join(f"{row.label} {_plain(row.before)} before and {_plain(row.after)} after" for row in rows)
    return _svg("shift", width, height, f"{title}: {summary}", parts)


def _plain(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3g}"


def reliability_chart(label: str, result: Reliability) -> Markup:
    """Accuracy by confidence as bars, the line of perfect calibration, and how many samples each bin has."""
    bins, size, low = len(result.counts), 190, 34
    bar = size / bins
    parts = [_square_grid(size)]
    top = max(int(result.counts.max()), 1)
    for number in range(bins):
        n = int(result.counts[number])
        if not n:
            continue
        accuracy, confidence = float(result.accuracy[number]), float(result.confidence[number])
        x, height = LEFT + number * bar, accuracy * size
        hint = f"confidence {percent(confidence, 0)}: {percent(accuracy, 0)} of {n} right"
        gap_top, gap = TOP + (1 - max(accuracy, confidence)) * size, abs(accuracy - confidence) * size
        parts.append(
            f"<g><title>{escape(hint)}</title>"
            f'<rect class="bar" x="{x + 0.8:.1f}" y="{TOP + size - height:.1f}" width="{bar - 1.6:.1f}" '
            f'height="{height:.1f}"/>'
            f'<rect class="{"over" if confidence > accuracy else "under"}" x="{x + 0.8:.1f}" y="{gap_top:.1f}" '
            f'width="{bar - 1.6:.1f}" height="{gap:.1f}"/>'
            f'<rect class="count" x="{x + 0.8:.1f}" y="{TOP + size + 26:.1f}" width="{bar - 1.6:.1f}" '
            f'height="{max(n / top * low, 0.6):.1f}"/></g>'
        )
    parts.append(f'<line class="ideal" x1="{LEFT}" y1="{TOP + size}" x2="{LEFT + size}" y2="{TOP}"/>')
    total = TOP + size + 26 + low + 16
    parts.append(f'<text class="tick" x="{LEFT + size / 2}" y="{total - 3}" text-anchor="middle">samples</text>')
    title = f"{label}: accuracy by confidence, expected calibration error {percent(result.ece)}"
    return _svg("reliability", LEFT + size + 2 * RIGHT, total, title, parts)


def _square_grid(size: int) -> str:
    lines = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = TOP + (1 - tick) * size, LEFT + tick * size
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + size}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{100 * tick:.0f}</text>'
            f'<text class="tick" x="{x:.1f}" y="{TOP + size + 15}" text-anchor="middle">{100 * tick:.0f}</text>'
        )
    return "".join(lines)


def _svg(kind: str, width: float, height: float, description: str, parts: Sequence[str]) -> Markup:
    return Markup(
        f'<svg class="chart {kind}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(description)}">{"".join(parts)}</svg>'
    )
