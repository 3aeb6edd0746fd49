"""Conditional domain-adversarial network: features and predictions from which the domain cannot be told."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bures.methods._adversarial import AdversarialTerm
from bures.methods._checks import check_whole
from bures.methods._method import Method, Schedule
from bures.methods._registry import register
from bures.methods._terms import prediction_entropies

__all__ = ["ConditionalAdversarialTerm", "cdan", "cdan_entropy", "multilinear_map"]

COST = "discriminator, n(dK + h)h"


@register("cdan", matches="joint", paper="Long et al., NeurIPS 2018", cost=COST)
def cdan(
    *,
    weight: float = 1.0,
    hidden: int = 1024,
    dropout: float = 0.0,
    largest: int = 4096,
    random_features: int = 1024,
    start: float = 0.0,
    ramp: float | None = None,
) -> Method:
    r"""Features and predictions from which a discriminator cannot tell the domain, :math:`CE - \lambda_p L_D(T(z, p))`.

    Long, Cao, Wang and Jordan, "Conditional adversarial domain adaptation", NeurIPS 2018: the game of `dann` where the
    discriminator sees the multilinear map :math:`T(z, p) = z \otimes p`. Above ``largest`` products (published: 4096)
    it sees :math:`\frac{1}{\sqrt r} (R_z z) \odot (R_p p)` instead, with fixed Gaussian matrices and r
    ``random_features``, whose inner products are those of T on average. The publication leaves r open, and whether
    predictions are constants in T; both are as in the authors' program, r = 1024 and constants. That program has
    dropout of 0.5 in its discriminator, and reaches the end of the ramp after 10 000 steps; ours has none, and the ramp
    of `dann` over the whole training.
    """
    schedule = Schedule(weight, start, ramp, "sigmoid")
    term = ConditionalAdversarialTerm(
        schedule, hidden=hidden, dropout=dropout, largest=largest, random_features=random_features, by_entropy=False
    )
    return Method("cdan", [term])


@register("cdan+e", matches="joint", paper="Long et al., NeurIPS 2018", cost=COST)
def cdan_entropy(
    *,
    weight: float = 1.0,
    hidden: int = 1024,
    dropout: float = 0.0,
    largest: int = 4096,
    random_features: int = 1024,
    start: float = 0.0,
    ramp: float | None = None,
) -> Method:
    r"""The game of cdan with weights for samples of certain prediction: :math:`w(p) = 1 + e^{-H(p)}`.

    CDAN+E of the same publication as `cdan`. Weights are divided by their mean over the batch, one domain at a time:
    a certain source does not outweigh an uncertain target. They belong to the part of the objective that the network
    maximises, so the gradient through them to the predictions is reversed too; the mean is a constant.
    """
    schedule = Schedule(weight, start, ramp, "sigmoid")
    term = ConditionalAdversarialTerm(
        schedule, hidden=hidden, dropout=dropout, largest=largest, random_features=random_features, by_entropy=True
    )
    return Method("cdan+e", [term])


class ConditionalAdversarialTerm(AdversarialTerm):
    """The game on features and predictions together, with weights by entropy or without."""

    projection_z: Tensor | None
    projection_p: Tensor | None

    def __init__(
        self,
        schedule: Schedule,
        *,
        hidden: int,
        dropout: float,
        largest: int,
        random_features: int,
        by_entropy: bool,
    ) -> None:
        super().__init__(schedule, hidden=hidden, dropout=dropout)
        self.largest = check_whole("largest", largest)
        self.random_features = check_whole("random_features", random_features)
        self.by_entropy = by_entropy
        self.register_buffer("projection_z", None)
        self.register_buffer("projection_p", None)

    def setup(self, n_features: int, n_classes: int) -> None:
        """Make the discriminator, and the random matrices where all products would be too many."""
        if self.discriminator is None and n_features * n_classes > self.largest:
            self.projection_z = torch.randn(n_features, self.random_features)
            self.projection_p = torch.randn(n_classes, self.random_features)
        super().setup(n_features, n_classes)

    def n_inputs(self, n_features: int, n_classes: int) -> int:
        """Width of what the discriminator sees."""
        products = n_features * n_classes
        return products if products <= self.largest else self.random_features

    def inputs(self, z: Tensor, p: Tensor) -> Tensor:
        """The multilinear map of features and predictions."""
        if self.projection_z is None or self.projection_p is None:
            return multilinear_map(z, p)
        mapped = (z.to(self.projection_z.dtype) @ self.projection_z) * (
            p.to(self.projection_p.dtype) @ self.projection_p
        )
        return mapped / math.sqrt(self.random_features)

    def sample_weights(self, logits: Tensor) -> Tensor | None:
        """Weights by the certainty of predictions, or none."""
        if not self.by_entropy:
            return None
        weights = 1 + (-prediction_entropies(logits)).exp()
        return weights / weights.detach().mean()


def multilinear_map(z: Tensor, p: Tensor) -> Tensor:
    """All products (n, d K) of features z (n, d) and predictions p (n, K), feature by feature.

    Examples
    --------
    >>> import torch
    >>> from bures.methods.cdan import multilinear_map
    >>> multilinear_map(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.25, 0.75]]))
    tensor([[0.2500, 0.7500, 0.5000, 1.5000]])
    """
    return (z[:, :, None] * p.to(z.dtype)[:, None, :]).flatten(start_dim=1)
