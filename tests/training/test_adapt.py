"""A whole run: what is trained, what is written down of it, and what stops it."""

import csv
import json
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from small_runs import CLASSES, SMALL, adapt, differences, pictures, run_here, vectors
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bures.data import Domain, TensorSamples
from bures.methods import Method, Schedule, Term, make_method, method_names, register
from bures.networks import adapt_batchnorm
from bures.training import (
    AdaptationModule,
    CollapseWarning,
    PairData,
    Recipe,
    RunFolder,
    Step,
    TrainingError,
    assemble,
    load_model,
)

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")


class Pull(Term):
    """Draws all predictions on the target to the first class."""

    def __init__(self):
        super().__init__("pull", Schedule(30.0))

    def forward(self, batch):
        return F.cross_entropy(batch.logits_t, torch.zeros(len(batch.logits_t), dtype=torch.int64))


class Fuse(Term):
    """Zero, but in one step a value, or a gradient, that is not finite."""

    def __init__(self, step, value):
        super().__init__("fuse", Schedule(1.0))
        self.step, self.value, self.calls = step, value, 0

    def forward(self, batch):
        self.calls += 1
        zero = 0 * batch.z_t.sum()
        if self.calls != self.step + 1:
            return zero
        return zero.abs().sqrt() if self.value == "gradient" else zero + float(self.value)


def fuse(*, step: int = 0, value: str = "nan") -> Method:
    return Method("fuse", [Fuse(step, str(value))])


for name, factory in {"pull": lambda: Method("pull", [Pull()]), "fuse": fuse}.items():
    if name not in method_names():
        register(name)(factory)


@pytest.fixture
def train(tmp_path):
    """A function that trains on small data; a name gives the run a folder of its own."""

    def run(name="run", *, source=None, target=None, call=None, **changes):
        source = vectors(56, seed=1, name="here") if source is None else source
        target = vectors(50, seed=2, name="there", shift=0.5) if target is None else target
        recipe = Recipe(**{**SMALL, **changes})
        return adapt(source, target, recipe, tmp_path / name, **(call or {}))

    return run


def images():
    return {"source": pictures(56, seed=1, name="here"), "target": pictures(50, seed=2, name="there", shift=30)}


def weights(run, file="model.safetensors"):
    return (run.path / file).read_bytes()


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def checkpoint(run_or_path):
    folder = RunFolder(getattr(run_or_path, "path", run_or_path))
    return torch.load(folder.checkpoint, weights_only=True)["state"]


def steps_of(monkeypatch, look):
    """Call ``look(module, step)`` before each training step."""
    original = AdaptationModule.training_step

    def looked_at(module, step, number):
        look(module, step)
        return original(module, step, number)

    monkeypatch.setattr(AdaptationModule, "training_step", looked_at)


# The objective and its terms


@pytest.mark.parametrize("method", ["ckb", "ckb+mmd", "ckw", "im"])
def test_the_loss_is_the_weighted_sum_of_the_terms_in_the_log(method, train):
    run = train(method=method)
    rows = rows_of(run.path / "log.csv")
    parts = {term.name: term.schedule.value for term in make_method(method).terms}
    assert [row["epoch"] for row in rows] == ["1", "2"]
    for row in rows:
        total = float(row["cross_entropy"]) + sum(weight * float(row[name]) for name, weight in parts.items())
        assert float(row["loss"]) == pytest.approx(total, rel=1e-5)
        assert {name: float(row[f"weight_{name}"]) for name in parts} == parts


def test_every_column_of_the_log_but_those_of_the_terms_is_kept_from_terms(train):
    columns = rows_of(train(method="entropy", validators="im").path / "log.csv")[0].keys()
    for name in columns - {"entropy"}:
        with pytest.raises(ValueError, match=f"has a term named '{name}', which the log of a training has"):
            Method("own", [Term(name, Schedule(1.0))])


