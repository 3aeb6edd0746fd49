"""`bures adapt`: from two domains to a run folder, a table and a figure; resumption; errors in one line."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import invoke
from PIL import Image

import bures.cli
from bures.cli._job import note_on_weights
from bures.data import Domain, TensorSamples, load_domain
from bures.figures import _save as figure_files
from bures.networks import backbone
from bures.training import Recipe, load_model, load_recipe

SMALL = ["--batch-size", "32", "--set", "hidden=16", "--set", "features=8", "--accelerator", "cpu"]

pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A labelled source, a labelled and an unlabelled target of feature vectors."""
    folder = tmp_path_factory.mktemp("features")
    xs, ys, xt, yt = bures.data.drifting_class(120, drift=1.5, seed=0)
    names = np.array(["apple", "pear", "plum"])
    np.savez(folder / "source.npz", x=xs, y=names[ys])
    np.savez(folder / "target.npz", x=xt, y=names[yt])
    np.savez(folder / "unlabelled.npz", x=xt)
    return folder


run = partial(invoke, "adapt", catch=True)


def fails(*words):
    """The standard error of a command that must end with exit code 2."""
    done = subprocess.run([sys.executable, "-m", "bures", "adapt", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


def test_methods_side_by_side_give_a_table_a_figure_and_a_folder_each(files, tmp_path):
    result = run(
        "--source", files / "source.npz", "--target", files / "target.npz", "--method", "source", "--method", "ckb",
        "--epochs", 3, "-o", tmp_path / "out", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "source (120 labelled) → target (120 unlabelled)" in result.output
    assert "source+adabn" in result.output
    assert "whose labels training has not seen" in " ".join(result.output.split())
    rows = json.loads((tmp_path / "out/comparison.json").read_text())["rows"]
    assert [row["label"] for row in rows] == ["source", "source+adabn", "ckb"]
    baseline = max(rows[0]["accuracy"], rows[1]["accuracy"])
    assert rows[2]["gain"] == pytest.approx(rows[2]["accuracy"] - baseline)
    for method in ("source", "ckb"):
        manifest = json.loads((tmp_path / "out" / method / "manifest.json").read_text())
        assert manifest["status"] == "finished"
        assert manifest["recipe"]["method"] == method
    assert (tmp_path / "out/features.png").stat().st_size > 10_000
    assert (tmp_path / "out/features.svg").is_file()


def test_a_drawing_that_finds_no_room_costs_neither_the_table_nor_the_report(files, tmp_path, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(figure_files, "atomic_file", full)
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 1, "-o", tmp_path / "out"]
    with pytest.warns(UserWarning, match="the features could not be drawn: .*No space left on device"):
        result = run(*words, "--method", "source", *SMALL)
    assert result.exit_code == 0, result.output
    assert "target accuracy" in result.output
    assert {path.name for path in (tmp_path / "out").glob("features*")} == set()
    assert (tmp_path / "out/report.html").is_file()


def test_an_unlabelled_target_has_predictions_and_no_accuracy(files, tmp_path):
    result = run(
        "--source", files / "source.npz", "--target", files / "unlabelled.npz", "--epochs", 2, "-o", tmp_path / "out",
        "--no-figure", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "accuracy" not in result.output
    assert not (tmp_path / "out/confusion.csv").exists()
    lines = (tmp_path / "out/predictions.csv").read_text().splitlines()
    assert lines[0] == "sample,class,p(apple),p(pear),p(plum)"
    assert len(lines) == 121
    assert not (tmp_path / "out/features.png").exists()


def test_options_recipes_and_overrides_reach_the_recipe(files, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("method: ckw\noptions: {means: 2.0, entropy: 0.3}\nepochs: 9\nlr: 1e-2\n")
    result = run(
        "--source", files / "source.npz", "--target", files / "target.npz", "--recipe", recipe, "--epochs", 1,
        "--seed", 7, "--set", "options.entropy=0.1", "--class-balanced", "-o", tmp_path / "out", "-q", "--no-figure",
        *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.output == ""
    written = json.loads((tmp_path / "out/manifest.json").read_text())["recipe"]
    assert (written["method"], written["epochs"], written["lr"], written["seed"]) == ("ckw", 1, 0.01, 7)
    assert written["options"] == {"means": 2.0, "entropy": 0.1}
    assert written["class_balanced"] is True


def test_an_image_folder_with_grey_and_transparent_pictures_is_adapted_to_a_flat_one(tmp_path):
    rng = np.random.default_rng(0)
    for label, (name, mode) in enumerate((("dark", "L"), ("light", "RGBA"))):
        (tmp_path / "source" / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(100, size=(20, 24), dtype=np.uint8) + np.uint8(120 * label)
            Image.fromarray(pixels).convert(mode).save(tmp_path / "source" / name / f"{number}.png")
    (tmp_path / "target").mkdir()
    for number in range(20):
        pixels = rng.integers(80, size=(16, 16, 3), dtype=np.uint8) + np.uint8(120 * (number % 2))
        Image.fromarray(pixels).save(tmp_path / "target" / f"{number}.png")
    result = run(
        "--source", tmp_path / "source", "--target", tmp_path / "target", "--network", "lenet", "--image-size", 16,
        "--batch-size", 8, "--epochs", 12, "-o", tmp_path / "out", "--no-figure", "--accelerator", "cpu",
        "--set", "hidden=16", "--set", "features=8",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    model = load_model(tmp_path / "out")
    assert model.class_names == ("dark", "light")
    predicted = [line.split(",")[1] for line in (tmp_path / "out/predictions.csv").read_text().splitlines()[1:]]
    names = [line.split(",")[0] for line in (tmp_path / "out/predictions.csv").read_text().splitlines()[1:]]
    wanted = ["light" if int(name.removesuffix(".png")) % 2 else "dark" for name in names]
    assert np.mean([a == b for a, b in zip(predicted, wanted, strict=True)]) > 0.8


def photographs(n, shape=(3, 40, 40)):
    pixels = torch.randint(0, 255, (n, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))
    return Domain("photographs", TensorSamples(pixels), ["a", "b"], torch.arange(n) % 2)


@pytest.mark.parametrize(
    ("fields", "shape", "noted"),
    [
        ({"network": "resnet18"}, (3, 40, 40), "resnet18 begins with random weights"),
        ({}, (3, 40, 40), "resnet50 begins with random weights"),
        ({"image_size": 32}, (3, 40, 40), None),  # which is a LeNet's
        ({"network": "resnet18", "weights": "default"}, (3, 40, 40), None),
        ({"network": "lenet"}, (3, 40, 40), None),
        ({}, (3, 28, 28), None),
    ],
)
def test_a_network_for_photographs_without_weights_is_noted(fields, shape, noted):
    note = note_on_weights(Recipe(**fields), photographs(4, shape), photographs(6, shape))
    assert note is None if noted is None else note.startswith(noted)
    assert noted is None or "--weights default --set download_weights=true" in note


def test_vectors_need_no_weights(files):
    assert note_on_weights(Recipe(), *(load_domain(files / f"{side}.npz") for side in ("source", "target"))) is None


def test_random_weights_are_noted_before_the_training_and_not_where_quiet(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (40, 40), (50 * number, 9, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    words = ["--source", tmp_path / "photos", "--target", tmp_path / "photos", "--network", "squeezenet1_0"]
    words += ["--image-size", 32, "--epochs", 1, "--no-figure", "--no-report", *SMALL, "--batch-size", 4]
    told, silent = run(*words, "-o", tmp_path / "out"), run(*words, "-o", tmp_path / "other", "-q")
    assert (told.exit_code, silent.exit_code) == (0, 0), told.output
    assert "note: squeezenet1_0 begins with random weights" in told.stderr
    assert silent.stderr == ""


def test_a_terminated_command_says_how_to_go_on_and_does(files, tmp_path):
    place = tmp_path / "a long name of a folder that no terminal of eighty columns has room for" / "my run"
    words = [
        "--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 2000, "-o", place,
        "--no-figure", *SMALL,
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "bures", "adapt", *map(str, words)], stderr=subprocess.PIPE, text=True
    )
    log = place / "log.csv"
    until = time.monotonic() + 120
    while not log.is_file() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, errors
    line = next(line for line in errors.splitlines() if "go on with: " in line)
    assert shlex.split(line.partition("go on with: ")[2]) == ["bures", "adapt", "--resume", str(place)]
    assert "Traceback" not in errors
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest["status"] == "stopped"
    assert (place / "checkpoints/last.ckpt").is_file()
    manifest["recipe"]["epochs"] = manifest["epochs"][-1]["epoch"] + 2  # a shorter end: another recipe
    (place / "manifest.json").write_text(json.dumps(manifest))
    assert "belongs to another recipe" in fails("--resume", place, "--accelerator", "cpu")


def test_resuming_several_methods_runs_only_what_is_missing(files, tmp_path):
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 2, "-o", tmp_path / "out"]
    assert run(*words, "--method", "source", "--method", "entropy", "--no-figure", *SMALL).exit_code == 0
    kept = (tmp_path / "out/source/manifest.json").stat().st_mtime_ns
    (tmp_path / "out/entropy/manifest.json").unlink()
    (tmp_path / "out/entropy").rename(tmp_path / "gone")
    result = run("--resume", tmp_path / "out", "--no-figure", "--accelerator", "cpu")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out/source/manifest.json").stat().st_mtime_ns == kept
    first, second = (
        (folder / "predictions.csv").read_text() for folder in (tmp_path / "gone", tmp_path / "out/entropy")
    )
    assert first == second


@pytest.fixture
def elsewhere(files, tmp_path, monkeypatch):
    """Relative paths in one working folder, and another one with other data under the same names."""
    (here, there) = (tmp_path / "here", tmp_path / "there")
    for folder, turned in ((here, 1), (there, -1)):
        (folder / "data").mkdir(parents=True)
        for name in ("source", "target"):
            content = dict(np.load(files / f"{name}.npz"))
            np.savez(folder / "data" / f"{name}.npz", x=turned * content["x"], y=content["y"])
    monkeypatch.chdir(here)
    return here, there


RELATIVE = [
    ["--source", "data/source.npz", "--target", "./data/target.npz"],
    ["--source", "source.npz", "--target", "data/target.npz", "--evaluation", "target.npz", "--data-root", "data"],
]


@pytest.mark.parametrize("words", RELATIVE)
def test_relative_paths_mean_the_same_when_a_run_is_resumed_from_another_folder(words, elsewhere, monkeypatch):
    here, there = elsewhere
    command = [*words, "--epochs", 2, "--no-figure", "--no-report", *SMALL]
    both = ["--method", "source", "--method", "entropy", "-o", "both"]
    assert run(*command, *both).exit_code == 0
    (here / "both/entropy/manifest.json").unlink()
    (here / "both/entropy").rename(here / "gone")
    assert run(*command, "--method", "entropy", "-o", "one").exit_code == 0
    manifest = json.loads((here / "one/manifest.json").read_text())
    (here / "one/manifest.json").write_text(json.dumps(manifest | {"status": "stopped"}))
    (here / "one/predictions.csv").unlink()
    monkeypatch.chdir(there)
    for folder, entropy in (("both", "both/entropy"), ("one", "one")):
        result = run("--resume", here / folder, "--no-figure", "--no-report", "--accelerator", "cpu")
        assert result.exit_code == 0, result.exception
        assert (here / entropy / "predictions.csv").read_text() == (here / "gone/predictions.csv").read_text()


def test_data_that_are_gone_when_a_run_is_resumed_are_named_with_the_remedy(elsewhere):
    here, _ = elsewhere
    command = [*RELATIVE[0], "--epochs", 1, "--no-figure", "--no-report", "-o", "out", *SMALL]
    assert run(*command).exit_code == 0
    (here / "data/source.npz").unlink()
    result = run("--resume", "out")
    assert isinstance(result.exception, FileNotFoundError)
    assert "data of out are not where they were when it was begun" in str(result.exception)
    assert str(here / "data/source.npz") in str(result.exception)
    assert "a link to them, there again" in str(result.exception)


def test_a_run_with_weights_from_a_relative_path_is_resumed_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(backbone("lenet", in_channels=1, image_size=16).body.state_dict(), "weights.pt")
    words = ["--source", "optdigits", "--target", "optdigits", "--network", "lenet", "--weights", "weights.pt"]
    words += ["--image-size", 16, "--epochs", 1, "-o", "out", "--no-figure", "--no-report", *SMALL]
    result = run(*words)
    assert result.exit_code == 0, result.exception
    manifest = json.loads(Path("out/manifest.json").read_text())
    Path("out/manifest.json").write_text(json.dumps(manifest | {"status": "stopped"}))
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    result = run("--resume", tmp_path / "out", "--no-figure", "--no-report", "--accelerator", "cpu")
    assert result.exit_code == 0, result.exception
    assert json.loads((tmp_path / "out/manifest.json").read_text())["status"] == "finished"


def test_a_comparison_leaves_a_folder_in_use_as_it_is(files, tmp_path):
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 1, "--no-figure", *SMALL]
    assert run(*words, "--method", "source", "--no-report", "-o", tmp_path / "one").exit_code == 0
    before = sorted((tmp_path / "one").iterdir())
    again = run(*words, "--method", "source", "--method", "entropy", "-o", tmp_path / "one")
    assert isinstance(again.exception, FileExistsError)
    assert "is not empty" in str(again.exception)
    assert sorted((tmp_path / "one").iterdir()) == before


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("bad", ["batch", "class"])
def test_a_comparison_that_is_refused_leaves_nothing_and_can_be_corrected(bad, there, files, tmp_path):
    if there:
        (tmp_path / "out").mkdir()
    strange = np.load(files / "target.npz")
    np.savez(tmp_path / "strange.npz", x=strange["x"], y=np.where(strange["y"] == "plum", "fig", strange["y"]))
    target = tmp_path / "strange.npz" if bad == "class" else files / "target.npz"
    words = ["--source", files / "source.npz", "--method", "source", "--method", "entropy", "-o", tmp_path / "out"]
    words += ["--no-figure", "--no-report", "--epochs", 1, *SMALL]
    refused = run(*words, "--target", target, *(["--batch-size", 500] if bad == "batch" else []))
    assert isinstance(refused.exception, ValueError)
    assert {"batch": "--batch-size 500 is larger", "class": "unknown in source"}[bad] in str(refused.exception)
    assert list((tmp_path / "out").rglob("*")) == []
    assert (tmp_path / "out").is_dir() == there
    assert run(*words, "--target", files / "target.npz").exit_code == 0


@pytest.mark.parametrize("methods", [["source"], ["source", "entropy"]])
def test_what_was_not_wanted_is_not_made_by_a_resumption(methods, files, tmp_path):
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 1, "-o", tmp_path / "out"]
    given = [word for name in methods for word in ("--method", name)]
    assert run(*words, *given, "--no-figure", "--no-report", *SMALL).exit_code == 0

    def made(*options):
        result = run("--resume", tmp_path / "out", "--accelerator", "cpu", *options)
        assert result.exit_code == 0, result.output
        return {path.name for path in (tmp_path / "out").iterdir()} & {"features.png", "features.svg", "report.html"}

    assert made() == set()
    assert made("--report") == {"report.html"}  # what is typed counts
    for file in (tmp_path / "out").rglob("*.json"):  # as an earlier version wrote them
        if file.name in ("adapt.json", "manifest.json"):
            content = json.loads(file.read_text())
            origin = content["origin"] if "origin" in content else content["data"]["origin"]
            del origin["figure"], origin["report"]
            file.write_text(json.dumps(content))
    assert made() == {"features.png", "features.svg", "report.html"}


def test_data_that_have_changed_since_a_run_was_begun_are_named_in_words(files, tmp_path):
    shutil.copy(files / "source.npz", tmp_path / "mine.npz")
    words = ["--target", files / "target.npz", "--epochs", 1, "--no-figure", "--no-report", "-o", tmp_path / "out"]
    assert run("--source", tmp_path / "mine.npz", *words, *SMALL).exit_code == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    (tmp_path / "out/manifest.json").write_text(json.dumps(manifest | {"status": "stopped"}))
    content = dict(np.load(files / "source.npz"))
    content["x"][3] += 1
    np.savez(tmp_path / "mine.npz", **content)
    result = run("--resume", tmp_path / "out", "--accelerator", "cpu")
    assert "the samples of the source, or their classes, have changed since this was begun" in str(result.exception)
    assert manifest["data"]["source"]["checksum"] not in str(result.exception)


def test_samples_that_the_source_has_too_are_no_test(files, tmp_path):
    def told(source, target, name):
        words = ["--epochs", 1, "--no-figure", "--no-report", "-o", tmp_path / name, *SMALL]
        result = run("--source", source, "--target", target, *words)
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    same = told(files / "source.npz", files / "source.npz", "same")
    assert "Warning: all 120 target samples are also in the source, with their labels" in same
    assert "has not seen" not in same
    source, target = np.load(files / "source.npz"), np.load(files / "target.npz")
    mixed = {name: np.concatenate([source[name][:40], target[name][:60]]) for name in ("x", "y")}
    np.savez(tmp_path / "mixed.npz", **mixed)
    some = told(files / "source.npz", tmp_path / "mixed.npz", "some")
    assert "Warning: 40 of 100 target samples are also in the source" in some


@pytest.fixture
def few(files, tmp_path):
    """The first 59 samples of the target, and a small network."""
    content = np.load(files / "target.npz")
    np.savez(tmp_path / "few.npz", x=content["x"][:59], y=content["y"][:59])
    quick = ["--epochs", 1, "--no-figure", "--no-report", "--set", "hidden=16", "--set", "features=8"]
    return ["--target", tmp_path / "few.npz", "--partial", "--accelerator", "cpu", *quick]


def test_a_batch_size_that_nobody_chose_is_made_to_fit(few, files, tmp_path):
    result = run("--source", files / "source.npz", *few, "-o", tmp_path / "one")
    assert result.exit_code == 0, result.exception
    assert "Batches of 59 samples, not of 128 as the recipe has it" in " ".join(result.output.split())
    assert json.loads((tmp_path / "one/manifest.json").read_text())["recipe"]["batch_size"] == 59
    assert load_recipe(tmp_path / "one/recipe.yaml").batch_size == 59
    assert run("--resume", tmp_path / "one", "--accelerator", "cpu").exit_code == 0


def test_a_batch_size_is_made_to_fit_what_is_not_held_out(few, files, tmp_path):
    turned = ["--source", tmp_path / "few.npz", *few, "--target", files / "source.npz"]
    result = run(*turned, "--set", "source_holdout=0.2", "-o", tmp_path / "one")
    assert result.exit_code == 0, result.exception
    manifest = json.loads((tmp_path / "one/manifest.json").read_text())
    assert manifest["recipe"]["batch_size"] == manifest["data"]["source"]["samples"] < 59


def test_a_comparison_and_its_resumption_have_the_batch_size_that_fits(few, files, tmp_path):
    words = ["--source", files / "source.npz", *few, "--method", "source", "--method", "entropy"]
    assert run(*words, "-o", tmp_path / "out").exit_code == 0
    assert json.loads((tmp_path / "out/adapt.json").read_text())["recipe"]["batch_size"] == 59
    shutil.rmtree(tmp_path / "out/entropy")
    again = run("--resume", tmp_path / "out", "--accelerator", "cpu")
    assert again.exit_code == 0, again.exception
    assert json.loads((tmp_path / "out/entropy/manifest.json").read_text())["recipe"]["batch_size"] == 59


def test_a_recipe_of_the_library_or_one_that_names_no_batch_size_is_made_to_fit(few, files, tmp_path):
    (tmp_path / "mine.yaml").write_text("method: entropy\n")
    for number, recipe in enumerate(("office10-features", tmp_path / "mine.yaml")):
        result = run("--source", files / "source.npz", *few, "--recipe", recipe, "-o", tmp_path / str(number))
        assert result.exit_code == 0, result.exception
        assert json.loads((tmp_path / str(number) / "manifest.json").read_text())["recipe"]["batch_size"] == 59


@pytest.mark.parametrize("way", ["option", "override", "file"])
def test_a_batch_size_that_was_chosen_is_refused_where_it_is_too_large(way, few, files, tmp_path):
    (tmp_path / "mine.yaml").write_text("method: entropy\nbatch_size: 128\n")
    chosen = {
        "option": ["--batch-size", 128],
        "override": ["--set", "batch_size=128"],
        "file": ["--recipe", tmp_path / "mine.yaml"],
    }
    result = run("--source", files / "source.npz", *few, *chosen[way], "-o", tmp_path / "out")
    named = "--batch-size 128" if way == "option" else "batch_size=128"  # as it was typed, or as recipes have it
    assert str(result.exception).startswith(f"{named} is larger than")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '{"origin": 1, "recipe": {}, "methods": ["ckb"]}', "\\xff"])
def test_a_damaged_plan_of_a_comparison_is_named(text, tmp_path):
    (tmp_path / "adapt.json").write_bytes(text.encode().decode("unicode_escape").encode("latin-1"))
    result = run("--resume", tmp_path)
    assert isinstance(result.exception, ValueError)
    assert "adapt.json is damaged" in str(result.exception)


@pytest.mark.parametrize("methods", [("source", "magic"), ("source", "source")])
def test_methods_that_cannot_be_compared_are_told_before_any_is_trained(methods, files, tmp_path):
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 1, *SMALL]
    result = run(*words, "--method", methods[0], "--method", methods[1], "-o", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert not (tmp_path / "out").exists()


def test_a_method_among_the_overrides_is_the_one_that_is_trained_and_named(files, tmp_path):
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 1, *SMALL]
    result = run(*words, "--set", "method=entropy", "--no-figure", "--no-report", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "entropy" in result.output
    assert "ckb" not in result.output


PAIR = ["--source", "source.npz", "--target", "target.npz"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "source.npz"], "--source and --target are needed"),
        (["--source", "nowhere.npz", "--target", "target.npz"], "nowhere.npz"),
        (["--source", "unlabelled.npz", "--target", "target.npz"], "is unlabelled; training needs its labels"),
        ([*PAIR, "--method", "magic"], "'magic' is unknown; accepted are"),
        ([*PAIR, "--recipe", "magic"], "--recipe 'magic' is unknown"),
        ([*PAIR, "--set", "lr"], "is no FIELD=VALUE"),
        ([*PAIR, "--set", "learning=1"], "has no field 'learning'"),
        ([*PAIR, "--set", "options.means=1"], "'ckb' has no option 'means'"),
        ([*PAIR, "--batch-size", "500"], "--batch-size 500 is larger than"),
        ([*PAIR, "--network", "lenet"], "takes images but the samples"),
        (["--resume", "nothing"], "is no run folder"),
        (["--resume", "nothing", "--method", "ckb"], "--resume takes data, recipe and methods from the run folder"),
        (["--resume", "nothing", "--epochs", "50"], "--epochs is given"),
        (["--resume", "nothing", "--evaluation", "target.npz"], "--evaluation is given"),
        ([*PAIR, "--method", "ckb", "--set", "method=source"], "--method and --set method"),
        ([*PAIR, "--method", "ckb", "--method", "dan", "--set", "method=source"], "--method and --set method"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, message, files, monkeypatch, capsys):
    """In this process, for a new one takes long to start; `fails` above tries the real thing."""
    monkeypatch.chdir(files)
    monkeypatch.setattr(sys, "argv", ["bures", "adapt", *words, "--accelerator", "cpu"])
    with pytest.raises(SystemExit) as stop:
        bures.cli.main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (files / "runs").exists()


def test_a_machine_that_cannot_be_had_is_no_traceback(files, tmp_path):
    words = ["--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 1, *SMALL]
    error = fails(*words, "--devices", 0, "-o", tmp_path / "out")
    assert error.startswith("error: --accelerator 'cpu', --devices 0, strategy='auto' will not do: ")
    assert not (tmp_path / "out").exists()


def test_a_validator_chooses_the_best_epoch(files, tmp_path):
    result = run(
        "--source", files / "source.npz", "--target", files / "target.npz", "--epochs", 3, "--select", "ckw",
        "--set", "validators=all", "-o", tmp_path / "out", "--no-figure", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert "(ckw)" in result.output
    assert manifest["final"]["validator"] == manifest["recipe"]["select"] == "ckw"
    scores = [row["score_ckw"] for row in manifest["epochs"]]
    assert manifest["final"]["best"]["score"] == max(scores)
    assert "score_reverse" in manifest["epochs"][0]
    message = fails(
        "--source", files / "source.npz", "--target", files / "target.npz", "--select", "dev", "-o", tmp_path / "no"
    )
    assert "--select 'dev' needs source samples that are held out from training; set source_holdout" in message
