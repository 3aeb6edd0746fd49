"""Features of both domains before and after adaptation, in the plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from bures.arrays import check_seed
from bures.data import Domain
from bures.data._decoding import Progress
from bures.experiments._fonts import fonts_for
from bures.training import SavedModel

__all__ = ["feature_figure", "name_class", "some_of_each", "tsne_plane"]

NAMED = 40  # classes whose names have room
SAME = 1e-7  # share of features by which they differ where float32 has rounded what is the same
USUAL = 1e10  # features of a size up to this, or down to its inverse, are placed as they are


def feature_figure(
    models: Mapping[str, SavedModel],
    source: Domain,
    target: Domain,
    *,
    n: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> Figure:
    """t-SNE maps of the features of both domains, a panel for each model.

    Parameters
    ----------
    models : mapping of str to SavedModel
        Titles and models.
    source : Domain
        With labels.
    target : Domain
        Its classes are drawn where they are known, else those that the model predicts.
    n : int, optional
        Samples of each domain at most.
    seed : int, optional
        Of the choice of samples and of t-SNE.
    progress : callable, optional
        Called as ``progress(done, total)`` while models compute features: of photographs on a CPU that takes minutes.

    Returns
    -------
    Figure
        Colours are classes, with their names where their samples of the source lie (up to 40 classes); the source is
        drawn as rings, the target as dots.
    """
    chosen = some_of_each(source, target, n, seed)
    with fonts_for([source.name, target.name, *source.class_names]):
        figure = Figure(figsize=(5.2 * len(models), 5.4), layout="constrained")
        axes = figure.subplots(1, len(models), squeeze=False)[0]
        colours = _colours(source.n_classes)
        done, total = 0, len(models) * sum(map(len, chosen))
        for axis, (title, model) in zip(axes, models.items(), strict=True):
            predictions = []
            for domain in chosen:
                predictions.append(model.predict(domain, progress=_part_of(progress, done, total)))
                done += len(domain)
            features = np.concatenate([part.features.numpy() for part in predictions])
            plane = tsne_plane(features, seed)
            split = len(chosen[0])
            y_s = np.asarray(chosen[0].labels)
            known = chosen[1].labels
            y_t = np.asarray(predictions[1].probabilities.argmax(dim=1) if known is None else known)
            _scatter(axis, plane[:split], y_s, colours, ring=True)
            _scatter(axis, plane[split:], y_t, colours, ring=False)
            if source.n_classes <= NAMED:
                for label, name in enumerate(source.class_names):
                    name_class(axis, name, plane[:split][y_s == label], "white", weight="bold")
            axis.set_title(title)
            axis.set(xticks=[], yticks=[])
        _legend(figure, source, target, predicted=chosen[1].labels is None)
    return figure


def some_of_each(source: Domain, target: Domain, n: int, seed: int) -> tuple[Domain, Domain]:
    """At most n samples of each domain, drawn at random, in their order."""
    generator = torch.Generator().manual_seed(check_seed(seed))
    chosen_s, chosen_t = (
        domain.take(torch.randperm(len(domain), generator=generator)[:n].sort().values) for domain in (source, target)
    )
    return chosen_s, chosen_t


def tsne_plane(features: NDArray[Any], seed: int) -> NDArray[Any]:
    """The map (n, 2) of features (n, d) by t-SNE; one point where they are all the same."""
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    extent = np.abs(centred).max()
    if extent <= SAME * np.abs(features).max():  # scikit-learn divides by their deviation, and NaN ends the process
        return np.zeros((len(features), 2))
    if not 1 / USUAL < extent < USUAL:  # float32 has no squares of these
        features = centred / extent
    tsne = TSNE(init="pca", perplexity=min(30.0, (len(features) - 1) / 3), random_state=seed % 2**32)
    return np.asarray(tsne.fit_transform(features))


def _part_of(progress: Progress | None, before: int, total: int) -> Progress | None:
    """What reports a part of the samples as progress with all of them, ``before`` of which were before."""
    return None if progress is None else lambda done, _: progress(before + done, total)


def _colours(k: int) -> ListedColormap:
    base = [f"C{number}" for number in range(10)]
    if k <= 10:
        return ListedColormap(base[:k])
    return ListedColormap(colormaps["turbo"](np.linspace(0.05, 0.95, k)))


def _scatter(axis: Any, xy: NDArray[Any], y: NDArray[Any], colours: ListedColormap, *, ring: bool) -> None:
    colour = colours(y)
    style = {"facecolors": "none", "edgecolors": colour, "linewidths": 0.8, "s": 22} if ring else {"c": colour, "s": 9}
    axis.scatter(xy[:, 0], xy[:, 1], **style)


def name_class(axis: Any, name: str, own: NDArray[Any], ground: str, **options: Any) -> None:
    """A name where the samples of a class lie: colours alone do not tell all classes, and not to everyone."""
    if len(own):
        # At a sample: the middle of a class in two parts may lie in another class.
        at = own[((own - np.median(own, axis=0)) ** 2).sum(axis=1).argmin()]
        around = [withStroke(linewidth=3, foreground=ground)]
        axis.text(*at, name, ha="center", va="center", path_effects=around, parse_math=False, **options)


def _legend(figure: Figure, source: Domain, target: Domain, *, predicted: bool) -> None:
    grey = "0.3"
    note = ", classes as predicted" if predicted else ""
    ring = Line2D([], [], marker="o", ls="", mfc="none", mec=grey, label=f"source: {source.name}")
    dot = Line2D([], [], marker="o", ls="", ms=3.5, color=grey, label=f"target: {target.name}{note}")
    figure.legend(handles=[ring, dot], loc="outside lower center", ncols=2, frameon=False, fontsize="small")
