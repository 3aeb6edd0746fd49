r"""Distances between two domains from their moments.

With explicit features, the conditional covariance operator is a matrix,

.. math:: R = \Sigma_{xx} - \Sigma_{xy} (\Sigma_{yy} + \varepsilon I)^{-1} \Sigma_{yx} ,

and :math:`d^2 = \mathrm{tr} R_s + \mathrm{tr} R_t - 2 \|L_t^\top L_s\|_*` with factors :math:`L L^\top = R`: the factor
form, never a matrix square root of a product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bures.factors import bind_label_kernel
from bures.kernels import Bandwidth
from bures.labels import Labels
from bures.metrics._problem import BuresTerms
from bures.moments._scatter import Scatter
from bures.spectral import nuclear_norm, psd_eigh

__all__ = [
    "MomentDistance",
    "bures_terms",
    "class_mean_terms",
    "class_means_bound",
    "conditional_covariance",
    "hard_label_contrast",
    "projection_bound",
]


@dataclass(frozen=True)
class MomentDistance:
    r"""A squared distance from moments, with what the feature map may have cost.

    Attributes
    ----------
    squared_distance : float
        The squared distance between the two sets of moments.
    bound : float or None
        The value of the exact kernel, on all the samples of the stream, is within this of `squared_distance`. With a
        Nyström map, :math:`\tau` the mean of :math:`k(x, x) - \|\phi(x)\|^2` over a domain,

        .. math:: 0 \le d^2_{exact} - d^2 \le (\sqrt{\tau_s} + \sqrt{\tau_t})^2 ,

        to which `bound` adds an allowance for rounding: 5e-8 of the traces and the distance for moments in
        ``"float64"`` and 2e-4 in ``"mixed"``; for the MMD 1e-8 and 1e-5. For conditional means, :math:`\tau` divided by
        the frequency of the class bounds each class. None for random Fourier features, whose error is random.
    trace_s, trace_t : float
        Traces of the two operators compared; the scale of the distance.
    metric : str
        Which distance it is.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> source, target = rng.normal(size=(200, 2)), 2 * rng.normal(size=(200, 2))
    >>> phi = bures.NystroemMap.fit(source, target, n_landmarks=40)
    >>> m_s, m_t = (bures.ConditionalMoments(phi, 2).update(x, y) for x in (source, target))
    >>> result = m_s.measure(m_t, "ckb")
    >>> abs(bures.ckb(source, y, target, y) - result.squared_distance) <= result.bound
    True
    """

    squared_distance: float
    bound: float | None
    trace_s: float
    trace_t: float
    metric: str


def hard_label_contrast(frequency: Tensor, kernel: str, bandwidth: Bandwidth) -> Tensor:
    """The contrast k(y, y) - k(y, y') of a kernel on classes: one sample for each class, weighted by its frequency."""
    classes = torch.arange(len(frequency), device=frequency.device)
    bound = bind_label_kernel(
        Labels("hard", classes, None, len(frequency), 0.0), frequency, kernel=kernel, bandwidth=bandwidth, argument="y"
    )
    assert bound.contrast is not None
    return bound.contrast


def conditional_covariance(scatter: Scatter, labels: slice, contrast: Tensor, eps: Tensor) -> Tensor:
    """The matrix R (D, D), for the label features in the columns ``labels``, times the square root of ``contrast``."""
    yy, yx = scatter.yy[labels, labels] / scatter.weight, scatter.yx[labels] / scatter.weight
    eye = torch.eye(len(yy), dtype=yy.dtype, device=yy.device)
    lower = torch.linalg.cholesky(contrast * (yy + yy.T) / 2 + eps * eye)
    explained = torch.linalg.solve_triangular(lower, contrast.sqrt() * yx, upper=False)
    unexplained: Tensor = scatter.xx / scatter.weight - explained.T @ explained
    return unexplained


def bures_terms(r_s: Tensor, r_t: Tensor, rank_s: int, rank_t: int, method: str) -> BuresTerms:
    """Traces and fidelity of two matrices (D, D) of known largest rank."""
    return BuresTerms(
        trace_s=r_s.trace(),
        trace_t=r_t.trace(),
        fidelity=nuclear_norm(_factor(r_t, rank_t).T @ _factor(r_s, rank_s), method),
    )


def _factor(matrix: Tensor, rank: int) -> Tensor:
    """L (D, rank) with L L^T the matrix.

    A sample of n spans n - 1 directions about its mean. Eigenvalues beyond these are rounding, and their square roots
    would be large in the fidelity.
    """
    values, vectors = psd_eigh((matrix + matrix.T) / 2)
    rank = max(1, min(rank, len(values)))
    return vectors[:, -rank:] * values[-rank:].sqrt()


def class_mean_terms(s: Scatter, t: Scatter, n_classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Squared distance of the means of each class (K,), the weight pi of the class, and the class frequencies.

    The first two are zero for a class that is missing from one domain.
    """
    (means_s, frequency_s), (means_t, frequency_t) = _class_means(s, n_classes), _class_means(t, n_classes)
    both = (frequency_s > 0) & (frequency_t > 0)
    squares = (means_s - means_t).square().sum(dim=1)
    zero = torch.zeros_like(squares)
    return (
        torch.where(both, squares, zero),
        torch.where(both, (frequency_s + frequency_t) / 2, zero),
        frequency_s,
        frequency_t,
    )


def _class_means(scatter: Scatter, n_classes: int) -> tuple[Tensor, Tensor]:
    frequency = scatter.mean_y[:n_classes]
    mass = (frequency * scatter.weight)[:, None]
    means = scatter.yx[:n_classes] / mass.clamp_min(torch.finfo(mass.dtype).tiny)  # a division by zero has no gradient
    return scatter.mean_x + torch.where(mass > 0, means, 0.0), frequency


def projection_bound(tau_s: float, tau_t: float) -> float:
    """How far a projection that loses the traces tau can move a squared Bures distance, or one of means."""
    return (math.sqrt(tau_s) + math.sqrt(tau_t)) ** 2


def class_means_bound(
    tau_s: float, tau_t: float, importance: Tensor, frequency_s: Tensor, frequency_t: Tensor
) -> float:
    """The same for the sum over classes; of a class with frequency f nothing is known but that it loses tau / f."""
    bound = 0.0
    for pi, f_s, f_t in zip(importance.tolist(), frequency_s.tolist(), frequency_t.tolist(), strict=True):
        if pi > 0:
            bound += pi * projection_bound(min(1.0, tau_s / f_s), min(1.0, tau_t / f_t))
    return bound
