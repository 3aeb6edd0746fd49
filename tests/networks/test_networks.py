"""Networks as a whole: shapes, gradients, determinism, copies, precision, parameter groups, bad input."""

from __future__ import annotations

import copy

import pytest
import safetensors.torch
import torch
from torch import nn

from bures.networks import (
    BottleneckHead,
    LeNet,
    LinearHead,
    Network,
    NetworkOutput,
    backbone,
    build_network,
    freeze_batchnorm,
)


def lenet(**options):
    return build_network("lenet", 5, **{"image_size": 8, "hidden": 32, "features": 16, "seed": 0, **options})


@pytest.fixture
def images():
    return torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def equal_states(a: nn.Module, b: nn.Module) -> bool:
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("head", "width"), [("bottleneck", 16), ("linear", 500)])
def test_shapes_and_gradients_reach_every_parameter(images, head, width):
    network = lenet(head=head)
    output = network(images)
    assert isinstance(output, NetworkOutput)
    assert output.features.shape == (6, width)
    assert output.logits.shape == (6, 5)
    (output.logits.square().sum() + output.features.sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


def test_the_head_is_the_papers():
    head = BottleneckHead(2048, 65)
    kinds = [type(layer).__name__ for layer in head.bottleneck]
    assert kinds == ["Linear", "LeakyReLU", "BatchNorm1d", "Linear", "Tanh", "BatchNorm1d"]
    assert [layer.out_features for layer in head.bottleneck if isinstance(layer, nn.Linear)] == [1024, 512]
    assert head.bottleneck[1].negative_slope == 0.2
    output = head(torch.randn(32, 2048, generator=torch.Generator().manual_seed(0)))
    # The features come after the BatchNorm: standardised over the batch. The classifier sees the same features.
    assert torch.allclose(output.features.mean(0), torch.zeros(512), atol=1e-5)
    assert torch.allclose(output.features.var(0, correction=0), torch.ones(512), atol=1e-2)
    assert torch.equal(output.logits, head.classifier(output.features))


def test_a_seed_fixes_the_weights_and_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = lenet(seed=3), lenet(seed=3), lenet(seed=4)
    assert torch.equal(torch.rand(3), expected)
    assert equal_states(first, second)
    assert not equal_states(first, other)
    torch.manual_seed(3)
    assert equal_states(lenet(seed=None), first)


def test_forward_is_deterministic(images):
    network = lenet().eval()
    assert torch.equal(network(images).logits, network(images).logits)


def test_state_dict_round_trip_through_safetensors(images, tmp_path):
    network = lenet()
    network(images)  # running statistics move
    safetensors.torch.save_file(network.state_dict(), tmp_path / "network.safetensors")
    other = lenet(seed=1)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "network.safetensors"))
    assert equal_states(network, other)
    assert torch.equal(network.eval()(images).logits, other.eval()(images).logits)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_deepcopy_is_equal_and_independent(images, frozen):
    network = lenet()
    if frozen:
        freeze_batchnorm(network)
    twin = copy.deepcopy(network)
    assert equal_states(network, twin)
    with torch.no_grad():
        next(twin.parameters()).add_(1)
    assert not equal_states(network, twin)
    assert twin.preprocessing == network.preprocessing


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("frozen", [False, True])
def test_forward_and_backward_under_bfloat16_autocast(images, norm, frozen):
    network = lenet(norm=norm)
    if frozen:
        freeze_batchnorm(network)
    exact = network.eval()(images).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = network(images)
        assert output.logits.dtype == torch.bfloat16
        p = network.predict_proba(images)
    assert torch.allclose(output.logits.float(), exact, atol=0.1)
    assert p.dtype == torch.float32
    output.logits.float().square().sum().backward()
    assert bool(next(network.parameters()).grad.isfinite().all())


def test_probabilities_leave_modes_statistics_and_graph_alone(images):
    network = lenet()
    network.backbone.eval()
    before, modes = copy.deepcopy(network), [part.training for part in network.modules()]
    p = network.predict_proba(images[:1])  # one sample: evaluation mode
    assert p.shape == (1, 5)
    assert not p.requires_grad
    assert p.sum().item() == pytest.approx(1, abs=1e-6)
    assert [part.training for part in network.modules()] == modes
    assert equal_states(network, before)
    assert torch.allclose(network.predict_proba(images).log(), network.eval()(images).logits.log_softmax(1), atol=1e-5)
    assert network.double().predict_proba(images.double()).dtype == torch.float64


def test_modes_return_after_an_error(images):
    network = lenet()
    with pytest.raises(ValueError, match="x has shape"):
        network.predict_proba(images[:, :, :4])
    assert all(part.training for part in network.modules())


