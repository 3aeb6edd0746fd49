"""What figures read of ledgers: the runs of one recipe and their epochs, or how to get what is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bures.experiments import grid_names, grid_results, load_grid, read_results
from bures.experiments._outcomes import changes_of
from bures.provenance import shell_command
from bures.training import RunFolder

__all__ = [
    "accuracies",
    "chosen_results",
    "folder_result",
    "hardware_words",
    "ledger_results",
    "on_tasks",
    "run_manifest",
    "shared_results",
    "task_words",
]

Results = Sequence[Mapping[str, Any]]


def ledger_results(path: str | Path) -> list[dict[str, Any]]:
    """The results of a ledger; where there are none, an error with the command that makes them."""
    path = Path(path)
    command = f"bures bench {path.stem}" + ("" if path.parent == Path("results") else f" --results {path.parent}")
    if path.is_dir() or (path.exists() and path.suffix != ".jsonl"):
        raise ValueError(f"{path} is no ledger; accepted is a file of JSON lines (.jsonl) that bures bench has written")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; make it with: {command}")
    if not (results := read_results(path)):
        raise ValueError(f"{path} holds no finished runs; make them with: {command}")
    return results


def shared_results(path: str | Path) -> list[dict[str, Any]]:
    """The results of a ledger with the cells of its grid that other grids in the folder have finished."""
    path = Path(path)
    if path.suffix != ".jsonl" or path.is_dir() or path.stem not in grid_names():
        return ledger_results(path)
    return grid_results(load_grid(path.stem), path.parent) or ledger_results(path)  # which says what is missing


def run_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of a run folder; where there is none, an error with the runs inside or the way to one."""
    folder = RunFolder(path)
    try:
        return folder.read_manifest()
    except FileNotFoundError as error:
        inside = sorted(entry.parent.name for entry in folder.path.glob("*/manifest.json"))
        command = shell_command("adapt", "-o", folder.path)
        hint = f"it holds the runs {', '.join(inside)}" if inside else f"make a run with: {command}"
        raise FileNotFoundError(f"{error}; {hint}") from error


def folder_result(path: str | Path) -> dict[str, Any]:
    """A run folder of `bures adapt` as a ledger would have it."""
    folder, manifest = RunFolder(path), run_manifest(path)
    if not manifest.get("epochs"):
        resume = shell_command("adapt", "--resume", folder.path)
        raise ValueError(f"{folder.path} has no finished epoch; go on with: {resume}")
    recipe, data = manifest["recipe"], manifest["data"]
    named = {"recipe_name": "of the run", "method": recipe["method"], "seed": recipe["seed"], "changes": {}}
    return {
        "key": str(folder.path),
        "task": f"{data['source']['name']}->{data['target']['name']}",
        "epochs": json.loads(json.dumps(manifest["epochs"])),
        "final": manifest.get("final") or {},
        "hardware": manifest.get("hardware") or {},
        **named,
    }


def chosen_results(results: Results, *, recipe: str | None = None, tasks: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The runs of one recipe without changes, on some tasks or all.

    Without ``recipe``, the one of which most runs are finished is taken: methods are compared under one recipe.
    Tasks are written as results name them or with a colon, ``usps:mnist``.
    """
    named = [result for result in results if result.get("recipe_name") is not None and result.get("task") is not None]
    plain = [result for result in named if not changes_of(result)]
    known = Counter(result["recipe_name"] for result in plain)
    if not known:
        raise ValueError("the ledger holds only runs with changed recipes; accepted are runs of a recipe as it is")
    if recipe is None:
        recipe = known.most_common(1)[0][0]
    elif recipe not in known:
        raise ValueError(f"recipe={recipe!r} is not in the ledger; accepted are {', '.join(known)}")
    return on_tasks([dict(result) for result in plain if result["recipe_name"] == recipe], tasks)


def on_tasks(results: Sequence[dict[str, Any]], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """The results on some tasks, or all where none are named."""
    words = {name: task_words(name) for name in dict.fromkeys(result["task"] for result in results)}
    wanted = {_pair(task) for task in tasks}
    spelled = {pair for name, word in words.items() for pair in (_pair(name), _pair(word))}
    if unknown := sorted(wanted - spelled):
        known = ", ".join(word.replace(" → ", ":") for word in words.values())
        raise ValueError(f"task {unknown[0].replace('->', ':')!r} is not among the runs; accepted are {known}")
    return [
        result for result in results if not wanted or {_pair(result["task"]), _pair(words[result["task"]])} & wanted
    ]


def accuracies(results: Results) -> pd.DataFrame:
    """Accuracies after the last epoch in percent, a row for each method, task and seed."""
    rows = [
        {
            "method": result["method"],
            "task": result["task"],
            "seed": result["seed"],
            "accuracy": 100 * result["final"]["accuracy"],
        }
        for result in results
        if (result.get("final") or {}).get("accuracy") is not None
    ]
    return pd.DataFrame(rows, columns=["method", "task", "seed", "accuracy"])


def task_words(task: str) -> str:
    """A task for people: ``office10/resnet50.npz#amazon->office10/resnet50.npz#dslr`` is ``amazon → dslr``."""
    return " → ".join(side.rpartition("#")[2].rstrip("/").rpartition("/")[2] for side in task.split("->"))


def hardware_words(results: Iterable[Mapping[str, Any]]) -> str:
    """The machines of the runs."""
    found = dict.fromkeys(
        str(machine.get("accelerator") or machine.get("processor") or "a machine that is not named")
        for machine in (result.get("hardware") or {} for result in results)
    )
    return " and ".join(found)


def _pair(task: str) -> str:
    return task.replace(" → ", "->").replace("→", "->").replace(":", "->")
