"""What one domain holds: counts, sizes, ranges and a checksum of every sample, from one look at each."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bures.data._decoding import BadImageError, Progress, decode_image, map_files
from bures.data._domain import Domain
from bures.data._samples import ImageFiles, TensorSamples

__all__ = ["Columns", "DomainSummary", "Pictures", "summarise"]

CHUNK = 1024  # samples that are looked at together
SLIM = 2.0  # an image this many times as long as it is wide loses its proportions when it is warped to a square
TRANSPARENT = ("RGBA", "LA", "PA", "La", "RGBa")


@dataclass(frozen=True)
class Pictures:
    """Images as they are before they are warped: sizes, kinds, and those that are of no use."""

    widths: tuple[int, int, int]  # smallest, median, largest
    heights: tuple[int, int, int]
    aspect: float  # median of the longer side over the shorter
    n_slim: int
    modes: Mapping[str, int]  # Pillow's names: L is grey, RGBA has transparency
    n_blank: int  # one value throughout
    unreadable: tuple[tuple[str, str], ...] = ()  # file and reason

    @property
    def side(self) -> int:
        """Longer side of the median image."""
        return max(self.widths[1], self.heights[1])

    @property
    def n_grey(self) -> int:
        """Images without colour, by their mode."""
        return sum(count for mode, count in self.modes.items() if mode[0] in "1LIF")

    @property
    def n_transparent(self) -> int:
        """Images with transparency, which is dropped."""
        return sum(self.modes.get(mode, 0) for mode in TRANSPARENT)


@dataclass(frozen=True)
class Columns:
    """The columns of features."""

    constant: NDArray[np.bool_]  # (d,)
    zero: NDArray[np.bool_]  # (d,)
    std: NDArray[np.float64]  # (d,)

    @property
    def scale(self) -> float:
        """Root of the mean variance of a column."""
        return float(np.sqrt(np.mean(self.std**2)))

    @property
    def disparity(self) -> float:
        """Largest deviation of a column over the median one, constant columns left out; 1 where all are constant."""
        varying = self.std[~self.constant]
        return float(varying.max() / np.median(varying)) if len(varying) else 1.0


@dataclass(frozen=True)
class DomainSummary:
    """What :func:`bures.data.diagnose` knows of one domain.

    ``digests`` has a checksum for each sample, None for a file that does not decode.
    """

    name: str
    n: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    counts: Mapping[str, int] | None  # by class, those without samples left out; None for an unlabelled domain
    minimum: float
    maximum: float
    mean: float
    std: float
    pictures: Pictures | None = None
    columns: Columns | None = field(default=None, repr=False)
    digests: tuple[bytes | None, ...] = field(default=(), repr=False)
    labels: tuple[int, ...] | None = field(default=None, repr=False)
    ids: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that have samples; for an unlabelled domain those that are named."""
        return self.class_names if self.counts is None else tuple(self.counts)

    def repeated(self) -> list[list[int]]:
        """Numbers of the samples that are equal, group by group."""
        groups = defaultdict(list)
        for number, digest in enumerate(self.digests):
            if digest is not None:
                groups[digest].append(number)
        return [group for group in groups.values() if len(group) > 1]

    def sample(self, number: int) -> str:
        """How a sample is called in a message."""
        return f"sample {number}" if self.ids is None else self.ids[number]

    def to_dict(self) -> dict[str, Any]:
        """Numbers and names for JSON."""
        result: dict[str, Any] = {
            "name": self.name,
            "kind": "features" if self.pictures is None else "images",
            "n": self.n,
            "shape": list(self.shape),
            "class_names": list(self.class_names),
            "counts": None if self.counts is None else dict(self.counts),
            "values": {"min": self.minimum, "max": self.maximum, "mean": self.mean, "std": self.std},
            "duplicates": sum(len(group) - 1 for group in self.repeated()),
        }
        if self.pictures is not None:
            result["images"] = {
                "width": dict(zip(("min", "median", "max"), self.pictures.widths, strict=True)),
                "height": dict(zip(("min", "median", "max"), self.pictures.heights, strict=True)),
                "aspect": self.pictures.aspect,
                "modes": dict(self.pictures.modes),
                "blank": self.pictures.n_blank,
                "unreadable": [{"file": file, "reason": reason} for file, reason in self.pictures.unreadable],
            }
        if self.columns is not None:
            result["columns"] = {
                "constant": int(self.columns.constant.sum()),
                "zero": int(self.columns.zero.sum()),
                "scale": self.columns.scale,
                "disparity": self.columns.disparity,
            }
        return result


