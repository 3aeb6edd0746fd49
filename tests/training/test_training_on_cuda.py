"""Training on a GPU: compiled backbones, and samples that lie there once."""

import pytest
import torch
from small_runs import pictures

from bures.data import Domain, TensorSamples
from bures.networks import build_network, freeze_batchnorm
from bures.training import Recipe, adapt
from bures.training._passes import Passes
from bures.training._placement import move_samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("frozen", [True, False])
def test_a_compiled_backbone_gives_what_the_backbone_gives(frozen):
    network = build_network("resnet18", 3, hidden=8, features=4, seed=0).cuda().train()
    if frozen:
        freeze_batchnorm(network.backbone)
    network.to(memory_format=torch.channels_last)
    x_s, x_t = (torch.rand(8, 3, 64, 64, device="cuda") for _ in range(2))
    values, gradients = [], []
    for compiled in (False, True):
        passes = Passes(network, compiled)
        outputs = passes.both(x_s, x_t)
        loss = sum(output.logits.square().mean() for output in outputs)
        values.append(torch.cat([output.logits for output in outputs]))
        gradients.append(torch.autograd.grad(loss, list(network.parameters())))
        assert passes.compiled == compiled
    torch.testing.assert_close(values[1], values[0], rtol=1e-2, atol=1e-2)  # convolutions in TF32
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        assert (found - expected).norm() <= 0.05 * expected.norm() + 1e-6


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_with_a_compiled_backbone(tmp_path):
    recipe = Recipe(
        method="ckw", network="resnet18", image_size=48, stored_size=56, training_size=40, augment="crop", compile=True,
        backbone_batchnorm="frozen", batch_size=8, queue=16, epochs=2, epoch=4, hidden=8, features=4, optimiser="sgd",
        precision="bf16-mixed",
    )  # fmt: skip
    source, target = (
        Domain(name, _large(seed), ["a", "b"], torch.arange(24) % 2) for name, seed in (("s", 1), ("t", 2))
    )
    run = adapt(source, target, recipe, tmp_path / "run", accelerator="gpu")
    assert run.manifest["status"] == "finished"
    assert run.manifest["notes"] == []


def _large(seed):
    generator = torch.Generator().manual_seed(seed)
    return TensorSamples(torch.randint(256, (24, 3, 56, 56), dtype=torch.uint8, generator=generator))


def test_training_and_evaluation_share_the_samples_on_the_device():
    domain = pictures(16, seed=1)
    first, second = (move_samples(part, torch.device("cuda", 0)) for part in (domain, domain.hide_labels()[0]))
    assert first.samples is second.samples
    assert first.samples.device.type == "cuda"
    assert domain.samples.device.type == "cpu"