def test_the_log_has_the_weights_that_a_ramp_has_reached(train):
    rows = rows_of(train(method="ckb", epochs=2, epoch=4, options={"entropy": 0.5, "ramp": 2}).path / "log.csv")
    assert [float(row["weight_entropy"]) for row in rows] == [0.5 * 3 / 8, 0.5 * 7 / 8]  # of steps 3 and 7 of 8


def test_a_term_is_in_the_log_from_the_epoch_in_which_it_starts(train):
    rows = rows_of(train(method="ckb", epochs=3).path / "log.csv")
    assert all(row["ckb"] for row in rows)
    late = train("late", method="ckb", epochs=3, options={"start": 1, "entropy_start": 2})
    rows = rows_of(late.path / "log.csv")
    assert [bool(row["ckb"]) for row in rows] == [False, True, True]
    assert [bool(row["entropy"]) for row in rows] == [False, False, True]


@pytest.mark.filterwarnings("ignore:batches of 16 samples span all 8 features")  # DMP asks for more features
@pytest.mark.parametrize("method", sorted(set(method_names()) - {"fuse", "pull"}))
def test_every_method_trains(method, train):
    run = train(method=method, **images(), network="lenet")
    assert run.manifest["status"] == "finished"
    assert 0 <= run.accuracy <= 1
    assert all(bool(value.isfinite().all()) for value in load_file(run.path / "model.safetensors").values())


def test_a_step_does_not_seed_accelerators_that_are_not_there(train, monkeypatch):
    # torch.manual_seed writes a traceback for each of these, which takes longer than the step of a small network.
    seeded = []
    monkeypatch.setattr(torch.xpu.random, "_lazy_call", lambda *_, **__: seeded.append("xpu"))
    train()
    assert not seeded


def test_label_smoothing_is_that_of_the_definition():
    source = vectors(16, seed=1)
    recipe = Recipe(method="source", head="linear", label_smoothing=0.3)
    _, network, inputs = assemble(recipe, 4, source.samples.shape)
    module = AdaptationModule(network, make_method("source"), inputs, recipe, 1, 1)
    x = source.samples.tensor
    loss = module.training_step(Step(0, x, source.labels, x[:0]), 0)
    log_p = network(x).logits.log_softmax(dim=1)
    right = log_p[torch.arange(16), source.labels]
    torch.testing.assert_close(loss, -(0.7 * right + 0.3 * log_p.mean(dim=1)).mean())


def first_batchnorm(joint):
    """Statistics of the first BatchNorm after one step, and its inputs from both domains."""
    source, target = vectors(16, seed=1), vectors(16, seed=2, shift=4.0)
    recipe = Recipe(method="ckb", joint_forward=joint, hidden=5, features=4)
    _, network, inputs = assemble(recipe, 4, source.samples.shape)
    module = AdaptationModule(network, make_method("ckb"), inputs, recipe, 1, 1)
    x_s, x_t = source.samples.tensor, target.samples.tensor
    module.training_step(Step(0, x_s, source.labels, x_t), 0)
    layers = network.head.bottleneck
    with torch.no_grad():
        return layers[2], layers[1](layers[0](x_s)), layers[1](layers[0](x_t))


def test_domains_forwarded_one_by_one_are_seen_by_batchnorm_one_by_one():
    layer, a_s, a_t = first_batchnorm(joint=False)
    torch.testing.assert_close(layer.running_mean, 0.9 * 0.1 * a_s.mean(0) + 0.1 * a_t.mean(0))
    expected = 0.9 * (0.9 + 0.1 * a_s.var(0)) + 0.1 * a_t.var(0)
    torch.testing.assert_close(layer.running_var, expected)
    assert int(layer.num_batches_tracked) == 2


def test_domains_forwarded_together_are_one_batch_for_batchnorm():
    layer, a_s, a_t = first_batchnorm(joint=True)
    both = torch.cat([a_s, a_t])
    torch.testing.assert_close(layer.running_mean, 0.1 * both.mean(0))
    torch.testing.assert_close(layer.running_var, 0.9 + 0.1 * both.var(0))
    assert int(layer.num_batches_tracked) == 1


