"""Whether a Matlab file is built as such files are, before SciPy reads it.

SciPy takes the number of a data type out of the file for the place in a table, unchecked, and a damaged file ends the
process there. So the elements are walked first: an element is a tag of a type and a number of bytes, and its data,
filled up to eight bytes; a matrix is an element of elements.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

__all__ = ["check_mat"]

MATRIX, COMPRESSED = 14, 15
NUMERIC_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}
TYPES = NUMERIC_TYPES | {MATRIX, 16, 17, 18}
CELL, CHAR, SPARSE, UINT64, OPAQUE = 1, 4, 5, 15, 17  # classes; those after sparse, up to uint64, are numeric
FLAGS = (6, 8)  # type and length of the first element of a matrix
HEADER = 128
DEPTH = 20  # of cells in cells


def check_mat(file: Path) -> None:
    """Raise a ValueError where an element of a file of version 5 to 7 is none; other files are not looked at."""
    content = file.read_bytes()
    # Order and version as SciPy reads them: of version 4, of version 7.3 or no Matlab file, it says so by itself.
    order = "<" if content[126:128] == b"IM" else ">"
    version = content[125:126] if content[126:127] == b"I" else content[124:125]
    if 0 in content[:4] or version != b"\x01":
        return
    place = HEADER
    while place < len(content):
        kind, start, end, after = _element(content, place, order)
        if kind == COMPRESSED:
            inner = zlib.decompress(content[start:end])
            kind, first, last, _ = _element(inner, 0, order)
            _check_matrix(inner, kind, first, last, order, 0)
            after = end  # compressed data are not filled up
        else:
            _check_matrix(content, kind, start, end, order, 0)
        place = after


def _element(content: bytes, place: int, order: str) -> tuple[int, int, int, int]:
    """Type of the element at a place, where its data begin and end, and where the next one begins."""
    if place + 8 > len(content):
        raise ValueError("it ends within an element")
    kind, length = struct.unpack_from(f"{order}II", content, place)
    if kind >> 16:  # a small element: the length is in the upper half, the data in place of it
        length, kind = kind >> 16, kind & 0xFFFF
        if length > 4:
            raise ValueError(f"a small element of {length} bytes")
        return kind, place + 4, place + 4 + length, place + 8
    start, end = place + 8, place + 8 + length
    if end > len(content):
        raise ValueError(f"an element of {length} bytes, more than there are")
    return kind, start, end, end + -length % 8


def _check_matrix(content: bytes, kind: int, start: int, end: int, order: str, depth: int) -> None:
    if kind != MATRIX or depth > DEPTH:
        raise ValueError(f"an element of type {kind} in place of a matrix")
    if start == end:
        return
    if end - start < 16:
        raise ValueError("a matrix without a class")
    kind, length, flags = struct.unpack_from(f"{order}III", content, start)
    own, place, number = flags & 0xFF, start + 16, 0
    if (kind, length) != FLAGS:
        raise ValueError(f"a matrix that begins with {length} bytes of type {kind}")
    while place < end:
        inner, first, last, place = _element(content, place, order)
        number += 1
        data = number > 2  # after dimensions and name
        if number == 1 and own != OPAQUE:
            _check_dimensions(content[first:last], inner, order)
        if inner not in TYPES or last > end:
            raise ValueError(f"an element of type {inner} in a matrix")
        if data and SPARSE <= own <= UINT64 and inner not in NUMERIC_TYPES:
            raise ValueError(f"numbers of type {inner}")
        if data and own == CHAR and inner == MATRIX:
            raise ValueError("text that is a matrix")
        if data and own == CELL and inner != MATRIX:
            raise ValueError(f"a cell of type {inner}")
        if inner == MATRIX:
            _check_matrix(content, inner, first, last, order, depth + 1)
    needed = 5 if own == SPARSE else 3 if CHAR <= own <= UINT64 else 2
    if SPARSE <= own <= UINT64 and flags >> 11 & 1:  # an imaginary part comes last
        needed += 1
    if number < needed:
        raise ValueError(f"a matrix of {number} elements")


def _check_dimensions(content: bytes, kind: int, order: str) -> None:
    count, rest = divmod(len(content), 4)
    if kind not in (5, 6) or rest or not 2 <= count <= 32:
        raise ValueError(f"dimensions in {len(content)} bytes of type {kind}")
    sizes = struct.unpack(f"{order}{count}i", content)
    if min(sizes) < 0:
        raise ValueError(f"the dimensions {sizes}")
