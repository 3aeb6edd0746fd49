"""Backbones by name, and what they want done to images."""

from __future__ import annotations

import dataclasses
import json
import sys
import types

import pytest
import torch
from torch import nn
from torchvision.models import get_model_weights
from torchvision.transforms.functional import to_pil_image

import bures.networks._timm
from bures.networks import Preprocessing, backbone, backbone_names, build_network


@pytest.mark.parametrize(
    ("name", "width", "size"),
    [("resnet18", 512, 64), ("mobilenet_v3_small", 1024, 64), ("squeezenet1_1", 512, 64), ("resnet50-caffe", 2048, 64)],
)
def test_models_without_classifier(name, width, size):
    model = backbone(name)
    assert model.out_features == width
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    z = model(x)
    assert z.shape == (2, width)
    z.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    # No layer with the 1000 classes of ImageNet is left.
    assert not any(1000 in p.shape for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("resnet50", 2048),
        ("alexnet", 4096),
        ("vgg11", 4096),
        ("vit_b_16", 768),
        ("convnext_tiny", 768),
        ("googlenet", 1024),
        ("inception_v3", 2048),
        ("densenet121", 1024),
        ("efficientnet_b0", 1280),
        ("shufflenet_v2_x0_5", 1024),
        ("swin_t", 768),
        ("maxvit_t", 512),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_shapes_of_large_models(name, width, training):
    with torch.device("meta"):
        model = backbone(name).train(training)
        x = torch.zeros(2, 3, model.preprocessing.input_size, model.preprocessing.input_size)
        assert model(x).shape == (2, model.out_features) == (2, width)


def test_alexnet_keeps_fc6_and_fc7():
    with torch.device("meta"):
        linear = [p for p in backbone("alexnet").modules() if isinstance(p, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(9216, 4096), (4096, 4096)]


def test_a_dropout_before_the_classifier_goes_with_it():
    with torch.device("meta"):
        assert not any(isinstance(part, nn.Dropout) for part in backbone("efficientnet_b0").body.classifier)
        assert sum(isinstance(part, nn.Dropout) for part in backbone("vgg11").modules()) == 1


def test_the_caffe_resnet_is_the_first_version():
    model = backbone("resnet50-caffe").body
    for stage in (model.layer2, model.layer3, model.layer4):
        assert (stage[0].conv1.stride, stage[0].conv2.stride) == ((2, 2), (1, 1))
    assert {part.eps for part in model.modules() if isinstance(part, nn.BatchNorm2d)} == {1e-3}


def test_the_preprocessing_of_torchvision_is_reproduced():
    preset = get_model_weights("resnet50").DEFAULT.transforms(resize_size=224)
    with torch.device("meta"):
        preprocessing = backbone("resnet50").preprocessing
    image = torch.randint(256, (3, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = preset(to_pil_image(image))
    assert torch.allclose(preprocessing(image[None])[0], expected, atol=1e-5)
    assert torch.allclose(preprocessing(image[None] / 255)[0], expected, atol=1e-5)
    assert preprocessing.input_size == 224


def test_grey_images_are_repeated():
    with torch.device("meta"):
        preprocessing = backbone("resnet18", in_channels=1).preprocessing
    grey = torch.randint(256, (2, 1, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(preprocessing(grey), preprocessing(grey.repeat(1, 3, 1, 1)))


def test_the_preprocessing_of_caffe():
    preprocessing = backbone("resnet50-caffe").preprocessing
    red, green, blue = 10, 20, 30
    image = torch.tensor([red, green, blue], dtype=torch.uint8).reshape(1, 3, 1, 1)
    expected = torch.tensor([blue - 103.939, green - 116.779, red - 123.68])
    assert torch.allclose(preprocessing(image).flatten(), expected, atol=1e-4)
    assert torch.allclose(preprocessing(image / 255).flatten(), expected, atol=1e-4)


def test_preprocessing_keeps_precision_and_differentiates_after_inference_mode():
    preprocessing = Preprocessing((0.25,), (0.75,), 4)
    with torch.inference_mode():
        preprocessing(torch.rand(1, 1, 4, 4))
    x = torch.rand(1, 1, 4, 4, requires_grad=True)
    preprocessing(x).sum().backward()
    assert torch.allclose(x.grad, torch.full_like(x, 1 / 0.75))
    assert preprocessing(x.double()).dtype == torch.float64
    assert preprocessing(x.bfloat16()).dtype == torch.float32


def test_preprocessing_survives_json():
    preprocessing = backbone("resnet50-caffe").preprocessing
    stored = json.loads(json.dumps(dataclasses.asdict(preprocessing)))
    assert Preprocessing(**stored) == preprocessing
    assert hash(Preprocessing(**stored)) == hash(preprocessing)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(3, 5, 5), ValueError, r"images has shape \(3, 5, 5\)"),
        (torch.zeros(2, 4, 5, 5), ValueError, r"images has shape \(2, 4, 5, 5\); .* C = 1 or 3 channels"),
        (torch.zeros(2, 3, 5, 5, dtype=torch.int64), TypeError, r"images has dtype torch.int64"),
        ([1], TypeError, r"images is a list"),
    ],
)
def test_bad_images(images, error, message):
    with pytest.raises(error, match=message):
        Preprocessing((0.5,) * 3, (0.5,) * 3, 8)(images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"std": (1.0,)}, "mean has 3 values but std has 1"),
        ({"std": (1.0, 0.0, 1.0)}, "must be positive"),
        ({"channel_order": "RBG"}, "channel_order='RBG' is unknown"),
        ({"mean": (0.0,), "std": (1.0,), "channel_order": "BGR"}, "needs three channels"),
        ({"input_size": 0}, "input_size=0 is out of range"),
    ],
)
def test_bad_preprocessing(change, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**{"mean": (0.0,) * 3, "std": (1.0,) * 3, "input_size": 8, **change})


