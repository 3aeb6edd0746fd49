r"""A statistic for many orders of the samples at once.

An engine knows the pooled samples by their kernel matrix or by explicit features. For a batch of orders it gives the
*spread*, the squared Bures distance between the conditional covariance operators (CKB), and the *means*, the squared
distances between the means of each class. CKB is the first, CKW the first plus the weighted sum of the second; with
one class they are kernel Bures and MMD. Bandwidths, regulariser and class counts are the same for every order, so the
kernel is evaluated once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, Union

import torch
from torch import Tensor

from bures.spectral import nuclear_norm
from bures.testing._design import Design

__all__ = ["Engine", "FeatureEngine", "GramEngine", "leading_directions"]

Engine: TypeAlias = Union["GramEngine", "FeatureEngine"]
"""The pooled samples, ready for any order of them."""

BATCH_BYTES = 2**26
"""About how much memory a batch of orders takes."""

SVD_UP_TO = 128
"""Smaller nuclear norms come from singular values; above, from a Gram matrix, faster and good to 1e-8."""

JITTER = 1e-12
"""Added to the diagonal of a covariance, relative to its trace, before it is factorised."""


@dataclass(frozen=True)
class GramEngine:
    """Exact: the kernel matrix (N, N) of the pooled samples, which may lack a constant."""

    gram: Tensor
    design: Design

    @property
    def batch(self) -> int:
        """How many orders fit into `BATCH_BYTES`."""
        n = self.design.n_source
        return max(1, BATCH_BYTES // (24 * n * (len(self.gram) - n)))

    @property
    def scale(self) -> float:
        """Variance within classes of the pooled samples: the unit of effect sizes, the same for every order."""
        counts = torch.bincount(self.design.strata, minlength=self.design.n_classes).double()
        within = self.gram.diagonal() - self._within.sum(dim=1) / counts[self.design.strata]
        return float(within.mean().clamp_min(0))

    def spread(self, orders: Tensor) -> Tensor:
        """Theorem 5 for every order: the factors of B belong to places and stay, the kernel's entries move."""
        n = self.design.n_source
        assert self.design.factors is not None
        factor_s, factor_t = self.design.factors
        s, t = orders[:, :n], orders[:, n:]
        cross = factor_s.apply(factor_t.apply(self.gram[t[:, :, None], s[:, None, :]]).mT)
        small = min(cross.shape[-2:]) <= SVD_UP_TO
        in_source = _marks(orders, n)
        traces = self._trace(in_source, 0) + self._trace(1 - in_source, 1)
        return traces - 2 * nuclear_norm(cross, "svd" if small else "gram")

    def _trace(self, chosen: Tensor, side: int) -> Tensor:
        """Traces (b,) of the operator of a domain whose samples are marked (b, N) by one."""
        count = self.design.counts[side].sum()
        explained = chosen * (chosen @ self._weighted[side])
        return chosen @ self.gram.diagonal() / count - explained.sum(dim=1) / count**2

    @cached_property
    def _weighted(self) -> tuple[Tensor, Tensor]:
        strata = self.design.strata
        source, target = (self.design.explained(side)[strata][:, strata] * self.gram for side in (0, 1))
        return source, target

    def means(self, orders: Tensor) -> Tensor:
        r"""For class c, :math:`z^\top K_{cc} z` with z one over the class count, negative in the target."""
        strata, n = self.design.strata, self.design.n_source
        count_s, count_t = self.design.counts
        both = (count_s > 0) & (count_t > 0)
        of_place = torch.cat([1 / count_s[strata[:n]], -1 / count_t[strata[n:]]]) * both[strata]
        z = torch.zeros(orders.shape, dtype=torch.float64, device=self.gram.device)
        z.scatter_(1, orders, of_place.expand(orders.shape))
        terms = z * (z @ self._within)
        result = torch.zeros(len(orders), self.design.n_classes, dtype=torch.float64, device=self.gram.device)
        return result.index_add_(1, strata, terms)

    @cached_property
    def _within(self) -> Tensor:
        return torch.where(self.design.strata[:, None] == self.design.strata, self.gram, 0.0)

    def part(self, members: Tensor, design: Design, n_directions: int) -> Engine:
        """The engine of some samples alone, reduced to their leading directions where that is cheaper."""
        return reduced(self.gram[members][:, members], design, n_directions)


