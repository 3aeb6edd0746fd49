"""The MMD of the labels, or of two batches of anything."""

from __future__ import annotations

import torch
from torch import Tensor

from bures.arrays import LOSS_NAMES, check_flags, check_tensors
from bures.kernels import Bandwidth, Kernel, check_bandwidth, check_kernel
from bures.labels import read_labels
from bures.losses._loss import Loss
from bures.metrics import mmd
from bures.metrics._mmd import ONE_RKHS_RULES

__all__ = ["MMDLoss"]


class MMDLoss(Loss):
    r"""Squared MMD as a training loss: of the labels (the paper's :math:`\mathcal{L}_{MMD}`) or of two batches.

    Parameters
    ----------
    unbiased : bool, optional
        Use the U-statistic, which may be negative.
    kernel : {"gaussian", "laplacian", "linear"} or callable, optional
        As in `bures.mmd`.
    bandwidth : {"shared", "median"} or float, optional
        As in `bures.mmd`: one bandwidth for the three blocks, or it would not be an MMD.

    See Also
    --------
    bures.mmd : the function.

    Notes
    -----
    ``forward(z_s, y_s, z_t, p_t)``, the call of the conditional losses, compares the labels: one-hot source labels
    with target probabilities, :math:`\|\Psi_s 1/n - \tilde\Psi_t 1/m\|^2`. The gradient flows through ``p_t``; the
    features are not used. ``forward(a, b)`` compares two batches (n, d) and (m, d) of anything.

    Examples
    --------
    >>> import torch, bures
    >>> z_s, y_s, z_t = torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]), torch.zeros(2, 3)
    >>> balanced, one_sided = torch.eye(2), torch.tensor([[1.0, 0.0], [0.9, 0.1]], requires_grad=True)
    >>> loss = bures.MMDLoss()
    >>> bool(loss(z_s, y_s, z_t, balanced).abs() < 1e-6 < loss(z_s, y_s, z_t, one_sided))
    True
    >>> loss(z_s, y_s, z_t, one_sided).backward()
    >>> bool(one_sided.grad.isfinite().all())
    True
    """

    def __init__(self, *, unbiased: bool = False, kernel: Kernel = "gaussian", bandwidth: Bandwidth = "shared") -> None:
        check_flags(unbiased=unbiased)
        check_kernel(kernel)
        check_bandwidth(bandwidth, rules=ONE_RKHS_RULES)
        super().__init__(unbiased=unbiased, kernel=kernel, bandwidth=bandwidth)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Squared MMD of two batches, or of the labels of a source and a target batch."""
        if len(tensors) == 2:
            return self._distance(*tensors)
        if len(tensors) != 4:
            raise TypeError(f"MMDLoss takes (z_s, y_s, z_t, p_t) or two batches, got {len(tensors)} arguments")
        check_tensors(LOSS_NAMES, tensors)
        z_s, y_s, z_t, p_t = tensors
        for name, rows in (("z_s", z_s), ("z_t", z_t)):
            if not rows.shape or not len(rows):
                raise ValueError(
                    f"{name} has shape {tuple(rows.shape)}; accepted is a row for each sample, one or more"
                )
        if p_t.ndim != 2:
            raise ValueError(f"p_t has shape {tuple(p_t.shape)}; accepted are probabilities of shape (m, K)")
        # The labels are read as in the conditional losses, which checks them. Distances between probabilities can be
        # far below the rounding of float32 when predictions collapse, so they are compared in float64.
        kinds = ("hard" if y_s.ndim == 1 else "soft", "soft")
        labels, _ = read_labels(y_s, p_t, kinds, len(z_s), len(z_t), like=p_t, names=LOSS_NAMES)
        return self._distance(labels.membership(), p_t.double()).to(torch.promote_types(p_t.dtype, torch.float32))

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        loss: Tensor = mmd(a, b, **self.options)
        return loss
