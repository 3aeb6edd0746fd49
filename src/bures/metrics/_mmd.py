"""The maximum mean discrepancy."""

from __future__ import annotations

from torch import Tensor

from bures.arrays import Array, Scalar, as_result, check_flags, full_precision, is_tensor_call, read_samples
from bures.kernels import Bandwidth, GramBlocks, Kernel, check_bandwidth, check_kernel, gram_blocks

__all__ = ["ONE_RKHS_RULES", "mmd", "squared_mean_difference"]

ONE_RKHS_RULES = ("shared", "median")
"""Bandwidth rules under which the three blocks belong to one kernel; a difference of means needs that."""


def mmd(
    xs: Array,
    xt: Array,
    unbiased: bool = False,
    *,
    kernel: Kernel = "gaussian",
    bandwidth: Bandwidth = "shared",
    sample_weight_s: Array | None = None,
    sample_weight_t: Array | None = None,
) -> Scalar:
    r"""Squared maximum mean discrepancy between two samples.

    Parameters
    ----------
    xs : array (n, d)
        Source sample.
    xt : array (m, d)
        Target sample; n and m may differ.
    unbiased : bool, optional
        False: the squared norm of the difference of mean embeddings, never negative but for rounding, biased upward.
        True: the U-statistic without the diagonals, unbiased for a fixed bandwidth, negative for about half of all
        samples without a shift.
    kernel, bandwidth
        As in `ckb`. One bandwidth serves the three blocks (``"per-block"`` would not give an MMD).
    sample_weight_s, sample_weight_t : array (n,), (m,), optional
        Non-negative weights of the samples; equal by default.

    Returns
    -------
    float or Tensor
        :math:`\mathrm{MMD}^2`: a float for NumPy input, a 0-d tensor in the graph for torch input.

    Notes
    -----
    .. math:: \mathrm{MMD}^2 = \|\mu_s - \mu_t\|^2 = \bar K_{ss} + \bar K_{tt} - 2 \bar K_{ts} .

    Between one-hot source labels and soft target predictions this is the label term of the paper's joint objective.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> round(bures.mmd(rng.normal(size=(80, 3)), 1 + rng.normal(size=(60, 3))), 3)
    0.238
    """
    check_flags(unbiased=unbiased)
    check_kernel(kernel)
    check_bandwidth(bandwidth, rules=ONE_RKHS_RULES)
    with full_precision(xs):
        tensor_call = is_tensor_call(xs=xs, xt=xt, sample_weight_s=sample_weight_s, sample_weight_t=sample_weight_t)
        s, t, ws, wt = read_samples(xs, xt, sample_weight_s, sample_weight_t)
        blocks = gram_blocks(s, t, kernel=kernel, bandwidth=bandwidth, ws=ws, wt=wt, numpy_callable=not tensor_call)
        ws, wt = ws.to(s.dtype), wt.to(t.dtype)
        if not unbiased:
            return as_result(squared_mean_difference(blocks, ws[:, None], wt[:, None])[0], tensor_call)
        within = _off_diagonal_mean(blocks.ss, ws, "s") + _off_diagonal_mean(blocks.tt, wt, "t")
        return as_result(within - 2 * (wt @ blocks.ts @ ws), tensor_call)


def squared_mean_difference(blocks: GramBlocks, vs: Tensor, vt: Tensor) -> Tensor:
    """Squared RKHS norms of k differences of weighted means, for weights (n, k) and (m, k).

    The blocks may lack a constant when the columns of both weight matrices have equal sums.
    """
    within_s = (vs * (blocks.ss @ vs)).sum(dim=0)
    within_t = (vt * (blocks.tt @ vt)).sum(dim=0)
    between = blocks.ts @ vs.to(blocks.ts.dtype)
    return within_s + within_t - 2 * (vt * between).sum(dim=0).to(vs.dtype)


def _off_diagonal_mean(block: Tensor, w: Tensor, side: str) -> Tensor:
    pairs = 1 - w.square().sum()
    if len(w) < 2 or not bool(pairs > 0):
        raise ValueError(
            f"x{side} has one sample (of positive weight); the unbiased MMD needs two in each domain, "
            "pass more samples or unbiased=False"
        )
    return (w @ block @ w - (w.square() * block.diagonal()).sum()) / pairs
