"""`bures shift`: the report from files, as text, JSON and a page."""

import json

import numpy as np
import pytest
from commands import invoke

import bures


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    pair = bures.data.drifting_class(80, drift=2.0)
    names = np.array(["<i>cat</i>", "dog", "emu"])
    np.savez(folder / "source.npz", x=pair.xs, y=names[pair.ys])
    np.savez(folder / "target.npz", x=pair.xt, y=names[pair.yt])
    np.save(folder / "unlabelled.npy", pair.xt)
    return folder


def run(*arguments):
    return invoke("shift", *arguments, "--permutations", "99", catch=True)


def test_text_json_and_page(files, tmp_path):
    result = run(files / "source.npz", files / "target.npz", "--html", tmp_path / "report.html")
    assert result.exit_code == 0
    assert "conditional shift  found" in result.stdout
    assert "try ckw" in result.stdout
    page = (tmp_path / "report.html").read_text()
    assert "&lt;i&gt;cat&lt;/i&gt;" in page
    assert "<i>cat" not in page
    assert "source.npz → target.npz" in page  # a page that is sent around says of what it is,
    assert str(files) not in page  # and not where that lies
    data = json.loads(run(files / "source.npz", files / "target.npz", "--json").stdout)
    assert data["labels"] == "true"
    assert {row["shift"]: row["found"] for row in data["findings"]}["conditional"] is True


def test_a_target_without_labels_is_predicted(files):
    for arguments in ((files / "unlabelled.npy",), (files / "target.npz", "--hide-labels")):
        data = json.loads(run(files / "source.npz", *arguments, "--json").stdout)
        assert data["labels"] == "predicted"
        assert 0.8 < data["source_accuracy"] <= 1


def test_errors_come_before_the_work(files):
    result = run(files / "unlabelled.npy", files / "target.npz")
    assert "the source must be labelled" in str(result.exception)
    result = run(files / "source.npz", files / "target.npz", "--html", files / "none" / "report.html")
    assert isinstance(result.exception, FileNotFoundError)


@pytest.mark.parametrize("written", ["source.npz", "target.npz"])
def test_the_page_is_not_written_over_what_is_read(files, written):
    given = (files / written).read_bytes()
    result = run(files / "source.npz", files / "target.npz", "--html", files / written)
    assert "is read by this command" in str(result.exception)
    result = run("source.npz", "target.npz", "--data-root", files, "--html", files / written)
    assert "is read by this command" in str(result.exception)
    assert (files / written).read_bytes() == given
