"""The paper's ablations that compare P(X) and ignore labels: Bures and kernel Bures."""

from __future__ import annotations

from bures.kernels import Bandwidth
from bures.losses import BuresLoss, KernelBuresLoss
from bures.methods._method import FeatureTerm, Method, Schedule
from bures.methods._registry import register
from bures.methods._terms import EntropyTerm

__all__ = ["bures", "kernel_bures"]


@register("bures", matches="marginal", paper="Luo and Ren, CVPR 2021", cost="nd min(n, d)")
def bures(
    *, entropy: float = 0.5, weight: float = 1.0, start: float = 0.0, entropy_start: float = 0.0, ramp: float = 0.0
) -> Method:
    r"""Covariances of the features, by the Bures distance: :math:`CE + \lambda_1 Ent + \lambda_2 d_B^2`.

    The paper's ablation of `ckb` without classes and without a kernel. It does not say whether the weights differ;
    they are those of `ckb`. The distance grows with the square of the features' scale.
    """
    loss = BuresLoss()
    alignment = FeatureTerm("bures", Schedule(weight, start, ramp), loss)
    return Method("bures", [EntropyTerm(entropy, entropy_start, ramp), alignment])


@register("kernel-bures", matches="marginal", paper="Luo and Ren, CVPR 2021", cost="n²d + n³")
def kernel_bures(
    *,
    entropy: float = 0.5,
    weight: float = 1.0,
    bandwidth: Bandwidth = "per-block",
    start: float = 0.0,
    entropy_start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Kernel covariances of the features: :math:`CE + \lambda_1 Ent + \lambda_2 d_{KB}^2`.

    The paper's ablation of `ckb` without classes. It does not say whether the weights differ; they are those of `ckb`.
    """
    loss = KernelBuresLoss(bandwidth=bandwidth)
    alignment = FeatureTerm("kernel-bures", Schedule(weight, start, ramp), loss)
    return Method("kernel-bures", [EntropyTerm(entropy, entropy_start, ramp), alignment])
