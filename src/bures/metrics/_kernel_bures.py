"""The kernel Bures metric: the Bures distance between covariance operators in an RKHS."""

from __future__ import annotations

from bures.arrays import Array, Scalar, as_result, full_precision, is_tensor_call, read_samples
from bures.factors import UnconditionalFactor
from bures.kernels import Bandwidth, Kernel, check_bandwidth, check_kernel, gram_blocks
from bures.metrics._problem import bures_terms

__all__ = ["kernel_bures"]


def kernel_bures(
    xs: Array,
    xt: Array,
    *,
    kernel: Kernel = "gaussian",
    bandwidth: Bandwidth = "shared",
    sample_weight_s: Array | None = None,
    sample_weight_t: Array | None = None,
) -> Scalar:
    r"""Squared kernel Bures distance between two samples.

    Parameters
    ----------
    xs : array (n, d)
        Source sample.
    xt : array (m, d)
        Target sample; n and m may differ.
    kernel, bandwidth
        As in `ckb`.
    sample_weight_s, sample_weight_t : array (n,), (m,), optional
        Non-negative weights of the samples; equal by default.

    Returns
    -------
    float or Tensor
        :math:`d^2_{KB}`: a float for NumPy input, a 0-d tensor in the graph for torch input.

    Notes
    -----
    The distance between the covariance operators of the two samples, without conditioning (B = I in Theorem 5):

    .. math::
        d^2 = \tfrac1n \mathrm{tr}(H K_{ss} H) + \tfrac1m \mathrm{tr}(H K_{tt} H)
            - \tfrac{2}{\sqrt{nm}} \| H_m K_{ts} H_n \|_* .

    It does not see a difference of means that leaves the centred operators alone; with a Gaussian kernel the
    embedding is injective, with the linear kernel it is the Bures distance of covariances (`bures`).

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> round(bures.kernel_bures(rng.normal(size=(80, 3)), 2 * rng.normal(size=(60, 3))), 3)
    0.21
    """
    check_kernel(kernel)
    check_bandwidth(bandwidth)
    with full_precision(xs):
        tensor_call = is_tensor_call(xs=xs, xt=xt, sample_weight_s=sample_weight_s, sample_weight_t=sample_weight_t)
        s, t, ws, wt = read_samples(xs, xt, sample_weight_s, sample_weight_t)
        blocks = gram_blocks(
            s,
            t,
            kernel=kernel,
            bandwidth=bandwidth,
            ws=ws,
            wt=wt,
            precise_between=True,
            numpy_callable=not tensor_call,
        )
        terms = bures_terms(blocks, UnconditionalFactor(ws), UnconditionalFactor(wt))
        return as_result(terms.squared_distance, tensor_call)
