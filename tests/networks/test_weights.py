"""Weights from files: what fits, what does not, what is damaged and what is hostile."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from contextlib import nullcontext
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from sklearn.datasets import load_sample_image
from torch import nn
from torchvision.transforms import functional as TF

from bures.networks import LeNet, backbone, build_network, read_weights

CAFFE = Path(os.environ.get("BURES_DATA", os.devnull)) / "weights" / "resnet50_caffe_fp16.pth"


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """Torch hub's folder is empty, and nothing is downloaded."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))

    def refuse(*arguments, **options):
        raise AssertionError("a download was tried")

    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)


@pytest.fixture(scope="module")
def resnet18():
    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None)


def save(state, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(dict(state), path)
    else:
        torch.save(state, path)
    return path


def same_features(model, reference) -> bool:
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    whole = nn.Sequential(model, reference.fc).eval()
    return torch.allclose(whole(x), reference.eval()(x), atol=1e-5)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_a_local_file_of_each_format(resnet18, tmp_path, suffix):
    path = save(resnet18.state_dict(), tmp_path / f"weights{suffix}")
    assert same_features(backbone("resnet18", weights=path), resnet18)
    assert same_features(backbone("resnet18", weights=str(path)), resnet18)


def test_other_classifiers_half_precision_and_wrappings_are_understood(resnet18, tmp_path):
    state = resnet18.state_dict()
    without = OrderedDict((name, value) for name, value in state.items() if not name.startswith("fc."))
    other = {**without, "fc.weight": torch.zeros(7, 3)}
    for content in (without, other, {"state_dict": state, "epoch": 3}, {f"module.{k}": v for k, v in state.items()}):
        assert same_features(backbone("resnet18", weights=save(content, tmp_path / "weights.pth")), resnet18)
    half = {name: value.half() if name.endswith("conv1.weight") else value for name, value in state.items()}
    model = backbone("resnet18", weights=save(half, tmp_path / "half.pth"))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.body.conv1.weight, state["conv1.weight"].half().float())


def test_files_without_batch_counters_are_understood(resnet18, tmp_path):
    state = {k: v for k, v in resnet18.state_dict().items() if not k.endswith("num_batches_tracked")}
    assert same_features(backbone("resnet18", weights=save(state, tmp_path / "old.pth")), resnet18)


def test_old_names_of_densenet_are_understood(tmp_path):
    state = torchvision.models.densenet121(weights=None).state_dict()
    renamed = {}
    for name, value in state.items():
        for part in ("norm", "conv"):
            for number in "12":
                if "denselayer" in name:
                    name = name.replace(f".{part}{number}.", f".{part}.{number}.")
        renamed[name] = value
    assert renamed.keys() != state.keys()
    model = backbone("densenet121", weights=save(renamed, tmp_path / "densenet.pth"))
    name = "features.denseblock1.denselayer1.conv2.weight"
    assert torch.equal(model.body.get_parameter(name), state[name])


def test_what_does_not_fit_is_listed(resnet18, tmp_path):
    state = resnet18.state_dict()
    del state["conv1.weight"], state["bn1.bias"]
    state["extra.weight"] = torch.zeros(2)
    state["bn1.weight"] = torch.zeros(63)
    state["layer1.0.conv1.weight"] = torch.full((64, 64, 3, 3), torch.nan)
    with pytest.raises(ValueError, match="does not fit") as caught:
        backbone("resnet18", weights=save(state, tmp_path / "weights.pth"))
    message = str(caught.value)
    assert "weights.pth' for 'resnet18'" in message
    assert "2 missing: conv1.weight, bn1.bias;" in message
    assert "1 unexpected: extra.weight;" in message
    assert "1 of another shape: bn1.weight (63,) instead of (64,)" in message
    assert "1 not finite: layer1.0.conv1.weight" in message


def test_a_long_list_is_cut_after_ten(resnet18, tmp_path):
    with pytest.raises(ValueError, match=r"\d+ missing") as caught:
        backbone("resnet18", weights=save({"a": torch.zeros(1)}, tmp_path / "weights.pth"))
    missing = str(caught.value).split("missing: ")[1].split(";")[0]
    total = int(str(caught.value).split(" missing")[0].rsplit(" ", 1)[1])
    assert len(missing.split(", ")) == 11
    assert missing.endswith(f"... and {total - 10} more")


def test_lenet_from_a_file(tmp_path):
    model = LeNet(image_size=8)
    path = save(model.state_dict(), tmp_path / "lenet.safetensors")
    network = build_network("lenet", 3, image_size=8, weights=path)
    assert torch.equal(network.backbone.body.convolutions[0].weight, model.convolutions[0].weight)
    with pytest.raises(ValueError, match=r"of another shape: fully_connected.2.weight \(500, 200\) instead of"):
        build_network("lenet", 3, image_size=28, weights=path)


