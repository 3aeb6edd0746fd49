"""The Bures distance between the covariances of two samples."""

from __future__ import annotations

from torch import Tensor

from bures.arrays import Array, Scalar, as_result, full_precision, is_tensor_call, read_samples
from bures.kernels import check_range, in_range, standardise
from bures.spectral import product_nuclear_norm

__all__ = ["bures"]


def bures(
    xs: Array,
    xt: Array,
    *,
    sample_weight_s: Array | None = None,
    sample_weight_t: Array | None = None,
) -> Scalar:
    r"""Squared Bures distance between the covariance matrices of two samples.

    Parameters
    ----------
    xs : array (n, d)
        Source sample.
    xt : array (m, d)
        Target sample; n and m may differ, and both may be smaller than d.
    sample_weight_s, sample_weight_t : array (n,), (m,), optional
        Non-negative weights of the samples; equal by default.

    Returns
    -------
    float or Tensor
        :math:`d^2_B`: a float for NumPy input, a 0-d tensor in the graph for torch input.

    See Also
    --------
    bures_covariance : the same for two given covariance matrices.

    Notes
    -----
    With covariances :math:`\Sigma = \frac1n \sum_i (x_i-\bar x)(x_i-\bar x)^\top = A^\top A`,

    .. math::
        d^2 = \mathrm{tr}\,\Sigma_s + \mathrm{tr}\,\Sigma_t
            - 2\,\mathrm{tr}\,(\Sigma_s^{1/2}\Sigma_t\Sigma_s^{1/2})^{1/2}
            = \|A_s\|_F^2 + \|A_t\|_F^2 - 2 \|A_s A_t^\top\|_* .

    The second form needs neither a square root nor a covariance matrix, costs :math:`O((n+m) d \min(n, m, d))`, and
    holds for singular covariances. Means do not enter. For float32 tensors on a GPU the norm comes from matrix products
    alone, and a CUDA graph can hold it; elsewhere it comes from decompositions.

    Examples
    --------
    >>> import numpy as np, bures
    >>> x = np.array([[-1.0], [1.0]])
    >>> round(bures.bures(x, 3 * x), 9)  # (3 - 1)^2
    4.0
    """
    with full_precision(xs):
        tensor_call = is_tensor_call(xs=xs, xt=xt, sample_weight_s=sample_weight_s, sample_weight_t=sample_weight_t)
        s, t, ws, wt = read_samples(xs, xt, sample_weight_s, sample_weight_t)
        a, b, scale = standardise(in_range(s, ws), in_range(t, wt))
        check_range(a, b, scale)
        a, b = _covariance_root(a, ws), _covariance_root(b, wt)
        squared = a.square().sum() + b.square().sum() - 2 * product_nuclear_norm(a, b)
        return as_result(squared * scale.square(), tensor_call)


def _covariance_root(x: Tensor, w: Tensor) -> Tensor:
    """Rows sqrt(w_i) (x_i - mean): the covariance is the Gram matrix of the columns."""
    w = w.to(x.dtype)[:, None]
    return w.sqrt() * (x - (w * x).sum(dim=0))
