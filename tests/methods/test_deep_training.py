"""The deep methods in the trainer: they learn what they are for, start from the seed, and resume bit by bit."""

import numpy as np
import pytest
import torch
from small_batches import DEEP
from small_runs import adapt, differences, vectors

from bures.data import Domain, GaussianClasses, TensorSamples
from bures.training import AdaptationModule, Recipe, RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")

K, D = 3, 4


def moved_domains(shift):
    """Three round classes in four dimensions, all moved alike in the target, across borders of the source's classes."""
    angles = 2 * np.pi * np.arange(K) / K
    means = np.zeros((K, D))
    means[:, 0], means[:, 1] = 2.2 * np.cos(angles), 2.2 * np.sin(angles)
    covariances = np.tile(0.45**2 * np.eye(D), (K, 1, 1))
    rng = np.random.default_rng(0)
    domains = []
    for name, move in (("here", 0.0), ("there", shift)):
        population = GaussianClasses(np.full(K, 1 / K), means + move * np.array([1.0, 0.5, 0.0, 0.0]), covariances)
        x, y = population.sample(240, rng)
        domains.append(Domain(name, TensorSamples(torch.as_tensor(x, dtype=torch.float32)), ("a", "b", "c"), y))
    return domains


def train(folder, method, shift, epochs, seed=0, **options):
    # One forward for both domains: BatchNorm for each would remove the shift by itself.
    fields = {"batch_size": 48, "hidden": 32, "features": 64, "lr": 3e-3, "joint_forward": True}
    recipe = Recipe(method=method, options=options, epochs=epochs, seed=seed, **fields)
    return adapt(*moved_domains(shift), recipe, folder)


@pytest.fixture(scope="module")
def source_accuracy(tmp_path_factory):
    """Mean accuracy of training on the source alone, over two seeds."""
    made = {}

    def accuracy(shift, epochs):
        if (shift, epochs) not in made:
            folder = tmp_path_factory.mktemp("source")
            runs = [train(folder / str(seed), "source", shift, epochs, seed) for seed in (0, 1)]
            made[shift, epochs] = np.mean([run.accuracy for run in runs])
        return made[shift, epochs]

    return accuracy


# Term, how much smaller it is at the end, shift, gain in accuracy, options where defaults are for other scales.
LEARN = {
    "dan": ("mmd", 0.6, 1.7, 0.02, {}),
    "deep-coral": ("coral", 0.4, 1.7, 0.05, {"weight": 10.0}),
    "jan": ("jmmd", 0.7, 1.7, 0.08, {}),
    "dsan": ("lmmd", 0.4, 1.7, 0.04, {}),
    "deepjdot": ("transport", 0.6, 1.7, 0.04, {"alpha": 0.01, "lambda_t": 0.01}),
    "etd": ("transport", 0.7, 1.7, 0.03, {}),
    "dmp": ("subspaces", 0.95, 1.5, 0.04, {}),
    "kgot": ("kernel-bures", 0.4, 1.7, 0.05, {}),
    "mcc": ("confusion", 0.4, 1.7, 0.08, {}),
    "bnm": ("nuclear-norm", None, 1.7, 0.08, {}),
}


@pytest.mark.parametrize("name", LEARN)
def test_a_method_brings_its_term_down_and_beats_the_source(name, source_accuracy, tmp_path):
    term, factor, shift, gain, options = LEARN[name]
    runs = [train(tmp_path / str(seed), name, shift, 12, seed, **options) for seed in (0, 1)]
    for run in runs:
        values = [row[term] for row in run.manifest["epochs"] if row.get(term) is not None]
        assert values[-1] < (values[0] - 0.05 if factor is None else factor * values[0])
    assert np.mean([run.accuracy for run in runs]) > source_accuracy(shift, 12) + gain


def test_dann_beats_the_source_and_keeps_the_discriminator_in_doubt(source_accuracy, tmp_path):
    runs = [train(tmp_path / str(seed), "dann", 1.6, 40, seed, hidden=64) for seed in (0, 1)]
    for run in runs:
        assert run.manifest["epochs"][-1]["domains"] > 0.3  # near zero where nothing works against it
    assert np.mean([run.accuracy for run in runs]) > source_accuracy(1.6, 40) + 0.03


OPTIONS = {
    "dann": {"hidden": 16, "dropout": 0.3},
    "cdan": {"hidden": 16, "largest": 10, "random_features": 12},
    "cdan+e": {"hidden": 16},
}


@pytest.mark.parametrize("name", DEEP)
def test_a_run_stopped_midway_ends_like_one_that_was_not(name, tmp_path, monkeypatch):
    fields = {"epochs": 2, "hidden": 16, "features": 20, "batch_size": 16}
    recipe = Recipe(method=name, options=OPTIONS.get(name, {}), **fields)
    data = vectors(56, seed=1, name="here"), vectors(50, seed=2, name="there", shift=0.5)
    adapt(*data, recipe, tmp_path / "whole")

    class Stop(Exception):  # noqa: N818 - not an error
        pass

    step = AdaptationModule.training_step

    def stopping(module, batch, number):
        if batch.number == 4:  # three steps make an epoch
            raise Stop
        return step(module, batch, number)

    torch.manual_seed(99)  # what came before a run must not matter to it
    with monkeypatch.context() as patch:
        patch.setattr(AdaptationModule, "training_step", stopping)
        with pytest.raises(Stop):
            adapt(*data, recipe, tmp_path / "stopped", checkpoint_every=0.0)
    state = torch.load(RunFolder(tmp_path / "stopped").checkpoint, weights_only=True)["state"]
    assert state["step"] == 4
    assert bool(state["method"]) == (name in ("dann", "cdan", "cdan+e", "dmp"))
    adapt(*data, recipe, tmp_path / "stopped", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "stopped") == []


def test_the_discriminator_starts_from_the_seed_and_is_trained(tmp_path):
    def weights(folder, seed):
        recipe = Recipe(method="dann", options={"hidden": 8}, epochs=1, hidden=16, features=8, batch_size=16, seed=seed)
        adapt(vectors(32, seed=1), vectors(32, seed=2, shift=0.5), recipe, tmp_path / folder)
        state = torch.load(RunFolder(tmp_path / folder).checkpoint, weights_only=True)["state"]
        assert {group["name"] for group in state["optimiser"]["param_groups"]} >= {"method"}
        return state["method"]["terms.0.discriminator.0.weight"]

    torch.manual_seed(5)
    first = weights("a", 0)
    torch.manual_seed(6)
    assert torch.equal(weights("b", 0), first)
    assert not torch.equal(weights("c", 1), first)
