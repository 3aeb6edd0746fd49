"""Errors of commands name what was typed, not the arguments of the library behind it."""

import sys
import warnings
from pathlib import Path

import pytest
from commands import invoke
from PIL import Image

from bures.cli._app import main
from bures.cli._naming import said_as, said_of_domain, spoken


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for place, classes in (("here", ("cat", "dog")), ("there", ("cat",)), ("hole", ("cat", "dog"))):
        for name in classes:
            (root / place / name).mkdir(parents=True)
            for number in range(0 if (place, name) == ("hole", "dog") else 3):
                Image.new("RGB", (40, 40), (60 * number, 90, 20)).save(root / place / name / f"{number}.png")
    return root


HERE, THERE = ("--source", "here"), ("--target", "there")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adapt", "--source", "none", *THERE], "--source 'none' is neither a known domain nor a path"),
        (["adapt", *HERE, "--target", "none"], "--target 'none' is neither"),
        (["adapt", *HERE, *THERE, "--evaluation", "none"], "--evaluation 'none' is neither"),
        (["adapt", *HERE, "--target", "hole"], "hole' has no images in the class folder 'dog'"),
        (["adapt", *HERE, *THERE], "target 'there' lacks the class 'dog' of source 'here'; allow this with --partial,"),
        (["adapt", *HERE, "--target", "here", "--network", "resnet5"], "--network 'resnet5' is"),
        (["adapt", *HERE, "--target", "here", "--network", "resnet18", "--weights", "no.pt"], "--weights 'no.pt' does"),
        (["adapt", *HERE, "--target", "here", "--checkpoint-every", "-3"], "--checkpoint-every -3.0 is out of range"),
        (["adapt", *HERE, "--target", "here", "-o", "here"], "--output 'here' is not empty"),
        (["adapt", *HERE, *THERE, "--lr", "-1"], "--lr -1.0 is out of range"),
        (["adapt", *HERE, *THERE, "--set", "lr=-1"], "lr=-1.0 is out of range"),
        (["doctor", *HERE, "--target", "none"], "--target 'none' is neither"),
        (["doctor", "--source", "office10/mars", *THERE], "--source 'mars' is not in Office-Caltech10"),
        (["distance", "none", "here"], "SOURCE 'none' is neither"),
        (["test", "none", "here"], "SOURCE 'none' is neither"),
        (["features", "extract", "none", "--network", "lenet", "--weights", "random"], "IMAGES 'none' is neither"),
        (["predict", "run", "here", "--features", "no/f.npz"], "--features 'no/f.npz': no is not a folder"),
        (["shift", "here", "there", "--html", "no/page.html"], "--html 'no/page.html': no is not a folder"),
        (["bench", "digits", "--jobs", "0"], "--jobs 0 is not accepted; accepted are positive integers, and negative"),
        (["bench", "digits", "--ranks", "no/r.svg"], "--ranks 'no/r.svg': no is not a folder"),
    ],
)  # fmt: skip
def test_errors_name_what_was_typed(words, message, photos, monkeypatch):
    monkeypatch.chdir(photos)
    monkeypatch.setenv("BURES_DATA", str(photos))
    result = invoke(*words, catch=True)
    assert isinstance(result.exception, (ValueError, OSError)), result.output
    text = str(result.exception)
    assert message in text
    assert not any(f"{name}=" in text for name in ("spec", "path", "output", "domain"))


def test_options_that_were_not_typed_keep_the_names_that_recipes_have_for_them(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    (tmp_path / "mine.yaml").write_text("lr: -1\n")
    result = invoke("adapt", *HERE, *THERE, "--recipe", str(tmp_path / "mine.yaml"), catch=True)
    assert "mine.yaml: lr=-1.0 is out of range" in str(result.exception)


def test_a_field_of_a_file_keeps_its_name_beside_the_option_of_that_name(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    (tmp_path / "mine.yaml").write_text("lr: -1\n")
    result = invoke("adapt", *HERE, *THERE, "--recipe", str(tmp_path / "mine.yaml"), "--lr", "0.1", catch=True)
    assert "mine.yaml: lr=-1.0 is out of range" in str(result.exception)


def test_data_of_a_resumed_run_are_named_by_the_option_they_were_given_as(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    there = photos / "moved"
    words = ["--network", "lenet", "--image-size", "16", "--epochs", "1", "--batch-size", "4", "--no-figure"]
    done = invoke("adapt", *HERE, "--target", "here", *words, "-q", "-o", str(tmp_path / "run"), catch=True)
    assert done.exit_code == 0, done.output
    (photos / "here").rename(there)
    try:
        result = invoke("adapt", "--resume", str(tmp_path / "run"), catch=True)
    finally:
        there.rename(photos / "here")
    assert f"are not where they were when it was begun: --source '{photos / 'here'}' is neither" in str(
        result.exception
    )


def test_a_warning_names_options_alone(monkeypatch, capsys):
    def command():
        warnings.warn("it sees few; on GPUs sync_batchnorm=True (--sync-batchnorm) lets it see all", stacklevel=1)

    monkeypatch.setattr("bures.cli._app.app", command)
    monkeypatch.setattr(sys, "argv", ["bures"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main()
    assert capsys.readouterr().err == "warning: it sees few; on GPUs --sync-batchnorm lets it see all\n"


@pytest.mark.parametrize(
    "text",
    [
        "write for example --set lr=0.1",
        "a name such as 'lr=3' in quotes",
        "options.lr=3 is a field of the method",
        "olr=3 is another word, and lr= is none",
        "data/lr=3/cats.npz is not a file",
        "data/lr=3#lr=4 is not a domain of it",
        "'photos of lr=3' is no folder, and this run's folder isn't \"lr=3 at night\"",
    ],
)
def test_what_only_looks_like_an_argument_is_left(text):
    assert spoken(text, {"lr": "--lr"}) == text


def test_errors_of_the_system_are_left_as_they_are():
    with pytest.raises(FileNotFoundError) as caught, said_of_domain("--source"):
        Path("/nowhere/spec=3").read_bytes()
    assert caught.value.errno is not None
    assert str(caught.value) == "[Errno 2] No such file or directory: '/nowhere/spec=3'"
    with pytest.raises(KeyError), said_as({"a": "--a"}):
        raise KeyError


def test_the_inner_name_counts():
    outer, inner = said_as({"output": "--output"}), said_as({"output": "--ranks"})
    with pytest.raises(ValueError, match=r"^--ranks 'x' will not do$"), outer, inner:
        raise ValueError("output='x' will not do")
