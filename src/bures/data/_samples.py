"""Where the samples of a domain lie: in memory, or in image files that are decoded when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bures.arrays import Array, as_tensor, describe, refuse_masked
from bures.data._decoding import BadImageError, Progress, decode_image, map_files
from bures.wording import listed

__all__ = ["ImageFiles", "Samples", "TensorSamples", "as_index", "check_size", "fits_in_memory", "resize_images"]

IN_MEMORY = 4 * 2**30  # bytes up to which the images of a domain are decoded once and kept
CONVERTED = 2**22  # numbers in float32 at a time


@runtime_checkable
class Samples(Protocol):
    """A numbered collection of samples of one shape that hands out batches."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        ...

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """The samples with these numbers, as one batch."""
        ...

    def subset(self, index: Tensor) -> Samples:
        """The samples with these numbers, as a collection."""
        ...


class TensorSamples:
    """Samples in memory: features as float32 (n, d), or images as uint8 (n, C, H, W).

    Parameters
    ----------
    tensor : array (n, d) or uint8 array (n, C, H, W)
        Features of any real dtype become float32; NaN and infinity are refused. Memory is shared where the dtype
        allows.

    Attributes
    ----------
    tensor : Tensor
        The samples.

    Examples
    --------
    >>> import torch
    >>> from bures.data import TensorSamples
    >>> samples = TensorSamples(torch.eye(4))
    >>> len(samples), samples.shape
    (4, (4,))
    >>> samples.take(torch.tensor([2]))
    tensor([[0., 0., 1., 0.]])
    """

    def __init__(self, tensor: Array) -> None:
        self.tensor = _as_samples(tensor)

    def __len__(self) -> int:
        return len(self.tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (d,) or (C, H, W)."""
        return tuple(self.tensor.shape[1:])

    @property
    def device(self) -> torch.device:
        """Where the samples lie."""
        return self.tensor.device

    def take(self, index: Tensor) -> Tensor:
        """The samples with these numbers, as a batch on the device of the samples."""
        return self.tensor[index.to(self.tensor.device)]

    def subset(self, index: Tensor) -> TensorSamples:
        """The samples with these numbers; they are copied."""
        return self._like(self.take(index))

    def columns(self, index: Tensor) -> TensorSamples:
        """The same feature vectors, of the columns with these numbers."""
        return self._like(self.tensor[:, index.to(self.tensor.device)])

    def to(self, device: str | torch.device) -> TensorSamples:
        """The same samples on another device."""
        return self._like(self.tensor.to(device))

    def resize(self, size: int) -> TensorSamples:
        """The same images, warped to ``size`` x ``size``."""
        if self.tensor.ndim != 4:
            raise ValueError(f"the samples are features of shape {self.shape}; only images (C, H, W) can be resized")
        return self._like(resize_images(self.tensor, size))

    def __repr__(self) -> str:
        kind = "images" if self.tensor.ndim == 4 else "features"
        return f"TensorSamples({len(self)} {kind} {self.shape}, {self.tensor.dtype}, {self.tensor.device})"

    @staticmethod
    def _like(tensor: Tensor) -> TensorSamples:
        """Wrap what came out of checked samples, without reading it all again."""
        samples = TensorSamples.__new__(TensorSamples)
        samples.tensor = tensor
        return samples


class ImageFiles:
    """Images in files, decoded when they are asked for, as RGB in uint8, warped to one size.

    Grey, palette, RGBA, CMYK and 16-bit pictures all become RGB; transparency is dropped, as torchvision does.
    Floating-point pictures are scaled by 255 where their values lie in 0 to 1, taken as they are where they lie in 0 to
    255, and cannot be decoded otherwise.

    Parameters
    ----------
    paths : sequence of paths
        The files. They are not opened here; :func:`bures.data.check_images` finds those that cannot be decoded.
    size : int, optional
        Height and width of the images handed out; the whole picture is warped to this square (bilinear).

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> from PIL import Image
    >>> from bures.data import ImageFiles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "grey.png")
    ...     Image.new("L", (40, 30), color=200).save(path)
    ...     images = ImageFiles([path], size=8)
    ...     batch = images.take(torch.tensor([0, 0]))
    >>> images.shape, batch.shape, batch.unique()
    ((3, 8, 8), torch.Size([2, 3, 8, 8]), tensor([200], dtype=torch.uint8))
    """

    def __init__(self, paths: Sequence[str | Path], size: int = 256) -> None:
        if isinstance(paths, (str, Path)):
            raise TypeError(f"paths={str(paths)!r} is one path; accepted is a sequence of paths")
        self.paths = tuple(str(path) for path in paths)
        self.size = check_size(size)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (3, size, size)."""
        return (3, self.size, self.size)

    def take(self, index: Tensor) -> Tensor:
        """Decode the images with these numbers: uint8 (len(index), 3, size, size)."""
        batch = torch.empty((len(index), *self.shape), dtype=torch.uint8)
        for row, number in enumerate(index.tolist()):
            batch[row] = self._decode(number)
        return batch

    def take_each(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """The batches that `take` gives for each of several indices; threads decode those to come."""
        numbers = torch.cat(list(indices)).tolist()
        rows = map_files(lambda place: self._decode(numbers[place]), len(numbers), None, None)
        with closing(rows):
            for index in indices:
                yield torch.stack([next(rows) for _ in range(len(index))])

    def subset(self, index: Tensor) -> ImageFiles:
        """The files with these numbers."""
        return ImageFiles([self.paths[number] for number in index.tolist()], self.size)

    def in_memory(self, n_threads: int | None = None, progress: Progress | None = None) -> TensorSamples:
        """Decode every image once, with a pool of threads.

        ``progress(done, total)`` is called after each image; None threads are one for each core, at most 16.
        """
        samples, bad = self.decode_readable(n_threads, progress, stop_at_first=True)
        assert not bad
        return samples

    def decode_readable(
        self, n_threads: int | None = None, progress: Progress | None = None, *, stop_at_first: bool = False
    ) -> tuple[TensorSamples, list[tuple[int, str]]]:
        """Decode what can be decoded; the numbers of the other files come with the reason, their rows are left out."""
        images = torch.empty((len(self), *self.shape), dtype=torch.uint8)
        bad: list[tuple[int, str]] = []

        def read(number: int) -> BadImageError | None:
            try:
                images[number] = self._decode(number)
            except BadImageError as error:
                return error
            return None

        for number, error in enumerate(map_files(read, len(self), n_threads, progress)):
            if error is None:
                continue
            if stop_at_first:
                raise error
            bad.append((number, error.reason))
        if bad:
            readable = torch.ones(len(self), dtype=torch.bool)
            readable[[number for number, _ in bad]] = False
            images = images[readable]
        return TensorSamples._like(images), bad

    def _decode(self, number: int) -> Tensor:
        return torch.from_numpy(decode_image(self.paths[number], self.size))

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} files, size={self.size})"


