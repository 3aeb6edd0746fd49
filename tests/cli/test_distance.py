"""`bures distance`: the library's numbers from files, and errors in one line."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from commands import invoke, printed

import bures


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    xs, xt = rng.normal(size=(40, 3)).astype(np.float32), 2 * rng.normal(size=(30, 3)).astype(np.float32)
    ys, yt = np.array(["cat", "dog"])[rng.integers(2, size=40)], np.array(["cat", "dog"])[rng.integers(2, size=30)]
    np.savez(tmp_path / "source.npz", x=xs, y=ys)
    np.savez(tmp_path / "target.npz", x=xt, y=yt)
    np.save(tmp_path / "unlabelled.npy", xt)
    return tmp_path, (xs, ys, xt, yt)


run = partial(printed, "distance")


@pytest.mark.parametrize(
    ("metric", "function"),
    [
        ("ckb", bures.ckb),
        ("ckw", bures.ckw),
        ("kernel-bures", bures.kernel_bures),
        ("bures", bures.bures),
        ("mmd", bures.mmd),
    ],
)
def test_the_distance_is_that_of_the_library(files, metric, function):
    folder, (xs, ys, xt, yt) = files
    expected = function(xs, ys, xt, yt) if metric in ("ckb", "ckw") else function(xs, xt)
    printed = json.loads(run(folder / "source.npz", folder / "target.npz", "--metric", metric, "--json"))
    assert printed == {"metric": metric, "squared_distance": pytest.approx(expected, rel=1e-9)}
    assert f"{expected:.6g}" in run(folder / "source.npz", folder / "target.npz", "--metric", metric)


def test_options_reach_the_library(files):
    folder, (xs, ys, xt, yt) = files
    expected = bures.ckb(xs, ys, xt, yt, eps="auto", prior="uniform")
    printed = run(folder / "source.npz", folder / "target.npz", "--eps", "auto", "--prior", "uniform", "--json")
    assert json.loads(printed)["squared_distance"] == pytest.approx(expected, rel=1e-9)


def test_explain_prints_the_explanation_and_proper_json(files):
    folder, _ = files
    assert "null level" in run(folder / "source.npz", folder / "target.npz", "--explain")
    result = json.loads(run(folder / "source.npz", folder / "target.npz", "--explain", "--json"))
    assert {row["name"] for row in result["classes"]} == {"cat", "dog"}


def test_undefined_numbers_are_null_in_json(files, tmp_path):
    xs = files[1][0]
    np.savez(tmp_path / "one.npz", x=xs, y=np.array(["cat"] * len(xs)))
    result = json.loads(run(tmp_path / "one.npz", tmp_path / "one.npz", "--explain", "--json"))
    assert result["classes"][0]["change_without"] is None


def command(*arguments):
    """Run the command line as a user does."""
    return subprocess.run([sys.executable, "-m", "bures", *map(str, arguments)], capture_output=True, text=True)


def test_an_error_is_one_line_and_exit_code_2(files):
    folder, _ = files
    done = command("distance", folder / "source.npz", folder / "unlabelled.npy")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: 'unlabelled' has no labels")
    assert done.stderr.count("\n") == 1
    assert "--metric kernel-bures" in done.stderr


def test_debug_shows_the_traceback(files):
    folder, _ = files
    done = command("--debug", "distance", folder / "missing.npz", folder / "target.npz")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "missing.npz" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--eps", "small"], "--eps 'small' is not a number"),
        (["--eps", "-1"], "--eps -1.0 is out of range"),
        (["--prior", "flat"], "--prior 'flat' is unknown"),
        (["--metric", "mmd", "--explain"], "--explain and --prior need labels"),
    ],
)
def test_wrong_options_are_named(files, options, message):
    folder, _ = files
    with pytest.raises(ValueError, match=message):
        run(folder / "source.npz", folder / "target.npz", *options)


def test_images_are_refused_with_a_reason():
    with pytest.raises(
        ValueError, match=r"'optdigits' holds images of shape \(1, 8, 8\); accepted are feature vectors"
    ):
        run("optdigits", "optdigits")


def test_version_and_help():
    assert printed("--version").strip() == bures.__version__
    assert "distance" in invoke("--help").stdout


def test_a_narrow_terminal_fills_the_lines_of_a_paragraph(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    told = invoke("bench", "--help").stdout
    after = told.partition("What is finished is kept")[2].partition("\u256d")[0]
    full = [line.strip() for line in after.splitlines() if line.strip()][1:-1]  # the last line ends the paragraph
    assert len(full) >= 2
    assert all(len(line) > 40 for line in full), full