# Optimisers, schedules, precision


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        ("constant", lambda i: 1.0),
        ("inverse", lambda i: (1 + 0.1 * i) ** -0.75),
        ("cosine", lambda i: 0.5 * (1 + math.cos(math.pi * i / 6))),
    ],
)
def test_learning_rates_follow_the_formula_in_every_group(schedule, factor, train, monkeypatch):
    seen = []

    def look(module, step):
        groups = module.trainer.optimizers[0].param_groups
        seen.append({group["name"]: group["lr"] for group in groups})

    steps_of(monkeypatch, look)
    rates = {"backbone_factor": 0.1, "head_factor": 10.0, "schedule_gamma": 0.1}
    train(method="toy", network="lenet", optimiser="sgd", lr=0.02, schedule=schedule, **rates, **images())
    assert len(seen) == 6
    for i, groups in enumerate(seen):
        expected = {"backbone": 0.002 * factor(i), "head": 0.2 * factor(i), "method": 0.2 * factor(i)}
        assert groups == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        ({"optimiser": "sgd", "momentum": 0.8, "weight_decay": 0.1}, "SGD", {"momentum": 0.8, "nesterov": True}),
        ({"optimiser": "sgd", "momentum": 0.0}, "SGD", {"momentum": 0.0, "nesterov": False}),
        ({"optimiser": "sgd", "nesterov": False}, "SGD", {"momentum": 0.9, "nesterov": False}),
        ({"optimiser": "adam", "weight_decay": 0.1}, "Adam", {"weight_decay": 0.1, "betas": (0.9, 0.999)}),
        ({"optimiser": "adamw", "weight_decay": 0.1}, "AdamW", {"weight_decay": 0.1}),
    ],
)
def test_the_optimiser_is_the_one_of_the_recipe(changes, kind, expected):
    recipe = Recipe(method="source", head="linear", **changes)
    _, network, inputs = assemble(recipe, 4, (6,))
    module = AdaptationModule(network, make_method("source"), inputs, recipe, 1, 1)
    optimiser = module.configure_optimizers()["optimizer"]
    assert type(optimiser).__name__ == kind
    assert {key: optimiser.defaults[key] for key in expected} == expected
    optimised = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    assert optimised == {id(parameter) for parameter in network.parameters()}


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_a_clipped_step_has_the_length_of_the_clip(train, precision):
    one_step = {"method": "source", "head": "linear", "optimiser": "sgd", "momentum": 0.0, "lr": 1.0, "epochs": 1}
    one_step["precision"] = precision
    moved = {}
    for clip in (None, 0.01):
        run = train(str(clip), epoch=1, gradient_clip=clip, **one_step)
        before = dict(assemble(Recipe(**{**SMALL, **one_step}), 4, (6,))[1].state_dict())
        after = load_file(run.path / "model.safetensors")
        moved[clip] = torch.cat([(after[name] - before[name]).flatten() for name in before])
    assert float(moved[None].norm()) > 0.1
    assert float(moved[0.01].norm()) == pytest.approx(0.01, rel=1e-3)
    assert float(F.cosine_similarity(moved[None], moved[0.01], dim=0)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_step_past_the_hooks_is_the_step_of_the_trainer(name, tmp_path, monkeypatch):
    run_here(tmp_path / "direct", name)
    steps = []

    def through_hooks(*args, direct, **options):
        assert direct
        module = AdaptationModule(*args, **options)
        monkeypatch.setattr(module, "optimizer_step", lambda *a: steps.append(original(module, *a)))
        return module

    original = AdaptationModule.optimizer_step
    monkeypatch.setattr("bures.training._session.AdaptationModule", through_hooks)
    run_here(tmp_path / "hooks", name)
    assert len(steps) == 6  # the trainer's own way was taken
    assert differences(tmp_path / "direct", tmp_path / "hooks") == []


def test_without_files_a_run_has_the_same_manifest_and_nothing_else(train):
    bare_call = {"keep_files": False, "checkpoint_every": 0.0}
    whole, bare = train("whole", source_holdout=0.2), train("bare", source_holdout=0.2, call=bare_call)
    assert {path.name for path in bare.path.iterdir()} == {"manifest.json", "recipe.yaml"}
    for part in ("final", "epochs"):
        first, second = (without_clock(run.manifest[part]) for run in (whole, bare))
        assert first == second


def without_clock(part):
    if isinstance(part, list):
        return [without_clock(row) for row in part]
    return {name: value for name, value in part.items() if name != "seconds"}


def test_mixed_precision_trains_in_bfloat16_and_scores_in_float32(train, monkeypatch):
    inside, losses = [], []
    original = Method.objective

    def objective(method, batch, *rest, **named):
        losses.append({batch.z_s.dtype, batch.logits_t.dtype})
        return original(method, batch, *rest, **named)

    monkeypatch.setattr(Method, "objective", objective)
    steps_of(monkeypatch, lambda module, step: inside.append(torch.is_autocast_enabled("cpu")))
    run = train(method="ckb", precision="bf16-mixed", **images(), network="lenet")
    assert all(inside)
    assert losses == [{torch.float32}] * 6
    assert all(math.isfinite(row["loss"]) for row in run.manifest["epochs"])
    assert {value.dtype for value in load_file(run.path / "model.safetensors").values()} == {
        torch.float32,
        torch.int64,
    }


@pytest.mark.parametrize("data", [{}, images()])
def test_double_precision_trains_vectors_and_images(data, train):
    run = train(method="ckb", precision="64-true", **data)
    kinds = {value.dtype for value in load_file(run.path / "model.safetensors").values() if value.is_floating_point()}
    assert kinds == {torch.float64}


# Steps and epochs


@pytest.mark.parametrize(("epoch", "length"), [("shorter", 3), ("longer", 6), (4, 4)])
def test_an_epoch_is_a_pass_over_the_shorter_or_the_longer_domain_or_a_number_of_steps(epoch, length, train):
    run = train(source=vectors(100, seed=1), epoch=epoch)
    assert [row["step"] for row in run.manifest["epochs"]] == [length, 2 * length]


def test_a_step_reads_the_planned_samples_with_the_labels_of_the_source(train, monkeypatch):
    source, target = vectors(56, seed=1), vectors(50, seed=2)
    steps = []
    steps_of(monkeypatch, lambda module, step: steps.append(step))
    train(source=source, target=target)
    plans = PairData(source, target.hide_labels()[0], Recipe(**SMALL)).plans
    assert [step.number for step in steps] == list(range(6))
    for step in steps:
        s, t = (plan.indices(step.number) for plan in plans)
        assert torch.equal(step.x_s, source.samples.tensor[s])
        assert torch.equal(step.y_s, source.labels[s])
        assert torch.equal(step.x_t, target.samples.tensor[t])
    assert plans[0].seed != plans[1].seed


def test_balanced_sampling_draws_rare_classes_as_often_as_others(train, monkeypatch):
    labels = torch.tensor([0] * 90 + [1] * 10 + [2] * 10 + [3] * 10)
    source = Domain("uneven", TensorSamples(torch.randn(120, 6)), CLASSES, labels)
    seen = {False: [], True: []}
    for balanced, drawn in seen.items():
        with monkeypatch.context() as patch:
            steps_of(patch, lambda module, step, drawn=drawn: drawn.append(step.y_s))
            train(str(balanced), source=source, class_balanced=balanced, epoch=20, epochs=1, method="source")
    counts = {balanced: torch.bincount(torch.cat(drawn), minlength=4) for balanced, drawn in seen.items()}
    assert int(counts[True].max()) < 110  # 320 samples: 80 with a standard deviation of 8
    assert int(counts[False][0]) > 200


# BatchNorm at evaluation


def test_target_statistics_at_evaluation_are_those_of_adabn_by_hand(train):
    data = images()
    run = train(method="source+adabn", **data, network="lenet")
    recipe = Recipe(**SMALL, method="source+adabn", network="lenet")
    _, network, inputs = assemble(recipe, 4, (1, 8, 8))
    network.load_state_dict(checkpoint(run)["network"])
    x = inputs.evaluation(data["target"].samples.tensor)
    plain = network.predict_proba(x)
    adapt_batchnorm(network, [x])
    by_hand = network.predict_proba(x)
    saved = load_model(run.path).predict(data["target"]).probabilities
    torch.testing.assert_close(saved, by_hand, rtol=1e-4, atol=1e-6)
    assert float((plain - by_hand).abs().max()) > 0.01
    labels = data["target"].labels
    accuracies = {
        "training": float((plain.argmax(1) == labels).double().mean()),
        "target": float((by_hand.argmax(1) == labels).double().mean()),
    }
    assert run.manifest["final"]["accuracy_by_batchnorm"] == accuracies
    assert run.accuracy == accuracies["target"] == run.manifest["epochs"][-1]["target_accuracy"]
    assert run.manifest["final"]["batchnorm"] == "target"


def test_the_option_does_what_the_control_does_and_training_is_the_same(train):
    control = train("control", method="source+adabn", network="lenet", **images())
    option = train("option", method="source", evaluation_batchnorm="target", network="lenet", **images())
    plain = train("plain", method="source", network="lenet", **images())
    assert weights(control) == weights(option) != weights(plain)
    for name, value in checkpoint(plain)["network"].items():
        assert torch.equal(value, checkpoint(control)["network"][name])


def test_a_frozen_backbone_keeps_its_statistics(train):
    run = train(network="lenet", backbone_batchnorm="frozen", **images())
    model = load_file(run.path / "model.safetensors")
    means = {name: value for name, value in model.items() if name.endswith("running_mean")}
    assert len(means) == 5
    for name, value in means.items():
        assert bool((value == 0).all()) == name.startswith("backbone.")


# What is written down


def test_the_manifest_describes_the_run(train):
    run = train(method="ckw", call={"origin": {"source": "a folder"}}, seed=5)
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest == run.manifest
    assert manifest["status"] == "finished"
    assert Recipe(**manifest["recipe"]) == Recipe(**SMALL, method="ckw", seed=5)
    assert manifest["seed"] == 5
    assert manifest["command"]
    assert {"python", "bures", "torch", "lightning", "numpy"} <= set(manifest["versions"])
    assert {"processor", "cores", "threads"} <= set(manifest["hardware"])
    assert manifest["data"]["origin"] == {"source": "a folder"}
    assert manifest["data"]["source"]["samples"] == 56
    assert manifest["data"]["source"]["counts"] == [14, 14, 14, 14]
    checksums = [manifest["data"][side]["checksum"] for side in ("source", "target", "evaluation")]
    assert checksums[0] != checksums[1] == checksums[2]
    assert [row["epoch"] for row in manifest["epochs"]] == [1, 2]
    assert all("target_accuracy" in row for row in manifest["epochs"])
    assert manifest["trains_on_target_labels"] is False
    assert sorted(path.name for path in run.path.iterdir()) == [
        "best.safetensors",
        "checkpoints",
        "confusion.csv",
        "log.csv",
        "manifest.json",
        "model.safetensors",
        "predictions.csv",
        "recipe.yaml",
        "samples.safetensors",
        "tensorboard",
    ]


def test_the_manifest_says_nothing_of_target_labels_but_accuracies(train):
    labels = torch.tensor([0] * 29 + [1] * 11 + [2] * 7 + [3] * 3)
    target = Domain("there", TensorSamples(vectors(50, seed=2).samples.tensor), CLASSES, labels)
    manifest = train(target=target).manifest
    assert manifest["data"]["target"]["counts"] is None
    assert manifest["data"]["evaluation"]["counts"] is None
    numbers = json.dumps(manifest).replace(" ", "")
    assert "29,11,7,3" not in numbers


def test_the_upper_bound_is_marked(train):
    manifest = train(method="target").manifest
    assert manifest["trains_on_target_labels"] is True
    assert manifest["data"]["source"]["name"] == "there"
    with pytest.raises(ValueError, match="method='target' trains on target labels, but 'vectors' has none"):
        train("none", method="target", target=vectors(50, seed=2, labelled=False))


def test_predictions_and_confusion_are_those_of_the_saved_model(train):
    data = images()
    run = train(**data, network="lenet")
    p = load_model(run.path).predict(data["target"]).probabilities
    rows = rows_of(run.path / "predictions.csv")
    assert [row["class"] for row in rows] == [CLASSES[label] for label in p.argmax(1)]
    written = torch.tensor([[float(row[f"p({name})"]) for name in CLASSES] for row in rows])
    torch.testing.assert_close(written, p, rtol=1e-4, atol=1e-6)
    with open(run.path / "confusion.csv", newline="") as file:
        header, *lines = csv.reader(file)
    counts = torch.tensor([[int(cell) for cell in line[1:]] for line in lines])
    assert header[1:] == [line[0] for line in lines] == list(CLASSES)
    assert counts.sum(1).tolist() == torch.bincount(data["target"].labels).tolist()
    assert float(counts.diagonal().sum()) / 50 == pytest.approx(run.accuracy)


def test_the_best_model_is_that_of_the_best_label_free_score(train):
    run = train(method="source", lr=0.3, epochs=5, optimiser="sgd")
    scores = [row["target_score"] for row in run.manifest["epochs"]]
    best = run.manifest["final"]["best"]
    assert best["epoch"] == 1 + scores.index(max(scores))
    assert best["score"] == max(scores)
    p = run.model(best=True).predict(vectors(50, seed=2, shift=0.5)).probabilities.double()
    entropy = torch.special.entr(p.mean(0)).sum() - torch.special.entr(p).sum(1).mean()
    assert float(entropy) == pytest.approx(max(scores), rel=1e-4)


def test_tensorboard_has_the_rows_of_the_log(train):
    run = train(method="ckb")
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    assert {"loss", "cross_entropy", "entropy", "ckb", "target_accuracy", "lr"} <= set(events.Tags()["scalars"])
    for name in ("loss", "ckb", "target_accuracy"):
        assert [event.step for event in events.Scalars(name)] == [3, 6]
        expected = [row[name] for row in run.manifest["epochs"]]
        assert [event.value for event in events.Scalars(name)] == pytest.approx(expected, rel=1e-6)


def test_a_run_is_quiet_where_there_is_no_terminal(train, capfd):
    train(call={"progress": True})
    assert capfd.readouterr() == ("", "")


def test_samples_that_are_evaluated_need_not_be_those_of_training(train):
    evaluation = vectors(30, seed=3, name="elsewhere", shift=0.5)
    plain, other = train("plain"), train("other", call={"evaluation": evaluation})
    assert weights(plain) == weights(other)
    assert len(rows_of(other.path / "predictions.csv")) == 30
    right = load_model(other.path).predict(evaluation).probabilities.argmax(1) == evaluation.labels
    assert other.accuracy == float(right.double().mean())
    assert other.manifest["data"]["evaluation"]["name"] == "elsewhere"
    unlabelled = train("unlabelled", call={"evaluation": vectors(30, seed=3, labelled=False)})
    assert unlabelled.accuracy is None
    assert not (unlabelled.path / "confusion.csv").exists()
    assert "target_accuracy" not in unlabelled.manifest["epochs"][0]


def test_a_method_with_parameters_of_its_own_is_trained_and_saved(train):
    gate = checkpoint(train(method="toy"))["method"]["terms.0.gate"]
    assert gate.shape == (8,)
    assert bool((gate != 1).all())


# What stops a run, or should be known of it


def test_a_collapse_is_noticed_once_and_written_down(tmp_path):
    source, target = vectors(56, seed=1, name="here"), vectors(50, seed=2, name="there")
    with pytest.warns(CollapseWarning, match=r"100 % of the target is taken for class 'circle'") as caught:
        run = adapt(source, target, Recipe(**{**SMALL, "epochs": 6}, method="pull", lr=0.01), tmp_path / "run")
    assert len([warning for warning in caught if warning.category is CollapseWarning]) == 1
    (note,) = run.manifest["notes"]
    assert "predictions collapsed in epoch" in note
    assert "1.0 effective classes where the source has 4.0" in note
    assert run.manifest["epochs"][-1]["target_effective_classes"] == 1.0


@pytest.mark.filterwarnings("error")
def test_a_healthy_run_is_not_taken_for_a_collapse(train):
    run = train(method="ckb", epochs=8, lr=0.01)
    assert run.manifest["notes"] == []
    assert run.accuracy > 0.9


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_stops_before_it_reaches_the_weights(value, tmp_path, monkeypatch):
    last = {}
    steps_of(
        monkeypatch,
        lambda module, step: last.update(
            module=module, weights=[parameter.detach().clone() for parameter in module.network.parameters()]
        ),
    )
    recipe = Recipe(**SMALL, method="fuse", options={"step": 4, "value": value})
    with pytest.raises(TrainingError) as caught:
        adapt(vectors(56, seed=1), vectors(50, seed=2), recipe, tmp_path / "run", checkpoint_every=0.0)
    message = str(caught.value)
    assert "the loss is not finite in step 4: fuse broke first" in message
    assert f"the last good checkpoint is that of step 4, {tmp_path / 'run/checkpoints/last.ckpt'}" in message
    state = checkpoint(tmp_path / "run")
    assert state["step"] == 4
    assert all(bool(value.isfinite().all()) for value in state["network"].values())
    for parameter, before in zip(last["module"].network.parameters(), last["weights"], strict=True):
        assert torch.equal(parameter, before)
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (manifest["status"], manifest["reason"]) == ("failed", message)
    assert len(manifest["epochs"]) == 1


@pytest.mark.parametrize("step", [1, 5])  # inside an epoch, and at the end of the last
@pytest.mark.parametrize("labelled", [True, False])
def test_a_gradient_that_is_not_finite_never_reaches_a_checkpoint_or_a_model(step, labelled, tmp_path):
    recipe = Recipe(**SMALL, method="fuse", options={"step": step, "value": "gradient"})
    data = vectors(56, seed=1), vectors(50, seed=2, labelled=labelled)
    with pytest.raises(TrainingError, match=f"not finite in step {step}: the gradient broke first"):
        adapt(*data, recipe, tmp_path / "run", checkpoint_every=0.0)
    state = checkpoint(tmp_path / "run")
    assert state["step"] == step
    assert all(bool(value.isfinite().all()) for value in state["network"].values())
    assert not (tmp_path / "run/model.safetensors").exists()


def test_a_learning_rate_that_is_far_too_large_stops_the_run(train):
    with pytest.raises(TrainingError, match=r"the loss is not finite in step \d+: .*A smaller lr") as caught:
        train(method="ckb", lr=1e30, epochs=5)
    assert "no checkpoint was written yet" in str(caught.value)


def test_a_first_step_that_breaks_has_no_checkpoint(tmp_path):
    recipe = Recipe(**SMALL, method="fuse", options={"step": 0})
    with pytest.raises(TrainingError, match=r"in step 0: fuse broke first; no checkpoint was written yet"):
        adapt(vectors(56, seed=1), vectors(50, seed=2), recipe, tmp_path / "run", checkpoint_every=0.0)
