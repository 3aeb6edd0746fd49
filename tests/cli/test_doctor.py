"""`bures doctor`: a diagnosis on the terminal, in a pipe and as JSON, with exit codes for scripts."""

import io
import json
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest
from commands import invoke
from PIL import Image
from rich.console import Console

from bures.cli._app import main
from bures.cli.doctor import render
from bures.data import diagnose, image_folder

run = partial(invoke, "doctor")


@pytest.fixture
def folders(tmp_path):
    """Class folders whose names look like Rich's markup; the second has one class less."""
    rng = np.random.default_rng(0)
    for side, classes in (("s", ("[bold]cat", "dog")), ("t", ("[bold]cat",))):
        for name in classes:
            (tmp_path / side / name).mkdir(parents=True)
            for i in range(3):
                pixels = rng.integers(0, 256, size=(20, 20, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / side / name / f"{i}.png")
    return tmp_path


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for name, width, labels in (("a", 3, ["cat", "dog"]), ("b", 3, ["cat", "dog"]), ("wide", 4, ["cat", "dog"])):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(20, width)), y=np.array(labels * 10))
    return tmp_path


def test_sound_domains_exit_with_0(files):
    result = run("--source", files / "a.npz", "--target", files / "b.npz")
    assert result.exit_code == 0
    assert "suggested  --network identity --batch-size 20" in result.stdout
    assert result.stdout.endswith("verdict  nothing stands in the way\n")
    assert result.stderr == ""


def test_an_error_among_the_findings_exits_with_1_and_shows_all_of_it(files):
    result = run("--source", files / "a.npz", "--target", files / "wide.npz")
    assert result.exit_code == 1
    assert "error    samples     the source has 3 features, the target 4" in result.stdout
    assert "suggested" not in result.stdout


def test_json_is_the_diagnosis(folders):
    result = run("--source", folders / "s", "--target", folders / "t", "--json")
    expected = diagnose(image_folder(folders / "s"), image_folder(folders / "t")).to_dict()
    assert json.loads(result.stdout) == json.loads(json.dumps(expected))


def test_names_that_look_like_markup_are_shown_as_they_are(folders):
    diagnosis = diagnose(image_folder(folders / "s", name="[red]s"), image_folder(folders / "t"))
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=100, color_system=None).print(render(diagnosis, "a b", "[blue]t"))
    shown = stream.getvalue()
    assert "[red]s: 6 images" in shown
    assert "[bold]cat" in shown
    assert "bures adapt --source 'a b' --target '[blue]t' --network lenet --image-size 20" in shown
    assert shown.endswith("\n2 warnings\n")


def test_unreadable_files_are_part_of_the_diagnosis_and_with_strict_an_error(folders):
    (folders / "s" / "dog" / "bad.png").write_bytes(b"no image")
    arguments = ("--source", folders / "s", "--target", folders / "t")
    result = run(*arguments)
    assert result.exit_code == 0
    assert "warning  loading     1 of 7 image files cannot be decoded" in result.stdout
    assert "bad.png (not an image file)" in result.stdout
    strict = run(*arguments, "--strict")
    assert strict.exit_code == 1
    assert "error    loading     1 of 7 image files cannot be decoded" in strict.stdout


def test_a_large_picture_that_can_be_read_is_no_warning_without_a_name(folders, monkeypatch, capsys):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)  # Pillow warns of more, and refuses twice as many
    monkeypatch.setattr(
        sys, "argv", ["bures", "doctor", "--source", str(folders / "s"), "--target", str(folders / "s")]
    )
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings(action="always"), pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    shown = capsys.readouterr()
    assert "6 images, 2 classes" in shown.out
    assert "bomb" not in shown.err


def test_wrong_usage_and_domains_that_are_not_there_exit_with_2(files):
    assert run("--source", files / "a.npz").exit_code == 2
    command = [sys.executable, "-m", "bures", "doctor", "--source", files / "a.npz", "--target", files / "none.npz"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: --target '")
    assert done.stderr.count("\n") == 1
