"""Run folders as a report reads them: what is there, and in words what is not."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from bures.kinds import FIELDS, LIST, NUMBER, WHOLE, check_kinds
from bures.provenance import shell_command
from bures.training import RunFolder
from bures.training._kept import KeptSamples, read_kept
from bures.training._run_folder import COMPARISON

__all__ = ["RunRecord", "baseline_of", "last_value", "read_run", "read_runs", "sibling_baseline"]

KINDS = {
    **dict.fromkeys(("recipe", "network", "hardware", "versions", "data", "data.*", "final", "final.best"), FIELDS),
    **dict.fromkeys((f"data.{side}.samples" for side in ("source", "target", "evaluation")), WHOLE),
    **dict.fromkeys(("notes", "epochs"), LIST),
    "epochs.*": FIELDS,
    **dict.fromkeys((f"epochs.*.{name}" for name in ("target_accuracy", "target_score", "seconds")), NUMBER),
    "epochs.*.target_effective_classes": NUMBER,
    **dict.fromkeys((f"final.{name}" for name in ("accuracy", "score", "effective_classes", "seconds")), NUMBER),
    "final.accuracy_by_batchnorm": FIELDS,
    "final.accuracy_by_batchnorm.*": NUMBER,
    "final.best.accuracy": NUMBER,
}


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run as a report reads it.

    Parameters
    ----------
    path : Path
        The run folder.
    manifest : dict
        Of a run that is finished or not.
    epochs : list of dict
        A row for each epoch that came to its end.
    class_names : tuple of str
        Empty where they are not known.
    confusion : integer array (K, K) or None
        Row the true class, column the predicted one.
    kept : KeptSamples or None
        Features, predictions and pictures of some samples.
    missing : list of str
        What is not there, and how to get it.
    """

    path: Path
    manifest: dict[str, Any]
    epochs: list[dict[str, Any]]
    class_names: tuple[str, ...]
    confusion: NDArray[np.int64] | None
    kept: KeptSamples | None
    missing: list[str] = field(default_factory=list)

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.manifest["recipe"].get("method", "?"))

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.manifest.get("status") == "finished" and isinstance(self.manifest.get("final"), dict)

    @property
    def final(self) -> dict[str, Any]:
        """What came of the run; empty where it is not finished."""
        return self.manifest["final"] if self.finished else {}

    @property
    def accuracy(self) -> float | None:
        """Of the last epoch; of an unfinished run, of the last epoch up to now."""
        value = self.final.get("accuracy") if self.finished else last_value(self.epochs, "target_accuracy")
        return None if value is None else float(value)

    @property
    def task(self) -> tuple[str, ...]:
        """What the accuracy was measured on: runs with the same can be compared."""
        data = self.manifest["data"]
        return tuple(str(data[side].get("checksum")) for side in ("source", "evaluation"))


def last_value(rows: Sequence[dict[str, Any]], name: str) -> Any:
    """The last value of a column, None where there is none."""
    return next((row[name] for row in reversed(rows) if row.get(name) is not None), None)


def read_runs(paths: Iterable[str | Path]) -> list[RunRecord]:
    """Read run folders, and all runs of folders that hold several.

    Parameters
    ----------
    paths : iterable of paths
        Run folders, or folders that ``bures adapt`` has made for several methods.

    Returns
    -------
    list of RunRecord
        Each run once.

    Examples
    --------
    >>> from bures.report import read_runs
    >>> read_runs(["runs/none"])
    Traceback (most recent call last):
    FileNotFoundError: runs/none does not exist; accepted are run folders of bures adapt
    """
    folders = [folder for path in paths for folder in _run_folders(Path(path))]
    if not folders:
        raise ValueError("no run folder is given; accepted is at least one")
    unique = {folder.resolve(): folder for folder in reversed(folders)}
    return [read_run(folder) for folder in reversed(unique.values())]


def _run_folders(path: Path) -> list[Path]:
    if RunFolder(path).exists():
        return [path]
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; accepted are run folders of bures adapt")
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is a file; accepted are run folders of bures adapt")
    found = sorted(entry.parent for entry in path.glob("*/manifest.json"))
    if not found:
        raise FileNotFoundError(
            f"{path} is no run folder: manifest.json is missing, and no folder in it holds a run; accepted are run "
            "folders of bures adapt"
        )
    order = _methods_asked_for(path) or ["source"]  # what others are compared with comes first
    return sorted(found, key=lambda folder: order.index(folder.name) if folder.name in order else len(order))


