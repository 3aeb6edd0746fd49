"""Random changes of training images, made for a whole batch on its device with one resampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["AUGMENTATIONS", "Augmentation", "centre_crop"]


@dataclass(frozen=True)
class Augmentation:
    """How an image is changed at random before a training step.

    Parameters
    ----------
    flip : bool, optional
        Mirror every other image.
    shift_window : bool, optional
        Cut the window at a random place instead of the centre, where images are larger than the network's input.
    area : tuple of float, optional
        Share of the picture's area that a window covers, from and to; None takes a window of the network's input.
    aspect : float, optional
        Largest ratio of the window's sides.
    rotation : float, optional
        Largest angle, in degrees.
    scale : float, optional
        Largest factor of enlargement or reduction.
    translation : float, optional
        Largest shift as a share of the side.
    colour : float, optional
        Brightness, contrast and saturation are each multiplied by a factor up to this far from 1.
    grey : float, optional
        Share of the images that lose their colours.

    Examples
    --------
    >>> import torch
    >>> from bures.training import AUGMENTATIONS
    >>> images = torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8)
    >>> changed = AUGMENTATIONS["crop"](images, 56, torch.Generator().manual_seed(0))
    >>> changed.shape, changed.dtype
    (torch.Size([4, 3, 56, 56]), torch.float32)
    """

    flip: bool = False
    shift_window: bool = False
    area: tuple[float, float] | None = None
    aspect: float = 1.0
    rotation: float = 0.0
    scale: float = 1.0
    translation: float = 0.0
    colour: float = 0.0
    grey: float = 0.0

    @property
    def changes_nothing(self) -> bool:
        """Whether images stay as they are, but for the window at their centre."""
        return self == Augmentation()

    def __call__(
        self, images: Tensor, size: int, generator: torch.Generator, *, scaled_to: int | None = None
    ) -> Tensor:
        """Images in float32 from 0 to 1, from uint8 images (n, C, H, W): windows of ``size``, or scaled to a side."""
        if self.changes_nothing:
            return centre_crop(images, size).float() / 255
        theta = self._windows(len(images), size / images.shape[-1], images.device, generator)
        side = scaled_to or size
        grid = F.affine_grid(theta, [len(images), images.shape[1], side, side], align_corners=False)
        # Outside the picture is black, the ground of digits. Windows of photographs lie inside, but an enlarged one
        # asks for places between the border and the centre of the outermost pixels.
        inside = self.rotation == 0 and self.scale == 1 and self.translation == 0
        padding = "border" if inside else "zeros"
        changed = F.grid_sample(images.float() / 255, grid, mode="bilinear", padding_mode=padding, align_corners=False)
        return self._recoloured(changed, generator) if self.colour or self.grey else changed

    def _windows(self, n: int, ratio: float, device: torch.device, generator: torch.Generator) -> Tensor:
        """For each image the map (2, 3) from a place in the window to a place in the picture, both from -1 to 1."""
        made: dict[str, Any] = {"dtype": torch.float32, "device": device}  # a training in float64 has another default

        def uniform(low: float, high: float) -> Tensor:
            return low + (high - low) * torch.rand(n, generator=generator, **made)

        width = height = torch.full((n,), ratio, **made)
        if self.area is not None:
            side = uniform(*self.area).sqrt()
            stretch = uniform(-math.log(self.aspect), math.log(self.aspect)).mul(0.5).exp()
            width, height = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
        x = y = torch.zeros(n, **made)
        if self.shift_window or self.area is not None:
            x, y = uniform(-1, 1) * (1 - width), uniform(-1, 1) * (1 - height)
        if self.translation:
            x, y = x + uniform(-2, 2) * self.translation, y + uniform(-2, 2) * self.translation
        angle = uniform(-1, 1) * math.radians(self.rotation)
        zoom = (uniform(-1, 1) * math.log(self.scale)).exp()
        cos, sin = zoom * angle.cos(), zoom * angle.sin()
        mirror = 1 - 2 * (uniform(0, 1) < 0.5).float() if self.flip else torch.ones(n, **made)
        rows = [width * mirror * cos, -width * sin, x, height * mirror * sin, height * cos, y]
        return torch.stack(rows, dim=1).reshape(n, 2, 3)

    def _recoloured(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Images from 0 to 1 in other light, and some without colours."""
        brightness, contrast, saturation = self._factors(len(images), images.device, generator)
        images = (brightness * images).clamp(0, 1)
        images = torch.lerp(_grey(images).mean(dim=(1, 2, 3), keepdim=True), images, contrast).clamp(0, 1)
        return torch.lerp(_grey(images), images, saturation).clamp(0, 1)

    def _factors(self, n: int, device: torch.device, generator: torch.Generator) -> Tensor:
        """Factors (3, n, 1, 1, 1) of brightness, contrast and saturation."""
        drawn = torch.rand(4, n, 1, 1, 1, generator=generator, dtype=torch.float32, device=device)
        factors = 1 + self.colour * (2 * drawn[:3] - 1)
        factors[2] *= drawn[3] >= self.grey
        return factors


def _grey(images: Tensor) -> Tensor:
    """Luminance (n, 1, H, W); images of one channel as they are."""
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(dim=1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue)[:, None]


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": Augmentation(),
    "flip": Augmentation(flip=True, shift_window=True),
    "crop": Augmentation(flip=True, area=(0.25, 1.0), aspect=4 / 3),
    "crop-colour": Augmentation(flip=True, area=(0.25, 1.0), aspect=4 / 3, colour=0.4, grey=0.2),
    "affine": Augmentation(rotation=15.0, scale=1.15, translation=0.1),
    "strong-affine": Augmentation(rotation=20.0, scale=1.35, translation=0.12),
}


def centre_crop(images: Tensor, size: int) -> Tensor:
    """The window of ``size`` x ``size`` at the centre of images (n, C, H, W); the images where they are no larger."""
    height, width = images.shape[-2:]
    top, left = max((height - size) // 2, 0), max((width - size) // 2, 0)
    return images[..., top : top + size, left : left + size]
