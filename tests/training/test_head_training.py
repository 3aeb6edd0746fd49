"""A recipe's ``head_start`` and ``head_finish``: the head is that of a training on features.

Everything behind the one and before the other is as it always is.
"""

import io
import json
import os
import re
import signal

import pytest
import torch
from commands import ended
from rich.console import Console
from small_runs import SMALL, adapt, differences, pictures, vectors

from bures.data import Domain, TensorSamples
from bures.experiments import Cell
from bures.training import (
    AdaptationModule,
    Recipe,
    RunFolder,
    StoppedBySignal,
    TrainingError,
    _prediction,
    assemble,
    load_recipe,
)
from bures.training import _session as session_module
from bures.training._devices import check_devices
from bures.training._setting import prepare

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")

DATA = pictures(56, seed=1, name="here"), pictures(50, seed=2, name="there", shift=30)
# Another method, length, optimiser and seed than those of the run, and an option that few methods have.
ON_FEATURES = """
method: ckb
options: {entropy: 0.2, eps: 0.1}
network: identity
hidden: 99
batch_size: 20
epochs: 3
epoch: 2
optimiser: adam
schedule: cosine
seed: 7
validators: [im, snd]
"""
HEAD_STEPS, STEPS = 6, 6


class Killed(BaseException):
    """As far as a run can tell, the end of the process."""


@pytest.fixture
def named(tmp_path):
    path = tmp_path / "on-features.yaml"
    path.write_text(ON_FEATURES)
    return str(path)


def recipe(named, **changes):
    return Recipe(
        **{**SMALL, "method": "ckw", "network": "lenet", "optimiser": "sgd", "seed": 3, "head_start": named, **changes}
    )


@pytest.fixture
def watched(monkeypatch):
    """What is seen at the beginning of each step, of the head start and of the training behind it."""
    seen = []
    original = AdaptationModule.training_step

    def training_step(module, step, number):
        on_features = step.x_s.ndim == 2
        seen.append(
            {
                "on_features": on_features,
                "number": step.number,
                "method": module.method.name,
                "samples": len(module.trainer.datamodule.source),
                "optimiser": (type(module.trainer.optimizers[0]).__name__, len(module.trainer.optimizers[0].state)),
                "head": {name: value.clone() for name, value in module.network.head.state_dict().items()},
                "backbone": {name: value.clone() for name, value in module.network.backbone.state_dict().items()},
            }
        )
        if (action := watching.get((on_features, step.number))) is not None:
            action()
        return original(module, step, number)

    watching = {}
    seen_and_done = type("Watched", (), {"steps": seen, "at": watching})
    monkeypatch.setattr(AdaptationModule, "training_step", training_step)
    return seen_and_done


def rows_by_hand(network, domain, *, labelled):
    """Features of a domain, from the network's own preprocessing and backbone."""
    with torch.no_grad():
        rows = network.eval().backbone(network.preprocessing(domain.samples.tensor))
    return Domain(domain.name, TensorSamples(rows), domain.class_names, domain.labels if labelled else None)


@pytest.mark.parametrize("method", ["ckw", "source", "dann"])
def test_the_head_is_that_of_a_training_on_features(method, named, watched, tmp_path):
    run = adapt(*DATA, recipe(named, method=method, augment="affine"), tmp_path / "run")
    steps = list(watched.steps)
    assert [step["on_features"] for step in steps] == [True] * HEAD_STEPS + [False] * STEPS
    assert {step["method"] for step in steps} == {method}
    first = steps[HEAD_STEPS]

    # The same by hand, and without target labels: features, then a training of their own by the recipe.
    _, network, _ = assemble(recipe(named), 4, DATA[0].samples.shape)
    features = rows_by_hand(network, DATA[0], labelled=True), rows_by_hand(network, DATA[1], labelled=False)
    alone = load_recipe(named).override({"method": method, "seed": 3, "hidden": 16, "features": 8})
    adapt(*features, alone, tmp_path / "alone")
    trained = torch.load(RunFolder(tmp_path / "alone").checkpoint, weights_only=True)["state"]["network"]
    expected = {name.removeprefix("head."): value for name, value in trained.items()}
    assert first["head"].keys() == expected.keys()
    assert all(torch.equal(first["head"][name], expected[name]) for name in expected)
    assert not torch.equal(first["head"]["classifier.weight"], network.head.state_dict()["classifier.weight"])

    # The backbone has not moved, and the optimiser knows nothing yet.
    torch.testing.assert_close(first["backbone"], network.backbone.state_dict(), rtol=0, atol=0)
    assert (first["number"], first["optimiser"]) == (0, ("SGD", 0))
    assert steps[0]["optimiser"][0] == "Adam"

    noted = run.manifest["head_start"]
    assert (noted["name"], noted["steps"]) == (named, HEAD_STEPS)
    assert noted["recipe"] == alone.override({"validators": []}).to_dict()
    manifest = RunFolder(tmp_path / "alone").read_manifest()
    assert (noted["validator"], noted["score"]) == (manifest["final"]["validator"], manifest["final"]["score"])
    assert noted["notes"] == manifest["notes"]
    assert noted["accuracy"] is not None
    assert noted["seconds"] > 0


