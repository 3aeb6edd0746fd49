"""Features are the backbone's own, whatever the batches; an extraction that stops goes on to the same file."""

import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import bures.data._extraction as extraction
from bures.data import (
    Domain,
    ImageFiles,
    TensorSamples,
    extract_features,
    image_folder,
    optdigits,
    read_features,
    write_features,
)
from bures.data._extraction import image_sizes
from bures.data._parts import Parts, PartsMismatchError
from bures.networks import Backbone, Preprocessing, backbone


@pytest.fixture(autouse=True)
def a_part_for_every_batch(monkeypatch):
    monkeypatch.setattr(extraction, "PART_SECONDS", 0.0)


@pytest.fixture
def digits():
    domain = optdigits().take(range(30))
    return Domain("digits", domain.samples, domain.class_names, domain.labels, [f"{i}.png" for i in range(30)])


@pytest.fixture
def lenet():
    torch.manual_seed(0)
    return backbone("lenet", image_size=8)


class StopError(Exception):
    """Stands for the end of a process."""


def stop_after(n):
    def progress(done, total):
        if done >= n:
            raise StopError

    return progress


def interrupted(domain, body, file, n, **options):
    with pytest.raises(StopError):
        extract_features(domain, body, file, batch_size=4, progress=stop_after(n), **options)
    assert not file.exists()
    return file.with_name(f"{file.name}.parts")


def test_features_are_those_of_the_backbone_in_evaluation_mode(tmp_path, digits, lenet):
    lenet.train()
    features = extract_features(digits, lenet, tmp_path / "f.npz", batch_size=7)
    assert lenet.training
    lenet.eval()
    with torch.no_grad():
        expected = lenet(lenet.preprocessing(digits.samples.tensor))
    torch.testing.assert_close(features.samples.tensor, expected, rtol=1e-4, atol=1e-5)


def test_the_file_keeps_name_classes_labels_and_ids(tmp_path, digits, lenet):
    features = extract_features(digits, lenet, tmp_path / "f.npz")
    read = read_features(tmp_path / "f.npz")
    assert torch.equal(read.samples.tensor, features.samples.tensor)
    assert read.samples.shape == (500,)
    assert (read.name, read.class_names, read.ids) == (digits.name, digits.class_names, digits.ids)
    assert torch.equal(read.labels, digits.labels)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.npz"]


def test_a_domain_without_labels_and_ids_stays_so(tmp_path, digits, lenet):
    extract_features(Domain("bare", digits.samples, ()), lenet, tmp_path / "f.npz")
    read = read_features(tmp_path / "f.npz")
    assert (read.labels, read.ids, read.class_names) == (None, None, ())


class Mean(nn.Module):
    """The mean of each channel, and how large the image is."""

    def forward(self, x):
        size = torch.full((len(x), 1), float(x.shape[-1]), device=x.device)
        return torch.cat([x.mean(dim=(2, 3)), size], dim=1)


def mean_backbone(size):
    return Backbone("mean", Mean(), 4, Preprocessing((0.0,) * 3, (1.0,) * 3, size))


@pytest.mark.parametrize(
    ("size", "sides"), [(224, (256, 224)), (299, (342, 299)), (384, (439, 384)), (64, (64, 64)), (28, (28, 28))]
)
def test_photographs_are_warped_wider_and_small_images_taken_whole(size, sides):
    assert image_sizes(size) == sides


def test_the_middle_of_the_warped_image_is_seen(tmp_path):
    """A frame of 8 of 128 pixels is cut off: what is left is the inner colour alone."""
    pixels = np.zeros((256, 512, 3), dtype=np.uint8)
    pixels[14:-14, 28:-28] = (255, 51, 0)
    Image.fromarray(pixels).save(tmp_path / "framed.png")
    domain = Domain("framed", ImageFiles([tmp_path / "framed.png"], size=40), ())
    seen = extract_features(domain, mean_backbone(224), tmp_path / "a.npz").samples.tensor
    torch.testing.assert_close(seen, torch.tensor([[1.0, 0.2, 0.0, 224.0]]))
    smaller = extract_features(domain, mean_backbone(224), tmp_path / "b.npz", image_size=112).samples.tensor
    torch.testing.assert_close(smaller, torch.tensor([[1.0, 0.2, 0.0, 112.0]]))


