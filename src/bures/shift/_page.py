"""The shift report as an HTML page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import resources

import numpy as np

from bures.shift._report import ClassShift, ShiftReport, has_shifted
from bures.testing import ShiftTest

__all__ = ["render"]

CLASSES_LISTED = 200
BINS = 36
TITLES = {"label": "Label shift", "marginal": "Marginal shift", "conditional": "Conditional shift"}
ASKED = {
    "label": "Are the classes as frequent? P(Y)",
    "marginal": "Do the features look alike as a whole? P(X)",
    "conditional": "Do the classes themselves look alike? P(X|Y)",
}


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram, in percent of the picture."""

    x: float
    width: float
    height: float


@dataclass(frozen=True)
class Histogram:
    """A null sample and where the observed statistic lies, in percent of the picture."""

    bars: tuple[Bar, ...]
    observed: float


def render(report: ShiftReport, title: str | None) -> str:
    """The page. Every text of the report is escaped: class names come from files."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": _number, "percent": _percent}
    template = environment.from_string(resources.files("bures.shift").joinpath("page.html.j2").read_text("utf-8"))
    ranked = report.ranked_classes()
    shown = ranked[:CLASSES_LISTED]
    widest = max([max(row.frequency_source, row.frequency_target, _or_zero(row.high)) for row in shown], default=1.0)
    strongest = max([_or_zero(row.effect_size) for row in shown], default=0.0)
    return template.render(
        report=report,
        title=title,
        titles=TITLES,
        asked=ASKED,
        pictures=_pictures(report),
        shown=shown,
        hidden=len(ranked) - len(shown),
        width=lambda value: _share(value, widest),
        strength=lambda row: _strength(row, strongest),
        has_shifted=lambda row: has_shifted(report, row),
    )


def _pictures(report: ShiftReport) -> dict[str, Histogram]:
    tests = {"marginal": report.marginal, "conditional": report.conditional}
    return {name: _histogram(test) for name, test in tests.items() if test is not None}


def _histogram(test: ShiftTest) -> Histogram:
    low, high = float(min(test.null.min(), test.statistic)), float(max(test.null.max(), test.statistic))
    # Values that differ by rounding alone need bins that are wider than it.
    room = max((high - low) * 0.04, 1e-9 * max(abs(low), abs(high))) or 1.0
    counts, edges = np.histogram(test.null, bins=BINS, range=(low - room, high + room))
    span = edges[-1] - edges[0]
    bars = tuple(
        Bar(100 * (left - edges[0]) / span, 100 / BINS, 100 * count / counts.max())
        for left, count in zip(edges[:-1].tolist(), counts.tolist(), strict=True)
        if count
    )
    return Histogram(bars, 100 * (test.statistic - edges[0]) / span)


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _share(value: float, largest: float) -> float:
    return round(100 * _or_zero(value) / largest, 2) if largest > 0 else 0.0


def _strength(row: ClassShift, strongest: float) -> float:
    return _share(max(_or_zero(row.effect_size), 0.0), strongest)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"
