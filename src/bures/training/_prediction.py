"""Predictions for all samples of a domain, in batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bures.arrays import check_count
from bures.data import ImageFiles, TensorSamples
from bures.data._decoding import Progress
from bures.data._samples import Samples
from bures.networks import Network, adapt_batchnorm
from bures.networks._batchnorm import adaptable_layers, takes_samples_alone
from bures.networks._modes import evaluation_mode
from bures.training._inputs import Inputs
from bures.training._loading import end_with_parent

__all__ = [
    "Predictions",
    "backbone_rows",
    "can_adapt_batchnorm",
    "is_backbone_fixed",
    "predict_samples",
    "usual_batch_size",
    "with_target_statistics",
]

BATCH = 512  # samples at once at most
NUMBERS = 2**24  # of a batch at most: 111 photographs of 224 pixels, whose first images take half a gigabyte


class Predictions(NamedTuple):
    """What a network makes of n samples, in float32 in the memory of the host.

    Attributes
    ----------
    features : Tensor (n, d)
    probabilities : Tensor (n, K)
        Of the classes.
    """

    features: Tensor
    probabilities: Tensor


@torch.no_grad()
def predict_samples(
    network: Network,
    samples: Samples,
    inputs: Inputs,
    *,
    batch_size: int | None = None,
    n_workers: int = 0,
    progress: Progress | None = None,
) -> Predictions:
    """Features and probabilities of all samples, in evaluation mode.

    Parameters
    ----------
    network : Network
        Each part of it is left in the mode it was in.
    samples : TensorSamples or ImageFiles
        The samples.
    inputs : Inputs
        What is done to them before the network sees them.
    batch_size : int, optional
        Samples forwarded at once; None is 512, and fewer of large images.
    n_workers : int, optional
        Processes that decode image files; 0 leaves it to threads of this one.
    progress : callable, optional
        Called as ``progress(done, total)`` after each batch.

    Returns
    -------
    Predictions
        In the order of the samples.
    """
    parts: list[tuple[Tensor, Tensor]] = []
    with evaluation_mode(network):
        for x in _prepared(network, samples, inputs, batch_size, n_workers, progress):
            z, logits = network(x)
            parts.append((z.float(), logits.float().softmax(dim=1)))
    features, probabilities = zip(*parts, strict=True)
    return Predictions(torch.cat(features).cpu(), torch.cat(probabilities).cpu())


def is_backbone_fixed(network: Network) -> bool:
    """Whether the backbone gives the same for a sample whatever its domain, in float32, which samples are kept in."""
    return takes_samples_alone(network.backbone) and _dtype(network.backbone) == torch.float32


@torch.no_grad()
def backbone_rows(
    network: Network,
    samples: Samples,
    inputs: Inputs,
    *,
    batch_size: int | None = None,
    n_workers: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """What the backbone makes of all samples, (n, p), on its device and in evaluation mode."""
    with evaluation_mode(network):
        stream = _prepared(network, samples, inputs, batch_size, n_workers, progress)
        return torch.cat([network.backbone(x).float() for x in stream])


def _prepared(
    network: Network,
    samples: Samples,
    inputs: Inputs,
    batch_size: int | None,
    n_workers: int,
    progress: Progress | None,
) -> Iterator[Tensor]:
    """All samples in batches as the network takes them at evaluation; progress counts those that have passed."""
    done = 0
    for x in batches(samples, _device(network), batch_size, n_workers):
        yield inputs.evaluation(x).to(_dtype(network))
        done += len(x)
        if progress is not None:
            progress(done, len(samples))


def can_adapt_batchnorm(network: nn.Module) -> bool:
    """Whether a network has BatchNorm whose statistics can be estimated anew."""
    return bool(adaptable_layers(network))


def with_target_statistics(
    network: Network, samples: Samples, inputs: Inputs, *, batch_size: int | None = None, n_workers: int = 0
) -> Network:
    """A copy of the network whose BatchNorm statistics are those of the samples (AdaBN)."""
    adapted = copy.deepcopy(network)
    # A last batch of one sample has no variance; it joins the one before.
    stream = batches(samples, _device(network), batch_size, n_workers, join_last=True)
    adapt_batchnorm(adapted, (inputs.evaluation(x).to(_dtype(network)) for x in stream))
    return adapted


class _Chunks(Dataset[Tensor]):
    def __init__(self, samples: Samples, chunks: list[Tensor]) -> None:
        self.samples, self.chunks = samples, chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, number: int) -> Tensor:
        return self.samples.take(self.chunks[number])


def batches(
    samples: Samples, device: torch.device, batch_size: int | None, n_workers: int = 0, *, join_last: bool = False
) -> Iterator[Tensor]:
    """All samples in order, in batches on the device."""
    size = usual_batch_size(samples) if batch_size is None else check_count("batch_size", batch_size)
    chunks = list(torch.split(torch.arange(len(samples)), min(size, max(len(samples), 1))))
    if join_last and len(chunks) > 1 and len(chunks[-1]) == 1:
        chunks[-2:] = [torch.cat(chunks[-2:])]
    for x in _taken(samples, chunks, n_workers):
        # A copy to the host that does not block would be read before it is complete.
        yield x.to(device, non_blocking=device.type == "cuda")


def _taken(samples: Samples, chunks: list[Tensor], n_workers: int) -> Iterable[Tensor]:
    """The samples of each chunk; those in files are decoded ahead, by threads of this process or by others."""
    if isinstance(samples, ImageFiles) and n_workers == 0:
        return samples.take_each(chunks)
    workers = 0 if isinstance(samples, TensorSamples) else n_workers
    return DataLoader(_Chunks(samples, chunks), batch_size=None, num_workers=workers, worker_init_fn=end_with_parent)


def usual_batch_size(samples: Samples) -> int:
    """How many samples are forwarded at once where nobody says: fewer of large images."""
    return min(BATCH, max(NUMBERS // max(math.prod(samples.shape), 1), 2))


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def _dtype(network: nn.Module) -> torch.dtype:
    return next(network.parameters()).dtype
