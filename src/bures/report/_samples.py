"""The target samples that say most: those a run is most wrong about, and those it is least sure of."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bures.report._points import as_uri
from bures.report._words import percent, shorten
from bures.training._kept import KeptSamples

__all__ = ["ALIKE", "SampleCard", "hardest", "least_certain"]

ALIKE = 3  # samples of one confusion among the hardest


class SampleCard(NamedTuple):
    """A sample as the page shows it; ``picture`` is None for feature vectors, ``true`` without labels."""

    name: str
    picture: str | None
    true: str | None
    predicted: str
    confidence: str
    detail: str


def hardest(kept: KeptSamples, n: int) -> list[SampleCard]:
    """Wrong predictions with the smallest probability of the true class, `ALIKE` of one confusion at most."""
    target = kept.target
    if target.labels is None or target.p_true is None:
        return []
    wrong = np.flatnonzero(np.asarray(target.labels != target.prediction))
    p_true = np.asarray(target.p_true)
    ordered = wrong[np.argsort(p_true[wrong], kind="stable")]
    order = _varied(ordered, np.asarray(target.labels), np.asarray(target.prediction))[:n]
    return _cards(kept, order, [f"{percent(float(p_true[i]))} for the true class" for i in order])


def _varied(order: NDArray[Any], true: NDArray[Any], predicted: NDArray[Any]) -> NDArray[Any]:
    """The first few of each confusion: one that is frequent would leave no room for others."""
    seen: Counter[tuple[int, int]] = Counter()
    chosen = []
    for i in order:
        pair = (int(true[i]), int(predicted[i]))
        seen[pair] += 1
        if seen[pair] <= ALIKE:
            chosen.append(int(i))
    return np.array(chosen, dtype=np.int64)


def least_certain(kept: KeptSamples, n: int) -> list[SampleCard]:
    """Samples whose predicted probabilities are spread the most: the largest entropy first."""
    entropy = np.asarray(kept.target.entropy)
    order = np.argsort(-entropy, kind="stable")[:n]
    return _cards(kept, order, [f"spread over {np.exp(entropy[i]):.1f} classes" for i in order])


def _cards(kept: KeptSamples, order: NDArray[Any], details: list[str]) -> list[SampleCard]:
    target, names = kept.target, kept.class_names
    pictures = target.pictures()
    cards = []
    for i, detail in zip(map(int, order), details, strict=True):
        name = f"sample {int(target.index[i])}" if target.ids is None else shorten(target.ids[i])
        picture = None if pictures is None else as_uri(_png(pictures[i]))
        true = None if target.labels is None else names[int(target.labels[i])]
        predicted, sure = names[int(target.prediction[i])], percent(float(target.confidence[i]), 0)
        cards.append(SampleCard(name, picture, true, predicted, sure, detail))
    return cards


def _png(image: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(stream, "PNG", optimize=True)
    return stream.getvalue()
