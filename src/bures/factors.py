r"""The matrix B of one domain (Proposition 4) and a factor of it, built from labels and sample weights.

With weights :math:`w`, :math:`\sum w = 1`, :math:`q = \sqrt w`, :math:`D = \mathrm{diag}(q)` and
:math:`H = I - q q^\top`, the label Gram matrix is :math:`G_Y = H D K_Y D H` and

.. math:: B = \varepsilon (G_Y + \varepsilon I)^{-1} = C C^\top .

Equal weights give the paper's formulas. A factor offers the two things the distance needs: the matrix
:math:`A = D H B H D`, so that :math:`\mathrm{tr} R = \langle K_X, A \rangle`, and the product
:math:`C^\top H D X`. Which factor :math:`C` is used does not matter to the nuclear norm: hard classes take a
factor of low rank, other labels a Cholesky factor of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bures.arrays import check_choice, check_positive, checks_values, constant, is_transformed
from bures.kernels import Bandwidth, Kernel, evaluate_callable, median, upper_triangle
from bures.labels import Labels

__all__ = [
    "LABEL_BANDWIDTH_RULES",
    "Factor",
    "LabelKernel",
    "UnconditionalFactor",
    "bind_label_kernel",
    "check_eps",
    "invert_lower_",
    "label_noise",
    "resolve_eps",
]

LABEL_BANDWIDTH_RULES = ("mean", "median")

AUTO_EPS_SHARE = 0.15
"""``eps="auto"`` is this share of (1 - a) / K, the variance of the label features along one class.

B then keeps 0.15 / 1.15 = 13 % of the between-class variance whatever the number of classes: what the paper's 1e-2
gives at ten classes.
"""


SMALLEST_EPS = 1e-12

SMALL_TRIANGLE = 128  # below, one call costs less than the arithmetic it saves


class Factor(Protocol):
    """What the distance needs to know of one domain's labels and weights."""

    def trace_weights(self, dtype: torch.dtype) -> Tensor:
        """The matrix A (n, n) with ``trace R = (K * A).sum()``."""

    def apply(self, block: Tensor) -> Tensor:
        """The product of C^T H D with a block (n, k)."""

    def adjoint(self, block: Tensor) -> Tensor:
        """The product of D H C with a block (n, k)."""

    def rounded(self, dtype: torch.dtype) -> Factor:
        """The same for blocks of this dtype alone, in no more memory than that needs."""


@dataclass(frozen=True)
class UnconditionalFactor:
    """B = I: the covariance operator itself, for kernel Bures."""

    weights: Tensor

    def trace_weights(self, dtype: torch.dtype) -> Tensor:
        """The matrix A (n, n) with ``trace R = (K * A).sum()``."""
        w = self.weights
        return (torch.diag(w) - torch.outer(w, w)).to(dtype)

    def apply(self, block: Tensor) -> Tensor:
        """The product of H D with a block (n, k)."""
        q = self.weights.sqrt().to(block.dtype)[:, None]
        scaled = q * block
        return scaled - q @ (q.T @ scaled)

    def adjoint(self, block: Tensor) -> Tensor:
        """The product of D H with a block (n, k)."""
        q = self.weights.sqrt().to(block.dtype)[:, None]
        return q * (block - q @ (q.T @ block))

    def rounded(self, dtype: torch.dtype) -> UnconditionalFactor:
        """The factor itself, which is a vector."""
        return self


