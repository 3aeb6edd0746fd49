"""The Bures distance between two covariance matrices."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bures.arrays import (
    Array,
    Scalar,
    as_feature_pair,
    as_result,
    checks_values,
    full_precision,
    is_tensor_call,
)
from bures.columns import column_names, column_order
from bures.spectral import covariance_fidelity

__all__ = ["bures_covariance"]


def bures_covariance(cov_s: Array, cov_t: Array) -> Scalar:
    r"""Squared Bures distance between two positive semi-definite matrices.

    Parameters
    ----------
    cov_s, cov_t : array (d, d)
        Symmetric positive semi-definite matrices; singular ones are allowed.

    Returns
    -------
    float or Tensor
        :math:`d^2_B`: a float for NumPy input, a 0-d tensor in the graph for torch input.

    Notes
    -----
    .. math::
        d^2 = \mathrm{tr}\,\Sigma_s + \mathrm{tr}\,\Sigma_t - 2 \| L_t^\top L_s \|_*, \qquad \Sigma = L L^\top .

    It is the squared 2-Wasserstein distance between centred Gaussians. The gradient with respect to a singular matrix
    is that of movements that keep its rank, such as those of samples that are fewer than their features: where the
    matrix gains a direction, the distance has none.

    Examples
    --------
    >>> import numpy as np, bures
    >>> bures.bures_covariance(np.diag([4.0, 0.0]), np.diag([1.0, 9.0]))
    10.0
    """
    with full_precision(cov_s):
        tensor_call = is_tensor_call(cov_s=cov_s, cov_t=cov_t)
        order = column_order(column_names(cov_s), column_names(cov_t), names=("cov_s", "cov_t"))
        if order is not None:  # of a data frame, whose rows are in the order of its columns
            cov_t = np.asarray(cov_t)[np.ix_(order, order)]
        s, t = as_feature_pair(cov_s, cov_t, names=("cov_s", "cov_t"))
        s, t = _symmetric("cov_s", s), _symmetric("cov_t", t)
        squared = s.trace() + t.trace() - 2 * covariance_fidelity(s, t)
        return as_result(squared, tensor_call)


def _symmetric(name: str, cov: Tensor) -> Tensor:
    if cov.shape[0] != cov.shape[1]:
        raise ValueError(f"{name} has shape {tuple(cov.shape)}; accepted is a square matrix (d, d)")
    if checks_values():
        fixed = cov.detach()
        tolerance = torch.finfo(cov.dtype).eps ** 0.5 * float(fixed.abs().max())
        if float((fixed - fixed.T).abs().max()) > tolerance:
            raise ValueError(f"{name} is not symmetric; accepted is a covariance matrix (pass (cov + cov.T) / 2)")
        smallest = float(torch.linalg.eigvalsh(fixed)[0])
        if smallest < -tolerance:
            raise ValueError(
                f"{name} has the negative eigenvalue {smallest:.4g}; accepted is a positive semi-definite matrix"
            )
    return (cov + cov.T) / 2
