"""Where a number comes from: the versions and the machine that made it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import bures

__all__ = ["command_line", "hardware", "shell_command", "versions"]

PACKAGES = ("torch", "torchvision", "lightning", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those its results depend on.

    Examples
    --------
    >>> from bures.provenance import versions
    >>> {"python", "bures", "torch"} <= set(versions())
    True
    """
    return {"python": platform.python_version(), "bures": bures.__version__, **_installed()}


@cache  # the metadata of packages take half a second to read, and grids of runs ask for them again and again
def _installed() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def hardware(device: str | torch.device = "cpu") -> dict[str, Any]:
    """The processor, and the accelerator where ``device`` is one.

    Examples
    --------
    >>> from bures.provenance import hardware
    >>> hardware()["cores"] >= 1
    True
    """
    found: dict[str, Any] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.device(device).type == "cuda":
        found["accelerator"] = torch.cuda.get_device_name(device)
    return found


def command_line() -> str:
    """The command that started this process, as a shell would take it; passwords in URLs are left out."""
    program, *arguments = sys.argv
    name = "bures" if Path(program).name in ("bures", "__main__.py") else Path(program).name
    return shlex.join([name, *(re.sub(r"(://[^:/@\s]*):[^/\s]*@", r"\1@", argument) for argument in arguments)])


def shell_command(*words: object) -> str:
    """A command of this package as a shell takes it when it is pasted: paths with spaces are quoted.

    Examples
    --------
    >>> from bures.provenance import shell_command
    >>> shell_command("adapt", "--resume", "my runs/first")
    "bures adapt --resume 'my runs/first'"
    """
    return shlex.join(["bures", *map(str, words)])
