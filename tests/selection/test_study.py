"""The study of validators on ledgers that are made up, so that every number can be said beforehand."""

import json
import math

import pytest
from scipy.stats import spearmanr

from bures.experiments import read_results
from bures.selection import comparable_runs, study


def run(accuracies, task="a->b", method="ckb", select="im", **scores):
    epochs = [
        {"epoch": number + 1, "target_accuracy": accuracy, **{name: values[number] for name, values in scores.items()}}
        for number, accuracy in enumerate(accuracies)
    ]
    return {"task": task, "method": method, "recipe": {"select": select}, "epochs": epochs}


ACCURACIES = [0.5, 0.9, 0.7, 0.6]


def test_a_perfect_a_reversed_and_a_mixed_validator():
    mixed = [0.3, 0.1, 0.9, 0.2]
    reverse = [-a for a in ACCURACIES]
    table = study([run(ACCURACIES, score_ckw=ACCURACIES, score_snd=reverse, score_bnm=mixed)])
    assert list(table.index) == ["ckw", "bnm", "snd"]  # by regret
    assert table.loc["ckw", "correlation_epochs"] == pytest.approx(1.0)
    assert table.loc["snd", "correlation_epochs"] == pytest.approx(-1.0)
    assert table.loc["bnm", "correlation_epochs"] == pytest.approx(spearmanr(mixed, ACCURACIES).statistic)
    assert table["accuracy"].to_dict() == pytest.approx({"ckw": 90, "bnm": 70, "snd": 50})
    assert table["gain_over_last"].to_dict() == pytest.approx({"ckw": 30, "bnm": 10, "snd": -10})
    assert table["regret"].to_dict() == pytest.approx({"ckw": 0, "bnm": 20, "snd": 40})
    assert table["runs"].to_dict() == {"ckw": 1, "bnm": 1, "snd": 1}
    assert table["regret_runs"].isna().all()  # there is but one run to choose from


def test_target_score_is_that_of_the_validator_the_run_selects_by():
    named = run(ACCURACIES, select="ckw", target_score=ACCURACIES)
    older = run(ACCURACIES, target_score=[1, 2, 3, 4])
    older.pop("recipe")  # ledgers of before validators could be chosen
    table = study([named, older])
    assert set(table.index) == {"ckw", "im"}
    assert table.loc["im", "accuracy"] == pytest.approx(60)


def test_runs_of_a_task_are_compared_by_their_last_epochs():
    runs = [
        run([0.2, 0.9], task="a->b", score_im=[0, 1.0]),
        run([0.2, 0.5], task="a->b", score_im=[0, 3.0]),  # chosen, 40 points behind the best
        run([0.2, 0.7], task="a->b", score_im=[0, 2.0]),
        run([0.2, 0.3], task="b->a", score_im=[0, 0.5]),
        run([0.2, 0.8], task="b->a", score_im=[0, 9.0]),  # chosen rightly
    ]
    table = study(runs)
    assert table.loc["im", "regret_runs"] == pytest.approx((40 + 0) / 2)
    assert table.loc["im", "correlation_runs"] == pytest.approx((-1 + 1) / 2)
    by_task = study(runs, by="task")
    assert by_task.loc[("a->b", "im"), "regret_runs"] == pytest.approx(40)
    assert by_task.loc[("b->a", "im"), "correlation_runs"] == pytest.approx(1)
    assert list(study(runs, by="method").index) == [("ckb", "im")]


def test_epochs_without_a_score_and_runs_without_accuracy_are_left_out():
    gap = run(ACCURACIES, score_ckw=[None, 0.1, float("nan"), 0.2], score_im=[1, 1, 1, 1])
    blind = {"task": "a->b", "epochs": [{"epoch": 1, "score_im": 3.0}]}
    table = study([gap, blind])
    assert table.loc["ckw", "accuracy"] == pytest.approx(60)
    assert table.loc["ckw", "runs"] == 1
    assert math.isnan(table.loc["im", "correlation_epochs"])  # all epochs alike
    assert table.loc["im", "accuracy"] == pytest.approx(50)  # the first of equals, as training keeps it