class Hostile:
    """Unpickled carelessly, it creates a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("write", ["pickle", "torch", "legacy"])
def test_a_hostile_pickle_runs_nothing(tmp_path, write):
    mark, path = tmp_path / "mark", tmp_path / "weights.pth"
    content = {"conv1.weight": Hostile(mark)}
    if write == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=write == "torch")
    with pytest.raises(ValueError, match=r"weights='.*weights.pth' could not be read as a state dict"):
        read_weights(path)
    assert not mark.exists()
    torch.load(path, weights_only=False) if write != "pickle" else pickle.loads(path.read_bytes())
    assert mark.exists()  # the trap does work


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "noise"])
def test_damaged_files(tmp_path, suffix, damage):
    path = save({"weight": torch.ones(1000)}, tmp_path / f"weights{suffix}")
    content = path.read_bytes()
    noise = np.random.default_rng(0).bytes(2000)
    path.write_bytes({"truncated": content[:-500], "text": b"weights: none\n", "empty": b"", "noise": noise}[damage])
    with pytest.raises(ValueError, match="could not be read as a state dict: the file is damaged"):
        read_weights(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(1)], "holds a list; accepted is a state dict"),
        (torch.zeros(1), "holds a Tensor; accepted is a state dict"),
        ({}, "holds an empty state dict"),
        ({"weight": 3}, "holds a int under 'weight'"),
        ({4: torch.zeros(1)}, "holds a Tensor under 4"),
        ({"state_dict": {"epoch": "x"}}, "holds a str under 'epoch'"),
    ],
)
def test_what_is_not_a_state_dict(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_weights(save(content, tmp_path / "weights.pth"))


def test_a_pickled_module_is_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "model.pth")
    with pytest.raises(ValueError, match="could not be read as a state dict"):
        read_weights(tmp_path / "model.pth")


def test_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"weights='.*absent.pth' does not exist"):
        backbone("resnet18", weights=tmp_path / "absent.pth")
    (tmp_path / "folder.pth").mkdir()
    with pytest.raises(FileNotFoundError, match="is a folder"):
        read_weights(tmp_path / "folder.pth")
    with pytest.raises(ValueError, match=r"has an unknown format; accepted are files .pth, .pt, .safetensors"):
        read_weights(tmp_path / "weights.h5")


def test_default_weights_are_read_from_torch_hubs_folder(resnet18, tmp_path):
    name = "resnet18-f37072fd.pth"
    remedy = "download=True.* --set download_weights=true"
    with pytest.raises(FileNotFoundError, match=rf"{name}, which is not there; put https://.* {remedy}"):
        backbone("resnet18", weights="default")
    save(resnet18.state_dict(), tmp_path / "hub" / "checkpoints" / name)
    assert same_features(backbone("resnet18", weights="default"), resnet18)
    assert same_features(backbone("resnet18", weights="IMAGENET1K_V1", download=True), resnet18)


def test_default_weights_are_downloaded_only_when_allowed(resnet18, monkeypatch):
    calls = []

    def download(url, path, digest, progress):
        calls.append((url, digest, progress))
        save(resnet18.state_dict(), Path(path))

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    with pytest.raises(FileNotFoundError):
        backbone("resnet18", weights="default")
    assert not calls
    assert same_features(backbone("resnet18", weights="default", download=True), resnet18)
    assert same_features(backbone("resnet18", weights="default", download=True), resnet18)
    assert calls == [("https://download.pytorch.org/models/resnet18-f37072fd.pth", "f37072fd", False)]


def test_a_download_that_fails(monkeypatch):
    def fail(*arguments, **options):
        raise URLError("no route")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(OSError, match=r"downloading https://.* failed .*no route.*give the path of a local file"):
        backbone("resnet18", weights="default", download=True)


@pytest.mark.parametrize("scale", [1, 255])
def test_weights_of_another_scale_of_inputs_are_told_by_their_variances(resnet18, tmp_path, scale):
    """Of stripes in black and white: no image has larger variances than those."""
    stripes = torch.zeros(4, 3, 64, 64)
    stripes[:, :, :, ::16] = stripes[2:] = 1
    resnet18.bn1.momentum = None  # the statistics are of these images alone
    resnet18.train()(scale * TF.normalize(stripes, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.save(resnet18.state_dict(), tmp_path / "trained.pt")
    message = r"trained.pt' for 'resnet18' were trained on inputs of another scale: .* than images with mean=\(0.485"
    with pytest.warns(UserWarning, match=message) if scale > 1 else nullcontext():
        backbone("resnet18", weights=tmp_path / "trained.pt")


@pytest.mark.parametrize("name", ["densenet121", "mobilenet_v2", "vgg11_bn", "googlenet", "alexnet", "vit_b_32"])
def test_no_network_is_suspected_by_its_layers_alone(name, tmp_path):
    model = torchvision.models.get_model(name, weights=None, **({"init_weights": False} if name == "googlenet" else {}))
    torch.save(model.state_dict(), tmp_path / "fresh.pt")
    backbone(name, weights=tmp_path / "fresh.pt")  # warnings are errors in tests


@pytest.mark.skipif(not CAFFE.is_file(), reason="BURES_DATA names no folder with weights/resnet50_caffe_fp16.pth")
def test_weights_of_caffe_are_told_from_those_of_torchvision():
    with pytest.warns(UserWarning, match="another scale: .*; those of Caffe are for network='resnet50-caffe'") as found:
        backbone("resnet50", weights=CAFFE)
    assert found[0].filename == __file__


@pytest.mark.skipif(not CAFFE.is_file(), reason="BURES_DATA names no folder with weights/resnet50_caffe_fp16.pth")
def test_the_caffe_resnet_knows_a_palace():
    model = backbone("resnet50-caffe", weights=CAFFE).eval()
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    image = TF.to_pil_image(load_sample_image("china.jpg"))
    assert image.size == (640, 427)
    image = TF.center_crop(TF.resize(image, [256, 384]), 224)  # torchvision would round 383.7 down: 0.76
    batch = model.preprocessing(TF.pil_to_tensor(image)[None])
    state = read_weights(CAFFE)
    with torch.no_grad():
        logits = model(batch) @ state["fc.weight"].float().T + state["fc.bias"].float()
    p = logits.softmax(dim=1)
    assert p.argmax().item() == 698
    assert p.max().item() == pytest.approx(0.73, abs=0.01)
