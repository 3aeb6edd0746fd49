"""Tables on the command line: columns are matched by name, labels that a command does not use need not be there."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from commands import ended, invoke, printed

import bures
from bures.training import load_model, save_model

NAMES = ["a", "b", "c"]
SCALE = np.array([1.0, 2.0, 4.0])  # columns in another order are another sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    ys, yt = np.arange(60) % 2, np.arange(40) % 2
    for name, y, shift in (("source", ys, [0, 0, 0]), ("target", yt, [3, -3, 0])):
        table = pd.DataFrame((rng.normal(size=(len(y), 3)) + 3 * y[:, None] + shift) * SCALE, columns=NAMES)
        table["label"] = np.array(["cat", "dog"])[y]
        table.to_csv(folder / f"{name}.csv", index=False)
    table[["c", "label", "a", "b"]].to_csv(folder / "turned.csv", index=False)
    table.rename(columns={"a": "A"}).assign(e=1.0).to_csv(folder / "other.csv", index=False)
    table.assign(label=np.where(np.arange(40) < 3, "", table["label"])).to_csv(folder / "some.csv", index=False)
    table.assign(label="").to_csv(folder / "empty.csv", index=False)
    table.drop(columns="label").to_csv(folder / "plain.csv", index=False)
    np.savez(folder / "target.npz", x=table[NAMES].to_numpy(), y=table["label"].to_numpy(dtype=str))
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    options = ["--source", folder / "source.csv", "--target", folder / "turned.csv", "--method", "source+adabn"]
    ended(
        "adapt",
        *options,
        "--epochs",
        "2",
        "--batch-size",
        "20",
        "--no-figure",
        "--no-report",
        "--quiet",
        "-o",
        folder / "run",
    )
    return folder / "run"


def refused(*arguments):
    """The error of a command, as the application shows it."""
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        invoke(*arguments)
    return str(raised.value)


MISFIT = "lacks the column 'a' and has the unexpected columns 'A', 'e'"


@pytest.mark.parametrize(
    "command",
    [
        ("distance", "--metric", "ckb"),
        ("distance", "--metric", "mmd"),
        ("test", "--permutations", "19"),
        ("test", "--marginal", "--permutations", "19"),
        ("shift", "--permutations", "19"),
    ],
)
def test_two_tables_are_matched_by_name(folder, command):
    name, *options = command
    pair = [folder / "source.csv", folder / "target.csv"]
    codes = {"code": 1} if name == "test" else {}
    shown = printed(name, *pair, *options, "--json", **codes)
    assert printed(name, pair[0], folder / "turned.csv", *options, "--json", **codes) == shown
    assert printed(name, pair[0], folder / "target.npz", *options, "--json", **codes) == shown  # by position
    error = refused(name, pair[0], folder / "other.csv", *options)
    assert error.startswith(f"target 'other' {MISFIT}; its columns are matched with those of source 'source' by name")


def test_the_numbers_are_those_of_the_arrays(folder):
    source, target = (pd.read_csv(folder / f"{name}.csv") for name in ("source", "target"))
    xs, xt = (table[NAMES].to_numpy(np.float32) for table in (source, target))
    expected = bures.ckw(xs, source["label"], xt, target["label"])
    shown = json.loads(printed("distance", folder / "source.csv", folder / "turned.csv", "--metric", "ckw", "--json"))
    assert shown["squared_distance"] == pytest.approx(expected, rel=1e-9)


def test_doctor_looks_at_the_same_columns_and_names_those_that_differ(folder):
    def look(target, code=0):
        return json.loads(
            printed("doctor", "--source", folder / "source.csv", "--target", folder / target, "--json", code=code)
        )

    straight, turned = look("target.csv"), look("turned.csv")
    assert [row["text"] for row in turned["findings"] if row["topic"] == "columns"] == [
        "the columns of the target are in another order than those of the source"
    ]
    others = [row for row in turned["findings"] if row["topic"] != "columns"]
    assert others == straight["findings"]
    assert turned["duplicates_across"] == straight["duplicates_across"] == 0
    misfit = next(row for row in look("other.csv", 1)["findings"] if row["topic"] == "columns")
    assert (misfit["level"], misfit["text"]) == ("error", f"target 'other' {MISFIT}")
    assert "rename, add or remove columns" in misfit["remedy"]


def test_a_model_knows_its_columns(folder, trained):
    """It was trained with a target whose columns are in another order than those of the source."""
    assert load_model(trained).feature_names == tuple(NAMES)
    shown = printed("predict", trained, folder / "plain.csv")
    assert printed("predict", trained, folder / "turned.csv") == shown
    assert printed("predict", trained, folder / "target.npz") == shown
    assert (trained / "predictions.csv").read_text() == shown
    expected = printed("evaluate", trained, folder / "target.npz", "--json")
    assert printed("evaluate", trained, folder / "turned.csv", "--json").replace("turned", "target") == expected
    for command in ("predict", "evaluate"):
        error = refused(command, trained, folder / "other.csv")
        assert error.startswith(f"'other' {MISFIT}; its columns are matched with those of the model by name")


def test_columns_of_training_and_of_evaluation_are_checked(folder, tmp_path):
    options = ["adapt", "--source", folder / "source.csv", "--method", "source", "-o", tmp_path / "run"]
    assert refused(*options, "--target", folder / "other.csv").startswith(f"target 'other' {MISFIT}")
    error = refused(*options, "--target", folder / "target.csv", "--evaluation", folder / "other.csv")
    assert error.startswith(f"evaluation 'other' {MISFIT}")


def test_a_model_without_names_takes_columns_as_they_come(folder, trained, tmp_path):
    """As one that an earlier version has written."""
    model = load_model(trained)
    file = save_model(tmp_path / "old.safetensors", model.network, model.spec, model.class_names)
    assert load_model(file).feature_names is None
    assert printed("predict", file, folder / "plain.csv") == printed("predict", trained, folder / "plain.csv")
    assert printed("predict", file, folder / "turned.csv") != printed("predict", trained, folder / "turned.csv")


def test_an_exported_model_keeps_its_columns(folder, trained, tmp_path):
    ended("export", trained, "--format", "safetensors", "-o", tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors").feature_names == tuple(NAMES)


def test_features_of_the_network_do_not_have_the_names_of_its_inputs(folder, trained, tmp_path):
    ended("predict", trained, folder / "turned.csv", "--features", tmp_path / "f.npz", "-o", tmp_path / "p.csv")
    assert bures.data.read_features(tmp_path / "f.npz").feature_names is None


def test_names_of_samples_are_written_as_they_were_read(folder, trained, tmp_path):
    names = ["00001", "12345678901234567", "", "NA"]
    pd.read_csv(folder / "plain.csv").head(4).assign(id=names).to_csv(tmp_path / "ids.csv", index=False)
    rows = list(csv.DictReader(io.StringIO(printed("predict", trained, tmp_path / "ids.csv"))))
    assert [row["sample"] for row in rows] == names


def test_labels_that_are_not_used_may_be_missing(folder):
    source, some = folder / "source.csv", folder / "some.csv"
    for arguments in (
        ("shift", source, some, "--hide-labels", "--permutations", "19"),
        ("test", source, some, "--marginal", "--permutations", "19"),
        ("test", source, some, "--predict", "--permutations", "19"),
        ("distance", some, some, "--metric", "mmd"),
    ):
        code = int(arguments[0] == "test")
        whole = [folder / "target.csv" if argument is some else argument for argument in arguments]
        assert printed(*arguments, "--json", code=code) == printed(*whole, "--json", code=code)
    for command in ("shift", "test", "distance"):
        assert "some.csv: the label of row 0 is missing (3 such rows of 40)" in refused(command, source, some)


def test_an_empty_column_of_labels_is_none(folder, tmp_path):
    options = ["--source", folder / "source.csv", "--target", folder / "empty.csv"]
    assert json.loads(printed("doctor", *options, "--json"))["target"]["counts"] is None
    report = json.loads(printed("shift", folder / "source.csv", folder / "empty.csv", "--permutations", "19", "--json"))
    assert report["labels"] == "predicted"
    assert "'empty' has no labels" in refused("distance", folder / "source.csv", folder / "empty.csv")


def test_a_picture_by_itself_is_no_domain(trained, tmp_path):
    (tmp_path / "one.png").write_bytes(b"")
    assert "accepted are folders of images (an image by itself goes into a folder) and feature files (.npz," in refused(
        "predict", trained, tmp_path / "one.png"
    )
