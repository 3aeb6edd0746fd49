"""Validators in training: they choose the epoch, fill the log, hold out source samples, and see no target labels."""

import csv
import json
import math

import pytest
import torch
from small_runs import SMALL, adapt, vectors

from bures.data import Domain
from bures.selection import Validator, make_validator, study, validator_names
from bures.training import Evaluator, Recipe, StopTraining, assemble, information, load_model
from bures.training._holdout import hold_out
from bures.training._prediction import predict_samples, with_target_statistics
from bures.training._run_folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")


def task(labelled=True):
    return vectors(80, seed=1, name="here"), vectors(50, seed=2, name="there", shift=0.5, labelled=labelled)


def log(run):
    with open(run.path / "log.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_where_predictions_are_enough_nothing_else_is_computed(tmp_path, monkeypatch):
    forwarded = []
    original = Evaluator._predict
    monkeypatch.setattr(
        Evaluator, "_predict", lambda self, network, domain: forwarded.append(domain) or original(self, network, domain)
    )
    source, target = task()
    run = adapt(source, target, Recipe(**SMALL, select="im"), tmp_path / "run")
    assert {domain.name for domain in forwarded} == {"there"}
    # Each epoch, and the last network with the other BatchNorm statistics.
    assert len(forwarded) == SMALL["epochs"] + 1
    final = run.manifest["final"]
    assert (final["validator"], final["temperature"], final["scores"]) == ("im", None, {})
    assert final["score"] == information(run.model().predict(target).probabilities)
    assert not any(name.startswith("score_") for name in log(run)[0])


def test_the_best_model_is_that_of_the_epoch_the_validator_prefers(tmp_path):
    source, target = task()
    recipe = Recipe(**{**SMALL, "epochs": 4}, select="ckw", validators=["entropy", "ckw"])
    run = adapt(source, target, recipe, tmp_path / "run")
    rows, final = log(run), run.manifest["final"]
    scores = [float(row["target_score"]) for row in rows]
    assert scores == [float(row["score_ckw"]) for row in rows] != [float(row["score_entropy"]) for row in rows]
    assert final["best"]["epoch"] == scores.index(max(scores)) + 1
    assert (final["validator"], set(final["scores"])) == ("ckw", {"entropy", "ckw"})
    predictions = load_model(run.path, best=True).predict(target)
    entropy = make_validator("entropy").function(predictions.probabilities)
    assert entropy == pytest.approx(float(rows[final["best"]["epoch"] - 1]["score_entropy"]), rel=1e-5)
    assert study([run.manifest]).loc["ckw", "runs"] == 1


def test_a_validator_that_prefers_the_first_epoch_gets_it(tmp_path, monkeypatch):
    seen = iter([3.0, math.nan, 2.0, 3.0, 0.0, 0.0])
    counting = Validator("im", ("target_probabilities",), lambda target_probabilities: next(seen))
    monkeypatch.setattr(Recipe, "build_validators", lambda self: [counting])
    run = adapt(*task(), Recipe(**{**SMALL, "epochs": 4}), tmp_path / "run")
    assert run.manifest["final"]["best"] == {
        "epoch": 1,
        "score": 3.0,
        "accuracy": run.manifest["final"]["best"]["accuracy"],
    }
    undefined = iter([math.nan, math.nan, 1.0, 1.0, 0.0, 0.0])
    hard = Validator("im", ("target_probabilities",), lambda target_probabilities: next(undefined))
    monkeypatch.setattr(Recipe, "build_validators", lambda self: [hard])
    run = adapt(*task(), Recipe(**{**SMALL, "epochs": 4}), tmp_path / "other")
    assert run.manifest["final"]["best"]["epoch"] == 3
    assert json.loads((run.path / "manifest.json").read_text())["epochs"][0]["target_score"] is None


def test_all_validators_see_no_target_labels(tmp_path):
    """With other target labels, or none, every score, the best epoch and the temperatures stay the same."""
    source, target = task()
    wrong = Domain(target.name, target.samples, target.class_names, (target.labels + 1) % 4)
    masked = target.hide_labels()[0]
    recipe = Recipe(**SMALL, validators="all", source_holdout=0.2, select="dev")
    runs = [adapt(source, other, recipe, tmp_path / str(i)) for i, other in enumerate((target, wrong, masked))]
    columns = [f"score_{name}" for name in validator_names()]
    scores = [[[row[name] for name in columns] for row in run.manifest["epochs"]] for run in runs]
    assert scores[0] == scores[1] == scores[2]
    assert all(math.isfinite(value) for row in scores[0] for value in row)
    assert len({(run.path / "best.safetensors").read_bytes() for run in runs}) == 1
    temperatures = [run.manifest["final"]["temperature"] for run in runs]
    assert temperatures[0] == temperatures[1] == temperatures[2]
    assert set(temperatures[0]) == {"source", "target", "effective_samples"}
    assert 1 <= temperatures[0]["effective_samples"] <= 16
    assert runs[0].manifest["final"]["calibration"]["error"] != runs[1].manifest["final"]["calibration"]["error"]
    assert runs[2].manifest["final"]["calibration"] is None
    held = runs[0].manifest["data"]["held_out"]
    assert (held["samples"], held["counts"]) == (16, [4, 4, 4, 4])
    assert runs[0].manifest["data"]["source"]["samples"] == 64


def test_even_the_upper_bound_shows_validators_the_labels_of_the_source(tmp_path, monkeypatch):
    source, target = task()
    shown = []
    original = Evaluator.evidence

    def look(self, *args, **kwargs):
        evidence = original(self, *args, **kwargs)
        shown.append(evidence.source_labels)
        return evidence

    monkeypatch.setattr(Evaluator, "evidence", look)
    adapt(source, target, Recipe(**SMALL, method="target", select="ckw"), tmp_path / "run")
    assert all(torch.equal(labels, source.labels) for labels in shown)
    assert len(source.labels) != len(target.labels)


@pytest.mark.parametrize("batchnorm", ["training", "target"])
def test_evidence_is_what_the_network_makes_of_each_domain(batchnorm):
    source, target = task()
    kept, held = hold_out(source, 0.25, seed=0)
    _, network, inputs = assemble(Recipe(**SMALL), 4, (6,))
    masked, hidden = target.hide_labels()
    evaluator = Evaluator(masked, hidden, masked, inputs, source=kept, validation=held)
    evidence = evaluator.evidence(network, evaluator.predict(network, batchnorm), batchnorm)

    def expected(domain, statistics):
        adapted = with_target_statistics(network, statistics.samples, inputs) if batchnorm == "target" else network
        return predict_samples(adapted, domain.samples, inputs)

    torch.testing.assert_close(evidence.target_features, expected(target, target).features)
    torch.testing.assert_close(evidence.source_features, expected(kept, kept).features)
    torch.testing.assert_close(evidence.validation_probabilities, expected(held, kept).probabilities)
    assert torch.equal(evidence.source_labels, kept.labels)
    assert torch.equal(evidence.validation_labels, held.labels)
    assert evaluator.evidence(network, evaluator.predict(network), batchnorm, ["target_features"]).source_labels is None


def test_holding_out_is_stratified_and_complete():
    domain = vectors(41, seed=0)  # 11, 10, 10 and 10 samples
    kept, held = hold_out(domain, 0.3, seed=3)
    assert (kept.counts().tolist(), held.counts().tolist()) == ([8, 7, 7, 7], [3, 3, 3, 3])
    together = torch.cat([kept.samples.tensor, held.samples.tensor])
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, domain.samples.tensor.tolist()))
    assert not torch.equal(held.samples.tensor, hold_out(domain, 0.3, seed=4)[1].samples.tensor)
    assert hold_out(domain, 0.99, seed=0)[0].counts().tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match=r"source_holdout=0.01 holds out no sample of source 'vectors', .* 11 samples"):
        hold_out(domain, 0.01, seed=0)


