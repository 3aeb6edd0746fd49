"""Searches with Optuna: label-free, resumable, with failures kept apart, shared through a database."""

import csv
import json
import math
import sys

import pytest
import yaml
from small_runs import SMALL, vectors

from bures.data import Domain
from bures.experiments import SearchSpace, _tuning, load_space, tune
from bures.training import Recipe, Run, RunFolder, StoppedBySignal, TrainingError, load_recipe

pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")

SPACE = {"lr": {"low": 1e-4, "high": 1e-1, "log": True}, "options.weight": {"choices": [0.1, 1.0]}}
RECIPE = Recipe(**{**SMALL, "epochs": 1})


def task(labelled=True):
    return vectors(40, seed=1, name="here"), vectors(40, seed=2, name="there", shift=0.5, labelled=labelled)


def search(folder, n_trials=3, recipe=RECIPE, space=SPACE, domains=None, **options):
    return tune(*(domains or task()), recipe, space, folder, n_trials=n_trials, accelerator="cpu", **options)


def drawn(result):
    return sorted((trial.values["lr"], trial.values["options.weight"]) for trial in result.trials)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    return search(folder, n_trials=4, recipe=RECIPE.override({"select": "bnm"}))


def test_the_best_trial_has_the_largest_score_of_the_validator_and_its_recipe_is_written(finished):
    runs = {trial.number: RunFolder(trial.folder).read_manifest() for trial in finished.trials}
    scores = {number: run["final"]["score"] for number, run in runs.items()}
    assert {trial.number: trial.score for trial in finished.trials} == scores
    assert finished.best.number == max(scores, key=scores.get)
    assert [trial.score for trial in finished.trials] == sorted(scores.values(), reverse=True)
    chosen = load_recipe(finished.path / "best-recipe.yaml")
    assert chosen == finished.recipe == Recipe(**runs[finished.best.number]["recipe"])
    assert 1e-4 <= chosen.lr <= 1e-1
    assert json.loads((finished.path / "tuning.json").read_text())["validator"] == "bnm" == finished.validator
    with open(finished.path / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows] == [trial.score for trial in finished.trials]
    assert float(rows[0]["target accuracy (not used)"]) == finished.best.accuracy


def test_target_labels_do_not_matter(finished, tmp_path):
    source, target = task()
    wrong = Domain(target.name, target.samples, target.class_names, (target.labels + 1) % 4)
    recipe = RECIPE.override({"select": "bnm"})
    for name, other in (("wrong", wrong), ("none", target.hide_labels()[0])):
        again = search(tmp_path / name, n_trials=4, recipe=recipe, domains=(source, other))
        assert [(t.number, t.values, t.score) for t in again.trials] == [
            (t.number, t.values, t.score) for t in finished.trials
        ]
    assert again.best.accuracy is None


def test_an_interrupted_search_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    whole = search(tmp_path / "whole", n_trials=4)
    original, calls = _tuning.adapt, []

    def stopping(*args, **kwargs):
        calls.append(kwargs["resume"])
        return original(*args, **kwargs | ({"on_epoch": stop} if len(calls) == 2 else {}))

    def stop(row):
        raise StoppedBySignal(15, row["step"])

    monkeypatch.setattr(_tuning, "adapt", stopping)
    with pytest.raises(StoppedBySignal):
        search(tmp_path / "parts", n_trials=4)
    assert RunFolder(tmp_path / "parts/trials/0001").read_manifest()["status"] == "stopped"
    ended = search(tmp_path / "parts", n_trials=4)
    assert calls == [False, False, True, False, False]
    assert len(ended.trials) == 4
    assert drawn(ended) == drawn(whole)
    assert sorted(trial.folder.name for trial in ended.trials) == ["0000", "0001", "0003", "0004"]
    more = search(tmp_path / "parts", n_trials=5)
    assert len(more.trials) == 5
    assert len(search(tmp_path / "parts", n_trials=2).trials) == 5  # nothing left to do


def test_a_run_that_was_killed_is_resumed_in_its_folder(tmp_path, monkeypatch):
    import optuna

    with monkeypatch.context() as patch:

        def dying(*args, **kwargs):
            raise SystemExit  # as a kill: the study hears nothing

        patch.setattr(_tuning, "adapt", dying)
        with pytest.raises(SystemExit):
            search(tmp_path, n_trials=1)
    with _tuning._connected(optuna, f"sqlite:///{tmp_path / 'study.db'}") as storage:
        (running,) = optuna.load_study(study_name="bures", storage=storage).get_trials()
    assert running.state.name == "RUNNING"
    result = search(tmp_path, n_trials=1)
    (trial,) = result.trials
    assert (trial.number, trial.folder.name, trial.values) == (1, "0000", running.params)


