"""Training on Lightning: recipes, run folders that describe themselves, and resumption after any interruption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures.selection._predictions import information as information
    from bures.training._adapt import Run as Run
    from bures.training._adapt import adapt as adapt
    from bures.training._assembly import NetworkSpec as NetworkSpec
    from bures.training._assembly import assemble as assemble
    from bures.training._assessment import Assessment as Assessment
    from bures.training._assessment import ClassResult as ClassResult
    from bures.training._assessment import Confusion as Confusion
    from bures.training._assessment import assess as assess
    from bures.training._augment import AUGMENTATIONS as AUGMENTATIONS
    from bures.training._augment import Augmentation as Augmentation
    from bures.training._batches import PairData as PairData
    from bures.training._batches import Step as Step
    from bures.training._errors import CheckpointError as CheckpointError
    from bures.training._errors import CollapseWarning as CollapseWarning
    from bures.training._errors import NonFiniteLossError as NonFiniteLossError
    from bures.training._errors import RunInUseError as RunInUseError
    from bures.training._errors import StoppedBySignal as StoppedBySignal
    from bures.training._errors import StopTraining as StopTraining
    from bures.training._errors import TrainingError as TrainingError
    from bures.training._evaluation import Evaluation as Evaluation
    from bures.training._evaluation import Evaluator as Evaluator
    from bures.training._evaluation import effective_classes as effective_classes
    from bures.training._export import OnnxExport as OnnxExport
    from bures.training._export import export_onnx as export_onnx
    from bures.training._gather import gather_rows as gather_rows
    from bures.training._inputs import Inputs as Inputs
    from bures.training._module import AdaptationModule as AdaptationModule
    from bures.training._plan import SamplePlan as SamplePlan
    from bures.training._prediction import Predictions as Predictions
    from bures.training._prediction import predict_samples as predict_samples
    from bures.training._queue import FeatureQueue as FeatureQueue
    from bures.training._recipe import Recipe as Recipe
    from bures.training._recipe_files import load_recipe as load_recipe
    from bures.training._recipe_files import recipe_names as recipe_names
    from bures.training._record import StepRecord as StepRecord
    from bures.training._refresh import refresh_samples as refresh_samples
    from bures.training._run_folder import RunFolder as RunFolder
    from bures.training._run_folder import checksum as checksum
    from bures.training._saved_model import SavedModel as SavedModel
    from bures.training._saved_model import load_model as load_model
    from bures.training._saved_model import save_model as save_model

# Recipes, models and records need neither Lightning nor matplotlib, so each name loads its own module only.
_HOMES = {
    "Run": "bures.training._adapt",
    "adapt": "bures.training._adapt",
    "NetworkSpec": "bures.training._assembly",
    "assemble": "bures.training._assembly",
    "Assessment": "bures.training._assessment",
    "ClassResult": "bures.training._assessment",
    "Confusion": "bures.training._assessment",
    "assess": "bures.training._assessment",
    "AUGMENTATIONS": "bures.training._augment",
    "Augmentation": "bures.training._augment",
    "PairData": "bures.training._batches",
    "Step": "bures.training._batches",
    "CheckpointError": "bures.training._errors",
    "StopTraining": "bures.training._errors",
    "StoppedBySignal": "bures.training._errors",
    "Evaluation": "bures.training._evaluation",
    "Evaluator": "bures.training._evaluation",
    "effective_classes": "bures.training._evaluation",
    "information": "bures.selection._predictions",
    "OnnxExport": "bures.training._export",
    "export_onnx": "bures.training._export",
    "gather_rows": "bures.training._gather",
    "Inputs": "bures.training._inputs",
    "AdaptationModule": "bures.training._module",
    "SamplePlan": "bures.training._plan",
    "Predictions": "bures.training._prediction",
    "predict_samples": "bures.training._prediction",
    "Recipe": "bures.training._recipe",
    "load_recipe": "bures.training._recipe_files",
    "recipe_names": "bures.training._recipe_files",
    "NonFiniteLossError": "bures.training._errors",
    "FeatureQueue": "bures.training._queue",
    "StepRecord": "bures.training._record",
    "RunInUseError": "bures.training._errors",
    "TrainingError": "bures.training._errors",
    "CollapseWarning": "bures.training._errors",
    "refresh_samples": "bures.training._refresh",
    "RunFolder": "bures.training._run_folder",
    "checksum": "bures.training._run_folder",
    "SavedModel": "bures.training._saved_model",
    "load_model": "bures.training._saved_model",
    "save_model": "bures.training._saved_model",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
