"""Mutation testing of the mathematics: put small faults into the code and see whether its tests notice.

    python tools/mutation.py                                  # everything, about half an hour on one core
    python tools/mutation.py --only src/bures/labels.py       # one module
    python tools/mutation.py --survivors                      # what no test noticed, after writing new ones
    python tools/mutation.py --publish                        # also bring results/quality/mutation.json up to date

One process collects the tests and runs them once, noting which lines each of them runs. Then it
forks for each fault of `mutation_operators.py`: the child puts the fault into the functions in memory and runs tests
that pass over its line, unlike and narrow ones first, until one fails or `--seconds` have passed. Faults that
change nothing, and others that may stay, are named with the reason in `mutation_survivors.toml`; any other survivor
makes this exit with status 1.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import inspect
import json
import os
import signal
import sys
import time
import tomllib
import types
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from mutation_operators import Fault, faults, faulty

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["tests/metrics", "tests/test_spectral.py", "tests/test_labels.py"]
MODULES = ["src/bures/metrics/*.py", "src/bures/spectral.py", "src/bures/labels.py"]
REASONS = ROOT / "tools" / "mutation_survivors.toml"
MAP = ROOT / "outputs" / "mutation-map.json"
RESULT = ROOT / "results" / "quality" / "mutation.json"
KEY = ("function", "text", "before", "after")  # what a survivor is known by: its line moves
SURVIVES = ("survived", "no test")
HANGS = 60.0  # seconds beyond the allowance after which a fault counts as noticed: some make loops endless


class Mutation:
    """A pytest plugin: the session collects the tests, and then this runs them its own way."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        paths = sorted(str(path.relative_to(ROOT)) for glob in MODULES for path in ROOT.glob(glob))
        self.sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
        self.records: list[dict] = []
        self.wanted = None
        if options.survivors:
            self.wanted = {identity(old) for old in explained(published()["survivors"]) if old["why"] is None}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.tests_of_line, self.breadth, self.repeat = measured(session.items, self.sources)
        self.by_id = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()  # a child that collects garbage would copy every page of its parent
        for path in self.options.only or self.sources:
            source = self.sources[path]
            for fault in faults(source):
                if self.wanted is None or identity(described(path, source, fault)) in self.wanted:
                    self.records.append(self.try_fault(path, source, fault))
        return True

    def try_fault(self, path: str, source: str, fault: Fault) -> dict:
        chosen = self.chosen(path, source, fault)
        fate, killer = "no test", ""
        if chosen:
            fate, killer = in_child(lambda: self.run(path, source, fault, chosen), HANGS + 5 * self.options.seconds)
        record = described(path, source, fault) | {"fate": fate}
        shown = f"{path}:{fault.line} {fault.function}: {fault.before} => {fault.after}"
        if fate in SURVIVES:
            print(f"{fate}: {shown}", flush=True)
        elif self.options.verbose:
            print(f"{fate} by {killer}: {shown}", flush=True)
        return record

    def chosen(self, path: str, source: str, fault: Fault) -> list[str]:
        """Tests that run the statement, one for each way through its function first, then the next of each way.

        A test of what is refused goes another way than the many that pass. In between come those that run the fewest
        lines in all, each set of lines once: they look at this function, and not at much else. A default or a constant
        runs on import; then it is all tests of the function, or of the module.
        """
        lines = self.tests_of_line[path]
        first, last = scope(source, fault)
        here = {test for line in range(fault.line, fault.last_line + 1) for test in lines.get(line, ())}
        way: dict[str, list[int]] = defaultdict(list)
        for line in range(first, last + 1):
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

    def run(self, path: str, source: str, fault: Fault, chosen: list[str]) -> str:
        put_in(path, faulty(source, fault))
        end = time.process_time() + self.options.seconds  # of this process: what else the machine does must not matter
        items = [self.by_id[test] for test in chosen]
        for item, following in zip(items, [*items[1:], None], strict=True):
            if fails(item, following):
                return item.nodeid
            if time.process_time() > end:
                break
        return ""


def described(path: str, source: str, fault: Fault) -> dict:
    return {
        "file": path,
        "line": fault.line,
        "function": fault.function,
        "text": source.splitlines()[fault.line - 1].strip(),
        "before": fault.before,
        "after": fault.after,
    }


