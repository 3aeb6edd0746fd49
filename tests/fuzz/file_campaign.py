"""A campaign over damaged files: each is read, or refused by a message that names it; nothing else may happen."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bures.training import TrainingError
from tests.fuzz.campaign import SOURCE, quiet
from tests.fuzz.file_formats import KINDS, FileKind
from tests.fuzz.mutations import mutate

SLOW = 10.0  # seconds that no small file may take
EXPECTED = (ValueError, OSError, TrainingError)


def run_file_campaign(cases: int, seed: int, *, only: Iterable[str] | None = None) -> dict[str, Any]:
    """Damage about ``cases`` files, read them, and tell what went wrong."""
    chosen = [KINDS[name] for name in (KINDS if only is None else only)]
    total = sum(one.weight for one in chosen)
    started = time.perf_counter()
    figures: dict[str, dict[str, int]] = {}
    failures: list[dict[str, Any]] = []
    for one in chosen:
        share = max(2, round(cases * one.weight / total))
        figures[one.name], found = _run_kind(one, share, seed)
        failures += found
    return {
        "cases": sum(sum(counts.values()) for counts in figures.values()),
        "kinds": len(chosen),
        "outcomes": figures,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 2),
        "failures": failures,
    }


def _run_kind(one: FileKind, cases: int, seed: int) -> tuple[dict[str, int], list[dict[str, Any]]]:
    counts = {"read": 0, "refused": 0, "failed": 0}
    failures: dict[tuple[str, str], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place, quiet():
        folder = Path(place, "data")
        folder.mkdir()
        path = one.build(folder)
        good = path.read_bytes()
        one.read(path)
        there = _files(Path(place))
        for number in range(cases):
            rng = np.random.default_rng([seed, number])
            content = mutate(good, rng, text=one.text, structure=one.structure)
            path.write_bytes(content)
            outcome, finding = _judge(one, path, Path(place), there)
            counts[outcome] += 1
            if finding is not None:
                finding |= {"kind": one.name, "number": number, "content": repr(content[:300])}
                failures.setdefault((finding["error"], finding["where"]), finding)
            path.write_bytes(good)
    return counts, list(failures.values())


def _judge(one: FileKind, path: Path, place: Path, there: set[str]) -> tuple[str, dict[str, Any] | None]:
    started = time.perf_counter()
    outcome, finding = "read", None
    try:
        one.read(path)
    except EXPECTED as error:
        outcome = "refused"
        if path.name not in str(error):
            finding = _finding(error, "the message does not name the file")
    except Exception as error:
        finding = _finding(error, "a crash")
    if finding is None and time.perf_counter() - started > SLOW:
        finding = {"error": "slow", "message": f"{time.perf_counter() - started:.0f} s", "where": ""}
    if finding is None and (new := _files(place) - there - {"data/report.html"}):
        finding = {"error": "files", "message": f"reading has made {sorted(new)}", "where": ""}
    return ("failed" if finding else outcome), finding


def _files(place: Path) -> set[str]:
    return {str((Path(root) / name).relative_to(place)) for root, _, names in os.walk(place) for name in names}


def _finding(error: BaseException, what: str) -> dict[str, Any]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(SOURCE)]
    where = f"{Path(frames[-1].filename).relative_to(SOURCE)}:{frames[-1].lineno}" if frames else ""
    return {"error": f"{what}: {type(error).__name__}", "message": str(error)[:400], "where": where}
