"""How samples pass through a network in training: batches together where that changes nothing, compiled on demand."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bures.networks import Network, NetworkOutput
from bures.networks._batchnorm import takes_samples_alone
from bures.networks._folding import fold_frozen_batchnorm

__all__ = ["Passes"]


class Passes:
    """Forward passes of training steps.

    Parameters
    ----------
    network : Network
        What is trained; it stays as it is.
    compiled : bool
        Compile the backbone on a GPU, with its frozen BatchNorm folded into the convolutions.
    """

    def __init__(self, network: Network, compiled: bool = False) -> None:
        self.network, self.compiled = network, compiled
        self._fast: Callable[[Tensor], Tensor] | None = None
        # One pass of twice the size takes half the launches. BatchNorm must not see two batches as one, and of an
        # identity nothing is saved.
        self.shares_backbone = takes_samples_alone(network.backbone)

    def one(self, x: Tensor) -> NetworkOutput:
        """Features and logits of a batch."""
        return self.network.classify(self._backbone(x))

    def each(self, *batches: Tensor) -> list[NetworkOutput]:
        """Features and logits of several batches, each as if it had passed by itself."""
        if not self.shares_backbone or len({x.shape[1:] for x in batches}) > 1:
            return [self.one(x) for x in batches]
        rows = self._backbone(torch.cat(batches))
        return [self.network.classify(part) for part in torch.split(rows, [len(x) for x in batches])]

    def _backbone(self, x: Tensor) -> Tensor:
        if not self.compiled or not _worth_compiling(x):
            rows: Tensor = self.network.backbone(x)
            return rows
        first = self._fast is None
        if self._fast is None:
            self._fast = _compile(self.network.backbone)
        try:
            return self._fast(x)
        except Exception as error:
            if not first:
                raise
            # No compiler, an unsupported GPU: what fails for another reason fails once more below.
            self.compiled = False
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            warnings.warn(f"the backbone could not be compiled and runs as it is ({reason})", stacklevel=2)
            return self._backbone(x)


def _worth_compiling(x: Tensor) -> bool:
    return x.device.type == "cuda"


def _compile(backbone: nn.Module) -> Callable[[Tensor], Tensor]:
    body = fold_frozen_batchnorm(getattr(backbone, "body", backbone))
    laid_out = any(p.is_contiguous(memory_format=torch.channels_last) for p in backbone.parameters() if p.ndim == 4)
    layout = torch.channels_last if laid_out else torch.contiguous_format
    # Batches of training have one size; a graph for any size is slower.
    compiled = torch.compile(body, dynamic=False)
    return lambda x: compiled(x.contiguous(memory_format=layout)).flatten(1)
