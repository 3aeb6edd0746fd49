"""Kernel Gaussian optimal transport: means and covariances of the features in an RKHS."""

from __future__ import annotations

from bures.arrays import check_not_negative
from bures.kernels import Bandwidth
from bures.losses import KernelBuresLoss, MMDLoss
from bures.methods._method import FeatureTerm, Method, Schedule
from bures.methods._registry import register

__all__ = ["kgot"]


@register("kgot", matches="marginal", paper="Zhang et al., CVPR 2019", cost="n²d + n³")
def kgot(
    *,
    weight: float = 1.0,
    means: float = 1.0,
    bandwidth: Bandwidth = "shared",
    start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Kernel means and kernel covariances of the features: :math:`CE + \lambda (d_{KB}^2 + \mu \|\mu_s - \mu_t\|^2)`.

    Zhang, Wang and Nehorai, "Optimal transport in reproducing kernel Hilbert spaces: theory and applications",
    CVPR 2019 and TPAMI 2020. With ``means=1`` (:math:`\mu`) the bracket is the squared kernel Gauss-Wasserstein
    distance, the cost of the optimal map between Gaussians in the RKHS. The publication transports fixed features by
    that map; this is its cost as a loss for a network that learns them, whose weight it therefore does not give.
    """
    means = check_not_negative("means", means)
    terms = [
        FeatureTerm("kernel-bures", Schedule(weight, start, ramp), KernelBuresLoss(bandwidth=bandwidth)),
        # One bandwidth for all pairs: means of different kernels cannot be compared.
        FeatureTerm("mmd", Schedule(weight * means, start, ramp), MMDLoss(bandwidth=bandwidth)),
    ]
    return Method("kgot", terms)