@dataclass(frozen=True)
class LowRankFactor:
    """Hard classes: B and its factor are the identity less a matrix of rank K.

    With F = sqrt(contrast) H D Y (n, K), centring included: q is orthogonal to F, so H and the factor of B are one
    projection of rank K + 1. All matrices are float64; the products are rounded once, at their use.
    """

    weights: Tensor
    right: Tensor  # [q, F]
    left: Tensor  # right times a core, so that C^T H = I - left right^T
    residual: Tensor  # right times another, so that H B H = I - residual right^T

    @classmethod
    def build(cls, weights: Tensor, membership: Tensor, contrast: Tensor, eps: Tensor) -> LowRankFactor:
        """Label side of O(n K^2), in float64."""
        frequency = weights @ membership
        q = weights.sqrt()[:, None]
        features = (membership - frequency) * (contrast.sqrt() * q)
        eye = torch.eye(len(frequency), dtype=frequency.dtype, device=frequency.device)
        regularised = contrast * (torch.diag(frequency) - torch.outer(frequency, frequency)) + eps * eye
        lower = torch.linalg.cholesky_ex(regularised)[0]
        inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
        # With L L^T = F^T F + eps I, a factor of B is I - F L^-T (L + sqrt(eps) I)^-1 F^T: multiply out.
        root = torch.linalg.solve_triangular((lower + eps.sqrt() * eye).T, inverse, upper=True)
        return cls(
            weights,
            torch.cat([q, features], dim=1),
            torch.cat([q, features @ root], dim=1),
            torch.cat([q, features @ (inverse.T @ inverse)], dim=1),
        )

    def trace_weights(self, dtype: torch.dtype) -> Tensor:
        """The matrix A (n, n) with ``trace R = (K * A).sum()``."""
        q = self.weights.sqrt()[:, None]
        outer = (-q * self.residual).to(dtype) @ (q * self.right).to(dtype).T
        outer.diagonal().add_(self.weights.to(dtype))
        return outer

    def apply(self, block: Tensor) -> Tensor:
        """The product of C^T H D with a block (..., n, k)."""
        left, right = self.left.to(block.dtype), self.right.to(block.dtype)
        scaled = self.weights.sqrt().to(block.dtype)[:, None] * block
        if block.ndim > 2:
            return scaled - left @ (right.T @ scaled)
        return scaled.addmm(left, right.T @ scaled, alpha=-1)  # one matrix less in memory

    def adjoint(self, block: Tensor) -> Tensor:
        """The product of D H C with a block (n, k)."""
        centred = block.addmm(self.right.to(block.dtype), self.left.to(block.dtype).T @ block, alpha=-1)
        return centred.mul_(self.weights.sqrt().to(block.dtype)[:, None])

    def rounded(self, dtype: torch.dtype) -> LowRankFactor:
        """The factor itself, which is small."""
        return self


@dataclass(frozen=True)
class CholeskyFactor:
    """Any label kernel: C = sqrt(eps) L^-T with L L^T = G_Y + eps I.

    The product C^T H D is formed in float64 and rounded once at its use: a triangular solve in float32 would lose the
    condition number of L.
    """

    product: Tensor

    @classmethod
    def build(
        cls, weights: Tensor, gram: Tensor, eps: Tensor, dtype: torch.dtype = torch.float64, *, argument: str
    ) -> CholeskyFactor:
        """Label side of O(n^3); the Gram matrix, in float64, is overwritten, and decomposed in ``dtype``."""
        q = weights.sqrt()
        if is_transformed():  # then any of the three may be a batch of itself: so that the Gram matrix is, too
            gram = gram + 0 * (q + eps)
        regularised = gram.mul_(q[:, None]).mul_(q)
        # H G H = G - q v^T - v q^T with v = G q - (q^T G q / 2) q.
        v = regularised @ q
        v = v - (v @ q / 2) * q
        _subtract_outer_(_subtract_outer_(regularised, q, v), v, q)
        regularised.diagonal().add_(eps)
        lower, info = torch.linalg.cholesky_ex(regularised.to(dtype))
        if checks_values() and int(info) != 0:
            smallest = float(torch.linalg.eigvalsh(regularised)[0] - eps)
            raise ValueError(
                f"the label kernel of {argument} is not positive semi-definite (smallest eigenvalue {smallest:.3g} "
                f"at eps={float(eps):.3g}); pass another label_kernel"
            )
        product, q = invert_lower_(lower).mul_(eps.sqrt()), q.to(dtype)
        return cls(_subtract_outer_(product, product @ q, q).mul_(q))

    def trace_weights(self, dtype: torch.dtype) -> Tensor:
        """The matrix A (n, n) with ``trace R = (K * A).sum()``."""
        product = self.product.to(dtype)
        return product.T @ product

    def apply(self, block: Tensor) -> Tensor:
        """The product of C^T H D with a block (n, k)."""
        return self.product.to(block.dtype) @ block

    def adjoint(self, block: Tensor) -> Tensor:
        """The product of D H C with a block (n, k)."""
        return self.product.to(block.dtype).T @ block

    def rounded(self, dtype: torch.dtype) -> CholeskyFactor:
        """The product in this dtype."""
        return CholeskyFactor(self.product.to(dtype))


