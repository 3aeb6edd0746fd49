"""Several runs side by side: comparisons of methods, sweeps, the grids of tables, their tables and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures.experiments._bench_table import BenchTable as BenchTable
    from bures.experiments._bench_table import bench_table as bench_table
    from bures.experiments._cell import Cell as Cell
    from bures.experiments._comparison import Comparison as Comparison
    from bures.experiments._comparison import compare as compare
    from bures.experiments._elsewhere import finished_elsewhere as finished_elsewhere
    from bures.experiments._elsewhere import grid_results as grid_results
    from bures.experiments._feature_figure import feature_figure as feature_figure
    from bures.experiments._grid import Grid as Grid
    from bures.experiments._grid import Stage as Stage
    from bures.experiments._grid import grid_names as grid_names
    from bures.experiments._grid import load_grid as load_grid
    from bures.experiments._ledger import Ledger as Ledger
    from bures.experiments._ledger import read_results as read_results
    from bures.experiments._outcomes import epoch_accuracies as epoch_accuracies
    from bures.experiments._outcomes import outcomes as outcomes
    from bures.experiments._paper import paper_table as paper_table
    from bures.experiments._paper import paper_table_names as paper_table_names
    from bures.experiments._rank_figure import rank_figure as rank_figure
    from bures.experiments._recipe_changes import changed_fields as changed_fields
    from bures.experiments._recipe_changes import changed_recipes as changed_recipes
    from bures.experiments._render import render_table as render_table
    from bures.experiments._search_space import SearchSpace as SearchSpace
    from bures.experiments._search_space import load_space as load_space
    from bures.experiments._shallow import ShallowCell as ShallowCell
    from bures.experiments._shallow import shallow_names as shallow_names
    from bures.experiments._significance import PairedTest as PairedTest
    from bures.experiments._significance import Ranking as Ranking
    from bures.experiments._significance import accuracy_matrix as accuracy_matrix
    from bures.experiments._significance import nemenyi as nemenyi
    from bures.experiments._significance import paired_tests as paired_tests
    from bures.experiments._significance import rank_methods as rank_methods
    from bures.experiments._sweep import run_sweep as run_sweep
    from bures.experiments._sweep import run_sweeps as run_sweeps
    from bures.experiments._sweep_work import Event as Event
    from bures.experiments._sweep_work import InterruptedSweep as InterruptedSweep
    from bures.experiments._sweep_work import Sweep as Sweep
    from bures.experiments._tables import accuracy_table as accuracy_table
    from bures.experiments._tables import to_markdown as to_markdown
    from bures.experiments._tuning import TrialResult as TrialResult
    from bures.experiments._tuning import Tuning as Tuning
    from bures.experiments._tuning import tune as tune
    from bures.testing._aggregate import holm as holm

# Tables need no matplotlib and figures no sweep, so each name loads its own module only.
_HOMES = {
    "BenchTable": "bures.experiments._bench_table",
    "bench_table": "bures.experiments._bench_table",
    "Cell": "bures.experiments._cell",
    "Comparison": "bures.experiments._comparison",
    "compare": "bures.experiments._comparison",
    "finished_elsewhere": "bures.experiments._elsewhere",
    "grid_results": "bures.experiments._elsewhere",
    "feature_figure": "bures.experiments._feature_figure",
    "Grid": "bures.experiments._grid",
    "Stage": "bures.experiments._grid",
    "grid_names": "bures.experiments._grid",
    "load_grid": "bures.experiments._grid",
    "Ledger": "bures.experiments._ledger",
    "read_results": "bures.experiments._ledger",
    "epoch_accuracies": "bures.experiments._outcomes",
    "outcomes": "bures.experiments._outcomes",
    "paper_table": "bures.experiments._paper",
    "paper_table_names": "bures.experiments._paper",
    "rank_figure": "bures.experiments._rank_figure",
    "changed_fields": "bures.experiments._recipe_changes",
    "changed_recipes": "bures.experiments._recipe_changes",
    "render_table": "bures.experiments._render",
    "ShallowCell": "bures.experiments._shallow",
    "shallow_names": "bures.experiments._shallow",
    "PairedTest": "bures.experiments._significance",
    "Ranking": "bures.experiments._significance",
    "accuracy_matrix": "bures.experiments._significance",
    "holm": "bures.testing._aggregate",
    "nemenyi": "bures.experiments._significance",
    "paired_tests": "bures.experiments._significance",
    "rank_methods": "bures.experiments._significance",
    "Event": "bures.experiments._sweep_work",
    "InterruptedSweep": "bures.experiments._sweep_work",
    "SearchSpace": "bures.experiments._search_space",
    "load_space": "bures.experiments._search_space",
    "Sweep": "bures.experiments._sweep_work",
    "run_sweep": "bures.experiments._sweep",
    "run_sweeps": "bures.experiments._sweep",
    "accuracy_table": "bures.experiments._tables",
    "to_markdown": "bures.experiments._tables",
    "TrialResult": "bures.experiments._tuning",
    "Tuning": "bures.experiments._tuning",
    "tune": "bures.experiments._tuning",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
