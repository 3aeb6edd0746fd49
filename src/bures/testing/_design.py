"""What the permutations leave as it is: places, their classes, and all that follows from class counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bures.factors import Factor, UnconditionalFactor, bind_label_kernel, resolve_eps
from bures.labels import Labels

__all__ = ["Design"]


@dataclass(frozen=True)
class Design:
    """Which class each place has; the first ``n_source`` places are the source's.

    ``eps`` and ``contrasts`` are those of `bures.ckb` for these classes: they depend on the class counts only.
    """

    strata: Tensor
    n_source: int
    n_classes: int
    eps: Tensor
    contrasts: tuple[Tensor, Tensor]
    factors: tuple[Factor, Factor] | None

    @classmethod
    def build(cls, strata: Tensor, n_source: int, n_classes: int, eps: str | float, *, factors: bool) -> Design:
        """Bind the Gaussian label kernel; ``factors`` also builds the two factors of B, which only a Gram needs."""
        kernels = []
        for values in (strata[:n_source], strata[n_source:]):
            weights = torch.full((len(values),), 1 / len(values), dtype=torch.float64, device=strata.device)
            labels = Labels("hard", values, None, n_classes, 0.0)
            kernels.append(bind_label_kernel(labels, weights, kernel="gaussian", bandwidth="mean", argument="y"))
        regulariser = resolve_eps(eps, *kernels)
        contrasts = tuple(kernel.contrast for kernel in kernels)
        pair: tuple[Factor, Factor] | None = None
        if factors and n_classes == 1:
            pair = UnconditionalFactor(kernels[0].weights), UnconditionalFactor(kernels[1].weights)
        elif factors:
            pair = kernels[0].factor(regulariser), kernels[1].factor(regulariser)
        return cls(strata, n_source, n_classes, regulariser, contrasts, pair)  # type: ignore[arg-type]

    @property
    def counts(self) -> tuple[Tensor, Tensor]:
        """Class counts (K,) of source and target, in float64."""
        split = self.strata[: self.n_source], self.strata[self.n_source :]
        source, target = (torch.bincount(part, minlength=self.n_classes).double() for part in split)
        return source, target

    def explained(self, side: int) -> Tensor:
        r"""The matrix Q (K, K) of a domain: what the labels and the mean explain of the trace.

        :math:`\mathrm{tr} R = \overline{k(x, x)} - n^{-2} \sum_{ij} Q_{c_i c_j} k(x_i, x_j)`. With the
        class frequencies :math:`\pi` of the domain and :math:`P = I - \pi 1^\top` it is
        :math:`11^\top + P^\top (\mathrm{diag}(\pi + \varepsilon') - \pi\pi^\top)^{-1} P`.
        """
        counts, contrast = self.counts[side], self.contrasts[side]
        ones = torch.ones(self.n_classes, self.n_classes, dtype=torch.float64, device=counts.device)
        if self.n_classes == 1:
            return ones
        frequency = counts / counts.sum()
        ridge = self.eps / contrast
        covariance = torch.diag(frequency + ridge) - torch.outer(frequency, frequency)
        centring = torch.eye(self.n_classes, dtype=torch.float64, device=counts.device) - frequency[:, None]
        explained: Tensor = ones + centring.T @ torch.linalg.solve(covariance, centring)
        return explained

    @property
    def importance(self) -> Tensor:
        """The weights pi (K,) of the class means in CKW; zero for a class that is missing from one domain."""
        n, m = self.counts
        return torch.where((n > 0) & (m > 0), (n / n.sum() + m / m.sum()) / 2, 0.0)
