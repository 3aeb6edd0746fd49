"""The one boundary between NumPy and torch, and the checks every public function makes on its arguments.

Every metric is written once, in torch. A NumPy caller's arrays become float64 tensors on the way in (without a copy
where the dtype allows) and the result becomes a Python float on the way out; a torch caller keeps dtype, device and
autograd graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from bures.columns import column_names, column_order
from bures.forward_mode import is_forward_mode

__all__ = [
    "FUNCTION_NAMES",
    "LOSS_NAMES",
    "Array",
    "Names",
    "Scalar",
    "amplified_gradient",
    "as_feature_pair",
    "as_features",
    "as_result",
    "as_sample_weight",
    "as_tensor",
    "at_least_float32",
    "check_choice",
    "check_count",
    "check_finite",
    "check_flags",
    "check_not_negative",
    "check_positive",
    "check_real",
    "check_seed",
    "check_tensors",
    "checks_values",
    "constant",
    "describe",
    "full_precision",
    "is_missing",
    "is_tensor_call",
    "is_transformed",
    "is_vmapped",
    "listed_values",
    "numpy_to_tensor",
    "read_samples",
    "refuse_masked",
]

Array: TypeAlias = Any
"""What a caller may pass: a torch tensor, a NumPy array, or what ``numpy.asarray`` reads (lists, pandas objects)."""

Scalar: TypeAlias = Any
"""What a metric returns: a Python float for NumPy input, a 0-d tensor for torch input."""


def is_tensor_call(**arrays: Array) -> bool:
    """Whether the caller speaks torch; an error where torch and NumPy numbers are mixed.

    Lists and arrays of strings (class names, say) have no torch form and are allowed beside tensors.
    """
    tensors = {name: value for name, value in arrays.items() if isinstance(value, Tensor)}
    if not tensors:
        return False
    first = next(iter(tensors))
    for name, value in arrays.items():
        if _is_numeric_array(value):
            raise TypeError(
                f"{first} is a torch tensor but {name} is a {type(value).__name__}; "
                "pass all arrays as torch tensors or all as NumPy arrays"
            )
    for name, tensor in tensors.items():
        if tensor.device != tensors[first].device:
            raise ValueError(
                f"{first} is on device {tensors[first].device} but {name} is on {tensor.device}; "
                "move all tensors to one device with .to(device)"
            )
    return True


def _is_numeric_array(value: Array) -> bool:
    if isinstance(value, Tensor):
        return False
    dtype = getattr(value, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "biufc"


def as_feature_pair(xs: Array, xt: Array, *, names: tuple[str, str] = ("xs", "xt")) -> tuple[Tensor, Tensor]:
    """Read two samples as floating-point matrices (n, d) and (m, d) of one dtype.

    NumPy input becomes float64. Torch input keeps its dtype, but half precisions are computed in float32: a distance
    in bfloat16 would keep three digits. A vector is a sample of one feature. Of two data frames with named columns, the
    second is put into the order of the first.
    """
    if isinstance(xs, Tensor) != isinstance(xt, Tensor):
        kinds = [f"{name} is a {type(value).__name__}" for name, value in zip(names, (xs, xt), strict=True)]
        raise TypeError(f"{kinds[0]} but {kinds[1]}; pass both as torch tensors or both as NumPy arrays")
    order = None if isinstance(xs, Tensor) else column_order(column_names(xs), column_names(xt), names=names)
    s, t = _as_matrix(names[0], xs), _as_matrix(names[1], xt)
    if order is not None:
        t = t[:, order]
    if s.shape[1] != t.shape[1]:
        raise ValueError(
            f"{names[0]} has {s.shape[1]} features but {names[1]} has {t.shape[1]}; "
            "both samples must have the same number of columns"
        )
    dtype = torch.promote_types(s.dtype, t.dtype)
    return s.to(dtype), t.to(dtype)


def _as_matrix(name: str, value: Array) -> Tensor:
    x = as_features(name, value)
    if x.ndim == 1:
        x = x.unsqueeze(1)
    if x.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; accepted is (n_samples, n_features)")
    check_finite(name, x)
    return x


def as_features(name: str, value: Array) -> Tensor:
    """Read features of any shape, none of it empty, in the floating-point precision they have, at least float32."""
    x = value if isinstance(value, Tensor) else numpy_to_tensor(name, value)
    check_real(name, x)
    if 0 in x.shape:
        raise ValueError(f"{name} is empty (shape {tuple(x.shape)}); at least one sample and one feature are needed")
    if not x.is_floating_point():
        return x.to(torch.get_default_dtype())
    return x.float() if x.dtype.itemsize < 4 else x


def check_real(name: str, x: Tensor) -> None:
    """Raise unless a tensor holds real numbers."""
    if x.is_complex():
        raise TypeError(f"{name} has dtype {x.dtype}; accepted are real floating-point and integer dtypes")


def numpy_to_tensor(name: str, value: Array) -> Tensor:
    """Read anything NumPy reads as a float64 tensor; memory is shared where dtype and layout allow."""
    refuse_masked(name, value)
    if hasattr(value, "toarray"):  # NumPy would make one object of a sparse matrix
        raise TypeError(f"{name} is a sparse {describe(value)}; pass {name}.toarray()")
    try:
        array = np.asarray(value)
        # NumPy would read the string "1.5" as a number; a table of strings is more likely a mistake.
        if array.dtype.kind not in "biufO" or (array.dtype == object and any(isinstance(v, str) for v in array.flat)):
            raise TypeError(f"entries of dtype {array.dtype}")
        return as_tensor(array, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} could not be read as an array of real numbers: {error}; accepted are NumPy arrays, "
            f"torch tensors, lists and pandas objects of numbers, got {describe(value)}"
        ) from error


def refuse_masked(name: str, value: Array) -> None:
    """Raise where entries of a masked array are masked: NumPy drops the mask and hands out what is behind it."""
    if np.ma.is_masked(value):
        raise ValueError(
            f"{name} has {np.count_nonzero(np.ma.getmask(value))} masked entries; remove or impute these samples"
        )


def as_tensor(value: Array, dtype: DTypeLike | None = None) -> Tensor:
    """Wrap what torch or NumPy reads as a tensor; memory is shared where dtype and layout allow.

    ``dtype`` is NumPy's, for what is not a tensor yet; None keeps what is there.
    """
    if isinstance(value, Tensor):
        return value.detach()
    array = np.asarray(value)
    # torch cannot wrap a byte-swapped or negatively strided array, and warns about a read-only one: copy these.
    wanted = array.dtype.newbyteorder("=") if dtype is None else dtype
    array = np.require(array, dtype=wanted, requirements=["C", "W"])
    # NumPy takes an array of one row for contiguous whatever its strides are; torch looks at them.
    return torch.from_numpy(array.copy() if any(stride < 0 for stride in array.strides) else array)


def is_missing(label: object) -> bool:
    """Whether a label is None, NaN, or what pandas has in their place, which has no truth value."""
    if label is None:
        return True
    different = label != label
    return bool(different) if isinstance(different, (bool, np.bool_)) else True


def check_tensors(names: Iterable[str], values: Iterable[object]) -> None:
    """Raise where an argument of a loss is something else than a tensor."""
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is a {describe(value)}; losses take torch tensors (see torch.as_tensor)")


def describe(value: object) -> str:
    """Name a value in a message: its type, and its shape and dtype where it has them."""
    parts = [type(value).__name__]
    if (shape := getattr(value, "shape", None)) is not None:
        parts.append(f"of shape {tuple(shape)}")
    if (dtype := getattr(value, "dtype", None)) is not None:
        parts.append(f"and dtype {dtype}")
    return " ".join(parts)


def checks_values() -> bool:
    """Whether the values of tensors may be looked at now.

    Looking at a value breaks the graph that ``torch.compile`` traces, is forbidden while a CUDA graph is captured, and
    means nothing under ``torch.func.vmap``; there, shapes and dtypes are still checked and values are not.
    """
    if torch.compiler.is_compiling() or is_vmapped():
        return False
    return not (_cuda_is_there() and torch.cuda.is_current_stream_capturing())


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` (grad, vmap, ...) or forward mode is at work."""
    return bool(torch._C._are_functorch_transforms_active()) or is_forward_mode()


