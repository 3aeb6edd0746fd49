"""Small pictures of many samples on one sheet: compact, and read without running any code."""

from __future__ import annotations

import io
import math

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, features

from bures.data import ImageFiles, TensorSamples
from bures.data._samples import Samples, resize_images

__all__ = ["COLUMNS", "encode_sheet", "picture_sheet", "read_sheet"]

SIDE = 32  # of the small pictures at most
COLUMNS = 64  # pictures in a row of a sheet
LOSSLESS = 16  # side up to which pictures are too small for the blocks of a lossy code


def picture_sheet(samples: Samples) -> tuple[bytes | None, int]:
    """All images of a collection on one picture, and the side of each."""
    if len(samples.shape) != 3:
        return None, 0
    side = min(SIDE, *samples.shape[1:])
    if isinstance(samples, ImageFiles):  # decoded to the size that is kept, not to that of training
        small = ImageFiles(samples.paths, side).in_memory().tensor
    else:
        whole = samples.tensor if isinstance(samples, TensorSamples) else samples.take(torch.arange(len(samples)))
        small = resize_images(whole, side).cpu()
    colours = 3 if small.shape[1] >= 3 else 1
    images = small[:, :colours].permute(0, 2, 3, 1).numpy()
    return encode_sheet(images, None if side <= LOSSLESS else 80), side


def encode_sheet(images: NDArray[np.uint8], quality: int | None) -> bytes:
    """Images (n, side, side, 1 or 3) as one picture; without loss where there is no ``quality``."""
    n, side, _, colours = images.shape
    rows = math.ceil(n / COLUMNS)
    padded = np.zeros((rows * COLUMNS, side, side, colours), np.uint8)
    padded[:n] = images
    plane = padded.reshape(rows, COLUMNS, side, side, colours).transpose(0, 2, 1, 3, 4)
    plane = plane.reshape(rows * side, COLUMNS * side, colours)
    picture = Image.fromarray(plane[:, :, 0] if colours == 1 else plane)
    stream = io.BytesIO()
    if not features.check("webp"):  # Pillow can be built without it
        picture.save(stream, "PNG", optimize=True)
    else:
        picture.save(stream, "WEBP", lossless=quality is None, quality=70 if quality is None else quality, method=2)
    return stream.getvalue()


def read_sheet(sheet: bytes, side: int, n: int) -> NDArray[np.uint8]:
    """The n pictures of a sheet, uint8 (n, side, side, 1 or 3); an error where it is damaged."""
    try:
        with Image.open(io.BytesIO(sheet), formats=("WEBP", "PNG")) as picture:
            grey = picture.mode == "L"
            plane = np.asarray(picture.convert("L" if grey else "RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"the sheet of pictures is damaged: {error}") from error
    rows = math.ceil(n / COLUMNS)
    if plane.shape[:2] != (rows * side, COLUMNS * side):
        raise ValueError(f"the sheet of pictures is damaged: a sheet of shape {plane.shape[:2]}")
    parted = plane.reshape(rows, side, COLUMNS, side, -1).transpose(0, 2, 1, 3, 4)
    return parted.reshape(rows * COLUMNS, side, side, -1)[:n]
