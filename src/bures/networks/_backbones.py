"""Backbones by name: LeNet, the identity, torchvision's and timm's models."""

from __future__ import annotations

import difflib
from typing import Any

from torch import Tensor, nn

from bures.arrays import check_count, check_flags, describe
from bures.networks._lenet import LeNet
from bures.networks._preprocessing import Preprocessing
from bures.networks._timm import timm_model
from bures.networks._torchvision import CAFFE_RESNET50, caffe_resnet50, torchvision_model, torchvision_names
from bures.networks._weights import StrPath, fit_weights, read_weights

__all__ = ["Backbone", "backbone", "backbone_names"]

TIMM = "timm:"


class Backbone(nn.Module):
    """A model that maps samples to a matrix of features, with what a caller needs to know about it.

    Parameters
    ----------
    name : str
        How the model is called in messages.
    body : nn.Module
        The model.
    out_features : int
        Width of its output.
    preprocessing : Preprocessing or None
        What it wants done to images; None if it takes feature vectors.

    Notes
    -----
    ``forward(x)`` with preprocessed images (n, C, H, W), or features (n, out_features) where preprocessing is None,
    gives (n, out_features).

    Examples
    --------
    >>> from bures.networks import backbone
    >>> resnet = backbone("resnet18")
    >>> resnet.out_features, resnet.preprocessing.input_size
    (512, 224)
    """

    def __init__(self, name: str, body: nn.Module, out_features: int, preprocessing: Preprocessing | None) -> None:
        super().__init__()
        self.name = name
        self.body = body
        self.out_features = check_count("out_features", out_features)
        self.preprocessing = preprocessing

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, out_features) of a batch."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x is a {describe(x)}; accepted is a torch tensor")
        if self.preprocessing is None:
            if x.ndim != 2 or x.shape[1] != self.out_features:
                raise ValueError(f"x has shape {tuple(x.shape)}; accepted are features (n, {self.out_features})")
        elif x.ndim != 4 or x.shape[1] != self.preprocessing.channels:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; {self.name!r} takes images (n, {self.preprocessing.channels}, H, W) "
                "that went through its preprocessing, which repeats a grey channel where needed"
            )
        if not x.is_floating_point():
            remedy = "convert it" if self.preprocessing is None else "apply the backbone's preprocessing first"
            raise TypeError(f"x has dtype {x.dtype}; accepted is floating point: {remedy}")
        features: Tensor = self.body(x)
        return features.flatten(1)

    def extra_repr(self) -> str:
        """Name and width, for ``repr``."""
        return f"{self.name!r}, out_features={self.out_features}"


def backbone(
    name: str,
    *,
    weights: StrPath | None = None,
    download: bool = False,
    in_channels: int | None = None,
    in_features: int | None = None,
    image_size: int | None = None,
    norm: str | None = None,
) -> Backbone:
    """A backbone by name, without a classifier.

    Parameters
    ----------
    name : str
        - "lenet": the digits backbone, see `LeNet`;
        - "identity": feature vectors as they are;
        - "resnet50-caffe": the first ResNet-50 (MSRA, Caffe), with its own preprocessing;
        - a classification model of torchvision ("resnet50", "alexnet", "vit_b_16", ...; `backbone_names` lists them).
          AlexNet and VGG keep fc6 and fc7. A dropout right before the removed classifier goes with it;
        - "timm:NAME": a model of timm, with the extra ``bures[timm]``.
    weights : str or path, optional
        None for random weights; the path of a local file (see `read_weights`), which must
        fit in every name and shape but for the classifier; "default" or a name such as "IMAGENET1K_V1" for
        torchvision's own.
    download : bool, optional
        Whether weights asked for by name may be downloaded where torch hub's folder lacks them.
    in_channels : int, optional
        Channels of the images. LeNet is built for them (1 by default); models for photographs take 3, and 1 is
        accepted because their preprocessing repeats it.
    in_features : int, optional
        Width of the feature vectors, for "identity".
    image_size : int, optional
        Side of the images, for "lenet" (28 by default).
    norm : {"batch", "group", "none"}, optional
        For "lenet" ("batch" by default).

    Returns
    -------
    Backbone
        With ``out_features`` and ``preprocessing``.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import backbone
    >>> lenet = backbone("lenet", image_size=16)
    >>> images = torch.zeros(2, 1, 16, 16, dtype=torch.uint8)
    >>> lenet(lenet.preprocessing(images)).shape
    torch.Size([2, 500])
    """
    check_flags(download=download)
    if not isinstance(name, str):
        raise TypeError(f"name is a {describe(name)}; accepted is a string such as 'lenet' or 'resnet50'")
    for option, value, owner in (
        ("in_features", in_features, "identity"),
        ("image_size", image_size, "lenet"),
        ("norm", norm, "lenet"),
    ):
        if value is not None and name != owner:
            raise ValueError(f"{option}={value!r} is an option of {owner!r}; {name!r} does not take it")
    if name == "lenet":
        given = {"in_channels": in_channels, "image_size": image_size, "norm": norm}
        return _lenet(weights, {option: value for option, value in given.items() if value is not None})
    if name == "identity":
        return _identity(weights, in_channels, in_features)
    if in_channels not in (None, 1, 3):
        raise ValueError(f"in_channels={in_channels!r} is out of range; {name!r} accepts 3, or 1 that is repeated")
    if name == CAFFE_RESNET50:
        return Backbone(name, *caffe_resnet50(weights))
    if name.startswith(TIMM):
        return Backbone(name, *timm_model(name.removeprefix(TIMM), weights, download=download))
    _check_name(name)
    return Backbone(name, *torchvision_model(name, weights, download=download))


def backbone_names() -> list[str]:
    """Names that `backbone` accepts, besides "timm:NAME".

    Examples
    --------
    >>> from bures.networks import backbone_names
    >>> {"lenet", "identity", "resnet50", "resnet50-caffe", "alexnet"} <= set(backbone_names())
    True
    """
    return ["lenet", "identity", CAFFE_RESNET50, *torchvision_names()]


def _check_name(name: str) -> None:
    names = backbone_names()
    if name in names:
        return
    close = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise ValueError(
        f"name={name!r} is unknown; {hint}accepted are 'lenet', 'identity', {CAFFE_RESNET50!r}, torchvision's "
        f"classification models ({len(torchvision_names())}, such as 'resnet50' and 'alexnet') and 'timm:NAME'"
    )


def _lenet(weights: StrPath | None, options: dict[str, Any]) -> Backbone:
    body = LeNet(**options)
    if weights == "default":
        raise ValueError("weights='default' is unknown for 'lenet'; accepted is the path of a local file, or None")
    if weights is not None:
        fit_weights(body, read_weights(weights), source=f"weights={str(weights)!r} for 'lenet'")
    half = (0.5,) * body.in_channels
    return Backbone("lenet", body, body.out_features, Preprocessing(half, half, body.image_size))


def _identity(weights: StrPath | None, in_channels: int | None, in_features: int | None) -> Backbone:
    if weights is not None:
        raise ValueError(f"weights={str(weights)!r} is given, but 'identity' has none; accepted is None")
    if in_channels is not None:
        raise ValueError(f"in_channels={in_channels!r} is an option of image backbones; 'identity' does not take it")
    if in_features is None:
        raise ValueError("in_features is None; 'identity' needs the width of the feature vectors")
    return Backbone("identity", nn.Identity(), check_count("in_features", in_features), None)
