"""The README and the page of results are true: Python runs with the output shown, numbers are in the ledgers."""

import doctest
import importlib.util
import json
from functools import cache, partial
from pathlib import Path

import pytest

from bures.experiments import changed_recipes, grid_names, load_grid, read_results

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


@cache
def page_tool():
    spec = importlib.util.spec_from_file_location("results_page", ROOT / "tools/results_page.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_tables_and_figures_of_the_results_are_made_from_the_ledgers():
    tool = page_tool()
    for page in tool.PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- table ") >= 1
        assert tool.filled(text) == text


def test_no_figure_of_the_results_is_written_by_hand():
    tool = page_tool()
    results = "\n".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("results", "trials"))
    section = README.split("## How well it does")[1].split("\n## ")[0]
    assert tool.unmarked(results) == tool.unmarked(section) == []
    assert tool.misplaced(results) == tool.misplaced(README) == []
    assert tool.unmarked("It got 97.3, then <!-- = trial x -->98.1<!-- . --> and `eps=0.1` in 200 steps.") == ["97.3"]


def test_a_figure_that_is_wrong_is_put_right():
    tool = page_tool()
    marker = "<!-- = paper digits CKB usps:mnist -->"
    assert tool.filled(f"{marker}99.9<!-- . -->") == f"{marker}96.6 ± 0.4<!-- . -->"
    with pytest.raises(ValueError, match="no table is called 'none'"):
        tool.filled("<!-- table none -->\n<!-- end -->")


@pytest.mark.parametrize("grid", ["digits", "office10", "office10-images", "office-home", "office-home-images"])
def test_the_rows_shown_first_and_those_that_are_folded_are_all_rows(grid):
    tool = page_tool()
    first, rest = (tool.grid_part(grid, main=main).splitlines() for main in (True, False))
    whole = tool.grid_table(grid).splitlines()
    assert first[:2] == rest[:2] == whole[:2]
    assert sorted(filter(None, [*first[2:], *rest[2:]])) == sorted(
        filter(None, whole[2:])
    )  # bold as in the whole table
    assert not [line for line in first if "not run yet" in line]
    methods = [line.split(" | ")[1] for line in first[2:] if line.startswith("|")]
    assert methods[:3] == ["Source", "CKB", "CKB+MMD"]
    assert {"ckw", "im"} <= set(methods)


def test_every_trial_is_on_the_page_of_trials():
    tool = page_tool()
    page = (ROOT / "docs/trials.md").read_text(encoding="utf-8")
    shown = 0
    for recipe in {run["recipe_name"] for run in tool.results("trials")}:
        text = tool.trials_table(recipe)
        names = [f"all trials {recipe}", f"trials {recipe}"]
        assert any(f"<!-- table {name} -->" in page for name in names), recipe
        shown += sum(cell.strip() != "" for line in text.splitlines()[2:] for cell in line.split("|")[4:-1])
    pairs = {(run["recipe_name"], run["method"], run["task"], *run["key"].split("|")[5:])
             for run in tool.results("trials")}  # fmt: skip
    assert shown == len(pairs) > 200  # seeds of one setting share a cell


def test_seeds_that_are_missing_are_told_where_a_figure_stands():
    tool = page_tool()
    figure = "<!-- = ours office-home-images office-home-best ckw mean -->69.4<!-- . -->"
    count = "<!-- = seeds office-home-images office-home-best im -->one of three seeds<!-- . -->"
    assert tool.uncounted(f"# One\n\n{figure}\n") == ["office-home-images office-home-best ckw mean"]
    assert tool.uncounted(f"# One\n\n{count}\n## Two\n\n{figure}\n") == ["office-home-images office-home-best ckw mean"]
    assert tool.uncounted(f"# One\n\n{figure} {count}\n") == []
    assert tool.uncounted("<!-- = ours digits digits ckb usps:mnist -->98.5<!-- . -->") == []
    assert [tool.seeds("office10-images", "office10", "ckw"), tool.seeds("digits", "digits", "ckb")] == [
        "one to three seeds", "five seeds",
    ]  # fmt: skip
    for page in tool.PAGES:
        assert tool.uncounted(page.read_text(encoding="utf-8")) == [], page.name


def test_a_figure_of_a_paired_test_is_that_of_its_table():
    tool = page_tool()
    cells = ["im", "12", tool.paired("office-home", "office-home-features-best", "ckb", "im", "difference")]
    line = next(line for line in tool.paired_table("office-home", "ckb", "office-home-features-best").splitlines()
                if line.startswith("| im |"))  # fmt: skip
    assert line.startswith(f"| {' | '.join(cells)} |")
    assert line.endswith(f" {tool.paired('office-home', 'office-home-features-best', 'ckb', 'im', 'p_holm')} |")


def test_every_run_that_is_published_says_how_it_came_about():
    for ledger in sorted((ROOT / "results").glob("*.jsonl")):
        for result in read_results(ledger):
            assert result["command"].startswith("bures "), ledger
            assert {"versions", "hardware", "seed", "recipe", "data"} <= set(result), ledger
            assert all(result["data"][side]["checksum"] for side in ("source", "target")), ledger


def test_published_runs_were_made_with_the_recipes_as_they_are():
    for name in grid_names():
        ledger = ROOT / "results" / f"{name}.jsonl"
        if ledger.is_file():
            results = {result["key"]: result for result in read_results(ledger)}
            cells = load_grid(name).cells()
            assert results.keys() & {cell.key for cell in cells}, ledger
            assert changed_recipes(cells, results) == {}


def test_links_in_the_readme_lead_to_files():
    targets = [part.split(")")[0].partition("#")[0] for part in README.split("](")[1:]]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_page_of_validators_says_which_runs_took_no_part(tmp_path, monkeypatch):
    tool = page_tool().validator_tables

    def line(number, **scores):
        epochs = {"target_accuracy": [0.5, 0.9, 0.8]} | {f"score_{name}": values for name, values in scores.items()}
        key = {"key": str(number), "task": f"a->{number % 2}", "method": "ckb"}
        return json.dumps(key | {"epochs": epochs | {"target_score": [3, 2, 1]}})

    monkeypatch.setattr(tool, "DEFAULT_VALIDATOR", "im")
    monkeypatch.setattr(tool, "compare_validators", partial(tool.compare_validators, current="im"))
    monkeypatch.setattr(tool, "preferred_validator", partial(tool.preferred_validator, current="im"))
    newer = [line(number, im=[3, 2, 1], snd=[1, 3, 2]) for number in range(4)]
    (tmp_path / "digits.jsonl").write_text("\n".join([*newer, line(4)]) + "\n")
    (tmp_path / "office10.jsonl").write_text(line(5) + "\n")
    study = tool.study_table(tmp_path)
    assert "| Digits (LeNet) | `snd` | 4 | +1.00 |  | 0.00 | +10.00 | 0.0 |" in study
    assert "| Digits (LeNet) | `im` | 4 | -0.50 |  | 40.00 | -30.00 | 0.0 |" in study
    assert "Digits (LeNet): runs left out because they lack scores of some of these validators: 1." in study
    assert "Office10 (frozen ResNet-50 features): its runs are older" in study
    verdict = tool.verdict_table(tmp_path)
    assert "| `snd` | 2 | 2 | +40.00 ± 0.00 | +0.00 ± 0.00 | better |" in verdict
    assert verdict.endswith("The runs speak for `snd`, which is to become the default.")
    assert "| Digits (LeNet) | ckb | 5 | -30.0 | -0.50 |" in tool.failure_table(tmp_path)
