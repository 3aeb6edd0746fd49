"""The bandwidth of a feature map: the rules of `bures.ckb` on the pooled sample, without its Gram matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from bures.arrays import check_choice
from bures.kernels import Bandwidth, check_bandwidth, common_frame, median

__all__ = ["RADIAL_KERNELS", "check_radial_kernel", "pooled_bandwidth"]

RADIAL_KERNELS = ("gaussian", "laplacian")
BANDWIDTH_RULES = ("shared", "median")


def check_radial_kernel(kernel: object, bandwidth: object) -> None:
    """Raise unless the kernel is Gaussian or Laplacian and the bandwidth a rule for one kernel, or a number."""
    check_choice("kernel", kernel, RADIAL_KERNELS, alternatives="; LinearMap is the map of the linear kernel")
    check_bandwidth(bandwidth, rules=BANDWIDTH_RULES)


def pooled_bandwidth(pooled: Tensor, kernel: str, bandwidth: Bandwidth) -> float:
    r"""The number :math:`\sigma^2` that `bures.ckb` would use for this sample (n, d), in float64.

    ``"shared"`` needs no pairs: the mean of all squared distances is twice the variance, and the mean of all L1
    distances follows from the sorted columns. ``"median"`` forms the n (n - 1) / 2 distances.
    """
    if not isinstance(bandwidth, str):
        return float(bandwidth)
    centre, scale = common_frame(pooled)
    rows = pooled / scale - centre
    power = 2 if kernel == "gaussian" else 1
    width = 2 * rows.square().sum(dim=1).mean() if power == 2 else _mean_manhattan_distance(rows)
    if bandwidth == "median" and len(rows) > 1:
        middle = median(torch.nn.functional.pdist(rows, p=float(power)) ** power)
        width = torch.where(middle > 0, middle, width)
    # The floor of `bures.kernels`: distances below the rounding of the samples get a flat kernel, not noise.
    rounding = 4 * torch.finfo(torch.float64).eps
    width = width.clamp_min(rows.shape[1] * rounding**power)
    number = width ** (2 / power) * scale.square()
    return float(number.clamp(torch.finfo(torch.float64).tiny, torch.finfo(torch.float64).max))


def _mean_manhattan_distance(rows: Tensor) -> Tensor:
    """Mean L1 distance over all pairs, each sample with itself included.

    In a sorted column, the k-th of n values is the larger one of k pairs and the smaller one of n - 1 - k.
    """
    n = len(rows)
    rank = torch.arange(n, dtype=rows.dtype, device=rows.device)
    return 2 * ((2 * rank - (n - 1)) @ rows.sort(dim=0).values).sum() / n**2
