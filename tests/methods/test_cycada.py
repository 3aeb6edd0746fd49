"""CyCADA, and methods that make their own training steps: stages in order, the right networks, exact resumption."""

import copy
import warnings

import pytest
import torch
from small_runs import SMALL, adapt, differences, pictures, vectors
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from turned_digits import turned_digits

from bures.data import Domain, TensorSamples
from bures.methods import Method, OwnStep, OwnTraining, StepReport, make_method, method_names, register
from bures.methods.cycada import CyCADA
from bures.networks import build_network
from bures.training import AdaptationModule, Recipe, RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")

TINY = {"translator_width": 4, "translator_blocks": 1, "hidden": 8}
IMAGES, FEATURES = ("translation", "cycle", "semantics", "images"), ("domains",)
PARTS = ("to_target", "to_source", "judge_target", "judge_source", "teacher", "terms")


def recipe(**changes):
    """Nine steps, three in an epoch; by the shares, stages begin in steps 3 and 6."""
    options = {"classifier_share": 0.34, "translation_share": 0.33, **TINY, **changes.pop("options", {})}
    fields = {**SMALL, "epochs": 3, "network": "lenet", **changes}
    return Recipe(method="cycada", options=options, **fields)


def digits():
    return pictures(56, seed=1, name="here"), pictures(50, seed=2, name="there", shift=30)


def watch(monkeypatch, look):
    """Call ``look(number, before, after, report)`` with the state of all networks around every step."""
    original = CyCADA.step

    def states(method, network):
        parts = {name: getattr(method, name).state_dict() for name in PARTS} | {"network": network.state_dict()}
        return {name: {key: value.clone() for key, value in part.items()} for name, part in parts.items()}

    def watched(method, at):
        before = states(method, at.network)
        report = original(method, at)
        look(at.number, before, states(method, at.network), report)
        return report

    monkeypatch.setattr(CyCADA, "step", watched)


def moved(before, after):
    return {
        name for name in before if any(not torch.equal(before[name][key], after[name][key]) for key in before[name])
    }


