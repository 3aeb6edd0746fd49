"""Interruptions of every kind: what is resumed ends as if it had never been stopped, bit by bit.

Processes are real and are killed for real. Steps count from 0; a checkpoint is that of the number of steps done.
"""

import json
import os
import pickle
import re
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from small_runs import RECIPES, STEPS_PER_EPOCH, Child, Trap, adapt, differences, domains, outcome, run_here, vectors
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bures.training import CheckpointError, RunFolder, StoppedBySignal, TrainingError
from bures.training._checkpoint import load_checkpoint, save_checkpoint
from bures.training._session import Session
from bures.training._signals import ECHO

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")

STEP = ("bures.training._module", "AdaptationModule.training_step")
BATCH_END = ("bures.training._checkpointer", "Checkpointer.on_train_batch_end")
EPOCH_END = ("bures.training._recorder", "EpochRecorder.on_train_epoch_end")
MADE_READY = ("bures.training._session", "_Placement.on_fit_start")
AFTER_SAVE = ("bures.training._module", "AdaptationModule.on_train_epoch_end")
EPOCH_SAVE = ("bures.training._checkpointer", "Checkpointer.on_train_epoch_end")
FINISH = ("bures.training._session", "Session.finish")
REPLACE = ("bures.files", "os.replace")
# manifest, recipe, 6 checkpoints, 2 logs, model, predictions, confusion, samples, best, manifest
UNINTERRUPTED_WRITES = 16


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """Folders of runs that were left alone."""
    made = {}

    def folder(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("uninterrupted") / name
            assert Child(made[name], name).wait() == 0
        return made[name]

    return folder


def checkpoint_step(folder, name="adam"):
    return torch.load(RunFolder(folder).checkpoint, weights_only=True)["state"]["step"]


def partial_files(folder):
    return [path.name for path in folder.rglob("*.partial")]


def test_one_seed_gives_one_result_and_another_gives_another(uninterrupted, tmp_path):
    again = Child(tmp_path / "again", "adam")
    assert again.wait() == 0
    assert differences(uninterrupted("adam"), tmp_path / "again") == []
    assert outcome(uninterrupted("adam"))["model.safetensors"] != outcome(uninterrupted("sgd"))["model.safetensors"]


@pytest.mark.parametrize(
    ("name", "where", "call", "saved"),
    [
        ("adam", STEP, 3, 2),  # inside the first epoch
        ("sgd", STEP, 5, 4),  # inside the second
        ("adam", BATCH_END, 5, 4),  # the step is made and not yet saved
        ("sgd", EPOCH_SAVE, 1, 2),  # the log of an epoch is ahead of its checkpoint
        ("vectors", FINISH, 1, 6),  # all steps are made, nothing is written of the end
    ],
)
def test_a_run_killed_at_any_moment_ends_like_one_that_was_not(name, where, call, saved, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    assert Child(folder, name, Trap(*where, call, "kill")).wait() == -signal.SIGKILL
    assert checkpoint_step(folder) == saved
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
    assert Child(folder, name, resume=True).wait() == 0
    assert differences(uninterrupted(name), folder) == []


def test_a_checkpoint_some_steps_back_gives_the_same_end(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    # Checkpoints at steps 1 and 2 only; death in step 4, in the next epoch.
    stopped = Child(folder, "adam", Trap(*STEP, 3, "kill"))
    assert stopped.wait() == -signal.SIGKILL
    assert Child(folder, "adam", Trap(*STEP, 3, "kill"), resume=True, checkpoint_every=1e9).wait() == -signal.SIGKILL
    assert checkpoint_step(folder) == 2
    log = (folder / "log.csv").read_text().splitlines()
    assert len(log) == 2  # the header and the first epoch, which will be made again
    assert Child(folder, "adam", resume=True, checkpoint_every=1e9).wait() == 0
    assert differences(uninterrupted("adam"), folder) == []


def test_a_run_killed_before_its_first_checkpoint_starts_again(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    assert Child(folder, "sgd", Trap(*STEP, 2, "kill"), checkpoint_every=1e9).wait() == -signal.SIGKILL
    assert not RunFolder(folder).checkpoint.exists()
    assert Child(folder, "sgd", resume=True).wait() == 0
    assert differences(uninterrupted("sgd"), folder) == []


def test_a_run_killed_while_a_checkpoint_is_written_keeps_the_one_before(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    child = Child(folder, "adam", Trap("torch", "save", 3, "half"))
    child.wait_for_marker()
    os.kill(child.process.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert len(partial_files(folder)) == 1
    assert checkpoint_step(folder) == 2
    assert Child(folder, "adam", resume=True).wait() == 0
    assert differences(uninterrupted("adam"), folder) == []
    assert partial_files(folder) == []


def killed_at_write(number, folder, name, expected):
    """Kill at the moment in which a file would take its place, then go on as a user would."""
    assert Child(folder, name, Trap(*REPLACE, number, "kill")).wait() == -signal.SIGKILL
    started = RunFolder(folder).exists()
    assert started == (number > 1)
    assert Child(folder, name, resume=started).wait() == 0
    assert differences(expected, folder) == []
    assert partial_files(folder) == []


@pytest.mark.parametrize("number", [1, 2, 5, 12])
def test_a_run_killed_before_a_file_takes_its_place_can_go_on(number, uninterrupted, tmp_path):
    killed_at_write(number, tmp_path / "run", "vectors", uninterrupted("vectors"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "sgd"])
@pytest.mark.parametrize("number", range(1, UNINTERRUPTED_WRITES + 1))
def test_a_run_killed_at_any_of_its_writes_can_go_on(name, number, uninterrupted, tmp_path):
    killed_at_write(number, tmp_path / "run", name, uninterrupted(name))


def test_there_are_no_other_writes(tmp_path):
    trap = Trap(*REPLACE, UNINTERRUPTED_WRITES + 1, "kill")
    assert Child(tmp_path / "run", "vectors", trap).wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RECIPES))
@pytest.mark.parametrize("where", [STEP, BATCH_END])
@pytest.mark.parametrize("call", range(1, 2 * STEPS_PER_EPOCH + 1))
def test_a_run_killed_in_any_step_ends_like_one_that_was_not(name, where, call, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    assert Child(folder, name, Trap(*where, call, "kill")).wait() == -signal.SIGKILL
    assert Child(folder, name, resume=True).wait() == 0
    assert differences(uninterrupted(name), folder) == []


@pytest.mark.slow
def test_a_run_killed_again_and_again_still_ends_the_same(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    for resume in (False, True, True, True, True):
        assert Child(folder, "sgd", Trap(*STEP, 2, "kill"), resume=resume).wait() == -signal.SIGKILL
    assert Child(folder, "sgd", resume=True).wait() == 0
    assert differences(uninterrupted("sgd"), folder) == []


def test_sigterm_from_outside_saves_and_stops(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    child = Child(folder, "sgd", Trap(*STEP, 2, "wait"), checkpoint_every=1e9)
    child.wait_for_marker()
    os.kill(child.process.pid, signal.SIGTERM)
    child.marker.unlink()
    assert child.wait() == 3
    assert child.message == "StoppedBySignal: stopped by SIGTERM after step 2; the state is saved"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["final"]) == ("stopped", None)
    assert "SIGTERM" in manifest["reason"]
    assert checkpoint_step(folder) == 2
    assert Child(folder, "sgd", resume=True).wait() == 0
    assert differences(uninterrupted("sgd"), folder) == []


@pytest.mark.parametrize(
    ("action", "where", "call", "saved"),
    [
        ("term", MADE_READY, 1, 0),
        ("int", STEP, 5, 5),
        ("term", STEP, 3, 3),
        ("term", EPOCH_END, 1, 3),
        ("term", STEP, 6, 6),
        ("term", AFTER_SAVE, 1, 4),
        ("term", AFTER_SAVE, 2, 6),
    ],
)
def test_a_signal_in_a_step_or_an_evaluation_loses_nothing(action, where, call, saved, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    child = Child(folder, "vectors", Trap(*where, call, action), checkpoint_every=1e9)
    assert child.wait() == 3
    assert child.message.startswith(f"StoppedBySignal: stopped by SIG{action.upper()} after step {saved};")
    assert checkpoint_step(folder) == saved
    assert Child(folder, "vectors", resume=True).wait() == 0
    assert differences(uninterrupted("vectors"), folder) == []


class SignalOnce(float):
    """Seconds that send SIGTERM to this process while a number is compared with them, the first time."""

    sent = False

    def __le__(self, other):
        if not SignalOnce.sent:
            SignalOnce.sent = True
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__le__(other)


def test_a_signal_between_the_decision_to_save_and_the_stop_is_for_the_next_step(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(StoppedBySignal, match="after step 2; the state is saved"):
        run_here(folder, "vectors", checkpoint_every=SignalOnce(1e9))
    assert SignalOnce.sent
    assert checkpoint_step(folder) == 2
    run_here(folder, "vectors", resume=True)
    assert differences(uninterrupted("vectors"), folder) == []


def test_a_signal_in_the_last_moment_is_passed_on_behind_the_end(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    child = Child(folder, "vectors", Trap("bures.training._session", "Session.write_status", 1, "term"))
    assert child.wait() == -signal.SIGTERM
    assert json.loads((folder / "manifest.json").read_text())["status"] == "finished"
    assert differences(uninterrupted("vectors"), folder) == []


def test_a_run_that_is_asked_twice_stops_at_once_and_says_so(uninterrupted, tmp_path):
    def ask_twice(row):
        signal.raise_signal(signal.SIGINT)
        time.sleep(1.5 * ECHO)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises((KeyboardInterrupt, SystemExit)):  # Lightning turns the one into the other
        adapt(*domains("vectors"), RECIPES["vectors"], tmp_path / "run", on_epoch=ask_twice)
    manifest = RunFolder(tmp_path / "run").read_manifest()
    assert (manifest["status"], manifest["reason"]) == ("stopped", "stopped at once")
    assert not RunFolder(tmp_path / "run").lock.exists()
    run_here(tmp_path / "run", "vectors", resume=True)
    assert differences(uninterrupted("vectors"), tmp_path / "run") == []


def test_a_signal_that_comes_twice_at_once_is_one_wish(uninterrupted, tmp_path):
    def ask_with_an_echo(row):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(StoppedBySignal, match="the state is saved"):
        adapt(*domains("vectors"), RECIPES["vectors"], tmp_path / "run", on_epoch=ask_with_an_echo)
    run_here(tmp_path / "run", "vectors", resume=True)
    assert differences(uninterrupted("vectors"), tmp_path / "run") == []


def test_a_resumed_run_is_running_again(tmp_path):
    folder = tmp_path / "run"
    assert Child(folder, "vectors", Trap(*STEP, 2, "term")).wait() == 3
    assert Child(folder, "vectors", Trap(*STEP, 2, "kill"), resume=True).wait() == -signal.SIGKILL
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["reason"]) == ("running", None)


@pytest.mark.parametrize(("where", "action", "code"), [(STEP, "term", 3), (EPOCH_SAVE, "kill", -signal.SIGKILL)])
def test_tensorboard_shows_every_epoch_of_a_resumed_run_once(where, action, code, tmp_path):
    folder = tmp_path / "run"
    assert Child(folder, "vectors", Trap(*where, 1 if where is EPOCH_SAVE else 5, action)).wait() == code
    assert Child(folder, "vectors", resume=True).wait() == 0
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    losses = [row["loss"] for row in json.loads((folder / "manifest.json").read_text())["epochs"]]
    assert [event.step for event in events.Scalars("loss")] == [3, 6]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(losses, rel=1e-6)


def test_a_run_outside_of_the_main_thread_ends_too(uninterrupted, tmp_path):
    # Only the main thread of a process may listen to signals.
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_here, tmp_path / "run", "vectors").result()
    assert run.manifest["status"] == "finished"


def test_handlers_of_signals_are_those_of_before(tmp_path):
    def own(number, frame):
        raise AssertionError

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for number in before:
            signal.signal(number, own)
        run_here(tmp_path / "run", "vectors")
        assert [signal.getsignal(number) for number in before] == [own, own]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_checkpoint_that_finds_no_room_leaves_the_one_before(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    child = Child(folder, "adam", Trap("torch", "save", 4, "limit 20000"))
    assert child.wait() == 3
    assert child.message.startswith("TrainingError: the checkpoint of step 4 could not be written")
    assert "that of step 3 is intact" in child.message
    assert "\n" not in child.message
    assert checkpoint_step(folder) == 3
    assert partial_files(folder) == []
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert manifest["reason"] in child.message
    assert Child(folder, "adam", resume=True).wait() == 0
    assert differences(uninterrupted("adam"), folder) == []


@pytest.mark.parametrize(
    "where",
    [
        ("bures.training._run_folder", "RunFolder.write_log"),  # the log of an epoch
        ("bures.training._session", "save_model"),  # the model at the end
    ],
)
def test_no_room_for_anything_is_reported_with_the_checkpoint_that_is_left(where, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    child = Child(folder, "vectors", Trap(*where, 1, "limit 10"))
    assert child.wait() == 3
    assert child.message.startswith("TrainingError: ")
    assert f"the last good checkpoint is that of step {checkpoint_step(folder)}" in child.message
    assert partial_files(folder) == []
    assert Child(folder, "vectors", resume=True).wait() == 0
    assert differences(uninterrupted("vectors"), folder) == []


@pytest.fixture
def stopped(tmp_path):
    """A run that stopped after four steps."""
    folder = tmp_path / "run"
    child = Child(folder, "vectors", Trap(*STEP, 4, "term"))
    assert child.wait() == 3
    return folder


def refused(folder, recipe=RECIPES["vectors"], **options):
    source, target = domains("vectors")
    with pytest.raises(CheckpointError) as caught:
        adapt(options.pop("source", source), options.pop("target", target), recipe, folder, resume=True, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_checkpoint_is_refused(share, stopped):
    checkpoint = RunFolder(stopped).checkpoint
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(share * len(content))])
    message = refused(stopped)
    assert f"{checkpoint} is truncated or no checkpoint" in message
    assert "delete it to start the run again" in message


def test_a_run_whose_checkpoint_was_deleted_starts_again(stopped, uninterrupted):
    shutil.rmtree(RunFolder(stopped).checkpoint.parent)
    assert Child(stopped, "vectors", resume=True).wait() == 0
    assert differences(uninterrupted("vectors"), stopped) == []


def test_damage_at_any_place_gives_no_other_error(tmp_path):
    path, messages = tmp_path / "last.ckpt", []
    save_checkpoint(path, {"weights": torch.arange(50.0), "step": 3}, {"lr": 0.1})
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :])
        try:
            load_checkpoint(path, {"lr": 0.1})
        except CheckpointError as error:  # anything else fails the test
            messages.append(str(error))
    assert len(messages) > 10
    assert not any("\n" in message for message in messages)


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_checkpoint_that_would_run_code_is_refused(form, stopped, tmp_path):
    trace, checkpoint = tmp_path / "trace", RunFolder(stopped).checkpoint
    if form == "pickle":
        checkpoint.write_bytes(pickle.dumps(_Bomb(str(trace))))
    else:
        torch.save({"schema": 1, "fingerprint": {}, "state": _Bomb(str(trace))}, checkpoint)
    assert "is truncated or no checkpoint" in refused(stopped)
    assert not trace.exists()


@pytest.mark.parametrize("content", [{"weights": 1}, [1, 2], {"schema": 99, "fingerprint": {}, "state": {}}])
def test_a_file_of_something_else_is_no_checkpoint(content, stopped):
    torch.save(content, RunFolder(stopped).checkpoint)
    assert str(RunFolder(stopped).checkpoint) in refused(stopped)


def test_a_checkpoint_of_another_recipe_names_what_differs(stopped):
    before = RunFolder(stopped).checkpoint.read_bytes()
    message = refused(stopped, RECIPES["vectors"].override({"lr": 0.5, "options.entropy": 0.25}))
    assert "lr 0.001 there, 0.5 here" in message
    assert "options.entropy None there, 0.25 here" in message
    assert "resume with the recipe of that run, or choose another output folder" in message
    assert RunFolder(stopped).checkpoint.read_bytes() == before
    assert json.loads((stopped / "manifest.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize("side", ["source", "target", "evaluation"])
def test_a_checkpoint_of_other_data_is_refused(side, stopped):
    message = refused(stopped, **{side: vectors(50, seed=9)})
    assert f"the samples of the {side}, or their classes, have changed since this was begun; bring the data" in message
    assert not re.search("[0-9a-f]{32}", message)  # a checksum tells nobody anything
    assert "recipe" not in message


def test_data_that_may_follow_from_another_recipe_are_not_said_to_have_changed(stopped):
    message = refused(stopped, RECIPES["vectors"].override({"seed": 5}), source=vectors(50, seed=9))
    assert "seed 0 there, 5 here; resume with the recipe of that run" in message
    assert not re.search("[0-9a-f]{32}", message)


@pytest.mark.parametrize("changes", [{"lr": 0.5}, {"options.entropy": 0.25}])
def test_a_run_without_a_checkpoint_is_resumed_with_its_own_recipe_alone(changes, stopped):
    RunFolder(stopped).checkpoint.unlink()
    assert "belongs to another recipe" in refused(stopped, RECIPES["vectors"].override(changes))
    assert "the samples of the source, or their classes, have changed" in refused(stopped, source=vectors(56, seed=9))
    shutil.rmtree(stopped / "tensorboard")
    run_here(stopped, "vectors", resume=True)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_run_of_a_version_that_lacked_a_field_is_resumed(stopped, has_checkpoint):
    folder, later = RunFolder(stopped), ("queue", "gradient_clip", "head_finish")
    manifest = json.loads(folder.manifest.read_text())
    manifest["recipe"] = {name: value for name, value in manifest["recipe"].items() if name not in later}
    folder.manifest.write_text(json.dumps(manifest))
    content = torch.load(folder.checkpoint, weights_only=True)
    content["fingerprint"] = {name: value for name, value in content["fingerprint"].items() if name not in later}
    torch.save(content, folder.checkpoint)
    if not has_checkpoint:
        folder.checkpoint.unlink()
    assert "gradient_clip None there, 5.0 here" in refused(stopped, RECIPES["vectors"].override({"gradient_clip": 5}))
    assert run_here(stopped, "vectors", resume=True).manifest["status"] == "finished"


def test_labels_of_the_source_are_part_of_its_checksum(stopped):
    source, _ = domains("vectors")
    other = type(source)(source.name, source.samples, source.class_names, source.labels.flip(0))
    assert "the samples of the source, or their classes, have changed" in refused(stopped, source=other)


def test_a_finished_run_is_returned_unchanged(tmp_path):
    run = run_here(tmp_path / "run", "vectors")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    again = run_here(tmp_path / "run", "vectors", resume=True)
    assert again == run
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_finished_run_is_not_returned_for_another_recipe_or_other_data(tmp_path):
    run_here(tmp_path / "run", "vectors")
    source, target = domains("vectors")
    recipe = RECIPES["vectors"]
    with pytest.raises(CheckpointError, match=r"another recipe or other data: epochs \d+ there, 77 here"):
        adapt(source, target, recipe.override({"epochs": 77}), tmp_path / "run", resume=True)
    with pytest.raises(CheckpointError, match="the samples of the target, or their classes, have changed"):
        adapt(source, target.take(range(1, len(target))), recipe, tmp_path / "run", resume=True)


def test_domains_and_recipes_are_not_names(tmp_path):
    source, target = domains("vectors")
    for place, name in enumerate(("source", "target", "recipe")):
        arguments = [source, target, RECIPES["vectors"]]
        arguments[place] = "digits"
        with pytest.raises(TypeError, match=rf"^{name} is a str; accepted is a .*bures\.\w+\.load_"):
            adapt(*arguments, tmp_path / "run")
    with pytest.raises(TypeError, match=r"^evaluation is a str"):
        adapt(source, target, RECIPES["vectors"], tmp_path / "run", evaluation="digits")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_run_cannot_be_resumed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no run folder: manifest\.json is missing"):
        run_here(tmp_path, "vectors", resume=True)
    with pytest.raises(FileNotFoundError, match="is no run folder"):
        run_here(tmp_path / "nowhere", "vectors", resume=True)
    (tmp_path / "manifest.json").write_text('{"schema": 1, "sta')
    with pytest.raises(ValueError, match="is damaged"):
        run_here(tmp_path, "vectors", resume=True)


def test_double_precision_of_a_run_that_only_lacked_its_end(tmp_path):
    recipe = RECIPES["vectors"].override({"precision": "64-true"})
    data = domains("vectors")
    whole = adapt(*data, recipe, tmp_path / "whole")
    shutil.copytree(whole.path, tmp_path / "cut")
    manifest = json.loads((tmp_path / "cut/manifest.json").read_text())
    (tmp_path / "cut/manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    (tmp_path / "cut/model.safetensors").unlink()
    adapt(*data, recipe, tmp_path / "cut", resume=True)
    assert differences(whole.path, tmp_path / "cut") == []


def test_the_end_that_was_missing_is_made_where_training_was(uninterrupted, tmp_path, monkeypatch):
    child = Child(tmp_path / "run", "vectors", trap=Trap(*FINISH, 1, "kill"))
    assert child.wait() == -signal.SIGKILL
    places, place = [], Session.place
    monkeypatch.setattr(Session, "place", lambda self, device: (places.append(device), place(self, device)))
    run_here(tmp_path / "run", "vectors", resume=True)
    assert places == [torch.device("cpu")]  # of `run_here`; without a place, what is left would never see a GPU
    assert differences(uninterrupted("vectors"), tmp_path / "run") == []


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    state = {"weight": torch.arange(3.0), "rows": [{"epoch": 1}], "best": None}
    save_checkpoint(tmp_path / "last.ckpt", state, {"lr": 0.1})
    found = load_checkpoint(tmp_path / "last.ckpt", {"lr": 0.1})
    assert torch.equal(found.pop("weight"), state.pop("weight"))
    assert found == state
    with pytest.raises(CheckpointError, match="is not there"):
        load_checkpoint(tmp_path / "none.ckpt", {})


def test_errors_say_what_they_are():
    assert issubclass(CheckpointError, ValueError)
    assert issubclass(TrainingError, RuntimeError)
    assert not issubclass(StoppedBySignal, TrainingError)
    assert StoppedBySignal(signal.SIGINT, 3).number == signal.SIGINT
