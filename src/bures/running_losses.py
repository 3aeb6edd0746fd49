"""A training loss on moments of many batches: for many classes and small batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bures.arrays import (
    LOSS_NAMES,
    amplified_gradient,
    at_least_float32,
    check_count,
    check_finite,
    check_flags,
    check_not_negative,
    check_positive,
    check_real,
    check_seed,
    check_tensors,
    full_precision,
)
from bures.labels import read_labels
from bures.moments._distances import class_mean_terms, conditional_covariance
from bures.moments._scatter import Scatter
from bures.spectral import covariance_fidelity

__all__ = ["RunningCKWLoss"]


def _sums_of(x: Tensor, y: Tensor) -> Scatter:
    """The sums of a batch of features (n, D) and label rows (n, K), in the graph."""
    mean_x, mean_y = x.mean(dim=0), y.mean(dim=0)
    x, y = x - mean_x, y - mean_y
    return Scatter(x.new_tensor(float(len(x))), mean_x, mean_y, x.T @ x, y.T @ x, y.T @ y)


class RunningCKWLoss(nn.Module):
    r"""Squared CKW distance from decayed moments of both domains, with the gradient through the current batch.

    A batch of 32 samples of 65 classes has no covariance within classes to speak of, and its class means are single
    samples. This loss keeps, for each domain, the moments of random Fourier features and of label rows; each call fades
    what it has by ``decay``, adds the batch, and measures the distance of the two domains' moments.

    Parameters
    ----------
    n_features : int
        Width d of the features that are compared.
    n_classes : int
        Number of classes K.
    n_waves : int, optional
        Number D of random Fourier features; even.
    decay : float, optional
        What earlier batches count for after each call: of ``n / (1 - decay)`` samples the loss knows.
    means : float, optional
        Weight of the class means; 0 leaves CKB.
    covariances : float, optional
        Weight of CKB; 0 leaves the class means.
    eps : float, optional
        Regularisation of the label operator, as in `bures.ckb`.
    bandwidth : float, optional
        :math:`\sigma^2` of the Gaussian kernel; None takes the mean squared distance within the first two batches,
        pooled, and keeps it: moments of different kernels cannot be added.
    full_gradient : bool, optional
        Scale the gradient up to what it would be if all samples that the moments know were those of the batch. Without
        it, that of the batch's own share of the moments is smaller by about ``1 - decay``.
    seed : int, optional
        Seed of the random features.

    See Also
    --------
    bures.CKWLoss : the same distance from one batch, with the exact kernel.
    bures.ConditionalMoments : moments of a whole data set, without gradients.

    Notes
    -----
    ``forward(z_s, y_s, z_t, p_t)`` as in `bures.CKBLoss`. Labels have the linear kernel: one-hot rows for classes,
    probabilities as they are. Random features make far samples look a little related, so the distance comes out
    smaller than that of the exact kernel where the kernel is narrow and D small. The gradient flows through the batch
    alone. In evaluation mode the moments stay as they are. They are buffers: a checkpoint keeps them. Sums are in
    float64, also in a module that is converted to another dtype; features in the precision of the batch.

    Examples
    --------
    >>> import torch, bures
    >>> generator = torch.Generator().manual_seed(0)
    >>> loss = bures.RunningCKWLoss(8, 20, n_waves=32)
    >>> for step in range(10):
    ...     z_s, z_t = torch.randn(2, 6, 8, generator=generator).requires_grad_()
    ...     y_s = torch.randint(20, (6,), generator=generator)
    ...     value = loss(z_s, y_s, z_t, torch.full((6, 20), 1 / 20))
    >>> round(float(loss.weight_s), 1)
    39.1
    """

    waves: Tensor
    bandwidth: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        n_waves: int = 256,
        decay: float = 0.9,
        means: float = 1.0,
        covariances: float = 1.0,
        eps: float = 1e-2,
        bandwidth: float | None = None,
        full_gradient: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_flags(full_gradient=full_gradient)
        n_features, self.n_classes = check_count("n_features", n_features), check_count("n_classes", n_classes)
        n_waves = check_count("n_waves", n_waves)
        if n_waves % 2:
            raise ValueError(f"n_waves={n_waves} is out of range; accepted are even numbers, a cosine for each sine")
        for name, weight in {"means": means, "covariances": covariances}.items():
            check_not_negative(name, weight)
        if check_not_negative("decay", decay) >= 1:
            raise ValueError(f"decay={decay!r} is out of range; accepted are numbers from 0 to below 1")
        self.decay, self.means, self.covariances = decay, means, covariances
        self.eps, self.full_gradient = check_positive("eps", eps), full_gradient
        generator = torch.Generator().manual_seed(check_seed(seed))
        shape, kind = (n_features, n_waves // 2), torch.float32
        waves = math.sqrt(2) * torch.randn(shape, generator=generator, dtype=kind, device=generator.device)
        self.register_buffer("waves", waves.to(torch.empty(0).device))
        # Zero stands for a bandwidth that the first batches will decide.
        given = 0.0 if bandwidth is None else check_positive("bandwidth", bandwidth)
        self.register_buffer("bandwidth", torch.tensor(given, dtype=torch.float64))
        for side in "st":
            for name, zeros in Scatter.zeros(n_waves, self.n_classes, self.waves.device).tensors().items():
                self.register_buffer(f"{name}_{side}", zeros)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RunningCKWLoss:
        """What ``to``, ``half`` and the like do; the buffers change their place alone.

        A trainer in half precision converts a module after it has read its checkpoint: sums would lose their digits.
        """
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            applied = self._buffers[name]
            assert buffer is not None
            assert applied is not None
            if applied.dtype != buffer.dtype:
                self._buffers[name] = buffer.to(applied.device)
        return self

    def forward(self, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> Tensor:
        """Squared distance of the two domains' running moments, this batch included."""
        check_tensors(LOSS_NAMES, (z_s, y_s, z_t, p_t))
        n_features, n_classes = len(self.waves), self.n_classes
        for name, rows, width in (("z_s", z_s, n_features), ("z_t", z_t, n_features), ("p_t", p_t, n_classes)):
            if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
                raise ValueError(f"{name} has shape {tuple(rows.shape)}; accepted is (n, {width}), n being positive")
        for name, tensor in (("z_s", z_s), ("z_t", z_t)):
            check_real(name, tensor)
            check_finite(name, tensor)  # a batch that is refused leaves the moments as they were
        with full_precision(z_s):
            kinds = ("hard" if y_s.ndim == 1 else "soft", "soft")
            labels = read_labels(y_s, p_t, kinds, len(z_s), len(z_t), like=z_s, names=LOSS_NAMES)
            dtype = torch.promote_types(z_s.dtype, torch.float32)
            bandwidth = self.bandwidth
            if bandwidth == 0:
                bandwidth = _mean_square_distance(torch.cat([z_s, z_t]).detach().double())
                if self.training:
                    self.bandwidth = bandwidth
            s = self._add("s", z_s, labels[0].membership(), bandwidth)
            t = self._add("t", z_t, labels[1].membership(), bandwidth)
            value = self.covariances * self._covariance_part(s, t) if self.covariances else s.weight.new_zeros(())
            if self.means:
                squares, importance, _, _ = class_mean_terms(s, t, n_classes)
                value = value + self.means * (importance * squares).sum()
            return value.to(dtype)

    def _add(self, side: str, z: Tensor, y: Tensor, bandwidth: Tensor) -> Scatter:
        features = self._features(z, bandwidth).double()
        if self.full_gradient:
            earlier_weight: Tensor = getattr(self, f"weight_{side}")
            features = amplified_gradient(features, 1 + self.decay * earlier_weight / len(z))
        batch = _sums_of(features, y.detach().double())
        earlier = Scatter(**{name: getattr(self, f"{name}_{side}") for name in batch.tensors()})
        joined = earlier.faded(self.decay).plus(batch)
        if self.training:
            for name, value in joined.tensors().items():
                setattr(self, f"{name}_{side}", value.detach())
        return joined

    def _features(self, z: Tensor, bandwidth: Tensor) -> Tensor:
        z = at_least_float32(z)
        phase = z @ (self.waves.to(z) / bandwidth.sqrt().to(z))  # squares leave the range of float32
        return torch.cat([phase.cos(), phase.sin()], dim=1) / math.sqrt(phase.shape[1])

    def _covariance_part(self, s: Scatter, t: Scatter) -> Tensor:
        one = s.weight.new_ones(())  # the contrast of the linear kernel on labels
        r_s, r_t = (conditional_covariance(part, slice(None), one, self.eps * one) for part in (s, t))
        return r_s.trace() + r_t.trace() - 2 * covariance_fidelity(r_s, r_t)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return (
            f"n_features={len(self.waves)}, n_classes={self.n_classes}, n_waves={2 * self.waves.shape[1]}, "
            f"decay={self.decay}, means={self.means}, covariances={self.covariances}, eps={self.eps}, "
            f"full_gradient={self.full_gradient}"
        )


def _mean_square_distance(z: Tensor) -> Tensor:
    """Mean squared distance of all pairs of rows; one where the rows are all the same."""
    mean = 2 * (z - z.mean(dim=0)).square().sum(dim=1).mean()
    return torch.where(mean > 0, mean, 1.0)
