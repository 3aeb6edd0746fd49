"""`bures tune`: a search from the command line, its table, its resumption, and errors in one line."""

import json
import shlex
import signal
import sys
from functools import partial

import numpy as np
import pytest
from commands import invoke

import bures.cli
from bures.provenance import command_line
from bures.training import StoppedBySignal, load_recipe

pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")

SMALL = ["--set", "batch_size=32", "--set", "hidden=16", "--set", "features=8", "--set", "epochs=1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    xs, ys, xt, yt = bures.data.drifting_class(90, drift=1.0, seed=0)
    np.savez(folder / "source.npz", x=xs, y=ys)
    np.savez(folder / "target.npz", x=xt, y=yt)
    np.savez(folder / "unlabelled.npz", x=xt)
    (folder / "space.yaml").write_text("lr: {low: 1e-4, high: 1e-2, log: true}\nmethod: {choices: [ckb, ckw]}\n")
    return folder


run = partial(invoke, "tune", "--accelerator", "cpu")


def data(files, target="target.npz"):
    return "--source", files / "source.npz", "--target", files / target, "--space", files / "space.yaml", *SMALL


def test_a_search_gives_a_table_and_a_recipe_and_goes_on_later(files, tmp_path):
    result = run(*data(files), "--select", "snd", "--trials", 2, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "2 trials, best snd first" in words
    assert "The search has not used the accuracies" in words
    assert "trial 0: finished, snd " in words
    recipe = load_recipe(tmp_path / "out/best-recipe.yaml")
    assert recipe.select == "snd"
    best = json.loads((tmp_path / "out/tuning.json").read_text())["best"]
    manifest = json.loads((tmp_path / "out" / best["folder"] / "manifest.json").read_text())
    assert manifest["final"]["score"] == best["score"]
    assert manifest["recipe"]["lr"] == recipe.lr == best["values"]["lr"]
    more = run("--resume", tmp_path / "out", "--trials", 3, "-q")
    assert (more.exit_code, more.output) == (0, "")
    assert len(list((tmp_path / "out/trials").iterdir())) == 3


def test_a_stopped_search_says_how_to_go_on_in_one_line(files, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise StoppedBySignal(signal.SIGTERM, 3)

    monkeypatch.setattr("bures.experiments.tune", stopped)
    place = tmp_path / "a long name of a folder that no terminal of eighty columns has room for" / "my search"
    result = run(*data(files), "-o", place)
    assert result.exit_code == 128 + signal.SIGTERM
    (line,) = (line for line in result.stderr.splitlines() if "go on with: " in line)
    assert shlex.split(line.partition("go on with: ")[2]) == ["bures", "tune", "--resume", str(place)]


@pytest.mark.parametrize("searched", [False, True])
def test_a_batch_size_that_nobody_chose_is_made_to_fit(searched, files, tmp_path):
    space = tmp_path / "space.yaml"
    space.write_text("batch_size: {choices: [16, 32]}\n" if searched else "lr: {low: 1e-4, high: 1e-2}\n")
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--space", space, *SMALL[2:]]
    result = run(*words, "--trials", 1, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert ("Batches of 90 samples, not of 128" in " ".join(result.stderr.split())) == (not searched)
    assert json.loads((tmp_path / "out/tune.json").read_text())["recipe"]["batch_size"] == (128 if searched else 90)
    assert run("--resume", tmp_path / "out", "--trials", 2, "-q").exit_code == 0


def test_a_search_with_relative_paths_goes_on_from_another_folder(files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    words = ["--source", "source.npz", "--target", "target.npz", "--space", "space.yaml", "-q", *SMALL]
    assert run(*words, "--trials", 1, "-o", tmp_path / "out").exit_code == 0
    monkeypatch.chdir(tmp_path)
    assert run("--resume", "out", "--trials", 2, "-q").exit_code == 0
    assert len(list((tmp_path / "out/trials").iterdir())) == 2


def test_a_search_after_one_that_was_refused_can_be_resumed(files, tmp_path):
    words = [*data(files), "--trials", 1, "-q", "-o", tmp_path / "out"]
    with pytest.raises(ValueError, match="--at 'lats' is unknown"):
        run(*words, "--at", "lats")
    assert run(*words).exit_code == 0
    assert json.loads((tmp_path / "out/tune.json").read_text())["at"] == "last"
    assert run("--resume", tmp_path / "out", "--trials", 2, "-q").exit_code == 0


def test_without_target_labels_no_accuracy_is_shown(files, tmp_path):
    result = run(*data(files, "unlabelled.npz"), "--trials", 1, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "accura" not in result.output


def test_a_database_is_named_again_and_its_password_is_written_nowhere(files, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    assert run(*data(files), "--trials", 1, "-o", tmp_path / "out", "--storage", url).exit_code == 0
    assert "shared.db" not in (tmp_path / "out/tune.json").read_text()
    with pytest.raises(ValueError, match=r"are in a database; give its URL: --storage or \$BURES_STORAGE"):
        run("--resume", tmp_path / "out")
    monkeypatch.setenv("BURES_STORAGE", url)
    assert run("--resume", tmp_path / "out", "--trials", 2).exit_code == 0
    monkeypatch.setattr(sys, "argv", ["bures", "tune", "--storage", "mysql://me:s3:cr@t@host/db"])
    assert command_line() == "bures tune --storage mysql://me@host/db"


def test_errors_name_what_is_wrong(files, tmp_path, monkeypatch):
    for words, message in (
        ((), "--source, --target and --space are needed"),
        (("--resume", tmp_path), "is no folder of a search: tune.json is missing"),
        (("--resume", tmp_path, "--source", "a"), "--resume takes data, recipe and space from the folder"),
        (("--resume", tmp_path, "--prune"), "--prune is given"),
        (("--resume", tmp_path, "--at", "best"), "--at is given"),
        ((*data(files), "--select", "oracle"), "--select 'oracle' is unknown"),
        ((*data(files), "--select", "dev"), "set source_holdout"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            run(*words)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"--output '.*file' cannot be made \(File exists\); choose another folder"):
        run(*data(files), "-o", tmp_path / "file")
    (tmp_path / "tune.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tune.json is damaged: at is missing"):
        run("--resume", tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'bures\[tune\]'"):
        run(*data(files), "-o", tmp_path / "none")
    assert not (tmp_path / "none").exists()
