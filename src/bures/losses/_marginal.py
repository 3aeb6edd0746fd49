"""Losses over features alone: the Bures distances of the paper's ablations."""

from __future__ import annotations

from torch import Tensor

from bures.kernels import Bandwidth, Kernel, check_bandwidth, check_kernel
from bures.losses._loss import Loss
from bures.metrics import bures, kernel_bures

__all__ = ["BuresLoss", "KernelBuresLoss"]


class KernelBuresLoss(Loss):
    r"""Squared kernel Bures distance of two batches of features as a training loss.

    Parameters
    ----------
    kernel : {"gaussian", "laplacian", "linear"} or callable, optional
        As in `bures.kernel_bures`.
    bandwidth : {"per-block", "shared", "median"} or float, optional
        As in `bures.kernel_bures`; the default is the paper's training protocol.

    See Also
    --------
    bures.kernel_bures : the function.

    Notes
    -----
    ``forward(z_s, z_t)`` with z_s (n, d) and z_t (m, d). Theorem 5 with B = I: the paper's ablation without labels.

    Examples
    --------
    >>> import torch, bures
    >>> z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    >>> bool(bures.KernelBuresLoss()(z, 3 * z) > 0.01)
    True
    """

    def __init__(self, *, kernel: Kernel = "gaussian", bandwidth: Bandwidth = "per-block") -> None:
        check_kernel(kernel)
        check_bandwidth(bandwidth)
        super().__init__(kernel=kernel, bandwidth=bandwidth)

    def forward(self, z_s: Tensor, z_t: Tensor) -> Tensor:
        """Squared kernel Bures distance of a source and a target batch."""
        loss: Tensor = kernel_bures(z_s, z_t, **self.options)
        return loss


class BuresLoss(Loss):
    r"""Squared Bures distance of the covariances of two batches as a training loss.

    See Also
    --------
    bures.bures : the function.

    Notes
    -----
    ``forward(z_s, z_t)`` with z_s (n, d) and z_t (m, d); the paper's ablation without a kernel,
    :math:`d_B^2(\Sigma_s, \Sigma_t)`.

    Examples
    --------
    >>> import torch, bures
    >>> z = torch.tensor([[-1.0], [1.0]])
    >>> bures.BuresLoss()(z, 3 * z)
    tensor(4.)
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, z_s: Tensor, z_t: Tensor) -> Tensor:
        """Squared Bures distance of a source and a target batch."""
        loss: Tensor = bures(z_s, z_t)
        return loss