@pytest.mark.parametrize("where", [(True, 2), (False, 0), (False, 4)])
def test_a_run_that_was_killed_ends_like_one_that_was_not(where, named, watched, tmp_path):
    adapt(*DATA, recipe(named), tmp_path / "run")

    def kill():
        watched.at.clear()
        raise Killed

    watched.at[where] = kill
    with pytest.raises(Killed):
        adapt(*DATA, recipe(named), tmp_path / "killed", checkpoint_every=0.0)
    # What the file says by now does not matter to a run that has begun, nor whether it is there.
    os.remove(named)
    watched.steps.clear()
    resumed = adapt(*DATA, recipe(named), tmp_path / "killed", resume=True)
    again = sum(step["on_features"] for step in watched.steps)
    assert again == (0 if where == (False, 4) else HEAD_STEPS)  # a checkpoint makes the head start needless
    assert differences(tmp_path / "run", tmp_path / "killed") == []
    whole = json.loads((tmp_path / "run" / "manifest.json").read_text())["head_start"]
    assert whole | {"seconds": 0} == resumed.manifest["head_start"] | {"seconds": 0}
    assert not list((tmp_path / "killed").glob("*head*"))  # no files of its own


def test_a_signal_ends_the_head_start_cleanly(named, watched, tmp_path):
    watched.at[(True, 3)] = lambda: (watched.at.clear(), os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(StoppedBySignal, match="stopped by SIGTERM after step 4"):
        adapt(*DATA, recipe(named), tmp_path / "run")
    assert len(watched.steps) == 4
    manifest = RunFolder(tmp_path / "run").read_manifest()
    assert manifest["status"] == "stopped"
    assert "steps" not in manifest["head_start"]
    assert adapt(*DATA, recipe(named), tmp_path / "run", resume=True).manifest["status"] == "finished"


def test_a_signal_is_heard_while_features_are_computed(named, watched, tmp_path, monkeypatch):
    calls = []
    passed = _prediction.batches

    def batches(*args, **options):
        calls.append(args)
        os.kill(os.getpid(), signal.SIGTERM)
        return passed(*args, **options)

    monkeypatch.setattr(_prediction, "batches", batches)
    with pytest.raises(StoppedBySignal, match="stopped by SIGTERM after step 0"):
        adapt(*DATA, recipe(named), tmp_path / "run")
    assert (len(calls), watched.steps) == (1, [])
    assert RunFolder(tmp_path / "run").read_manifest()["status"] == "stopped"


def test_labels_of_the_target_and_held_out_samples_play_no_part(named, watched, tmp_path):
    source, target = DATA
    wrong = Domain(target.name, target.samples, target.class_names, (target.labels + 1) % 4)
    runs = [
        adapt(source, shown, recipe(named, source_holdout=0.25, select="iwcv"), tmp_path / name)
        for name, shown in (("true", target), ("wrong", wrong))
    ]
    assert {step["samples"] for step in watched.steps} == {40}  # of 56, in the head start too
    assert (runs[0].path / "model.safetensors").read_bytes() == (runs[1].path / "model.safetensors").read_bytes()
    true, false = (run.manifest["head_start"] for run in runs)
    assert true["accuracy"] != false["accuracy"]
    assert (true["score"], true["validator"]) == (false["score"], "iwcv")


def test_the_upper_bound_has_a_head_start_on_the_labels_it_trains_on(named, watched, tmp_path):
    adapt(*DATA, recipe(named, method="target"), tmp_path / "run")
    assert [step["samples"] for step in watched.steps] == [50] * (HEAD_STEPS + STEPS)


def test_stages_that_keep_their_weights_and_a_linear_head_have_one_too(named, watched, tmp_path):
    small = {"network": "resnet18", "image_size": 32, "frozen_stages": 4, "head": "linear", "epochs": 1, "epoch": 1}
    adapt(*DATA, recipe(named, backbone_batchnorm="frozen", **small), tmp_path / "run", keep_files=False)
    assert watched.steps[-1]["head"].keys() == {"classifier.weight", "classifier.bias"}
    assert not torch.equal(watched.steps[0]["head"]["classifier.bias"], watched.steps[-1]["head"]["classifier.bias"])


def test_progress_tells_the_head_start_from_what_follows(named, tmp_path, monkeypatch):
    sent = io.StringIO()
    monkeypatch.setattr(
        session_module, "Console", lambda **_: Console(file=sent, force_terminal=True, width=200, color_system=None)
    )
    adapt(*DATA, recipe(named), tmp_path / "run", progress=True)
    text = sent.getvalue()
    lines = ["head start: features", "head start: here → there, ckw", "(?<!head start: )here → there, ckw"]
    found = [re.search(line, text).start() for line in lines]
    assert found == sorted(found)


def test_a_loss_that_breaks_in_the_head_start_is_said_to(named, tmp_path):
    with open(named, "a") as file:
        file.write("lr: 1.0e+30\n")
    with pytest.raises(TrainingError, match=r"head_start='.*yaml': the loss is not finite .* no checkpoint"):
        adapt(*DATA, recipe(named), tmp_path / "run")
    assert RunFolder(tmp_path / "run").read_manifest()["status"] == "failed"


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_a_head_finish_goes_on_with_the_trained_head(named, watched, tmp_path, precision):
    plain = recipe(named, head_start=None, norm="none", augment="affine", precision=precision)
    before = adapt(*DATA, plain, tmp_path / "before")
    watched.steps.clear()
    run = adapt(*DATA, plain.override({"head_finish": named}), tmp_path / "run")
    assert [step["on_features"] for step in watched.steps] == [False] * STEPS + [True] * HEAD_STEPS
    first = watched.steps[STEPS]
    assert (first["number"], first["optimiser"]) == (0, ("Adam", 0))

    trained = torch.load(RunFolder(before.path).checkpoint, weights_only=True)["state"]["network"]
    network, head = run.model().network, before.model().network.head
    for name, value in first["head"].items():
        torch.testing.assert_close(value, trained[f"head.{name}"].to(value.dtype), rtol=0, atol=0)
    after = network.state_dict()
    same = {name: torch.equal(value, before.model().network.state_dict()[name]) for name, value in after.items()}
    assert all(is_same for name, is_same in same.items() if name.startswith("backbone."))
    assert not same["head.classifier.weight"]
    assert network.head.state_dict().keys() == head.state_dict().keys()

    # The epochs are those of the training of the whole network, and the result is that of the head behind them.
    fields = "epoch", "target_accuracy", "target_score"
    epochs = [[{name: row[name] for name in fields} for row in one.manifest["epochs"]] for one in (before, run)]
    assert epochs[0] == epochs[1]
    noted = run.manifest["head_finish"]
    assert (noted["name"], noted["steps"], noted["recipe"]["optimiser"]) == (named, HEAD_STEPS, "adam")
    assert "head_start" not in run.manifest
    final = run.manifest["final"]
    assert (final["accuracy"], final["score"]) == (noted["accuracy"], pytest.approx(noted["score"], abs=1e-6))
    found = run.model().predict(DATA[1]).probabilities.argmax(1)
    assert final["accuracy"] == pytest.approx(float((torch.as_tensor(found) == DATA[1].labels).double().mean()))
    assert final["best"]["score"] == max(final["score"], *(row["target_score"] for row in run.manifest["epochs"]))


@pytest.mark.parametrize("where", [(True, 0), (True, 4), (False, 4)])
def test_a_run_that_was_killed_has_the_same_finish(where, named, watched, tmp_path):
    both = recipe(named, head_start=None, head_finish=named, norm="none")
    adapt(*DATA, both, tmp_path / "run")

    def kill():
        watched.at.clear()
        raise Killed

    watched.at[where] = kill
    with pytest.raises(Killed):
        adapt(*DATA, both, tmp_path / "killed", checkpoint_every=0.0)
    os.remove(named)
    watched.steps.clear()
    adapt(*DATA, both, tmp_path / "killed", resume=True)
    assert [step["on_features"] for step in watched.steps] == [False] * (0 if where[0] else 2) + [True] * HEAD_STEPS
    assert differences(tmp_path / "run", tmp_path / "killed") == []


def test_a_signal_in_the_head_finish_loses_the_finish_alone(named, watched, tmp_path):
    def stop():
        watched.at.clear()
        os.kill(os.getpid(), signal.SIGTERM)

    watched.at[(False, 5)] = lambda: watched.at.update({(True, 3): stop})  # behind the head start
    both = recipe(named, head_finish=named, norm="none")
    with pytest.raises(StoppedBySignal, match=f"stopped by SIGTERM after step {STEPS}"):
        adapt(*DATA, both, tmp_path / "run")
    assert [step["on_features"] for step in watched.steps] == [True] * HEAD_STEPS + [False] * STEPS + [True] * 4
    watched.steps.clear()
    assert adapt(*DATA, both, tmp_path / "run", resume=True).manifest["status"] == "finished"
    assert [step["on_features"] for step in watched.steps] == [True] * HEAD_STEPS


@pytest.mark.parametrize("stage", ["head_start", "head_finish"])
@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("network: resnet18", {}, r"STAGE='.*' names a recipe with network='resnet18'; accepted is one for features"),
        ("head_start: demo", {}, r"names a recipe that has head_start='demo' itself; accepted is one without"),
        ("head_finish: demo", {}, r"names a recipe that has head_finish='demo' itself; accepted is one without"),
        ("batch_size: 51", {}, r"does not fit the run: batch_size=51 is larger than target 'there', which has 50"),
        ("frozen_stages: 1", {}, r"does not fit the run: frozen_stages=1: 'identity' has no stages"),
        ("batch_size: 0", {}, r"STAGE='.*' cannot be read: .*batch_size=0 is out of range"),
        ("", {"named": "nonsense"}, r"STAGE='nonsense' cannot be read: recipe='nonsense' is unknown; acc"),
        ("", {"named": "gone.yaml"}, r"STAGE='gone.yaml' cannot be read: recipe='gone.yaml' is not a file"),
        ("", {"method": "cycada"}, r"STAGE='.*' is of no use to method 'cycada', which makes its own training steps"),
        ("", {"network": "auto"}, r"STAGE='.*' trains a head on features of the backbone, but network='identity'"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(stage, text, changes, message, named, tmp_path):
    field = text.partition(":")[0]
    kept = [line for line in ON_FEATURES.splitlines() if not field or not line.startswith(field)]
    with open(named, "w") as file:
        file.write("\n".join([*kept, text]))
    data = (vectors(56, seed=1), vectors(50, seed=2)) if "network" in changes else DATA
    fields = {"head_start": None, "norm": "none", stage: changes.get("named", named), **changes}
    fields.pop("named", None)
    with pytest.raises(ValueError, match=message.replace("STAGE", stage)):
        adapt(*data, recipe(named, **fields), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_features_of_a_head_finish_are_those_of_evaluation(named, tmp_path):
    both = recipe(named, head_start=None, head_finish=named)
    message = "of the backbone has statistics of the target; accepted is backbone_batchnorm='frozen', or evaluation_bat"
    with pytest.raises(ValueError, match=message):
        adapt(*DATA, both, tmp_path / "run")
    run = adapt(*DATA, both.override({"evaluation_batchnorm": "training"}), tmp_path / "run")
    found = run.model().predict(DATA[1]).probabilities.argmax(1)
    assert run.accuracy == pytest.approx(float((torch.as_tensor(found) == DATA[1].labels).double().mean()))


@pytest.mark.parametrize("stage", ["head_start", "head_finish"])
def test_several_devices_are_refused(named, stage):
    setting = prepare(*DATA, None, recipe(named, **{"head_start": None, stage: named}), partial=False)
    with pytest.raises(ValueError, match=rf"devices=2 is too many for {stage}='.*', which trains the head in one pro"):
        check_devices(setting, 2, "ddp", True)


def test_the_command_takes_it_as_a_field_of_the_recipe(named, tmp_path):
    words = ["adapt", "--source", "optdigits", "--target", "optdigits", "--network", "lenet", "--epochs", "1"]
    words += ["--set", f"head_start={named}", "--set", "epoch=1", "--set", "hidden=16", "--set", "features=8"]
    words += ["--set", f"head_finish={named}", "--set", "norm=none", "--no-figure", "--accelerator", "cpu"]
    result = ended(*words, "-o", tmp_path / "run")
    assert "Behind the head finish." in result.output
    assert "1 of 1 and a head finish" in (tmp_path / "run" / "report.html").read_text()
    manifest, kept = RunFolder(tmp_path / "run").read_manifest(), load_recipe(tmp_path / "run" / "recipe.yaml")
    for stage in ("head_start", "head_finish"):
        assert manifest[stage]["steps"] == HEAD_STEPS
        assert getattr(kept, stage) == named


def test_a_ledger_keeps_what_it_came_to(named, tmp_path):
    changes = {"head_start": named, "network": "lenet", "epoch": 1, "epochs": 1, "optimiser": "sgd", "features": 8}
    changes |= {"head_finish": named, "norm": "none"}
    line = Cell("optdigits", "optdigits", named, "source", 5, changes).run(accelerator="cpu")
    for stage in ("head_start", "head_finish"):
        assert line["recipe"][stage] == line[stage]["name"] == named
        assert (line[stage]["steps"], line[stage]["recipe"]["seed"]) == (HEAD_STEPS, 5)
        assert line[stage]["recipe"]["optimiser"] == "adam"
    assert line["head_finish"]["accuracy"] == line["final"]["accuracy"]