def test_images_in_memory_are_warped_batch_by_batch(tmp_path, digits):
    seen = extract_features(digits, mean_backbone(28), tmp_path / "f.npz").samples.tensor
    expected = digits.samples.resize(28).tensor.double().mean(dim=(1, 2, 3)) / 255
    torch.testing.assert_close(seen[:, 0].double(), expected, rtol=1e-5, atol=1e-6)
    assert set(seen[:, 3].tolist()) == {28.0}


def test_a_torchvision_backbone_on_files(tmp_path):
    for i, name in enumerate(("cat", "dog")):
        (tmp_path / "pets" / name).mkdir(parents=True)
        Image.new("RGB", (50, 40), (100 * i, 50, 10)).save(tmp_path / "pets" / name / "a.png")
    domain = image_folder(tmp_path / "pets")
    body = backbone("shufflenet_v2_x0_5")
    features = extract_features(domain, body, tmp_path / "f.npz")
    body.eval()
    pixels = domain.samples.take(torch.arange(2))[:, :, 16:240, 16:240]
    with torch.no_grad():
        expected = body(body.preprocessing(pixels))
    torch.testing.assert_close(features.samples.tensor, expected, rtol=1e-4, atol=1e-5)
    assert features.ids == ("cat/a.png", "dog/a.png")


# Stops and starts


@pytest.mark.parametrize("n", [4, 12, 30])
def test_an_interrupted_extraction_goes_on_to_the_same_file(tmp_path, digits, lenet, n):
    extract_features(digits, lenet, tmp_path / "whole.npz", batch_size=4)
    parts = interrupted(digits, lenet, tmp_path / "f.npz", n)
    (parts / ".000000012-000000016.npy.abcd.partial").write_bytes(b"half a part")
    calls = []
    extract_features(digits, lenet, tmp_path / "f.npz", batch_size=4, progress=lambda *at: calls.append(at))
    assert calls[0] == (n, 30)
    assert calls[-1] == (30, 30)
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not parts.exists()


def test_what_is_done_is_not_done_again(tmp_path, digits, lenet):
    interrupted(digits, lenet, tmp_path / "f.npz", 12)
    seen = []
    lenet.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    extract_features(digits, lenet, tmp_path / "f.npz", batch_size=4)
    assert seen == [4, 4, 4, 4, 2]


def test_parts_are_written_by_time(tmp_path, digits, lenet, monkeypatch):
    monkeypatch.setattr(extraction, "PART_SECONDS", 3600.0)
    parts = interrupted(digits, lenet, tmp_path / "f.npz", 28)
    assert [file.name for file in parts.iterdir()] == ["settings.json"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "other shape", "missing"])
def test_a_damaged_part_is_computed_again(tmp_path, digits, lenet, damage):
    extract_features(digits, lenet, tmp_path / "whole.npz", batch_size=4)
    parts = interrupted(digits, lenet, tmp_path / "f.npz", 16)
    second = parts / "000000004-000000008.npy"
    content = second.read_bytes()
    if damage == "missing":
        second.unlink()
    elif damage == "other shape":
        np.save(second, np.zeros((3, 500), dtype=np.float32))
    else:
        second.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    extract_features(digits, lenet, tmp_path / "f.npz", batch_size=4)
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def other_weights(digits, lenet):
    with torch.no_grad():
        next(lenet.parameters())[0] += 1e-3
    return digits, lenet, {}


def other_network(digits, lenet):
    return digits, backbone("lenet", image_size=8, norm="none"), {}


def other_images(digits, lenet):
    digits.samples.tensor[3, 0, 0, 0] ^= 1
    return digits, lenet, {}


def other_labels(digits, lenet):
    return Domain(digits.name, digits.samples, digits.class_names, 9 - digits.labels, digits.ids), lenet, {}


def other_batch(digits, lenet):
    return digits, lenet, {"batch_size": 5}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (other_weights, "weights"),
        (other_network, "weights"),
        (other_images, "images"),
        (other_labels, "labels"),
        (other_batch, "batch_size '4' instead of '5'"),
    ],
)
def test_parts_of_other_settings_are_refused_and_kept(tmp_path, digits, lenet, change, named):
    parts = interrupted(digits, lenet, tmp_path / "f.npz", 12)
    before = {file.name: file.read_bytes() for file in parts.iterdir()}
    domain, body, options = change(digits, lenet)
    with pytest.raises(PartsMismatchError, match=f"other settings \\({named}.*restart=True \\(--restart\\)"):
        extract_features(domain, body, tmp_path / "f.npz", **{"batch_size": 4} | options)
    assert {file.name: file.read_bytes() for file in parts.iterdir()} == before
    extract_features(domain, body, tmp_path / "f.npz", restart=True, **{"batch_size": 4} | options)
    assert not parts.exists()
    extract_features(domain, body, tmp_path / "again.npz", **{"batch_size": 4} | options)
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()


