"""The moments of one domain, with the distances to another's and their files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bures.arrays import describe
from bures.feature_maps import FeatureMap
from bures.files import check_output
from bures.kernels import Bandwidth
from bures.moments._compare import measure
from bures.moments._distances import MomentDistance
from bures.moments._streams import feature_columns, read_chunks
from bures.moments._sums import LOADED, SCHEMA, MomentSums
from bures.tensor_files import read_tensors, write_tensors

__all__ = ["ConditionalMoments"]

CONTENT = "conditional moments of bures"


class ConditionalMoments(MomentSums):
    r"""Sums over the samples of one domain from which `ckb` and its relatives follow, for any number of samples.

    With explicit features :math:`\phi(x)` and label features :math:`\psi(y)` the conditional covariance operator
    depends on the samples only through their weight, the means of :math:`\phi` and :math:`\psi`, and their second
    moments. These sums add over chunks, files, processes and machines, in memory that does not grow with the sample.

    Parameters
    ----------
    feature_map : FeatureMap
        `LinearMap`, `NystroemMap` or `RandomFourierMap`, fitted on samples of both domains. Moments of two domains can
        be compared only if they have the same map.
    n_classes : int
        Number of classes K.
    labels : {"hard", "soft"}, optional
        Classes 0 to K - 1, or rows of K probabilities (integers then stand for one-hot rows).
    label_map : FeatureMap, optional
        Only for soft labels: features of the kernel on probabilities. None is the linear kernel. A Gaussian kernel on
        probabilities needs a map of its own, such as ``NystroemMap.fit(p, n_landmarks=...)`` on a sample of this
        domain's predictions; its bandwidth is then that of the domain, as in `bures.ckb`.
    precision : {"float64", "mixed"}, optional
        ``"mixed"`` computes features and their products in float32 and sums them in float64, up to twice as fast. Order
        and chunking change a distance by less than 1e-8 of the traces in ``"float64"`` and 1e-6 in ``"mixed"`` (up to
        1e-4 where the features of a map span directions with hardly any variance, as those of samples in one or two
        dimensions do, and those of a long stream with fewer distinct samples than features: take ``"float64"``).
    decay : float, optional
        For running estimates: before each `update`, earlier samples count this much of what they did.

    Attributes
    ----------
    n_samples : int
        Rows seen, those of weight zero included.
    n_chunks : int
        Chunks seen.
    weight : float
        Sum of the weights; the number of samples where none were given.
    class_weight : array (K,)
        Sum of the weights in each class.

    Notes
    -----
    The sums are centred, so an offset common to all samples costs no digits. A chunk that is refused (NaN, labels out
    of range, another number of columns) leaves the moments as they were. Weights count like repetitions. The moments
    hold no autograd graph, and distances are Python floats.

    `prior` and ``label_bandwidth="median"`` of `bures.ckb` need more than these sums and are not offered; to weigh
    classes, pass `sample_weight`.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(3, size=4000)
    >>> source = rng.normal(size=(4000, 5)) + y[:, None]
    >>> target = 1.5 * rng.normal(size=(4000, 5)) + y[:, None]
    >>> phi = bures.NystroemMap.fit(source[:500], target[:500], n_landmarks=100)
    >>> m_s, m_t = bures.ConditionalMoments(phi, 3), bures.ConditionalMoments(phi, 3)
    >>> for rows in np.array_split(np.arange(4000), 4):
    ...     _ = m_s.update(source[rows], y[rows]), m_t.update(target[rows], y[rows])
    >>> m_s
    ConditionalMoments(n_samples=4000, n_classes=3, n_features=100, labels='hard', precision='float64')
    >>> round(m_s.ckb(m_t), 2)
    0.04
    """

    def update_from(
        self, x: str | Path, y: Any = "label", *, chunk: int = 65536, checkpoint: str | Path | None = None
    ) -> ConditionalMoments:
        """Add a file, from the row after the last one seen: an interrupted stream goes on where it stopped.

        Parameters
        ----------
        x : path
            A ``.npy`` file (n, d), memory-mapped, or a ``.parquet`` file. Moments of two tables can be merged and
            compared if their columns have the same names in the same order.
        y : path, array, str or sequence of str, optional
            The labels of a ``.npy`` file, as an array or another such file; the label column of a ``.parquet`` file, or
            its K columns of probabilities.
        chunk : int, optional
            Rows in memory at a time.
        checkpoint : path, optional
            Save the moments there after each chunk. To resume, `load` that file and call `update_from` as before.

        Returns
        -------
        ConditionalMoments
            These moments. Where they were loaded, the first `n_samples` rows of the file count as seen.

        Raises
        ------
        ValueError
            The moments hold samples of something else than this file, or more than it has; nothing is added. A second
            file has moments of its own, and `merge` puts them together.
        """
        if not isinstance(x, (str, os.PathLike)):
            raise TypeError(f"x is a {describe(x)}; accepted is the path of a file: `update` takes samples")
        stream = os.path.realpath(x)
        if checkpoint is not None:  # before the work, not after it
            check_output(checkpoint)
            read = [name for name in (x, y) if isinstance(name, (str, Path)) and os.path.exists(name)]
            if os.path.exists(checkpoint) and any(os.path.samefile(checkpoint, name) for name in read):
                raise ValueError(f"checkpoint={str(checkpoint)!r} is read by this stream; choose another file")
        if self.n_samples and self._stream not in (LOADED, stream):
            raise ValueError(
                f"these moments hold {self.n_samples} samples that are not of {str(x)!r}, of which as many rows would "
                "be left out; make moments of the file by themselves, and merge them"
            )
        chunks = read_chunks(x, y, chunk=chunk, start=self.n_samples)
        columns = feature_columns(x, y)
        self._stream = stream
        for features, labels in chunks:
            self.update(features if columns is None else _named(features, columns), labels)
            if checkpoint is not None:
                self.save(checkpoint)
        return self

    def save(self, path: str | Path) -> Path:
        """Write the moments, without the map, into a safetensors file, whole or not at all.

        Parameters
        ----------
        path : path

        Returns
        -------
        Path
        """
        state = self.state_dict()
        tensors = {name: state.pop(name) for name in self.scatter.tensors()}
        return write_tensors(path, tensors, state, content=CONTENT, schema=SCHEMA)

    @classmethod
    def load(cls, path: str | Path, feature_map: FeatureMap, label_map: FeatureMap | None = None) -> ConditionalMoments:
        """Read moments that `save` wrote.

        Parameters
        ----------
        path : path
        feature_map : FeatureMap
            The map they were made with; another is an error.
        label_map : FeatureMap, optional
            The label map they were made with.

        Returns
        -------
        ConditionalMoments
        """
        tensors, settings = read_tensors(path, content=CONTENT, schema=SCHEMA)
        try:
            moments = cls(
                feature_map, settings["n_classes"], labels=settings["labels"], label_map=label_map,
                precision=settings["precision"], decay=settings["decay"],
            )  # fmt: skip
            moments.load_state_dict({**tensors, **settings})
        except KeyError as error:
            raise ValueError(f"{str(path)!r} is damaged: {error} is missing") from error
        except (TypeError, ValueError) as error:
            raise ValueError(f"{str(path)!r} does not hold what these moments need: {error}") from error
        return moments

    # ---------------------------------------------------------------------------------------------------- distances

    def ckb(
        self,
        other: ConditionalMoments,
        *,
        eps: str | float = 1e-2,
        label_kernel: str | None = None,
        label_bandwidth: Bandwidth | None = None,
        method: str = "auto",
    ) -> float:
        """Squared Conditional Kernel Bures distance to the moments of the target.

        Parameters
        ----------
        other : ConditionalMoments
            With the same map, classes and precision. One side may have hard labels and the other soft ones.
        eps : float or "auto", optional
            As in `bures.ckb`.
        label_kernel : {"gaussian", "laplacian", "linear"}, optional
            For hard labels, by default that of soft labels in the other domain, or else Gaussian. Soft labels have the
            kernel of their label map, linear without one.
        label_bandwidth : "mean" or float, optional
            For hard labels, as in `bures.ckb`.
        method : {"auto", "svd", "gram", "deflation", "low-rank", "polar"}, optional
            How the nuclear norm is computed, as in `bures.ckb`.

        Returns
        -------
        float
        """
        return self.measure(
            other, "ckb", eps=eps, label_kernel=label_kernel, label_bandwidth=label_bandwidth, method=method
        ).squared_distance

    def ckw(
        self,
        other: ConditionalMoments,
        *,
        eps: str | float = 1e-2,
        label_kernel: str | None = None,
        label_bandwidth: Bandwidth | None = None,
        method: str = "auto",
    ) -> float:
        """Squared conditional kernel Wasserstein distance: CKB plus the distance of the class means.

        Parameters
        ----------
        other, eps, label_kernel, label_bandwidth, method
            As in `ckb`.

        Returns
        -------
        float

        Warns
        -----
        MissingClassWarning
            A class occurs in one domain only; it is left out of the sum of means.
        """
        return measure(
            self, other, "ckw", eps=eps, label_kernel=label_kernel, label_bandwidth=label_bandwidth, method=method
        ).squared_distance

    def kernel_bures(self, other: ConditionalMoments, *, method: str = "auto") -> float:
        """Squared kernel Bures distance, which ignores the labels.

        Parameters
        ----------
        other, method
            As in `ckb`.

        Returns
        -------
        float
        """
        return self.measure(other, "kernel_bures", method=method).squared_distance

    def mmd(self, other: ConditionalMoments) -> float:
        """Squared maximum mean discrepancy, which ignores the labels.

        Parameters
        ----------
        other : ConditionalMoments

        Returns
        -------
        float
        """
        return self.measure(other, "mmd").squared_distance

    def measure(
        self,
        other: ConditionalMoments,
        metric: str = "ckb",
        *,
        eps: str | float = 1e-2,
        label_kernel: str | None = None,
        label_bandwidth: Bandwidth | None = None,
        method: str = "auto",
    ) -> MomentDistance:
        """A squared distance with a bound on what the feature map may have cost.

        Parameters
        ----------
        other : ConditionalMoments
            The moments of the target.
        metric : {"ckb", "ckw", "kernel_bures", "mmd"}, optional
            Which distance.
        eps, label_kernel, label_bandwidth, method
            As in `ckb`.

        Returns
        -------
        MomentDistance
        """
        return measure(
            self, other, metric, eps=eps, label_kernel=label_kernel, label_bandwidth=label_bandwidth, method=method
        )


def _named(features: Any, columns: tuple[str, ...]) -> Any:
    import pandas as pd

    return pd.DataFrame(features, columns=list(columns), copy=False)
