"""Class by class: accuracies, gains and losses against source-only, and what is taken for what."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from bures.report._points import as_uri
from bures.report._runs import RunRecord

__all__ = ["ClassRow", "Confusions", "class_rows", "confused", "matrix_picture"]

PICTURE = 400  # classes up to which each has a pixel row of its own
ACCENT = (0, 114, 178)


class ClassRow(NamedTuple):
    """One class in all runs: samples, and for each run accuracy and gain over its source-only run."""

    name: str
    samples: int
    accuracy: list[float | None]
    gain: list[float | None]


class Confusions(NamedTuple):
    """One class taken for another: how often, and which share of the class that is."""

    true: str
    predicted: str
    samples: int
    share: float


def class_rows(runs: list[RunRecord], baselines: list[RunRecord | None]) -> list[ClassRow]:
    """A row for each class; empty where no run knows the classes of the target. All runs name the same classes."""
    known = next((run for run in runs if run.confusion is not None), None)
    if known is None or known.confusion is None:
        return []
    shares = [_by_class(run) for run in runs]
    gains = [_gain(run, baseline) for run, baseline in zip(runs, baselines, strict=True)]
    samples = known.confusion.sum(axis=1)
    return [
        ClassRow(name, int(samples[k]), [_at(share, k) for share in shares], [_at(gain, k) for gain in gains])
        for k, name in enumerate(known.class_names)
    ]


def _by_class(run: RunRecord | None) -> NDArray[np.float64] | None:
    if run is None or run.confusion is None:
        return None
    with np.errstate(invalid="ignore"):
        shares: NDArray[np.float64] = np.diagonal(run.confusion) / run.confusion.sum(axis=1)
    return shares


def _gain(run: RunRecord, baseline: RunRecord | None) -> NDArray[np.float64] | None:
    after, before = _by_class(run), _by_class(baseline)
    return None if after is None or before is None or len(after) != len(before) else after - before


def _at(values: NDArray[np.float64] | None, k: int) -> float | None:
    if values is None or k >= len(values) or not np.isfinite(values[k]):
        return None
    return float(values[k])


def confused(run: RunRecord, n: int) -> list[Confusions]:
    """The n most frequent confusions of a run."""
    if run.confusion is None:
        return []
    wrong = run.confusion.copy()
    np.fill_diagonal(wrong, 0)
    totals, k = run.confusion.sum(axis=1), len(wrong)
    order = np.argsort(-wrong, axis=None, kind="stable")[:n]
    pairs = [(int(place) // k, int(place) % k) for place in order]
    return [
        Confusions(run.class_names[i], run.class_names[j], int(wrong[i, j]), float(wrong[i, j] / totals[i]))
        for i, j in pairs
        if wrong[i, j]
    ]


def matrix_picture(confusion: NDArray[np.int64]) -> Markup:
    """A confusion matrix of many classes as a small picture: a pixel for each pair, or for a block of pairs."""
    totals = np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    shares = confusion / totals
    if len(shares) > PICTURE:  # the strongest of each block stands for it
        edges = np.linspace(0, len(shares), PICTURE + 1).astype(int)[:-1]
        shares = np.maximum.reduceat(np.maximum.reduceat(shares, edges, axis=0), edges, axis=1)
    pixels = np.empty((*shares.shape, 4), np.uint8)
    pixels[..., :3] = ACCENT
    pixels[..., 3] = np.rint(255 * np.sqrt(shares))  # the root shows rare confusions
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return Markup(as_uri(stream.getvalue()))
