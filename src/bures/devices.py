"""From the name of a device to the device, or to an error that says what there is."""

from __future__ import annotations

import torch

__all__ = ["find_device"]


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
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device={name!r} cannot be used: {str(error).splitlines()[0]}; {accepted}") from error
    return device
