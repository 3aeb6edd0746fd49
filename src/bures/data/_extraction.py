"""From images to feature vectors with a backbone, batch by batch; a killed extraction goes on where it stopped."""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bures import files
from bures.arrays import check_count, check_flags
from bures.data._decoding import Progress
from bures.data._domain import Domain
from bures.data._feature_files import write_features
from bures.data._parts import Parts, told
from bures.data._samples import ImageFiles, Samples, TensorSamples, check_size, resize_images
from bures.devices import find_device
from bures.networks._modes import evaluation_mode
from bures.wording import first_line_of

if TYPE_CHECKING:
    from bures.networks import Backbone, Preprocessing

__all__ = ["CROPPED", "WARPED", "check_output", "extract_features", "image_sizes"]

WARPED, CROPPED = 256, 224  # what the literature does to photographs: warp, then crop the middle
SMALL = 64  # backbones for images of up to this many pixels take them whole
PART_SECONDS = 5.0  # how much work a kill may cost
BATCHES_AHEAD = 4  # batches that are decoded while the backbone is at work


def extract_features(
    domain: Domain,
    backbone: Backbone,
    output: str | Path,
    *,
    batch_size: int = 64,
    image_size: int | None = None,
    device: str = "auto",
    restart: bool = False,
    progress: Progress | None = None,
) -> Domain:
    """Features of the images of a domain, written to a ``.npz`` file that :func:`read_features` reads.

    The backbone is in evaluation mode, the images go through its preprocessing. Those for a backbone that takes 224
    pixels are warped to 256 and cropped in the middle; other sizes keep this ratio, except that backbones for images
    of up to 64 pixels take them whole.

    What is done is kept in the folder ``output.parts`` while the extraction runs. A call with the same arguments after
    a kill goes on from there and ends in the same file, byte by byte.

    Parameters
    ----------
    domain : Domain
        Images, in files or in memory.
    backbone : Backbone
        Made by :func:`bures.networks.backbone`; it is moved to ``device``.
    output : path
        The file; its suffix is ``.npz``.
    batch_size : int, optional
        Images that go through the backbone at a time.
    image_size : int, optional
        Side of the images that the backbone sees; None is the side it was made for.
    device : str, optional
        "auto" (a GPU where there is one), "cpu", "cuda" and so on.
    restart : bool, optional
        Drop what an earlier start left, and replace the file if it exists. Otherwise a file that exists, and parts
        that belong to other images, another backbone or other settings, are errors.
    progress : callable, optional
        Called as ``progress(done, total)``, first with what an earlier start has done, then after every batch.

    Returns
    -------
    Domain
        The features (n, backbone.out_features) in float32, with the name, classes, labels and ids of ``domain``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bures.data import extract_features, optdigits, read_features
    >>> from bures.networks import backbone
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "digits.npz")
    ...     features = extract_features(optdigits(), backbone("lenet", image_size=8), file)
    ...     read_features(file).samples.shape
    (500,)
    """
    check_flags(restart=restart)
    file = check_output(output, restart=restart)
    preprocessing = _check_images(domain, backbone)
    warp, crop = image_sizes(preprocessing.input_size if image_size is None else image_size)
    batch_size = check_count("batch_size", batch_size)
    place = find_device(device)
    settings = {
        "images": _images_digest(domain),
        "labels": _digest(repr((domain.name, domain.class_names, domain.ids)), domain.labels),
        "network": backbone.name,
        "weights": _weights_digest(backbone),
        "preprocessing": repr(preprocessing),
        "image_size": str(crop),
        "batch_size": str(batch_size),  # the last digits of a feature may depend on it
        "device": place.type,
        "torch": torch.__version__,
    }
    parts = Parts(file, settings, backbone.out_features)
    parts.open(restart=restart)
    samples = ImageFiles(domain.samples.paths, warp) if isinstance(domain.samples, ImageFiles) else domain.samples
    images = Images(samples, warp, crop, domain.ids)
    rows = _run(images, backbone, preprocessing, parts, batch_size, place, progress)
    features = replace(domain, samples=TensorSamples(rows))
    with told(file):
        write_features(file, features)
    parts.remove()
    return features


def image_sizes(image_size: int) -> tuple[int, int]:
    """Sides to which images are warped and then cropped, for a backbone that sees ``image_size`` pixels."""
    crop = check_size(image_size)
    return (crop if crop <= SMALL else round(crop * WARPED / CROPPED)), crop


def check_output(output: str | Path, *, restart: bool = False) -> Path:
    """Return the file to write; raise at once for what would fail only after hours."""
    if Path(output).suffix.lower() != ".npz":
        raise ValueError(f"output={str(output)!r} ends in {Path(output).suffix!r}; features are written to .npz")
    file = files.check_output(output)
    if file.exists() and not restart:
        raise FileExistsError(
            f"output={str(output)!r} exists; choose another name, or replace it with restart=True (--restart)"
        )
    return file


