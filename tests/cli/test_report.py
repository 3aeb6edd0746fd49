"""`bures report`, and the report at the end of `bures adapt`."""

import os
import shlex
import shutil
import sys
import threading
import warnings

import numpy as np
import pytest
from commands import ended, printed

import bures.cli
from bures.data import drifting_class
from bures.training import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")
SMALL = ["--batch-size", "32", "--epochs", "2", "--set", "hidden=16", "--set", "features=8", "--accelerator", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two methods side by side, with the report that training has left."""
    place = tmp_path_factory.mktemp("runs")
    xs, ys, xt, yt = drifting_class(60, drift=1.0, seed=0)
    np.savez(place / "a.npz", x=xs, y=ys)
    np.savez(place / "b.npz", x=xt, y=yt)
    methods = ["--method", "source", "--method", "ckb"]
    data = ["--source", place / "a.npz", "--target", place / "b.npz"]
    shown = printed("adapt", *data, *methods, "-o", place / "out", "--no-figure", *SMALL)
    assert f"written: {place / 'out' / 'report.html'}" in shown.replace("\n", "")
    return place / "out"


def test_training_leaves_a_report_unless_told_not_to(folder, tmp_path):
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    data = ["--source", folder.parent / "a.npz", "--target", folder.parent / "b.npz", "-o", tmp_path / "one"]
    ended("adapt", *data, "--method", "source", "--no-figure", "--no-report", *SMALL)
    assert not (tmp_path / "one" / "report.html").exists()
    assert f"written: {tmp_path / 'one' / 'report.html'}" in printed("report", tmp_path / "one").replace("\n", "")


def test_a_page_that_goes_into_a_pipe_is_told_of_beside_the_standard_output(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    content = []
    reader = threading.Thread(target=lambda: content.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    assert printed("report", folder / "ckb", "-o", tmp_path / "pipe", "--tsne", 0) == ""  # it may be that pipe
    reader.join(30)
    assert content[0].startswith("<!doctype html>")


def test_the_command_that_finishes_a_run_can_be_pasted(folder, tmp_path):
    place = RunFolder(shutil.copytree(folder / "ckb", tmp_path / "my run"))
    place.write_manifest(place.read_manifest() | {"status": "stopped"})
    with pytest.raises(ValueError, match="finish this one first: ") as caught:
        ended("report", "--refresh", place.path)
    command = shlex.split(str(caught.value).partition("first: ")[2])
    assert command == ["bures", "adapt", "--resume", str(place.path)]


def test_a_report_that_cannot_be_written_does_not_undo_a_training(folder, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr("bures.report._write.write_text", full)
    data = ["--source", folder.parent / "a.npz", "--target", folder.parent / "b.npz", "-o", tmp_path / "one"]
    with pytest.warns(UserWarning, match="the report could not be written: no space left on device"):
        ended("adapt", *data, "--method", "source", "--no-figure", *SMALL)
    assert RunFolder(tmp_path / "one").read_manifest()["status"] == "finished"


def test_runs_go_side_by_side_into_one_file(folder, tmp_path):
    shown = printed("report", folder / "ckb", folder / "source", "-o", tmp_path / "both.html", "--tsne", 0)
    page = (tmp_path / "both.html").read_text()
    assert str(tmp_path / "both.html") in shown.replace("\n", "")
    assert page.index(">ckb<") < page.index(">source<")
    assert printed("report", folder, "-q", "--tsne", 0) == ""


def test_samples_are_made_anew_from_the_data_that_the_run_names(folder):
    file = RunFolder(folder / "ckb").samples
    before = file.read_bytes()
    file.unlink()
    ended("report", folder / "ckb", "--tsne", 0)
    assert "There is no map" in (folder / "ckb" / "report.html").read_text()
    ended("report", "--refresh", folder / "ckb", "--tsne", 0)
    assert "There is no map" not in (folder / "ckb" / "report.html").read_text()
    assert len(file.read_bytes()) == len(before)


def test_an_error_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bures", "report", "none"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main sets it
    with pytest.raises(SystemExit, match="2"):
        bures.cli.main()
    assert capsys.readouterr().err.strip() == "error: none does not exist; accepted are run folders of bures adapt"
