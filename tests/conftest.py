"""Fixtures of the whole suite: the independent reference on the path, random problems, deterministic hypothesis."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported; its programs then run on the CPU, in NumPy

# Test modules are imported by file (--import-mode=importlib), which puts no folder on the path;
# `import reference` needs this one.
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "bures", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bures")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium with one page; tests that need it skip where it is not installed."""
    from browser import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def features_run(tmp_path_factory):
    """A network that was trained on feature vectors."""
    from runs import train_on_features

    return train_on_features(tmp_path_factory.mktemp("features") / "run")


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    """LeNet, trained on small digits."""
    from runs import train_on_digits

    return train_on_digits(tmp_path_factory.mktemp("digits") / "run")


class Problem(NamedTuple):
    """Two labelled samples: what the library is given, and the labels as the rows the paper's kernels see."""

    xs: np.ndarray
    ys: np.ndarray
    xt: np.ndarray
    yt: np.ndarray
    rows_s: np.ndarray
    rows_t: np.ndarray
    conditioning: str | tuple[str, str]

    @property
    def data(self):
        return self.xs, self.ys, self.xt, self.yt

    @property
    def rows(self):
        """The arguments of the reference."""
        return self.xs, self.rows_s, self.xt, self.rows_t


def _labels(rng, kind, n, k):
    if kind == "hard":
        y = np.concatenate([np.arange(k), rng.integers(k, size=max(n - k, 0))])[:n]
        y = rng.permutation(y)
        return y, np.eye(k)[y]
    if kind == "soft":
        rows = rng.dirichlet(np.full(k, 0.5), size=n)
        return rows, rows
    values = rng.normal(size=(n, k))
    return values, values


@pytest.fixture(scope="session")
def draw_problem():
    """A function that draws a random problem; labels and features depend on each other."""

    def draw(kind="hard", *, n=11, m=9, d=3, k=3, seed=0, shift=0.3):
        rng = np.random.default_rng(seed)
        kinds = kind if isinstance(kind, tuple) else (kind, kind)
        ys, rows_s = _labels(rng, kinds[0], n, k)
        yt, rows_t = _labels(rng, kinds[1], m, k)
        direction = rng.normal(size=(k, d))
        xs = rows_s @ direction + rng.normal(size=(n, d))
        xt = rows_t @ direction + (1 + shift) * rng.normal(size=(m, d)) @ np.diag(rng.uniform(0.5, 2, size=d)) + shift
        return Problem(xs, ys, xt, yt, rows_s, rows_t, kinds)

    return draw
