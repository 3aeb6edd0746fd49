"""`bures test`: the library's numbers from files, and exit codes that a pipeline can rely on."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from commands import invoke

import bures
from bures.cli import test as module


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    near, far = bures.data.drifting_class(60, drift=0.0, seed=3), bures.data.drifting_class(60, drift=2.0, seed=3)
    names = np.array(["cat", "dog", "emu"])
    np.savez(folder / "source.npz", x=near.xs, y=names[near.ys])
    np.savez(folder / "near.npz", x=near.xt, y=names[near.yt])
    np.savez(folder / "far.npz", x=far.xt, y=names[far.yt])
    np.save(folder / "unlabelled.npy", far.xt)
    return folder, near, far


def run(folder, *arguments):
    words = [folder / a if a.endswith((".npz", ".npy")) else a for a in arguments]
    return invoke("test", *words, "--permutations", "99", catch=True)


def test_exit_code_0_without_a_shift_and_1_with_one(files):
    folder, _, _ = files
    calm, found = run(folder, "source.npz", "near.npz"), run(folder, "source.npz", "far.npz", "--conditional")
    assert (calm.exit_code, found.exit_code) == (0, 1)
    assert "no difference in P(X|Y) found" in calm.stdout
    assert "P(X|Y) differs" in found.stdout
    assert run(folder, "source.npz", "unlabelled.npy", "--marginal").exit_code == 1
    assert run(folder, "source.npz", "near.npz", "--marginal", "--statistic", "kernel-bures").exit_code == 0


def test_json_holds_the_numbers_of_the_library(files):
    folder, near, far = files
    printed = json.loads(run(folder, "source.npz", "far.npz", "--json", "--statistic", "ckb", "--seed", "5").stdout)
    names = np.array(["cat", "dog", "emu"])
    result = bures.conditional_test(
        near.xs, names[near.ys], far.xt, names[far.yt], statistic="ckb", n_permutations=99, seed=5
    )
    assert printed["p_value"] == result.p_value
    assert printed["statistic"] == pytest.approx(result.statistic)
    assert printed["rejected"] is True
    assert [row["name"] for row in printed["classes"]] == ["cat", "dog", "emu"]


def test_predictions_are_made_or_declared_for_both_sides(files):
    folder, _, _ = files
    made = run(folder, "source.npz", "unlabelled.npy", "--predict", "--json")
    assert made.exit_code == 1
    assert json.loads(made.stdout)["labels"] == "predicted"
    declared = run(folder, "source.npz", "near.npz", "--predicted", "--json", "--aggregate", "--features", "20")
    assert json.loads(declared.stdout)["labels"] == "predicted"
    assert json.loads(declared.stdout)["n_features"] <= 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["source.npz", "unlabelled.npy"], "'unlabelled' has no labels, which --conditional needs; --predict"),
        (["unlabelled.npy", "source.npz"], "'unlabelled' has no labels"),
        (["source.npz", "near.npz", "--statistic", "mmd"], "--statistic mmd does not go with this test"),
        (["source.npz", "near.npz", "--marginal", "--predict"], "--marginal uses none"),
        (["source.npz", "near.npz", "--predict", "--predicted"], "pass one"),
        (["source.npz", "near.npz", "--level", "0.001"], "can never reject at --level 0.001"),
        (["source.npz", "near.npz", "--features", "few"], "--features 'few' is not accepted"),
        (["source.npz", "missing.npz"], "missing.npz"),
    ],
)
def test_errors_are_named(files, arguments, message):
    result = run(files[0], *arguments)
    assert isinstance(result.exception, (ValueError, OSError))
    assert message in str(result.exception)


def test_an_error_leaves_with_2_and_one_line(files):
    folder, _, _ = files
    command = [sys.executable, "-m", "bures", "test", folder / "source.npz", folder / "unlabelled.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: 'unlabelled' has no labels")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("failure", "code"), [(RuntimeError("out of memory"), 2), (KeyboardInterrupt(), 130)])
def test_no_failure_is_taken_for_a_shift(files, monkeypatch, failure, code):
    def fail(*_arguments, **_options):
        raise failure

    monkeypatch.setattr(module.bures, "conditional_test", fail)
    assert run(files[0], "source.npz", "near.npz").exit_code == code


def test_the_exit_code_does_not_depend_on_whether_the_output_is_read(files):
    folder, _, _ = files
    unread, end = os.pipe()
    os.close(unread)
    for target, verdict in (("near.npz", 0), ("far.npz", 1), ("none.npz", 2)):
        pair = [folder / "source.npz", folder / target]
        command = [sys.executable, "-m", "bures", "test", *pair, "--permutations", "99"]
        assert subprocess.run(command, stdout=end, stderr=end, check=False).returncode == verdict
    os.close(end)


def test_an_error_with_its_traceback_leaves_with_2_too(files):
    folder, _, _ = files
    command = [sys.executable, "-m", "bures", "--debug", "test", folder / "source.npz", folder / "unlabelled.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert "'unlabelled' has no labels" in done.stderr


def test_a_shift_that_reading_would_round_away_is_no_verdict(tmp_path):
    xs, ys, xt, yt = bures.data.drifting_class(60, drift=2.0, seed=3)
    for name, x, y in (("source", xs, ys), ("target", xt, yt)):
        np.savez(tmp_path / f"{name}.npz", x=x + 1.7e9, y=y)  # the same shift: distances are as they were
    done = run(tmp_path, "source.npz", "target.npz")
    assert isinstance(done.exception, ValueError)
    assert "subtract a constant" in str(done.exception)
    assert bures.conditional_test(xs + 1.7e9, ys, xt + 1.7e9, yt, n_permutations=99).rejected
