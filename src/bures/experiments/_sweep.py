"""Many runs side by side: a grid of independent cells, each finished once, failures kept apart."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib
import torch

from bures.data import Domain, load_domain
from bures.data._registry import has_test_part
from bures.training import Recipe, adapt, load_recipe

__all__ = ["Cell", "Sweep", "read_results", "run_sweep"]


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

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


@dataclass(frozen=True)
class Sweep:
    """What came of a sweep: results of the cells that are finished, and the errors of those that are not."""

    results: list[dict[str, Any]]
    failures: dict[str, str]


def run_sweep(
    cells: Iterable[Cell],
    ledger: str | Path,
    *,
    data_root: str | Path | None = None,
    n_jobs: int = 1,
    accelerator: str = "auto",
    on_result: Callable[[dict[str, Any] | None, str | None, int, int], None] | None = None,
) -> Sweep:
    """Run the cells that the ledger does not hold yet, in their order, several at a time.

    Parameters
    ----------
    cells : iterable of Cell
        The grid.
    ledger : path
        A file of JSON lines, one for each finished cell; a sweep that was killed goes on where it stopped.
    data_root : path, optional
        Folder of the data sets.
    n_jobs : int, optional
        Processes side by side; joblib's backend decides where.
    accelerator : str, optional
        Of Lightning's trainer.
    on_result : callable, optional
        Called as ``on_result(result, error, done, total)`` after each cell, one of the first two being None.

    Returns
    -------
    Sweep
        Results of the cells asked for, in their order, and failures by key.
    """
    cells, path = list(cells), Path(ledger)
    path.parent.mkdir(parents=True, exist_ok=True)
    finished = {result["key"]: result for result in read_results(path)} if path.is_file() else {}
    missing = [cell for cell in cells if cell.key not in finished]
    failures: dict[str, str] = {}
    tasks = (joblib.delayed(_attempt)(cell, data_root, accelerator) for cell in missing)
    outcomes = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs")(tasks)
    for done, (key, result, error) in enumerate(outcomes, start=1):
        if result is not None:
            finished[key] = result
            _append(path, result)
        else:
            failures[key] = error
        if on_result is not None:
            on_result(result, error, done, len(missing))
    return Sweep([finished[cell.key] for cell in cells if cell.key in finished], failures)


def read_results(ledger: str | Path) -> list[dict[str, Any]]:
    """The results in a ledger; a last line that was cut off by a kill is left out."""
    results = []
    lines = Path(ledger).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            results.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"{ledger} is damaged in line {number}: {error}") from error
    return results


def _append(path: Path, result: Mapping[str, Any]) -> None:
    """Add a line; one that a kill has cut off is taken away first."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(result) + "\n")


def _attempt(
    cell: Cell, data_root: str | Path | None, accelerator: str
) -> tuple[str, dict[str, Any] | None, str | None]:
    torch.set_num_threads(1)  # processes side by side would compete for the cores
    try:
        return cell.key, _run(cell, data_root, accelerator), None
    except Exception:  # whatever it is, the other cells go on
        return cell.key, None, traceback.format_exc()


def _run(cell: Cell, data_root: str | Path | None, accelerator: str) -> dict[str, Any]:
    recipe = cell.build().locate_weights(data_root)
    size = recipe.reading_size
    root = None if data_root is None else str(data_root)
    source, target = _domain(cell.source, root, True, size), _domain(cell.target, root, True, size)
    evaluation = _domain(cell.target, root, False, size) if has_test_part(cell.target) else None
    folder = Path(tempfile.mkdtemp(prefix="bures-"))
    try:
        options: dict[str, Any] = {"evaluation": evaluation, "accelerator": accelerator, "checkpoint_every": 3600.0}
        manifest = adapt(source, target, recipe, folder / "run", **options).manifest
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kept = ("recipe", "seed", "network", "versions", "hardware", "notes", "epochs", "final")
    data = {side: manifest["data"][side] for side in ("source", "target", "evaluation")}
    described = {"key": cell.key, "task": f"{cell.source}->{cell.target}", "recipe_name": cell.recipe}
    result: dict[str, Any] = {**described, "method": cell.method, "command": cell.command, "data": data}
    result |= {name: _rounded(manifest[name]) for name in kept}
    if result["recipe"]["weights"] is not None:
        result["recipe"]["weights"] = Path(result["recipe"]["weights"]).name  # folders differ between machines
    return result


@lru_cache(maxsize=16)
def _domain(spec: str, data_root: str | None, train: bool, size: int | None) -> Domain:
    return load_domain(spec, data_root=data_root, train=train, size=size, in_memory=None)


def _rounded(value: Any) -> Any:
    """Numbers to six digits: ledgers are read by people too."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
