"""Distances between domains, one mathematical object per file."""

from bures.metrics._bures import bures
from bures.metrics._bures_covariance import bures_covariance
from bures.metrics._ckb import ckb
from bures.metrics._ckw import MissingClassWarning, ckw
from bures.metrics._explain import explain
from bures.metrics._explanation import ClassTerms, Explanation
from bures.metrics._kernel_bures import kernel_bures
from bures.metrics._mmd import mmd

__all__ = [
    "ClassTerms",
    "Explanation",
    "MissingClassWarning",
    "bures",
    "bures_covariance",
    "ckb",
    "ckw",
    "explain",
    "kernel_bures",
    "mmd",
]
