"""`bures predict`: the library's predictions as CSV, from any samples that fit, without their labels."""

import csv
import io
import json
import os
import shutil
import sys
import threading
import warnings
from functools import partial

import numpy as np
import pytest
from commands import invoke, printed
from runs import CLASSES, feature_domain, train_on_digits, train_on_features, write_digit

from bures.cli._app import main
from bures.data import optdigits, read_features, write_features
from bures.data._decoding import BadImageWarning
from bures.training import RunFolder

run = partial(printed, "predict")


def table(text):
    rows = list(csv.reader(io.StringIO(text)))
    return rows[0], [row[0] for row in rows[1:]], [row[1] for row in rows[1:]], np.array(rows[1:])[:, 2:].astype(float)


def test_a_feature_file_gives_the_predictions_of_the_library(features_run, tmp_path):
    domain = feature_domain(1)
    write_features(tmp_path / "target.npz", domain)
    header, samples, classes, probabilities = table(run(features_run.path, tmp_path / "target.npz"))
    expected = features_run.model().predict(domain).probabilities
    assert header == ["sample", "class", *(f"p({name})" for name in CLASSES)]
    assert samples == [str(number) for number in range(len(domain))]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    plain = [CLASSES[label] for label in expected.argmax(dim=1)]
    assert {"=cmd()", "<script>"} <= set(plain)
    assert classes == [f"'{name}" if name.startswith("=") else name for name in plain]


def test_the_classes_are_those_of_the_model_not_of_the_data(features_run, tmp_path):
    x = feature_domain(1).samples.tensor.numpy()
    np.savez(tmp_path / "other.npz", x=x, y=np.array(["emu", "gnu"])[np.arange(len(x)) % 2])
    header, _, classes, _ = table(run(features_run.path, tmp_path / "other.npz"))
    assert header[2:] == [f"p({name})" for name in CLASSES]
    assert not {"emu", "gnu"} & set(classes)


def test_labels_may_be_incomplete_for_they_are_not_read(features_run, tmp_path):
    x = feature_domain(1).samples.tensor.numpy()[:3]
    for name, labels in (("some", ("cat", "", "")), ("none", None)):
        with open(tmp_path / f"{name}.csv", "w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["id", "a", "b", *(["label"] if labels else [])])
            for row in range(3):
                writer.writerow([f"s{row}", *x[row].tolist(), *([labels[row]] if labels else [])])
    with pytest.raises(ValueError, match="the label of row 1 is missing"):
        read_features(tmp_path / "some.csv")
    printed = run(features_run.path, tmp_path / "some.csv")
    assert printed == run(features_run.path, tmp_path / "none.csv")
    assert table(printed)[1] == ["s0", "s1", "s2"]


def test_a_flat_folder_of_images_of_all_kinds(digits_run, tmp_path):
    """Samples are named by their files, in the order of the names."""
    files = {"b.png": (3, "RGBA"), "a.png": (7, "L"), "=c.png": (1, "RGB"), "d.bmp": (0, "P")}
    for name, (number, mode) in files.items():
        write_digit(tmp_path / "images" / name, number, mode)
    _, samples, classes, probabilities = table(run(digits_run.path, tmp_path / "images"))
    assert samples == ["'=c.png", "a.png", "b.png", "d.bmp"]
    expected = digits_run.model().predict(optdigits().take([1, 7, 3, 0])).probabilities
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4)
    assert classes == [str(label) for label in expected.argmax(dim=1).tolist()]


def test_class_folders_change_nothing_but_the_names_of_samples(digits_run, tmp_path):
    for number in range(4):
        write_digit(tmp_path / "flat" / f"{number}.png", number)
        write_digit(tmp_path / "sorted" / "abc"[number % 2] / f"{number}.png", number)
    flat, by_class = (table(run(digits_run.path, tmp_path / folder)) for folder in ("flat", "sorted"))
    assert by_class[1] == ["a/0.png", "a/2.png", "b/1.png", "b/3.png"]
    np.testing.assert_array_equal(by_class[3], flat[3][[0, 2, 1, 3]])


def test_a_bad_image_is_left_out_with_a_warning_or_fatal(digits_run, tmp_path):
    for number in range(2):
        write_digit(tmp_path / "images" / f"{number}.png", number)
    (tmp_path / "images" / "broken.png").write_bytes(b"no image")
    with pytest.warns(BadImageWarning, match=r"1 of 3 image files cannot be decoded: .*broken.png"):
        printed = run(digits_run.path, tmp_path / "images")
    assert table(printed)[1] == ["0.png", "1.png"]
    with pytest.raises(ValueError, match=r"1 of 3 image files cannot be decoded: .*broken.png"):
        run(digits_run.path, tmp_path / "images", "--strict")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such names")
