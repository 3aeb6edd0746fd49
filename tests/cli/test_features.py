"""`bures features extract`: images to a feature file, through kills, and errors in one line."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
import torch
from commands import invoke
from PIL import Image

from bures.data import image_folder, read_features
from bures.data._decoding import BadImageError, BadImageWarning
from bures.networks import backbone

run = partial(invoke, "features", "extract")


def command(*arguments, code="from bures.cli import main; main()"):
    """The command line as a user starts it."""
    return [sys.executable, "-c", code, "features", "extract", *map(str, arguments)]


@pytest.fixture
def photographs(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(40):
        path = tmp_path / "photos" / ("cat" if i % 2 else "dog") / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, size=(20, 20, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def weights(tmp_path):
    torch.manual_seed(1)
    torch.save(backbone("resnet18").body.state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


def test_the_file_holds_the_features_of_the_network_with_its_weights(photographs, weights, tmp_path):
    output = tmp_path / "f.npz"
    result = run(photographs, "--network", "resnet18", "--weights", weights, "-o", output, "--image-size", 64)
    assert result.stdout == f"{output}  40 samples of 512 features, 2 classes\n"
    assert result.stderr == ""
    read, domain = read_features(output), image_folder(photographs, size=64)
    body = backbone("resnet18", weights=weights).eval()
    with torch.no_grad():
        expected = body(body.preprocessing(domain.samples.take(torch.arange(40))))
    torch.testing.assert_close(read.samples.tensor, expected, rtol=1e-3, atol=1e-4)
    assert read.ids == domain.ids
    assert read.class_names == ("cat", "dog")
    assert torch.equal(read.labels, domain.labels)


def test_images_in_a_file_are_not_replaced_by_their_features(tmp_path, monkeypatch):
    file = tmp_path / "digits-lenet.npz"
    images = np.random.default_rng(0).integers(0, 256, size=(4, 1, 8, 8), dtype=np.uint8)
    np.savez(file, x=images, name="digits")  # by its name features go into digits-lenet.npz of the working folder
    before = file.read_bytes()
    monkeypatch.chdir(tmp_path)
    for output in (["-o", file], []):
        with pytest.raises(ValueError, match="is read by this command; choose another file"):
            run(file, "--network", "lenet", "--weights", "random", "--restart", *output)
    assert file.read_bytes() == before


def test_lenet_takes_images_at_their_own_size_and_the_name_of_the_file_follows_from_the_domain(
    photographs, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run(photographs, "--network", "lenet", "--weights", "random")
    torch.manual_seed(0)
    body = backbone("lenet", in_channels=3, image_size=20).eval()
    with torch.no_grad():
        expected = body(body.preprocessing(image_folder(photographs, size=20).samples.take(torch.arange(40))))
    read = read_features(tmp_path / "photos-lenet.npz")
    torch.testing.assert_close(read.samples.tensor, expected, rtol=1e-4, atol=1e-5)
    run("optdigits", "--network", "lenet", "--weights", "random", "--batch-size", 500)
    assert len(read_features(tmp_path / "optdigits-lenet.npz")) == 1797


def test_other_commands_read_the_file(photographs, tmp_path):
    output = tmp_path / "f.npz"
    run(photographs, "--network", "lenet", "--weights", "random", "-o", output)
    result = invoke("distance", output, output)
    assert abs(float(result.stdout.split()[-1])) < 1e-9


def test_lenet_needs_a_size_where_the_images_have_several(photographs, tmp_path):
    Image.new("RGB", (30, 20)).save(photographs / "cat" / "wide.png")
    arguments = (photographs, "--network", "lenet", "--weights", "random", "-o", tmp_path / "f.npz")
    with pytest.raises(ValueError, match=r"'photos' are not squares of one size, .*--image-size"):
        run(*arguments)
    run(*arguments, "--image-size", 16)
    assert len(read_features(tmp_path / "f.npz")) == 41


# A slow network that writes a part for every batch; as the code comes, parts are written every few seconds.
SLOW = """
import time
import bures.data._extraction as extraction
from bures.cli import main
features = extraction._features
extraction.PART_SECONDS = 0
extraction._features = lambda *arguments: time.sleep(0.1) or features(*arguments)
main()
"""


def test_a_killed_extraction_goes_on_to_the_identical_file(photographs, tmp_path):
    options = ("--network", "resnet18", "--weights", "random", "--batch-size", 1, "--image-size", 64, "-o")
    parts = tmp_path / "killed.npz.parts"
    same = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen(command(photographs, *options, tmp_path / "killed.npz", code=SLOW), env=same)
    try:
        deadline = time.monotonic() + 60
        while len(list(parts.glob("*.npy")) if parts.exists() else []) < 3 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    done = len(list(parts.glob("*.npy")))
    assert 3 <= done < 40
    assert not (tmp_path / "killed.npz").exists()

    again = run(photographs, *options, tmp_path / "killed.npz")
    assert again.stdout.endswith(f"40 samples ({done} of them from an earlier start) of 512 features, 2 classes\n")
    assert not parts.exists()
    run(photographs, *options, tmp_path / "whole.npz")
    assert (tmp_path / "killed.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_bad_images_are_left_out_with_a_warning_or_fatal(photographs, tmp_path):
    (photographs / "cat" / "bad.png").write_bytes(b"")
    arguments = (photographs, "--network", "lenet", "--weights", "random", "-o", tmp_path / "f.npz")
    with pytest.raises(BadImageError, match=r"bad\.png \(the file is empty\)"):
        run(*arguments, "--strict")
    with pytest.warns(BadImageWarning, match=r"1 of 41 image files cannot be decoded: .*bad\.png"):
        run(*arguments)
    assert len(read_features(tmp_path / "f.npz")) == 40


def test_parts_of_another_network_are_refused_in_one_line_and_restart_begins_again(photographs, tmp_path):
    parts = tmp_path / "f.npz.parts"
    parts.mkdir()
    (parts / "settings.json").write_text('{"network": "alexnet"}')
    arguments = (photographs, "--network", "lenet", "--weights", "random", "-o", tmp_path / "f.npz")
    done = subprocess.run(command(*arguments), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {parts} holds parts made with other settings (network 'alexnet' instead of ")
    assert done.stderr.count("\n") == 1
    assert "--restart" in done.stderr
    assert run(*arguments, "--restart").exit_code == 0
    assert not parts.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--network", "lenet"], "--weights is not given, and 'lenet' has no public weights; accepted is a file"),
        (["--network", "resnet50-caffe"], "'resnet50-caffe' has no public weights"),
        (["--network", "identity"], "--network identity takes feature vectors"),
        (["--network", "resnet5"], "--network 'resnet5' is unknown; did you mean"),
        (["--network", "resnet18", "--weights", "none.pt"], r"--weights 'none\.pt' does not exist"),
        (["--network", "resnet34", "--weights", "WEIGHTS"], "for 'resnet34' does not fit the network; .* missing"),
        (["--network", "lenet", "--weights", "random", "-o", "none/f.npz"], "none is not a folder; make it first"),
        (["--network", "lenet", "--weights", "random", "--batch-size", "0"], "--batch-size 0 is out of range"),
        (["--network", "lenet", "--weights", "random", "--device", "abacus"], "--device 'abacus' cannot be used"),
    ],
)
def test_wrong_options_are_named(photographs, weights, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        run(photographs, *(str(weights) if option == "WEIGHTS" else option for option in options))
    assert not list(tmp_path.glob("*.npz*"))


def test_public_weights_that_are_not_there_say_what_to_do(photographs, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"weights='default' for 'resnet50' needs the file .*download"):
        run(photographs)
