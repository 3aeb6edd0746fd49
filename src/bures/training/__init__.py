"""Training on Lightning: recipes, run folders that describe themselves, and resumption after any interruption."""

from bures.training._adapt import Run, adapt
from bures.training._assembly import NetworkSpec, assemble
from bures.training._assessment import Assessment, ClassResult, Confusion, assess
from bures.training._augment import AUGMENTATIONS, Augmentation
from bures.training._batches import PairData, Step
from bures.training._checkpoint import CheckpointError
from bures.training._checkpointer import StoppedBySignal
from bures.training._evaluation import Evaluation, Evaluator, effective_classes, information
from bures.training._export import OnnxExport, export_onnx
from bures.training._gather import gather_rows
from bures.training._inputs import Inputs
from bures.training._module import AdaptationModule
from bures.training._plan import SamplePlan
from bures.training._prediction import Predictions, predict_samples
from bures.training._recipe import Recipe, load_recipe, recipe_names
from bures.training._record import NonFiniteLossError, StepRecord, TrainingError
from bures.training._recorder import CollapseWarning
from bures.training._run_folder import RunFolder, checksum
from bures.training._saved_model import SavedModel, load_model, save_model

__all__ = [
    "AUGMENTATIONS",
    "AdaptationModule",
    "Assessment",
    "Augmentation",
    "CheckpointError",
    "ClassResult",
    "CollapseWarning",
    "Confusion",
    "Evaluation",
    "Evaluator",
    "Inputs",
    "NetworkSpec",
    "NonFiniteLossError",
    "OnnxExport",
    "PairData",
    "Predictions",
    "Recipe",
    "Run",
    "RunFolder",
    "SamplePlan",
    "SavedModel",
    "Step",
    "StepRecord",
    "StoppedBySignal",
    "TrainingError",
    "adapt",
    "assemble",
    "assess",
    "checksum",
    "effective_classes",
    "export_onnx",
    "gather_rows",
    "information",
    "load_model",
    "load_recipe",
    "predict_samples",
    "recipe_names",
    "save_model",
]
