"""Checkpoints: all that training needs to go on as if nothing had happened, in one file written whole or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bures.files import atomic_file
from bures.training._errors import CheckpointError
from bures.training._recipe import Recipe
from bures.wording import listed, reason_of

__all__ = ["compare", "load_checkpoint", "save_checkpoint"]

SCHEMA = 1
DATA = "data."  # before the side in a fingerprint, whose value is a checksum


def save_checkpoint(path: str | Path, state: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> None:
    """Write a checkpoint; what was at ``path`` stays there until the new one is complete.

    Parameters
    ----------
    path : path
        The file.
    state : mapping
        Tensors and plain values.
    fingerprint : mapping of str to plain values
        What decides the training: a checkpoint can only be used where all of it is the same.
    """
    with atomic_file(path) as stream:
        torch.save({"schema": SCHEMA, "fingerprint": dict(fingerprint), "state": dict(state)}, stream)


def load_checkpoint(path: str | Path, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Read a checkpoint of a run with this fingerprint. Nothing but tensors and plain values is ever loaded."""
    path = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd file is reported below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not there; the run has no checkpoint to go on from") from None
    except Exception as error:  # what torch makes of a damaged file depends on the place of the damage
        raise CheckpointError(
            f"{path} is truncated or no checkpoint ({reason_of(error, 120)}); "
            "delete it to start the run again, or bring the file back"
        ) from error
    if not isinstance(content, dict) or not {"schema", "fingerprint", "state"} <= set(content):
        raise CheckpointError(f"{path} is no checkpoint of a run of bures")
    if content["schema"] != SCHEMA:
        raise CheckpointError(f"{path} has schema {content['schema']}; this version of bures reads schema {SCHEMA}")
    compare(path, content["fingerprint"], fingerprint)
    state: dict[str, Any] = content["state"]
    return state


def compare(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise where the fingerprint found in a file is not the expected one, naming what differs.

    A field that recipes did not have yet when the file was written has its default: later versions add fields so that
    trainings without them stay what they were.
    """
    defaults = Recipe().to_dict()
    there = {name: found.get(name, defaults.get(name)) for name in {**found, **expected}}
    differing = [name for name, value in there.items() if value != expected.get(name)]
    data = [name for name in differing if name.startswith(DATA)]
    if differing and differing == data:
        if there.get("data.evaluation") == there.get("data.target"):  # one domain, which is named once
            data = [name for name in data if name != "data.evaluation"] or data
        sides = " and of the ".join(name.removeprefix(DATA) for name in data)
        raise CheckpointError(
            f"{path}: the samples of the {sides}, or their classes, have changed since this was begun; bring the data "
            "back as they were and resume, or choose another output folder to begin anew with what there is now"
        )
    if differing:  # what samples are, their size for one, may follow from the recipe
        differing = [name for name in differing if name not in data]
        values = listed((f"{name} {there[name]!r} there, {expected.get(name)!r} here" for name in differing), 3)
        raise CheckpointError(
            f"{path} belongs to another recipe or other data: {values}; "
            "resume with the recipe of that run, or choose another output folder"
        )
