"""The page: its numbers, its names, its size, and what it says where something is missing."""

import html
import json
import re

import numpy as np
import pytest
from folders import write_run
from runs import CLASSES, train_on_features

from bures.experiments import Comparison
from bures.report import read_runs, write_report
from bures.report._runs import baseline_of
from bures.training import RunFolder

SCRIPT = "<script>alert(1)</script>"


def page_of(*paths, **options):
    return write_report(paths, **{"tsne": 0, **options}).read_text()


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def text_of(page):
    body = page[page.index("<body>") : page.index('<script type="application/json"')]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\N{NARROW NO-BREAK SPACE}", " ").split())


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A comparison of two methods as `bures adapt` leaves it."""
    folder = tmp_path_factory.mktemp("pair")
    runs = {name: train_on_features(folder / name, method=name) for name in ("source", "ckb")}
    (folder / "adapt.json").write_text(json.dumps({"methods": ["source", "ckb"]}))
    return folder, Comparison(runs)


def test_the_headline_has_the_numbers_of_the_comparison(pair):
    folder, comparison = pair
    page = page_of(folder)
    row = comparison.rows()[-1]
    shown = text_of(page)
    assert f"{100 * row.accuracy:.1f} % of the target recognised" in shown
    sign = "\N{MINUS SIGN}" if row.gain < 0 else "+"
    assert row.gain != 0
    assert f"{sign}{abs(100 * row.gain):.1f} points against source-only" in shown
    assert [run["label"] for run in data_of(page)["runs"]] == ["source", "ckb"]


def test_one_run_is_compared_with_the_source_only_run_beside_it(pair):
    folder, _ = pair
    page = page_of(folder / "ckb", output=folder / "one.html")
    assert "points against source-only" in text_of(page)
    assert [run["label"] for run in data_of(page)["runs"]] == ["ckb"]
    assert "against source-only" not in text_of(page_of(folder / "source", output=folder / "one.html"))


def test_gains_are_only_over_runs_on_the_same_data(pair, tmp_path):
    folder, _ = pair
    source, ckb = read_runs([folder])
    assert baseline_of(ckb, [ckb, source]) is source
    (other,) = read_runs([write_run(tmp_path / "source", method="source").path])
    assert baseline_of(ckb, [other]) is None


def test_classes_show_accuracies_gains_and_confusions(tmp_path):
    names = ("ant", "bee", "cow")
    before = write_run(tmp_path / "source", names, n=90, method="source", right=0.4)
    after = write_run(tmp_path / "ckb", names, n=90, right=0.9)
    page = page_of(before.path, after.path)
    counts = {}
    for record in read_runs([before.path, after.path]):
        counts[record.method] = record.confusion
        for value in record.confusion.ravel():
            assert f">{value or '·'}</td>" in page
    share = {method: np.diagonal(table) / table.sum(axis=1) for method, table in counts.items()}
    gain = share["ckb"] - share["source"]
    text = text_of(page)
    for k, name in enumerate(names):
        row = f"{name} {counts['ckb'][k].sum()} {100 * share['source'][k]:.1f} % {100 * share['ckb'][k]:.1f} %"
        assert f"{row} {100 * gain[k]:+.1f}".replace("-", "\N{MINUS SIGN}") in text
    order = [names[k] for k in np.argsort(gain, kind="stable")]
    table = page[page.index('<table class="classes">') :]
    assert sorted(names, key=lambda name: table.index(f'title="{name}"')) == order


def test_a_class_that_lost_much_is_named_at_the_top(tmp_path):
    before = write_run(tmp_path / "source", method="source", right=1.0)
    after = write_run(tmp_path / "ckb", right=0.3)
    assert "is recognised less often" in text_of(page_of(before.path, after.path))
    assert "is recognised less often" not in text_of(page_of(before.path, output=tmp_path / "one.html"))


def test_a_gain_says_which_statistics_it_is_over_and_runs_that_are_equal_are_all_named(tmp_path):
    source = write_run(tmp_path / "source", method="source", right=0.4)
    runs = [write_run(tmp_path / name, method=name, right=0.8) for name in ("ckb", "ckw", "dann")]
    paths = [source.path, *(run.path for run in runs)]
    plain = text_of(page_of(*paths))
    manifest = source.read_manifest()
    manifest["final"]["accuracy_by_batchnorm"]["target"] = better = manifest["final"]["accuracy"] + 0.1
    source.write_manifest(manifest)
    page = text_of(page_of(*paths))
    gain = 100 * (runs[0].read_manifest()["final"]["accuracy"] - better)
    alone = "than the same network trained on the source alone, with BatchNorm statistics of the target."
    assert f"{gain:.1f} points more {alone}" in page
    manifest["final"]["accuracy_by_batchnorm"]["target"] = runs[0].read_manifest()["final"]["accuracy"]
    source.write_manifest(manifest)
    assert f", as many as {alone.removeprefix('than ')}" in text_of(page_of(*paths))
    assert f"+{gain:.1f} points against source-only with BatchNorm statistics of the target" in page
    assert "trained on the source alone." in plain
    assert "points against source-only label-free" in plain
    assert "ckb, ckw and dann recognise " in page
    assert "ckb recognises " in text_of(page_of(source.path, runs[0].path))


def test_names_with_markup_stay_names(tmp_path):
    names = (SCRIPT, 'quote" onload="alert(1)', "a&b\u2028")
    folder = write_run(tmp_path / "run", names, n=40, side=8, ids=tuple(f"{SCRIPT}{i}" for i in range(40)))
    manifest = folder.read_manifest()
    manifest.pop("schema")
    manifest["notes"], manifest["command"] = [SCRIPT], f"bures adapt --source '{SCRIPT}'"
    manifest["data"]["source"]["name"] = SCRIPT
    folder.write_manifest(manifest)
    page = page_of(folder.path)
    assert SCRIPT not in page
    assert html.escape(SCRIPT) in page
    assert 'onload="alert' not in page
    assert len(re.findall(r"<script\b", page)) == 2  # the data and our own
    assert data_of(page)["groups"][0]["classes"] == list(names)
    assert data_of(page)["groups"][0]["target"]["ids"][3] == f"{SCRIPT}3"


def test_awkward_names_of_a_real_run_are_in_the_page(pair):
    text = text_of(page_of(pair[0]))
    assert all(name in text for name in CLASSES)


def test_nothing_is_loaded_from_elsewhere(pair):
    page = page_of(pair[0])
    for address in re.findall(r'(?:src|href|action)\s*=\s*["\']?([^"\'\s>]+)', page) + re.findall(
        r"url\(([^)]+)\)", page
    ):
        assert address.startswith(("#", "data:", "${")), address
    assert "http-equiv" in page
    assert re.findall(r"https?://", page) == []


def test_ten_thousand_points_with_noisy_pictures_stay_below_five_megabytes(tmp_path):
    long_names = tuple(f"photographs/of/many/things/class-{i % 10}/picture-number-{i:06d}.jpeg" for i in range(5000))
    names = [f"class {k}" for k in range(10)]
    write_run(tmp_path / "run", names, n=5000, side=32, ids=long_names)
    page = write_report([tmp_path / "run"], tsne=100)
    assert page.stat().st_size < 5e6
    data = data_of(page.read_text())
    assert sum(len(side[0]) for side in data["maps"][0]["pca"]) == 10_000
    assert sum(len(side[0]) for side in data["maps"][0]["tsne"]) == 100
    assert data["groups"][0]["target"]["sheet"].startswith("data:image/")
    assert data["groups"][0]["target"]["ids"][0].endswith("picture-number-000000.jpeg")


def test_runs_on_the_same_samples_share_them(pair):
    data = data_of(page_of(pair[0]))
    assert len(data["groups"]) == 1
    assert [one["group"] for one in data["maps"]] == [0, 0]
    assert data["groups"][0]["target"]["sheet"] is None  # feature vectors


def test_thousands_of_classes_give_a_page_that_can_be_read(tmp_path):
    names = [f"class-{k}" for k in range(1200)]
    write_run(tmp_path / "source", names, n=1500, method="source", right=0.5)
    write_run(tmp_path / "ckb", names, n=1500)
    page = page_of(tmp_path)
    assert len(page) < 5e6
    text = text_of(page)
    assert "Of 1200 classes, the two ends are shown" in text
    assert "The other 1176 classes (without 176 that would make this page too long" in text
    assert '<table class="confusion">' not in page
    assert page.count('class="matrix-picture"') == 2


def test_a_target_without_labels_has_no_accuracy_anywhere(tmp_path):
    page = page_of(write_run(tmp_path / "run", labelled=False).path)
    text = text_of(page)
    assert "The target has no labels, so that no accuracy can be given" in text
    assert "which samples are the hardest is not known" in text
    assert "Calibration needs target labels" in text
    assert "its classes are the final predictions" in text
    assert data_of(page)["groups"][0]["target"]["labels"] is None
    assert "of the target recognised" not in text


def test_a_run_without_samples_says_how_to_get_them(tmp_path):
    folder = write_run(tmp_path / "run")
    folder.samples.unlink()
    text = text_of(page_of(folder.path))
    assert f"Get it with: bures report --refresh {folder.path}" in text
    assert "There is no map" in text
    assert "of the target recognised" in text


def test_a_damaged_part_is_left_out_and_named(tmp_path):
    folder = write_run(tmp_path / "run")
    folder.samples.write_bytes(folder.samples.read_bytes()[:-64])
    folder.confusion.write_text("true class,cat,dog\ncat,1,many\n")
    text = text_of(page_of(folder.path))
    assert "samples.safetensors cannot be read and is left out" in text
    assert "confusion.csv cannot be read and is left out" in text


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("running", None, "is still running, or was killed"),
        ("stopped", "SIGTERM", "was stopped (SIGTERM)"),
        ("failed", "the loss is not finite.", "failed (the loss is not finite)"),
    ],
)
def test_a_run_that_is_not_finished_is_reported_as_far_as_it_came(status, reason, words, tmp_path):
    folder = write_run(tmp_path / "my run")
    manifest = folder.read_manifest()
    for name in ("schema", "epochs", "final", "hardware", "notes"):
        manifest.pop(name)
    folder.write_manifest(manifest | {"status": status, "reason": reason})
    for file in (folder.samples, folder.confusion):
        file.unlink()
    page = page_of(folder.path)
    text = text_of(page)
    assert f"This run {words}: what follows is what there is up to now" in text
    assert f"bures adapt --resume '{folder.path}'" in text
    assert "Not finished: ckb" in text
    assert "3 of 3" in text  # epochs, from the log
    assert '<svg class="chart lines"' in page
    folder.log.unlink()
    assert "0 of 3" in text_of(page_of(folder.path))


def test_many_runs_have_names_that_differ_and_share_the_points(tmp_path):
    for seed in range(4):
        write_run(tmp_path / f"run{seed}", seed=seed)
    data = data_of(page_of(*sorted(tmp_path.iterdir()), output=tmp_path / "all.html"))
    assert [run["label"] for run in data["runs"]] == [f"ckb, seed {seed}" for seed in range(4)]
    assert len({run["style"] for run in data["runs"]}) == 4


def test_bad_input_is_one_clear_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no run folder: manifest.json is missing, and no folder in it"):
        write_report([tmp_path])
    with pytest.raises(FileNotFoundError, match="does not exist; accepted are run folders"):
        write_report([tmp_path / "none"])
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        write_report([tmp_path / "file"])
    with pytest.raises(ValueError, match="no run folder is given"):
        read_runs([])
    folder = write_run(tmp_path / "run")
    with pytest.raises(ValueError, match="tsne=-1 is out of range"):
        write_report([folder.path], tsne=-1)
    with pytest.raises(FileNotFoundError, match="is not a folder; make it first"):
        write_report([folder.path], tmp_path / "nowhere" / "report.html")
    RunFolder(folder.path).manifest.write_text('{"schema": 1, "status": "finished"}')
    with pytest.raises(ValueError, match="is damaged: 'recipe' is missing"):
        write_report([folder.path])
    RunFolder(folder.path).manifest.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        write_report([folder.path])


def test_a_page_is_not_written_over_a_run(tmp_path):
    folder, other = write_run(tmp_path / "run"), write_run(tmp_path / "other")
    before = {file: file.read_bytes() for run in (folder, other) for file in run.files() if file.is_file()}
    for file in before:
        with pytest.raises(ValueError, match=r"is a file of the run in .*; choose another file"):
            write_report([folder.path], file, tsne=0)
    assert {file: file.read_bytes() for file in before} == before


def test_an_error_leaves_the_page_that_was_there(tmp_path):
    folder = write_run(tmp_path / "run")
    page = write_report([folder.path], tsne=0)
    before = page.read_bytes()
    folder.manifest.write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        write_report([folder.path], tsne=0)
    assert page.read_bytes() == before


def test_the_page_is_the_same_every_time(tmp_path):
    folder = write_run(tmp_path / "run", side=16)
    first = write_report([folder.path], tsne=60).read_bytes()
    assert write_report([folder.path], tsne=60).read_bytes() == first
