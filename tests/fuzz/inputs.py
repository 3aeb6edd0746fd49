"""Arrays as callers pass them: any shape, dtype, scale, container and defect, drawn by hypothesis.

The numbers come from a generator seeded by hypothesis, so that a case is a handful of choices that shrink well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

SCALES = (1.0, 1.0, 1.0, 1e-3, 1e3, 1e-8, 1e8, 1e-15, 1e15, 1e-30, 1e30)
SHAPES = ("normal", "normal", "duplicates", "constant", "zero", "grid", "outlier", "offset", "columns", "one-row-off")
DTYPES = ("float64", "float64", "float32", "float16", "int64", "int8", "uint8", "bool")
CONTAINERS = ("numpy", "numpy", "fortran", "strided", "reversed", "read-only", "swapped", "list", "frame", "torch")
FEATURE_FAULTS = (
    "nan",
    "inf",
    "nan-row",
    "empty",
    "no-columns",
    "three-d",
    "scalar",
    "text",
    "complex",
    "ragged",
    "None",
)
LABEL_FAULTS = ("short", "nan", "empty", "None", "scalar", "three-d", "object", "negative", "complex", "text-mixed")


@dataclass
class Given:
    """What is passed for one argument, whether it is in order, and the plain numbers it stands for."""

    value: Any
    fault: str | None
    plain: NDArray[Any]


def draw_matrix(draw: Any, rng: np.random.Generator, n: int, d: int, scale: float) -> NDArray[np.float64]:
    """Numbers (n, d) of one of the structures that formulas break on."""
    shape = draw(st.sampled_from(SHAPES))
    x = rng.normal(size=(n, d))
    if shape == "duplicates" and n:
        x = x[rng.integers(max(1, n // 3), size=n)]
    elif shape == "constant":
        x = np.full((n, d), rng.normal())
    elif shape == "zero":
        x = np.zeros((n, d))
    elif shape == "grid":
        x = rng.integers(-2, 3, size=(n, d)).astype(float)
    elif shape == "outlier" and n:
        x[rng.integers(n)] *= 1e6
    elif shape == "offset":
        x = 1e4 + x
    elif shape == "columns":
        x = x * 10.0 ** rng.integers(-6, 7, size=d)
    elif shape == "one-row-off" and n:
        x = np.tile(x[:1], (n, 1))
        x[-1] += 1
    return scale * x


def as_dtype(x: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    """The numbers in a dtype; integers are cut to its range, float16 may overflow."""
    if dtype == "bool":
        return x > 0
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        highest = 2.0**62 if limits.bits == 64 else limits.max
        return np.clip(np.round(x), limits.min if limits.min == 0 else -highest, highest).astype(dtype)
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def contain(x: NDArray[Any], container: str) -> Any:
    """The array as a caller may hold it."""
    if container == "fortran":
        return np.asfortranarray(x)
    if container == "strided":
        return np.repeat(x, 2, axis=0)[::2]
    if container == "reversed":
        return x[::-1].copy()[::-1]
    if container == "read-only":
        x = x.copy()
        x.setflags(write=False)
        return x
    if container == "swapped":
        return x.astype(x.dtype.newbyteorder())
    if container == "list":
        return x.tolist()
    if container == "frame":
        import pandas as pd

        return pd.DataFrame(x) if x.ndim == 2 else pd.Series(x)
    if container == "torch":
        return torch.from_numpy(np.ascontiguousarray(x).copy())
    return x


def damage(x: NDArray[Any], fault: str, rng: np.random.Generator) -> Any:
    """The array with a defect that has to be refused."""
    if fault in ("nan", "inf", "nan-row"):
        x = x.astype(np.float64).copy()
        bad = np.nan if fault.startswith("nan") else (-1) ** rng.integers(2) * np.inf
        if x.size:
            row = rng.integers(len(x))
            x[row if fault == "nan-row" or x.ndim == 1 else (row, rng.integers(x.shape[1]))] = bad
        return x
    return {
        "empty": lambda: x[:0],
        "no-columns": lambda: x.reshape(len(x), -1)[:, :0],
        "three-d": lambda: x.reshape(len(x), -1, 1)[..., [0, 0]] if x.ndim == 1 else x[None],
        "scalar": lambda: 1.0,
        "text": lambda: np.full(x.shape, "a"),
        "complex": lambda: x + 1j,
        "ragged": lambda: [[1.0, 2.0], [3.0]],
        "None": lambda: None,
        "short": lambda: x[:-1],
        "object": lambda: np.array([object()] * len(x), dtype=object),
        "negative": lambda: np.where(np.arange(len(x)) == 0, -7, x) if x.ndim == 1 else -x - 1,
        "text-mixed": lambda: [*["a"] * (len(x) - 1), 3.5],
    }[fault]()


def draw_fault(draw: Any, faults: tuple[str, ...], rate: int = 9) -> str | None:
    """One argument in ten has a defect."""
    return draw(st.sampled_from(faults)) if draw(st.integers(0, rate)) == rate else None


def draw_features(
    draw: Any, rng: np.random.Generator, n: int, d: int, *, torch_only: bool = False, scale: float | None = None
) -> Given:
    """Features (n, d)."""
    scale = draw(st.sampled_from(SCALES)) if scale is None else scale
    x = as_dtype(draw_matrix(draw, rng, n, d, scale), draw(st.sampled_from(DTYPES)))
    fault = draw_fault(draw, FEATURE_FAULTS)
    if fault is None and (not x.size or not np.isfinite(x).all()):
        fault = "overflow of the dtype" if x.size else "empty"
    elif fault is not None:
        value = damage(x, fault, rng)
        numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
        return Given(torch.from_numpy(np.array(value)) if torch_only and numbers else value, fault, x)
    container = draw(st.sampled_from(("torch", "torch-strided") if torch_only else CONTAINERS))
    if container == "torch-strided":
        return Given(torch.from_numpy(np.ascontiguousarray(x.T)).T, fault, x)
    return Given(contain(x, container), fault, x)


def draw_classes(draw: Any, rng: np.random.Generator, n: int, k: int, *, torch_only: bool = False) -> Given:
    """Classes (n,) from 0 to k - 1: balanced, one for each sample, one only, or names."""
    style = draw(st.sampled_from(["random", "random", "cycle", "one", "last", "distinct"]))
    y = {
        "random": lambda: rng.integers(k, size=n),
        "cycle": lambda: np.arange(n) % k,
        "one": lambda: np.zeros(n, dtype=np.int64),
        "last": lambda: np.full(n, k - 1),
        "distinct": lambda: np.minimum(np.arange(n), k - 1),
    }[style]()
    dtype = draw(st.sampled_from(["int64", "int64", "int32", "uint8"]))
    y = y.astype(dtype)
    fault = draw_fault(draw, LABEL_FAULTS)
    if fault is not None:
        value = damage(y, fault, rng)
        numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
        return Given(torch.from_numpy(np.array(value)) if torch_only and numbers else value, fault, y)
    return Given(torch.from_numpy(y) if torch_only else contain(y, draw(st.sampled_from(CONTAINERS[:-1]))), None, y)


def draw_probabilities(draw: Any, rng: np.random.Generator, n: int, k: int, *, torch_only: bool = False) -> Given:
    """Rows (n, k) on the simplex: spread, certain, uniform, nearly certain, with exact zeros."""
    style = draw(st.sampled_from(["spread", "spread", "certain", "uniform", "nearly", "collapsed"]))
    p = rng.dirichlet(np.ones(k), size=n) if n else np.empty((0, k))
    if style == "certain":
        p = np.eye(k)[rng.integers(k, size=n)]
    elif style == "uniform":
        p = np.full((n, k), 1 / k)
    elif style == "nearly":
        p = (1 - 1e-9) * np.eye(k)[rng.integers(k, size=n)] + 1e-9 / k
    elif style == "collapsed":
        p = np.eye(k)[np.zeros(n, dtype=int)]
    p = p.astype(draw(st.sampled_from(["float64", "float64", "float32", "float16"])))
    fault = draw_fault(draw, ("short", "nan", "inf", "empty", "no-columns", "None", "scalar", "negative", "text"))
    if fault is not None:
        value = damage(p, fault, rng)
        numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
        return Given(torch.from_numpy(np.array(value)) if torch_only and numbers else value, fault, p)
    # As a list, rows in half precision would claim a precision in which they do not sum to one.
    containers = ("torch",) if torch_only else ("numpy", "strided") if p.dtype == np.float16 else CONTAINERS[:-1]
    return Given(contain(p, draw(st.sampled_from(containers))), None, p)


def draw_weights(draw: Any, rng: np.random.Generator, n: int) -> Given:
    """Sample weights (n,) or None."""
    style = draw(st.sampled_from(["none", "none", "none", "spread", "some-zero", "huge", "tiny", "bad"]))
    if style == "none":
        return Given(None, None, np.ones(n))
    w = rng.random(n) + 0.1
    if style == "bad":
        fault = draw(st.sampled_from(["nan", "short", "inf", "text", "zero", "minus"]))
        value = {"zero": lambda: 0 * w, "minus": lambda: -w}.get(fault, lambda: damage(w, fault, rng))()
        return Given(value, fault, w)
    if style == "some-zero" and n > 1:
        w[rng.integers(n)] = 0.0
    w = w * {"huge": 1e200, "tiny": 1e-200}.get(style, 1.0)
    return Given(w, None, w)


def as_tensors(*values: Any) -> list[Any]:
    """NumPy numbers as torch tensors; what has no such form stays."""
    return [
        torch.from_numpy(np.array(v)) if isinstance(v, np.ndarray) and v.dtype.kind in "biuf" else v for v in values
    ]


def bad_options(draw: Any, options: dict[str, Any], rate: int = 12) -> tuple[dict[str, Any], str | None]:
    """Options of which now and then one has a value that no option accepts."""
    if not options or draw(st.integers(0, rate)) != rate:
        return options, None
    name = draw(st.sampled_from(sorted(options)))
    wrong = draw(st.sampled_from([None, "nonsense", -1.0, 0, float("nan"), float("inf"), [], {}, object(), True]))
    return {**options, name: wrong}, name
