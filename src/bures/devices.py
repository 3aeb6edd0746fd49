"""From the name of a device to the device, or to an error that says what there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from bures.wording import first_line_of

__all__ = ["cpu_by_default", "find_device", "usual_defaults"]


@contextmanager
def cpu_by_default() -> Iterator[None]:
    """Tensors that do not say where are made on the CPU for a while, whatever ``torch.set_default_device`` has set.

    Random numbers of a seed, permutations and numbers of rows are made there; what is computed says where.

    Examples
    --------
    >>> import torch
    >>> from bures.devices import cpu_by_default
    >>> with torch.device("meta"), cpu_by_default():
    ...     torch.zeros(1).device
    device(type='cpu')
    """
    # The context costs every call of torch something, and nearly always there is nothing to set. (A default that was
    # set to None again makes `torch.get_default_device` fail in torch 2.4.)
    with nullcontext() if torch.empty(0).device.type == "cpu" else torch.device("cpu"):
        yield


@contextmanager
def usual_defaults() -> Iterator[None]:
    """Torch's own defaults for a while, the CPU and float32: a network and its training do not depend on the user's."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with cpu_by_default():
            yield
    finally:
        torch.set_default_dtype(before)


def find_device(name: str = "auto") -> torch.device:
    """The device of this name; "auto" is a GPU where there is one.

    Parameters
    ----------
    name : str, optional
        "auto", "cpu", "cuda", "cuda:1" or another that torch knows.

    Examples
    --------
    >>> from bures.devices import find_device
    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    accepted = "accepted are 'auto', 'cpu' and, where there is a GPU, 'cuda' or 'cuda:N'"
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # a device that torch knows need not be there
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"device={name!r} cannot be used: {first_line_of(error)}; {accepted}") from error
    return device
