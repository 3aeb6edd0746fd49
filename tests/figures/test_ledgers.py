"""What figures read of ledgers, held against the ledgers' own lines."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from bures.figures import ablation_table, hyperparameter_grid, run_results, time_table, training_curves
from bures.figures._ledgers import ledger_results, task_words

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "results" / "digits.jsonl"


def run(method="ckb", task="a->b", seed=0, accuracy=0.5, *, recipe="r", changes=None, options=None, **rest):
    changes = changes or {}
    key = "|".join([*task.split("->"), recipe, method, str(seed), *(f"{k}={v}" for k, v in changes.items())])
    given = {"key": key, "task": task, "recipe_name": recipe, "method": method, "seed": seed, "changes": changes}
    return given | {"recipe": {"options": options or {}}, "final": {"accuracy": accuracy}, **rest}


def lines(**wanted):
    """Lines of the published ledger, read without the library."""
    found = [json.loads(line) for line in DIGITS.read_text().splitlines()]
    return [line for line in found if all(line[name] == value for name, value in wanted.items())]


def weighted(entropy, weight, task="a->b", seed=0, accuracy=0.5, **rest):
    changes = {"options.entropy": entropy, "options.weight": weight}
    return run("ckb", task, seed, accuracy, changes=changes, options={"entropy": entropy, "weight": weight}, **rest)


def test_a_place_of_the_grid_is_the_mean_of_its_tasks_whatever_their_seeds():
    results = [weighted(0.05, 10.0, "a->b", seed, value) for seed, value in enumerate((0.2, 0.4))]
    results += [weighted(0.05, 10.0, "b->a", 0, 0.9)]
    grid = hyperparameter_grid(results)
    assert grid.accuracy[1, 2] == pytest.approx((30 + 90) / 2)
    assert grid.n_seeds == (1, 2)
    assert len(grid.missing) == 19
    assert (0.05, 10.0) not in grid.missing


def test_a_place_without_one_of_the_tasks_is_missing_unless_the_task_is_left_out():
    results = [weighted(0.5, 1.0, "a->b"), weighted(0.5, 1.0, "b->a"), weighted(1.0, 1.0, "a->b", accuracy=0.75)]
    assert (1.0, 1.0) in hyperparameter_grid(results).missing
    grid = hyperparameter_grid(results, tasks=["a:b"])
    assert grid.accuracy[4, 1] == 75.0
    with pytest.raises(ValueError, match="'c:a' is not among the runs; accepted are a:b, b:a"):
        hyperparameter_grid(results, tasks=["c:a"])


def test_runs_with_other_changes_and_other_weights_have_no_place():
    plain = run(options={"entropy": 0.05, "weight": 1.0})  # the recipe's own weights need no change
    other = weighted(0.05, 0.1) | {"changes": {"options.entropy": 0.05, "options.weight": 0.1, "epochs": 3}}
    grid = hyperparameter_grid([plain, other, weighted(0.2, 1.0, accuracy=1.0)])
    assert np.isfinite(grid.accuracy).sum() == 1
    assert grid.accuracy[1, 1] == 50.0
    with pytest.raises(ValueError, match="no runs of 'ckw'"):
        hyperparameter_grid([plain], method="ckw")
    with pytest.raises(ValueError, match="several recipes \\(r, s\\)"):
        hyperparameter_grid([plain, run(recipe="s")])


def test_the_ablation_of_the_published_runs_is_their_mean_and_deviation():
    table = ablation_table(ledger_results(DIGITS), recipe="digits")
    for method in ("ckb", "ckw", "source"):
        for task in ("usps->mnist", "mnist->usps"):
            own = lines(recipe_name="digits", method=method, task=task)
            values = [100 * line["final"]["accuracy"] for line in own]
            assert table.loc[method, (task, "mean")] == pytest.approx(statistics.mean(values))
            assert table.loc[method, (task, "std")] == pytest.approx(statistics.stdev(values))
            assert table.loc[method, (task, "n")] == len(values) == 5
    over_tasks = [
        statistics.mean(
            100 * line["final"]["accuracy"] for line in lines(recipe_name="digits", method="ckb", seed=seed)
        )
        for seed in range(5)
    ]
    assert table.loc["ckb", ("mean", "mean")] == pytest.approx(statistics.mean(over_tasks))
    assert table.loc["ckb", ("mean", "std")] == pytest.approx(statistics.stdev(over_tasks))


def test_a_mean_over_tasks_counts_the_seeds_that_all_tasks_have():
    results = [run("ckb", "a->b", 0, 0.2), run("ckb", "a->b", 1, 0.9), run("ckb", "b->a", 0, 0.4)]
    table = ablation_table(results)
    assert table.loc["ckb", ("mean", "mean")] == pytest.approx(30.0)
    assert table.loc["ckb", ("mean", "n")] == 1
    assert np.isnan(table.loc["ckb", ("mean", "std")])
    assert table.loc["bures", ("a->b", "n")] == 0
    assert "source" not in table.index


def test_without_a_recipe_the_one_with_most_runs_is_taken_and_changed_runs_are_left_out():
    results = [run(recipe="few", accuracy=1.0), run(recipe="many"), run(recipe="many", seed=1)]
    results += [run(recipe="few", seed=seed, changes={"epochs": 1}) for seed in range(5)]
    assert ablation_table(results).attrs["recipe"] == "many"
    assert ablation_table(results, recipe="few").loc["ckb", ("a->b", "mean")] == 100.0
    with pytest.raises(ValueError, match="recipe='none' is not in the ledger; accepted are few, many"):
        ablation_table(results, recipe="none")


def test_seconds_of_the_published_runs():
    table = time_table(ledger_results(DIGITS), recipe="digits", accuracy=95, tasks=["usps:mnist"])
    for method in ("ckb", "source"):
        own = lines(recipe_name="digits", method=method, task="usps->mnist")
        assert table.loc[method, "seconds"] == pytest.approx(
            statistics.median(line["epochs"][-1]["seconds"] / len(line["epochs"]) for line in own)
        )
        first = [next((e["seconds"] for e in line["epochs"] if e["target_accuracy"] >= 0.95), None) for line in own]
        reached = [seconds for seconds in first if seconds is not None]
        assert table.loc[method, "reached"] == len(reached)
        if reached:
            assert table.loc[method, "to_accuracy"] == pytest.approx(statistics.median(reached))
    assert list(table["seconds"]) == sorted(table["seconds"])
    assert "NVIDIA H200" in table.attrs["hardware"]


def test_time_needs_a_clock_and_takes_epochs_for_equal_where_it_is_missing():
    told = run(epochs={"target_accuracy": [0.1, 0.6, 0.7], "seconds": [5.0, 6.0, 9.0]}, final={"seconds": 9.0})
    untold = run("ckw", epochs={"target_accuracy": [0.1, 0.6, 0.7]}, final={"seconds": 9.0})
    never = run("source", epochs={"target_accuracy": [0.1, 0.2]}, final={"seconds": 2.0})
    table = time_table([told, untold, never], accuracy=50)
    assert list(table.index) == ["source", "ckb", "ckw"]
    assert table["seconds"].tolist() == [1.0, 3.0, 3.0]
    assert table["to_accuracy"].tolist()[1:] == [6.0, 6.0]
    assert np.isnan(table.loc["source", "to_accuracy"])
    assert table["reached"].tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="no training says how many seconds its epochs took"):
        time_table([run()])
    with pytest.raises(ValueError, match="accuracy=0 is out of range"):
        time_table([told], accuracy=0)


def test_curves_of_the_published_runs():
    (task, table), *_ = training_curves(run_results(DIGITS, method="ckw", recipe="digits-best")).items()
    own = lines(recipe_name="digits-best", method="ckw", task=task)
    assert len(table) == 32
    for epoch in (1, 32):
        rows = [line["epochs"][epoch - 1] for line in own]
        distances = [row["ckb"] + row["means"] for row in rows]
        assert table.loc[epoch, ("ckw", "mean")] == pytest.approx(statistics.mean(distances))
        assert table.loc[epoch, ("ckw", "highest")] == pytest.approx(max(distances))
        assert table.loc[epoch, ("accuracy", "lowest")] == pytest.approx(min(100 * r["target_accuracy"] for r in rows))


def test_curves_need_accuracies_and_a_distance():
    epochs = {"target_accuracy": [0.5], "ckb": [0.25]}
    table = training_curves([run(epochs=epochs)])["a->b"]
    assert "ckw" not in table.columns.get_level_values(0)
    with pytest.raises(ValueError, match="bures adapt --source a --target b --recipe r --method ckb"):
        training_curves([run(epochs={"target_accuracy": [0.5]})])
    with pytest.raises(ValueError, match="the target needs labels"):
        training_curves([run(epochs={"ckb": [0.5]})])
    with pytest.raises(ValueError, match="2 pairs of recipe and method"):
        training_curves([run(epochs=epochs), run("ckw", epochs=epochs)])


def test_a_ledger_that_is_missing_comes_with_the_command_that_makes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"make it with: bures bench hyperparameters$"):
        ledger_results("results/hyperparameters.jsonl")
    with pytest.raises(FileNotFoundError, match="bures bench digits --results "):
        ledger_results(tmp_path / "digits.jsonl")
    (tmp_path / "digits.jsonl").touch()
    with pytest.raises(ValueError, match="holds no finished runs; make them with: bures bench digits"):
        ledger_results(tmp_path / "digits.jsonl")
    with pytest.raises(ValueError, match="is no ledger"):
        ledger_results(tmp_path)
    with pytest.raises(ValueError, match="--methods none"):
        run_results(DIGITS, method="none")


def test_tasks_in_words():
    assert task_words("office10/resnet50.npz#amazon->office10/dslr") == "amazon → dslr"


def test_time_is_that_of_trainings_even_where_shallow_methods_are_most_of_a_ledger():
    shallow = [run("coral", seed=seed, recipe="shallow", final={"accuracy": 0.9, "seconds": 0.3}) for seed in range(3)]
    trained = run("ckb", recipe="r", epochs={"target_accuracy": [0.5, 0.95], "seconds": [3.0, 8.0]})
    table = time_table([*shallow, trained])
    assert list(table.index) == ["ckb"]
    assert table.loc["ckb", ["seconds", "to_accuracy"]].tolist() == [4.0, 8.0]
    with pytest.raises(
        ValueError, match="no training says how many seconds its epochs took; make some with: bures bench"
    ):
        time_table(shallow)
