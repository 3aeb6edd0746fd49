"""Kernels on features, the bandwidth rules, and the three Gram blocks of two samples.

Two facts make the blocks accurate in float32, and both hold for every distance in this package. A common shift of
both samples changes nothing, so the pooled mean is subtracted before squared distances are formed by matrix products.
And a constant added to a kernel changes nothing after centring, so the Gaussian and Laplacian blocks hold ``k - 1``,
computed with ``expm1``: for a wide kernel ``k`` itself would lose the digits that matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bures.arrays import as_tensor, check_choice, check_finite, check_positive, checks_values, constant, describe
from bures.exact_distances import (
    about_median,
    exact_squared_distances,
    smallest_square,
    tangents_of_squared_distances,
)
from bures.forward_mode import apply, is_forward_mode, save

__all__ = [
    "BANDWIDTH_RULES",
    "KERNELS",
    "Bandwidth",
    "GramBlocks",
    "Kernel",
    "block_widths",
    "check_bandwidth",
    "check_kernel",
    "check_range",
    "common_frame",
    "evaluate_callable",
    "gram_blocks",
    "in_range",
    "median",
    "source_share",
    "squared_distances",
    "standardise",
    "upper_triangle",
]

Kernel: TypeAlias = str | Callable[[Any, Any], Any]
"""``"gaussian"``, ``"laplacian"``, ``"linear"``, or a function of two samples (n, d), (m, d) that gives (n, m)."""

Bandwidth: TypeAlias = str | float
"""The name of a rule or a positive number, which is sigma squared."""

KERNELS = ("gaussian", "laplacian", "linear")
BANDWIDTH_RULES = ("shared", "per-block", "median")


@dataclass(frozen=True)
class GramBlocks:
    """Kernel values within the source (n, n), within the target (m, m), and between target and source (m, n).

    ``bandwidths`` holds sigma squared of the three blocks in the units of the data, float64, or None where the kernel
    has none.
    """

    ss: Tensor
    tt: Tensor
    ts: Tensor
    bandwidths: tuple[Tensor, Tensor, Tensor] | None


def check_kernel(kernel: object, *, name: str = "kernel") -> None:
    """Raise unless ``kernel`` is a known name or a function."""
    if not callable(kernel):
        check_choice(name, kernel, KERNELS, alternatives=", or a function of two arrays")


def check_bandwidth(bandwidth: object, *, rules: tuple[str, ...] = BANDWIDTH_RULES, name: str = "bandwidth") -> None:
    """Raise unless ``bandwidth`` is one of the rules or a positive number."""
    if isinstance(bandwidth, str):
        check_choice(name, bandwidth, rules, alternatives=", or a positive number (sigma squared)")
    else:
        check_positive(name, bandwidth, alternatives=f" (sigma squared) or one of {', '.join(map(repr, rules))}")


def gram_blocks(
    xs: Tensor,
    xt: Tensor,
    *,
    kernel: Kernel,
    bandwidth: Bandwidth,
    ws: Tensor,
    wt: Tensor,
    up_to_constant: bool = True,
    precise_between: bool = False,
    numpy_callable: bool = False,
) -> GramBlocks:
    """Evaluate a kernel within and between two samples, with one bandwidth rule for the three blocks.

    Parameters
    ----------
    xs, xt : Tensor (n, d), (m, d)
        The two samples.
    kernel, bandwidth
        See `bures.ckb`.
    ws, wt : Tensor (n,), (m,)
        Sample weights, each summing to one; the mean rules use them.
    up_to_constant : bool
        The caller centres the blocks, so a constant may be left out of the kernel (and the origin moved, for the
        linear kernel). Set to False where the kernel's values themselves are needed.
    precise_between : bool
        Evaluate the Gaussian kernel between float32 samples in float64 on a GPU, where that costs little. A nuclear
        norm sees the rounding of this block in its small directions.
    numpy_callable : bool
        A function given as ``kernel`` takes and returns NumPy arrays.
    """
    if callable(kernel):
        ss, tt, ts = (
            evaluate_callable(kernel, x, y, name="kernel", numpy_callable=numpy_callable)
            for x, y in ((xs, xs), (xt, xt), (xt, xs))
        )
        return GramBlocks(ss, tt, ts, bandwidths=None)
    if kernel != "gaussian":  # whose distances are taken by differences where products would lose them
        xs, xt = in_range(xs, ws), in_range(xt, wt)
    if kernel == "linear":
        a, b, scale = standardise(xs, xt, shift=up_to_constant)
        check_range(a, b, scale)
        square = scale.square()
        return GramBlocks(a @ a.T * square, b @ b.T * square, b @ a.T * square, bandwidths=None)

    a, b, scale = standardise(xs, xt)
    if kernel == "gaussian":
        distances = squared_distances(a, b, precise_between=precise_between and a.is_cuda)
        exponent = 1
    else:
        distances = (_l1_distances(a, a), _l1_distances(b, b), _l1_distances(b, a))
        exponent = 2
    # Lengths are in units of the power of two that `standardise` divided by. The Gaussian kernel divides squared
    # distances by sigma^2; the Laplacian kernel divides L1 distances by sigma.
    widths = block_widths(bandwidth, exponent, (a, b), distances, (ws, wt), scale)
    if (
        kernel == "gaussian"
        and a.device.type == "cpu"
        and checks_values()
        and _drown((a, b), distances, widths, bandwidth)
    ):
        a, b = about_median(xs, xt, scale)
        distances = exact_squared_distances(a, b)
        widths = block_widths(bandwidth, exponent, (a, b), distances, (ws, wt), scale, exact=True)
    ss, tt, ts = (
        torch.expm1(-distance / width.to(distance.dtype)) for distance, width in zip(distances, widths, strict=True)
    )
    if not up_to_constant:
        ss, tt, ts = ss + 1, tt + 1, ts + 1
    unit = scale.double().square()
    sigma2_ss, sigma2_tt, sigma2_ts = (width**exponent * unit for width in widths)
    return GramBlocks(ss, tt, ts, bandwidths=(sigma2_ss, sigma2_tt, sigma2_ts))


def standardise(xs: Tensor, xt: Tensor, *, shift: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Move both samples to their common mean and divide by a power of two, so that no square over- or underflows.

    Shift and scale are constants of the graph: the distances do not depend on the first, and the caller puts the
    second back.
    """
    centre, scale = common_frame(torch.cat([xs.detach(), xt.detach()]), shift=shift)
    return xs / scale - centre, xt / scale - centre, scale


