"""A kernel between new rows and the rows an estimator was fitted on, with its bandwidth fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel

from bures.arrays import check_choice, numpy_to_tensor
from bures.estimators._base import Floats
from bures.feature_maps._bandwidth import pooled_bandwidth
from bures.kernels import KERNELS, Bandwidth, check_bandwidth

__all__ = ["KernelRows"]


@dataclass(frozen=True)
class KernelRows:
    """The kernel of `bures.ckb` by name, its bandwidth (sigma squared), and the fitted rows (n, d)."""

    kernel: str
    bandwidth: float | None
    centre: Floats
    rows: Floats

    @classmethod
    def fit(cls, rows: Floats, kernel: str, bandwidth: Bandwidth) -> KernelRows:
        """Fix the bandwidth by a rule of `bures.ckb` on the rows of both domains."""
        check_choice("kernel", kernel, KERNELS)
        check_bandwidth(bandwidth, rules=("shared", "median"))
        if kernel == "linear":
            return cls(kernel, None, np.zeros(rows.shape[1]), rows)
        # Distances are formed by matrix products, which lose the digits of a large common offset.
        centre = rows.mean(axis=0)
        return cls(kernel, pooled_bandwidth(numpy_to_tensor("X", rows), kernel, bandwidth), centre, rows - centre)

    def __call__(self, x: Floats) -> Floats:
        """Kernel values (k, n) between the rows of x (k, d) and the fitted ones."""
        if self.bandwidth is None:
            return np.asarray(linear_kernel(x, self.rows))
        if self.kernel == "gaussian":
            return np.asarray(rbf_kernel(x - self.centre, self.rows, gamma=1 / self.bandwidth))
        return np.asarray(laplacian_kernel(x - self.centre, self.rows, gamma=self.bandwidth**-0.5))

    def gram(self) -> Floats:
        """Kernel values (n, n) among the fitted rows, symmetric."""
        values = self(self.rows + self.centre)
        return (values + values.T) / 2
