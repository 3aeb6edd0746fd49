"""Runs as one HTML page that opens anywhere: what was run, what came of it, and where it goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures.report._calibration import Reliability as Reliability
    from bures.report._calibration import reliability as reliability
    from bures.report._runs import RunRecord as RunRecord
    from bures.report._runs import read_runs as read_runs
    from bures.report._write import write_report as write_report

_HOMES = {
    "Reliability": "bures.report._calibration",
    "reliability": "bures.report._calibration",
    "RunRecord": "bures.report._runs",
    "read_runs": "bures.report._runs",
    "write_report": "bures.report._write",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