def invert_lower_(lower: Tensor) -> Tensor:
    """Invert a lower triangular matrix (..., n, n): on the CPU in its own memory, and by halves, to skip the zeros."""
    n = lower.shape[-1]
    if n <= SMALL_TRIANGLE or lower.is_cuda:
        eye = torch.eye(n, dtype=lower.dtype, device=lower.device)
        inverse: Tensor = torch.linalg.solve_triangular(lower, eye, upper=False)
        return inverse if lower.is_cuda else lower.copy_(inverse)
    half = n // 2
    first, last = invert_lower_(lower[..., :half, :half]), invert_lower_(lower[..., half:, half:])
    below = lower[..., half:, :half]
    below.copy_(last @ (below @ first)).neg_()
    return lower


def _subtract_outer_(matrix: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Subtract a b^T from a matrix, in place."""
    if is_transformed():  # torch has no rule for batches of the call below
        return matrix.sub_(torch.outer(a, b))
    return matrix.addr_(a, b, alpha=-1)


@dataclass(frozen=True)
class LabelKernel:
    """A kernel on one domain's labels, with its bandwidth fixed.

    ``contrast`` is k(y, y) - k(y, y') for two different classes (1 - a for the Gaussian kernel); None without classes.
    """

    labels: Labels
    weights: Tensor
    kernel: Kernel
    bandwidth: Tensor | None
    contrast: Tensor | None
    argument: str
    numpy_callable: bool

    def factor(self, eps: Tensor, dtype: torch.dtype = torch.float64) -> Factor:
        """B and its factor; hard classes under a named kernel take the low-rank path, unless their rank is not low.

        A Cholesky factor of less than float64 loses the condition number of the label kernel, 1 / eps, of its digits.
        """
        few_classes = self.labels.n_classes is not None and self.labels.n_classes <= len(self.labels)
        if self.labels.kind == "hard" and self.contrast is not None and few_classes:
            return LowRankFactor.build(self.weights, self.labels.membership(), self.contrast, eps)
        gram = self.gram()
        if callable(self.kernel):  # what it returned is the caller's
            gram = gram.clone()
        return CholeskyFactor.build(self.weights, gram, eps, dtype, argument=self.argument)

    def gram(self, rows: Tensor | None = None) -> Tensor:
        """Kernel values (k, n) between ``rows`` (by default the labels themselves) and the labels, in float64."""
        own = self.labels.rows()
        other = own if rows is None else rows
        if callable(self.kernel):
            return evaluate_callable(
                self.kernel, other, own, name="label_kernel", numpy_callable=self.numpy_callable
            ).detach()
        if self.kernel == "linear":
            return other @ own.T
        assert self.bandwidth is not None
        # In place: these matrices are large, and fresh memory costs more than the arithmetic.
        if self.kernel == "gaussian":
            return _squared_distances(other, own).div_(self.bandwidth).neg_().exp_()
        return _direct_distances(other, own, 1).div_(self.bandwidth.sqrt()).neg_().exp_()


def bind_label_kernel(
    labels: Labels,
    weights: Tensor,
    *,
    kernel: Kernel,
    bandwidth: Bandwidth,
    argument: str,
    numpy_callable: bool = False,
) -> LabelKernel:
    """Fix the bandwidth of a kernel on one domain's labels, within that domain.

    Pairs of a source and a target label never enter, so renaming one domain's classes changes nothing.
    """
    if callable(kernel):
        return LabelKernel(labels, weights, kernel, None, None, argument, numpy_callable)
    has_classes = labels.n_classes is not None
    if kernel == "linear":
        contrast = constant(1.0, weights) if has_classes else None
        return LabelKernel(labels, weights, kernel, None, contrast, argument, numpy_callable)
    power = 2 if kernel == "gaussian" else 1
    sigma2 = _label_sigma2(labels, weights, bandwidth, power)
    # Different one-hot rows are at squared Euclidean distance 2 and at L1 distance 2.
    contrast = -torch.expm1(-2 / (sigma2 if power == 2 else sigma2.sqrt())) if has_classes else None
    return LabelKernel(labels, weights, kernel, sigma2, contrast, argument, numpy_callable)


def _label_sigma2(labels: Labels, weights: Tensor, bandwidth: Bandwidth, power: int) -> Tensor:
    if not isinstance(bandwidth, str):
        return constant(float(bandwidth), weights)
    tiny = torch.finfo(torch.float64).tiny
    if labels.kind == "hard" and bandwidth == "mean":
        frequency = weights @ labels.membership()
        mean = 2 * (1 - frequency.square().sum())
        return (mean if power == 2 else mean.square()).clamp_min(tiny ** (1 / 2))
    rows = labels.rows()
    if power == 2 and bandwidth == "mean":  # twice the variance
        mean = 2 * (weights @ (rows - weights @ rows).square().sum(dim=1))
    else:
        distances = _direct_distances(rows, rows, power) ** power
        mean = weights @ distances @ weights
    if bandwidth == "median":
        present = weights > 0
        pairs = upper_triangle(distances[present][:, present])
        if pairs.numel():
            middle = median(pairs)
            mean = torch.where(middle > 0, middle, mean)
    # Differences below the rounding of the labels are noise: collapsed predictions count as equal, not as a pattern.
    noise = label_noise(labels.resolution) * rows.abs().amax()
    sigma2 = mean.clamp_min(noise**power).clamp_min(tiny ** (1 / 2))
    return sigma2 if power == 2 else sigma2.square().clamp_min(tiny)


def label_noise(resolution: float) -> float:
    """Differences of labels up to this share of the largest label are rounding, for labels of this relative spacing."""
    return 2 * max(resolution, torch.finfo(torch.float64).eps)


def _direct_distances(x: Tensor, y: Tensor, p: int) -> Tensor:
    """Distances by differences, entry by entry: the matrix-product form is noise where labels almost agree."""
    return torch.cdist(x, y, p=float(p), compute_mode="donot_use_mm_for_euclid_dist")


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances of rows; on a GPU, where differences entry by entry take most of the time, by products.

    About the mean of the labels products are exact enough: what they lose is small beside the labels' spread, to which
    bandwidths are proportional.
    """
    if not x.is_cuda:
        distances = _direct_distances(x, y, 2)
        return distances.mul_(distances)
    x, y = x - y.mean(dim=0), y - y.mean(dim=0)
    return (x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)).addmm(x, y.T, alpha=-2).clamp_min_(0)


def check_eps(eps: object) -> None:
    """Raise unless ``eps`` is "auto" or a positive number."""
    if isinstance(eps, str):
        check_choice("eps", eps, ("auto",), alternatives=", or a positive number")
    elif check_positive("eps", eps, alternatives=" or 'auto'") < SMALLEST_EPS:
        raise ValueError(
            f"eps={eps!r} is lost in the rounding of float64; accepted are {SMALLEST_EPS} and more, or 'auto'"
        )


def resolve_eps(eps: str | float, source: LabelKernel, target: LabelKernel) -> Tensor:
    """The regulariser as a number: given, or in proportion to the label variance of one class."""
    if not isinstance(eps, str):
        return constant(float(eps), source.weights)
    if source.contrast is None or target.contrast is None:
        raise ValueError(
            "eps='auto' needs classes and a named label kernel, as it scales with the number of classes; "
            "pass a positive number for a continuous conditioning variable or a label_kernel function"
        )
    n_classes = source.labels.n_classes or 1
    share = AUTO_EPS_SHARE * (source.contrast + target.contrast) / (2 * n_classes)
    return share.clamp_min(SMALLEST_EPS)  # under a very wide label kernel, classes hardly differ
