"""Features in the plane: principal components of all samples, t-SNE of some."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE

__all__ = ["GRID", "on_grid", "principal_plane", "tsne_plane"]

GRID = 4095  # coordinates are integers from 0 to here: finer than a screen, and short as text
REDUCED = 50  # principal components that t-SNE starts from


def principal_plane(x: NDArray[np.float64], n_components: int = 2) -> NDArray[np.float64]:
    """The first principal components of features (n, d): (n, n_components), zero where there are fewer.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.report._plane import principal_plane
    >>> plane = principal_plane(np.array([[3.0, 4.0], [0.0, 0.0], [-3.0, -4.0]]))
    >>> np.round(plane, 6).tolist()
    [[5.0, 0.0], [0.0, 0.0], [-5.0, 0.0]]
    """
    centred = x - x.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, ::-1][:, :n_components]
    largest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[largest, np.arange(axes.shape[1])])  # an eigenvector has no sign of its own
    plane = np.zeros((len(x), n_components))
    plane[:, : axes.shape[1]] = centred @ axes
    plane[np.abs(plane) < 1e-12 * max(np.abs(plane).max(initial=0.0), 1e-300)] = 0.0
    return plane


def tsne_plane(x: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """t-SNE of features (n, d) in the plane; None for fewer than 10 samples, or features that are all the same."""
    if len(x) < 10 or not np.ptp(x, axis=0).any():
        return None
    reduced = principal_plane(x, min(REDUCED, x.shape[1]))
    scale = reduced.std(axis=0)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries below about numbers that are then checked here
        tsne = TSNE(init="pca", perplexity=min(30.0, (len(x) - 1) / 3), max_iter=500, random_state=0)
        plane: NDArray[Any] = tsne.fit_transform(reduced / scale)
    return plane.astype(np.float64) if np.isfinite(plane).all() else None


def on_grid(plane: NDArray[np.float64]) -> NDArray[np.int64]:
    """Coordinates as integers from 0 to `GRID`, both axes by the same scale, the middle in the middle."""
    low, high = plane.min(axis=0), plane.max(axis=0)
    extent = float((high - low).max())
    if extent == 0:
        return np.full(plane.shape, GRID // 2, dtype=np.int64)
    grid: NDArray[np.float64] = np.rint((plane - (low + high) / 2) / extent * GRID + GRID / 2)
    return grid.clip(0, GRID).astype(np.int64)