def _methods_asked_for(path: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads((path / COMPARISON).read_text(encoding="utf-8"))["methods"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def read_run(path: str | Path) -> RunRecord:
    """Read one run folder; an error where its manifest is missing or damaged."""
    folder = RunFolder(path)
    manifest = folder.read_manifest()
    try:
        check_kinds(manifest, KINDS)
    except ValueError as error:
        raise ValueError(f"{folder.manifest} is damaged: {error}") from error
    for name in ("recipe", "data"):
        if not isinstance(manifest.get(name), dict):
            raise ValueError(f"{folder.manifest} is damaged: {name!r} is missing")
    sides = manifest["data"]
    if not all(isinstance(sides.get(side), dict) for side in ("source", "target", "evaluation")):
        raise ValueError(f"{folder.manifest} is damaged: 'data' does not describe source, target and evaluation")
    missing: list[str] = []
    if manifest.get("status") != "finished":
        missing.append(_unfinished(folder, manifest))
    kept = _read_part(lambda: read_kept(folder.samples), folder.samples, missing)
    confusion = _read_part(lambda: _read_confusion(folder.confusion), folder.confusion, missing)
    names = kept.class_names if kept else _model_classes(folder) or (confusion[0] if confusion else ())
    counts = confusion[1] if confusion and (not names or len(names) == len(confusion[1])) else None
    if manifest.get("status") == "finished" and kept is None and not folder.samples.is_file():
        missing.append(
            f"{folder.samples.name} is not in the run folder, so that there is no feature map, no shift before and "
            f"after, no pictures and no calibration. Get it with: {_remedy(folder, manifest)}"
        )
    return RunRecord(folder.path, manifest, _epochs(folder, manifest, missing), tuple(names), counts, kept, missing)


def _remedy(folder: RunFolder, manifest: dict[str, Any]) -> str:
    """How to make the samples of a run anew; only `bures adapt` has noted where its data lie."""
    if manifest["data"].get("origin"):
        return shell_command("report", "--refresh", folder.path)
    return f"bures.training.refresh_samples({str(folder.path)!r}, source, target)"


def _unfinished(folder: RunFolder, manifest: dict[str, Any]) -> str:
    status, reason = str(manifest.get("status")), manifest.get("reason")
    what = {"running": "is still running, or was killed", "stopped": "was stopped", "failed": "failed"}
    because = f" ({str(reason).rstrip('.')})" if reason else ""
    return (
        f"This run {what.get(status, f'has the status {status!r}')}{because}: what follows is what there is up to now. "
        f"Finish it with: {shell_command('adapt', '--resume', folder.path)}"
    )


def _read_part(read: Callable[[], Any], file: Path, missing: list[str]) -> Any:
    """What a file holds; None where it is not there or, with a note, where it is damaged."""
    if not file.is_file():
        return None
    try:
        return read()
    except (OSError, ValueError, csv.Error) as error:
        missing.append(f"{file.name} cannot be read and is left out: {error}")
        return None


def _read_confusion(file: Path) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    with open(file, encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        names = tuple(next(rows, [])[1:])
        counts = np.array([np.array(row[1:], dtype=np.int64) for row in rows])
    if not names or counts.shape != (len(names), len(names)):
        raise ValueError(f"{file} is damaged: {counts.shape} counts for {len(names)} classes")
    return names, counts


def _model_classes(folder: RunFolder) -> tuple[str, ...]:
    """Names of the classes from the header of the model; weights are not read."""
    try:
        with safe_open(folder.model, framework="np") as content:
            return tuple(map(str, json.loads((content.metadata() or {})["bures"])["class_names"]))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return ()


def _epochs(folder: RunFolder, manifest: dict[str, Any], missing: list[str]) -> list[dict[str, Any]]:
    """Rows of the manifest or, while the run goes on, of the log."""
    if manifest.get("epochs"):
        return [dict(row) for row in manifest["epochs"] if row]
    return _read_part(lambda: _read_log(folder.log), folder.log, missing) or []


def _read_log(file: Path) -> list[dict[str, Any]]:
    with open(file, encoding="utf-8", newline="") as stream:
        return list(_numbers(csv.DictReader(stream)))


def _numbers(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        values = {}
        for name, text in row.items():
            try:
                values[name] = float(text)
            except (TypeError, ValueError):
                continue
        yield values


def baseline_of(record: RunRecord, others: Iterable[RunRecord]) -> RunRecord | None:
    """The finished source-only run on the same data, to compare a run with; the one of the same seed where there is."""
    if record.method == "source":
        return None
    fitting = [other for other in others if other.method == "source" and other.finished and other.task == record.task]
    seed = record.manifest.get("seed")
    return min(fitting, key=lambda other: other.manifest.get("seed") != seed, default=None)


def sibling_baseline(record: RunRecord) -> RunRecord | None:
    """The source-only run in the folder beside a run, as a comparison of methods leaves it."""
    place = record.path.resolve().parent / "source"
    if record.method == "source" or not RunFolder(place).exists():
        return None
    try:
        return baseline_of(record, [read_run(place)])
    except (OSError, ValueError):
        return None
