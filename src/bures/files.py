"""Files that appear whole or not at all: a full disk or a killed process leaves what was there before."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bures.wording import reason_of

__all__ = [
    "atomic_file",
    "check_output",
    "is_stream",
    "read_json",
    "read_text",
    "read_yaml",
    "to_json",
    "write_json",
    "write_text",
]

LARGEST_YAML = 10_000  # values, with those that aliases repeat
MOST_LINKS = 40  # in a row, as Linux follows them
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary stream whose content replaces ``path`` when the block ends, and is dropped when the block fails.

    A link stays, and what it points to is replaced. A pipe or a character device is no file to be replaced: the content
    is written into it when the block ends.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bures.files import atomic_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "note.txt")
    ...     with atomic_file(path) as stream:
    ...         _ = stream.write(b"all of it")
    ...     path.read_text()
    'all of it'
    """
    path = Path(path)
    try:
        with _into_stream(path) if is_stream(path) else _in_place_of(path) as stream:
            yield stream
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None:  # a stream does not say what could not be written
            error.filename = str(path)
        raise


@contextmanager
def _in_place_of(path: Path) -> Iterator[IO[bytes]]:
    """A file beside ``path``, or beside what it links to, that takes its place in the end."""
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


@contextmanager
def _into_stream(path: Path) -> Iterator[IO[bytes]]:
    """Memory that goes into a pipe or a device in the end: some formats go back in what they write, these cannot."""
    content = io.BytesIO()
    yield content
    sys.stdout.flush()  # it may be the same stream, and what was printed before comes first
    descriptor = _descriptor(path)
    # A descriptor is not opened by its name: a file that the shell adds to would be cut.
    with open(path if descriptor is None else os.dup(descriptor), "wb") as stream:
        stream.write(content.getbuffer())


def is_stream(path: str | Path) -> bool:
    """Whether what is written to ``path`` goes into a pipe, a device or an open descriptor, and makes no file.

    Raises for what is neither that nor a file that can be replaced: a socket, a disk.

    Examples
    --------
    >>> import os
    >>> from bures.files import is_stream
    >>> is_stream(os.devnull), is_stream("table.csv")
    (True, False)
    """
    if (descriptor := _descriptor(path)) is not None:
        try:
            os.fstat(descriptor)
        except OSError as error:
            raise OSError(f"output={str(path)!r} is no open descriptor of this process: {error.strerror}") from error
        return True
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):  # also a link to what does not exist yet
        return False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return True
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(
            f"output={str(path)!r} is neither a file nor a pipe; accepted is the name of a file, a link to one, a pipe "
            "or a character device"
        )
    return False


def _descriptor(path: str | Path) -> int | None:
    """The number behind a name such as /dev/stdout or /dev/fd/63, links followed; None of other names."""
    name = os.fspath(path)
    for _ in range(MOST_LINKS):
        folder, last = os.path.split(name)
        folder = os.path.realpath(folder)
        if last.isdecimal() and folder in ("/dev/fd", f"/proc/{os.getpid()}/fd"):
            return int(last)
        if not os.path.islink(name):
            return None
        name = os.path.join(folder, os.readlink(name))
    return None


def check_output(path: str | Path) -> Path:
    """Return the file to write; raise at once for what would fail only after the work is done.

    Examples
    --------
    >>> from bures.files import check_output
    >>> check_output("none/table.csv")
    Traceback (most recent call last):
    FileNotFoundError: output='none/table.csv': none is not a folder; make it first
    """
    file = Path(os.path.expanduser(path))  # of an unknown user it stays, as in shells
    if is_stream(file):
        if _descriptor(file) is None and not os.access(file, os.W_OK):
            raise PermissionError(f"output={str(path)!r} is not writable; choose another name")
        return file
    parent = (Path(os.path.realpath(file)) if file.is_symlink() else file).parent
    if not parent.is_dir():
        raise FileNotFoundError(f"output={str(path)!r}: {parent} is not a folder; make it first")
    if file.is_dir():
        raise IsADirectoryError(f"output={str(path)!r} is a folder; accepted is the name of a file")
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"output={str(path)!r}: {parent} is not writable; choose another folder")
    return file


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file in UTF-8, whole or not at all."""
    with atomic_file(path) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))  # JSON may name half characters, which UTF-8 has not
    return Path(path)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON proper, in which numbers that are not finite are null; with ``indent``, lists of numbers keep to a line.

    Examples
    --------
    >>> from bures.files import to_json
    >>> to_json({"values": [1.0, float("nan")]})
    '{"values": [1.0, null]}'
    """
    text = json.dumps(_finite(value), indent=indent, allow_nan=False)
    return text if indent is None else re.sub(r"\[[^][{}\"]*]", lambda numbers: " ".join(numbers[0].split()), text)


def write_json(path: str | Path, value: Any) -> Path:
    """Write a JSON file for people and programs, whole or not at all."""
    return write_text(path, to_json(value, indent=1) + "\n")


def read_json(text: str | bytes, source: object) -> Any:
    """What JSON says; a ValueError that names ``source`` where it cannot be read.

    Examples
    --------
    >>> from bures.files import read_json
    >>> read_json("[1, 2", "a.json")
    Traceback (most recent call last):
    ValueError: a.json is damaged: Expecting ',' delimiter: line 1 column 6 (char 5)
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also text that is no UTF-8, and numbers of thousands of digits
        raise ValueError(f"{source} is damaged: {error}") from error


def read_text(path: str | Path, source: object) -> str:
    """What a text file in UTF-8 says; a ValueError that names ``source`` where it is none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is no text in UTF-8: {error}") from error


def read_yaml(text: str, source: object) -> Any:
    """What YAML says, without making any object but plain ones; a ValueError that names ``source`` where it cannot.

    Aliases are followed up to a size that people write: a few lines of them can stand for more than memory holds.

    Examples
    --------
    >>> from bures.files import read_yaml
    >>> read_yaml("lr: 0.1", "a.yaml")
    {'lr': 0.1}
    >>> read_yaml("!!python/object/apply:os.getcwd []", "a.yaml")
    Traceback (most recent call last):
    ValueError: a.yaml is no valid YAML: could not determine a constructor for the tag ...
    """
    import yaml

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count_values(node, {})
        return loader.construct_document(node)
    except Exception as error:  # beside its own errors, PyYAML lets those of int(), of dates and of recursion through
        raise ValueError(f"{source} is no valid YAML: {reason_of(error, 300)}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _count_values(node: Any, known: dict[int, int | None]) -> int:
    """Values below a node, those behind aliases counted as often as they are repeated."""
    if id(node) in known:
        if (size := known[id(node)]) is None:
            raise ValueError("an alias stands for a value that holds it")
        return size
    known[id(node)] = None
    total = 1
    if not isinstance(node.value, str):
        for item in node.value:
            total += sum(_count_values(part, known) for part in (item if isinstance(item, tuple) else (item,)))
            if total > LARGEST_YAML:
                raise ValueError(f"more than {LARGEST_YAML} values, with those that aliases repeat")
    known[id(node)] = total
    return total


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
