"""Stages that keep their weights: which they are, where the backward pass ends, and that the rest learns as before."""

import re

import pytest
import torch

from bures.networks import backbone, build_network, freeze_batchnorm, freeze_stages
from bures.training import _passes
from bures.training._passes import Passes

STEM = ("conv1.", "bn1.")


def resnet(frozen_stages=0, *, frozen_batchnorm=False):
    network = build_network("resnet18", 3, hidden=6, features=5, seed=0).double().train()
    if frozen_batchnorm:
        freeze_batchnorm(network.backbone)
    freeze_stages(network.backbone, frozen_stages)
    return network


def images(seed):
    return torch.rand(4, 3, 40, 40, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(network, outputs):
    sum(output.logits.square().sum() for output in outputs).backward()
    return {name: parameter.grad for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("name", ["resnet18", "wide_resnet50_2", "resnet50-caffe", "timm:resnet10t"])
@pytest.mark.parametrize("frozen_stages", [0, 1, 3])
def test_the_stem_and_the_first_stages_require_no_gradient(name, frozen_stages):
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    with torch.device("meta"):  # names alone matter
        model = backbone(name)
    assert freeze_stages(model, frozen_stages) is model
    frozen = (*STEM, *(f"layer{stage}." for stage in range(1, frozen_stages + 1))) if frozen_stages else ()
    for parameter_name, parameter in model.body.named_parameters():
        assert parameter.requires_grad != parameter_name.startswith(frozen or ("nothing",)), parameter_name


@pytest.mark.parametrize("frozen_batchnorm", [True, False])
def test_the_backward_pass_ends_behind_them_and_is_the_same_before(frozen_batchnorm):
    whole, part = (resnet(stages, frozen_batchnorm=frozen_batchnorm) for stages in (0, 2))
    needed = {}
    for stage in ("layer2", "layer3"):
        layer = getattr(part.backbone.body, stage)
        layer.register_forward_hook(lambda layer, inputs, output, stage=stage: needed.update({stage: output.grad_fn}))
    expected, found = (gradients(network, [network(images(1))]) for network in (whole, part))
    assert needed["layer2"] is None  # nothing is kept for a gradient up to here
    assert needed["layer3"] is not None
    learning = [name for name, gradient in found.items() if gradient is not None]
    # Three tensors of the stem, and of each of the two blocks of a stage six; layer2 has three more on its way round.
    assert len(found) - len(learning) == 3 + 12 + 15
    torch.testing.assert_close({name: found[name] for name in learning}, {name: expected[name] for name in learning})
    # Running statistics are no weights: the policy for BatchNorm alone decides whether they move.
    torch.testing.assert_close(whole.state_dict(), part.state_dict())
    moved = part.state_dict()["backbone.body.bn1.running_mean"].abs().max() > 0
    assert moved != frozen_batchnorm


@pytest.mark.parametrize("backend", ["none", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_compiled_passes_have_the_same_gradients(backend, monkeypatch):
    original = torch.compile

    def stand_in(body, **options):  # what is folded and laid out, with and without the compiler's own backward pass
        return body if backend == "none" else original(body, backend=backend, **options)

    monkeypatch.setattr(_passes, "_worth_compiling", lambda x: True)
    monkeypatch.setattr(torch, "compile", stand_in)
    compiled, plain = resnet(3, frozen_batchnorm=True), resnet(3, frozen_batchnorm=True)
    passes = Passes(compiled, compiled=True)
    found = gradients(compiled, passes.each(images(1), images(2)))
    expected = gradients(plain, [plain(images(1)), plain(images(2))])
    assert passes.compiled
    torch.testing.assert_close(found, expected)
    assert sum(gradient is not None for gradient in found.values()) == 15 + 10  # layer4 and the head


def test_parameters_that_are_kept_are_in_no_group():
    network = resnet(4)
    assert [group["name"] for group in network.parameter_groups(0.1)] == ["head"]


@pytest.mark.parametrize(
    ("name", "options", "frozen_stages", "message"),
    [
        ("resnet18", {}, 5, "frozen_stages=5 is out of range; 'resnet18' has 4 stages: accepted is 0 to 4"),
        ("resnet18", {}, -1, "frozen_stages=-1 is out of range; accepted is 0, or a number of stages"),
        ("resnet18", {}, True, "frozen_stages=True is out of range"),
        ("lenet", {}, 1, "frozen_stages=1: 'lenet' has no stages layer1, layer2, ... as ResNets have; accepted is 0"),
        ("identity", {"in_features": 3}, 1, "frozen_stages=1: 'identity' has no stages"),
        ("squeezenet1_1", {}, 1, "frozen_stages=1: 'squeezenet1_1' has no stages"),
    ],
)
def test_what_cannot_be_kept_is_refused(name, options, frozen_stages, message):
    model = backbone(name, **options)
    with pytest.raises(ValueError, match=re.escape(message)):
        freeze_stages(model, frozen_stages)
    assert all(parameter.requires_grad for parameter in model.parameters())
