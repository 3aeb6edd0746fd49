"""A recipe's ``frozen_stages``: what moves in a run, what a checkpoint holds, and what a saved model is."""

import pytest
import torch
from safetensors.torch import load_file
from small_runs import adapt, differences, pictures, vectors

from bures.training import Recipe, RunFolder, StopTraining, assemble, load_model

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")

RECIPE = Recipe(
    method="ckb", network="resnet18", image_size=32, frozen_stages=3, batch_size=8, epochs=2, epoch=2, hidden=8,
    features=4, optimiser="sgd", lr=0.01, weight_decay=0.1,
)  # fmt: skip
DATA = pictures(16, seed=1), pictures(16, seed=2, shift=30)


def stop(row):
    raise StopTraining("enough")


def test_kept_stages_do_not_move_and_a_resumed_run_ends_like_one_that_was_left_alone(tmp_path):
    run = adapt(*DATA, RECIPE, tmp_path / "run")
    _, start, _ = assemble(RECIPE, 4, DATA[0].samples.shape)
    before, after = start.state_dict(), load_file(tmp_path / "run" / "model.safetensors")
    kept = ("backbone.body.conv1", "backbone.body.bn1", *(f"backbone.body.layer{stage}" for stage in (1, 2, 3)))
    for name, parameter in start.named_parameters():
        assert torch.equal(before[name], after[name]) == name.startswith(kept), name
        assert parameter.requires_grad != name.startswith(kept)
    # BatchNorm follows the batches in all of them, as the recipe says elsewhere.
    assert not torch.equal(before["backbone.body.bn1.running_mean"], after["backbone.body.bn1.running_mean"])

    with pytest.raises(StopTraining):
        adapt(*DATA, RECIPE, tmp_path / "stopped", checkpoint_every=0.0, on_epoch=stop)
    state = torch.load(RunFolder(tmp_path / "stopped").checkpoint, weights_only=True)["state"]
    learning = sum(parameter.requires_grad for parameter in start.parameters())
    assert state["step"] == 1
    assert sum(len(group["params"]) for group in state["optimiser"]["param_groups"]) == learning
    adapt(*DATA, RECIPE, tmp_path / "stopped", resume=True)
    assert differences(tmp_path / "run", tmp_path / "stopped") == []

    model = load_model(run.path)
    torch.testing.assert_close(model.network.state_dict(), after)
    assert all(parameter.requires_grad for parameter in model.network.parameters())  # a model to go on with


def test_a_backbone_without_stages_is_refused_before_a_folder_is_made(tmp_path):
    cases = [
        (DATA, {"network": "lenet"}, "frozen_stages=3: 'lenet' has no stages"),
        ((vectors(16, seed=1), vectors(16, seed=2)), {"network": "auto"}, "frozen_stages=3: 'identity' has no stages"),
        (DATA, {"frozen_stages": 5}, "frozen_stages=5 is out of range; 'resnet18' has 4 stages"),
    ]
    for data, changes, message in cases:
        with pytest.raises(ValueError, match=message):
            adapt(*data, RECIPE.override(changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="frozen_stages=-1 is out of range; accepted are numbers from 0 up"):
        Recipe(frozen_stages=-1)