def test_stages_come_in_order_and_train_the_right_networks(tmp_path, monkeypatch):
    seen, reports = {}, {}

    def look(number, before, after, report):
        seen[number], reports[number] = moved(before, after), report
        if 3 <= number < 6:  # the fixed classifier is the network after the first stage, but for running statistics
            for key, value in after["network"].items():
                assert "running" in key or "tracked" in key or torch.equal(after["teacher"][key], value)

    watch(monkeypatch, look)
    adapt(*digits(), recipe(), tmp_path / "run")
    translators = {"to_target", "to_source", "judge_target", "judge_source", "teacher"}
    assert [seen[number] for number in range(9)] == [{"network"}] * 3 + [translators] * 3 + [{"network", "terms"}] * 3
    for number, report in reports.items():
        stage = ("cross_entropy",), IMAGES, ("cross_entropy", *FEATURES)
        assert tuple(report.losses) == ("loss", *stage[number // 3])
        assert all(bool(value.isfinite()) for value in report.losses.values())


def test_the_log_has_the_terms_of_each_stage_by_name(tmp_path):
    rows = adapt(*digits(), recipe(), tmp_path / "run").manifest["epochs"]
    for row, there in zip(rows, (("cross_entropy",), IMAGES, ("cross_entropy", *FEATURES)), strict=True):
        assert {name for name in ("cross_entropy", *IMAGES, *FEATURES) if name in row} == set(there)
        assert 0 <= row["source_accuracy"] <= 1


def step_by_hand(method, network, number, n_steps, seed=0):
    """One step on random images; optimisers are replaced by a list of what they were asked to do."""
    generator = torch.Generator().manual_seed(seed)
    x_s, x_t = (torch.rand(6, 1, 8, 8, generator=generator) for _ in range(2))
    asked = []
    at = OwnStep(
        number, n_steps, x_s, torch.arange(6) % 3, x_t, network, lambda x: 3 * x - 1, None, cross_entropy,
        lambda name, loss, rate=1.0: asked.append((name, loss, rate)),
    )  # fmt: skip
    return at, method.step(at), asked


@pytest.fixture
def parts():
    torch.manual_seed(0)
    network = build_network("lenet", 3, image_size=8, hidden=8, features=4, seed=0)
    method = make_method("cycada", cycle=2.0, semantics=3.0, **TINY)
    method.prepare(network, (1, 8, 8))
    method.setup(4, 3)
    return method.train(), network.train()


def test_the_losses_of_the_translation_are_those_of_the_formulas(parts):
    method, network = parts
    at, report, asked = step_by_hand(method, network, 4, 10)
    x_s, x_t = 2 * at.x_s - 1, 2 * at.x_t - 1
    a, b = method.to_target(x_s), method.to_source(x_t)

    def classes(x):  # of the classifier, with statistics of the batch; its weights are those of before the stage
        return method.teacher(3 * (x + 1) / 2 - 1).logits

    one = torch.ones(6, 1, 2, 2)
    values = {
        "translation": mse_loss(method.judge_target(a), one) + mse_loss(method.judge_source(b), one),
        "cycle": (method.to_source(a) - x_s).abs().mean() + (method.to_target(b) - x_t).abs().mean(),
        "semantics": cross_entropy(classes(a), at.y_s) + cross_entropy(classes(b), classes(x_t).argmax(1)),
        "images": (mse_loss(method.judge_target(x_t), one) + method.judge_target(a).square().mean()) / 2
        + (mse_loss(method.judge_source(x_s), one) + method.judge_source(b).square().mean()) / 2,
    }
    for name, value in values.items():
        torch.testing.assert_close(report.losses[name], value)
    total = values["translation"] + 2.0 * values["cycle"] + 3.0 * values["semantics"]
    torch.testing.assert_close(report.losses["loss"], total)
    assert [name for name, _, _ in asked] == ["translators", "judges"]
    torch.testing.assert_close(asked[0][1], total)
    torch.testing.assert_close(asked[1][1], values["images"])
    # Translations are constants for those who judge them.
    translators = [*method.to_target.parameters(), *method.to_source.parameters()]
    assert torch.autograd.grad(asked[1][1], translators, allow_unused=True) == (None,) * len(translators)
    assert all(parameter.grad is None for parameter in (*method.parameters(), *network.parameters()))


def test_the_rate_of_the_translators_is_constant_and_then_falls(parts):
    method, network = parts
    rates = [step_by_hand(method, network, number, 100)[2][0][2] for number in (20, 45, 46, 69)]
    assert rates == pytest.approx([1.0, 1.0, 0.96, 0.04])


def test_labels_of_the_source_and_images_of_both_domains_are_all_that_is_used(tmp_path):
    source, target = digits()
    wrong = Domain(target.name, target.samples, target.class_names, (target.labels + 1) % 4)
    runs = [adapt(source, one, recipe(), tmp_path / str(i)) for i, one in enumerate((target, wrong))]
    assert len({(run.path / "model.safetensors").read_bytes() for run in runs}) == 1
    assert runs[0].accuracy != runs[1].accuracy


class Stop(Exception):  # noqa: N818 - not an error
    pass


def stop_at(number, monkeypatch, run):
    """Start a run that ends in a step, with a checkpoint of the step before."""
    step = AdaptationModule.training_step

    def stopping(module, batch, index):
        if batch.number == number:
            raise Stop
        return step(module, batch, index)

    torch.manual_seed(99)  # what came before a run must not matter to it
    with monkeypatch.context() as patch:
        patch.setattr(AdaptationModule, "training_step", stopping)
        with pytest.raises(Stop):
            run()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cycada") / "whole"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapt(*digits(), recipe(augment="affine", schedule="cosine", gradient_clip=1.0), folder)
    return folder


@pytest.mark.parametrize("number", [2, 3, 5, 6, 8])  # inside of every stage, and where one ends and another begins
def test_a_run_stopped_in_any_stage_ends_like_one_that_was_not(number, whole, tmp_path, monkeypatch):
    folder, chosen = tmp_path / "run", recipe(augment="affine", schedule="cosine", gradient_clip=1.0)
    stop_at(number, monkeypatch, lambda: adapt(*digits(), chosen, folder, checkpoint_every=0.0))
    state = torch.load(RunFolder(folder).checkpoint, weights_only=True)["state"]
    assert state["step"] == number
    assert [bool(other["state"]) for other in state["other_optimisers"]] == [number > 3] * 2
    adapt(*digits(), chosen, folder, resume=True)
    assert differences(whole, folder) == []


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions_train(precision, tmp_path):
    run = adapt(*digits(), recipe(precision=precision, joint_forward=True), tmp_path / "run")
    assert run.manifest["status"] == "finished"
    rows = run.manifest["epochs"]
    assert all(torch.tensor(value).isfinite() for row in rows for value in row.values())


def test_colour_and_grey_images_are_translated_together(tmp_path):
    source, target = digits()
    colour = Domain("colour", TensorSamples(target.samples.tensor.expand(-1, 3, -1, -1)), target.class_names)
    run = adapt(source, colour, recipe(), tmp_path / "run")
    state = torch.load(RunFolder(run.path).checkpoint, weights_only=True)["state"]
    assert state["method"]["to_target.down.0.weight"].shape[1] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classifier_share": 0.0}, r"classifier_share=0.0 is out of range; accepted is above 0 to below 1"),
        ({"classifier_share": 0.5, "translation_share": 0.5}, r"leave no steps for the last stage; accepted is a sum"),
        ({"cycle": -1.0}, r"cycle=-1.0 is out of range; accepted are numbers from 0 up"),
        ({"semantics": float("nan")}, r"semantics=nan is out of range"),
        ({"translator_lr": 0.0}, r"translator_lr=0.0 is out of range; accepted is a positive number"),
        ({"ramp": 1.0}, r"method 'cycada' has no option 'ramp'"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        make_method("cycada", **options)


def test_samples_that_are_no_small_images_are_refused_before_training(tmp_path):
    features = vectors(56, seed=1), vectors(50, seed=2)
    with pytest.raises(ValueError, match=r"translates images but the samples are feature vectors of length 6"):
        adapt(*features, recipe(network="auto"), tmp_path / "a")
    large = pictures(20, seed=1, size=65), pictures(20, seed=2, size=65)
    with pytest.raises(ValueError, match=r"the network sees 65 x 65 pixels; accepted are sides from 8 to 64"):
        adapt(*large, recipe(), tmp_path / "b")
    with pytest.raises(ValueError, match=r"a training of 2 steps has no room for the three stages"):
        adapt(*digits(), recipe(epochs=2, epoch=1), tmp_path / "c")
    with pytest.raises(ValueError, match=r"devices=2 is too many for method 'cycada', which makes its own training"):
        adapt(*digits(), recipe(), tmp_path / "d", devices=2)
    assert list(tmp_path.iterdir()) == []


def test_a_loop_of_ones_own_is_told_that_there_is_no_loss():
    with pytest.raises(TypeError, match=r"method 'cycada' makes its own training steps and has no loss to add"):
        make_method("cycada")(None, 0.0)


def test_fields_of_a_recipe_without_effect_are_named(tmp_path):
    chosen = recipe(augment="affine", queue=20, consistency=0.3)
    with pytest.warns(UserWarning, match=r"own training steps: queue=20 and consistency=0.3 has no effect on it"):
        adapt(*digits(), chosen, tmp_path / "run")


class Offset(OwnTraining):
    """A toy: every other step moves target samples towards the source, the others train the network on the source."""

    optimiser_names = ("offset",)

    def prepare(self, network, shape):
        self.offset = nn.Parameter(torch.zeros(shape))

    def make_optimisers(self):
        return {"offset": torch.optim.SGD([self.offset], lr=0.1, momentum=0.9)}

    def step(self, at):
        logits = at.network(at.normalise(at.x_s)).logits
        if at.number % 2:
            loss = (at.x_t + self.offset).mean(0).sub(at.x_s.mean(0)).square().sum()
            at.update("offset", loss)
        else:
            loss = at.cross_entropy(logits, at.y_s)
            at.update("network", loss)
        return StepReport({"loss": loss}, {}, (logits.argmax(1) == at.y_s).float().mean())


def test_any_method_may_make_its_own_steps(tmp_path, monkeypatch):
    if "offset" not in method_names():
        register("offset")(lambda: Offset("offset"))
    data = vectors(56, seed=1), vectors(50, seed=2, shift=0.5)
    chosen = Recipe(method="offset", **SMALL)
    adapt(*data, chosen, tmp_path / "whole")
    stop_at(4, monkeypatch, lambda: adapt(*data, chosen, tmp_path / "stopped", checkpoint_every=0.0))
    adapt(*data, chosen, tmp_path / "stopped", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "stopped") == []
    state = torch.load(RunFolder(tmp_path / "whole").checkpoint, weights_only=True)["state"]
    assert float(state["method"]["offset"].mean()) < -0.1
    assert set(state["other_optimisers"][0]["state"][0]) == {"momentum_buffer"}


class Lone(OwnTraining):
    """A toy without optimisers of its own."""

    def step(self, at):
        batch = at.forward(at.x_s, at.x_t)
        loss = at.cross_entropy(batch.logits_s, batch.y_s)
        at.update("network", loss)
        return StepReport({"loss": loss}, {}, (batch.logits_s.argmax(1) == batch.y_s).float().mean())


def test_steps_of_ones_own_that_do_what_the_trainer_does_give_the_same_network(tmp_path):
    if "lone" not in method_names():
        register("lone")(lambda: Lone("lone"))
    fields = {**SMALL, "network": "lenet", "augment": "affine", "schedule": "inverse", "schedule_gamma": 0.1}
    fields |= {"optimiser": "sgd", "label_smoothing": 0.1, "gradient_clip": 0.5, "evaluation_batchnorm": "training"}
    states = []
    for name, options in (("lone", {}), ("entropy", {"entropy": 1e-30})):  # both forward both domains
        adapt(*digits(), Recipe(method=name, options=options, **fields), tmp_path / name)
        states.append(torch.load(RunFolder(tmp_path / name).checkpoint, weights_only=True)["state"]["network"])
    for key, value in states[0].items():
        torch.testing.assert_close(states[1][key], value, rtol=1e-5, atol=1e-6)


def test_optimisers_before_the_networks_are_refused():
    with pytest.raises(RuntimeError, match=r"has no translators yet; call method.prepare\(network, \(C, H, W\)\)"):
        make_method("cycada").make_optimisers()


def test_methods_without_steps_of_their_own_train_with_the_network():
    plain = Method("plain")
    assert not plain.owns_training
    dann = make_method("dann", hidden=4)
    dann.setup(3, 2)
    assert dann.shared_parameters() == list(dann.parameters())
    assert copy.deepcopy(make_method("cycada")).owns_training


@pytest.mark.slow
def test_cycada_beats_the_source_and_each_of_its_stages(tmp_path):
    fields = {"network": "lenet", "epochs": 30, "epoch": 20, "batch_size": 64, "hidden": 64, "features": 32}
    accuracies = {}
    for name, method, options in (
        ("source", "source+adabn", {}),
        ("translation", "cycada", {"weight": 0.0}),
        ("both", "cycada", {}),
    ):
        chosen = Recipe(method=method, options=options, **fields)
        accuracies[name] = adapt(*turned_digits(), chosen, tmp_path / name).accuracy
    assert accuracies["translation"] > accuracies["source"] + 0.04
    assert accuracies["both"] > accuracies["source"] + 0.12