@dataclass(frozen=True)
class FeatureEngine:
    """Explicit features (N, D) of the pooled samples, less their mean: every statistic follows from sums."""

    features: Tensor
    design: Design

    @property
    def batch(self) -> int:
        """How many orders fit into `BATCH_BYTES`."""
        count, width = self.features.shape
        few = min(self.design.n_source, count - self.design.n_source)
        return max(1, BATCH_BYTES // (8 * width * (few + 4 * width + 3 * self.design.n_classes)))

    @property
    def scale(self) -> float:
        """Variance within classes of the pooled samples: the unit of effect sizes, the same for every order."""
        counts = torch.bincount(self.design.strata, minlength=self.design.n_classes).double()
        between = (self._sums[0].square().sum(dim=1) / counts)[counts > 0]
        return float(((self.features.square().sum() - between.sum()) / len(self.features)).clamp_min(0))

    def spread(self, orders: Tensor) -> Tensor:
        r"""Two D x D operators for every order; what the source does not have of the sums, the target has.

        With the second moment S, the class sums over n, :math:`a_c`, centred as :math:`b_c = a_c - \pi_c \sum a`, and
        :math:`\varepsilon' = \varepsilon / (1 - a)`, the operator is
        :math:`S / n - \mu\mu^\top - b^\top (\mathrm{diag}(\pi + \varepsilon') - \pi\pi^\top)^{-1} b`; the inverse is a
        diagonal and a matrix of rank one.
        """
        n = self.design.n_source
        few = self.features[orders[:, :n] if 2 * n <= len(self.features) else orders[:, n:]]
        second = few.mT @ few
        second_s, second_t = (
            (second, self._second - second) if 2 * n <= len(self.features) else (self._second - second, second)
        )
        sums_s = self._class_sums(_marks(orders, n))
        sums_t = self._sums - sums_s
        (count_s, count_t), (contrast_s, contrast_t) = self.design.counts, self.design.contrasts
        r_s = _conditional_covariance(second_s, sums_s, count_s, self.design.eps / contrast_s)
        r_t = _conditional_covariance(second_t, sums_t, count_t, self.design.eps / contrast_t)
        return _bures(r_s, r_t)

    def means(self, orders: Tensor) -> Tensor:
        """Squared distances of class means (b, K)."""
        count_s, count_t = (count[:, None] for count in self.design.counts)
        sums_s = self._class_sums(_marks(orders, self.design.n_source))
        sums_t = self._sums - sums_s
        difference = torch.where((count_s > 0) & (count_t > 0), sums_s / count_s - sums_t / count_t, 0.0)
        return difference.square().sum(dim=2)

    def part(self, members: Tensor, design: Design, n_directions: int) -> Engine:
        """The engine of some samples alone, reduced to their leading directions where that is cheaper."""
        rows = self.features[members]
        rows = rows - rows.mean(dim=0)
        if min(design.n_source, len(members) - design.n_source) <= n_directions:
            return GramEngine(rows @ rows.T, design)
        return FeatureEngine(leading_directions(rows, n_directions), design)

    @cached_property
    def _second(self) -> Tensor:
        return self.features.T @ self.features

    @cached_property
    def _sums(self) -> Tensor:
        return self._class_sums(torch.ones_like(self.features[:, :1]).T)

    def _class_sums(self, in_source: Tensor) -> Tensor:
        """Sums (b, K, D) over the samples of each class marked (b, N) by one; samples keep their class."""
        sums = [in_source[:, members] @ self.features[members] for members in self._members]
        return torch.stack(sums, dim=1)

    @cached_property
    def _members(self) -> tuple[Tensor, ...]:
        sizes = torch.bincount(self.design.strata, minlength=self.design.n_classes)
        return torch.split(torch.argsort(self.design.strata, stable=True), sizes.tolist())


def reduced(gram: Tensor, design: Design, n_directions: int) -> Engine:
    """A kernel matrix as it is, or as features where both domains have more samples than there are directions."""
    if min(design.n_source, len(gram) - design.n_source) <= n_directions:
        return GramEngine(gram, design)
    centred = gram - gram.mean(dim=0) - gram.mean(dim=1, keepdim=True) + gram.mean()
    values, vectors = torch.linalg.eigh((centred + centred.T) / 2)
    kept = values[-n_directions:].clamp_min(0).sqrt()
    return FeatureEngine(vectors[:, -n_directions:] * kept, design)


def leading_directions(rows: Tensor, n_directions: int) -> Tensor:
    """Centred rows (N, D) in the coordinates of their leading principal directions, which know of no domain."""
    if rows.shape[1] <= n_directions:
        return rows
    vectors: Tensor = torch.linalg.eigh(rows.T @ rows)[1]
    return rows @ vectors[:, -n_directions:]


def _marks(orders: Tensor, n_source: int) -> Tensor:
    """One for each sample (b, N) that an order puts into the source, zero for the others."""
    marks = torch.zeros(orders.shape, dtype=torch.float64, device=orders.device)
    return marks.scatter_(1, orders[:, :n_source], 1.0)


def _conditional_covariance(second: Tensor, sums: Tensor, counts: Tensor, ridge: Tensor) -> Tensor:
    """The operators (b, D, D) of one domain from second moments (b, D, D) and class sums (b, K, D)."""
    n = counts.sum()
    frequency = counts / n
    means = sums / n
    mean = means.sum(dim=1, keepdim=True)
    if len(counts) == 1:
        return second / n - mean.mT @ mean
    centred = means - frequency[:, None] * mean
    shrunk = 1 / (frequency + ridge)
    along = (frequency * shrunk) @ centred / (frequency * ridge * shrunk).sum().sqrt()
    explained = torch.cat([mean, shrunk.sqrt()[:, None] * centred, along[:, None]], dim=1)
    return second / n - explained.mT @ explained


def _bures(r_s: Tensor, r_t: Tensor) -> Tensor:
    """Squared Bures distances (b,) between operators (b, D, D)."""
    trace_s = r_s.diagonal(dim1=1, dim2=2).sum(dim=1)
    trace_t = r_t.diagonal(dim1=1, dim2=2).sum(dim=1)
    jitter = JITTER * (trace_s + trace_t).clamp_min(torch.finfo(torch.float64).tiny)
    eye = torch.eye(r_s.shape[1], dtype=r_s.dtype, device=r_s.device)
    root, failed = torch.linalg.cholesky_ex(r_s + jitter[:, None, None] * eye)
    if bool(failed.any()):  # a covariance of low rank whose rounding exceeds the jitter
        values, vectors = torch.linalg.eigh(r_s[failed > 0])
        root[failed > 0] = vectors * values.clamp_min(0).sqrt().unsqueeze(1)
    product = root.mT @ r_t @ root
    fidelity: Tensor = torch.linalg.eigvalsh((product + product.mT) / 2).clamp_min(0).sqrt().sum(dim=1)
    return trace_s + trace_t - 2 * fidelity
