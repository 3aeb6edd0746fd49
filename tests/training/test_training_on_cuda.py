"""Training on a GPU: compiled backbones, and samples that lie there once."""

import pytest
import torch
from safetensors.torch import load_file
from small_runs import pictures, vectors

from bures.data import Domain, TensorSamples
from bures.networks import build_network, freeze_batchnorm
from bures.training import Recipe, adapt, assemble
from bures.training._passes import Passes
from bures.training._placement import move_samples
from bures.training._step_graphs import StepGraphs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("frozen", [True, False])
def test_a_compiled_backbone_gives_what_the_backbone_gives(frozen, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    network = build_network("resnet18", 3, hidden=8, features=4, seed=0).cuda().train()
    if frozen:
        freeze_batchnorm(network.backbone)
    network.to(memory_format=torch.channels_last)
    x_s, x_t = (torch.rand(8, 3, 64, 64, device="cuda") for _ in range(2))
    values, gradients = [], []
    for compiled in (False, True):
        passes = Passes(network, compiled)
        outputs = passes.each(x_s, x_t)
        loss = sum(output.logits.square().mean() for output in outputs)
        values.append(torch.cat([output.logits for output in outputs]))
        gradients.append(torch.autograd.grad(loss, list(network.parameters())))
        assert passes.compiled == compiled
    torch.testing.assert_close(values[1], values[0], rtol=1e-3, atol=1e-3)
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        assert (found - expected).norm() <= 0.01 * expected.norm() + 1e-5  # a bias before BatchNorm has none


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


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_clipped_step_has_the_length_of_the_clip(precision, tmp_path):
    recipe = Recipe(
        method="source", network="identity", head="linear", optimiser="sgd", momentum=0.0, lr=1.0, batch_size=8,
        epochs=1, epoch=1, gradient_clip=0.01, precision=precision,
    )  # fmt: skip
    source, target = vectors(32, seed=1, name="s"), vectors(24, seed=2, name="t", shift=1)
    run = adapt(source, target, recipe, tmp_path / "run", accelerator="gpu")
    before = assemble(recipe, source.n_classes, tuple(source.samples.shape))[1].state_dict()
    after = load_file(run.path / "model.safetensors")
    moved = torch.cat([(after[name] - before[name]).flatten() for name in before])
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-3)


def test_training_and_evaluation_share_the_samples_on_the_device():
    domain = pictures(16, seed=1)
    first, second = (move_samples(part, torch.device("cuda", 0)) for part in (domain, domain.hide_labels()[0]))
    assert first.samples is second.samples
    assert first.samples.device.type == "cuda"
    assert domain.samples.device.type == "cpu"


# ----------------------------------------------------------------------------------------------------------------------
# Steps as CUDA graphs

CAPTURED = (
    "source", "entropy", "im", "mcc", "bnm", "ckb", "ckb+mmd", "ckw", "class-means", "kernel-bures", "bures", "kgot",
    "dan", "jan", "dsan", "deep-coral", "dann", "cdan", "cdan+e",
)  # fmt: skip


@pytest.fixture
def graphs(monkeypatch):
    """How many graphs each training had when it gave them up."""
    counts, original = [], StepGraphs.forget

    def note(self):
        counts.append(len(self._graphs))
        original(self)

    monkeypatch.setattr(StepGraphs, "forget", note)
    return counts


def run_twice(graphs, folder, make_domain, **fields):
    """Losses of the epochs of two trainings, without graphs and with them."""
    fields = {"batch_size": 8, "epochs": 2, "epoch": 12, "hidden": 16, "features": 8, **fields}
    source, target = make_domain(32, seed=1, name="s"), make_domain(24, seed=2, name="t", shift=1)
    found = []
    for captured in (False, True):
        recipe = Recipe(**fields, cuda_graphs=captured)
        run = adapt(source, target, recipe, folder / str(captured), accelerator="gpu")
        found.append([row["loss"] for row in run.manifest["epochs"]])
        assert graphs.pop() == captured
    return found


@pytest.mark.parametrize("name", CAPTURED)
def test_replayed_steps_are_the_steps(name, graphs, tmp_path):
    eager, captured = run_twice(graphs, tmp_path, vectors, method=name, network="identity")
    torch.testing.assert_close(captured, eager, rtol=1e-5, atol=1e-6)


def test_replayed_steps_draw_the_same_random_numbers(graphs, tmp_path):
    eager, captured = run_twice(
        graphs, tmp_path, pictures, method="ckw", network="lenet", augment="affine", consistency=0.5, optimiser="sgd"
    )
    torch.testing.assert_close(captured, eager, rtol=1e-4, atol=1e-5)  # sums of convolutions in any order


def test_replayed_steps_follow_the_weights_of_the_terms(graphs, tmp_path):
    fields = {"method": "ckb", "network": "identity", "options": {"start": 0.8, "ramp": 1.0}}
    source, target = vectors(32, seed=1, name="s"), vectors(24, seed=2, name="t", shift=1)
    losses = []
    for captured in (False, True):
        recipe = Recipe(batch_size=8, epochs=2, epoch=12, hidden=16, features=8, cuda_graphs=captured, **fields)
        run = adapt(source, target, recipe, tmp_path / str(captured), accelerator="gpu")
        losses.append([row["loss"] for row in run.manifest["epochs"]])
    assert graphs == [0, 2]  # before the alignment counts, and from then on
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["source", "im", "ckb", "ckb+mmd", "ckw", "class-means"])
def test_replayed_steps_read_and_write_the_queue(name, graphs, tmp_path):
    fields = {"queue": 24, "queue_predictions": name != "source", "queue_full_gradient": name == "ckw", "options": {}}
    eager, captured = run_twice(graphs, tmp_path, vectors, method=name, network="identity", **fields)
    torch.testing.assert_close(captured, eager, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True])
def test_replayed_steps_in_mixed_precision_are_the_steps(compiled, graphs, tmp_path):
    fields = {
        "method": "ckw", "network": "resnet18", "image_size": 48, "stored_size": 56, "training_size": 40,
        "augment": "crop", "compile": compiled, "backbone_batchnorm": "frozen", "queue": 16, "optimiser": "sgd",
        "frozen_stages": 1, "lr": 1e-3, "precision": "bf16-mixed", "epoch": 15,
    }  # fmt: skip
    eager, captured = run_twice(graphs, tmp_path, large_pictures, **fields)
    torch.testing.assert_close(captured, eager, rtol=0.02, atol=0.01)


def large_pictures(n, seed, name, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (n, 3, 56, 56), dtype=torch.uint8, generator=generator)
    return Domain(name, TensorSamples(images), ["a", "b"], torch.arange(n) % 2)
