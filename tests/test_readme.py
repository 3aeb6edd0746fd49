"""The README and the page of results are true: Python runs with the output shown, numbers are in the ledgers."""

import doctest
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

from bures.experiments import read_results

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_in_the_readme_gives_the_output_shown():
    result = doctest.testfile(
        str(ROOT / "README.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert result.attempted > 5
    assert result.failed == 0


def test_the_demo_shown_is_the_one_published():
    shown = README.split("`make demo` prints:\n\n```\n")[1].split("```")[0]
    rows = json.loads((ROOT / "results/demo/comparison.json").read_text(encoding="utf-8"))["rows"]
    assert [row["label"] for row in rows] == ["source", "source+adabn", "ckb"]
    for row in rows:
        (line,) = [line for line in shown.splitlines() if line.startswith(f"│ {row['label']} ")]
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        assert cells[1] == f"{100 * row['accuracy']:.1f}"
        assert cells[2] == ("" if row["gain"] is None else f"{100 * row['gain']:+.1f}")


def test_the_demo_is_the_command_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = json.loads((ROOT / "results/demo/ckb.json").read_text(encoding="utf-8"))["command"]
    assert f"$(BIN)/{command}" in makefile


def test_tables_of_results_are_made_from_the_ledgers():
    command = [sys.executable, str(ROOT / "tools/results_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr


def test_figures_in_the_text_of_the_results_are_in_the_ledgers():
    text = " ".join((ROOT / "docs/results.md").read_text(encoding="utf-8").split())
    trials = {result["key"]: result for result in read_results(ROOT / "results/trials.jsonl")}

    def trial(task, method, **changes):
        parts = [f"{name}={json.dumps(value)}" for name, value in sorted(changes.items())]
        return 100 * trials["|".join([*task, "digits-plain", method, "100", *parts])]["final"]["accuracy"]

    to_mnist, to_usps = ("usps", "mnist"), ("mnist", "usps")
    plain = {"options.label_shift": False}
    assert f"{trial(to_mnist, 'ckb+mmd', **plain):.1f} against {trial(to_mnist, 'ckb'):.1f} on USPS to MNIST" in text
    assert f"{trial(to_usps, 'ckb+mmd', **plain):.1f} against {trial(to_usps, 'ckb'):.1f} on MNIST to USPS" in text
    assert f"brought USPS to MNIST to {trial(to_mnist, 'ckb+mmd', class_balanced=True, **plain):.1f}" in text
    lost = trials["usps|optdigits|digits-best|ckw|100|consistency=0.5|epochs=12|lr=0.001"]["final"]["accuracy"]
    assert f"USPS to Optdigits lost a class and ended at {100 * lost:.1f}" in text

    def second_version(method, task):
        """Mean accuracy with the recipe before the last, which had 20 epochs."""
        return mean(
            100 * result["final"]["accuracy"]
            for result in read_results(ROOT / "results/trials.jsonl")
            if (result["recipe_name"], result["recipe"]["epochs"]) == ("digits-best", 20)
            and (result["method"], result["task"]) == (method, task)
        )

    control, aligned = (
        f"{second_version(method, 'usps->mnist'):.1f} and {second_version(method, 'mnist->usps'):.1f}"
        for method in ("im", "ckw")
    )
    assert f"`im` came to {control} where `ckw` had {aligned}" in text


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