def test_a_ledger_on_disk_gives_the_same_table(tmp_path):
    runs = [run(ACCURACIES, score_ckw=ACCURACIES), run(ACCURACIES, score_ckw=[1, 2, 3, 4])]
    runs = [{"key": f"a|b|recipe|ckb|{seed}", **item} for seed, item in enumerate(runs)]
    (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(item) + "\n" for item in runs))
    assert study(read_results(tmp_path / "ledger.jsonl")).equals(study(runs))
    assert list(study(runs, validators=["ckw"]).index) == ["ckw"]


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match="no result has both target accuracies and scores"):
        study([])
    with pytest.raises(ValueError, match="no result has both"):
        study([{"task": "a->b", "epochs": [{"epoch": 1, "target_score": 1.0}]}])
    with pytest.raises(ValueError, match="no result has scores of validator 'dev'; there are scores of im"):
        study([run(ACCURACIES, score_im=ACCURACIES)], validators=["dev"])
    with pytest.raises(ValueError, match="by='colour' is no field of every result"):
        study([run(ACCURACIES, score_im=ACCURACIES)], by="colour")


def test_ledgers_keep_columns_and_the_end_of_a_run_may_be_all_there_is():
    columns = {"target_accuracy": ACCURACIES, "score_ckw": [None, *ACCURACIES[1:]], "target_score": [4, 3, 2, 1]}
    table = study([{"task": "a->b", "method": "ckb", "recipe": {"select": "im"}, "epochs": columns}])
    as_rows = [
        dict(zip(["epoch", *columns], row, strict=True)) for row in zip(range(1, 5), *columns.values(), strict=True)
    ]
    assert table.equals(study([{"task": "a->b", "recipe": {"select": "im"}, "epochs": as_rows}]))
    assert table.loc["im", "gain_over_last"] == pytest.approx(-10)
    # Scores after the last epoch alone: runs can be compared, epochs cannot.
    ends = [
        {"task": "a->b", "epochs": {"target_accuracy": [0.1, last]}, "final": {"scores": {"snd": score, "ckw": None}}}
        for last, score in ((0.5, 3.0), (0.8, 2.0), (0.6, 1.0))
    ]
    table = study(ends)
    assert list(table.index) == ["snd"]
    assert table.loc["snd", "runs"] == 0
    assert math.isnan(table.loc["snd", "regret"])
    assert table.loc["snd", "regret_runs"] == pytest.approx(30)
    assert table.loc["snd", "regret_any_run"] == pytest.approx(80 - (50 + 80 + 60) / 3)


def test_epochs_without_a_score_still_count_as_last_and_as_best():
    gap = run([0.5, 0.6, 0.9, 0.8], score_ckw=[0.1, 0.2, None, None])
    table = study([gap])
    assert table.loc["ckw", "accuracy"] == pytest.approx(60)
    assert table.loc["ckw", "gain_over_last"] == pytest.approx(-20)
    assert table.loc["ckw", "regret"] == pytest.approx(30)


def test_runs_that_saw_the_labels_are_no_choice():
    honest = [run([0.2, last], score_im=[0, last]) for last in (0.4, 0.6)]
    upper = run([0.2, 0.9], method="target", score_im=[0, 5.0])
    assert study([*honest, upper]).equals(study(honest))


def test_comparable_runs_have_the_same_validators():
    older = [run(ACCURACIES, target_score=ACCURACIES) for _ in range(3)]
    newer = [run(ACCURACIES, score_im=ACCURACIES, score_snd=ACCURACIES, **more) for more in ({}, {})]
    most = [run(ACCURACIES, score_im=ACCURACIES, score_snd=ACCURACIES, score_ckw=ACCURACIES)]
    runs, validators = comparable_runs([*older, *newer, *most])
    assert (runs, validators) == ([*newer, *most], ["im", "snd"])
    assert comparable_runs(older) == (older, ["im"])
    assert comparable_runs([{"epochs": []}]) == ([], [])
