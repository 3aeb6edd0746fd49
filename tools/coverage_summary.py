"""Measure which lines and branches of `src` the tests run, and hold them to the threshold in pyproject.toml.

    python tools/coverage_summary.py --workers 2          # run all tests, then sum up
    python tools/coverage_summary.py --combine            # sum up what `coverage run -m pytest ...` has left
    python tools/coverage_summary.py --combine --publish  # and write results/quality/coverage.json

Processes that tests start count, too. The figure is of lines and branches together, as coverage.py reports it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "results" / "quality" / "coverage.json"
REPORT = ROOT / "outputs" / "coverage.json"
COUNTS = {
    "lines": "num_statements",
    "lines_run": "covered_lines",
    "branches": "num_branches",
    "branches_run": "covered_branches",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the coverage of src by the tests.")
    parser.add_argument("--workers", default="0", help="parallel test processes")
    parser.add_argument("--combine", action="store_true", help="run no tests; sum up the data files that are there")
    parser.add_argument("--publish", action="store_true", help="write results/quality/coverage.json")
    options = parser.parse_args()
    if not options.combine:
        run("coverage", "erase")
        run("coverage", "run", "-m", "pytest", "-q", "-n", options.workers)
    if list(ROOT.glob(".coverage.*")):
        run("coverage", "combine", "-q")
    REPORT.parent.mkdir(exist_ok=True)
    run("coverage", "json", "-q", "--fail-under=0", "-o", str(REPORT))
    summary = packages(json.loads(REPORT.read_text(encoding="utf-8"))["files"])
    if options.publish:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    for name, counts in summary.items():
        print(f"{name:<16} {counts['percent']:5.1f} %")
    run("coverage", "report", "--format=total")  # fails below the threshold


def packages(files: dict) -> dict[str, dict]:
    """Counts for each package of the project, the modules at its top taken together, and for all."""
    sums: dict[str, Counter] = {}
    for path, told in sorted(files.items()):
        inside = Path(path).parts[Path(path).parts.index("bures") + 1 :]
        counts = Counter({name: told["summary"][field] for name, field in COUNTS.items()})
        for name in (inside[0] if len(inside) > 1 else "modules", "total"):
            sums[name] = sums.get(name, Counter()) + counts
    return {name: percent(sums[name]) for name in [*sorted(set(sums) - {"total"}), "total"]}


def percent(counts: Counter) -> dict:
    run_of_all = (counts["lines_run"] + counts["branches_run"]) / (counts["lines"] + counts["branches"])
    return {name: counts[name] for name in COUNTS} | {"percent": round(100 * run_of_all, 1)}


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