def test_an_image_file_that_changed_in_between_is_noticed(tmp_path):
    for i in range(8):
        Image.new("RGB", (30, 30), (10 * i, 0, 0)).save(tmp_path / f"{i}.png")
    domain = Domain("files", ImageFiles([tmp_path / f"{i}.png" for i in range(8)]), ())
    interrupted(domain, mean_backbone(28), tmp_path / "f.npz", 4)
    time.sleep(0.01)
    Image.new("RGB", (30, 30), (77, 0, 0)).save(tmp_path / "1.png")
    with pytest.raises(PartsMismatchError, match="images"):
        extract_features(domain, mean_backbone(28), tmp_path / "f.npz", batch_size=4)


@pytest.mark.parametrize("settings", [None, b"", b"{half", b"[]"])
def test_parts_without_readable_settings_are_refused(tmp_path, digits, lenet, settings):
    parts = interrupted(digits, lenet, tmp_path / "f.npz", 12)
    (parts / "settings.json").unlink()
    if settings is not None:
        (parts / "settings.json").write_bytes(settings)
    with pytest.raises(PartsMismatchError, match="settings cannot be read"):
        extract_features(digits, lenet, tmp_path / "f.npz", batch_size=4)


def test_what_others_put_among_the_parts_stays(tmp_path):
    parts = Parts(tmp_path / "f.npz", {}, 2)
    parts.open()
    parts.append(0, np.zeros((1, 2), dtype=np.float32))
    (parts.folder / "notes.txt").write_text("mine")
    parts.remove()
    assert [file.name for file in parts.folder.iterdir()] == ["notes.txt"]


def test_of_two_parts_with_one_start_the_longer_is_taken(tmp_path):
    parts = Parts(tmp_path / "f.npz", {}, 1)
    parts.open()
    for n in (2, 5, 3):
        parts.append(0, np.arange(n, dtype=np.float32)[:, None])
    assert parts.rows().ravel().tolist() == [0, 1, 2, 3, 4]


def test_a_full_disk_costs_nothing_but_the_part_at_hand(tmp_path, digits, lenet, monkeypatch):
    extract_features(digits, lenet, tmp_path / "whole.npz", batch_size=4)
    save = np.save

    def fill(stream, rows):
        if stream.name.count("000000008-"):
            stream.write(b"half")
            raise OSError("8000 requested and 4 written")  # NumPy's words
        save(stream, rows)

    def full(stream, **arrays):
        raise OSError("No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(np, "save", fill)
        with pytest.raises(OSError, match=r"000000008-000000012\.npy could not be written .*: make room, and start"):
            extract_features(digits, lenet, tmp_path / "f.npz", batch_size=4)
        disk.setattr(np, "save", save)
        disk.setattr(np, "savez", full)
        with pytest.raises(OSError, match=r"f\.npz could not be written"):
            extract_features(digits, lenet, tmp_path / "f.npz", batch_size=4)
    assert not (tmp_path / "f.npz").exists()
    calls = []
    extract_features(digits, lenet, tmp_path / "f.npz", batch_size=4, progress=lambda *at: calls.append(at))
    assert calls == [(30, 30)]
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


# What is refused


def test_a_file_that_exists_is_replaced_only_on_request(tmp_path, digits, lenet):
    write_features(tmp_path / "f.npz", optdigits().take([0]))
    with pytest.raises(FileExistsError, match=r"f\.npz' exists; .*restart=True \(--restart\)"):
        extract_features(digits, lenet, tmp_path / "f.npz")
    extract_features(digits, lenet, tmp_path / "f.npz", restart=True)
    assert len(read_features(tmp_path / "f.npz")) == 30


def test_outputs_that_cannot_be_written_are_refused_at_once(tmp_path, digits, lenet):
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").touch()
    for output, error, message in (
        ("f.csv", ValueError, r"ends in '\.csv'; features are written to \.npz"),
        ("nowhere/f.npz", FileNotFoundError, "nowhere is not a folder; make it first"),
        ("file/f.npz", FileNotFoundError, "file is not a folder"),
        ("folder.npz", IsADirectoryError, "is a folder; accepted is the name of a file"),
    ):
        with pytest.raises(error, match=message):
            extract_features(digits, lenet, tmp_path / output)


def test_a_folder_without_permission_is_named(tmp_path, digits, lenet, monkeypatch):
    monkeypatch.setattr(extraction.os, "access", lambda path, mode: False)  # a superuser may write everywhere
    with pytest.raises(PermissionError, match="is not writable; choose another folder"):
        extract_features(digits, lenet, tmp_path / "f.npz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 is out of range; accepted is an integer of at least 1"),
        ({"image_size": 0}, "size=0 is out of range"),
        ({"image_size": 9}, r"x has shape \(30, 1, 9, 9\); accepted is \(n, 1, 8, 8\)"),
        ({"device": "abacus"}, "device='abacus' cannot be used: .*accepted are 'auto', 'cpu'"),
        ({"device": "hpu"}, "device='hpu' cannot be used: .*accepted are 'auto', 'cpu'"),  # a module that is not there
    ],
)
def test_wrong_options_are_named(tmp_path, digits, lenet, options, message):
    with pytest.raises(ValueError, match=message):
        extract_features(digits, lenet, tmp_path / "f.npz", **options)
    with pytest.raises(TypeError, match=r"batch_size=2\.5 is not an integer; accepted is an integer of at least 1"):
        extract_features(digits, lenet, tmp_path / "f.npz", batch_size=2.5)


