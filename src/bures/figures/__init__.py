"""Figures by name, from ledgers, manifests and run folders or computed by the library; all in one style."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures.figures._ablation import ablation_figure as ablation_figure
    from bures.figures._ablation import ablation_table as ablation_table
    from bures.figures._alignment import AlignmentState as AlignmentState
    from bures.figures._alignment import alignment_figure as alignment_figure
    from bures.figures._alignment import alignment_states as alignment_states
    from bures.figures._blocks import Block as Block
    from bures.figures._blocks import network_blocks as network_blocks
    from bures.figures._convergence import convergence_figure as convergence_figure
    from bures.figures._convergence import convergence_table as convergence_table
    from bures.figures._convergence import read_convergence as read_convergence
    from bures.figures._hyperparameters import HyperparameterGrid as HyperparameterGrid
    from bures.figures._hyperparameters import hyperparameter_figure as hyperparameter_figure
    from bures.figures._hyperparameters import hyperparameter_grid as hyperparameter_grid
    from bures.figures._network import network_figure as network_figure
    from bures.figures._registry import FigureInfo as FigureInfo
    from bures.figures._registry import draw_figure as draw_figure
    from bures.figures._registry import figure_info as figure_info
    from bures.figures._registry import figure_names as figure_names
    from bures.figures._save import save_figure as save_figure
    from bures.figures._style import Style as Style
    from bures.figures._style import style_named as style_named
    from bures.figures._time import time_figure as time_figure
    from bures.figures._time import time_table as time_table
    from bures.figures._training import run_results as run_results
    from bures.figures._training import training_curves as training_curves
    from bures.figures._training import training_figure as training_figure
    from bures.figures._tsne import FeatureState as FeatureState
    from bures.figures._tsne import a_distance as a_distance
    from bures.figures._tsne import feature_state as feature_state
    from bures.figures._tsne import run_feature_state as run_feature_state
    from bures.figures._tsne import tsne_figure as tsne_figure
    from bures.figures._validators import grid_ledgers as grid_ledgers
    from bures.figures._validators import validator_figure as validator_figure
    from bures.figures._validators import validator_table as validator_table

_HOMES = {
    "ablation_figure": "bures.figures._ablation",
    "ablation_table": "bures.figures._ablation",
    "AlignmentState": "bures.figures._alignment",
    "alignment_figure": "bures.figures._alignment",
    "alignment_states": "bures.figures._alignment",
    "Block": "bures.figures._blocks",
    "network_blocks": "bures.figures._blocks",
    "convergence_figure": "bures.figures._convergence",
    "convergence_table": "bures.figures._convergence",
    "read_convergence": "bures.figures._convergence",
    "HyperparameterGrid": "bures.figures._hyperparameters",
    "hyperparameter_figure": "bures.figures._hyperparameters",
    "hyperparameter_grid": "bures.figures._hyperparameters",
    "network_figure": "bures.figures._network",
    "FigureInfo": "bures.figures._registry",
    "draw_figure": "bures.figures._registry",
    "figure_info": "bures.figures._registry",
    "figure_names": "bures.figures._registry",
    "save_figure": "bures.figures._save",
    "Style": "bures.figures._style",
    "style_named": "bures.figures._style",
    "time_figure": "bures.figures._time",
    "time_table": "bures.figures._time",
    "run_results": "bures.figures._training",
    "training_curves": "bures.figures._training",
    "training_figure": "bures.figures._training",
    "FeatureState": "bures.figures._tsne",
    "a_distance": "bures.figures._tsne",
    "feature_state": "bures.figures._tsne",
    "run_feature_state": "bures.figures._tsne",
    "tsne_figure": "bures.figures._tsne",
    "grid_ledgers": "bures.figures._validators",
    "validator_figure": "bures.figures._validators",
    "validator_table": "bures.figures._validators",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
