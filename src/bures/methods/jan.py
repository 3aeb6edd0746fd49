"""Joint adaptation network: features and predictions together."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bures.arrays import full_precision
from bures.methods._gaussian import MULTIPLES, gaussian_blocks, read_multiples
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register

__all__ = ["JointMMDTerm", "jan"]


@register("jan", matches="joint", paper="Long et al., ICML 2017", cost="n²d")
def jan(
    *,
    weight: float = 1.0,
    multiples: Sequence[float] = MULTIPLES,
    start: float = 0.0,
    ramp: float | None = None,
) -> Method:
    r"""Kernel means of features and predictions together: :math:`CE + \lambda_p\, \mathrm{JMMD}^2`.

    .. math::
        \mathrm{JMMD}^2 = \Big\| \tfrac1n \sum_i \phi(z^s_i) \otimes \psi(p^s_i)
            - \tfrac1m \sum_j \phi(z^t_j) \otimes \psi(p^t_j) \Big\|^2

    Long, Zhu, Wang and Jordan, "Deep transfer learning with joint adaptation networks", ICML 2017. The kernel of a
    pair is the product of a mixture of Gaussians on features (``multiples`` of the mean squared distance) and a
    Gaussian on softmax predictions, of both domains. The gradient flows through both. As published,
    :math:`\lambda_p` rises as a sigmoid to 1 over the whole training, or over ``ramp`` epochs. Ours: the width of the
    kernel on predictions is their mean squared distance (the publication leaves it open, the authors' program has
    1.68); kernels of the mixture have weights that sum to one, as in `dan`; and the estimator is the biased one, which
    is never negative, where the publication's takes linear time.
    """
    return Method("jan", [JointMMDTerm(Schedule(weight, start, ramp, "sigmoid"), multiples)])


class JointMMDTerm(Term):
    """The squared MMD under a product of kernels on features and on predictions."""

    capturable = True

    def __init__(self, schedule: Schedule, multiples: Sequence[float]) -> None:
        super().__init__("jmmd", schedule)
        self.multiples = read_multiples(multiples)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        with full_precision(batch.z_s):
            features = gaussian_blocks(batch.z_s, batch.z_t, self.multiples)
            # Distances between sure predictions are far below the rounding of float32.
            p_s, p_t = (logits.double().softmax(dim=1) for logits in (batch.logits_s, batch.logits_t))
            labels = gaussian_blocks(p_s, p_t, (1.0,))
            within = _product(features.ss, labels.ss).mean() + _product(features.tt, labels.tt).mean()
            return within - 2 * _product(features.ts, labels.ts).mean()


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A product of two kernels less one, from each less one."""
    b = b.to(a.dtype)
    return a + b + a * b