def test_names():
    names = backbone_names()
    assert {"lenet", "identity", "resnet50-caffe", "resnet50", "alexnet", "vgg16", "vit_b_16"} <= set(names)
    with pytest.raises(ValueError, match=r"name='resnet5' is unknown; did you mean .*'resnet50'"):
        backbone("resnet5")
    with pytest.raises(ValueError, match=r"name='fcn_resnet50' is unknown"):  # torchvision's, but it segments
        backbone("fcn_resnet50")
    with pytest.raises(TypeError, match="name is a int"):
        backbone(3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("identity", {}, "in_features is None; 'identity' needs the width"),
        ("identity", {"in_features": 0}, "in_features=0 is out of range"),
        ("identity", {"in_features": 4, "in_channels": 3}, "in_channels=3 is an option of image backbones"),
        ("identity", {"in_features": 4, "weights": "a.pt"}, "'identity' has none"),
        ("resnet18", {"in_features": 4}, "in_features=4 is an option of 'identity'; 'resnet18' does not take it"),
        ("resnet18", {"norm": "group"}, "norm='group' is an option of 'lenet'"),
        ("resnet18", {"image_size": 32}, "image_size=32 is an option of 'lenet'"),
        ("resnet18", {"in_channels": 4}, "in_channels=4 is out of range; 'resnet18' accepts 3, or 1"),
        ("lenet", {"image_size": 0}, "image_size=0 is out of range"),
        ("lenet", {"weights": "default"}, "weights='default' is unknown for 'lenet'"),
        ("resnet50-caffe", {"weights": "default"}, "weights='default' is unknown for 'resnet50-caffe'"),
        ("resnet18", {"weights": "IMAGENET"}, "accepted are 'default', 'IMAGENET1K_V1' and the path of a file"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        backbone(name, **options)


def test_identity_and_digits_in_colour():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    model = backbone("identity", in_features=4)
    assert torch.equal(model(x), x)
    assert model.preprocessing is None
    network = build_network("lenet", 10, in_channels=3, image_size=16, head="linear")
    assert network.preprocessing.channels == 3
    assert network(network.preprocessing(torch.zeros(2, 1, 16, 16, dtype=torch.uint8))).logits.shape == (2, 10)


def test_timm_is_named_when_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"name='timm:vit_tiny' needs the package timm.*bures\[timm\]"):
        backbone("timm:vit_tiny")


class FakeTimmModel(nn.Sequential):
    num_features, head_hidden_size = 3, 6
    pretrained_cfg = types.MappingProxyType({"classifier": "head.fc"})


@pytest.fixture
def fake_timm(monkeypatch):
    """The few functions of timm that are used, with their contracts."""

    def create_model(name, *, pretrained, num_classes):
        assert num_classes == 0
        assert not pretrained
        return FakeTimmModel(nn.Flatten(), nn.Linear(12, 6))

    config = {"input_size": (3, 2, 2), "mean": (0.1, 0.2, 0.3), "std": (1.0, 1.0, 1.0), "interpolation": "bicubic"}
    module = types.SimpleNamespace(
        __version__="1",
        is_model=lambda name: name == "tiny",
        list_models=lambda pattern: ["tiny"],
        create_model=create_model,
        data=types.SimpleNamespace(resolve_model_data_config=lambda model: config),
    )
    monkeypatch.setattr(bures.networks._timm, "_import_timm", lambda name: module)


@pytest.mark.usefixtures("fake_timm")
def test_timm_models(tmp_path):
    model = backbone("timm:tiny")
    assert model(torch.zeros(2, 3, 2, 2)).shape == (2, 6)
    assert model.preprocessing == Preprocessing((0.1, 0.2, 0.3), (1.0, 1.0, 1.0), 2)
    state = {"1.weight": torch.ones(6, 12), "1.bias": torch.ones(6), "head.fc.weight": torch.ones(9, 6)}
    torch.save(state, tmp_path / "tiny.pth")
    assert torch.equal(backbone("timm:tiny", weights=tmp_path / "tiny.pth").body[1].weight, torch.ones(6, 12))
    with pytest.raises(ValueError, match=r"name='timm:tin' is unknown to timm 1; did you mean 'timm:tiny'\?"):
        backbone("timm:tin")
    with pytest.raises(ValueError, match=r"weights='default' for 'timm:tiny'.*download=True"):
        backbone("timm:tiny", weights="default")


def test_a_real_timm_model():
    pytest.importorskip("timm")
    model = backbone("timm:resnet18")
    assert model.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, model.out_features) == (1, 512)
