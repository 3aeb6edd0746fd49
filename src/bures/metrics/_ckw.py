"""The conditional kernel Wasserstein distance: CKB and the conditional means."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from bures.arrays import Array, Scalar, as_result, checks_values, full_precision, listed_values
from bures.factors import LabelKernel
from bures.kernels import Bandwidth, Kernel, source_share
from bures.labels import Conditioning, Labels
from bures.metrics._mmd import ONE_RKHS_RULES, squared_mean_difference
from bures.metrics._problem import ConditionalProblem, conditional_problem
from bures.wording import listed

__all__ = ["MissingClassWarning", "ckw", "class_mean_terms", "mean_term", "member_weights", "warn_of_missing_classes"]


class MissingClassWarning(UserWarning):
    """A class is absent from one domain, so `bures.ckw` cannot compare its conditional means and leaves it out.

    Examples
    --------
    >>> import warnings, bures
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     d2 = bures.ckw([[0.0], [1.0], [4.0]], ["a", "a", "b"], [[0.0], [1.0]], ["a", "a"])
    >>> caught[0].category.__name__
    'MissingClassWarning'
    """


def ckw(
    xs: Array,
    ys: Array,
    xt: Array,
    yt: Array,
    *,
    conditioning: Conditioning = None,
    kernel: Kernel = "gaussian",
    bandwidth: Bandwidth = "shared",
    label_kernel: Kernel = "gaussian",
    label_bandwidth: Bandwidth = "mean",
    eps: str | float = 1e-2,
    method: str = "auto",
    sample_weight_s: Array | None = None,
    sample_weight_t: Array | None = None,
    prior: Array | None = None,
) -> Scalar:
    r"""Squared conditional kernel Wasserstein distance: CKB plus the distance of conditional means.

    Parameters
    ----------
    xs, ys, xt, yt : array (n, d), (n,) or (n, K), (m, d), (m,) or (m, K)
        Features and labels of source and target, as in `ckb`.
    conditioning, kernel, label_kernel, label_bandwidth, eps, method, sample_weight_s, sample_weight_t : optional
        As in `ckb`.
    bandwidth : {"shared", "median"} or float, optional
        As in `ckb`; one bandwidth for all pairs, because means of different kernels cannot be compared.
    prior : {"source", "target", "uniform"} or array (K,), optional
        Class frequencies that both domains are weighted to; they are then also the weights :math:`\pi_c`.

    Returns
    -------
    float or Tensor
        :math:`d^2_{CKW}`: a float for NumPy input, a 0-d tensor in the graph for torch input.

    Warns
    -----
    MissingClassWarning
        A class occurs in one domain only. It is left out of the sum of means (its weight is not given to others).

    Notes
    -----
    For classes, hard or soft with membership :math:`p_{ic}`,

    .. math::
        d^2_{CKW} = d^2_{CKB} + \sum_c \pi_c \| \mu^s_c - \mu^t_c \|^2, \qquad
        \mu_c = \frac{\sum_i p_{ic}\,\phi(x_i)}{\sum_i p_{ic}},

    with :math:`\pi_c` the average of the two domains' class frequencies. For a continuous Y the conditional mean
    embeddings :math:`\mu(y) = \Phi (K_Y + \varepsilon n I)^{-1} k_Y(\cdot, y)` take the place of :math:`\mu_c`, and
    the sum is the average over the pooled values of y. Swapped classes, invisible to `ckb`, are seen.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 50)
    >>> x = rng.normal(size=(100, 2)) + 4 * y[:, None]
    >>> abs(bures.ckb(x, y, x, 1 - y)) < 1e-9  # the classes are swapped
    True
    >>> round(bures.ckw(x, y, x, 1 - y), 3)
    1.222
    """
    with full_precision(xs):
        problem = conditional_problem(
            xs,
            ys,
            xt,
            yt,
            conditioning=conditioning,
            kernel=kernel,
            bandwidth=bandwidth,
            label_kernel=label_kernel,
            label_bandwidth=label_bandwidth,
            eps=eps,
            method=method,
            sample_weight_s=sample_weight_s,
            sample_weight_t=sample_weight_t,
            prior=prior,
            bandwidth_rules=ONE_RKHS_RULES,
        )
        _report_missing_classes(problem)
        return as_result(problem.terms().squared_distance + mean_term(problem), problem.tensor_call)


def mean_term(problem: ConditionalProblem) -> Tensor:
    """The part of CKW that compares conditional means."""
    if problem.source.labels.n_classes is None:
        return _continuous_mean_term(problem)
    terms, importance = class_mean_terms(problem)
    return (importance.to(terms.dtype) * terms).sum()


def class_mean_terms(problem: ConditionalProblem) -> tuple[Tensor, Tensor]:
    """Squared distance of the means of each class (K,), and the weight pi of the class (K,).

    Both are zero for a class that is missing from one domain.
    """
    vs, frequency_s = member_weights(problem.source.labels, problem.source.weights)
    vt, frequency_t = member_weights(problem.target.labels, problem.target.weights)
    both = (frequency_s > 0) & (frequency_t > 0)
    dtype = problem.blocks.ss.dtype
    terms = squared_mean_difference(problem.blocks, (vs * both).to(dtype), (vt * both).to(dtype))
    importance = (frequency_s + frequency_t) / 2 if problem.prior is None else problem.prior
    return terms, torch.where(both, importance, 0.0)


def member_weights(labels: Labels, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (n, K) whose columns sum to one over the members of a class, and the class frequencies (K,)."""
    mass = weights[:, None] * labels.membership()
    frequency = mass.sum(dim=0)
    return torch.where(frequency > 0, mass / frequency, 0.0), frequency


