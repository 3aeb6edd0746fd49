"""What the adversarial methods share: gradient reversal, the discriminator, and the game as a term."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bures.arrays import check_not_negative, full_precision
from bures.methods._checks import check_whole
from bures.methods._method import Batch, Schedule, Term

__all__ = ["AdversarialTerm", "reverse_gradient"]


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float | Tensor) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * grad, None


def reverse_gradient(x: Tensor, factor: float | Tensor = 1.0) -> Tensor:
    """The tensor as it is; its gradient is multiplied by ``-factor``.

    Examples
    --------
    >>> import torch
    >>> from bures.methods._adversarial import reverse_gradient
    >>> x = torch.ones(2, requires_grad=True)
    >>> (3 * reverse_gradient(x, 0.5)).sum().backward()
    >>> x.grad
    tensor([-1.5000, -1.5000])
    """
    reversed_: Tensor = _Reversal.apply(x, factor)
    return reversed_


class AdversarialTerm(Term):
    r"""The cross-entropy of a discriminator of domains, whose gradient is reversed where it leaves the discriminator.

    .. math:: \tfrac12 \big( -\overline{\log D(h_s)} - \overline{\log (1 - D(h_t))} \big)

    The value is log 2 where the domains cannot be told apart. The discriminator learns at its full rate from the
    start of the term on; the schedule is that of the reversed gradient, as published.

    Parameters
    ----------
    schedule : Schedule
        The factor of the reversed gradient.
    hidden : int
        Width of the discriminator's two hidden layers.
    dropout : float
        Probability with which their units are left out in training.

    Notes
    -----
    `setup` makes the discriminator. In a loop of your own, call ``method.setup(n_features, n_classes)`` before you
    make the optimiser, and give the optimiser ``method.parameters()``.
    """

    joins_queue = False
    capturable = True

    discriminator: nn.Module | None

    def __init__(self, schedule: Schedule, *, hidden: int, dropout: float) -> None:
        super().__init__("domains", schedule)
        self.hidden = check_whole("hidden", hidden)
        if check_not_negative("dropout", dropout) >= 1:
            raise ValueError(f"dropout={dropout!r} is out of range; accepted is 0 to below 1")
        self.dropout = dropout
        self.register_module("discriminator", None)

    def setup(self, n_features: int, n_classes: int) -> None:
        """Make the discriminator: three linear layers."""
        if self.discriminator is None:
            widths = [self.n_inputs(n_features, n_classes), self.hidden, self.hidden]
            layers: list[nn.Module] = []
            for before, after in pairwise(widths):
                layers += [nn.Linear(before, after), nn.ReLU()]
                layers += [nn.Dropout(self.dropout)] if self.dropout else []
            self.discriminator = nn.Sequential(*layers, nn.Linear(self.hidden, 1))

    def n_inputs(self, n_features: int, n_classes: int) -> int:
        """Width of what the discriminator sees."""
        return n_features

    def inputs(self, z: Tensor, p: Tensor) -> Tensor:
        """What the discriminator sees of samples with features z (n, d) and predictions p (n, K)."""
        return z

    def sample_weights(self, logits: Tensor) -> Tensor | None:
        """Weights (n,) of samples in the game, with mean one, from logits (n, K); None where all are equal."""
        return None

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, with the gradient to features reversed."""
        return self.weighted(batch, 1.0)[0]

    def weighted(self, batch: Batch, weight: float | Tensor) -> tuple[Tensor, Tensor]:
        """Value of the term; the weight is that of the reversed gradient alone."""
        self._setup_late(batch)
        with full_precision(batch.z_s):
            source = self._side(batch.z_s, batch.logits_s, 1.0, weight)
            target = self._side(batch.z_t, batch.logits_t, 0.0, weight)
            value = (source + target) / 2
        return value, value

    def _side(self, z: Tensor, logits: Tensor, label: float, factor: float | Tensor) -> Tensor:
        assert self.discriminator is not None
        z, logits = reverse_gradient(z, factor), reverse_gradient(logits, factor)
        inputs = self.inputs(z, logits.detach().softmax(dim=1))
        scores: Tensor = self.discriminator(inputs.to(next(self.discriminator.parameters()).dtype)).squeeze(1)
        surprise = binary_cross_entropy_with_logits(scores, torch.full_like(scores, label), reduction="none")
        weights = self.sample_weights(logits)
        return surprise.mean() if weights is None else (weights.to(surprise.dtype) * surprise).mean()

    def _setup_late(self, batch: Batch) -> None:
        """Make the discriminator at its first use, which is too late for an optimiser that exists already."""
        if self.discriminator is not None:
            return
        warnings.warn(
            "the discriminator is made at its first use: an optimiser made before does not train it; call "
            "method.setup(n_features, n_classes) first and pass method.parameters() to the optimiser",
            UserWarning,
            stacklevel=4,
        )
        z = batch.z_s
        self.setup(z.shape[1], batch.logits_s.shape[1])
        self.to(device=z.device, dtype=torch.promote_types(z.dtype, torch.float32))
