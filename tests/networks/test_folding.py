"""Frozen BatchNorm folded into convolutions: the same function and the same gradients."""

import pytest
import torch
from torch import nn

from bures.networks import FrozenBatchNorm, backbone, freeze_batchnorm
from bures.networks._folding import fold_frozen_batchnorm


def frozen(name):
    """The layers of a backbone with statistics unlike those of the start, in float64."""
    body = freeze_batchnorm(backbone(name).body).double()
    generator = torch.Generator().manual_seed(0)
    for part in body.modules():
        if isinstance(part, FrozenBatchNorm):
            part.running_mean.normal_(generator=generator)
            part.running_var.uniform_(0.5, 2, generator=generator)
            with torch.no_grad():
                part.bias.normal_(generator=generator)
    return body


def folded(twin):
    return sum(str(node.target).startswith("folded_") for node in twin.graph.nodes)


@pytest.mark.parametrize(("name", "n_folded"), [("resnet18", 20), ("resnet50-caffe", 53)])
def test_values_and_gradients_are_those_of_the_layers_one_by_one(name, n_folded):
    body = frozen(name)
    twin = fold_frozen_batchnorm(body)
    assert folded(twin) == n_folded
    x = torch.rand(2, 3, 40, 40, dtype=torch.float64)
    parameters = list(body.parameters())
    values, gradients = [], []
    for network in (body, twin):
        values.append(network(x))
        gradients.append(torch.autograd.grad(values[-1].square().mean(), parameters))
    torch.testing.assert_close(values[1], values[0])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-7, atol=1e-12)


def test_a_twin_follows_the_parameters_of_its_original():
    body = frozen("resnet18")
    twin, x = fold_frozen_batchnorm(body), torch.rand(1, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        body.layer1[0].bn1.weight.mul_(1.7)
        body.layer2[0].conv1.weight.add_(0.01)
        torch.testing.assert_close(twin(x), body(x))


def test_a_convolution_with_a_bias_and_odd_padding():
    layers = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect", groups=2), nn.BatchNorm2d(4), nn.ReLU()
    )
    layers[1].running_mean.normal_()
    freeze_batchnorm(layers)
    twin, x = fold_frozen_batchnorm(layers), torch.rand(2, 2, 5, 5)
    assert folded(twin) == 1
    torch.testing.assert_close(twin(x), layers(x))


def test_an_output_that_others_use_too_is_kept():
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y

    fork = freeze_batchnorm(Fork())
    fork.norm.running_mean.normal_()
    twin, x = fold_frozen_batchnorm(fork), torch.rand(2, 1, 3, 3)
    assert folded(twin) == 0
    torch.testing.assert_close(twin(x), fork(x))


def test_what_cannot_be_traced_or_has_nothing_to_fold_is_left_alone():
    class Choice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(1)

        def forward(self, x):
            return self.norm(x) if x.sum() > 0 else x

    choice = freeze_batchnorm(Choice())
    assert fold_frozen_batchnorm(choice) is choice
    plain = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    assert fold_frozen_batchnorm(plain) is plain
