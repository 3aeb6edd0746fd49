"""Sweeps: every cell once, a kill costs nothing, a failure costs itself; and the tables made from them."""

import json

import pytest

from bures.experiments import Cell, accuracy_table, read_results, run_sweep, to_markdown

# Networks that made two steps predict few classes.
pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")

QUICK = {"epochs": 1, "epoch": 2, "batch_size": 16, "hidden": 16, "features": 8, "image_size": 8}


def cell(method="source", seed=0, **changes):
    return Cell("optdigits", "optdigits", "digits-plain", method, seed, {**QUICK, **changes})


def test_finished_cells_are_not_run_again_and_a_cut_line_is(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    seen = []
    first = run_sweep([cell(seed=0), cell(seed=1)], ledger, on_event=lambda event: seen.append(event.what))
    assert seen == ["started", "finished"] * 2
    assert not first.failures
    lines = ledger.read_text().splitlines()
    ledger.write_text(lines[0] + "\n" + lines[1][: len(lines[1]) // 2])  # killed while the second line was written
    assert [result["seed"] for result in read_results(ledger)] == [0]
    again = run_sweep([cell(seed=0), cell(seed=1)], ledger, on_event=lambda event: seen.append(event.what))
    assert seen[4:] == ["started", "finished"]
    assert len(read_results(ledger)) == 2
    without_time = [{**result["final"], "seconds": 0} for result in again.results]
    assert without_time == [{**result["final"], "seconds": 0} for result in first.results]


def test_a_failing_cell_leaves_the_others_alone(tmp_path):
    sweep = run_sweep([cell(batch_size=10_000), cell()], tmp_path / "ledger.jsonl")
    assert [result["seed"] for result in sweep.results] == [0]
    (message,) = sweep.failures.values()
    assert "batch_size=10000 is larger than" in message


def test_a_result_says_how_it_came_about(tmp_path):
    (result,) = run_sweep([cell("entropy", 3)], tmp_path / "ledger.jsonl").results
    assert result["command"].startswith("bures adapt --source optdigits --target optdigits --recipe digits-plain")
    assert result["recipe"]["seed"] == result["seed"] == 3
    assert result["schema"] == 2
    assert len(result["epochs"]["target_accuracy"]) == 1
    assert result["seconds"] >= result["final"]["seconds"]
    assert {"versions", "hardware"} <= set(result)
    assert str(tmp_path) not in json.dumps(result)


def test_a_ledger_that_is_damaged_inside_is_refused(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text('{"key": 1\n{"key": 2}\n')
    with pytest.raises(ValueError, match="damaged in line 1"):
        read_results(ledger)


def result(method, task, seed, accuracy, **by_policy):
    final = {"accuracy": accuracy, "accuracy_by_batchnorm": by_policy or {"training": accuracy}}
    return {"recipe_name": "r", "method": method, "task": task, "seed": seed, "final": final}


def test_tables_give_mean_and_deviation_and_both_source_rows():
    results = [
        result("source", "a->b", 0, 0.5, training=0.5, target=0.6),
        result("ckb", "a->b", 0, 0.90),
        result("ckb", "a->b", 1, 0.94),
        result("ckb", "b->a", 0, 0.8),
    ]
    table = accuracy_table(results)
    assert table.loc[("r", "ckb"), "a->b"] == "92.0 ± 2.8"
    assert table.loc[("r", "ckb"), "b->a"] == "80.0"
    assert table.loc[("r", "source"), "a->b"] == "50.0"
    assert table.loc[("r", "source+adabn"), "a->b"] == "60.0"
    assert table.loc[("r", "source"), "b->a"] == "not run"
    assert "| `r` | ckb | 92.0 ± 2.8 | 80.0 |" in to_markdown(table)


def test_the_mean_over_tasks_is_that_of_their_means_and_needs_all():
    results = [
        result("ckb", task, seed, 0.1 * (task == "c->d") + 0.5) for task in ("a->b", "b->c", "c->d") for seed in (0, 1)
    ]
    results.append(result("ckw", "a->b", 0, 0.5))
    table = accuracy_table(results)
    assert table.loc[("r", "ckb"), "mean"] == "53.3"
    assert table.loc[("r", "ckw"), "mean"] == "not run"
