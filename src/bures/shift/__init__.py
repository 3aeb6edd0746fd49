"""Which shift there is between two domains: of P(Y), of P(X), of P(X|Y)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures.shift._analyse import shift_report
    from bures.shift._report import Advice, ClassShift, Finding, ShiftReport

__all__ = ["Advice", "ClassShift", "Finding", "ShiftReport", "shift_report"]

_HOMES = dict.fromkeys(("Advice", "ClassShift", "Finding", "ShiftReport"), "bures.shift._report")
_HOMES["shift_report"] = "bures.shift._analyse"

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
