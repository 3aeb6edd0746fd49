"""Mutation testing of the mathematics: put small faults into the code and see whether its tests notice.

    python tools/mutation.py                                  # all that was not tried yet, an hour on one core
    python tools/mutation.py --jobs 8 --minutes 15            # eight faults at a time, for a quarter of an hour
    python tools/mutation.py --only src/bures/labels.py       # one module
    python tools/mutation.py --sample 60 --publish            # sixty faults of each file at random; say so
    python tools/mutation.py --survivors                      # again what no test noticed, after writing new ones
    python tools/mutation.py --merge FOLDER --publish         # take over what another machine has tried; figures

One process collects the tests, and forks measure which lines each of them runs. Then it forks for each fault of
`mutation_operators.py`: the child puts the fault into the functions in memory and runs tests that pass over its line,
unlike and narrow ones first, until one fails or `--seconds` have passed. What came of a fault is added to a file in
`--records` at once; a fault that is there is not tried again while the file it is in stays the same. Faults that change
nothing, and others that may stay, are named with the reason in `mutation_survivors.toml`; any other survivor makes this
exit with status 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported: a child must not wait for threads that a fork leaves behind.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

import pytest
from mutation_children import Work, fails, in_children, put_in
from mutation_map import LineMap
from mutation_operators import Fault, faults, faulty
from mutation_records import REASONS, SURVIVES, Records, described, drawn, explained, publish

ROOT = Path(__file__).resolve().parent.parent
TESTED = ("spectral", "deflation", "polar", "polar_in_halves", "product_norm_by_polar", "labels")
TESTS = ["tests/metrics", *(f"tests/test_{name}.py" for name in TESTED)]
MODULES = ["src/bures/metrics/*.py", *(f"src/bures/{name}.py" for name in ("spectral", "deflation", "polar", "labels"))]
HANGS = 20.0  # seconds of processor time beyond the allowance after which a fault has made a loop endless: noticed
WAITS = 5  # times as long on the clock: what else the machine does must not matter, and a fault may make a test wait


class Mutation:
    """A pytest plugin: the session collects the tests, and then this runs them its own way."""

    def __init__(self, options: argparse.Namespace, records: Records, sources: dict[str, str]):
        self.options, self.records, self.sources = options, records, sources
        self.end = time.monotonic() + 60 * options.minutes
        self.tried: list[dict] = []

    def waiting(self) -> list[tuple[str, int, Fault]]:
        """What is to be tried, in the order of the files that were asked for."""
        found = []
        for path in self.options.only or self.sources:
            source = self.sources[path]
            last = {record["number"]: record for record in self.records.tried(path, source)}
            left = explained(record for record in last.values() if record["fate"] in SURVIVES)
            again = {record["number"] for record in left if record["why"] is None}
            asked = set(drawn(source, self.options.sample))
            asked = asked & again if self.options.survivors else asked - set(last)
            found += [(path, number, fault) for number, fault in enumerate(faults(source)) if number in asked]
        return found

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        waiting = self.waiting()
        if not waiting:
            return True
        lines = LineMap(session.items, self.sources, self.options.jobs)
        if lines.failing:
            print(f"{len(lines.failing)} tests fail without a fault, such as {lines.failing[0]}: left out", flush=True)
        by_id = {item.nodeid: item for item in session.items}
        for first in {item.path: item for item in reversed(session.items)}.values():
            fails(first, None)  # imports what the tests import: children have it then
        gc.collect()
        gc.freeze()  # a child that collects garbage would copy every page of its parent
        print(f"{len(waiting)} faults to try", flush=True)

        def works() -> Iterator[Work]:
            for path, number, fault in waiting:
                items = [by_id[test] for test in lines.chosen(path, self.sources[path], fault)]
                place = path, number, fault, bool(items)
                seconds = WAITS * (HANGS + self.options.seconds)
                yield Work(place, lambda path=path, fault=fault, items=items: self.run(path, fault, items), seconds)

        for place, fate, killer in in_children(works(), self.options.jobs, self.end):
            self.keep(*place, fate, killer)
        return True

    def run(self, path: str, fault: Fault, items: list[pytest.Item]) -> str:
        """The name of a test that notices a fault, or nothing."""
        signal.setitimer(signal.ITIMER_PROF, HANGS + self.options.seconds)
        put_in(path, faulty(self.sources[path], fault))
        end = time.process_time() + self.options.seconds
        for item, following in zip(items, [*items[1:], None], strict=False):
            if fails(item, following):
                return item.nodeid
            if time.process_time() > end:
                break
        return ""

    def keep(self, path: str, number: int, fault: Fault, any_test: bool, fate: str, killer: str) -> None:
        fate = fate if any_test else "no test"
        record = described(path, self.sources[path], number, fault) | {"fate": fate, "by": killer}
        self.records.add([record])
        self.tried.append(record)
        shown = f"{path}:{fault.line} {fault.function}: {fault.before} => {fault.after}"
        if fate in SURVIVES:
            print(f"{fate}: {shown}", flush=True)
        elif self.options.verbose:
            print(f"{fate} by {killer}: {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Put faults into the mathematics and see whether its tests notice.")
    parser.add_argument("--only", nargs="+", metavar="FILE", help="modules to put faults into, relative to the root")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="tests that may notice a fault")
    parser.add_argument("--seconds", type=float, default=10, help="processor time to notice a fault in (default: 10)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no more faults after this long")
    parser.add_argument("--sample", type=int, help="of each file, so many faults at random, the same each time")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time (default: 1)")
    parser.add_argument("--records", type=Path, default=ROOT / "outputs" / "mutation", help="folder of what was tried")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], metavar="FOLDER", help="first take over records")
    parser.add_argument("--verbose", action="store_true", help="say which test notices a fault")
    parser.add_argument("--publish", action="store_true", help="write results/quality/mutation.json")
    parser.add_argument("--survivors", action="store_true", help="try unexplained survivors on record again")
    parser.add_argument("--none", action="store_true", help="try nothing, only merge and publish")
    options = parser.parse_args()

    records = Records(options.records)
    for folder in options.merge:
        there, new = records.merge(folder)
        print(f"{folder}: {there} records, {new} of them new")
    paths = [str(path.relative_to(ROOT)) for glob in MODULES for path in sorted(ROOT.glob(glob))]
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    if unknown := [path for path in options.only or () if path not in sources]:
        parser.error(f"--only: {unknown[0]} gets no faults; accepted are {', '.join(sources)}")
    os.chdir(ROOT)
    begin = time.monotonic()
    plugin = Mutation(options, records, sources)
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--capture=no"]
    if not options.none:
        pytest.main([*quiet, "--continue-on-collection-errors", *options.tests], plugins=[plugin])
    if options.publish:
        publish(records, sources, options.tests, options.sample)
    print(f"{len(plugin.tried)} faults tried in {time.monotonic() - begin:.0f} s")
    for path, source in sources.items():
        tried = list(records.tried(path, source))
        left = explained(record for record in tried if record["fate"] in SURVIVES)
        if tried:
            print(
                f"{path}: {len(tried) - len(left)} of {len(tried)} noticed, {len(faults(source)) - len(tried)} to try"
            )
    bare = [
        survivor
        for path, source in sources.items()
        for survivor in explained(record for record in records.tried(path, source) if record["fate"] in SURVIVES)
        if survivor["why"] is None
    ]
    sys.exit(f"{len(bare)} survivors are not explained in {REASONS.name}" if bare else 0)


if __name__ == "__main__":
    main()
