"""The points of the feature map: places in the plane, classes and pictures, small enough for one page."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bures.data._samples import resize_images
from bures.report._plane import on_grid, principal_plane, tsne_plane
from bures.report._runs import RunRecord
from bures.report._words import shorten
from bures.training._kept import KeptDomain, KeptSamples
from bures.training._pictures import COLUMNS, encode_sheet

__all__ = ["as_uri", "map_data"]

POINTS = 10_000  # of all maps of a page together
PICTURES = 2_600_000  # bytes of all sheets of small pictures together
# Sides and qualities that are tried until the pictures fit.
STEPS = ((32, 75), (32, 50), (24, 55), (24, 35), (16, 45), (12, 30), (8, 30))
TRIED = 512  # pictures that a step is tried on
SIDES = ("source", "target")


def map_data(runs: list[RunRecord], tsne: int) -> dict[str, Any]:
    """What the script of the page draws: samples once for all runs that share them, places for each run.

    Parameters
    ----------
    runs : list of RunRecord
        Those without kept samples have no map.
    tsne : int
        Samples of a run that t-SNE places; 0 for none.
    """
    with_map = [run for run in runs if run.kept is not None]
    share = max(POINTS // max(2 * len(with_map), 1), 1)
    groups: dict[tuple[Any, ...], int] = {}
    samples: list[KeptSamples] = []
    drawn: list[dict[str, Any] | None] = []
    for run in runs:
        if run.kept is None:
            drawn.append(None)
            continue
        key = (*run.task, *(len(side) for side in (run.kept.source, run.kept.target)), run.class_names)
        if key not in groups:
            groups[key] = len(samples)
            samples.append(run.kept)
        drawn.append({"group": groups[key], **_places(run.kept, share, tsne)})
    sheets = _sheets(samples, share)
    described = [
        {"classes": list(kept.class_names)}
        | {side: _described(getattr(kept, side), share, sheets[(i, side)]) for side in SIDES}
        for i, kept in enumerate(samples)
    ]
    return {"groups": described, "maps": drawn}


def _places(kept: KeptSamples, share: int, tsne: int) -> dict[str, Any]:
    """Places and predictions of a run's samples, source first."""
    domains = [kept.source, kept.target]
    # A network that has run away can have features that are no numbers: they are drawn, somewhere.
    limit = float(np.finfo(np.float16).max)
    parts = [
        np.nan_to_num(np.asarray(domain.features[:share], dtype=np.float64), posinf=limit, neginf=-limit)
        for domain in domains
    ]
    pca = on_grid(principal_plane(np.concatenate(parts)))
    few = [part[: max(tsne // 2, 1)] for part in parts] if tsne else []
    plane = tsne_plane(np.concatenate(few)) if few else None
    return {
        "pca": _split(pca, len(parts[0])),
        "tsne": None if plane is None else _split(on_grid(plane), len(few[0])),
        "prediction": [domain.prediction[:share].tolist() for domain in domains],
        "confidence": [
            np.rint(1000 * np.asarray(domain.confidence[:share])).astype(int).tolist() for domain in domains
        ],
    }


def _split(plane: NDArray[np.int64], n: int) -> list[list[list[int]]]:
    """For source and target, the two coordinates."""
    return [part.T.tolist() for part in (plane[:n], plane[n:])]


def _described(domain: KeptDomain, share: int, sheet: tuple[bytes, int] | None) -> dict[str, Any]:
    ids = None if domain.ids is None else [shorten(name) for name in domain.ids[:share]]
    return {
        "name": domain.name,
        "total": domain.total,
        "index": domain.index[:share].tolist(),
        "ids": ids,
        "labels": None if domain.labels is None else domain.labels[:share].tolist(),
        "sheet": None if sheet is None else as_uri(sheet[0]),
        "side": 0 if sheet is None else sheet[1],
        "columns": COLUMNS,
    }


def _sheets(samples: list[KeptSamples], share: int) -> dict[tuple[int, str], tuple[bytes, int] | None]:
    """The sheets of all domains, in the best quality in which they fit."""
    domains = {(i, side): getattr(kept, side) for i, kept in enumerate(samples) for side in SIDES}
    pictures = {place: domain.pictures() for place, domain in domains.items()}
    whole = {place: domain.sheet or b"" for place, domain in domains.items()}
    if all(len(domain) <= share for domain in domains.values()) and _total(whole) <= PICTURES:
        return {place: (sheet, domains[place].side) if sheet else None for place, sheet in whole.items()}
    return _fitting(pictures, share)


def _fitting(
    pictures: dict[tuple[int, str], NDArray[np.uint8] | None], share: int
) -> dict[tuple[int, str], tuple[bytes, int] | None]:
    """The first step that fits; what some of the pictures take says which ones are worth trying."""
    found: dict[tuple[int, str], tuple[bytes, int] | None] = {}
    for side, quality in STEPS:
        last = (side, quality) == STEPS[-1]
        if not last and sum(_estimate(images, share, side, quality) for images in pictures.values()) > PICTURES:
            continue
        found = {place: _encoded(images, share, side, quality) for place, images in pictures.items()}
        if sum(len(sheet[0]) for sheet in found.values() if sheet) <= PICTURES:
            break
    return found


def _estimate(images: NDArray[np.uint8] | None, share: int, side: int, quality: int) -> float:
    """Bytes that the sheet of a domain would take."""
    sheet = _encoded(images, min(TRIED, share), side, quality)
    if images is None or sheet is None:
        return 0.0
    return len(sheet[0]) * max(len(images[:share]) / TRIED, 1.0)


def _total(sheets: dict[tuple[int, str], bytes]) -> int:
    return sum(map(len, sheets.values()))


def _encoded(images: NDArray[np.uint8] | None, share: int, side: int, quality: int) -> tuple[bytes, int] | None:
    if images is None:
        return None
    images = shrink(images[:share], side)
    return encode_sheet(images, quality), images.shape[1]


def shrink(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Images (n, s, s, C) with sides of at most ``side``."""
    if images.shape[1] <= side:
        return images
    small = resize_images(torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))), side)
    return np.asarray(small.permute(0, 2, 3, 1))


def as_uri(picture: bytes) -> str:
    """A picture as an address that holds it."""
    kind = "png" if picture.startswith(b"\x89PNG") else "webp"
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode()
