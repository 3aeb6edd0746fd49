"""The module and the data in a Lightning trainer of one's own, with its checkpoints."""

import lightning as L
import pytest
import torch
from distributed_steps import own_trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from small_runs import in_processes, vectors

from bures.training import AdaptationModule, PairData, Recipe, assemble
from bures.training._quiet import quiet

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = {"network": "identity", "batch_size": 8, "hidden": 16, "features": 8, "epochs": 4}


class Noting(AdaptationModule):
    """Notes the numbers of its steps, and the terms that count in each."""

    def training_step(self, step, batch_idx):
        loss = super().training_step(step, batch_idx)
        self.seen = [*getattr(self, "seen", []), (step.number, sorted(self.record.weights))]
        return loss


def trained(recipe, folder, epochs, *, save=None, go_on_from=None, direct=False, **options):
    """The module after some epochs of a trainer that is told nothing of the library."""
    source, target = vectors(32, seed=1, name="s"), vectors(24, seed=2, name="t", shift=1).hide_labels()[0]
    data = PairData(source, target, recipe)
    length = data.steps_per_epoch
    assert length == 3
    _, network, inputs = assemble(recipe, source.n_classes, tuple(source.samples.shape))
    method = recipe.build_method()
    method.setup(8, source.n_classes)
    module = Noting(network, method, inputs, recipe, length, recipe.epochs * length, direct=direct)
    with quiet():
        trainer = L.Trainer(
            accelerator="cpu", devices=1, max_epochs=epochs, precision=recipe.precision, logger=False,
            enable_checkpointing="callbacks" in options, enable_model_summary=False, enable_progress_bar=False,
            default_root_dir=folder, **options,
        )  # fmt: skip
        trainer.fit(module, datamodule=data, ckpt_path=go_on_from)
        if save is not None:
            trainer.save_checkpoint(save)
    return module


@pytest.mark.parametrize("direct", [False, True])
def test_epochs_go_on_from_each_other(direct, tmp_path):
    recipe = Recipe(method="ckb", options={"start": 1}, **SMALL)
    module = trained(recipe, tmp_path, 2, direct=direct)
    terms = [["entropy"]] * 3 + [["ckb", "entropy"]] * 3
    assert module.seen == list(zip(range(6), terms, strict=True))
    assert module.steps_done == 6


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
@pytest.mark.parametrize("method", ["source", "ckw", "ckw-running", "cdan+e"])
def test_a_checkpoint_of_the_trainer_gives_the_same_end(method, precision, tmp_path):
    recipe = Recipe(method=method, precision=precision, queue=20, optimiser="sgd", schedule="cosine", lr=0.05, **SMALL)
    whole = trained(recipe, tmp_path, 4)
    trained(recipe, tmp_path, 2, save=tmp_path / "half.ckpt")
    resumed = trained(recipe, tmp_path, 4, go_on_from=tmp_path / "half.ckpt")
    assert resumed.seen == whole.seen[6:]
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


@pytest.mark.parametrize("when", [{"every_n_epochs": 1}, {"every_n_train_steps": 3}])
def test_a_checkpoint_of_a_callback_at_the_end_of_an_epoch_gives_the_same_end(when, tmp_path):
    recipe = Recipe(method="ckb+mmd", queue=20, optimiser="sgd", schedule="cosine", lr=0.05, **SMALL)
    keep = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, **when)
    whole = trained(recipe, tmp_path, 4, callbacks=[keep])
    for step in (3, 9):
        resumed = trained(recipe, tmp_path, 4, go_on_from=tmp_path / f"step={step}.ckpt")
        assert resumed.seen == whole.seen[step:]
        for name, value in whole.state_dict().items():
            assert torch.equal(resumed.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("before", "after"), [("64-true", "32-true"), ("64-true", "bf16-mixed"), ("32-true", "64-true")]
)
def test_a_checkpoint_is_read_in_another_precision(before, after, tmp_path):
    recipe = Recipe(method="ckw-running", precision=before, **SMALL)
    trained(recipe, tmp_path, 2, save=tmp_path / "half.ckpt")
    other = Recipe(method="ckw-running", precision=after, **SMALL)
    resumed = trained(other, tmp_path, 4, go_on_from=tmp_path / "half.ckpt")
    assert resumed.steps_done == 12
    assert {p.dtype for p in resumed.parameters()} == {torch.float64 if after == "64-true" else torch.float32}


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("of_recipe", [None, 1e6])
@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_the_trainer_may_clip_gradients_too(algorithm, of_recipe, precision, tmp_path):
    recipe = Recipe(method="ckb", precision=precision, gradient_clip=of_recipe, optimiser="sgd", lr=0.1, **SMALL)
    told = {"gradient_clip_val": 1e-3, "gradient_clip_algorithm": algorithm}
    module = trained(recipe, tmp_path, 1, **told)
    gradients = torch.cat([parameter.grad.flatten() for parameter in module.network.parameters()])
    largest = gradients.norm() if algorithm == "norm" else gradients.abs().max()
    assert float(largest) == pytest.approx(1e-3, rel=1e-2)


def test_steps_on_two_devices_are_those_of_one(tmp_path):
    ranks, one = in_processes(own_trainer, 2, tmp_path, 2), own_trainer(1)
    assert one["seen"] == [(number, 9, 9) for number in range(4)]
    assert [rank["seen"] for rank in ranks] == [[(number, n, n) for number in range(4)] for n in (5, 4)]
    for rank in ranks:
        for name, value in one["weights"].items():
            torch.testing.assert_close(rank["weights"][name], value, rtol=0, atol=1e-9)
