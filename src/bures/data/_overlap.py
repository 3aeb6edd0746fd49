"""Samples that two domains share, without decoding pictures that still lie in files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterable, Iterator

import torch

from bures.data._domain import Domain
from bures.data._samples import ImageFiles, TensorSamples

__all__ = ["count_shared"]

ROWS = 4096  # copied at a time


def count_shared(source: Domain, target: Domain) -> int:
    """How many samples of the target are in the source too, bit by bit.

    Samples in memory are compared with samples in memory, files with files, which are read where their sizes agree.

    Examples
    --------
    >>> from bures.data import optdigits
    >>> from bures.data._overlap import count_shared
    >>> digits = optdigits()
    >>> count_shared(digits, digits), count_shared(digits.take(range(0, 100)), digits.take(range(90, 300)))
    (1797, 10)
    """
    a, b = source.samples, target.samples
    if isinstance(a, TensorSamples) and isinstance(b, TensorSamples):
        return 0 if a.shape != b.shape else _common(_rows(a), _rows(b))
    if isinstance(a, ImageFiles) and isinstance(b, ImageFiles):
        sizes = [[os.stat(path).st_size for path in samples.paths] for samples in (a, b)]
        both = set(sizes[0]) & set(sizes[1])
        keys: dict[tuple[int, int], bytes] = {}  # of a file that both hold, the content is read once
        return _common(*(_files(samples, size, both, keys) for samples, size in zip((a, b), sizes, strict=True)))
    return 0


def _common(source: Iterable[Hashable], target: Iterable[Hashable]) -> int:
    known = set(source)
    return sum(key in known for key in target)


def _rows(samples: TensorSamples) -> Iterator[bytes]:
    for part in torch.split(samples.tensor, ROWS):
        for row in part.cpu().contiguous().numpy():
            yield hashlib.blake2b(row.data, digest_size=16).digest()


def _files(
    samples: ImageFiles, sizes: Iterable[int], both: set[int], keys: dict[tuple[int, int], bytes]
) -> Iterator[bytes]:
    for path, size in zip(samples.paths, sizes, strict=True):
        if size not in both:
            continue
        found = os.stat(path)
        place = found.st_dev, found.st_ino
        if place not in keys:
            with open(path, "rb") as stream:
                keys[place] = hashlib.file_digest(stream, "sha256").digest()
        yield keys[place]
