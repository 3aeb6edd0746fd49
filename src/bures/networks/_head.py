"""Heads: from the features of a backbone to those on which the alignment acts, and to logits."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from bures.arrays import check_count
from bures.networks._checks import check_batch_size

__all__ = ["BottleneckHead", "LinearHead", "NetworkOutput"]


class NetworkOutput(NamedTuple):
    """What a head, and a network, returns.

    Attributes
    ----------
    features : Tensor (n, d)
        z, on which the alignment acts.
    logits : Tensor (n, K)
        Unnormalised scores of the classes.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import LinearHead
    >>> features, logits = LinearHead(8, 3)(torch.zeros(5, 8))
    >>> features.shape, logits.shape
    (torch.Size([5, 8]), torch.Size([5, 3]))
    """

    features: Tensor
    logits: Tensor


class BottleneckHead(nn.Module):
    """The paper's head: FC 1024, LeakyReLU 0.2, BatchNorm; FC 512, tanh, BatchNorm; linear to the classes.

    Parameters
    ----------
    in_features : int
        Width of the backbone's output.
    n_classes : int
        K, at least 2.
    hidden : int, optional
        Width of the first layer.
    features : int, optional
        Width of the second layer: d of the features on which CKB acts, taken after its BatchNorm.

    Notes
    -----
    ``forward(x)`` with x (n, in_features) gives ``NetworkOutput(features (n, d), logits (n, K))``. A batch of one
    sample in training mode is an error: BatchNorm cannot estimate its variance.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import BottleneckHead
    >>> output = BottleneckHead(2048, 65)(torch.zeros(4, 2048))
    >>> output.features.shape, output.logits.shape
    (torch.Size([4, 512]), torch.Size([4, 65]))
    """

    def __init__(self, in_features: int, n_classes: int, *, hidden: int = 1024, features: int = 512) -> None:
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.n_classes = check_count("n_classes", n_classes, minimum=2)
        self.out_features = check_count("features", features)
        hidden = check_count("hidden", hidden)
        self.bottleneck = nn.Sequential(
            nn.Linear(self.in_features, hidden),
            nn.LeakyReLU(0.2),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, self.out_features),
            nn.Tanh(),
            nn.BatchNorm1d(self.out_features),
        )
        self.classifier = nn.Linear(self.out_features, self.n_classes)

    def forward(self, x: Tensor) -> NetworkOutput:
        """Features and logits of a batch (n, in_features)."""
        check_batch_size(self, x.shape[0])  # len(x) would fix the size of the batch in an exported graph
        z = self.bottleneck(x)
        return NetworkOutput(z, self.classifier(z))


class LinearHead(nn.Module):
    """A linear classifier; the alignment acts on the features of the backbone as they are.

    Parameters
    ----------
    in_features : int
        Width of the backbone's output.
    n_classes : int
        K, at least 2.

    Notes
    -----
    ``forward(x)`` with x (n, in_features) gives ``NetworkOutput(x, logits (n, K))``.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import LinearHead
    >>> x = torch.zeros(4, 500)
    >>> output = LinearHead(500, 10)(x)
    >>> output.features is x, output.logits.shape
    (True, torch.Size([4, 10]))
    """

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__()
        self.in_features = self.out_features = check_count("in_features", in_features)
        self.n_classes = check_count("n_classes", n_classes, minimum=2)
        self.classifier = nn.Linear(self.in_features, self.n_classes)

    def forward(self, x: Tensor) -> NetworkOutput:
        """Features and logits of a batch (n, in_features)."""
        return NetworkOutput(x, self.classifier(x))