def in_range(x: Tensor, w: Tensor) -> Tensor:
    """Samples (n, d), those of weight zero at the mean: they are not there, but beside large ones others are lost."""
    mean = w.to(x.dtype) @ x.detach()
    return torch.where((w > 0)[:, None], x, mean)


def check_range(a: Tensor, b: Tensor, scale: Tensor) -> None:
    """Raise where products of standardised samples, times the square of ``scale``, leave the range of their dtype."""
    terms = 16 * a.shape[1] * max(len(a), len(b))  # a standardised sample has entries up to 4
    if checks_values() and float(scale) > (torch.finfo(a.dtype).max / terms) ** 0.5:
        raise ValueError(
            f"xs and xt have entries of size {float(scale):.1e}, whose squares are beyond the range of {a.dtype}; "
            "divide both by a constant" + ("" if a.dtype == torch.float64 else ", or pass float64")
        )


def common_frame(pooled: Tensor, *, shift: bool = True) -> tuple[Tensor, Tensor]:
    """The mean (d,) of a sample, in units of a power of two, and this power: where `standardise` moves samples to."""
    largest = pooled.abs().amax()
    # A gradient in units of less than the smallest normal number has no finite value: such samples are taken for zero.
    normal = largest >= torch.finfo(pooled.dtype).tiny
    scale = torch.where(normal, torch.exp2(torch.floor(torch.log2(largest))), torch.ones_like(largest))
    if not shift:
        return torch.zeros_like(pooled[0]), scale
    pooled = pooled / scale
    centre = pooled.mean(dim=0)
    return centre + (pooled - centre).mean(dim=0), scale  # less the rounding of the mean: constants become zero


