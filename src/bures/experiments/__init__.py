"""Several runs side by side: comparisons of methods, sweeps, their tables and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures.experiments._comparison import Comparison as Comparison
    from bures.experiments._comparison import compare as compare
    from bures.experiments._feature_figure import feature_figure as feature_figure
    from bures.experiments._search_space import SearchSpace as SearchSpace
    from bures.experiments._search_space import load_space as load_space
    from bures.experiments._sweep import Cell as Cell
    from bures.experiments._sweep import Sweep as Sweep
    from bures.experiments._sweep import read_results as read_results
    from bures.experiments._sweep import run_sweep as run_sweep
    from bures.experiments._tables import accuracy_table as accuracy_table
    from bures.experiments._tables import to_markdown as to_markdown
    from bures.experiments._tuning import TrialResult as TrialResult
    from bures.experiments._tuning import Tuning as Tuning
    from bures.experiments._tuning import tune as tune

# Tables need no matplotlib and figures no sweep, so each name loads its own module only.
_HOMES = {
    "Comparison": "bures.experiments._comparison",
    "compare": "bures.experiments._comparison",
    "feature_figure": "bures.experiments._feature_figure",
    "SearchSpace": "bures.experiments._search_space",
    "load_space": "bures.experiments._search_space",
    "Cell": "bures.experiments._sweep",
    "Sweep": "bures.experiments._sweep",
    "read_results": "bures.experiments._sweep",
    "run_sweep": "bures.experiments._sweep",
    "accuracy_table": "bures.experiments._tables",
    "to_markdown": "bures.experiments._tables",
    "TrialResult": "bures.experiments._tuning",
    "Tuning": "bures.experiments._tuning",
    "tune": "bures.experiments._tuning",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
