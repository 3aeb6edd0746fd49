"""Stages of backbones that are built like a ResNet, the first of which can keep their weights."""

from __future__ import annotations

from itertools import count, takewhile

from torch import nn

__all__ = ["freeze_stages"]


def freeze_stages(backbone: nn.Module, frozen_stages: int) -> nn.Module:
    """Exclude the stem and the first stages of a ResNet from training.

    Parameters
    ----------
    backbone : Backbone, or a model with the parts ``layer1``, ``layer2``, ...
        ResNets of torchvision and timm, their relatives (ResNeXt, Wide ResNet, SE-ResNet, ...), and "resnet50-caffe".
        Changed in place: the parameters of these parts require no gradient any more, so that a backward pass ends
        behind them and keeps nothing of them.
    frozen_stages : int
        1 is the stem (all that comes before ``layer1``) and ``layer1``, 2 is ``layer2`` too, and so on; 0 changes
        nothing.

    Returns
    -------
    nn.Module
        ``backbone``.

    Notes
    -----
    Weight and bias of BatchNorm are parameters like others. Its running statistics are not: they follow the batches
    unless `freeze_batchnorm` holds them.

    Examples
    --------
    >>> from bures.networks import backbone, freeze_stages
    >>> resnet = freeze_stages(backbone("resnet18"), 2).body
    >>> [next(part.parameters()).requires_grad for part in (resnet.conv1, resnet.layer2, resnet.layer3)]
    [False, False, True]
    """
    if isinstance(frozen_stages, bool) or not isinstance(frozen_stages, int) or frozen_stages < 0:
        raise ValueError(f"frozen_stages={frozen_stages!r} is out of range; accepted is 0, or a number of stages")
    if frozen_stages == 0:
        return backbone
    parts = dict(getattr(backbone, "body", backbone).named_children())
    stages = list(takewhile(parts.__contains__, (f"layer{number}" for number in count(1))))
    called = getattr(backbone, "name", type(backbone).__name__)
    if len(stages) < 2:
        raise ValueError(
            f"frozen_stages={frozen_stages}: {called!r} has no stages layer1, layer2, ... as ResNets have; accepted "
            "is 0"
        )
    if frozen_stages > len(stages):
        raise ValueError(
            f"frozen_stages={frozen_stages} is out of range; {called!r} has {len(stages)} stages: accepted is 0 to "
            f"{len(stages)}"
        )
    names = list(parts)
    stem = names[: names.index("layer1")]
    for name in [*stem, *stages[:frozen_stages]]:
        parts[name].requires_grad_(False)
    return backbone
