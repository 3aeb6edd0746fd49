"""`bures evaluate`: the numbers of the library, for people and for programs."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from commands import printed
from runs import CLASSES, feature_domain, write_digit

from bures.data import Domain, TensorSamples, optdigits, write_features
from bures.selection import expected_calibration_error, scale_probabilities
from bures.training import Recipe, assemble, assess, save_model

run = partial(printed, "evaluate")


@pytest.mark.parametrize("batchnorm", ["training", "target"])
def test_json_holds_the_numbers_of_the_library(digits_run, batchnorm):
    expected = assess(digits_run.model(), optdigits(), batchnorm=batchnorm)
    options = ("--batchnorm", batchnorm, "--json", "--batch-size", 512)
    printed = json.loads(run(digits_run.path, "optdigits", *options))
    assert printed["accuracy"] == expected.accuracy
    assert printed["confusion"] == expected.confusion.tolist()
    assert printed["batchnorm"] == batchnorm
    assert sum(row["samples"] for row in printed["classes"]) == printed["samples"] == 1797
    assert printed["classes"][3]["accuracy"] == expected.confusion[3, 3] / expected.confusion[3].sum()


def test_the_table_shows_each_class_and_what_it_is_taken_for(digits_run):
    expected = assess(digits_run.model(), optdigits())
    lines = run(digits_run.path, "optdigits").splitlines()
    assert f"accuracy {100 * expected.accuracy:.2f} % ({expected.correct} of 1797)" in lines[0]
    assert lines[1].split() == ["class", "samples", "right", "accuracy", "%", *"0123456789"]
    for line, row, counts in zip(lines[3:13], expected.classes(), expected.confusion.tolist(), strict=True):
        shown = [str(count) if count else "." for count in counts]
        assert line.split() == [
            row.name, str(row.samples), str(row.correct), f"{100 * row.accuracy:.1f}", "|", *shown
        ]  # fmt: skip


def test_names_with_markup_are_shown_as_they_are(features_run, tmp_path):
    write_features(tmp_path / "target.npz", feature_domain(1))
    printed = run(features_run.path, tmp_path / "target.npz")
    assert all(name in printed for name in CLASSES)
    assert f"accuracy {100 * features_run.accuracy:.2f} %" in printed


def test_many_classes_are_followed_by_the_most_frequent_confusions(tmp_path):
    names = [f"class-{number}" for number in range(16)]
    spec, network, _ = assemble(Recipe(hidden=8, features=4), 16, (2,))
    save_model(tmp_path / "model.safetensors", network, spec, names)
    labels = torch.arange(64) % 16
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    write_features(tmp_path / "x.npz", Domain("many", TensorSamples(x), names, labels))
    printed = run(tmp_path / "model.safetensors", tmp_path / "x.npz")
    shown = printed.split("Most frequent confusions:\n")[1].splitlines()
    result = json.loads(run(tmp_path / "model.safetensors", tmp_path / "x.npz", "--json"))
    confusion = np.array(result["confusion"])
    np.fill_diagonal(confusion, 0)
    assert [int(line.split()[0]) for line in shown] == sorted(confusion.ravel().tolist())[:-11:-1]
    count, true, _, _, predicted = shown[0].split()
    assert confusion[names.index(true), names.index(predicted)] == int(count)


def test_class_folders_may_lack_classes_of_the_model(digits_run, tmp_path):
    digits = optdigits()
    numbers = [number for number in range(60) if digits.labels[number] in (2, 7)]
    for number in numbers:
        write_digit(tmp_path / str(int(digits.labels[number])) / f"{number}.png", number)
    printed = json.loads(run(digits_run.path, tmp_path, "--json"))
    expected = assess(digits_run.model(), digits.take(numbers))
    assert printed["confusion"] == expected.confusion.tolist()
    assert printed["classes"][0] == {"name": "0", "samples": 0, "correct": 0, "accuracy": None}
    row = next(line.split() for line in run(digits_run.path, tmp_path).splitlines() if line.startswith("0 "))
    assert row[1:4] == ["0", "0", "-"]


def test_unknown_classes_and_missing_labels_are_named(digits_run, tmp_path):
    write_digit(tmp_path / "labelled" / "eleven" / "1.png", 1)
    with pytest.raises(ValueError, match="samples of the class 'eleven', unknown to the model"):
        run(digits_run.path, tmp_path / "labelled")
    write_digit(tmp_path / "flat" / "1.png", 1)
    with pytest.raises(ValueError, match=r"'flat' is unlabelled, .* bures predict"):
        run(digits_run.path, tmp_path / "flat")


def test_calibration_is_shown_and_follows_the_temperature(digits_run):
    digits = optdigits()
    p = digits_run.model().predict(digits).probabilities
    for words, temperature in (((), 1.0), (("--temperature", "0.5"), 0.5)):
        printed = json.loads(run(digits_run.path, "optdigits", "--json", *words))
        scaled = scale_probabilities(p, temperature)
        expected = expected_calibration_error(scaled, digits.labels)
        assert printed["calibration"]["error"] == pytest.approx(expected, abs=1e-6)
        assert sum(part["samples"] for part in printed["calibration"]["bins"]) == 1797
        assert printed["temperature"] == temperature
    shown = run(digits_run.path, "optdigits").splitlines()[0]
    error = expected_calibration_error(p, digits.labels)
    assert f"mean confidence {100 * float(p.max(dim=1).values.mean()):.2f} %" in shown
    assert f"expected calibration error {100 * error:.2f} %" in shown
