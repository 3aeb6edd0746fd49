"""From stored samples to what a network takes: the window, random changes while training, normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bures.networks import Preprocessing
from bures.training._augment import AUGMENTATIONS, Augmentation, centre_crop

__all__ = ["Inputs", "luminance"]


@dataclass(frozen=True)
class Inputs:
    """What is done to a batch before a network sees it; feature vectors pass as they are.

    Parameters
    ----------
    preprocessing : Preprocessing or None
        The backbone's; None where it takes feature vectors.
    image_size : int or None
        Side of the images the network sees.
    augmentation : Augmentation, optional
        Random changes of training images.
    training_size : int, optional
        Side to which training images are scaled when they are changed; None leaves it at ``image_size``.
    second_view : Augmentation, optional
        Random changes of a second view of training images; None are those of the first.
    """

    preprocessing: Preprocessing | None
    image_size: int | None
    augmentation: Augmentation = AUGMENTATIONS["none"]
    training_size: int | None = None
    second_view: Augmentation | None = None

    def evaluation(self, x: Tensor) -> Tensor:
        """A batch for evaluation: the window at the centre, normalised; grey where the network knows no colours."""
        if self.preprocessing is None:
            return x
        if x.shape[1] == 3 and self.preprocessing.channels == 1:
            x = luminance(x)
        return self.preprocessing(x if self.image_size is None else centre_crop(x, self.image_size))

    def training(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A batch for a training step, changed at random."""
        return self._view(x, self.augmentation, generator)

    def training_again(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A second view of the batch."""
        return self._view(x, self.augmentation if self.second_view is None else self.second_view, generator)

    def _view(self, x: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
        if self.preprocessing is None or augmentation.changes_nothing:
            return self.evaluation(x)
        return self.preprocessing(self._changed(x, augmentation, generator))

    def changed(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Images from 0 to 1 of stored ones, changed at random."""
        return self._changed(x, self.augmentation, generator)

    def _changed(self, x: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
        size = x.shape[-1] if self.image_size is None else self.image_size
        return augmentation(x, size, generator, scaled_to=self.training_size)


def luminance(images: Tensor) -> Tensor:
    """Grey images (n, 1, H, W) of RGB images in uint8, as Pillow makes them: a grey picture keeps its values."""
    red, green, blue = images.to(torch.int32).unbind(dim=1)
    grey = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    return grey.to(torch.uint8)[:, None]
