r"""Whether weights can have been trained on what a preprocessing gives, as their first BatchNorm tells.

A convolution of inputs of size at most :math:`B_c` in channel c gives no value beyond :math:`\sum_c B_c \|w_c\|_1`, so
that no variance of its outputs is above the square of this. Running variances that are show inputs of another scale:
those of Caffe, of 0 to 255, are a hundred times too large.
"""

from __future__ import annotations

import warnings

from torch import nn

from bures.networks._preprocessing import Preprocessing

__all__ = ["warn_of_another_scale"]

MARGIN = 2.0  # statistics and weights are of one moment, and of half precision


def warn_of_another_scale(model: nn.Module, preprocessing: Preprocessing, *, source: str, hint: str = "") -> None:
    """Warn where most variances after the first convolution are larger than the inputs of the network allow."""
    layers = [module for module in model.modules() if not any(module.children())]
    first = next((number for number, layer in enumerate(layers[:-1]) if isinstance(layer, nn.Conv2d)), None)
    if first is None:
        return
    convolution, norm = layers[first], layers[first + 1]
    if not isinstance(convolution, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d) or norm.running_var is None:
        return
    weight = convolution.weight.detach()
    channels = zip(preprocessing.mean, preprocessing.std, strict=True)
    largest = weight.new_tensor([max(mean, preprocessing.value_range - mean) / std for mean, std in channels])
    if weight.shape[1] != len(largest) or len(norm.running_var) != len(weight):
        return
    bound = (weight.abs().sum(dim=(2, 3)) @ largest).square()
    if int((norm.running_var > MARGIN * bound).sum()) > len(bound) / 2:
        warnings.warn(
            f"{source} were trained on inputs of another scale: the variances after the first convolution are larger "
            f"than images with mean={preprocessing.mean} and std={preprocessing.std} can give{hint}",
            stacklevel=4,
        )