def test_parameter_groups(images):
    network = lenet()
    groups = network.parameter_groups(3e-4, backbone_factor=0.1, head_factor=1.5)
    assert [(group["name"], pytest.approx(group["lr"])) for group in groups] == [("backbone", 3e-5), ("head", 4.5e-4)]
    assert {p for group in groups for p in group["params"]} == set(network.parameters())
    before = copy.deepcopy(network)
    optimiser = torch.optim.SGD(groups, lr=1)
    network(images).logits.square().sum().backward()
    optimiser.step()
    weight, old = network.head.classifier.weight, before.head.classifier.weight
    assert torch.allclose(old - weight, 4.5e-4 * weight.grad, atol=1e-7)


def test_parts_without_trainable_parameters_have_no_group():
    assert [g["name"] for g in build_network("identity", 3, in_features=4).parameter_groups(1e-3)] == ["head"]
    network = lenet()
    network.backbone.requires_grad_(False)
    assert [g["name"] for g in network.parameter_groups(1e-3)] == ["head"]


@pytest.mark.parametrize("name", ["lr", "backbone_factor", "head_factor"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_learning_rates_must_be_positive(name, value):
    with pytest.raises(ValueError, match=rf"{name}=.* is out of range"):
        lenet().parameter_groups(**{"lr": 1e-3, name: value})


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_one_sample_in_training_mode_is_a_clear_error(images, norm):
    network = lenet(norm=norm)
    with pytest.raises(ValueError, match="x has one sample, and BatchNorm"):
        network(images[:1])
    assert network.eval()(images[:1]).logits.shape == (1, 5)
    assert freeze_batchnorm(network).train()(images[:1]).logits.shape == (1, 5)


def test_one_sample_without_batchnorm_is_fine(images):
    assert lenet(norm="group", head="linear")(images[:1]).logits.shape == (1, 5)


@pytest.mark.parametrize("size", [4, 5, 8, 16, 19, 20, 28, 32])
@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_lenet_takes_images_of_many_sizes(size, norm):
    x = torch.zeros(2, 3, size, size)
    assert LeNet(3, image_size=size, norm=norm)(x).shape == (2, 500)


def test_lenet_of_the_literature():
    network = LeNet(norm="none")
    shapes = [tuple(p.shape) for p in network.parameters() if p.ndim > 1]
    assert shapes == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800)]
    assert not any(isinstance(part, nn.Dropout) for part in network.modules())
    assert any(isinstance(part, nn.Dropout) for part in LeNet(dropout=0.5).modules())
    assert LeNet(width=(4, 6), out_features=7)(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "layer"}, r"norm='layer' is unknown; accepted are 'batch', 'group', 'none'"),
        ({"dropout": 1.0}, r"dropout=1.0 is out of range"),
        ({"width": 20}, r"width=20 is not a pair"),
        ({"width": (20, 0)}, r"width\[1\]=0 is out of range"),
        ({"image_size": 3}, r"image_size=3 is out of range; accepted is an integer of at least 4"),
        ({"in_channels": 0}, r"in_channels=0 is out of range"),
        ({"out_features": -1}, r"out_features=-1 is out of range"),
    ],
)
def test_bad_options_of_lenet(options, message):
    with pytest.raises(ValueError, match=message):
        LeNet(**options)


@pytest.mark.parametrize("head", [BottleneckHead, LinearHead])
def test_bad_numbers_of_classes(head):
    for value in (0, 1, -3):
        with pytest.raises(ValueError, match=rf"n_classes={value} is out of range; accepted is an integer of at least"):
            head(8, value)
    for value in (2.5, "3", None, True):
        with pytest.raises(TypeError, match="is not an integer"):
            head(8, value)


def test_bad_parts_of_a_network():
    with pytest.raises(ValueError, match="backbone gives 500 features but head takes 512"):
        Network(LeNet(), LinearHead(512, 10))
    with pytest.raises(TypeError, match=r"head is a function; accepted is an nn.Module"):
        Network(LeNet(), lambda x: x)
    with pytest.raises(TypeError, match="head returned a Tensor; accepted is a pair"):
        Network(LeNet(), nn.Linear(500, 10))(torch.zeros(2, 1, 28, 28))
    with pytest.raises(ValueError, match="head='mlp' is unknown; accepted are 'bottleneck', 'linear'"):
        lenet(head="mlp")


def test_bad_input_of_a_network(images):
    network = build_network("identity", 3, in_features=6)
    with pytest.raises(ValueError, match=r"x has shape \(4, 5\); accepted are features \(n, 6\)"):
        network(torch.zeros(4, 5))
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64"):
        network(torch.zeros(4, 6, dtype=torch.int64))
    with pytest.raises(TypeError, match="apply the backbone's preprocessing first"):
        lenet()(images.to(torch.uint8))
    with pytest.raises(ValueError, match=r"x has shape \(6, 3, 8, 8\); 'lenet' takes images \(n, 1, H, W\)"):
        lenet()(images.expand(-1, 3, -1, -1))
    with pytest.raises(TypeError, match="x is a list"):
        backbone("lenet")([1])
