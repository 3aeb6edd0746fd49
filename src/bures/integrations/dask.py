"""Distances between Dask arrays: chunks become moments where they lie, and the moments are merged in a tree.

Needs the extra ``dask``: ``pip install 'bures[dask]'``. What travels is one set of moments for each chunk, 8 D^2 bytes
and a little, never the samples. A chunk whose worker is lost is computed again by Dask.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bures.arrays import check_count, check_seed, describe
from bures.factors import check_eps
from bures.feature_maps import FeatureMap, NystroemMap
from bures.kernels import Bandwidth
from bures.moments import ConditionalMoments
from bures.moments._compare import check_label_options

try:
    import dask
    import dask.array as da
except ImportError as error:
    raise ImportError("bures.integrations.dask needs Dask; install the extra: pip install 'bures[dask]'") from error

__all__ = ["ckb", "conditional_moments"]

SPLIT_EVERY = 8  # how many moments are merged at a time


def ckb(
    x_s: Any,
    y_s: Any,
    x_t: Any,
    y_t: Any,
    *,
    feature_map: FeatureMap | None = None,
    n_classes: int | None = None,
    n_landmarks: int = 512,
    n_sample: int = 4096,
    bandwidth: Bandwidth = "shared",
    seed: int = 0,
    precision: str = "float64",
    eps: str | float = 1e-2,
    label_kernel: str | None = None,
    label_bandwidth: Bandwidth | None = None,
) -> float:
    """Squared Conditional Kernel Bures distance between two domains in Dask arrays.

    Parameters
    ----------
    x_s, x_t : dask array (n, d), (m, d)
        Features, in chunks of rows.
    y_s, y_t : dask array or array (n,) or (n, K), (m,) or (m, K)
        Integers from 0 to K - 1, or rows of probabilities, which then have the linear kernel.
    feature_map : FeatureMap, optional
        None fits a `bures.NystroemMap` of the Gaussian kernel on a sample, which reads every chunk once more.
    n_classes : int, optional
        None counts the classes, or the columns of the probabilities.
    n_landmarks, n_sample, bandwidth, seed : optional
        Without `feature_map`: its landmarks, how many samples of each domain it is fitted on, its bandwidth, and the
        seed of the sample and of the landmarks.
    precision : {"float64", "mixed"}, optional
        As in `bures.ConditionalMoments`.
    eps, label_kernel, label_bandwidth : optional
        As in `bures.ConditionalMoments.ckb`.

    Returns
    -------
    float

    See Also
    --------
    conditional_moments : the moments themselves, for the other distances and the bound.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from bures.integrations.dask import ckb
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> source = da.from_array(rng.normal(size=(1000, 3)), chunks=(100, 3))
    >>> target = da.from_array(rng.normal(size=(1000, 3)) * (1 + y)[:, None], chunks=(250, 3))
    >>> round(ckb(source, y, target, y, n_landmarks=100), 2)
    0.08
    """
    check_eps(eps)
    y_s, y_t = _aligned("x_s", "y_s", x_s, y_s), _aligned("x_t", "y_t", x_t, y_t)
    if n_classes is None:
        n_classes = _count_classes(y_s, y_t)
    if feature_map is None:
        n_sample = check_count("n_sample", n_sample)
        rng = np.random.default_rng(check_seed(seed))
        sample_s, sample_t = dask.compute(_sample("x_s", x_s, n_sample, rng), _sample("x_t", x_t, n_sample, rng))
        feature_map = NystroemMap.fit(sample_s, sample_t, n_landmarks=n_landmarks, bandwidth=bandwidth, seed=seed)
    graphs = []
    for name, x, y in (("x_s", x_s, y_s), ("x_t", x_t, y_t)):
        empty = ConditionalMoments(feature_map, n_classes, labels=_kind(y), precision=precision)  # type: ignore[arg-type]
        check_label_options(empty, label_kernel, label_bandwidth)
        graphs.append(_moments_graph(name, x, y, empty))
    m_s, m_t = dask.compute(*graphs)
    squared: float = m_s.ckb(m_t, eps=eps, label_kernel=label_kernel, label_bandwidth=label_bandwidth)
    return squared


def conditional_moments(x: Any, y: Any, feature_map: FeatureMap, n_classes: int, **options: Any) -> ConditionalMoments:
    """The moments of one domain in a Dask array.

    Parameters
    ----------
    x : dask array (n, d)
        Features, in chunks of rows.
    y : dask array or array (n,) or (n, K)
        Labels.
    feature_map, n_classes, **options
        As in `bures.ConditionalMoments`.

    Returns
    -------
    ConditionalMoments

    Examples
    --------
    >>> import numpy as np, dask.array as da, bures
    >>> from bures.integrations.dask import conditional_moments
    >>> x, y = da.random.default_rng(0).normal(size=(1000, 3), chunks=(100, 3)), np.arange(1000) % 2
    >>> phi = bures.LinearMap.fit(np.zeros((1, 3)))
    >>> conditional_moments(x, y, phi, 2)
    ConditionalMoments(n_samples=1000, n_classes=2, n_features=3, labels='hard', precision='float64')
    """
    empty = ConditionalMoments(feature_map, n_classes, **options)
    (moments,) = dask.compute(_moments_graph("x", x, _aligned("x", "y", x, y), empty))
    total: ConditionalMoments = moments
    return total


def _moments_graph(name: str, x: Any, y: Any, empty: ConditionalMoments) -> Any:
    """A task for each chunk, and a tree of merges."""
    # The empty moments carry the map; as a task of its own it is sent to a worker once, not with every chunk.
    start = dask.delayed(empty, traverse=False)
    block = dask.delayed(_block_moments)
    rows_x = x.rechunk({1: -1}).to_delayed().ravel()
    rows_y = (y.rechunk({1: -1}) if y.ndim == 2 else y).to_delayed().ravel()
    parts = [
        block(start, block_x, block_y, f"block {number} of {name}")
        for number, (block_x, block_y) in enumerate(zip(rows_x, rows_y, strict=True))
    ]
    merged = dask.delayed(_merged)
    while len(parts) > 1:
        parts = [merged(parts[i : i + SPLIT_EVERY]) for i in range(0, len(parts), SPLIT_EVERY)]
    return parts[0]


def _block_moments(empty: ConditionalMoments, x: Any, y: Any, name: str) -> ConditionalMoments:
    try:
        return empty.copy().update(x, y)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _merged(parts: list[ConditionalMoments]) -> ConditionalMoments:
    total = parts[0].copy()
    for part in parts[1:]:
        total.merge(part)
    return total


def _aligned(name_x: str, name_y: str, x: Any, y: Any) -> Any:
    """The labels as a Dask array with the chunks of the features."""
    if not isinstance(x, da.Array) or x.ndim != 2:
        raise TypeError(
            f"{name_x} is a {describe(x)}; accepted is a dask array (n, d); bures.ckb takes arrays in memory"
        )
    known = not np.isnan(x.shape[0])
    if not isinstance(y, da.Array):
        if not known:
            raise ValueError(f"{name_x} has chunks of unknown size beside {name_y} in memory; "
                             f"call {name_x}.compute_chunk_sizes() first")  # fmt: skip
        y = da.from_array(np.asarray(y), chunks=-1)
    if y.ndim not in (1, 2):
        raise ValueError(f"{name_y} has shape {y.shape}; accepted is (n,) or (n, columns)")
    if known and not np.isnan(y.shape[0]):
        if x.shape[0] != y.shape[0]:
            raise ValueError(f"{name_y} has {y.shape[0]} labels but {name_x} has {x.shape[0]} samples")
        return y.rechunk({0: x.chunks[0]})
    if x.numblocks[0] != y.numblocks[0]:
        raise ValueError(
            f"{name_x} has {x.numblocks[0]} chunks and {name_y} {y.numblocks[0]}, of unknown sizes; "
            "they must be cut alike, or call compute_chunk_sizes() first"
        )
    return y


def _kind(y: Any) -> str:
    return "hard" if y.ndim == 1 else "soft"


def _count_classes(y_s: Any, y_t: Any) -> int:
    columns = [int(y.shape[1]) for y in (y_s, y_t) if y.ndim == 2]
    if columns:
        return columns[0]
    for name, y in (("y_s", y_s), ("y_t", y_t)):
        if y.dtype.kind not in "biu" or y.shape[0] == 0:
            raise ValueError(
                f"{name} is a {describe(y)}; accepted are integers from 0 to K - 1, or rows of probabilities"
            )
    return 1 + max(int(largest) for largest in dask.compute(y_s.max(), y_t.max()))


def _sample(name: str, x: Any, size: int, rng: np.random.Generator) -> Any:
    """Rows drawn without replacement, in the order they lie."""
    if np.isnan(x.shape[0]):
        raise ValueError(f"{name} has chunks of unknown size; pass feature_map, or call compute_chunk_sizes() first")
    n = int(x.shape[0])
    return x[np.sort(rng.choice(n, size=min(size, n), replace=False))]
