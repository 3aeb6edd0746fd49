r"""The squared distance of two small float32 samples, with its gradient, by three kernels of a GPU.

While samples are small, the three hundred launches of `bures.metrics._fused_device` take longer than what they compute:
the polar factor alone is fifty products of matrices of thirty rows. Here there are three, all in float64: one for the
labels and the distances of samples, one for the distance of the domains, and one for its gradient. The formulas are
those of `bures.metrics._fused`, the rules for bandwidths and rounding those of `bures.kernels`. Nothing looks at a
value, so a CUDA graph can hold it.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bures.factors import LabelKernel
from bures.kernels import Bandwidth
from bures.polar import STEPS
from bures.wording import first_line_of

__all__ = ["SmallDeviceLabels", "small_value_and_gradient", "suits_small_device"]

LARGEST = 64
"""Samples in a domain. Larger tiles do not fit one multiprocessor, and others of the GPU are worth their launches."""

CHUNK = 16  # features at a time
MOST_PARTS = 16  # of the features, each the work of a program

_failed: set[torch.device] = set()  # where the kernels could not be built or started


@dataclass(frozen=True)
class SmallDeviceLabels:
    """The label kernels of both domains, and the regulariser."""

    source: LabelKernel
    target: LabelKernel
    eps: Tensor


def suits_small_device(xs: Tensor, xt: Tensor, source: LabelKernel, target: LabelKernel) -> bool:
    """Whether the kernels are written for such samples and labels, and there is a GPU for them."""
    return (
        xs.is_cuda
        and xs.dtype == torch.float32
        and 0 < max(len(xs), len(xt)) <= LARGEST
        and all(_suits(side) for side in (source, target))
        and _is_made_for_float64(xs.device)
        and xs.device not in _failed
    )


def _suits(side: LabelKernel) -> bool:
    return side.kernel == "gaussian" and (
        side.labels.kind == "hard" or (side.labels.n_classes is not None and side.is_wide)
    )


@cache
def _is_made_for_float64(device: torch.device) -> bool:
    """Whether a GPU of NVIDIA has more than a token of units for float64, and Triton is there to write for it.

    Those for data centres have (8.0, 9.0, 10.0); others of the same generations have numbers after the point.
    """
    if torch.version.cuda is None or importlib.util.find_spec("triton") is None:
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return major >= 8 and minor == 0


def small_value_and_gradient(
    xs: Tensor, xt: Tensor, *, labels: SmallDeviceLabels, bandwidth: Bandwidth, wanted: bool
) -> tuple[Tensor, Tensor | None] | None:
    """The squared distance and, where wanted, its gradient in the pooled sample (n + m, d).

    None, with a warning, where the kernels cannot be built: that takes a compiler for C, which not all machines have.
    """
    try:
        return _value_and_gradient(xs, xt, labels, bandwidth, wanted=wanted)
    except Exception as error:  # Triton's, of its compilers, of the driver: each has its own
        _failed.add(xs.device)
        reason = first_line_of(error)
        warnings.warn(f"the distance of small batches does without its own GPU kernels: {reason}", stacklevel=6)
        return None


def _value_and_gradient(
    xs: Tensor, xt: Tensor, labels: SmallDeviceLabels, bandwidth: Bandwidth, *, wanted: bool
) -> tuple[Tensor, Tensor | None]:
    from bures.metrics import _small_device_kernels as kernels

    (n, d), m, device = xs.shape, len(xt), xs.device
    sides = labels.source, labels.target
    hard_s, hard_t = (side.labels.kind == "hard" for side in sides)
    values = [side.labels.values.contiguous() for side in sides]
    columns = [1 if y.ndim == 1 else y.shape[1] for y in values]
    weights, widths = [side.weights.contiguous() for side in sides], [side.bandwidth for side in sides]
    samples = xs.contiguous(), xt.contiguous()
    side = max(16, 1 << (max(n, m) - 1).bit_length())
    size = {"SIDE": side, "num_warps": 4 if side < LARGEST else 8}
    share = CHUNK * _ceil(_ceil(d, CHUNK), MOST_PARTS)
    parts = _ceil(d, share)

    def scratch(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    factors, squares, largest = scratch(2, side, side), scratch(parts, 3, side, side), scratch(parts, dtype=xs.dtype)
    kernels.prepare[(2 + parts,)](
        *samples, *values, *weights, *widths, labels.eps, factors, squares, largest,
        n, m, d, *columns, share, HARD_S=hard_s, HARD_T=hard_t, CHUNK=CHUNK, **size,
    )  # fmt: skip
    if isinstance(bandwidth, str):
        rule, width = bandwidth, labels.eps  # which nobody reads as a width
    else:
        rule, width = "given", torch.full_like(labels.eps, bandwidth)
    value, pairs = scratch(dtype=xs.dtype), scratch(3 if wanted else 0, side, side)
    kernels.squared_distance[(1,)](
        *weights, factors, squares, largest, _scalings(device), width, value, pairs, n, m, d, parts,
        len(STEPS.scalings), RULE=rule, WANTED=wanted, **size,
    )  # fmt: skip
    if not wanted:
        return value, None
    gradient = scratch(n + m, d, dtype=xs.dtype)
    kernels.gradient[(_ceil(d, CHUNK),)](*samples, pairs, gradient, n, m, d, CHUNK=CHUNK, **size)
    return value, gradient


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


@cache
def _scalings(device: torch.device) -> Tensor:
    """Those of the polar iteration; copied once, for a copy from the host is nothing that a CUDA graph can hold."""
    return torch.tensor(STEPS.scalings, dtype=torch.float64, device=device)
