"""Weights from files: read safely, fitted strictly."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from bures.wording import listed

__all__ = ["ALLOW_DOWNLOAD", "StrPath", "fetch", "fit_weights", "read_weights"]

ALLOW_DOWNLOAD = (
    "allow the download with download=True (in a recipe download_weights: true, for bures adapt --set "
    "download_weights=true, for bures features extract --download)"
)

StrPath = str | os.PathLike[str]

SUFFIXES = (".pth", ".pt", ".safetensors")
LISTED = 10


def read_weights(path: StrPath) -> dict[str, Tensor]:
    """Read a state dict from a file, on the CPU, without running any code in it.

    Parameters
    ----------
    path : path
        A ``.pth`` or ``.pt`` file (read with ``weights_only=True``) or a ``.safetensors`` file. A state dict under the
        key "state_dict" or "model", and the prefix "module." of DataParallel, are understood.

    Returns
    -------
    dict of str to Tensor
        Names and weights, with the dtypes of the file.

    Examples
    --------
    >>> import tempfile, torch
    >>> from bures.networks import read_weights
    >>> with tempfile.NamedTemporaryFile(suffix=".pt") as file:
    ...     torch.save({"weight": torch.ones(2)}, file.name)
    ...     read_weights(file.name)["weight"]
    tensor([1., 1.])
    """
    path = Path(os.path.expanduser(path))
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"weights={str(path)!r} has an unknown format; accepted are files {', '.join(SUFFIXES)}")
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"weights={str(path)!r} {problem}; accepted is a file {', '.join(SUFFIXES)}")
    try:
        if path.suffix.lower() == ".safetensors":
            content: object = safetensors.torch.load_file(path, device="cpu")
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except Exception as error:  # what a damaged or foreign file raises is anyone's guess
        reason = str(error).split("\n", maxsplit=1)[0][:200]
        raise ValueError(
            f"weights={str(path)!r} could not be read as a state dict: the file is damaged, or it is not a mapping of "
            f"names to tensors alone, which is all that is loaded ({type(error).__name__}: {reason})"
        ) from error
    return _state_dict(content, path)


def _state_dict(content: object, path: Path) -> dict[str, Tensor]:
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise ValueError(f"weights={str(path)!r} holds a {type(content).__name__}; accepted is a state dict")
    if not content:
        raise ValueError(f"weights={str(path)!r} holds an empty state dict")
    state: OrderedDict[str, Tensor] = OrderedDict()
    prefix = "module." if all(str(name).startswith("module.") for name in content) else ""
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ValueError(
                f"weights={str(path)!r} holds a {type(value).__name__} under {name!r}; accepted is a state dict, "
                "which maps names to tensors"
            )
        state[name.removeprefix(prefix)] = value
    if not prefix and hasattr(content, "_metadata"):  # versions of the layers, by which torch converts old files
        state._metadata = content._metadata  # type: ignore[attr-defined]
    return state


def fit_weights(module: nn.Module, state: Mapping[str, Tensor], *, source: str, ignore: Collection[str] = ()) -> None:
    """Load ``state`` into ``module``; everything must fit, except names under the prefixes ``ignore``.

    The error lists what is missing, unexpected, of another shape or not finite. After an error the module is partly
    loaded and must not be used.
    """
    given: OrderedDict[str, Tensor] = OrderedDict()
    if hasattr(state, "_metadata"):
        given._metadata = state._metadata  # type: ignore[attr-defined]
    for name, value in state.items():
        if not name.startswith(tuple(ignore)):
            given[_renamed(name)] = value
    own = module.state_dict()
    misshapen = [name for name in given if name in own and given[name].shape != own[name].shape]
    shapes = [f"{name} {tuple(given[name].shape)} instead of {tuple(own[name].shape)}" for name in misshapen]
    broken = [name for name, value in given.items() if value.is_floating_point() and not value.isfinite().all()]
    for name in misshapen:
        del given[name]
    try:
        fitted = module.load_state_dict(given, strict=False)
    except RuntimeError as error:  # a layer that converts an old file may find what the check above cannot see
        raise ValueError(f"{source} does not fit: {error}") from error
    missing = [name for name in fitted.missing_keys if name not in misshapen]
    problems = {
        "missing": missing,
        "unexpected": fitted.unexpected_keys,
        "of another shape": shapes,
        "not finite": broken,
    }
    found = [f"{len(names)} {problem}: {listed(names, LISTED)}" for problem, names in problems.items() if names]
    if found:
        raise ValueError(f"{source} does not fit the network; {'; '.join(found)}")


def _renamed(name: str) -> str:
    """The name of a weight today; torchvision's DenseNet files have names that no module can have any more."""
    return re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2", name)


def fetch(url: str, *, download: bool, argument: str) -> Path:
    """The file of ``url`` in torch hub's folder; downloaded only if ``download`` and it is not there."""
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", maxsplit=1)[-1]
    if path.is_file():
        return path
    if not download:
        raise FileNotFoundError(
            f"{argument} needs the file {path}, which is not there; put {url} there, {ALLOW_DOWNLOAD}, or give the "
            "path of a local file as weights"
        )
    digest = re.search(r"-([a-f0-9]{8,})\.", path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(path), digest.group(1) if digest else None, progress=False)
    except (OSError, RuntimeError) as error:
        raise OSError(
            f"{argument}: downloading {url} failed ({error}); put the file at {path}, or give the path of a local file "
            "as weights"
        ) from error
    return path
