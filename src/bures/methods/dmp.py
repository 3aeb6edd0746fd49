"""Discriminative manifold propagation: subspaces of the features, and classes that keep apart."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
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
        L_{intra} = -\frac1m \sum_j \big(p^t_{jc_j} \cos(z^t_j, \mu_{c_j})\big)^2, \ c_j = \arg\max_c p^t_{jc}, \quad
        L_{inter} = \frac1{|P|} \sum_{(c,c') \in P} \Big(\tfrac{1 + \cos(m_c - \mu, m_{c'} - \mu)}{2}\Big)^2

    Luo, Ren, Dai and Yan, "Unsupervised domain adaptation via discriminative manifold propagation", TPAMI 2022, and its
    predecessor, AAAI 2020, with its authors' program. :math:`\Pi` projects on the span (of dimension r) of the
    centred features of a batch and G is a metric of the Grassmann manifold; :math:`\mu_c` are class centres of the
    source and :math:`\mu` their mean, constants of the graph; :math:`m_c` are the class means of the source batch, and
    P the pairs of classes that it has. It says nothing where a batch spans the whole space: use more features than
    samples.

    From the authors' program: of a target sample's predictions the largest alone counts (its "top k" with k = 1). What
    the descriptions leave open, and the choice here: terms act on one layer, not two. Centres are running means, where
    the authors keep those of the last epoch, and both parts of L begin together, where the authors' begin after the
    first and the tenth epoch. Cosines are differentiated as they are; that program takes the lengths in them for
    constants. Every term lies in [-1, 1] (the authors divide by :math:`d^2`, :math:`m K` and pairs of samples); the
    weights 1 are then near theirs on ImageCLEF, with 512 features and 12 classes. The bound on propagation between
    domains and the variants of the metric of the longer publication are left out.
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

    That is :math:`(r_s + r_t - 2\, \mathrm{tr}\, \Pi_s \Pi_t) / (r_s + r_t)`.
    """
    a, b = (z.double() - z.double().mean(dim=0) for z in (z_s, z_t))
    shared, rank_a, rank_b = _SharedDimensions.apply(a, b, _rounding(z_s), _rounding(z_t))
    distance: Tensor = (rank_a + rank_b - 2 * shared) / (rank_a + rank_b).clamp_min(1)
    return distance


class _SharedDimensions(torch.autograd.Function):
    r"""Trace of the product of two projectors, and their ranks.

    For :math:`X = U S V^\top` the projector :math:`V V^\top` moves with X by
    :math:`V S^{-1} U^\top dX (I - V V^\top)` and its transpose. That divides by singular values, and never by
    differences of them as the derivatives of V do.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, least_a: Tensor, least_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (left_a, v_a, rank_a), (left_b, v_b, rank_b) = _span(a, least_a), _span(b, least_b)
        ctx.save_for_backward(left_a, v_a, left_b, v_b)
        ctx.mark_non_differentiable(rank_a, rank_b)
        return (v_a.T @ v_b).square().sum(), rank_a, rank_b

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, None, None]:
        left_a, v_a, left_b, v_b = ctx.saved_tensors
        cosines = v_a.T @ v_b
        to_a = left_a @ (cosines @ v_b.T - cosines @ cosines.T @ v_a.T)
        to_b = left_b @ (cosines.T @ v_a.T - cosines.T @ cosines @ v_b.T)
        return 2 * grad * to_a, 2 * grad * to_b, None, None


def _span(x: Tensor, least: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U / S (n, n) and V (d, n) of rows (n, d), zero in directions that are not part of the span, and its dimension."""
    values, u = torch.linalg.eigh(x @ x.T)
    s = values.clamp_min(0).sqrt()
    kept = s > torch.maximum(least, RESOLUTION * s[-1])
    left = u * torch.where(kept, 1 / s, 0.0)
    return left, x.T @ left, kept.sum().to(x.dtype)


def _rounding(z: Tensor) -> Tensor:
    """Deviations below this are the rounding of equal rows, relative to whose deviations nothing is small."""
    return torch.finfo(z.dtype).eps * z.detach().double().abs().amax() * max(z.shape)


class DiscriminationTerm(Term):
    """Centres of source classes that point apart, and target samples near the centre they are predicted for."""

    joins_queue = False
    capturable = True

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
            z, k = batch.z_s, batch.logits_s.shape[1]
            members = one_hot(batch.y_s, k).to(z.dtype)
            counts = members.sum(dim=0)
            means, there = members.T @ z / counts.clamp_min(1)[:, None], counts > 0
            centres, seen = self._centres(means.detach(), there)
            centres = centres.to(z.dtype)
            return self._source(means, there, centres, seen, _rounding(z)) + self._target(batch, centres)

    def _source(self, means: Tensor, there: Tensor, centres: Tensor, seen: Tensor, rounding: Tensor) -> Tensor:
        known = seen.to(means.dtype)
        centre = (known @ centres) / known.sum().clamp_min(1)
        away = means - centre
        lengths = torch.linalg.vector_norm(away, dim=1, keepdim=True)
        # Centres of classes that are all at one point differ by rounding, which has no direction.
        apart = lengths > rounding.clamp_min(torch.finfo(means.dtype).tiny ** 0.5)
        directions = torch.where(apart, away / torch.where(apart, lengths, 1.0), 0.0)
        similarity = ((1 + directions @ directions.T) / 2).square()
        pairs = (there[:, None] & there).triu(diagonal=1)
        return torch.where(pairs, similarity, 0.0).sum() / pairs.sum().clamp_min(1)

    def _target(self, batch: Batch, centres: Tensor) -> Tensor:
        small = torch.finfo(batch.z_t.dtype).tiny ** 0.5
        cosines = normalize(batch.z_t, eps=small) @ normalize(centres, eps=small).T
        p, predicted = batch.p_t.max(dim=1)
        # The likeliest class, however near another centre is: a doubtful sample is not drawn to a class of less weight.
        return -(p * cosines.gather(1, predicted[:, None])[:, 0]).square().mean()

    def _centres(self, means: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Running centres of the classes, this batch included, and which classes have one."""
        self.setup(means.shape[1], means.shape[0])
        assert self.centres is not None
        assert self.seen is not None
        if self.centres.device != means.device:
            self.centres, self.seen = self.centres.to(means.device), self.seen.to(means.device)
        means = means.to(self.centres.dtype)
        moved = torch.where(self.seen[:, None], MOMENTUM * self.centres + (1 - MOMENTUM) * means, means)
        centres, seen = torch.where(there[:, None], moved, self.centres), self.seen | there
        if self.training:
            # In place: a CUDA graph of the step goes on from what the last replay has written here.
            self.centres.copy_(centres)
            self.seen.copy_(seen)
        return centres, seen