def test_on_epoch_sees_the_rows_and_may_end_the_run(tmp_path):
    rows = []

    def look(row):
        rows.append(dict(row))
        if row["epoch"] == 2:
            raise StopTraining("enough")

    recipe = Recipe(**{**SMALL, "epochs": 5}, validators=["snd"])
    with pytest.raises(StopTraining, match="enough"):
        adapt(*task(), recipe, tmp_path / "run", on_epoch=look)
    manifest = RunFolder(tmp_path / "run").read_manifest()
    assert (manifest["status"], manifest["reason"]) == ("stopped", "enough")
    assert [row["score_snd"] for row in manifest["epochs"]] == [row["score_snd"] for row in rows]
    assert len(rows) == 2
    with pytest.raises(ValueError, match="accepted is devices=1"):
        adapt(*task(), recipe, tmp_path / "other", on_epoch=look, devices=2, strategy="ddp")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"select": "accuracy"}, "select='accuracy' is unknown; accepted are bnm, ckb, .*, source$"),
        ({"select": "all"}, "select='all' is unknown"),
        ({"validators": ["im", "oracle"]}, "validators='oracle' is unknown; accepted are bnm, .*, all$"),
        ({"validators": 3}, "validators=3 is no list of names"),
        ({"validators": [3]}, "is no list of names"),
        ({"select": "dev"}, "select='dev' needs source samples that are held out .* set source_holdout"),
        ({"validators": ["iwcv"]}, "validators='iwcv' needs source samples that are held out"),
        ({"source_holdout": 1}, "source_holdout=1.0 is out of range; accepted is 0 to below 1"),
        ({"source_holdout": -0.1}, "source_holdout=-0.1 is out of range"),
    ],
)
def test_a_recipe_names_what_is_wrong(fields, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


def test_recipes_keep_their_validators_in_files(tmp_path):
    from bures.training import load_recipe

    recipe = Recipe(validators=["snd", "im", "snd"], select="ckw", source_holdout="0.1")
    assert recipe.validators == ("snd", "im")
    assert load_recipe(recipe.save(tmp_path / "recipe.yaml")) == recipe
    assert Recipe(**recipe.to_dict()) == recipe
    assert Recipe(validators="all").logged_validators == tuple(validator_names(holdout=False))
    assert recipe.override({"validators": "all"}).logged_validators == tuple(validator_names())
    assert [validator.name for validator in recipe.build_validators()] == ["ckw", "snd", "im"]
