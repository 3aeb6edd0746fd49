"""torchvision's classification models without their classifier, and the ResNet-50 of Caffe.

torchvision takes as long to import as torch, so functions import it: most commands need none of its models.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from bures.networks._input_scale import warn_of_another_scale
from bures.networks._preprocessing import Preprocessing
from bures.networks._weights import StrPath, fetch, fit_weights, read_weights

__all__ = ["CAFFE_RESNET50", "caffe_resnet50", "torchvision_model", "torchvision_names"]

CAFFE_RESNET50 = "resnet50-caffe"

# In training mode these two return the output of auxiliary classifiers too, and their public weights expect another
# normalisation, which they apply themselves.
AUXILIARY = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}


def torchvision_names() -> list[str]:
    """The classification models of the installed torchvision."""
    import torchvision.models

    return list(torchvision.models.list_models(module=torchvision.models))


def torchvision_model(name: str, weights: StrPath | None, *, download: bool) -> tuple[nn.Module, int, Preprocessing]:
    """A torchvision model up to its classifier, the width of its output and its preprocessing."""
    import torchvision.models

    entries = torchvision.models.get_model_weights(name)
    entry, path = _resolve(name, weights, entries, download=download)
    options: dict[str, Any] = {}
    if name in AUXILIARY:
        options = {"aux_logits": False, "transform_input": True, "init_weights": path is None}
    elif name.startswith("vit_"):  # their position embedding fixes the size
        options = {"image_size": entry.meta["min_size"][0]}
    model = torchvision.models.get_model(name, weights=None, **options)
    classifier, out_features = remove_classifier(model)
    preset = entry.transforms()
    preprocessing = Preprocessing(tuple(preset.mean), tuple(preset.std), int(preset.crop_size[0]))
    if path is not None:
        ignore, source = (f"{classifier}.", *AUXILIARY.get(name, ())), f"weights={str(path)!r} for {name!r}"
        fit_weights(model, read_weights(path), source=source, ignore=ignore)
        hint = f"; those of Caffe are for network={CAFFE_RESNET50!r}" if name == "resnet50" else ""
        warn_of_another_scale(model, preprocessing, source=source, hint=hint)
    return model, out_features, preprocessing


def _resolve(name: str, weights: StrPath | None, entries: Any, *, download: bool) -> tuple[Any, StrPath | None]:
    """The published weights whose preprocessing applies, and the file to load."""
    default = entries.DEFAULT
    if weights is None:
        return default, None
    if isinstance(weights, str):
        entry = default if weights == "default" else entries.__members__.get(weights)
        if entry is not None:
            return entry, fetch(entry.url, download=download, argument=f"weights={weights!r} for {name!r}")
        if "." not in weights and "/" not in weights:
            listed = ", ".join(repr(choice) for choice in ("default", *(entry.name for entry in entries)))
            raise ValueError(
                f"weights={weights!r} is unknown for {name!r}; accepted are {listed} and the path of a file"
            )
    return default, weights


def remove_classifier(model: nn.Module) -> tuple[str, int]:
    """Replace the last layer, and a dropout right before it, by the identity; return its name and input width.

    Layers before it stay: AlexNet and VGG keep fc6 and fc7. In SqueezeNet the last layer is a convolution.
    """
    leaves = [(name, part) for name, part in model.named_modules() if not any(True for _ in part.children())]
    position = max(i for i, (_, part) in enumerate(leaves) if isinstance(part, nn.Linear | nn.Conv2d))
    name, layer = leaves[position]
    width = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    removed = [name]
    if position and isinstance(leaves[position - 1][1], nn.Dropout):
        removed.append(leaves[position - 1][0])
    for path in removed:
        parent, _, child = path.rpartition(".")
        setattr(model.get_submodule(parent), child, nn.Identity())
    assert isinstance(width, int)
    return name, width


def caffe_resnet50(weights: StrPath | None) -> tuple[nn.Module, int, Preprocessing]:
    """The first ResNet-50 (MSRA, Caffe) with the weights of a local file, if any.

    torchvision's is version 1.5; in the first, blocks that halve the image do so in their first convolution. Its
    BatchNorm has eps 1e-3, and its images are BGR in 0 to 255 minus the mean of ImageNet.
    """
    from torchvision.models import resnet50

    if weights == "default":
        raise ValueError(
            f"weights='default' is unknown for {CAFFE_RESNET50!r}, which has no public download; accepted is the path "
            "of a local file with torchvision's names, or weights=None"
        )
    model = resnet50(weights=None, norm_layer=partial(nn.BatchNorm2d, eps=1e-3))
    for stage in (model.layer2, model.layer3, model.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    classifier, out_features = remove_classifier(model)
    if weights is not None:
        source = f"weights={str(weights)!r} for {CAFFE_RESNET50!r}"
        fit_weights(model, read_weights(weights), source=source, ignore=(f"{classifier}.",))
    mean = (103.939, 116.779, 123.68)
    return model, out_features, Preprocessing(mean, (1.0, 1.0, 1.0), 224, channel_order="BGR", value_range=255.0)
