"""Discriminative manifold propagation: subspaces of the features, and classes that keep apart."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from bures.arrays import full_precision
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register

__all__ = ["DiscriminationTerm", "SubspaceTerm", "dmp", "subspace_distance"]

MOMENTUM = 0.95  # of the class centres: some twenty batches, while features still change
RESOLUTION = 1e-4  # directions with less than this share of the largest deviation are not part of a subspace


@register("dmp", matches="marginal", paper="Luo et al., TPAMI 2022", cost="n²d + n³ + ndK")
def dmp(
    *,
    weight: float = 1.0,
    discrimination: float = 1.0,
    start: float = 0.0,
    discrimination_start: float = 1.0,
    ramp: float = 0.0,
) -> Method:
    r"""Subspaces of the features, and classes that keep apart: :math:`CE + \lambda_1 L + \lambda_2 G`.

    .. math::
        G = \frac{\|\Pi_s - \Pi_t\|_F^2}{r_s + r_t}, \quad
        L = L_{inter} + L_{intra}, \\
        L_{intra} = -\frac1m \sum_j \max_c \big(p^t_{jc} \cos(z^t_j, \mu_c)\big)^2, \quad
        L_{inter} = \frac{2}{K(K-1)} \sum_{c<c'} \Big(\tfrac{1 + \cos(\mu_c - \mu, \mu_{c'} - \mu)}{2}\Big)^2

    Luo, Ren, Dai and Yan, "Unsupervised domain adaptation via discriminative manifold propagation", TPAMI 2022, and its
    predecessor, AAAI 2020, with its authors' programme. :math:`\Pi` projects on the span (of dimension r) of the
    centred features of a batch and G is a metric of the Grassmann manifold; :math:`\mu_c` are class centres of the
    source. It says nothing where a batch spans the whole space: use more features than samples.

    What the descriptions leave open, and the choice here: terms act on one layer, not two. Centres are running means,
    where the authors keep those of the last epoch; the source's term differentiates through the classes of the batch
    alone. Every term lies in [-1, 1] (the authors divide by :math:`d^2`, :math:`m K` and pairs of samples); the weights
    1 are then near theirs on ImageCLEF, with 512 features and 12 classes. The bound on propagation between domains and
    the variants of the metric of the longer publication are left out.
    """
    terms = [
        SubspaceTerm("subspaces", Schedule(weight, start, ramp)),
        DiscriminationTerm(Schedule(discrimination, discrimination_start, ramp)),
    ]
    return Method("dmp", terms)


class SubspaceTerm(Term):
    """The squared projection distance of the spans of two batches over their dimensions: from 0, equal, to 1."""

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        n, d = min(len(batch.z_s), len(batch.z_t)), batch.z_s.shape[1]
        if n > d:
            warnings.warn(
                f"batches of {n} samples span all {d} features, so that their subspaces are always equal; dmp needs "
                "fewer samples than features",
                UserWarning,
                stacklevel=2,
            )
        with full_precision(batch.z_s):
            value = subspace_distance(batch.z_s, batch.z_t)
            return value.to(torch.promote_types(batch.z_s.dtype, torch.float32))


def subspace_distance(z_s: Tensor, z_t: Tensor) -> Tensor:
    r"""Squared projection distance of the spans of the centred rows, over their dimensions, in float64.

    With :math:`\Pi = X^\top (X X^\top)^+ X` and ranks r, the square :math:`r_s + r_t - 2\, \mathrm{tr}\, \Pi_s \Pi_t`
    takes matrices of the size of the batch alone. The derivative of a pseudoinverse divides by eigenvalues that are
    kept and never by differences of them.
    """
    (a, inverse_a, rank_a), (b, inverse_b, rank_b) = _span(z_s), _span(z_t)
    between = a @ b.T
    shared = ((inverse_a @ between) * (between @ inverse_b)).sum()
    return (rank_a + rank_b - 2 * shared) / (rank_a + rank_b).clamp_min(1)


def _span(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centred rows in float64, the pseudoinverse of their Gram matrix, and its rank."""
    exact = z.double()
    centred = exact - exact.mean(dim=0)
    gram = centred @ centred.T
    # For equal rows, relative to whose deviations nothing is small, the rounding of the mean is no direction.
    rounding = torch.finfo(z.dtype).eps * exact.detach().abs().amax() * max(z.shape)
    floor = rounding.square().clamp_min(torch.finfo(torch.float64).tiny)
    inverse: Tensor = torch.linalg.pinv(gram, atol=floor, rtol=RESOLUTION**2, hermitian=True)
    return centred, inverse, (inverse * gram).sum().detach().round()


class DiscriminationTerm(Term):
    """Centres of source classes that point apart, and target samples near the centre they are predicted for."""

    centres: Tensor | None
    seen: Tensor | None

    def __init__(self, schedule: Schedule) -> None:
        super().__init__("discrimination", schedule)
        self.register_buffer("centres", None)
        self.register_buffer("seen", None)

    def setup(self, n_features: int, n_classes: int) -> None:
        """Make room for the class centres; a class that was not seen yet has none."""
        if self.centres is None:
            self.centres = torch.zeros(n_classes, n_features)
            self.seen = torch.zeros(n_classes, dtype=torch.bool)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        with full_precision(batch.z_s):
            return self._source(batch) + self._target(batch)

    def _source(self, batch: Batch) -> Tensor:
        z, k = batch.z_s, batch.logits_s.shape[1]
        members = one_hot(batch.y_s, k).to(z.dtype)
        counts = members.sum(dim=0)
        means = members.T @ z / counts.clamp_min(1)[:, None]
        there = counts > 0
        self._update(means.detach(), there)
        assert self.centres is not None
        assert self.seen is not None
        known = self.seen.to(z.dtype)
        centre = (known @ self.centres.to(z.dtype)) / known.sum().clamp_min(1)
        directions = normalize(means - centre, eps=torch.finfo(z.dtype).tiny ** 0.5)
        similarity = ((1 + directions @ directions.T) / 2).square()
        pairs = (there[:, None] & there).triu(diagonal=1)
        return torch.where(pairs, similarity, 0.0).sum() / pairs.sum().clamp_min(1)

    def _target(self, batch: Batch) -> Tensor:
        assert self.centres is not None
        small = torch.finfo(batch.z_t.dtype).tiny ** 0.5
        cosines = normalize(batch.z_t, eps=small) @ normalize(self.centres.to(batch.z_t.dtype), eps=small).T
        return -(batch.p_t * cosines).square().amax(dim=1).mean()

    def _update(self, means: Tensor, there: Tensor) -> None:
        self.setup(means.shape[1], means.shape[0])
        assert self.centres is not None
        assert self.seen is not None
        if self.centres.device != means.device:
            self.centres, self.seen = self.centres.to(means.device), self.seen.to(means.device)
        means = means.to(self.centres.dtype)
        moved = torch.where(self.seen[:, None], MOMENTUM * self.centres + (1 - MOMENTUM) * means, means)
        self.centres = torch.where(there[:, None], moved, self.centres)
        self.seen = self.seen | there
