"""Domain-adversarial neural network: features from which the domain cannot be told."""

from __future__ import annotations

from bures.methods._adversarial import AdversarialTerm
from bures.methods._method import Method, Schedule
from bures.methods._registry import register

__all__ = ["dann"]


@register("dann", matches="marginal", paper="Ganin et al., JMLR 2016", cost="discriminator, n(d + h)h")
def dann(
    *,
    weight: float = 1.0,
    hidden: int = 1024,
    dropout: float = 0.0,
    start: float = 0.0,
    ramp: float | None = None,
) -> Method:
    r"""Features from which a discriminator cannot tell the domain: :math:`\min_G \max_D\, CE - \lambda_p L_D(D, G)`.

    .. math:: L_D = -\tfrac12 \big( \overline{\log D(z_s)} + \overline{\log (1 - D(z_t))} \big)

    Ganin et al., "Domain-adversarial training of neural networks", JMLR 2016. The discriminator D has three linear
    layers of width ``hidden`` with ReLU (published for Office: 1024) and learns at its full rate; only the gradient
    that reaches the features is reversed and multiplied by
    :math:`\lambda_p = \lambda (2 / (1 + e^{-10 p}) - 1)`, where p rises from 0 to 1 over the whole training, as
    published, or over ``ramp`` epochs; ``weight`` is :math:`\lambda`, published as 1. The half is that of programs,
    which take the mean over the samples of both domains; the publication adds the means of the domains, so that its
    :math:`\lambda = 1` is a ``weight`` of 2, beside a discriminator whose loss is twice as large.
    """
    return Method("dann", [AdversarialTerm(Schedule(weight, start, ramp, "sigmoid"), hidden=hidden, dropout=dropout)])
