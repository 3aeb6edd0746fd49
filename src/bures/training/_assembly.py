"""From a recipe and the shape of the samples to a network and what is done to its inputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from bures.data import ImageFiles, TensorSamples
from bures.data._samples import Samples
from bures.networks import Network, build_network, freeze_batchnorm, freeze_stages
from bures.networks._modes import evaluation_mode
from bures.training._augment import AUGMENTATIONS
from bures.training._inputs import Inputs
from bures.training._recipe import Recipe
from bures.training._sizes import network_for, stored_side
from bures.wording import reason_of

__all__ = ["NetworkSpec", "assemble", "fit_samples", "start_network"]

COLOURS = 3  # channels of photographs


@dataclass(frozen=True)
class NetworkSpec:
    """All that is needed to build a network anew: its weights lie in a file beside it.

    Parameters
    ----------
    name : str
        The backbone.
    n_classes : int
    head : {"bottleneck", "linear"}
    hidden, features : int
        Widths of the head.
    in_channels : int or None
        Of the images, for LeNet.
    in_features : int or None
        Of feature vectors.
    image_size, stored_size : int or None
        Side of the window that the network sees, and that to which images are warped when they are read; None for
        feature vectors.
    norm : str or None
        Normalisation of LeNet.
    backbone_batchnorm : str, optional
        "frozen" where BatchNorm of the backbone keeps its statistics, whatever becomes of those of the head.
    """

    name: str
    n_classes: int
    head: str
    hidden: int
    features: int
    in_channels: int | None
    in_features: int | None
    image_size: int | None
    stored_size: int | None
    norm: str | None
    backbone_batchnorm: str = "training"

    def build(
        self, *, weights: str | None = None, download: bool = False, seed: int | None = None
    ) -> tuple[Network, Inputs]:
        """The network, and what is done to its inputs at evaluation."""
        network = build_network(
            self.name,
            self.n_classes,
            weights=weights,
            download=download,
            head=self.head,
            hidden=self.hidden,
            features=self.features,
            in_channels=self.in_channels,
            in_features=self.in_features,
            image_size=self.image_size if self.name == "lenet" else None,
            norm=self.norm,
            seed=seed,
        )
        if self.backbone_batchnorm == "frozen":
            freeze_batchnorm(network.backbone)
        return network, Inputs(network.preprocessing, self.image_size)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)


def assemble(recipe: Recipe, n_classes: int, *shapes: tuple[int, ...]) -> tuple[NetworkSpec, Network, Inputs]:
    """The network of a recipe for samples of given shapes.

    Parameters
    ----------
    recipe : Recipe
        Network, head, weights, image sizes and seed are read.
    n_classes : int
        K, at least 2.
    *shapes : tuple of int
        (d,) or (C, H, W), of the samples of each domain.

    Returns
    -------
    NetworkSpec, Network, Inputs
        How the network is built, the network in training mode, and what is done to its inputs.

    Examples
    --------
    >>> from bures.training import Recipe, assemble
    >>> spec, network, inputs = assemble(Recipe(hidden=32, features=16), 3, (5,), (5,))
    >>> spec.name, network.head.out_features
    ('identity', 16)
    """
    if n_classes < 2:
        raise ValueError(f"the source has {n_classes} class; a classifier needs at least two")
    spec = _features_spec(recipe, n_classes, *shapes) if len(shapes[0]) == 1 else None
    if spec is None:
        spec = _images_spec(recipe, n_classes, *shapes)
    spec = replace(spec, backbone_batchnorm=recipe.backbone_batchnorm)
    network, inputs = start_network(spec, recipe)
    freeze_stages(network.backbone, recipe.frozen_stages)
    if inputs.preprocessing is not None:
        for field, side in (("image_size", spec.image_size), ("training_size", recipe.training_size)):
            if side not in (None, inputs.preprocessing.input_size):
                _check_side(network, spec.name, field, side)
    second = None if recipe.second_view is None else AUGMENTATIONS[recipe.second_view]
    first, size = AUGMENTATIONS[recipe.augment], recipe.training_size
    return spec, network, replace(inputs, augmentation=first, training_size=size, second_view=second)


def start_network(spec: NetworkSpec, recipe: Recipe) -> tuple[Network, Inputs]:
    """The network as it is before the first step of a recipe, and what is done to its inputs at evaluation."""
    weights = None if spec.name == "identity" else recipe.weights
    return spec.build(weights=weights, download=recipe.download_weights, seed=recipe.seed)


def fit_samples(samples: Samples, spec: NetworkSpec) -> Samples:
    """The samples as they are stored for a network: images warped to its size; an error where they do not fit."""
    if spec.stored_size is None:
        if len(samples.shape) != 1:
            raise ValueError(
                f"the network takes vectors of {spec.in_features} features but the samples are images of shape "
                f"{samples.shape}; extract their features as those of training were"
            )
        if samples.shape != (spec.in_features,):
            raise ValueError(
                f"the network takes vectors of {spec.in_features} features but the samples have {samples.shape[0]}; "
                "features must come from the extractor of training"
            )
        return samples
    if len(samples.shape) != 3:
        raise ValueError(
            f"the network takes images but the samples are vectors of {samples.shape[0]} features; accepted are image "
            "folders, and files with images in uint8 (n, C, H, W)"
        )
    if isinstance(samples, ImageFiles):
        return ImageFiles(samples.paths, spec.stored_size)
    assert isinstance(samples, TensorSamples)
    return samples.resize(spec.stored_size)


def _features_spec(recipe: Recipe, n_classes: int, *shapes: tuple[int, ...]) -> NetworkSpec:
    for shape in shapes:
        if shape != shapes[0]:
            raise ValueError(
                f"source and target have samples of shapes {shapes[0]} and {shape}; "
                "features of both domains must come from the same extractor"
            )
    if recipe.consistency > 0:
        raise ValueError(
            f"consistency={recipe.consistency!r} compares two random changes of an image but the samples are feature "
            "vectors; accepted for them is 0"
        )
    if recipe.network not in ("auto", "identity"):
        raise ValueError(
            f"network={recipe.network!r} takes images but the samples are feature vectors of length {shapes[0][0]}; "
            "accepted are 'identity' and 'auto'"
        )
    return NetworkSpec(
        "identity", n_classes, recipe.head, recipe.hidden, recipe.features, None, shapes[0][0], None, None, None
    )


def _images_spec(recipe: Recipe, n_classes: int, *shapes: tuple[int, ...]) -> NetworkSpec:
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError(
            f"source and target have samples of shapes {shapes[0]} and {shapes[1]}; accepted are images in both "
            "domains or feature vectors in both"
        )
    if recipe.network == "identity":
        raise ValueError("network='identity' takes feature vectors but the samples are images; try 'auto'")
    side, channels = max(shape[-1] for shape in shapes), max(shape[0] for shape in shapes)
    name = network_for(recipe.network, recipe.image_size or side)
    small = name == "lenet"
    taken = channels if small else COLOURS
    for domain, (found, _, _) in zip(("source", "target"), shapes, strict=False):
        if found not in (1, taken):
            raise ValueError(
                f"the {domain} has images of {found} channels but network={name!r} takes {taken}, or 1 that is repeated"
            )
    image_size = recipe.image_size or (side if small else _input_size(name))
    stored_size = recipe.stored_size or stored_side(name, image_size)
    if stored_size < image_size:
        raise ValueError(
            f"stored_size={stored_size} is smaller than the {image_size} pixels the network sees; "
            f"accepted is {image_size} or more"
        )
    if small and recipe.training_size not in (None, image_size):
        raise ValueError(
            f"training_size={recipe.training_size} differs from the {image_size} pixels for which LeNet is built; "
            "leave it out"
        )
    norm = recipe.norm if small else None
    in_channels = channels if small else None
    return NetworkSpec(
        name, n_classes, recipe.head, recipe.hidden, recipe.features, in_channels, None, image_size, stored_size, norm
    )


def _check_side(network: Network, name: str, field: str, side: int) -> None:
    """Raise where a backbone cannot take images of a side: position embeddings, kernels larger than the image."""
    preprocessing = network.preprocessing
    assert preprocessing is not None
    try:
        with evaluation_mode(network.backbone), torch.no_grad():
            network.backbone(torch.zeros(1, preprocessing.channels, side, side))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ValueError(
            f"network={name!r} fails on images of {side} x {side} pixels ({field}={side}): {reason_of(error)}; it was "
            f"made for image_size={preprocessing.input_size}"
        ) from error


def _input_size(name: str) -> int:
    preprocessing = build_network(name, 2).preprocessing
    assert preprocessing is not None
    return preprocessing.input_size