def test_failures_are_kept_apart_and_without_any_success_the_search_ends(tmp_path, monkeypatch):
    original, calls = _tuning.adapt, []

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise TrainingError("the loss is not finite\nin step 3")
        return original(*args, **kwargs)

    monkeypatch.setattr(_tuning, "adapt", failing)
    seen = []
    result = search(tmp_path / "one", n_trials=3, on_trial=seen.append)
    assert [trial.state for trial in seen] == ["finished", "failed", "finished"]
    assert result.trials[-1].reason == "TrainingError: the loss is not finite in step 3"
    assert result.trials[-1].score is None
    monkeypatch.setattr(_tuning, "adapt", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ValueError, match="the first 5 trials failed, the last with: ZeroDivisionError"):
        search(tmp_path / "all", n_trials=50)
    with pytest.raises(ValueError, match=r"no trial of the search in .* is finished: ZeroDivisionError"):
        search(tmp_path / "few", n_trials=2)


def test_a_model_without_a_score_is_a_failed_trial(tmp_path, monkeypatch):
    run = Run(tmp_path, {"final": {"score": math.nan, "best": {"score": 2.0}}})
    monkeypatch.setattr(_tuning, "adapt", lambda *args, **kwargs: run)
    with pytest.raises(ValueError, match=f"validator '{RECIPE.select}' gives no score to this model"):
        search(tmp_path / "last", n_trials=1)
    assert search(tmp_path / "best", n_trials=1, at="best").best.score == 2.0


def test_a_pruned_trial_stops_early_and_the_others_do_not(tmp_path, monkeypatch):
    def fake(source, target, recipe, place, *, resume, on_epoch, **_):
        level = recipe.lr
        for epoch in range(1, 9):
            seen.append((level, epoch))
            on_epoch({"epoch": epoch, "target_score": level})
        return Run(place, {"final": {"score": level, "best": {"score": level}}})

    seen = []
    monkeypatch.setattr(_tuning, "adapt", fake)
    space = {"lr": {"low": 1e-4, "high": 1e-1, "log": True}}
    result = search(tmp_path, n_trials=12, recipe=RECIPE.override({"epochs": 8}), space=space, prune=True)
    states = [trial.state for trial in result.trials]
    assert {"finished", "pruned"} == set(states)
    pruned = next(trial for trial in result.trials if trial.state == "pruned")
    assert "below the median of earlier trials in epoch" in pruned.reason
    assert len([1 for level, _ in seen if level == pruned.values["lr"]]) < 8
    assert result.best.values["lr"] == max(t.values["lr"] for t in result.trials if t.state == "finished")


def test_machines_share_trials_through_a_database(tmp_path):
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    search(tmp_path / "one", n_trials=2, storage=storage, study_name="ours")
    both = search(tmp_path / "two", n_trials=3, storage=storage, study_name="ours")
    assert len(both.trials) == 3
    assert sorted(path.name for path in (tmp_path / "two" / "trials").iterdir()) == ["0002"]
    assert not (tmp_path / "two" / "study.db").exists()


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    search(tmp_path, n_trials=1)
    with pytest.raises(ValueError, match="belongs to another recipe or other data: epochs 1 there, 2 here"):
        search(tmp_path, recipe=RECIPE.override({"epochs": 2}))
    with pytest.raises(ValueError, match=r"space\.lr .* there, .* here"):
        search(tmp_path, space={**SPACE, "lr": {"low": 1e-3, "high": 1e-1, "log": True}})
    with pytest.raises(ValueError, match="the samples of the target, or their classes, have changed"):
        search(tmp_path, domains=(task()[0], vectors(40, seed=9)))