def _continuous_mean_term(problem: ConditionalProblem) -> Tensor:
    pooled = torch.cat([problem.source.labels.rows(), problem.target.labels.rows()])
    # The weights of an embedding need not sum to one, so here the constant of the kernel counts.
    blocks = problem.gram(up_to_constant=False)
    dtype = blocks.ss.dtype
    vs = _embedding_weights(problem.source, pooled, problem.eps).to(dtype)
    vt = _embedding_weights(problem.target, pooled, problem.eps).to(dtype)
    part = source_share(problem.source.weights, problem.target.weights)
    share = torch.cat([part * problem.source.weights, (1 - part) * problem.target.weights])
    return (share.to(dtype) * squared_mean_difference(blocks, vs, vt)).sum()


def _embedding_weights(kernel: LabelKernel, rows: Tensor, eps: Tensor) -> Tensor:
    """Weights (n, k) of the conditional mean embeddings at k values of y: D (D K_Y D + eps I)^-1 D k_Y(Y, y)."""
    q = kernel.weights.sqrt()[:, None]
    regularised = q * kernel.gram() * q.T + eps * torch.eye(len(q), dtype=q.dtype, device=q.device)
    solved: Tensor = torch.linalg.solve(regularised, q * kernel.gram(rows).T)
    return q * solved


def _report_missing_classes(problem: ConditionalProblem) -> None:
    if problem.source.labels.n_classes is None or problem.prior is not None or not checks_values():
        return  # without classes none is missing, and a prior has seen to it that none is
    frequency_s = problem.source.weights @ problem.source.labels.membership()
    frequency_t = problem.target.weights @ problem.target.labels.membership()
    warn_of_missing_classes(frequency_s, frequency_t, problem.source.labels.class_names(), stacklevel=4)


def warn_of_missing_classes(
    frequency_s: Tensor, frequency_t: Tensor, names: Sequence[object], *, stacklevel: int
) -> None:
    """Warn of classes that have a positive frequency (K,) in one domain only."""
    parts = []
    for domain, own, other in (("source", frequency_s, frequency_t), ("target", frequency_t, frequency_s)):
        missing = listed_values(((own <= 0) & (other > 0)).nonzero().flatten())
        if missing:
            parts.append(f"{listed((repr(names[c]) for c in missing), noun='class')} from the {domain}")
    if parts:
        message = f"missing: {' and '.join(parts)}; the means of such classes are left out of the distance"
        warnings.warn(message, MissingClassWarning, stacklevel=stacklevel)
