"""The linear kernel: the sample itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bures.arrays import Array
from bures.feature_maps._base import FeatureMap, mean_row, place, pool, pooled_columns

__all__ = ["LinearMap"]


@dataclass(frozen=True, eq=False, repr=False)
class LinearMap(FeatureMap):
    r"""The features of the linear kernel, :math:`\phi(x) = x`; made by `LinearMap.fit`.

    Attributes
    ----------
    centre : Tensor (d,)
        Mean of the sample the map was fitted on; sums are taken around it.
    dtype : torch.dtype
        What the features are computed in.
    columns : tuple of str or None
        Names of the columns, where the map was fitted on data frames; others are put into their order.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(50, 3))
    >>> bures.LinearMap.fit(x)
    LinearMap(n_inputs=3, n_features=3, kernel='linear')
    >>> np.allclose(bures.LinearMap.fit(x)(x), x)
    True
    """

    centre: Tensor
    dtype: torch.dtype = torch.float64
    columns: tuple[str, ...] | None = None
    kernel = "linear"
    bandwidth = None

    @classmethod
    def fit(cls, xs: Array, xt: Array | None = None) -> LinearMap:
        """Take the centre from a sample of both domains; any sample will do, even one row.

        Parameters
        ----------
        xs : array (n, d)
        xt : array (m, d), optional

        Returns
        -------
        LinearMap
        """
        return cls(mean_row(pool(xs, xt)), columns=pooled_columns(xs, xt))

    def features(self, x: Tensor) -> Tensor:
        """Features (n, d) less the centre."""
        return place(x, self.centre, 1.0, self.dtype)

    @property
    def offset(self) -> Tensor:
        """The centre."""
        return self.centre

    @property
    def n_features(self) -> int:
        """Number of features D = d."""
        return len(self.centre)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that determine the map."""
        return {"centre": self.centre}

    def settings(self) -> dict[str, Any]:
        """Nothing beside the tensors."""
        return {}
