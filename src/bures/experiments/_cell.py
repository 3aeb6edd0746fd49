"""One run of a sweep: a network trained with a recipe, a method and a seed, and the line that comes of it."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import torch

from bures.data import Domain, load_domain
from bures.data._registry import has_test_part
from bures.experiments._ledger import SCHEMA
from bures.provenance import versions
from bures.training import CheckpointError, Recipe, Run, RunFolder, adapt, load_recipe
from bures.training._head_training import HEAD_FIELDS

__all__ = ["Cell", "RunnableCell", "load_cached", "noted_warnings", "one_thread", "rounded"]

# What a ledger keeps of an epoch; the rest can be had by running the cell again.
# "ckb" and "means" are the terms of the alignment, "seconds" the clock: figures of trainings need them.
EPOCH_COLUMNS = ("step", "loss", "ckb", "means", "target_accuracy", "target_score", "seconds")
SCORES = "score_"  # columns of validators, by which `bures.selection.study` compares them


class RunnableCell(Protocol):
    """What a sweep asks of a cell."""

    @property
    def key(self) -> str:
        """What tells the cell from others."""

    @property
    def command(self) -> str:
        """The command that repeats the cell."""

    @property
    def method(self) -> str:
        """Name of the method."""

    def run(self, data_root: str | Path | None, accelerator: str, unfinished: Path | None) -> dict[str, Any]:
        """Do the work and say what came of it, with the key under ``key``; a folder keeps its state until then."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch take one core: processes side by side would compete for them. A process may go on to other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Cell:
    """One training of a sweep.

    Parameters
    ----------
    source, target : str
        Domains, as `bures.data.load_domain` takes them.
    recipe : str
        Name of a recipe, or a YAML file.
    method : str
        Name of a method.
    seed : int
        Seed of the run.
    changes : mapping, optional
        Fields of the recipe that differ, as in `Recipe.override`.

    Examples
    --------
    >>> from bures.experiments import Cell
    >>> Cell("usps", "mnist", "paper-code", "ckb", 0, {"epochs": 5}).command
    'bures adapt --source usps --target mnist --recipe paper-code --method ckb --seed 0 --set epochs=5'
    """

    source: str
    target: str
    recipe: str
    method: str
    seed: int
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The run would be of another method or seed than its line in the ledger says.
        for name in ("method", "seed"):
            if name in self.changes:
                raise ValueError(f"{name} is no change of a cell, which has one of its own; choose it by that")

    @property
    def key(self) -> str:
        """What tells the cell from others."""
        changes = [f"{name}={json.dumps(value)}" for name, value in sorted(self.changes.items())]
        return "|".join([self.source, self.target, self.recipe, self.method, str(self.seed), *changes])

    @property
    def command(self) -> str:
        """The command that repeats the cell."""
        words = ["bures", "adapt", "--source", self.source, "--target", self.target, "--recipe", self.recipe]
        words += ["--method", self.method, "--seed", str(self.seed)]
        for name, value in self.changes.items():
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        return shlex.join(words)

    def build(self) -> Recipe:
        """The recipe with method, seed and changes."""
        return load_recipe(self.recipe).override({"method": self.method, "seed": self.seed, **self.changes})

    @one_thread()
    def run(
        self, data_root: str | Path | None = None, accelerator: str = "auto", unfinished: Path | None = None
    ) -> dict[str, Any]:
        """Train, and give what a ledger keeps of the run.

        Parameters
        ----------
        data_root : path, optional
            Folder of the data sets.
        accelerator : str, optional
            Of Lightning's trainer.
        unfinished : path, optional
            Folder for the state of the training, from which it goes on where it was cut off; who calls removes it when
            the result is safe. None begins anew.
        """
        recipe = self.build().locate_weights(data_root)
        size = recipe.reading_size
        root = None if data_root is None else str(data_root)
        source, target = load_cached(self.source, root, True, size), load_cached(self.target, root, True, size)
        evaluation = load_cached(self.target, root, False, size) if has_test_part(self.target) else None
        options: dict[str, Any] = {"evaluation": evaluation, "accelerator": accelerator, "keep_files": False}
        with noted_warnings() as notes, _state_folder(unfinished) as folder:
            train = partial(adapt, source, target, recipe, folder, **options)
            manifest = _go_on_or_begin(folder, train).manifest
        shown = manifest["recipe"]
        if shown["weights"] is not None:
            shown["weights"] = Path(shown["weights"]).name  # folders differ between machines
        sides = ("source", "target", "evaluation")
        described = ("name", "samples", "checksum")
        return {
            "schema": SCHEMA,
            "key": self.key,
            "kind": "network",
            "task": f"{self.source}->{self.target}",
            "recipe_name": self.recipe,
            "method": self.method,
            "seed": self.seed,
            "changes": dict(self.changes),
            "command": self.command,
            "final": rounded(manifest["final"]),
            "epochs": _columns(manifest["epochs"]),
            "notes": list(dict.fromkeys([*manifest["notes"], *notes])),
            "data": {side: {name: manifest["data"][side][name] for name in described} for side in sides},
            "recipe": rounded(shown),
            **{name: rounded(manifest[name]) for name in (*HEAD_FIELDS, "resumed") if name in manifest},
            "versions": manifest["versions"],
            "hardware": manifest["hardware"],
        }


@contextmanager
def _state_folder(unfinished: Path | None) -> Iterator[Path]:
    """The folder asked for; a passing one where none is, or on a machine that does not share the ledger's disk."""
    if unfinished is not None and unfinished.parent.is_dir():
        try:
            yield unfinished
        except BaseException:
            if not RunFolder(unfinished).checkpoint.is_file():  # nothing to go on from
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return
    with tempfile.TemporaryDirectory(prefix="bures-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "run"


def _go_on_or_begin(folder: Path, train: Callable[..., Run]) -> Run:
    """Resume the training whose state lies in the folder, where it is a part of this one; else begin it there."""
    if _has_state(folder):
        with suppress(CheckpointError):  # damaged, of other data, or of a recipe that has changed since
            return train(resume=True)
    shutil.rmtree(folder, ignore_errors=True)
    return train()


def _has_state(folder: Path) -> bool:
    """Whether a training by the same versions of all packages was begun in the folder, and not finished."""
    try:
        manifest = RunFolder(folder).read_manifest()
    except (OSError, ValueError):  # not there, or damaged
        return False
    # A finished one, whose line was lost, is run again.
    return manifest.get("versions") == versions() and manifest.get("status") != "finished"


def _columns(epochs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What a ledger keeps of the epochs: a list for each column that any of them has."""
    found = dict.fromkeys(name for row in epochs for name in row)
    kept = [name for name in EPOCH_COLUMNS if name in found] + [name for name in found if name.startswith(SCORES)]
    return {name: [rounded(row.get(name)) for row in epochs] for name in kept}


@lru_cache(maxsize=16)
def load_cached(spec: str, data_root: str | None, train: bool, size: int | None) -> Domain:
    """A domain that the cells of one process share."""
    return load_domain(spec, data_root=data_root, train=train, size=size, in_memory=None)


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """The warnings of a block, each once, as notes: a sweep has no one to show them to."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield notes
    notes += dict.fromkeys(str(warning.message) for warning in caught if issubclass(warning.category, UserWarning))


def rounded(value: Any) -> Any:
    """Numbers to six digits: ledgers are read by people too."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value