def identity(record: dict) -> tuple:
    return (record["file"], *(record[key] for key in KEY))


def fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test without the reports of pytest, whose excerpts of the source take longer than most tests."""
    state = item.session._setupstate
    item._initrequest()  # type: ignore[attr-defined]
    try:
        state.setup(item)
        item.runtest()
        state.teardown_exact(following)
    except pytest.skip.Exception:
        state.teardown_exact(following)
    except BaseException:  # whatever it is, the fault has been noticed
        return True
    return False


def measured(items: list[pytest.Item], sources: dict[str, str]) -> tuple[dict, dict[str, int], dict[str, int]]:
    """Tests by file and line, how many lines each runs, and how many tests before it run the same lines.

    Kept in a file while the code and the test are the same.
    """
    state = digest([ROOT / path for path in sources])
    states = {path: state + digest([path]) for path in {item.path for item in items}}
    kept = json.loads(MAP.read_text(encoding="utf-8")) if MAP.is_file() else {}
    watched = {str(ROOT / path): path for path in sources}
    waiting = [item for item in items if kept.get(item.nodeid, {}).get("state") != states[item.path]]
    for item, following in zip(waiting, [*waiting[1:], None], strict=False):
        kept[item.nodeid] = watch(item, following, watched) | {"state": states[item.path]}
    MAP.parent.mkdir(exist_ok=True)
    MAP.write_text(json.dumps(kept), encoding="utf-8")
    tests_of_line: dict = defaultdict(lambda: defaultdict(list))
    for item in items:
        told = kept[item.nodeid]
        for path, lines in told["lines"].items() if told["passed"] else ():
            for line in lines:
                tests_of_line[path][line].append(item.nodeid)
    breadth = {item.nodeid: sum(map(len, kept[item.nodeid]["lines"].values())) for item in items}
    repeat, seen = {}, Counter()
    for item in items:
        lines = json.dumps(kept[item.nodeid]["lines"])
        repeat[item.nodeid] = seen[lines]
        seen[lines] += 1
    return tests_of_line, breadth, repeat


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
    passed = all(report.passed for report in reports)
    return {
        "passed": passed,
        "lines": {path: sorted(lines) for path, lines in seen.items()},
    }


def scope(source: str, fault: Fault) -> tuple[int, int]:
    """First and last line of the innermost function with the fault, or of the module."""
    import ast

    best = (1, source.count("\n") + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.lineno <= fault.line <= (node.end_lineno or 0):
            best = max(best, (node.lineno, node.end_lineno or 0))
    return best


def in_child(work: object, seconds: float) -> tuple[str, str]:
    """What comes of running tests in a fork of this process: survived, killed or hung, and by which test."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(seconds) + 1)
        gc.disable()
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            answer = work()  # type: ignore[operator]
        except BaseException as error:  # a fault may break the module itself
            answer = f"{type(error).__name__} on import"
        os.write(writing, answer.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as file:
        answer = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hung" if os.WTERMSIG(status) == signal.SIGALRM else "killed", f"signal {os.WTERMSIG(status)}"
    return ("killed", answer) if answer else ("survived", "")


def put_in(path: str, tree: object) -> None:
    """Give the functions of an imported module the code of a changed tree, wherever they are already known."""
    name = ".".join(Path(path).with_suffix("").parts[1:])
    module = importlib.import_module(name)
    changed = types.ModuleType(name)
    changed.__dict__.update(__file__=module.__file__, __package__=module.__package__, __spec__=module.__spec__)
    exec(compile(tree, str(ROOT / path), "exec"), changed.__dict__)  # type: ignore[call-overload]
    functions, new = dict(functions_of(module.__dict__, name)), dict(functions_of(changed.__dict__, name))
    for key, function in functions.items():
        function.__code__, function.__defaults__ = new[key].__code__, new[key].__defaults__
        function.__kwdefaults__ = new[key].__kwdefaults__
    for key, old in list(module.__dict__.items()):
        value = changed.__dict__.get(key)
        if callable(getattr(old, "cache_clear", None)):
            old.cache_clear()
        elif isinstance(old, bool | int | float | tuple | dict) and not key.startswith("__") and value != old:
            for other in [m for n, m in sys.modules.items() if n.partition(".")[0] == "bures"]:
                if other.__dict__.get(key) is old:
                    setattr(other, key, value)


def functions_of(names: dict, module: str, prefix: str = "") -> list[tuple[str, types.FunctionType]]:
    """Functions and methods that a namespace defines, by qualified name."""
    found = []
    for key, value in list(names.items()):
        if isinstance(value, type) and value.__module__ == module:
            found += functions_of(dict(value.__dict__), module, f"{prefix}{key}.")
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(getattr(value, "func", None), types.FunctionType):  # a cached property
            value = value.func
        value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
        if isinstance(value, types.FunctionType) and value.__module__ == module:
            found.append((f"{prefix}{key}", value))
    return found


def published() -> dict:
    return json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {"files": {}, "survivors": []}


def publish(records: list[dict]) -> None:
    """Bring the figures of the files that were tried up to date; keep those of the others."""
    tried = {record["file"] for record in records}
    kept = published()
    counts = {
        path: {"faults": 0, "noticed": 0} | ({} if path in tried else kept["files"].get(path, {}))
        for path in sorted(tried | set(kept["files"]))
    }
    for record in records:
        counts[record["file"]]["faults"] += 1
        counts[record["file"]]["noticed"] += record["fate"] not in SURVIVES
    left = explained(
        [r for r in records if r["fate"] in SURVIVES] + [s for s in kept["survivors"] if s["file"] not in tried]
    )
    write(counts, left)


def publish_again(records: list[dict]) -> None:
    """Take survivors that are noticed by now from the list, and count them."""
    kept = published()
    noticed = {identity(record) for record in records if record["fate"] not in SURVIVES}
    noticed -= {identity(record) for record in records if record["fate"] in SURVIVES}  # alike on one line: keep both
    counts = kept["files"]
    for survivor in kept["survivors"]:
        counts[survivor["file"]]["noticed"] += identity(survivor) in noticed
    write(counts, explained([survivor for survivor in kept["survivors"] if identity(survivor) not in noticed]))


def explained(survivors: list[dict]) -> list[dict]:
    """Survivors in order, each with the reason that is on record, or none."""
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))["survivor"] if REASONS.is_file() else []
    known = {tuple(reason[key] for key in KEY): reason["why"] for reason in reasons}
    survivors = sorted(survivors, key=lambda survivor: (survivor["file"], survivor["line"]))
    return [survivor | {"why": known.get(tuple(survivor[key] for key in KEY))} for survivor in survivors]