class Images:
    """Batches of images as a backbone sees them, before its preprocessing; and how a sample is called."""

    def __init__(self, samples: Samples, warp: int, crop: int, ids: tuple[str, ...] | None) -> None:
        self.samples, self.warp, self.crop, self.ids = samples, warp, crop, ids

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, start: int, stop: int) -> Tensor:
        """The images from ``start`` to ``stop``, warped and cropped: uint8 (stop - start, C, crop, crop)."""
        batch = resize_images(self.samples.take(torch.arange(start, stop)), self.warp)
        edge = round((self.warp - self.crop) / 2)
        return batch[:, :, edge : edge + self.crop, edge : edge + self.crop]

    def batches(self, start: int, size: int) -> Iterator[tuple[int, Tensor]]:
        """First number and images of each batch from ``start`` on; threads decode a few batches ahead."""
        with ThreadPoolExecutor(min(os.cpu_count() or 1, BATCHES_AHEAD)) as pool:
            waiting: deque[tuple[int, Future[Tensor]]] = deque()
            try:
                for first in range(start, len(self), size):
                    waiting.append((first, pool.submit(self.take, first, min(first + size, len(self)))))
                    if len(waiting) > BATCHES_AHEAD:
                        first, future = waiting.popleft()
                        yield first, future.result()
                while waiting:
                    first, future = waiting.popleft()
                    yield first, future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def name(self, number: int) -> str:
        """How a sample is called in a message."""
        return f"sample {number}" if self.ids is None else self.ids[number]


def _run(
    images: Images,
    backbone: Backbone,
    preprocessing: Preprocessing,
    parts: Parts,
    batch_size: int,
    device: torch.device,
    progress: Progress | None,
) -> NDArray[np.float32]:
    """Compute what the parts lack; parts end where batches end, so that a later start sees the same batches."""
    done = parts.rows()
    done = done[: len(images)] if len(done) >= len(images) else done[: len(done) // batch_size * batch_size]
    finished, fresh = [done], list[NDArray[np.float32]]()
    position, written = len(done), time.monotonic()
    if progress is not None:
        progress(position, len(images))
    backbone.to(device)
    with evaluation_mode(backbone), torch.inference_mode():
        for start, batch in images.batches(position, batch_size):
            features = _features(backbone, preprocessing(batch.to(device)), preprocessing.input_size)
            if len(broken := np.flatnonzero(~np.isfinite(features).all(axis=1))):
                raise ValueError(
                    f"{backbone.name!r} gives features that are not finite for {images.name(start + int(broken[0]))}; "
                    "check its weights"
                )
            fresh.append(features)
            stop = start + len(features)
            if stop == len(images) or time.monotonic() - written >= PART_SECONDS:
                part = np.concatenate(fresh)
                parts.append(position, part)
                finished.append(part)
                fresh, position, written = [], stop, time.monotonic()
            if progress is not None:
                progress(stop, len(images))
    return np.concatenate(finished)


def _features(backbone: Backbone, batch: Tensor, size: int) -> NDArray[np.float32]:
    try:
        return np.ascontiguousarray(backbone(batch).float().cpu().numpy())
    except torch.cuda.OutOfMemoryError as error:
        raise ValueError(
            f"batch_size={len(batch)} is too much for the memory of {batch.device}; accepted is a smaller batch"
        ) from error
    except (RuntimeError, AssertionError) as error:  # position embeddings and kernels larger than the image
        raise ValueError(
            f"{backbone.name!r} fails on images of {batch.shape[-1]} x {batch.shape[-1]} pixels: "
            f"{first_line_of(error)}; it was made for image_size={size}"
        ) from error


def _check_images(domain: Domain, backbone: Backbone) -> Preprocessing:
    if len(domain.samples.shape) != 3:
        raise ValueError(
            f"{domain.name!r} holds features of shape {domain.samples.shape} already; accepted are images (C, H, W)"
        )
    if backbone.preprocessing is None:
        raise ValueError(f"backbone {backbone.name!r} takes feature vectors; accepted is one for images")
    return backbone.preprocessing


def _digest(text: str, *tensors: Tensor | None) -> str:
    digest = hashlib.sha256(text.encode())
    for tensor in tensors:
        if tensor is not None:
            digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _weights_digest(backbone: Backbone) -> str:
    state = backbone.state_dict()
    return _digest(repr(list(state)), *state.values())


def _images_digest(domain: Domain) -> str:
    """Checksum of images in memory; of files, the names, sizes and times of change, which cost no reading."""
    if isinstance(domain.samples, TensorSamples):
        return _digest("tensor", domain.samples.tensor)
    if isinstance(domain.samples, ImageFiles):
        stats = [os.stat(path) for path in domain.samples.paths]
        names = domain.ids or domain.samples.paths
        return _digest(repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in zip(names, stats, strict=True)]))
    raise TypeError(f"domain.samples is a {type(domain.samples).__name__}; accepted are TensorSamples and ImageFiles")
