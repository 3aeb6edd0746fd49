"""Where the samples of a domain lie while a network works on them."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch

from bures.data import Domain, TensorSamples

__all__ = ["move_samples"]

# Copies on a device, for as long as somebody uses them: training and evaluation look at the same samples.
_copies: WeakKeyDictionary[TensorSamples, WeakValueDictionary[torch.device, TensorSamples]] = WeakKeyDictionary()


def move_samples(domain: Domain, device: torch.device) -> Domain:
    """The domain with its samples on a GPU, where they lie in memory and take at most half of what is free there."""
    samples = domain.samples
    if device.type != "cuda" or not isinstance(samples, TensorSamples) or samples.device == device:
        return domain
    copies = _copies.setdefault(samples, WeakValueDictionary())
    copy = copies.get(device)
    if copy is None:
        free, _ = torch.cuda.mem_get_info(device)
        if samples.tensor.nbytes > free / 2:
            return domain
        copy = copies[device] = samples.to(device)
    return replace(domain, samples=copy)
