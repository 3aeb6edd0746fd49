"""Adaptation methods, one per file. A method is the part of the objective that sees both domains."""

from bures.methods._method import Batch, ConditionalTerm, FeatureTerm, Method, Objective, Schedule, Term
from bures.methods._own_training import OwnStep, OwnTraining, StepReport
from bures.methods._registry import MethodInfo, make_method, method_info, method_names, method_options, register

__all__ = [
    "Batch",
    "ConditionalTerm",
    "FeatureTerm",
    "Method",
    "MethodInfo",
    "Objective",
    "OwnStep",
    "OwnTraining",
    "Schedule",
    "StepReport",
    "Term",
    "make_method",
    "method_info",
    "method_names",
    "method_options",
    "register",
]
