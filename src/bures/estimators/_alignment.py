"""The affine map that brings the conditional distributions of one sample to another's, near the identity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from bures.arrays import numpy_to_tensor
from bures.estimators._base import Floats
from bures.metrics._ckw import member_weights
from bures.metrics._problem import conditional_problem
from bures.spectral import nuclear_norm

__all__ = ["AffineMap", "Alignment"]


@dataclass(frozen=True)
class AffineMap:
    """z -> centre + (z - centre) matrix + shift, on rows z (n, r)."""

    centre: Floats
    matrix: Floats
    shift: Floats

    @classmethod
    def identity(cls, zs: Floats) -> AffineMap:
        """The identity, written about the mean of a sample."""
        r = zs.shape[1]
        return cls(zs.mean(axis=0), np.eye(r), np.zeros(r))

    def displacement(self, z: Floats) -> Floats:
        """How far the rows move."""
        return np.asarray((z - self.centre) @ (self.matrix - np.eye(len(self.shift))) + self.shift)


@dataclass(frozen=True)
class Alignment:
    r"""The objective in the map, from what it keeps of the samples: factors and class means, of r numbers each.

    With factors :math:`G^\top G = R` of the conditional covariances (r, r), the linear kernel's CKB between mapped
    source and target is :math:`\|G_s A\|^2 + \|G_t\|^2 - 2 \|G_t A^\top G_s^\top\|_*`: the samples enter once and an
    evaluation costs O(r^3) for any n.
    """

    factor_s: Tensor
    factor_t: Tensor
    means_s: Tensor  # (K, r), about the source mean
    means_t: Tensor
    importance: Tensor  # (K,), zero for a class that one domain lacks; all zero for CKB
    reg: float

    @classmethod
    def fit(
        cls,
        zs: Floats,
        codes: NDArray[np.int64],
        zt: Floats,
        pt: Floats,
        *,
        distance: str,
        eps: str | float,
        reg: float,
    ) -> Alignment:
        """From coordinates (n, r), (m, r), source classes (n,) and target probabilities (m, K)."""
        centre = zs.mean(axis=0)
        s, t = numpy_to_tensor("zs", zs - centre), numpy_to_tensor("zt", zt - centre)
        problem = conditional_problem(
            s,
            torch.from_numpy(codes),
            t,
            numpy_to_tensor("pt", pt),
            conditioning=("hard", "soft"),
            kernel="linear",
            eps=eps,
        )
        factor_s, factor_t = (
            _triangle(side.factor(problem.eps).apply(z)) for side, z in ((problem.source, s), (problem.target, t))
        )
        members_s, frequency_s = member_weights(problem.source.labels, problem.source.weights)
        members_t, frequency_t = member_weights(problem.target.labels, problem.target.weights)
        both = (frequency_s > 0) & (frequency_t > 0)
        importance = torch.where(both, (frequency_s + frequency_t) / 2, 0.0)
        if distance == "ckb":
            importance = torch.zeros_like(importance)
        return cls(factor_s, factor_t, members_s.T @ s, members_t.T @ t, importance, reg)

    def squared_distance(self, matrix: Tensor, shift: Tensor) -> Tensor:
        """CKB or CKW between the mapped source and the target, for the linear kernel on the coordinates."""
        moved = self.factor_s @ matrix
        covariances = moved.square().sum() + self.factor_t.square().sum() - 2 * nuclear_norm(self.factor_t @ moved.T)
        means = (self.means_s @ matrix + shift - self.means_t).square().sum(dim=1)
        return covariances + self.importance @ means

    def value(self, mapping: AffineMap) -> float:
        """The squared distance under a map."""
        with torch.no_grad():
            return float(self.squared_distance(torch.from_numpy(mapping.matrix), torch.from_numpy(mapping.shift)))

    def minimise(self, start: AffineMap, max_iter: int) -> tuple[AffineMap, int]:
        """The map of least distance and ridge, by L-BFGS from a map about the source mean, and the iterations."""
        r = len(start.shift)
        eye = torch.eye(r, dtype=torch.float64, device="cpu")
        moves = bool(self.importance.any())  # CKB does not see a shift, and none is made

        def objective(parameters: Floats) -> tuple[float, Floats]:
            leaf = torch.from_numpy(parameters.copy()).reshape(r + 1, r).requires_grad_()
            matrix, shift = leaf[:r], leaf[r] if moves else torch.zeros(r, dtype=torch.float64, device="cpu")
            value = (self.squared_distance(matrix, shift) + self.reg * (matrix - eye).square().sum()) / r
            value.backward()  # type: ignore[no-untyped-call]
            assert leaf.grad is not None
            return float(value.detach()), leaf.grad.numpy().ravel()

        first = np.concatenate([start.matrix, start.shift[None]]).ravel()
        found = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": max_iter})
        solution = np.asarray(found.x).reshape(r + 1, r)
        return AffineMap(start.centre, solution[:r], solution[r]), int(found.nit)


def _triangle(rows: Tensor) -> Tensor:
    """A factor with at most r rows of the same product G^T G."""
    if rows.shape[0] <= rows.shape[1]:
        return rows
    triangle: Tensor = torch.linalg.qr(rows, mode="r").R
    return triangle