def test_a_file_name_of_any_bytes_can_be_written(digits_run, tmp_path):
    write_digit(tmp_path / "images" / "0.png", 0)
    folder = os.fsencode(tmp_path / "images")
    os.rename(folder + b"/0.png", folder + b"/caf\xe9.png")
    assert table(run(digits_run.path, tmp_path / "images"))[1] == [r"caf\udce9.png"]


def test_the_output_file_holds_what_would_be_printed_and_features_can_be_kept(features_run, tmp_path):
    write_features(tmp_path / "target.npz", feature_domain(1))
    arguments = (features_run.path, tmp_path / "target.npz")
    options = ("-o", tmp_path / "out.csv", "--features", tmp_path / "z.npz", "--batch-size", 7)
    assert run(*arguments, *options) == ""
    assert (tmp_path / "out.csv").read_text() == run(*arguments, "--batch-size", 7)
    written = read_features(tmp_path / "z.npz")
    expected = features_run.model().predict(feature_domain(1)).features
    np.testing.assert_allclose(written.samples.tensor, expected, atol=1e-5)
    assert written.labels is None
    assert written.class_names == CLASSES


def test_the_table_can_be_sent_into_a_pipe(features_run, tmp_path):
    write_features(tmp_path / "target.npz", feature_domain(1))
    os.mkfifo(tmp_path / "pipe")
    content = []
    reader = threading.Thread(target=lambda: content.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    assert run(features_run.path, tmp_path / "target.npz", "-o", tmp_path / "pipe") == ""
    reader.join(30)
    assert content == [run(features_run.path, tmp_path / "target.npz")]
    assert (tmp_path / "pipe").is_fifo()


def test_what_is_read_is_never_written_over(features_run, tmp_path):
    file, model = tmp_path / "data.npz", features_run.path / "model.safetensors"
    write_features(file, feature_domain(1))
    before = file.read_bytes(), model.read_bytes()
    (tmp_path / "link").symlink_to(file)  # what it points to would be replaced
    for words in (["-o", file], ["--features", file], ["-o", model], ["-o", tmp_path / "link"]):
        with pytest.raises(ValueError, match="is read by this command; choose another file"):
            run(features_run.path, file, *words)
    assert (file.read_bytes(), model.read_bytes()) == before


def test_data_that_are_found_in_their_root_are_never_written_over(features_run, tmp_path, monkeypatch):
    file = tmp_path / "data.npz"
    write_features(file, feature_domain(1))
    before = file.read_bytes()
    monkeypatch.setenv("HOME", str(tmp_path))
    for options in (["data.npz", "--data-root", tmp_path], ["~/data.npz"]):
        with pytest.raises(ValueError, match="is read by this command; choose another file"):
            run(features_run.path, *options, "-o", file)
    monkeypatch.setenv("BURES_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"--features '.*data.npz' is read by this command"):
        run(features_run.path, "data.npz", "--features", file)
    assert file.read_bytes() == before


def test_the_table_is_not_written_over_the_features(features_run, tmp_path):
    write_features(tmp_path / "data.npz", feature_domain(1))
    both = tmp_path / "both.npz"
    with pytest.raises(ValueError, match=r"--output and --features are both '.*both\.npz'"):
        run(features_run.path, tmp_path / "data.npz", "-o", both, "--features", tmp_path / "." / "both.npz")
    assert not both.exists()


def test_what_a_run_is_kept_in_is_never_written_over(features_run, tmp_path):
    write_features(tmp_path / "data.npz", feature_domain(1))
    place = features_run.path
    (tmp_path / "link").symlink_to(place)
    before = {file: file.read_bytes() for file in RunFolder(place).files() if file.is_file()}
    assert len(before) > 6
    for file in (*before, tmp_path / "link" / "predictions.csv"):
        with pytest.raises(ValueError, match=r"is a file of the run in .*; choose|is read by this command"):
            run(place, tmp_path / "data.npz", "-o", file)
    assert {file: file.read_bytes() for file in before} == before
    run(place, tmp_path / "data.npz", "-o", tmp_path / "predictions.csv")  # no run lies there
    run(place, tmp_path / "data.npz", "-o", place / "of-data.csv")
    (place / "of-data.csv").unlink()


def test_a_home_folder_is_found_where_the_shell_leaves_it_to_the_command(features_run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_features(tmp_path / "data.npz", feature_domain(1))
    run(features_run.path, tmp_path / "data.npz", "--output=~/found.csv", "--features=~/found.npz")
    assert {"found.csv", "found.npz"} <= {path.name for path in tmp_path.iterdir()}


def test_a_known_name_and_the_best_model(digits_run, tmp_path):
    folder = RunFolder(shutil.copytree(digits_run.path, tmp_path / "run"))
    shutil.copy(RunFolder(train_on_digits(tmp_path / "other", seed=5).path).model, folder.best_model)
    last, best = (table(run(folder.path, "optdigits", *option)) for option in ((), ("--best",)))
    assert len(last[1]) == len(best[1]) == 1797
    assert not np.allclose(last[3], best[3])


def test_errors_are_one_line_and_exit_code_2(features_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main has its own
    write_features(tmp_path / "wide.npz", optdigits().take([0, 1]))
    np.save(tmp_path / "narrow.npy", np.zeros((3, 1)))
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(RunFolder(features_run.path).model.read_bytes()[:300])
    for arguments, message in (
        ((features_run.path, tmp_path / "narrow.npy"), "takes vectors of 2 features but the samples have 1"),
        ((features_run.path, tmp_path / "wide.npz"), "takes vectors of 2 features but the samples are images"),
        ((cut, tmp_path / "narrow.npy"), "is truncated or no safetensors file"),
    ):
        monkeypatch.setattr(sys, "argv", ["bures", "predict", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert (end.value.code, printed.out) == (2, "")
        assert printed.err.startswith("error: ")
        assert printed.err.count("\n") == 1
        assert message in printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "none/p.csv"], "none is not a folder; make it first"),
        (["-o", "."], "is a folder; accepted is the name of a file"),
        (["--features", "z.csv"], "features are written to .npz"),
        (["--device", "abacus"], "--device 'abacus' cannot be used: .*accepted are 'auto', 'cpu'"),
    ],
)
def test_wrong_options_are_named(features_run, options, message):
    with pytest.raises((OSError, ValueError), match=message):
        run(features_run.path, "optdigits", *options)


def test_below_a_threshold_no_class_is_given_and_the_reason_is_said(features_run, tmp_path):
    write_features(tmp_path / "target.npz", feature_domain(1))
    arguments = ["predict", str(features_run.path), str(tmp_path / "target.npz")]
    p = features_run.model().predict(feature_domain(1)).probabilities
    threshold = float(p.max(dim=1).values.median())
    result = invoke(*arguments, "--threshold", repr(threshold))
    rows = list(csv.reader(io.StringIO(result.stdout)))
    plain = list(csv.reader(io.StringIO(run(*arguments[1:]))))
    assert rows[0] == ["sample", "class", "reason", *plain[0][2:]]
    unsure = (p.max(dim=1).values < threshold).tolist()
    assert 0 < sum(unsure) < len(unsure)
    for row, usual, left_out in zip(rows[1:], plain[1:], unsure, strict=True):
        assert row[3:] == usual[2:]
        assert row[1] == ("" if left_out else usual[1])
        assert row[2].startswith("confidence 0.") == left_out
    assert f"no class for {sum(unsure)} of {len(p)} samples: their confidence is below {threshold:g}" in result.stderr


def test_a_temperature_is_a_number_or_what_the_run_has_found(features_run, tmp_path):
    write_features(tmp_path / "target.npz", feature_domain(1))
    data = tmp_path / "target.npz"
    plain = table(run(features_run.path, data))[3]
    warm = table(run(features_run.path, data, "--temperature", 2))[3]
    expected = np.sqrt(plain) / np.sqrt(plain).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(warm, expected, atol=1e-4)
    held = train_on_features(tmp_path / "held", source_holdout=0.3)
    found = held.manifest["final"]["temperature"]
    for side in ("source", "target"):
        assert run(held.path, data, "--temperature", side) == run(held.path, data, "--temperature", found[side])
    manifest = held.path / "manifest.json"
    before = manifest.read_text()
    for limit, what in ((0.01, "right"), (100.0, "wrong")):
        final = held.manifest["final"] | {"temperature": {"source": limit, "target": 2.0}}
        manifest.write_text(json.dumps(held.manifest | {"final": final}))
        with pytest.raises(ValueError, match=f"held out were all {what}.*source_holdout"):
            run(held.path, data, "--temperature", "source")
        assert run(held.path, data, "--temperature", "target") == run(held.path, data, "--temperature", 2)
    manifest.write_text(before)
    best = held.manifest["final"]["best"]["temperature"]["target"]
    assert run(held.path, data, "--best", "--temperature", "target") == run(
        held.path, data, "--best", "--temperature", best
    )
    for model, text, message in (
        (features_run.path, "target", "needs source samples held out from training, and .* has none; train with --set"),
        (RunFolder(features_run.path).model, "source", "is a file; give a run folder"),
        (features_run.path, "hot", "--temperature 'hot' is unknown; accepted are a positive number, 'source'"),
        (features_run.path, "-1", "--temperature '-1' is unknown"),
        (features_run.path, "nan", "--temperature 'nan' is unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            run(model, data, "--temperature", text)
