"""A network: a backbone and a head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bures.arrays import at_least_float32, check_positive
from bures.networks._head import NetworkOutput
from bures.networks._modes import evaluation_mode
from bures.networks._preprocessing import Preprocessing

__all__ = ["Network"]


class Network(nn.Module):
    """A backbone and a head: from samples to features and logits.

    Parameters
    ----------
    backbone : nn.Module
        Maps a batch of samples to a matrix (n, p); `bures.networks.backbone` makes one.
    head : nn.Module
        Maps (n, p) to features (n, d) and logits (n, K), such as `BottleneckHead` or `LinearHead`.

    Notes
    -----
    ``forward(x)`` gives ``NetworkOutput(features, logits)``. Images go through `preprocessing` first.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import LeNet, LinearHead, Network
    >>> network = Network(LeNet(), LinearHead(500, 10))
    >>> output = network(torch.zeros(2, 1, 28, 28))
    >>> output.features.shape, output.logits.shape
    (torch.Size([2, 500]), torch.Size([2, 10]))
    """

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        for name, module in (("backbone", backbone), ("head", head)):
            if not isinstance(module, nn.Module):
                raise TypeError(f"{name} is a {type(module).__name__}; accepted is an nn.Module")
        width, expected = getattr(backbone, "out_features", None), getattr(head, "in_features", None)
        if isinstance(width, int) and isinstance(expected, int) and width != expected:
            raise ValueError(f"backbone gives {width} features but head takes {expected}; build the head for {width}")
        self.backbone = backbone
        self.head = head

    @property
    def preprocessing(self) -> Preprocessing | None:
        """What the backbone wants done to uint8 images, or None where it takes feature vectors."""
        return getattr(self.backbone, "preprocessing", None)

    def forward(self, x: Tensor) -> NetworkOutput:
        """Features (n, d) and logits (n, K) of a batch."""
        return self.classify(self.backbone(x))

    def classify(self, rows: Tensor) -> NetworkOutput:
        """Features (n, d) and logits (n, K) of a batch that has passed the backbone, as a matrix (n, p)."""
        output = self.head(rows)
        if not (isinstance(output, tuple) and len(output) == 2):
            raise TypeError(
                f"head returned a {type(output).__name__}; accepted is a pair of features and logits, as from "
                "BottleneckHead and LinearHead"
            )
        return NetworkOutput(*output)

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> Tensor:
        """Class probabilities (n, K) of a batch, in evaluation mode and without gradients.

        Each part of the network is left in the mode it was in. Half precisions give float32.
        """
        with evaluation_mode(self):
            logits: Tensor = self(x).logits
        return at_least_float32(logits).softmax(dim=1)

    def parameter_groups(
        self, lr: float, backbone_factor: float = 1.0, head_factor: float = 1.0
    ) -> list[dict[str, Any]]:
        """Parameter groups for an optimiser, with a learning rate for the backbone and one for the head.

        Parameters
        ----------
        lr : float
            The base learning rate.
        backbone_factor, head_factor : float, optional
            The rates are ``lr * backbone_factor`` and ``lr * head_factor``.

        Returns
        -------
        list of dict
            Keys "params", "lr" and "name" ("backbone" or "head"). Parameters that require no gradient are left out,
            and with them a part that has no others.

        Examples
        --------
        >>> import torch
        >>> from bures.networks import build_network
        >>> network = build_network("lenet", 10)
        >>> optimiser = torch.optim.SGD(network.parameter_groups(1e-3, head_factor=10))
        >>> [(group["name"], group["lr"]) for group in optimiser.param_groups]
        [('backbone', 0.001), ('head', 0.01)]
        """
        lr = check_positive("lr", lr)
        remedy = "; to freeze a part, call its requires_grad_(False)"
        factors = {
            "backbone": check_positive("backbone_factor", backbone_factor, alternatives=remedy),
            "head": check_positive("head_factor", head_factor, alternatives=remedy),
        }
        groups = []
        for name, factor in factors.items():
            parameters = [p for p in getattr(self, name).parameters() if p.requires_grad]
            if parameters:
                groups.append({"params": parameters, "lr": lr * factor, "name": name})
        return groups
