"""Measure and remove conditional domain shift: the difference between P(X|Y) in two domains.

Names are loaded on first use, so ``import bures`` is quick and pulls in no part that is not asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures import data, selection, testing
    from bures import estimators as estimators
    from bures import experiments as experiments
    from bures import feature_maps as feature_maps
    from bures import figures as figures
    from bures import integrations as integrations
    from bures import losses as losses
    from bures import methods as methods
    from bures import metrics as metrics
    from bures import moments as moments
    from bures import networks as networks
    from bures import report as report
    from bures import running_losses as running_losses
    from bures import shift as shift
    from bures import training as training
    from bures.estimators import CKBAdapter as CKBAdapter
    from bures.estimators import CKBClassifier as CKBClassifier
    from bures.feature_maps import LinearMap, NystroemMap, RandomFourierMap
    from bures.losses import BuresLoss, CKBLoss, CKWLoss, ClassMeansLoss, KernelBuresLoss, MMDLoss
    from bures.metrics import (
        Explanation,
        MissingClassWarning,
        bures,
        bures_covariance,
        ckb,
        ckw,
        explain,
        kernel_bures,
        mmd,
    )
    from bures.moments import ConditionalMoments, MomentDistance
    from bures.running_losses import RunningCKWLoss
    from bures.shift import ShiftReport, shift_report
    from bures.testing import ShiftTest, conditional_test, marginal_test

__all__ = [
    "BuresLoss",
    "CKBLoss",
    "CKWLoss",
    "ClassMeansLoss",
    "ConditionalMoments",
    "Explanation",
    "KernelBuresLoss",
    "LinearMap",
    "MMDLoss",
    "MissingClassWarning",
    "MomentDistance",
    "NystroemMap",
    "RandomFourierMap",
    "RunningCKWLoss",
    "ShiftReport",
    "ShiftTest",
    "bures",
    "bures_covariance",
    "ckb",
    "ckw",
    "conditional_test",
    "data",
    "explain",
    "kernel_bures",
    "marginal_test",
    "mmd",
    "selection",
    "shift_report",
    "testing",
]

__version__ = "0.1.0"

_HOMES = {name: "bures.losses" if name.endswith("Loss") else "bures.metrics" for name in __all__}
_HOMES["RunningCKWLoss"] = "bures.running_losses"
_HOMES |= dict.fromkeys(("LinearMap", "NystroemMap", "RandomFourierMap"), "bures.feature_maps")
_HOMES |= dict.fromkeys(("ConditionalMoments", "MomentDistance"), "bures.moments")
_HOMES |= dict.fromkeys(("ShiftTest", "conditional_test", "marginal_test"), "bures.testing")
_HOMES |= dict.fromkeys(("ShiftReport", "shift_report"), "bures.shift")
# Not in __all__: ``from bures import *`` would load scikit-learn, Lightning and matplotlib.
_HOMES |= {
    name: f"bures.{name}"
    for name in (
        "data",
        "estimators",
        "experiments",
        "feature_maps",
        "figures",
        "integrations",
        "losses",
        "methods",
        "metrics",
        "moments",
        "networks",
        "report",
        "running_losses",
        "selection",
        "shift",
        "testing",
        "training",
    )
}
_HOMES |= dict.fromkeys(("CKBAdapter", "CKBClassifier"), "bures.estimators")

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
