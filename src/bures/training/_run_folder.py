"""A run folder: what was run, how it went and what came of it, each file written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bures.data import Domain, ImageFiles, TensorSamples
from bures.files import read_json, write_json, write_text
from bures.locks import FileLock
from bures.training._csv import table_csv, write_predictions
from bures.training._errors import RunInUseError

__all__ = ["COMPARISON", "RunFolder", "check_not_of_run", "checksum"]

SCHEMA = 1
COMPARISON = "adapt.json"  # what `bures adapt` was asked for, in a folder of several runs


class RunFolder:
    """The files of a run.

    ``manifest.json`` says what was run and with which outcome, ``recipe.yaml`` repeats the recipe, ``log.csv`` has a
    row for each epoch, ``checkpoints/last.ckpt`` is what a resumption starts from, ``model.safetensors`` the trained
    network, ``best.safetensors`` that of the epoch with the best label-free score, ``predictions.csv`` and
    ``confusion.csv`` what it says of the target, ``samples.safetensors`` features, predictions and small pictures of
    some samples, for a report.

    Parameters
    ----------
    path : path
        The folder; it need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def recipe(self) -> Path:
        """The recipe."""
        return self.path / "recipe.yaml"

    @property
    def manifest(self) -> Path:
        """What was run and with which outcome."""
        return self.path / "manifest.json"

    @property
    def log(self) -> Path:
        """A row for each epoch."""
        return self.path / "log.csv"

    @property
    def checkpoint(self) -> Path:
        """What a resumption starts from."""
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def model(self) -> Path:
        """The network after the last epoch, as it was evaluated."""
        return self.path / "model.safetensors"

    @property
    def best_model(self) -> Path:
        """The network of the epoch with the best label-free score, as it was evaluated."""
        return self.path / "best.safetensors"

    @property
    def predictions(self) -> Path:
        """Predicted classes and probabilities of the target."""
        return self.path / "predictions.csv"

    @property
    def confusion(self) -> Path:
        """True against predicted classes."""
        return self.path / "confusion.csv"

    @property
    def samples(self) -> Path:
        """Features, predictions and small pictures of some samples of both domains."""
        return self.path / "samples.safetensors"

    def exists(self) -> bool:
        """Whether a run lies here."""
        return self.manifest.is_file()

    def files(self) -> tuple[Path, ...]:
        """What a run is kept in, whether it is there or not; a report or a drawing can be made again."""
        outcome = (self.model, self.best_model, self.predictions, self.confusion, self.samples)
        return (self.manifest, self.recipe, self.log, self.checkpoint, *outcome)

    @property
    def lock(self) -> Path:
        """There while a process works on the run, and names it."""
        return self.path / ".lock"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder where there is none, and keep other processes from it; an error where one works on it."""
        self._make(self.path)
        try:
            lock = FileLock.take(self.lock)
        except OSError as error:
            raise OSError(f"output={str(self.path)!r} cannot be written: {error.strerror or error}") from error
        if lock is None:
            holder = FileLock.holder(self.lock) or "another process"
            raise RunInUseError(
                f"output={str(self.path)!r}: {holder} works on this run; wait for its end or stop it, then resume, or "
                f"choose another folder. Should that process be gone, delete {self.lock}"
            )
        try:
            yield
        finally:
            lock.release()

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"output={str(self.path)!r} cannot be made: {error.strerror or error}") from error

    def create(self) -> None:
        """Begin a run in the folder, which is best `held`; an error where it holds anything."""
        self.claim()
        self.make_room_for_checkpoints()

    def claim(self) -> None:
        """Make the folder where there is none; an error where it holds anything."""
        self._make(self.path)
        self.remove_partial_files()
        ours = (self.lock, self.checkpoint.parent)  # a run that was killed at once leaves an empty folder
        held = [entry.name for entry in self.path.iterdir() if entry not in ours or _holds_files(entry)]
        if held:
            raise FileExistsError(
                f"output={str(self.path)!r} is not empty ({held[0]}, ...); choose another folder, or resume the run "
                "that lies there"
            )

    def make_room_for_checkpoints(self) -> None:
        """Make the folder of checkpoints; not before it is known that a run lies here, or may."""
        self._make(self.checkpoint.parent)

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint and its folder: nobody will go on from it."""
        self.checkpoint.unlink(missing_ok=True)
        with suppress(OSError):  # never made, or not ours alone
            self.checkpoint.parent.rmdir()

    def remove_partial_files(self) -> None:
        """Remove what a killed process left of files that it was writing."""
        for part in (self.path, self.checkpoint.parent):
            for file in part.glob(".*.????????.partial"):
                file.unlink(missing_ok=True)

    def read_manifest(self) -> dict[str, Any]:
        """The manifest; an error where there is none or it is damaged."""
        if not self.exists():
            raise FileNotFoundError(f"{self.path} is no run folder: {self.manifest.name} is missing")
        content = read_json(self.manifest.read_bytes(), self.manifest)
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ValueError(f"{self.manifest} is not of schema {SCHEMA}, which this version of bures reads")
        return content

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Write the manifest, one that was read or a new one."""
        write_json(self.manifest, {"schema": SCHEMA, **content})

    def write_log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the rows of the epochs; a column for every name that occurs."""
        columns = list(dict.fromkeys(name for row in rows for name in row))
        write_text(self.log, table_csv(columns, ([row.get(name, "") for name in columns] for row in rows)))

    def write_predictions(self, domain: Domain, probabilities: Tensor) -> None:
        """Write the predicted class and the probabilities of each sample."""
        write_predictions(self.predictions, domain, probabilities, domain.class_names)

    def write_confusion(self, confusion: Tensor, class_names: Sequence[str]) -> None:
        """Write the counts, a row for each true class."""
        rows = ([name, *counts] for name, counts in zip(class_names, confusion.tolist(), strict=True))
        write_text(self.confusion, table_csv(["true class", *class_names], rows))


def check_not_of_run(output: str | Path) -> None:
    """Raise an error where a file that is to be written is one in which a run is kept, of which nothing may be lost."""
    place = Path(os.path.realpath(os.path.expanduser(output)))
    for folder in map(RunFolder, place.parents[:2]):
        if place in folder.files() and folder.exists():
            raise ValueError(
                f"output={str(output)!r} is a file of the run in {folder.path}, and would be lost; choose another file"
            )


def _holds_files(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def checksum(domain: Domain) -> str:
    """A hash of a domain's samples and of the labels it shows; for image files of their names and sizes.

    Parameters
    ----------
    domain : Domain

    Examples
    --------
    >>> from bures.data import optdigits
    >>> from bures.training import checksum
    >>> checksum(optdigits()) == checksum(optdigits()) != checksum(optdigits().take([0, 1]))
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((len(domain), domain.samples.shape, domain.class_names)).encode())
    if isinstance(domain.samples, TensorSamples):
        for part in torch.split(domain.samples.tensor, 4096):
            digest.update(part.cpu().contiguous().numpy().data)
    elif isinstance(domain.samples, ImageFiles):
        for path in map(Path, domain.samples.paths):
            digest.update(repr((path.name, path.stat().st_size)).encode())
    if domain.labels is not None:
        digest.update(domain.labels.contiguous().numpy().data)
    return digest.hexdigest()
