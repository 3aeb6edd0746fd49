"""Random Fourier features: waves drawn from the spectrum of the kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from bures.arrays import Array, check_count, check_seed
from bures.devices import cpu_by_default
from bures.feature_maps._bandwidth import check_radial_kernel, pooled_bandwidth
from bures.feature_maps._base import FeatureMap, mean_row, place, pool, pooled_columns
from bures.kernels import Bandwidth

__all__ = ["RandomFourierMap"]


@dataclass(frozen=True, eq=False, repr=False)
class RandomFourierMap(FeatureMap):
    r"""Random Fourier features of the Gaussian or Laplacian kernel [1]_; made by `RandomFourierMap.fit`.

    .. math::
        \phi(x) = \sqrt{\tfrac{2}{D}}\, \big(\cos \omega_j^\top x,\; \sin \omega_j^\top x\big)_{j=1}^{D/2},
        \qquad \mathbb{E}\, \phi(x)^\top \phi(x') = k(x, x'),

    with :math:`\omega \sim N(0, \tfrac{2}{\sigma^2} I)` for the Gaussian kernel :math:`\exp(-\|x-x'\|^2/\sigma^2)` and
    independent Cauchy entries of scale :math:`1/\sigma` for the Laplacian kernel :math:`\exp(-\|x-x'\|_1/\sigma)`. The
    features need no landmarks, and their error falls like :math:`D^{-1/2}` whatever the data; it is random, so no bound
    is certified.

    Attributes
    ----------
    kernel : {"gaussian", "laplacian"}
    bandwidth : float
        :math:`\sigma^2`, fixed.
    centre, frequencies : Tensor (d,), (d, D / 2)
        What the map subtracts, and half the frequencies.
    dtype : torch.dtype
        What the features are computed in.
    columns : tuple of str or None
        Names of the columns, where the map was fitted on data frames; others are put into their order.

    References
    ----------
    .. [1] A. Rahimi and B. Recht, "Random Features for Large-Scale Kernel Machines", NIPS 2007.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(size=(200, 3)), 1 + rng.normal(size=(200, 3))
    >>> phi = bures.RandomFourierMap.fit(source, target, n_features=1000, seed=1)
    >>> k = np.exp(-((source[0] - target[0]) ** 2).sum() / phi.bandwidth)
    >>> bool(abs(phi(source[:1]) @ phi(target[:1]).T - k) < 0.1)
    True
    """

    centre: Tensor
    frequencies: Tensor
    kernel: str
    bandwidth: float
    dtype: torch.dtype = torch.float64
    columns: tuple[str, ...] | None = None

    @classmethod
    @cpu_by_default()
    def fit(
        cls,
        xs: Array,
        xt: Array | None = None,
        *,
        n_features: int,
        kernel: Literal["gaussian", "laplacian"] = "gaussian",
        bandwidth: Bandwidth = "shared",
        seed: int = 0,
    ) -> RandomFourierMap:
        """Take the bandwidth from a sample of both domains, pooled, and draw the frequencies.

        Parameters
        ----------
        xs : array (n, d)
            A sample of the source.
        xt : array (m, d), optional
            A sample of the target.
        n_features : int
            Number of features D; even.
        kernel : {"gaussian", "laplacian"}, optional
        bandwidth : {"shared", "median"} or float, optional
            As in `bures.ckb`, on the pooled sample; a number is sigma squared.
        seed : int, optional
            Seed of the frequencies.

        Returns
        -------
        RandomFourierMap
        """
        check_radial_kernel(kernel, bandwidth)
        n_features = check_count("n_features", n_features)
        if n_features % 2:
            raise ValueError(f"n_features={n_features} is odd; accepted are even numbers, a cosine for each sine")
        seed = check_seed(seed)
        pooled = pool(xs, xt)
        sigma2 = pooled_bandwidth(pooled, kernel, bandwidth)
        # Drawn on the CPU, so that a seed gives the same map everywhere.
        generator = torch.Generator().manual_seed(seed)
        shape = (pooled.shape[1], n_features // 2)
        if kernel == "gaussian":
            frequencies = math.sqrt(2) * torch.randn(shape, generator=generator, dtype=torch.float64)
        else:
            frequencies = torch.empty(shape, dtype=torch.float64).cauchy_(generator=generator)
        columns = pooled_columns(xs, xt)
        return cls(mean_row(pooled), frequencies.to(pooled.device) / 2, kernel, sigma2, columns=columns)

    def features(self, x: Tensor) -> Tensor:
        """Features (n, D) less `offset`, in the precision of the map."""
        rows = place(x, self.centre, self.bandwidth**-0.5, self.dtype)
        half = rows @ self.frequencies
        # cos 2a - 1 = -2 sin^2 a and sin 2a = 2 sin a cos a: for a wide kernel cos 2a itself would be one.
        sine = half.sin()
        return torch.cat([-sine.square(), sine * half.cos()], dim=1) * (2 / math.sqrt(self.frequencies.shape[1]))

    @property
    def offset(self) -> Tensor:
        """The features at the centre, (D,): ones for the cosines, zeros for the sines."""
        waves = self.frequencies.shape[1]
        ones = torch.full((waves,), 1 / math.sqrt(waves), dtype=torch.float64, device=self.device)
        return torch.cat([ones, torch.zeros_like(ones)])

    @property
    def is_projection(self) -> bool:
        """False: random features are no projection of the kernel's own."""
        return False

    @property
    def n_features(self) -> int:
        """Number of features D."""
        return 2 * self.frequencies.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that determine the map."""
        return {"centre": self.centre, "frequencies": self.frequencies}

    def settings(self) -> dict[str, Any]:
        """The numbers and names that determine the map."""
        return {"kernel": self.kernel, "bandwidth": self.bandwidth}

    def _in_dtype(self, dtype: torch.dtype) -> dict[str, Tensor]:
        return {"centre": self.centre, "frequencies": self.frequencies.to(dtype)}
