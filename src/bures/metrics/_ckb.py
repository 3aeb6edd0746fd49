"""The Conditional Kernel Bures metric."""

from __future__ import annotations

from typing import Any

from bures.arrays import Array, Scalar, as_result, full_precision
from bures.kernels import Bandwidth, Kernel
from bures.labels import Conditioning
from bures.metrics._pairs import ckb_of_pairs, is_batched
from bures.metrics._problem import conditional_problem

__all__ = ["ckb"]


def ckb(
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
    r"""Squared Conditional Kernel Bures distance between P(X|Y) in two domains (Theorem 5).

    Parameters
    ----------
    xs : array (n, d)
        Source features: NumPy array, torch tensor, or what NumPy reads.
    ys : array (n,) or (n, K)
        Source labels. One-dimensional integers or strings are *hard* classes; rows on the simplex are *soft*
        predictions; anything else must be declared by `conditioning`. Labels are constants: no gradient flows to them.
    xt : array (m, d)
        Target features. n and m may differ.
    yt : array (m,) or (m, K)
        Target labels, often predictions. When one side is a matrix, integers on the other side number its columns.
        A class may be missing from one domain.
    conditioning : {None, "hard", "soft", "continuous"} or pair of these, optional
        What the labels are, for both domains or as (source, target). None reads it from shape and dtype. Rows
        declared ``"hard"`` are reduced to their most probable class; ``"continuous"`` takes a vector or a matrix.
    kernel : {"gaussian", "laplacian", "linear"} or callable, optional
        Kernel on the features: :math:`\exp(-\|x-x'\|_2^2/\sigma^2)`, :math:`\exp(-\|x-x'\|_1/\sigma)`,
        :math:`x^\top x'`, or a function of two samples that returns their Gram matrix.
    bandwidth : {"shared", "per-block", "median"} or float, optional
        :math:`\sigma^2`. ``"shared"``: the mean squared distance of the pooled sample, diagonal included (for the
        Laplacian kernel, the square of the mean L1 distance). ``"per-block"``: the mean of each of the three kernel
        matrices, as the paper trains; the three blocks then belong to different kernels and the distance need not
        satisfy the axioms of a metric. ``"median"``: the median over pairs of different samples. Detached from the
        graph.
    label_kernel : {"gaussian", "laplacian", "linear"} or callable, optional
        Kernel on the labels; hard classes are one-hot rows to it.
    label_bandwidth : {"mean", "median"} or float, optional
        :math:`\sigma_Y^2`, by the mean or the median of squared label distances within each domain.
    eps : float or "auto", optional
        Regulariser :math:`\varepsilon` of the label covariance. ``"auto"`` scales with the number of classes K,
        :math:`0.15\,(1-a)/K`, so that the same share of the between-class variance is left for any K.
    method : {"auto", "svd", "gram", "deflation", "polar", "low-rank"}, optional
        How the nuclear norm is computed. Exact: ``"svd"``, a singular value decomposition; ``"gram"``, the
        eigendecomposition of a Gram matrix in float64; ``"deflation"``, eigendecompositions of Gram matrices in the
        features' dtype, with what they resolve projected out in turn; ``"polar"``, an iteration of matrix products in
        float64, which on a GPU, for a thousand float32 samples and more, ends in half precision with five digits left.
        ``"gram"`` and ``"polar"`` resolve 1e-8 of the largest singular value. Approximate: ``"low-rank"``, the
        leading quarter of the directions. It is faster from a few hundred samples on; `explain` bounds the error of its
        value, and its gradient may be off by tens of percent. Samples of fewer than 96, and many pairs at once, take
        ``"gram"`` instead of ``"deflation"`` or ``"low-rank"``.
        ``"auto"`` is ``"svd"`` for float64 features; for float32, ``"polar"`` on a GPU and elsewhere ``"deflation"``,
        or ``"gram"`` for small samples, which are faster there than an SVD and more accurate.
    sample_weight_s, sample_weight_t : array (n,), (m,), optional
        Non-negative weights of the samples; equal by default. Mean squared distances in the rules for bandwidths are
        weighted within each domain, and ``"shared"`` counts the domains by their samples of positive weight. Medians
        are over the samples of positive weight, whatever it is.
    prior : {"source", "target", "uniform"} or array (K,), optional
        Class frequencies that both domains are weighted to, so that a difference in P(Y) alone does not count. Rows of
        probabilities are weighted by the mean of prior over frequency under them, which gives these frequencies
        exactly only where they are certain.
        An array follows the order of the sorted classes, or of the columns.

    Returns
    -------
    float or Tensor
        :math:`d^2`: a Python float for NumPy input, a 0-d tensor in the graph for torch input. Rounding may leave it
        a little below zero; it is not clamped, because a clamp would cut the gradient. For a batch of pairs, an array
        of the leading dimensions.

    See Also
    --------
    ckw : adds the conditional means, and so sees what `ckb` cannot.
    CKBLoss : for training; its default bandwidth is ``"per-block"``, so that by default it has another value.
    explain : the same number with its parts, its null level and an interval.

    Notes
    -----
    With :math:`G = HKH`, :math:`B = \varepsilon n (G_Y + \varepsilon n I)^{-1} = C C^\top` in each domain,

    .. math::
        d^2 = \varepsilon\,\mathrm{tr}[G^s_X(\varepsilon n I + G^s_Y)^{-1}]
            + \varepsilon\,\mathrm{tr}[G^t_X(\varepsilon m I + G^t_Y)^{-1}]
            - \tfrac{2}{\sqrt{nm}} \| (H_m C_t)^\top K^{ts}_X (H_n C_s) \|_* .

    The gradient uses the polar factor of the matrix under the norm and is finite for repeated singular values,
    duplicated samples and constant features.

    **Many pairs.** Features (..., n, d) and (..., m, d) with labels (..., n) or (..., n, K) give the distances of all
    pairs in one call, equal to a loop and faster. Classes are numbered over all pairs together (which ``eps="auto"``
    sees); medians and kernels given as functions are for one pair at a time.

    **Blind spot.** A kernel on one-hot labels does not change when classes are renamed, so the distance is exactly
    the same if the target's classes are permuted: it compares what is left of X when Y is known, not which class is
    where. `ckw` sees the difference.

    References
    ----------
    .. [1] Y.-W. Luo and C.-X. Ren, "Conditional Bures Metric for Domain Adaptation", CVPR 2021, pp. 13989-13998.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 50)
    >>> source = rng.normal(size=(100, 5))
    >>> target = rng.normal(size=(100, 5)) * np.where(y == "dog", 3.0, 1.0)[:, None]
    >>> round(bures.ckb(source, y, target, y), 3)
    0.238
    >>> abs(bures.ckb(source, y, source, y)) < 1e-12
    True
    """
    options: dict[str, Any] = {
        "conditioning": conditioning,
        "kernel": kernel,
        "bandwidth": bandwidth,
        "label_kernel": label_kernel,
        "label_bandwidth": label_bandwidth,
        "eps": eps,
        "method": method,
        "sample_weight_s": sample_weight_s,
        "sample_weight_t": sample_weight_t,
        "prior": prior,
    }
    with full_precision(xs):
        if is_batched(xs, xt):
            return ckb_of_pairs(xs, ys, xt, yt, **options)
        problem = conditional_problem(xs, ys, xt, yt, **options)
        return as_result(problem.squared_distance(), problem.tensor_call)
