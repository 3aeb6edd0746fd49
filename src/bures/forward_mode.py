"""Forward derivatives, of `torch.func.jvp` and `torch.autograd.forward_ad`, for functions with a backward of their own.

`torch.compile` refuses a function that has a forward derivative, wanted or not. So a function has it under a name that
torch does not know, and gets torch's name for it only where forward mode is at work.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

__all__ = ["apply", "further_derivative_wanted", "is_forward_mode", "save"]


def is_forward_mode() -> bool:
    """Whether forward mode is at work, in which any tensor may carry a tangent; compiled code has none."""
    # torch has no public name for the question.
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def further_derivative_wanted() -> bool:
    """Whether a derivative that is computed now may be differentiated, backward or forward."""
    return torch.is_grad_enabled() or is_forward_mode()


def apply(function: type[Function], *inputs: Any) -> Any:
    """What ``function.apply`` gives, in forward mode with ``function.tangent(ctx, *tangents)`` as derivative.

    It takes a tangent for each input (None for what is no tensor), and finds in ``ctx`` what `save` has saved.
    """
    if not is_forward_mode():
        return function.apply(*inputs)
    _refuse_forward_over_forward()
    return _with_tangent(function).apply(*inputs)


def _refuse_forward_over_forward() -> None:
    """Raise where forward mode is nested: torch takes what a function's own forward derivative gives for a constant."""
    from torch._C._functorch import TransformType
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    if not torch._C._are_functorch_transforms_active():
        return
    if sum(level.key() == TransformType.Jvp for level in retrieve_all_functorch_interpreters()) > 1:
        raise RuntimeError(
            "a forward derivative of a forward derivative is not available; accepted are forward over reverse mode "
            "(torch.func.hessian, or jvp of grad) and reverse over forward mode (grad of jvp)"
        )


@cache
def _with_tangent(function: type[Function]) -> type[Function]:
    return type(f"{function.__name__}InForwardMode", (function,), {"jvp": staticmethod(function.tangent)})  # type: ignore[attr-defined]


def save(ctx: Any, *tensors: Tensor) -> None:
    """Save what the derivatives of a function take, in its ``setup_context``."""
    ctx.save_for_backward(*tensors)
    if is_forward_mode():
        ctx.save_for_forward(*tensors)