def summarise(domain: Domain, progress: Progress | None = None) -> DomainSummary:
    """Look at every sample of a domain once."""
    counts = None
    if domain.labels is not None:
        counted = zip(domain.class_names, domain.counts().tolist(), strict=True)
        counts = MappingProxyType({name: count for name, count in counted if count})
    about: dict[str, Any] = {
        "name": domain.name,
        "n": len(domain),
        "shape": domain.samples.shape,
        "class_names": domain.class_names,
        "counts": counts,
        "labels": None if domain.labels is None else tuple(domain.labels.tolist()),
        "ids": domain.ids,
    }
    if isinstance(domain.samples, ImageFiles):
        return DomainSummary(**about, **_look_at_files(domain, domain.samples.paths, progress))
    if not isinstance(domain.samples, TensorSamples):
        raise TypeError(
            f"samples of {domain.name!r} is a {type(domain.samples).__name__}; "
            "accepted are TensorSamples and ImageFiles"
        )
    array = domain.samples.tensor.cpu().numpy()
    return DomainSummary(**about, **(_look_at_features(array) if array.ndim == 2 else _look_at_images(array)))


@dataclass(frozen=True)
class _Look:
    """One image: its checksum, its values, its size and its mode."""

    digest: bytes
    mean: float
    square: float  # mean of the squared values
    minimum: int
    maximum: int
    height: int
    width: int
    mode: str


def _look(pixels: NDArray[np.uint8], mode: str) -> _Look:
    # The same picture saved in grey and in colour is one picture.
    if len(pixels) == 3 and np.array_equal(pixels[0], pixels[1]) and np.array_equal(pixels[0], pixels[2]):
        pixels = pixels[:1]
    digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels).data)
    counts = np.bincount(pixels.ravel(), minlength=256) / pixels.size
    levels, values = np.flatnonzero(counts), np.arange(256.0)
    mean, square = float(counts @ values), float(counts @ values**2)
    _, height, width = pixels.shape
    return _Look(digest.digest(), mean, square, int(levels[0]), int(levels[-1]), height, width, mode)


def _look_at_files(domain: Domain, paths: tuple[str, ...], progress: Progress | None) -> dict[str, Any]:
    def look(number: int) -> _Look | str:
        try:
            pixels = decode_image(paths[number], None)
        except BadImageError as error:
            return error.reason
        with Image.open(paths[number]) as image:  # the header alone
            return _look(pixels, image.mode)

    looks = list(map_files(look, len(paths), None, progress))
    names = domain.ids or paths
    unreadable = tuple((name, found) for name, found in zip(names, looks, strict=True) if isinstance(found, str))
    if len(unreadable) == len(looks):
        raise ValueError(f"none of the {len(looks)} image files of {domain.name!r} can be decoded")
    return _image_fields([found if isinstance(found, _Look) else None for found in looks], unreadable)


def _look_at_images(images: NDArray[np.uint8]) -> dict[str, Any]:
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(images.shape[1], f"{images.shape[1]} channels")
    return _image_fields([_look(image, mode) for image in images], ())


def _image_fields(looks: list[_Look | None], unreadable: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    seen = [look for look in looks if look is not None]
    widths, heights = np.array([look.width for look in seen]), np.array([look.height for look in seen])
    aspects = np.maximum(widths, heights) / np.minimum(widths, heights)
    mean = float(np.mean([look.mean for look in seen]))
    variance = float(np.mean([look.square for look in seen])) - mean**2
    modes = Counter(look.mode for look in seen)
    return {
        "minimum": float(min(look.minimum for look in seen)),
        "maximum": float(max(look.maximum for look in seen)),
        "mean": mean,
        "std": max(variance, 0.0) ** 0.5,
        "pictures": Pictures(
            _spread(widths),
            _spread(heights),
            float(np.median(aspects)),
            int((aspects > SLIM).sum()),
            MappingProxyType(dict(modes.most_common())),
            sum(look.minimum == look.maximum for look in seen),
            unreadable,
        ),
        "digests": tuple(None if look is None else look.digest for look in looks),
    }


def _spread(sides: NDArray[np.int64]) -> tuple[int, int, int]:
    return int(sides.min()), int(np.median(sides)), int(sides.max())


def _look_at_features(x: NDArray[np.float32]) -> dict[str, Any]:
    low, high, mean = x.min(axis=0), x.max(axis=0), x.mean(axis=0, dtype=np.float64)
    chunks = range(0, len(x), CHUNK)  # float64 of all of it might not fit
    variance = sum(((x[start : start + CHUNK] - mean) ** 2).sum(axis=0) for start in chunks) / len(x)
    constant = low == high
    rows = (np.ascontiguousarray(x[start : start + CHUNK]) + np.float32(0) for start in chunks)  # -0 becomes 0
    return {
        "minimum": float(low.min()),
        "maximum": float(high.max()),
        "mean": float(mean.mean()),
        "std": float(np.sqrt(np.mean(variance + (mean - mean.mean()) ** 2))),
        "columns": Columns(constant, constant & (high == 0), np.sqrt(variance)),
        "digests": tuple(hashlib.blake2b(row.data, digest_size=16).digest() for chunk in rows for row in chunk),
    }
