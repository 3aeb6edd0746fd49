"""The README is true: its Python runs with the output shown, and its terminal output is what the demo prints."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_in_the_readme_gives_the_output_shown():
    result = doctest.testfile(
        str(ROOT / "README.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert result.attempted > 5
    assert result.failed == 0


def test_the_demo_prints_what_the_readme_shows(tmp_path):
    shown = README.split("`make demo` prints:\n\n```\n")[1].split("```")[0].splitlines()
    environment = {**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(ROOT / "examples/conditional_shift.py"), "--output", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=True)
    printed = [line.rstrip() for line in run.stdout.splitlines()]
    start = printed.index(shown[0].rstrip())
    assert printed[start : start + len(shown)] == [line.rstrip() for line in shown]
    assert (tmp_path / "conditional_shift.png").stat().st_size > 10_000


def test_times_in_the_readme_are_those_measured():
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.table"], capture_output=True, encoding="utf-8", cwd=ROOT
    )
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.strip() in README


def test_links_in_the_readme_lead_to_files():
    targets = [part.split(")")[0] for part in README.split("](")[1:]]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
