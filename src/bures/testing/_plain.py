"""Results as plain Python objects, for JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples and arrays as lists, NumPy's numbers as Python's, and names as strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
