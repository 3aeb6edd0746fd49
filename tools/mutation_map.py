"""Which tests run which lines of the files that get faults; kept while the code and the tests are the same."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import sys
import tempfile
import types
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch
from _pytest.runner import runtestprotocol
from mutation_children import Work, in_children
from mutation_operators import Fault

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "outputs" / "mutation-map.json"
LONGEST = 1800.0  # seconds for the tests of one process


class LineMap:
    """Tests by file and line, how many lines each runs, and how many tests before it run the same lines."""

    def __init__(self, items: list[pytest.Item], sources: dict[str, str], jobs: int = 1) -> None:
        told = measured(items, sources, jobs)
        self.tests: dict = defaultdict(lambda: defaultdict(list))
        self.breadth: dict[str, int] = {}
        self.repeat: dict[str, int] = {}
        seen: Counter[str] = Counter()
        for item in items:
            test = item.nodeid
            for path, lines in told[test]["lines"].items() if told[test]["passed"] else ():
                for line in lines:
                    self.tests[path][line].append(test)
            self.breadth[test] = sum(map(len, told[test]["lines"].values()))
            lines = json.dumps(told[test]["lines"])
            self.repeat[test] = seen[lines]
            seen[lines] += 1
        self.failing = [item.nodeid for item in items if told[item.nodeid]["fate"] == "failed"]

    def chosen(self, path: str, source: str, fault: Fault) -> list[str]:
        """Tests that run the statement, one for each way through its function first, then the next of each way.

        A test of what is refused goes another way than the many that pass. In between come those that run the fewest
        lines in all, each set of lines once: they look at this function, and not at much else. Of what runs on import
        no test passes over the line: for a default it is the tests of the function then, for a constant, or a function
        that makes one, those that pass over a line that reads it, and where there are none, all of the module.
        """
        lines = self.tests[path]
        whole = range(1, source.count("\n") + 2)
        inner, its_lines = scope(source, fault), range(fault.line, fault.last_line + 1)
        here = {test for line in its_lines for test in lines.get(line, ())}
        if not here and not (inner and any(lines.get(line) for line in inner)):
            inner, its_lines = None, reading(source, fault.line, set(lines))
            here = {test for line in its_lines for test in lines.get(line, ())}
        way: dict[str, list[int]] = defaultdict(list)
        for line in inner or whole:
            for test in lines.get(line, ()):
                way[test].append(line)
        queues: dict[tuple, list[tuple]] = defaultdict(list)
        repeats: Counter[tuple] = Counter()
        for test in sorted(here or way, key=self.breadth.__getitem__):
            function, lines_run = test.partition("[")[0], tuple(way[test])
            queues[lines_run].append((repeats[function, lines_run], self.breadth[test], test))
            repeats[function, lines_run] += 1
        turns = [(turn, breadth, test) for q in queues.values() for turn, (_, breadth, test) in enumerate(sorted(q))]
        unlike = [test for *_, test in sorted(turns)]
        narrow = sorted(here or way, key=lambda test: (self.repeat[test], self.breadth[test]))
        return list(dict.fromkeys(test for pair in zip(unlike, narrow, strict=True) for test in pair))


def measured(items: list[pytest.Item], sources: dict[str, str], jobs: int) -> dict[str, dict]:
    """What each test does, by its name: whether it passes, and the lines that it runs."""
    machine = f"Python {platform.python_version()}, torch {torch.__version__}: "
    state = machine + digest([ROOT / path for path in sources])
    states = {path: state + digest([path]) for path in {item.path for item in items}}
    kept = json.loads(MAP.read_text(encoding="utf-8")) if MAP.is_file() else {}
    watched = {str(ROOT / path): path for path in sources}
    waiting = [item for item in items if kept.get(item.nodeid, {}).get("state") != states[item.path]]
    share = max(1, min(500, -(-len(waiting) // jobs)))
    with tempfile.TemporaryDirectory() as folder:

        def watch_some(some: list[pytest.Item], file: str) -> str:
            found = {
                item.nodeid: watch(item, after, watched) for item, after in zip(some, [*some[1:], None], strict=True)
            }
            Path(folder, file).write_text(json.dumps(found), encoding="utf-8")
            return ""

        parts = [waiting[first : first + share] for first in range(0, len(waiting), share)]
        works = [Work(n, lambda some=some, n=n: watch_some(some, f"{n}.json"), LONGEST) for n, some in enumerate(parts)]
        for n, fate, answer in in_children(iter(works), jobs):
            if fate != "survived":
                sys.exit(f"error: the tests from {parts[n][0].nodeid} on could not be watched: {answer}")
            for test, told in json.loads(Path(folder, f"{n}.json").read_text(encoding="utf-8")).items():
                kept[test] = told | {"state": states[next(item.path for item in parts[n] if item.nodeid == test)]}
            save(kept)  # as it goes: a process that is ended has measured something
    return kept


def save(kept: dict[str, dict]) -> None:
    MAP.parent.mkdir(exist_ok=True)
    written = MAP.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(kept), encoding="utf-8")
    written.replace(MAP)


def digest(files: list[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def watch(item: pytest.Item, following: pytest.Item | None, watched: dict[str, str]) -> dict:
    """Run a test and note the lines it passes over in the watched files."""
    seen: dict[str, set[int]] = defaultdict(set)

    def trace(frame: types.FrameType, event: str, _: object) -> object:
        path = watched.get(frame.f_code.co_filename)
        if path is None:
            return None
        lines = seen[path]

        def note(frame: types.FrameType, event: str, _: object) -> object:
            lines.add(frame.f_lineno)
            return note

        return note

    sys.settrace(trace)
    try:
        reports = runtestprotocol(item, log=False, nextitem=following)
    finally:
        sys.settrace(None)
    fate = max((report.outcome for report in reports), key=("passed", "skipped", "failed").index)
    return {
        "passed": fate == "passed",
        "fate": fate,
        "lines": {path: sorted(lines) for path, lines in seen.items()},
    }


def scope(source: str, fault: Fault) -> range | None:
    """Lines of the innermost function with the fault; None outside functions."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found = [span for span in map(span_of, functions) if fault.line in span]
    return max(found, key=lambda span: span.start, default=None)


def reading(source: str, line: int, run: set[int]) -> set[int]:
    """Lines that read what a line makes when its module is imported, at any remove.

    What it makes are the names its statement gives a value, and those that are made from them: by a statement that
    reads one, or by a function that does and that no test runs, for ``run`` are the lines that tests run.
    """
    body = ast.parse(source).body
    on_import = [
        statement
        for statement in body
        if not (isinstance(statement, ast.FunctionDef | ast.ClassDef) and run.intersection(span_of(statement)))
    ]
    made: set[str] = set()
    new = {name for statement in body if line in span_of(statement) for name in makes(statement)}
    while new - made:
        made |= new
        new = {name for statement in on_import if reads(statement, made) for name in makes(statement)}
    return {number for statement in body if statement not in on_import for number in reads(statement, made)}


def span_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or 0) + 1)


def makes(statement: ast.stmt) -> set[str]:
    """Names that a statement at the top of a module gives a value."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def reads(statement: ast.stmt, names: set[str]) -> set[int]:
    """Lines of a statement that read one of these names."""
    found = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {node.lineno for node in found if node.id in names}