def test_a_database_is_not_trusted_with_paths(tmp_path):
    import optuna

    search(tmp_path / "out", n_trials=1)
    (tmp_path / "precious").mkdir()
    with _tuning._connected(optuna, f"sqlite:///{tmp_path / 'out/study.db'}") as storage:
        study = optuna.load_study(study_name="bures", storage=storage)
        study.enqueue_trial({"lr": 0.01, "options.weight": 1.0}, user_attrs={"folder": "../../precious"})
    search(tmp_path / "out", n_trials=2)
    assert list((tmp_path / "precious").iterdir()) == []
    assert (tmp_path / "out/trials/0001/manifest.json").is_file()


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'bures\[tune\]'"):
        search(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_space_reads_numbers_of_the_kind_of_the_field(tmp_path):
    (tmp_path / "space.yaml").write_text(
        "lr: {low: 1e-4, high: 1e-2, log: true}\nbatch_size: {low: 8, high: 32, step: 8}\n"
        "options.weight: {low: 1, high: 3}\nmethod: {choices: [ckb, ckw]}\nweight_decay: {choices: [0, 5e-4]}\n"
    )
    space = load_space(tmp_path / "space.yaml", Recipe())
    assert space.to_dict()["lr"] == {"low": 1e-4, "high": 1e-2, "log": True, "step": None}
    assert space.to_dict()["weight_decay"] == {"choices": [0, 5e-4]}

    class Trial:
        def suggest_int(self, name, low, high, *, log, step):
            return ("int", low, high, step)

        def suggest_float(self, name, low, high, *, log, step):
            return ("float", low, high, log)

        def suggest_categorical(self, name, values):
            return values[-1]

    values = space.suggest(Trial())
    assert values["batch_size"] == ("int", 8, 32, 8)
    assert values["options.weight"] == ("float", 1.0, 3.0, False)
    assert values["lr"] == ("float", 1e-4, 1e-2, True)
    again = SearchSpace(yaml.safe_load(yaml.safe_dump(space.to_dict())), Recipe())
    assert again.to_dict() == space.to_dict()
    other = space.apply(Recipe(options={"eps": 0.1}), {"method": "source", "options.weight": 2.0, "lr": 0.1})
    assert (other.method, other.options, other.lr) == ("source", {"eps": 0.1, "weight": 2.0}, 0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a search space is a mapping of fields"),
        ("- lr", "a search space is a mapping of fields"),
        ("lr: [1", "is no valid YAML"),
        ("lr: 3", "lr is 3; accepted is {low"),
        ("lr: {low: 1}", "lr has low; accepted is {low"),
        ("lr: {low: 1, high: 2, base: 3}", "lr has low, high, base"),
        ("lr: {low: a, high: 2}", "low='a' of lr is no number"),
        ("lr: {low: 2, high: 1}", "lr goes from 2 to 1; low must not be above high"),
        ("lr: {low: 0, high: 1, log: true}", "low of a logarithmic range"),
        ("lr: {low: 1, high: 2, log: 1}", "log=1 of lr is no truth value"),
        ("lr: {low: 1, high: 2, log: true, step: 1}", "lr has both log and step"),
        ("lr: {choices: []}", "lr has the choices"),
        ("lr: {choices: [[1]]}", "accepted are numbers, names and null"),
        ("lr: {low: -1, high: 1}", "lr=-1.0 is not possible: lr=-1.0 is out of range"),
        ("learning_rate: {low: 1, high: 2}", "a recipe has no field 'learning_rate'"),
        ("options.lamda: {low: 1, high: 2}", "no method has an option 'lamda'"),
        ("options.alpha: {low: 1, high: 2}", "method 'ckb' has no option 'alpha'; accepted are: entropy, "),
        (
            "{options.alpha: {low: 1, high: 2}, method: {choices: [ckb, source]}}",
            "method 'ckb', 'source' has no option 'alpha'",
        ),
        ("select: {choices: [im, snd]}", "select decides how models are judged"),
        ("source_holdout: {low: 0.1, high: 0.2}", "source_holdout decides how models are judged"),
        ("method: {choices: [ckb, dann2]}", "method='dann2' is not possible"),
    ],
)
def test_what_is_wrong_in_a_space_is_named(text, message, tmp_path):
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_space(tmp_path / "space.yaml", Recipe())
    assert "space.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_mistakes_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a file"):
        load_space(tmp_path / "none.yaml", Recipe())
    with pytest.raises(ValueError, match="n_trials=0 is out of range"):
        search(tmp_path, n_trials=0)
    with pytest.raises(ValueError, match="at='first' is unknown"):
        search(tmp_path, at="first")


@pytest.mark.parametrize("seed", [-1, 2**63, 0.5])
def test_a_seed_that_is_none_is_refused_before_a_folder_is_made(tmp_path, seed):
    with pytest.raises(ValueError, match=f"seed={seed} is not accepted; accepted is an integer from 0"):
        search(tmp_path / "search", seed=seed)
    assert not (tmp_path / "search").exists()