def _drown(
    samples: tuple[Tensor, Tensor],
    distances: tuple[Tensor, Tensor, Tensor],
    widths: tuple[Tensor, Tensor, Tensor],
    bandwidth: Bandwidth,
) -> bool:
    """Whether the bandwidth is lost beside the largest squared norm of the standardised samples."""
    n, m = map(len, samples)
    largest = max(float(x.detach().square().sum(dim=1).amax()) for x in samples)
    smallest = smallest_square(largest, samples[0].dtype)
    if bandwidth == "median":  # a median that is lost may be zero, and the width then the mean
        ss, tt, ts = (int((distance.detach() < smallest).sum()) for distance in distances)
        if (ss - n) + (tt - m) + 2 * ts >= n * (n - 1) / 2 + m * (m - 1) / 2 + n * m:
            return True
    return min(map(float, widths)) < smallest


def _l1_distances(x: Tensor, y: Tensor) -> Tensor:
    if is_forward_mode():  # torch has no forward derivative of the call below
        return (x[:, None] - y).abs().sum(dim=2)
    return torch.cdist(x, y, p=1.0)


def squared_distances(a: Tensor, b: Tensor, *, precise_between: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Squared Euclidean distances within the rows of ``a`` (n, n), within those of ``b`` (m, m), and between (m, n).

    Formed by matrix products: centre the rows first. The diagonals within a sample are exactly zero, and the gradient
    is that of the sum of squared differences, finite for equal rows too. With ``precise_between`` the last are float64.
    """
    within_a, within_b, between = apply(_SquaredDistances, a, b, precise_between)
    return within_a, within_b, between


class _SquaredDistances(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, precise_between: bool) -> tuple[Tensor, Tensor, Tensor]:
        norms_a, norms_b = a.square().sum(dim=1), b.square().sum(dim=1)
        within_a = (norms_a[:, None] + norms_a).addmm(a, a.T, alpha=-2).clamp_min(0)
        within_b = (norms_b[:, None] + norms_b).addmm(b, b.T, alpha=-2).clamp_min(0)
        if precise_between:
            a, b = a.double(), b.double()
            norms_a, norms_b = a.square().sum(dim=1), b.square().sum(dim=1)
        between = (norms_b[:, None] + norms_a).addmm(b, a.T, alpha=-2).clamp_min(0)
        # The diagonals are not filled in place: compiled by torch 2.11, that loses the gradient.
        return within_a - torch.diag(within_a.diagonal()), within_b - torch.diag(within_b.diagonal()), between

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: tuple[Tensor, ...]) -> None:
        ctx.dtype_between = output[2].dtype
        save(ctx, *inputs[:2])

    @staticmethod
    def backward(ctx: Any, within_a: Tensor, within_b: Tensor, between: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        between = between.to(a.dtype)
        within_a, within_b = within_a + within_a.T, within_b + within_b.T  # each sample is a row and a column
        weight_a = within_a.sum(dim=1) + between.sum(dim=0)
        weight_b = within_b.sum(dim=1) + between.sum(dim=1)
        grad_a = weight_a[:, None] * a - within_a @ a - between.T @ b
        grad_b = weight_b[:, None] * b - within_b @ b - between @ a
        return 2 * grad_a, 2 * grad_b, None

    @staticmethod
    def tangent(ctx: Any, to_a: Tensor, to_b: Tensor, _: None) -> tuple[Tensor, Tensor, Tensor]:
        a, b = ctx.saved_tensors
        within_a, within_b, between = tangents_of_squared_distances(a, to_a, b, to_b)
        return within_a, within_b, between.to(ctx.dtype_between)


def evaluate_callable(
    kernel: Callable[[Any, Any], Any], x: Tensor, y: Tensor, *, name: str, numpy_callable: bool
) -> Tensor:
    """Call a user's kernel on two samples, in the language the user speaks, and check what comes back."""
    values = kernel(x.numpy(), y.numpy()) if numpy_callable else kernel(x, y)
    if numpy_callable and not isinstance(values, Tensor) and np.asarray(values).dtype.kind in "biuf":
        values = as_tensor(values)
    if not isinstance(values, Tensor) or values.shape != (len(x), len(y)):
        raise ValueError(
            f"{name} returned a {describe(values)} for samples of {len(x)} and {len(y)} rows; "
            f"it must return an array of shape ({len(x)}, {len(y)})"
        )
    values = values.to(x.dtype)
    check_finite(f"the result of {name}", values)
    return values


def block_widths(
    bandwidth: Bandwidth,
    exponent: int,
    samples: tuple[Tensor, Tensor],
    distances: tuple[Tensor, Tensor, Tensor] | None,
    weights: tuple[Tensor, Tensor],
    scale: Tensor,
    *,
    exact: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """What each block's distances are divided by, in float64 and in the units of the standardised samples.

    Squared distances (exponent 1) are not needed for their means, and may be None unless a median is wanted.
    """
    a = samples[0]
    if not isinstance(bandwidth, str):
        unit = scale.double()
        width = (constant(float(bandwidth), a) / unit / unit) ** (1 / exponent)
        # Outside the range of the dtype the kernel is the identity or a constant; clamping keeps it so, without 0 / 0.
        width = width.clamp(torch.finfo(a.dtype).tiny, torch.finfo(a.dtype).max)
        return width, width, width
    if exponent == 1:
        ss, tt, ts = _mean_squared_distances(*samples, *weights)
    else:
        assert distances is not None
        ss, tt, ts = _mean_distances(distances, *weights)
    if bandwidth == "per-block":
        rule = (ss, tt, ts)
    else:
        share = source_share(*weights)
        pooled = share**2 * ss + (1 - share) ** 2 * tt + 2 * share * (1 - share) * ts
        if bandwidth == "median":
            assert distances is not None
            median = _median_off_diagonal(distances, *weights)
            pooled = torch.where(median > 0, median, pooled)
        rule = (pooled, pooled, pooled)
    # Distances below the rounding of the samples carry no information: equal samples get a flat kernel, not noise.
    rounding = 4 * torch.finfo(a.dtype).eps
    if exponent == 2:
        floor = constant(a.shape[1] * rounding, a)
    elif exact:
        floor = constant(a.shape[1] * rounding**2, a)
    else:  # squared distances come from matrix products, which round at the size of the samples
        largest = torch.stack([x.detach().square().sum(dim=1).amax() for x in samples]).amax()
        floor = a.shape[1] * rounding**2 + 2 * rounding * largest.double()
    return torch.maximum(rule[0], floor), torch.maximum(rule[1], floor), torch.maximum(rule[2], floor)


def source_share(ws: Tensor, wt: Tensor) -> Tensor:
    """Part of the pooled samples that is source; samples of weight zero are not there."""
    n, m = (ws > 0).sum().double(), (wt > 0).sum().double()
    return n / (n + m)


def _mean_squared_distances(a: Tensor, b: Tensor, ws: Tensor, wt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted means of the squared distances of the three blocks, from means and variances in O(nd)."""
    a, b = a.detach().double(), b.detach().double()
    mean_a, mean_b = ws @ a, wt @ b
    variance_a = ws @ (a - mean_a).square().sum(dim=1)
    variance_b = wt @ (b - mean_b).square().sum(dim=1)
    return 2 * variance_a, 2 * variance_b, variance_a + variance_b + (mean_a - mean_b).square().sum()


def _mean_distances(distances: tuple[Tensor, Tensor, Tensor], ws: Tensor, wt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    ss, tt, ts = (distance.detach().double() for distance in distances)
    return ws @ ss @ ws, wt @ tt @ wt, wt @ ts @ ws


def _median_off_diagonal(distances: tuple[Tensor, Tensor, Tensor], ws: Tensor, wt: Tensor) -> Tensor:
    """Median over all pairs of different samples of the pooled data; samples of weight zero are not there."""
    s, t = ws > 0, wt > 0
    ss, tt, ts = (
        distances[0].detach()[s][:, s],
        distances[1].detach()[t][:, t],
        distances[2].detach()[t][:, s],
    )
    return median(torch.cat([upper_triangle(ss), upper_triangle(tt), ts.flatten()]))


def upper_triangle(block: Tensor) -> Tensor:
    """The entries above the diagonal, as a vector."""
    rows, columns = torch.triu_indices(len(block), len(block), offset=1, device=block.device)
    return block[rows, columns]


def median(values: Tensor) -> Tensor:
    """The median in float64, the mean of the two middle values where their number is even (as NumPy has it)."""
    count = values.numel()
    lower = values.kthvalue((count + 1) // 2).values
    higher = values.kthvalue(count // 2 + 1).values
    return (lower.double() + higher.double()) / 2
