"""Measure and remove conditional domain shift: the difference between P(X|Y) in two domains.

Names are loaded on first use, so ``import bures`` is quick and pulls in no part that is not asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bures import data
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

__all__ = [
    "BuresLoss",
    "CKBLoss",
    "CKWLoss",
    "ClassMeansLoss",
    "Explanation",
    "KernelBuresLoss",
    "MMDLoss",
    "MissingClassWarning",
    "bures",
    "bures_covariance",
    "ckb",
    "ckw",
    "data",
    "explain",
    "kernel_bures",
    "mmd",
]

__version__ = "0.1.0"

_HOMES = {name: "bures.losses" if name.endswith("Loss") else "bures.metrics" for name in __all__ if name != "data"}


def __getattr__(name: str) -> Any:
    if name == "data":
        return import_module("bures.data")
    if name not in _HOMES:
        raise AttributeError(f"module 'bures' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
