"""BatchNorm policies: frozen statistics, and statistics of the target domain."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from bures.networks import FrozenBatchNorm, LeNet, adapt_batchnorm, build_network, freeze_batchnorm


@pytest.fixture
def network():
    return build_network("lenet", 4, image_size=8, hidden=16, features=8, seed=0)


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    return [3 + 2 * torch.randn(n, 1, 8, 8, generator=generator) for n in (16, 16, 5)]


def split_state(module):
    """Statistics and everything else."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    statistics = {name: value for name, value in state.items() if "running_" in name}
    return statistics, {name: value for name, value in state.items() if name not in statistics}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_frozen_statistics_stay_and_gradients_flow(network, batches):
    statistics, _ = split_state(network)
    expected = copy.deepcopy(network).eval()(batches[0]).logits
    names = list(network.state_dict())
    assert freeze_batchnorm(network) is network
    network.train()
    logits = network(batches[0]).logits
    assert torch.allclose(logits, expected, atol=1e-6)
    logits.square().sum().backward()
    assert equal(split_state(network)[0], statistics)
    assert list(network.state_dict()) == names
    assert all(p.grad is not None for p in network.parameters())


def test_freezing_a_part_leaves_the_rest_in_training(network, batches):
    freeze_batchnorm(network.backbone)
    before, _ = split_state(network)
    network.train()(batches[0])
    after, _ = split_state(network)
    moved = {name.split(".")[0] for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"head"}


def test_freezing_the_affine_part(network):
    freeze_batchnorm(network, freeze_affine=True)
    frozen = [part for part in network.modules() if isinstance(part, FrozenBatchNorm)]
    assert len(frozen) == 5
    assert not any(p.requires_grad for part in frozen for p in part.parameters())
    assert network.head.classifier.weight.requires_grad


def test_frozen_layers_are_those_of_torch_in_evaluation_mode():
    generator = torch.Generator().manual_seed(0)
    for layer, shape in ((nn.BatchNorm1d(3), (4, 3)), (nn.BatchNorm2d(3, eps=1e-3), (4, 3, 5, 5))):
        layer(2 + torch.randn(shape, generator=generator))
        x = torch.randn(shape, generator=generator)
        assert torch.equal(freeze_batchnorm(layer)(x), layer.eval()(x))
    with pytest.raises(ValueError, match="keeps no running statistics"):
        freeze_batchnorm(nn.BatchNorm1d(3, track_running_stats=False))


def test_frozen_layers_survive_synchronised_batchnorm_and_pickling(network):
    freeze_batchnorm(network.backbone)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    assert sum(isinstance(part, FrozenBatchNorm) for part in converted.modules()) == 3
    assert sum(isinstance(part, nn.SyncBatchNorm) for part in converted.modules()) == 2
    assert equal(split_state(pickle.loads(pickle.dumps(network)))[0], split_state(network)[0])


class ActivatedBatchNorm(nn.BatchNorm2d):
    """Does more than normalise, as timm's do."""

    def forward(self, x):
        return super().forward(x).relu()


def test_subclasses_of_batchnorm_keep_what_else_they_do(batches):
    module = freeze_batchnorm(freeze_batchnorm(nn.Sequential(ActivatedBatchNorm(1))))
    for part in (module, copy.deepcopy(module)):
        assert bool((part.train()(batches[0] - 3) >= 0).all())
        assert part[0].running_mean.item() == 0
        assert len(part[0]._forward_pre_hooks) == 1
    with pytest.raises(ValueError, match="no BatchNorm"):
        adapt_batchnorm(module, batches)


def test_statistics_are_those_of_the_pooled_target_batches(network, batches):
    _, others = split_state(network)
    assert adapt_batchnorm(network, iter(batches)) is network
    layer = network.backbone.body.convolutions[1]
    pooled = network.backbone.body.convolutions[0](torch.cat(batches)).double()
    assert torch.allclose(layer.running_mean.double(), pooled.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    assert torch.allclose(layer.running_var.double(), pooled.var((0, 2, 3)), rtol=1e-5)
    assert equal(split_state(network)[1], others)


def test_one_batch_gives_the_statistics_torch_would_keep(network, batches):
    reference = copy.deepcopy(network)
    for part in reference.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.momentum = 1.0
    reference.train()(batches[0])
    adapt_batchnorm(network, batches[:1])
    expected, _ = split_state(reference)
    found, _ = split_state(network)
    for name in expected:
        assert torch.allclose(found[name], expected[name], rtol=1e-5, atol=1e-6), name


def test_the_result_does_not_depend_on_the_partition_in_the_first_layer(batches):
    x = torch.cat(batches)
    results = [adapt_batchnorm(nn.BatchNorm2d(1), x.split(size)) for size in (37, 10, 3)]
    for other in results[1:]:
        assert torch.allclose(other.running_mean, results[0].running_mean, rtol=1e-6)
        assert torch.allclose(other.running_var, results[0].running_var, rtol=1e-5)


def test_a_shifted_domain_is_seen_as_the_source_was():
    # AdaBN undoes a shift and a scaling of the inputs of the first layer exactly.
    torch.manual_seed(0)
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    x = torch.randn(200, 3, dtype=torch.float64)
    network.double()
    source = adapt_batchnorm(copy.deepcopy(network), [x]).eval()(x)
    target = adapt_batchnorm(network, [5 * x - 7]).eval()(5 * x - 7)
    assert torch.allclose(source, target, atol=1e-4)


def test_modes_gradients_and_dropout_are_left_alone(batches):
    torch.manual_seed(0)
    network = nn.Sequential(LeNet(image_size=8, dropout=0.5), nn.BatchNorm1d(500))
    network[0].eval()
    twin = copy.deepcopy(network)
    modes = [part.training for part in network.modules()]
    adapt_batchnorm(network, batches)
    adapt_batchnorm(twin, batches)
    assert equal(*(split_state(part)[0] for part in (network, twin)))  # dropout is off: nothing is random
    assert [part.training for part in network.modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in network.parameters())
    assert all(part.track_running_stats for part in network.modules() if isinstance(part, nn.BatchNorm2d))
    assert not any(part._forward_pre_hooks for part in network.modules())


def test_frozen_layers_are_not_adapted(network, batches):
    freeze_batchnorm(network.backbone)
    before, _ = split_state(network)
    adapt_batchnorm(network, batches)
    after, _ = split_state(network)
    moved = {name.split(".")[0] for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"head"}


def test_after_an_error_the_statistics_are_the_old_ones(network, batches):
    before, _ = split_state(network)
    with pytest.raises(TypeError, match="batches contains a tuple; accepted are tensors of samples, no labels"):
        adapt_batchnorm(network, [batches[0], (batches[1], torch.zeros(16))])
    with pytest.raises(ValueError, match="x has one sample"):
        adapt_batchnorm(network, [batches[0], batches[1][:1]])
    with pytest.raises(ValueError, match="batches is empty"):
        adapt_batchnorm(network, [])
    assert equal(split_state(network)[0], before)
    assert all(part.training for part in network.modules())


def test_a_network_without_batchnorm_cannot_be_adapted(batches):
    with pytest.raises(ValueError, match="network has no BatchNorm"):
        adapt_batchnorm(LeNet(image_size=8, norm="group"), batches)
