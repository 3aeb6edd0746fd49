"""What a backbone wants done to images before it sees them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from bures.arrays import check_choice, check_count, describe

__all__ = ["Preprocessing"]


@dataclass(frozen=True)
class Preprocessing:
    """Normalisation of images for a backbone: a callable on batches, on any device.

    Parameters
    ----------
    mean, std : tuple of float
        Per channel, in the units of ``value_range`` and in the order of ``channel_order``.
    input_size : int
        Side of the images the backbone was made for. Images are not resized here.
    channel_order : {"RGB", "BGR"}, optional
        Order in which the backbone wants the channels. Batches are given in RGB.
    value_range : float, optional
        The brightest value: 1 for most backbones, 255 for those of Caffe.

    Notes
    -----
    A call takes images (n, C, H, W), in uint8 (0 to 255) or floating point (0 to 1), and gives floating point of the
    same shape, of float32 at least. One grey channel is repeated where the backbone wants more.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import Preprocessing
    >>> preprocessing = Preprocessing(mean=(0.5,), std=(0.5,), input_size=28)
    >>> white = torch.full((1, 1, 28, 28), 255, dtype=torch.uint8)
    >>> normalised = preprocessing(white)
    >>> round(normalised.max().item(), 6), normalised.dtype
    (1.0, torch.float32)
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    input_size: int
    channel_order: str = "RGB"
    value_range: float = 1.0

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # lists, as JSON gives them
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        check_count("input_size", self.input_size)
        check_choice("channel_order", self.channel_order, ("RGB", "BGR"))
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(f"mean has {len(self.mean)} values but std has {len(self.std)}; give one per channel")
        if min(self.std) <= 0 or self.value_range <= 0:
            raise ValueError(f"std={self.std} and value_range={self.value_range} must be positive")
        if self.channel_order == "BGR" and self.channels != 3:
            raise ValueError(f"channel_order='BGR' needs three channels, but mean has {self.channels} values")

    @property
    def channels(self) -> int:
        """Channels that the backbone takes."""
        return len(self.mean)

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise a batch of images (n, C, H, W)."""
        self._check(images)
        dtype = torch.promote_types(images.dtype, torch.float32)
        brightest = 1.0 if images.is_floating_point() else 255.0
        # A cached constant costs no copy from the host at every step; a compiler makes its own.
        make = _affine.__wrapped__ if torch.compiler.is_compiling() else _affine
        scale, shift = make(self, brightest, dtype, images.device)
        if images.shape[1] != self.channels:
            images = images.expand(-1, self.channels, -1, -1)
        elif self.channel_order == "BGR":
            images = images.flip(1)
        return torch.addcmul(shift, images.to(dtype), scale)

    def _check(self, images: Tensor) -> None:
        if not isinstance(images, Tensor):
            raise TypeError(f"images is a {describe(images)}; accepted is a torch tensor (n, C, H, W)")
        if not (images.dtype == torch.uint8 or images.is_floating_point()):
            raise TypeError(
                f"images has dtype {images.dtype}; accepted are uint8 (0 to 255) and floating point (0 to 1)"
            )
        channels = sorted({1, self.channels})
        if images.ndim != 4 or images.shape[1] not in channels:
            raise ValueError(
                f"images has shape {tuple(images.shape)}; accepted is (n, C, H, W) with C = "
                f"{' or '.join(map(str, channels))} channels"
            )


@lru_cache(maxsize=32)
def _affine(
    preprocessing: Preprocessing, brightest: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The factor and the summand (1, C, 1, 1) that normalise an image."""
    with torch.inference_mode(False):  # the cache outlives the caller's inference mode
        std, mean = (
            torch.tensor(values, dtype=torch.float64, device="cpu").reshape(1, -1, 1, 1)
            for values in (preprocessing.std, preprocessing.mean)
        )
        scale, shift = preprocessing.value_range / brightest / std, -mean / std
        return scale.to(device=device, dtype=dtype), shift.to(device=device, dtype=dtype)
