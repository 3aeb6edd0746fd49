"""Several runs side by side: comparisons of methods, sweeps, their tables and figures."""

from bures.experiments._comparison import Comparison, compare
from bures.experiments._feature_figure import feature_figure
from bures.experiments._sweep import Cell, Sweep, read_results, run_sweep
from bures.experiments._tables import accuracy_table, to_markdown

__all__ = [
    "Cell",
    "Comparison",
    "Sweep",
    "accuracy_table",
    "compare",
    "feature_figure",
    "read_results",
    "run_sweep",
    "to_markdown",
]