def write(counts: dict, survivors: list[dict]) -> None:
    for path, count in counts.items():
        count["explained"] = sum(s["why"] is not None for s in survivors if s["file"] == path)
    total: Counter[str] = Counter()
    for count in counts.values():
        total.update(count)
    told = {"tests": TESTS, "total": dict(total), "files": counts, "survivors": survivors}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Put faults into the mathematics and see whether its tests notice.")
    parser.add_argument("--only", nargs="+", metavar="FILE", help="modules to put faults into, relative to the root")
    parser.add_argument("--seconds", type=float, default=10, help="processor time to notice a fault in (default: 10)")
    parser.add_argument("--verbose", action="store_true", help="say which test notices a fault")
    parser.add_argument("--publish", action="store_true", help="write results/quality/mutation.json")
    parser.add_argument("--survivors", action="store_true", help="try those of results/quality/mutation.json again")
    options = parser.parse_args()

    # Before torch is imported: a child must not wait for threads that a fork leaves behind.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    os.chdir(ROOT)
    begin = time.time()
    plugin = Mutation(options)
    pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--capture=no", *TESTS], plugins=[plugin]
    )
    if options.survivors:
        publish_again(plugin.records)
    elif options.publish:
        publish(plugin.records)
    left = explained([record for record in plugin.records if record["fate"] in SURVIVES])
    print(f"{len(plugin.records) - len(left)} of {len(plugin.records)} faults noticed in {time.time() - begin:.0f} s")
    bare = sum(survivor["why"] is None for survivor in left)
    sys.exit(f"{bare} survivors are not explained in {REASONS.name}" if bare else 0)


if __name__ == "__main__":
    main()