def test_images_too_small_for_a_backbone_are_named(tmp_path, digits):
    body = Backbone("wide", nn.Conv2d(1, 2, kernel_size=20), 2, Preprocessing((0.5,), (0.5,), 20))
    with pytest.raises(ValueError, match=r"'wide' fails on images of 8 x 8 pixels: .*; it was made for image_size=20"):
        extract_features(digits, body, tmp_path / "f.npz", image_size=8)


class Silent(nn.Module):
    def forward(self, x):
        raise AssertionError


def test_a_backbone_that_fails_without_a_word_is_named(tmp_path, digits):
    body = Backbone("silent", Silent(), 2, Preprocessing((0.5,), (0.5,), 20))
    message = r"'silent' fails on images of 8 x 8 pixels: AssertionError; it was made for image_size=20"
    with pytest.raises(ValueError, match=message):
        extract_features(digits, body, tmp_path / "f.npz", image_size=8)


def test_features_are_not_extracted_from_features(tmp_path, lenet):
    table = Domain("table", TensorSamples(torch.eye(3)), ())
    with pytest.raises(ValueError, match=r"'table' holds features of shape \(3,\) already"):
        extract_features(table, lenet, tmp_path / "f.npz")
    with pytest.raises(ValueError, match="'identity' takes feature vectors"):
        extract_features(optdigits(), backbone("identity", in_features=64), tmp_path / "f.npz")


def test_features_that_are_not_finite_name_the_sample(tmp_path, digits):
    class Broken(Mean):
        def forward(self, x):
            features = super().forward(x)
            features[1] = torch.nan
            return features

    body = Backbone("broken", Broken(), 4, Preprocessing((0.0,) * 3, (1.0,) * 3, 8))
    with pytest.raises(ValueError, match=r"'broken' gives features that are not finite for 1\.png; check its weights"):
        extract_features(digits, body, tmp_path / "f.npz")


def test_a_file_that_is_lost_on_the_way_is_named_and_the_parts_are_kept(tmp_path):
    for i in range(8):
        Image.new("RGB", (30, 30), (10 * i, 0, 0)).save(tmp_path / f"{i}.png")
    domain = Domain("files", ImageFiles([tmp_path / f"{i}.png" for i in range(8)]), ())

    def lose(done, total):
        if done == 0:
            (tmp_path / "7.png").write_bytes(b"")

    with pytest.raises(ValueError, match=r"7\.png cannot be decoded: the file is empty"):
        extract_features(domain, mean_backbone(28), tmp_path / "f.npz", batch_size=2, progress=lose)
    assert len(list((tmp_path / "f.npz.parts").glob("*.npy"))) == 3
