"""Deep subdomain adaptation network: mean embeddings of the features, class by class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bures.arrays import full_precision
from bures.methods._gaussian import MULTIPLES, gaussian_blocks, read_multiples
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register
from bures.metrics._mmd import squared_mean_difference

__all__ = ["LocalMMDTerm", "dsan"]


@register("dsan", matches="conditional", paper="Zhu et al., TNNLS 2021", cost="n²(d + K)")
def dsan(
    *,
    weight: float = 1.0,
    multiples: Sequence[float] = MULTIPLES,
    start: float = 0.0,
    ramp: float | None = None,
) -> Method:
    r"""Kernel means of the features, class by class: :math:`CE + \lambda_p\, \mathrm{LMMD}^2`.

    .. math::
        \mathrm{LMMD}^2 = \frac1K \sum_c \Big\| \sum_i w^s_{ic} \phi(z^s_i) - \sum_j w^t_{jc} \phi(z^t_j) \Big\|^2

    Zhu et al., "Deep subdomain adaptation network for image classification", IEEE TNNLS 2021. The weights
    :math:`w_{ic}` are labels of the source and softmax predictions of the target, each divided by its sum over the
    batch; they are constants: the gradient reaches the features only. The publication does not say what becomes of a
    class that the source batch lacks: it is left out, and the mean is over the others. The authors' program also
    leaves out classes that no sample of the target batch is most probably of; here they count. :math:`\lambda_p` rises
    as a sigmoid over the whole training, as published, or over ``ramp`` epochs. Its end, ``weight``, is 1 here; the
    authors' program has 0.5 with kernels that are summed, which is 2.5 with those of `dan`, that sum to one.
    """
    return Method("dsan", [LocalMMDTerm(Schedule(weight, start, ramp, "sigmoid"), multiples)])


class LocalMMDTerm(Term):
    """The mean over classes of the squared MMD between samples of a class."""

    capturable = True

    def __init__(self, schedule: Schedule, multiples: Sequence[float]) -> None:
        super().__init__("lmmd", schedule)
        self.multiples = read_multiples(multiples)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        with full_precision(batch.z_s):
            p_t = batch.p_t.detach().to(torch.promote_types(batch.z_t.dtype, torch.float32))
            blocks = gaussian_blocks(batch.z_s, batch.z_t, self.multiples)
            mass_s, mass_t = one_hot(batch.y_s, p_t.shape[1]).to(p_t), p_t
            # Not "greater than zero": predictions that are not finite must not pass for missing classes.
            there = ~((mass_s.sum(dim=0) <= 0) | (mass_t.sum(dim=0) <= 0))
            distances = squared_mean_difference(blocks, _shares(mass_s), _shares(mass_t))
            return torch.where(there, distances, 0.0).sum() / there.sum().clamp_min(1)


def _shares(mass: Tensor) -> Tensor:
    """Columns that sum to one, for the classes that a batch has."""
    return mass / mass.sum(dim=0).clamp_min(torch.finfo(mass.dtype).tiny)