def fits_in_memory(samples: Samples) -> bool:
    """Whether decoded images take so little room that they may as well be kept."""
    return len(samples) * math.prod(samples.shape) <= IN_MEMORY


def check_size(size: int) -> int:
    """Return ``size``; raise unless it is a positive integer."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"size={size!r} is out of range; accepted is a positive number of pixels")
    return size


def resize_images(images: Tensor, size: int) -> Tensor:
    """Warp uint8 images (n, C, H, W) to (n, C, size, size), bilinear with antialiasing."""
    if images.shape[-2:] == (check_size(size), size):
        return images
    # A few at a time: float32 takes four times the room, and room that is asked for anew is slower than the arithmetic.
    at_once = max(CONVERTED // max(math.prod(images.shape[1:]), 1), 1)
    parts = [
        torch.nn.functional.interpolate(part.float(), size=(size, size), mode="bilinear", antialias=True)
        .round()
        .clamp(0, 255)
        .to(torch.uint8)
        for part in torch.split(images, at_once)
    ]
    return torch.cat(parts)


def as_index(index: Array, n: int) -> Tensor:
    """Read numbers from 0 to n - 1, or a mask of n truth values, as an int64 vector."""
    accepted = f"accepted are integers from 0 to {n - 1}, or a mask of {n} truth values"
    refuse_masked("index", index)
    numbers = as_tensor(index)
    if numbers.dtype == torch.bool:
        if numbers.shape != (n,):
            raise ValueError(f"index is a mask of shape {tuple(numbers.shape)}; {accepted}")
        return numbers.nonzero().flatten()
    if numbers.ndim != 1 or (len(numbers) and (numbers.is_floating_point() or numbers.is_complex())):
        raise ValueError(f"index is a {describe(numbers)}; {accepted}")
    numbers = numbers.long()
    outside = numbers[(numbers < 0) | (numbers >= n)]
    if len(outside):
        raise IndexError(f"index contains {int(outside[0])}; {accepted}")
    return numbers


def _as_samples(value: Array) -> Tensor:
    accepted = "accepted are features (n, d) and uint8 images (n, C, H, W)"
    refuse_masked("tensor", value)
    try:
        tensor = as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"tensor is a {describe(value)}, which torch cannot read: {error}; {accepted}") from error
    if tensor.ndim == 4 and tensor.dtype == torch.uint8:
        return tensor
    if tensor.ndim != 2 or tensor.is_complex() or 0 in tensor.shape[1:]:
        raise ValueError(f"tensor has shape {tuple(tensor.shape)} and dtype {tensor.dtype}; {accepted}")
    features = tensor.to(torch.float32)
    _check_rows(tensor, features)
    return features


def _check_rows(given: Tensor, as_float32: Tensor) -> None:
    """Raise if features are not finite, naming the rows."""
    if bool(torch.isfinite(as_float32.sum())):
        return
    rows = (~torch.isfinite(as_float32)).any(dim=1).nonzero().flatten()
    if not len(rows):
        return
    finite = bool(torch.isfinite(given[rows]).all())
    what = "numbers beyond the range of float32" if finite else "NaN or infinity"
    raise ValueError(
        f"tensor contains {what} in {len(rows)} of {len(given)} rows "
        f"({listed(rows.tolist(), noun='row')}, counted from 0); "
        "remove or impute these samples"
    )