def is_vmapped() -> bool:
    """Whether tensors stand for a batch of themselves under ``torch.func.vmap``."""
    if not torch._C._are_functorch_transforms_active():
        return False
    # torch has no public name for the question, so it is asked only where there is something to ask about.
    from torch._C._functorch import TransformType
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    return any(level.key() == TransformType.Vmap for level in retrieve_all_functorch_interpreters())


def listed_values(x: Any) -> list[Any]:
    """The entries (n,) of a tensor or NumPy array as Python's; before torch 2.5 `tolist` fails inside transforms."""
    return [entry.item() for entry in x] if isinstance(x, Tensor) and is_transformed() else list(x.tolist())


@cache
def _cuda_is_there() -> bool:
    return torch.cuda.is_available()


def check_finite(name: str, x: Tensor) -> None:
    """Raise if ``x`` has NaN or infinite entries, saying how many rows and which is the first."""
    if not checks_values():
        return
    x = x.detach()
    if math.isfinite(float(x.sum())):  # one pass; a sum that overflows is looked at again
        return
    finite = torch.isfinite(x)
    if bool(finite.all()):
        return
    bad = (~finite).reshape(x.shape[0], -1).any(dim=1).nonzero().flatten()
    raise ValueError(
        f"{name} contains NaN or infinity in {bad.numel()} of {x.shape[0]} rows (first: row {int(bad[0])}); "
        "remove or impute these samples"
    )


