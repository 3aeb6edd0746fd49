"""Which network "auto" stands for, and to which side images are warped when they are read."""

from __future__ import annotations

from bures.data._diagnosis import SMALL_IMAGE
from bures.data._extraction import CROPPED, WARPED

__all__ = ["network_for", "stored_side"]


def network_for(network: str, side: int) -> str:
    """The name of a network, chosen by the side of the images where it is "auto"."""
    if network != "auto":
        return network
    return "lenet" if side <= SMALL_IMAGE else "resnet50"


def stored_side(network: str, image_size: int) -> int:
    """The side of stored images: of photographs the network sees a window, of digits the whole."""
    return image_size if network == "lenet" else round(image_size * WARPED / CROPPED)
