"""Networks that translate small images from one domain to the other, and those that tell them from originals."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import interpolate

from bures.arrays import at_least_float32

__all__ = ["ImageDiscriminator", "Translator"]


class Translator(nn.Module):
    """From images of one domain to images of the other, both with values from -1 to 1: a small residual network.

    It works at half the resolution of the images, where a few blocks see a whole digit.

    Parameters
    ----------
    channels : int
        Of the images.
    width : int
        Channels of the first layer; those at half the resolution are twice as many.
    blocks : int
        Residual blocks.
    """

    def __init__(self, channels: int, width: int, blocks: int) -> None:
        super().__init__()
        self.down = nn.Sequential(*_layer(channels, width), *_layer(width, 2 * width, stride=2))
        self.blocks = nn.Sequential(*(_Residual(2 * width) for _ in range(blocks)))
        self.up = nn.Sequential(*_layer(2 * width, width), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Translations (n, C, H, W) of images of the same shape."""
        inner = interpolate(self.blocks(self.down(x)), size=x.shape[-2:])
        translated: Tensor = self.up(inner)
        return translated.tanh()


class ImageDiscriminator(nn.Module):
    """Scores of the patches of an image: one for an original, zero for a translation.

    Parameters
    ----------
    channels : int
        Of the images.
    width : int
        Channels of the first layer.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.InstanceNorm2d(2 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 1, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores (n, 1, h, w) of images (n, C, H, W), where h and w are quarters of the sides."""
        scores: Tensor = self.layers(x)
        # Squares of scores are the losses: they are taken at full precision.
        return at_least_float32(scores)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_layer(width, width), nn.Conv2d(width, width, 3, padding=1), nn.InstanceNorm2d(width)
        )

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.layers(x)
        return x + change


def _layer(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, stride=stride, padding=1), nn.InstanceNorm2d(after), nn.ReLU()]
