"""Deep CORAL: covariances of the features."""

from __future__ import annotations

from torch import Tensor

from bures.arrays import full_precision
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register

__all__ = ["CoralTerm", "deep_coral"]


@register("deep-coral", matches="marginal", paper="Sun and Saenko, ECCV workshop 2016", cost="nd²")
def deep_coral(*, weight: float = 1.0, start: float = 0.0, ramp: float = 0.0) -> Method:
    r"""Covariances of the features, entry by entry: :math:`CE + \lambda \frac{1}{4 d^2} \|C_s - C_t\|_F^2`.

    Sun and Saenko, "Deep CORAL: correlation alignment for deep domain adaptation", ECCV workshops 2016, with
    :math:`C` the covariance with n - 1 degrees of freedom. The publication compares what the last layer gives for the
    classes and chooses :math:`\lambda` such that at the end of training both losses are about equal. Ours: the features
    before that layer, as with all methods here, and the default 1, which makes nothing equal. Features in narrow
    ranges, such as those behind a tanh, need far more.
    """
    return Method("deep-coral", [CoralTerm("coral", Schedule(weight, start, ramp))])


class CoralTerm(Term):
    """The squared Frobenius distance of the covariances, over four times the square of the dimension."""

    capturable = True

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        with full_precision(batch.z_s):
            difference = covariance(batch.z_s) - covariance(batch.z_t)
            return difference.square().sum() / (4 * batch.z_s.shape[1] ** 2)


def covariance(z: Tensor) -> Tensor:
    """Covariance (d, d) of a sample (n, d) with n - 1 degrees of freedom; zero for one sample."""
    centred = z - z.mean(dim=0)
    return centred.T @ centred / max(len(z) - 1, 1)
