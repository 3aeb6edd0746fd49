"""Tensors with settings in one safetensors file: written whole or not at all, read without running any code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from bures.files import atomic_file, read_json, to_json

__all__ = ["check_schema", "read_tensors", "write_tensors"]


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], *, content: str, schema: int
) -> Path:
    """Write tensors and settings (what JSON holds); ``content`` and ``schema`` say what is in the file.

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> from bures.tensor_files import read_tensors, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.safetensors")
    ...     _ = write_tensors(path, {"a": torch.ones(2)}, {"seed": 3}, content="example", schema=1)
    ...     read_tensors(path, content="example", schema=1)
    ({'a': tensor([1., 1.])}, {'seed': 3})
    """
    metadata = {"content": content, "schema": str(schema), "settings": to_json(dict(settings))}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_file(path) as stream:
        stream.write(safetensors.torch.save(plain, metadata))
    return Path(path)


def read_tensors(path: str | Path, *, content: str, schema: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_tensors` wrote; an error where the file holds something else or comes from a later version."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r} {'is a folder' if path.is_dir() else 'does not exist'}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
    except Exception as error:  # what a damaged file raises is anyone's guess
        raise ValueError(f"{str(path)!r} is damaged, or no safetensors file ({error})") from error
    if metadata.get("content") != content:
        raise ValueError(f"{str(path)!r} holds {metadata.get('content', 'something else')}; accepted is {content}")
    check_schema(str(path), metadata.get("schema"), schema)
    settings = read_json(metadata.get("settings", ""), repr(str(path)))
    if not isinstance(settings, dict):
        raise ValueError(f"{str(path)!r} is damaged: its settings are a {type(settings).__name__}")
    return tensors, settings


def check_schema(source: str, found: object, known: int) -> None:
    """Raise unless ``source`` was written under a schema that this version knows."""
    if str(found) != str(known):
        raise ValueError(
            f"{source} has schema {found}, which this version cannot read; accepted is {known}: "
            "read it with the version of bures that wrote it"
        )
