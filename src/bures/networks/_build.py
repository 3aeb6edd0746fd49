"""A whole network from a few names."""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import nn

from bures.arrays import check_choice, check_flags
from bures.networks._backbones import backbone
from bures.networks._head import BottleneckHead, LinearHead
from bures.networks._network import Network
from bures.networks._weights import StrPath

__all__ = ["HEADS", "build_network"]

HEADS = ("bottleneck", "linear")


def build_network(
    name: str,
    n_classes: int,
    *,
    weights: StrPath | None = None,
    download: bool = False,
    head: str = "bottleneck",
    hidden: int = 1024,
    features: int = 512,
    in_channels: int | None = None,
    in_features: int | None = None,
    image_size: int | None = None,
    norm: str | None = None,
    seed: int | None = None,
) -> Network:
    """A backbone by name with a new head.

    Parameters
    ----------
    name : str
        The backbone, see `backbone`.
    n_classes : int
        K, at least 2.
    weights, download, in_channels, in_features, image_size, norm
        Of the backbone, see `backbone`.
    head : {"bottleneck", "linear"}, optional
        The paper's head (`BottleneckHead`) or a linear classifier on the backbone's features (`LinearHead`).
    hidden, features : int, optional
        Widths of the bottleneck.
    seed : int, optional
        Seed of the random weights; torch's generator is left as it was. Without it, torch's generator is used.

    Returns
    -------
    Network
        In training mode.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import build_network
    >>> network = build_network("identity", 65, in_features=2048, seed=0)
    >>> network(torch.zeros(4, 2048)).features.shape
    torch.Size([4, 512])
    >>> network.predict_proba(torch.zeros(1, 2048)).shape
    torch.Size([1, 65])
    """
    check_flags(download=download)
    check_choice("head", head, HEADS)
    with ExitStack() as stack:
        if seed is not None:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed the GPUs too
        body = backbone(
            name,
            weights=weights,
            download=download,
            in_channels=in_channels,
            in_features=in_features,
            image_size=image_size,
            norm=norm,
        )
        top: nn.Module
        if head == "bottleneck":
            top = BottleneckHead(body.out_features, n_classes, hidden=hidden, features=features)
        else:
            top = LinearHead(body.out_features, n_classes)
        return Network(body, top)
