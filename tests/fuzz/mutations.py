"""Damage to files: cut, changed, repeated and exchanged bytes, and values that no reader expects."""

from __future__ import annotations

import json
import re
import struct
from copy import deepcopy
from typing import Any

import numpy as np
import yaml

BYTES = ("truncate", "flip", "zero", "remove", "repeat", "insert", "swap", "empty", "random", "high")
TEXT = ("value", "value", "key", "line", "indent", "repeat-line", "nest", "append")
VALUES = (
    b"null", b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"true", b"[]", b"{}", b'""', b'"<script>alert(1)</script>"',
    b"[[[[1]]]]", b"9" * 5000, b"'=cmd|x'", b"2001-99-99", b"!!python/object/apply:os.system [x]", b"&a [*a]", b"*b",
    b"!!int ''", b"!!timestamp x", b"0x_", b"\xff\xfe", b"\xc3\x28", b"a: b: c", b"- x", b"? y", b"0.1.2", b"~", b"1_0",
    b'"\\ud800"', b"[1, 2", b"'", b'"', b"\t", b"%TAG", b"---\n", b"...\n", b",,,,", b"1;2",
)  # fmt: skip


OBJECTS: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, 1e300, float("nan"), "", "nonsense", "<script>alert(1)</script>", "=cmd|x", "a\nb", "\0",
    [], {}, [[]], {"a": None}, [None], ["x", 1], {"": {}}, [1.5] * 7, "../../etc", "%s%n{0}", "\ud800",
)  # fmt: skip


def mutate(content: bytes, rng: np.random.Generator, *, text: bool, structure: str | None = None) -> bytes:
    """The content with one to three defects; of what has a structure, often sound text with other values in it."""
    if structure is not None and rng.random() < 0.6:
        return _change_values(content, structure, rng)
    for _ in range(int(rng.integers(1, 4))):
        names = BYTES + 2 * TEXT if text else BYTES
        content = _change(content, str(rng.choice(names)), rng)
    return content


def _change(content: bytes, name: str, rng: np.random.Generator) -> bytes:
    n = len(content)
    if name in TEXT:
        return _change_text(content, name, rng)
    if n == 0 or name == "empty":
        return b""
    at = int(rng.integers(n))
    length = int(min(n - at, rng.integers(1, 2 + n // 4)))
    if name == "truncate":
        return content[:at]
    if name == "flip":
        changed = bytearray(content)
        for place in rng.integers(n, size=int(rng.integers(1, 9))):
            changed[place] ^= 1 << int(rng.integers(8))
        return bytes(changed)
    if name == "zero":
        return content[:at] + bytes(length) + content[at + length :]
    if name == "high":
        return content[:at] + b"\xff" * min(length, 8) + content[at + min(length, 8) :]
    if name == "remove":
        return content[:at] + content[at + length :]
    if name == "repeat":
        return content[: at + length] + content[at:]
    if name == "insert":
        return content[:at] + rng.bytes(length) + content[at:]
    if name == "random":
        return content[:at] + rng.bytes(length) + content[at + length :]
    other = int(rng.integers(n))
    first, second = sorted((at, other))
    return content[second:] + content[first:second] + content[:first]


def _change_text(content: bytes, name: str, rng: np.random.Generator) -> bytes:
    value = VALUES[int(rng.integers(len(VALUES)))]
    if name == "append":
        return content + value
    if name in ("value", "key"):
        pattern = rb"[-\w.]+" if name == "value" else rb"[\w]+(?=[\"']?:)"
        places = list(re.finditer(pattern, content))
        if not places:
            return content + value
        place = places[int(rng.integers(len(places)))]
        return content[: place.start()] + value + content[place.end() :]
    if name == "nest":
        return b"[" * 600 + content if rng.integers(2) else content + b"{a: " * 600
    lines = content.split(b"\n")
    at = int(rng.integers(len(lines)))
    if name == "line":
        del lines[at]
    elif name == "indent":
        lines[at] = b"   " + lines[at]
    else:
        lines.insert(at, lines[int(rng.integers(len(lines)))])
    return b"\n".join(lines)


def _change_values(content: bytes, structure: str, rng: np.random.Generator) -> bytes:
    """The same format with one to three values exchanged, removed or added."""
    if structure == "safetensors":
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + length])
        metadata = header["__metadata__"]
        inner = [name for name, value in metadata.items() if value[:1] in "{["]
        if inner and rng.random() < 0.8:
            metadata[inner[0]] = json.dumps(_exchange(json.loads(metadata[inner[0]]), rng))
        else:
            header = _exchange(header, rng)
        changed = json.dumps(header).encode()
        return struct.pack("<Q", len(changed)) + changed + content[8 + length :]
    if structure == "yaml":
        return yaml.safe_dump(_exchange(yaml.safe_load(content), rng)).encode(errors="surrogatepass")
    if structure == "json":
        return json.dumps(_exchange(json.loads(content), rng)).encode()
    lines = content.splitlines()
    at = int(rng.integers(len(lines)))
    lines[at] = json.dumps(_exchange(json.loads(lines[at]), rng)).encode()
    return b"\n".join(lines) + b"\n"


def _exchange(value: Any, rng: np.random.Generator) -> Any:
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(value))
        if not places:
            return deepcopy(OBJECTS[int(rng.integers(len(OBJECTS)))])
        holder, key = places[int(rng.integers(len(places)))]
        new = deepcopy(OBJECTS[int(rng.integers(len(OBJECTS)))])
        what = rng.random()
        if what < 0.15:
            del holder[key]
        elif what < 0.25 and isinstance(holder, dict):
            holder[str(new)[:20]] = holder.pop(key)
        else:
            holder[key] = new
    return value


def _places(value: Any) -> Any:
    """Every place in nested mappings and lists, as what holds it and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        yield value, key
        yield from _places(item)
