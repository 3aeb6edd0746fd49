"""Where the samples of a domain lie while a network works on them."""

from __future__ import annotations

from dataclasses import replace

import torch

from bures.data import Domain, TensorSamples

__all__ = ["move_samples"]


def move_samples(domain: Domain, device: torch.device) -> Domain:
    """The domain with its samples on a GPU, where they lie in memory and take at most half of what is free there."""
    if device.type != "cuda" or not isinstance(domain.samples, TensorSamples) or domain.samples.device == device:
        return domain
    free, _ = torch.cuda.mem_get_info(device)
    tensor = domain.samples.tensor
    return domain if tensor.nbytes > free / 2 else replace(domain, samples=domain.samples.to(device))
