"""The default validator: the rule that keeps or replaces it, on made-up runs, and the published ledgers under it."""

import math
from pathlib import Path

import pytest
from scipy import stats

from bures.figures import grid_ledgers
from bures.selection import DEFAULT_VALIDATOR, compare_validators, preferred_validator, validator_names
from bures.training import Recipe

RESULTS = Path(__file__).parents[2] / "results"


def run(task, gain, start=0.5, **scores):
    """Two epochs, of which the first is better by ``gain``; im takes the second, snd the first."""
    columns = {"target_accuracy": [start + gain, start], "score_im": [1, 2], "score_snd": [2, 1], **scores}
    return {"task": task, "epochs": columns}


def test_a_difference_counts_beyond_its_confidence_interval_over_tasks():
    gains = [0.10, 0.12, 0.08]
    table = compare_validators([run(f"task {number}", gain) for number, gain in enumerate(gains)], current="im")
    expected = stats.ttest_1samp([10, 12, 8], 0).confidence_interval(0.95)
    assert table.loc["snd", "epochs"] == pytest.approx(10)
    assert table.loc["snd", "epochs"] - table.loc["snd", "epochs_margin"] == pytest.approx(expected.low)
    assert table.loc["snd", ["tasks", "verdict"]].tolist() == [3, "better"]
    assert math.isnan(table.loc["snd", "runs"])  # one run in each task: nothing to choose from
    assert preferred_validator([run("a", 0.10), run("b", 0.12), run("c", 0.08)], current="im") == "snd"


def test_noise_keeps_what_there_is():
    noisy = [run("a", 0.30), run("b", -0.25), run("c", 0.10)]
    assert compare_validators(noisy, current="im").loc["snd", "verdict"] == "tie"
    assert preferred_validator(noisy, current="im") == "im"
    assert preferred_validator(noisy, current="snd") == "snd"
    # Many runs of one task are one task.
    assert preferred_validator([run("a", 0.1) for _ in range(20)], current="im") == "im"


def test_a_difference_that_no_table_shows_changes_nothing():
    # Both are the same in every task, so that no noise hides them.
    small, large = ([run(task, gain) for task in "abc"] for gain in (0.0009, 0.0011))
    assert compare_validators(small, current="im").loc["snd", "epochs_margin"] < 0.01
    assert compare_validators(small, current="im").loc["snd", "verdict"] == "tie"
    assert compare_validators(small, current="snd").loc["im", "verdict"] == "tie"
    assert preferred_validator(small, current="im") == "im"
    assert compare_validators(large, current="im").loc["snd", "verdict"] == "better"
    assert compare_validators(large, current="snd").loc["im", "verdict"] == "worse"


def test_tasks_into_one_domain_are_one_piece_of_evidence():
    gains = [0.10, 0.13, 0.07]
    alone = [run(f"s->{target}", gain) for target, gain in zip("xyz", gains, strict=True)]
    again = [
        run(f"{file}#s->{file}#{target}", gain) for file in "ab" for target, gain in zip("xyz", gains, strict=True)
    ]
    photographs = [run(f"set/s->set/{target}", gain) for target, gain in zip("xyz", gains, strict=True)]
    table, more = (compare_validators(runs, current="im") for runs in (alone, [*alone, *again, *photographs]))
    for column in ("epochs", "epochs_margin"):
        assert more.loc["snd", column] == pytest.approx(table.loc["snd", column])
    assert (more.loc["snd", "tasks"], more.loc["snd", "targets"]) == (12, 3)
    # Deviations within a domain that cancel each other are no doubt about the mean.
    mixed = [run(f"{source}->{target}", gain) for target in "xy" for source, gain in (("s", 0.1), ("t", 0.2))]
    assert compare_validators(mixed, current="im").loc["snd", "epochs_margin"] == pytest.approx(0, abs=1e-9)
    assert preferred_validator([run(f"{source}->x", 0.1) for source in "abc"], current="im") == "im"


def test_runs_are_weighed_within_their_task():
    # im loses 10 points in a, twice, and nothing in b: 5 points on average, though most runs are of a.
    table = compare_validators([run("a", 0.1), run("a", 0.1), run("b", 0.0)], current="im")
    assert table.loc["snd", "epochs"] == pytest.approx(5)


def test_a_better_choice_of_epochs_does_not_outweigh_a_worse_choice_of_runs():
    # In both tasks snd finds the better epoch, and takes the worse run.
    tasks = [
        [run(task, 0.1, 0.5, score_snd=[9, 8]), run(task, 0.1, 0.7, score_im=[3, 4], score_snd=[2, 1])]
        for task in ("a", "b")
    ]
    runs = [item for task in tasks for item in task]
    table = compare_validators(runs, current="im")
    assert (table.loc["snd", "epochs"], table.loc["snd", "runs"]) == pytest.approx((10, -20))
    assert table.loc["snd", "verdict"] == "split"
    assert preferred_validator(runs, current="im") == "im"


def test_more_validators_ask_for_more_evidence():
    gains = [0.10, 0.13, 0.07, 0.11]
    two = [run(f"task {number}", gain) for number, gain in enumerate(gains)]
    many = [run(f"task {number}", gain, score_bnm=[1, 2], score_ckw=[1, 2]) for number, gain in enumerate(gains)]
    first, second = compare_validators(two, current="im"), compare_validators(many, current="im")
    quantiles = [stats.t.ppf(1 - 0.025 / comparisons, 3) for comparisons in (1, 3)]
    ratio = second.loc["snd", "epochs_margin"] / first.loc["snd", "epochs_margin"]
    assert ratio == pytest.approx(quantiles[1] / quantiles[0])


def test_validators_are_compared_on_runs_that_both_have_scored():
    older = [{"task": "a", "epochs": {"target_accuracy": [0.9, 0.1], "target_score": [1, 2]}} for _ in range(5)]
    table = compare_validators([*older, run("a", 0.1), run("b", 0.1)], current="im")
    assert table.loc["snd", "epochs"] == pytest.approx(10)


def test_held_out_samples_cannot_be_needed_by_default():
    runs = [run(task, 0.1, score_snd=[1, 2], score_dev=[2, 1]) for task in ("a", "b")]
    assert compare_validators(runs, current="im").loc["dev", "verdict"] == "better"
    assert preferred_validator(runs, current="im") == "im"


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="no result has scores of validator 'ckw'; there are scores of im, snd"):
        compare_validators([run("a", 0.1)], current="ckw")
    with pytest.raises(ValueError, match="current='oracle' is unknown; accepted are 'bnm'"):
        compare_validators([run("a", 0.1)], current="oracle")


def test_the_default_is_what_the_published_study_speaks_for():
    assert Recipe().select == DEFAULT_VALIDATOR in validator_names(holdout=False)
    ledgers = grid_ledgers([RESULTS / "*.jsonl"])
    preferred = preferred_validator([result for results in ledgers.values() for result in results])
    assert preferred == DEFAULT_VALIDATOR, f"the ledgers speak for {preferred!r}: make it DEFAULT_VALIDATOR"
