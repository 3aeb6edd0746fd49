"""All targets, made by importing their files."""

from tests.fuzz import (
    targets_data,
    targets_estimators,
    targets_losses,
    targets_metrics,
    targets_moments,
    targets_selection,
    targets_testing,
)

__all__ = [
    "targets_data",
    "targets_estimators",
    "targets_losses",
    "targets_metrics",
    "targets_moments",
    "targets_selection",
    "targets_testing",
]
