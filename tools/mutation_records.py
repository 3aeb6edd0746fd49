"""What came of each fault: kept line by line while faults are tried, and summed up in results/quality/mutation.json."""

from __future__ import annotations

import hashlib
import json
import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from mutation_operators import Fault, faults

ROOT = Path(__file__).resolve().parent.parent
REASONS = ROOT / "tools" / "mutation_survivors.toml"
RESULT = ROOT / "results" / "quality" / "mutation.json"
NAME = "mutation.jsonl"
KEY = ("function", "text", "before", "after")  # what a survivor is known by: its line moves
SURVIVES = ("survived", "no test")

Place = tuple[str, str, int]  # a file, the digest of its source, and the number of a fault in it


class Records:
    """Faults that were tried, in a file to which a line is added for each; a later line of a fault counts.

    Faults of a file are numbered, and go with the digest of its source: a fault of a file that has changed is another.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / NAME
        self.of: dict[Place, dict] = {}
        self._read(self.file)

    def _read(self, file: Path) -> list[dict]:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        read = []
        for line in lines:
            try:
                record = json.loads(line)
                self.of[record["file"], record["source"], record["number"]] = record
            except (ValueError, KeyError, TypeError):
                continue  # the last line of a process that was killed
            read.append(record)
        return read

    def add(self, records: Iterable[dict]) -> None:
        """Keep records, each as one line that is there whole or is left out when it is read."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for record in records:
            self.of[record["file"], record["source"], record["number"]] = record
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def merge(self, folder: Path) -> tuple[int, int]:
        """Take over what was tried elsewhere and not here, or not noticed here: how many lines, and how many new."""
        here = dict(self.of)
        theirs = self._read(folder / NAME)
        self.of, new = here, []
        for record in theirs:
            mine = here.get((record["file"], record["source"], record["number"]))
            if mine is None or (mine["fate"] in SURVIVES and record["fate"] not in SURVIVES):
                new.append(record)
        self.add(new)
        return len(theirs), len(new)

    def tried(self, path: str, source: str) -> Iterator[dict]:
        """Records of a file as it is."""
        for number in range(len(faults(source))):
            if record := self.of.get((path, digest(source), number)):
                yield record


def digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def described(path: str, source: str, number: int, fault: Fault) -> dict:
    return {
        "file": path,
        "source": digest(source),
        "number": number,
        "line": fault.line,
        "function": fault.function,
        "text": source.splitlines()[fault.line - 1].strip(),
        "before": fault.before,
        "after": fault.after,
    }


def explained(survivors: Iterable[dict]) -> list[dict]:
    """Survivors in order, each with the reason that is on record, or none."""
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))["survivor"] if REASONS.is_file() else []
    known = {tuple(reason[key] for key in KEY): reason["why"] for reason in reasons}
    survivors = sorted(survivors, key=lambda survivor: (survivor["file"], survivor["line"]))
    return [survivor | {"why": known.get(tuple(survivor[key] for key in KEY))} for survivor in survivors]


def drawn(source: str, sample: int | None) -> list[int]:
    """Numbers of the faults of a file that are to be tried: all, or so many at random, each time the same."""
    number = len(faults(source))
    if sample is None or sample >= number:
        return list(range(number))
    return sorted(random.Random(digest(source)).sample(range(number), sample))


def publish(records: Records, sources: dict[str, str], tests: list[str], sample: int | None = None) -> None:
    """Bring the figures of files up to date of which every fault was tried; of the others keep those there are.

    Where a sample was asked for, a file of which all of the sample was tried has the figures of the sample, and tells
    under "of" how many faults there are.
    """
    kept = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {"files": {}, "survivors": []}
    files, survivors = {}, []
    for path, source in sources.items():
        tried, asked = list(records.tried(path, source)), len(faults(source))
        if len(tried) < asked:
            asked = len(drawn(source, sample))
            tried = [record for record in tried if record["number"] in drawn(source, sample)]
        left = [record for record in tried if record["fate"] in SURVIVES]
        if len(tried) == asked:
            files[path] = {"faults": len(tried), "noticed": len(tried) - len(left), "source": digest(source)}
            files[path] |= {"of": len(faults(source))} if asked < len(faults(source)) else {}
            survivors += [{key: record[key] for key in ("file", "line", *KEY, "fate")} for record in left]
        elif path in kept["files"]:
            files[path] = kept["files"][path]
            survivors += [survivor for survivor in kept["survivors"] if survivor["file"] == path]
    survivors = explained(survivors)
    total: Counter[str] = Counter()
    for path, count in files.items():
        count["explained"] = sum(s["why"] is not None for s in survivors if s["file"] == path)
        total.update({key: count[key] for key in ("faults", "noticed", "explained")})
    told = {
        "tests": tests,
        "total": dict(total),
        "files": {path: count for path, count in files.items() if count["faults"]},
        "not_tried": [path for path, source in sources.items() if path not in files and faults(source)],
        "survivors": survivors,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
