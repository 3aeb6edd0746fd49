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
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from bures.data import Domain
from bures.training import SavedModel

__all__ = ["feature_figure"]


def feature_figure(
    models: Mapping[str, SavedModel], source: Domain, target: Domain, *, n: int = 500, seed: int = 0
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

    Returns
    -------
    Figure
        Colours are classes; the source is drawn as rings, the target as dots.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = [
        domain.take(torch.randperm(len(domain), generator=generator)[:n].sort().values) for domain in (source, target)
    ]
    figure = Figure(figsize=(5.2 * len(models), 5.4), layout="constrained")
    axes = figure.subplots(1, len(models), squeeze=False)[0]
    colours = _colours(source.n_classes)
    for axis, (title, model) in zip(axes, models.items(), strict=True):
        predictions = [model.predict(domain) for domain in chosen]
        features = np.concatenate([part.features.numpy() for part in predictions])
        plane = TSNE(init="pca", perplexity=min(30.0, (len(features) - 1) / 3), random_state=seed).fit_transform(
            features
        )
        split = len(chosen[0])
        y_s = np.asarray(chosen[0].labels)
        known = chosen[1].labels
        y_t = np.asarray(predictions[1].probabilities.argmax(dim=1) if known is None else known)
        _scatter(axis, plane[:split], y_s, colours, ring=True)
        _scatter(axis, plane[split:], y_t, colours, ring=False)
        axis.set_title(title)
        axis.set(xticks=[], yticks=[])
    _legend(figure, source, target, colours)
    return figure


def _colours(k: int) -> ListedColormap:
    base = [f"C{number}" for number in range(10)]
    if k <= 10:
        return ListedColormap(base[:k])
    return ListedColormap(colormaps["turbo"](np.linspace(0.05, 0.95, k)))


def _scatter(axis: Any, xy: NDArray[Any], y: NDArray[Any], colours: ListedColormap, *, ring: bool) -> None:
    colour = colours(y)
    style = {"facecolors": "none", "edgecolors": colour, "linewidths": 0.8, "s": 22} if ring else {"c": colour, "s": 9}
    axis.scatter(xy[:, 0], xy[:, 1], **style)


def _legend(figure: Figure, source: Domain, target: Domain, colours: ListedColormap) -> None:
    grey = "0.3"
    ring = Line2D([], [], marker="o", ls="", mfc="none", mec=grey, label=f"source: {source.name}")
    dot = Line2D([], [], marker="o", ls="", ms=3.5, color=grey, label=f"target: {target.name}")
    handles = [ring, dot]
    if source.n_classes <= 12:
        handles += [
            Line2D([], [], marker="s", ls="", color=colours(label), label=name)
            for label, name in enumerate(source.class_names)
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize="small")
