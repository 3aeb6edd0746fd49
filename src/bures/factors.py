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
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bures.arrays import check_choice, check_positive, checks_values, constant, is_transformed
from bures.exact_distances import direct_distances
from bures.half_products import gram, multiply
from bures.kernels import Bandwidth, Kernel, evaluate_callable, median, upper_triangle
from bures.labels import Labels
from bures.triangular import invert_lower_

__all__ = [
    "AUTO_EPS_SHARE",
    "DOUBLE",
    "LABEL_BANDWIDTH_RULES",
    "SMALLEST_EPS",
    "Factor",
    "LabelKernel",
    "Precision",
    "UnconditionalFactor",
    "bind_label_kernel",
    "check_eps",
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


class Precision(NamedTuple):
    """The dtypes of a Cholesky factor.

    A decomposition in float32 loses the condition number of the label kernel, 1 / eps, of its digits. It does so as a
    factor close to one: what is small in the features' kernel stays as exact as it was, if the product, which takes
    the constant out of that kernel, is float64.
    """

    decomposition: torch.dtype
    product: torch.dtype


DOUBLE = Precision(torch.float64, torch.float64)


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
    r"""Hard classes: beside the K unit vectors of the classes, B and its factor are the identity.

    In the basis of the unit vectors G_Y is the diagonal matrix of contrast times frequency, centred, so that H B H is
    known in closed form (`_class_factor`). All matrices are float64; the products are rounded once, at their use.
    """

    weights: Tensor
    units: Tensor  # orthonormal (n, K): the members of each class
    excess: Tensor  # C^T H = I + units excess units^T

    @classmethod
    def build(cls, weights: Tensor, membership: Tensor, contrast: Tensor, eps: Tensor) -> LowRankFactor:
        """Label side of O(n K), in float64."""
        frequency = weights @ membership
        units = membership * weights.sqrt()[:, None] * torch.where(frequency > 0, frequency.rsqrt(), 0.0)
        factor = _class_factor(frequency, contrast, eps)
        return cls(weights, units, factor - torch.eye(len(frequency), dtype=factor.dtype, device=factor.device))

    def trace_weights(self, dtype: torch.dtype) -> Tensor:
        """The matrix A (n, n) with ``trace R = (K * A).sum()``."""
        scaled = self.weights.sqrt()[:, None] * self.units
        excess = self.excess + self.excess.T + self.excess.T @ self.excess
        outer = (scaled @ excess).to(dtype) @ scaled.to(dtype).T
        outer.diagonal().add_(self.weights.to(dtype))
        return outer

    def apply(self, block: Tensor) -> Tensor:
        """The product of C^T H D with a block (..., n, k)."""
        units, excess = self.units.to(block.dtype), self.excess.to(block.dtype)
        scaled = self.weights.sqrt().to(block.dtype)[:, None] * block
        inner = excess @ (units.T @ scaled)
        if block.ndim > 2 or is_transformed():
            return scaled + units @ inner
        return scaled.addmm_(units, inner)  # two matrices less in memory

    def adjoint(self, block: Tensor) -> Tensor:
        """The product of D H C with a block (n, k)."""
        units, excess = self.units.to(block.dtype), self.excess.to(block.dtype)
        centred = block.addmm(units, excess.T @ (units.T @ block))
        return centred.mul_(self.weights.sqrt().to(block.dtype)[:, None])

    def rounded(self, dtype: torch.dtype) -> LowRankFactor:
        """The factor itself, which is small."""
        return self


def _class_factor(frequency: Tensor, contrast: Tensor, eps: Tensor) -> Tensor:
    r"""The product C^T H (K, K) of hard classes, on the unit vectors of the classes.

    There :math:`G_Y = P F P` with :math:`F` the diagonal matrix of contrast times frequency and
    :math:`P = I - r r^\top`, :math:`r` the roots of the frequencies. The inverse of :math:`P (F + \varepsilon I) P` on
    its range is :math:`A (I - t t^\top) A` with :math:`A = (F + \varepsilon I)^{-1/2}` and :math:`t` the direction of
    :math:`A r`.
    """
    inverse_root = (contrast * frequency + eps).rsqrt()
    t = inverse_root * frequency.sqrt()
    t = t / torch.linalg.vector_norm(t)
    factor = torch.diag(inverse_root) - torch.outer(t, t * inverse_root)
    return factor * eps.sqrt()


@dataclass(frozen=True)
class CholeskyFactor:
    """Any label kernel: C = sqrt(eps) L^-T with L L^T = G_Y + eps I, and the product C^T H D."""

    product: Tensor

    @classmethod
    def build(
        cls, weights: Tensor, gram: Tensor, eps: Tensor, precision: Precision = DOUBLE, *, argument: str
    ) -> CholeskyFactor:
        """Label side of O(n^3); the Gram matrix, in float64, is overwritten."""
        q = weights.sqrt()
        if is_transformed():  # then any of the three may be a batch of itself: so that the Gram matrix is, too
            gram = gram + 0 * (q + eps)
        regularised = gram.mul_(q[:, None]).mul_(q)
        # H G H = G - q v^T - v q^T with v = G q - (q^T G q / 2) q.
        v = regularised @ q
        v = v - (v @ q / 2) * q
        _subtract_outer_(_subtract_outer_(regularised, q, v), v, q)
        regularised.diagonal().add_(eps)
        lower, info = torch.linalg.cholesky_ex(regularised.to(precision.decomposition))
        if checks_values() and int(info) != 0:
            eigenvalues = torch.linalg.eigvalsh(regularised) - eps
            smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
            if -smallest <= 16 * len(q) * torch.finfo(torch.float64).eps * largest:
                raise ValueError(
                    f"the label kernel of {argument} has eigenvalues up to {largest:.3g}, beside which "
                    f"eps={float(eps):.3g} is lost in rounding; divide {argument} by a constant, or raise eps"
                )
            raise ValueError(
                f"the label kernel of {argument} is not positive semi-definite (smallest eigenvalue {smallest:.3g} "
                f"at eps={float(eps):.3g}); pass another label_kernel"
            )
        product, q = invert_lower_(lower).to(precision.product).mul_(eps.sqrt()), q.to(precision.product)
        return cls(_subtract_outer_(product, product @ q, q).mul_(q))

    def trace_weights(self, dtype: torch.dtype) -> Tensor:
        """The matrix A (n, n) with ``trace R = (K * A).sum()``."""
        product = self.product.to(dtype)
        return gram(product)

    def apply(self, block: Tensor) -> Tensor:
        """The product of C^T H D with a block (n, k)."""
        return self.product.to(block.dtype) @ block

    def adjoint(self, block: Tensor) -> Tensor:
        """The product of D H C with a block (n, k)."""
        return multiply(self.product.to(block.dtype).T, block)

    def rounded(self, dtype: torch.dtype) -> CholeskyFactor:
        """The product in this dtype."""
        return CholeskyFactor(self.product.to(dtype))


def _subtract_outer_(matrix: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Subtract a b^T from a matrix, in place."""
    if is_transformed():  # torch has no rule for batches of the call below
        return matrix.sub_(torch.outer(a, b))
    return matrix.addr_(a, b, alpha=-1)


@dataclass(frozen=True)
class LabelKernel:
    """A kernel on one domain's labels, with its bandwidth fixed.

    ``contrast`` is k(y, y) - k(y, y') for two different classes (1 - a for the Gaussian kernel); None without classes.
    ``is_wide``: the bandwidth is the mean squared distance, beside which the rounding of distances is nothing.
    """

    labels: Labels
    weights: Tensor
    kernel: Kernel
    bandwidth: Tensor | None
    contrast: Tensor | None
    argument: str
    numpy_callable: bool
    is_wide: bool = False

    def factor(self, eps: Tensor, precision: Precision = DOUBLE) -> Factor:
        """B and its factor; hard classes under a named kernel take the low-rank path, unless their rank is not low."""
        few_classes = self.labels.n_classes is not None and self.labels.n_classes <= len(self.labels)
        if self.labels.kind == "hard" and self.contrast is not None and few_classes:
            return LowRankFactor.build(self.weights, self.labels.membership(), self.contrast, eps)
        if self.kernel == "linear" and self.labels.n_classes is None:
            # B is that of centred labels; beside the products of a large offset eps would be lost.
            rows = self.labels.rows() - self.weights @ self.labels.rows()
            gram = rows @ rows.T
        else:
            gram = self.gram()
        if callable(self.kernel):  # what it returned is the caller's
            gram = gram.clone()
        return CholeskyFactor.build(self.weights, gram, eps, precision, argument=self.argument)

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
        if self.kernel == "laplacian":
            return direct_distances(other, own, 1).div_(self.bandwidth.sqrt()).neg_().exp_()
        if self.labels.n_classes and self.is_wide:
            squares = _class_distances(other, own, self.weights)
        else:
            squares = direct_distances(other, own, 2).square_()
        return squares.div_(self.bandwidth).neg_().exp_()


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
    return LabelKernel(labels, weights, kernel, sigma2, contrast, argument, numpy_callable, bandwidth == "mean")


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
        distances = direct_distances(rows, rows, power) ** power
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


def _class_distances(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Squared distances of rows of probabilities (k, c) and (n, c) in float64, by products.

    About the mean of those that count, rows that almost agree are told apart as far as they do: the others are far
    from it, or their weight is small.
    """
    mean = weights @ y
    x, y = x - mean, y - mean
    of_x, of_y = x.square().sum(dim=1), y.square().sum(dim=1)
    return (x @ y.T).mul_(-2).add_(of_x[:, None]).add_(of_y).clamp_min_(0)


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