def check_choice(name: str, value: object, choices: Collection[str], *, alternatives: str = "") -> None:
    """Raise unless ``value`` is one of the names in ``choices``."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is unknown; accepted are {listed}{alternatives}")


def check_flags(**given: object) -> None:
    """Raise unless all of the named values are True or False: text such as "no" would count as True."""
    for name, value in given.items():
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{name}={value!r} is no truth value; accepted are True and False")


def check_positive(name: str, value: object, *, alternatives: str = "") -> float:
    """Return ``value`` as a float; raise unless it is one positive finite number."""
    accepted = f"accepted is a positive number{alternatives}"
    if isinstance(value, (bool, str, np.bool_)) or getattr(value, "dtype", None) == torch.bool:
        raise TypeError(f"{name}={value!r} is not a number; {accepted}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is a {describe(value)}; {accepted}") from error
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name}={number!r} is out of range; {accepted}")
    return number


def check_not_negative(name: str, value: object) -> float:
    """Return ``value`` as a float; raise unless it is one finite number from 0 up."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is not a number; accepted are numbers from 0 up")
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name}={value!r} is out of range; accepted are numbers from 0 up")
    return number


def check_count(name: str, value: object, *, minimum: int = 1, alternatives: str = "") -> int:
    """Return ``value`` as an int; raise unless it is an integer of at least ``minimum``, and no truth value."""
    accepted = f"accepted is an integer of at least {minimum}{alternatives}"
    if isinstance(value, (bool, np.bool_)) or getattr(value, "dtype", None) == torch.bool:
        raise TypeError(f"{name}={value!r} is not an integer; {accepted}")
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"{name}={value!r} is not an integer; {accepted}") from error
    if count < minimum:
        raise ValueError(f"{name}={count} is out of range; {accepted}")
    return count


def check_seed(seed: object) -> int:
    """Return ``seed``; raise unless NumPy and torch both take it for the start of a random sequence."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise ValueError(f"seed={seed!r} is not accepted; accepted is an integer from 0")
    return int(seed)


def as_sample_weight(name: str, weight: Array | None, n: int, like: Tensor) -> Tensor:
    """Read n non-negative sample weights with a positive sum; returned in float64, summing to one.

    None means equal weights.
    """
    if weight is None:
        return torch.full((n,), 1.0 / n, dtype=torch.float64, device=like.device)
    w = weight if isinstance(weight, Tensor) else numpy_to_tensor(name, weight)
    if w.shape != (n,):
        raise ValueError(f"{name} has shape {tuple(w.shape)}; accepted is one weight per sample, shape ({n},)")
    w = w.detach().to(device=like.device, dtype=torch.float64)
    check_finite(name, w)
    if checks_values():
        if bool((w < 0).any()):
            raise ValueError(f"{name} contains the negative weight {float(w.min())!r}; accepted are weights >= 0")
        if not bool(w.max() > 0):
            raise ValueError(f"{name} is zero for every sample; at least one weight must be positive")
    w = w / w.max()
    return w / w.sum()


class Names(NamedTuple):
    """What the arguments are called in messages."""

    xs: str = "xs"
    ys: str = "ys"
    xt: str = "xt"
    yt: str = "yt"


FUNCTION_NAMES = Names()
LOSS_NAMES = Names("z_s", "y_s", "z_t", "p_t")


def read_samples(
    xs: Array, xt: Array, sample_weight_s: Array | None, sample_weight_t: Array | None, *, names: Names = FUNCTION_NAMES
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Read two samples (n, d), (m, d) and their weights (n,), (m,), each summing to one."""
    s, t = as_feature_pair(xs, xt, names=(names.xs, names.xt))
    ws = as_sample_weight("sample_weight_s", sample_weight_s, len(s), like=s)
    wt = as_sample_weight("sample_weight_t", sample_weight_t, len(t), like=t)
    return s, t, ws, wt


def constant(value: float, like: Tensor) -> Tensor:
    """A float64 scalar on the device of ``like``, made there: nothing is copied from the host."""
    return torch.full((), value, dtype=torch.float64, device=like.device)


def as_result(value: Tensor, tensor_call: bool) -> Scalar:
    """Hand a 0-d tensor back in the caller's language."""
    return value if tensor_call else float(value)


def at_least_float32(x: Tensor) -> Tensor:
    """The tensor in its own precision or float32, whichever is more."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def amplified_gradient(x: Tensor, times: float | Tensor) -> Tensor:
    """The tensor, with the gradient through it multiplied; its finite values stay to the last bit."""
    fixed = x.detach()
    return fixed + times * (x - fixed)


def full_precision(x: Array) -> AbstractContextManager[Any]:
    """Switch autocast off on the device of ``x``: distances and spectra need float32 at the least."""
    device = x.device.type if isinstance(x, Tensor) else "cpu"
    if device == "meta" or not torch.is_autocast_enabled(device):  # meta: the checks that follow say what is wrong
        return nullcontext()
    return torch.autocast(device_type=device, enabled=False)
