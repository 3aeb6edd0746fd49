"""One process at a time works on a run; signals while its outcome is written; memory that runs out."""

import json
import os
import signal

import pytest
import torch
from small_runs import RECIPES, Child, Trap, adapt, differences, domains, run_here

from bures.training import RunInUseError, TrainingError
from bures.training._module import AdaptationModule

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")

STEP = ("bures.training._module", "AdaptationModule.training_step")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert Child(folder, "vectors").wait() == 0
    return folder


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_process_is_kept_from_a_run(resume, whole, tmp_path):
    folder = tmp_path / "run"
    first = Child(folder, "vectors", Trap(*STEP, 3, "wait"))
    first.wait_for_marker()
    with pytest.raises(RunInUseError) as caught:
        run_here(folder, "vectors", resume=resume)
    assert f"process {first.process.pid} on " in str(caught.value)
    assert "wait for its end or stop it, then resume, or choose another folder" in str(caught.value)
    assert f"delete {folder / '.lock'}" in str(caught.value)
    first.marker.unlink()
    assert first.wait() == 0
    assert differences(whole, folder) == []
    assert not (folder / ".lock").exists()


def test_the_lock_of_a_killed_process_is_taken_over(whole, tmp_path):
    folder = tmp_path / "run"
    assert Child(folder, "vectors", Trap(*STEP, 3, "kill")).wait() == -signal.SIGKILL
    assert (folder / ".lock").exists()
    run_here(folder, "vectors", resume=True)
    assert not (folder / ".lock").exists()


@pytest.mark.parametrize("call", [1, 4])
@pytest.mark.parametrize("action", ["term", "int"])
def test_a_signal_while_the_outcome_is_written_stops_and_loses_nothing(action, call, whole, tmp_path):
    folder = tmp_path / "run"
    trap = Trap("bures.files", "os.replace", 10 + call, action)  # the tenth ends the training
    child = Child(folder, "vectors", trap)
    assert child.wait() == 3
    assert child.message == f"StoppedBySignal: stopped by SIG{action.upper()} after step 6; the state is saved"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["final"]) == ("stopped", None)
    run_here(folder, "vectors", resume=True)
    assert differences(whole, folder) == []


def exhausted(error):
    def step(self, batch, number):
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB"), "memory of the accelerator"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), "memory"),
        (MemoryError(), "memory"),
    ],
)
def test_memory_that_runs_out_is_turned_into_advice(error, what, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(AdaptationModule, "training_step", exhausted(error))
        with pytest.raises(TrainingError) as caught:
            run_here(tmp_path / "run", "vectors")
    message = str(caught.value)
    assert message.startswith(f"{what} ran out with batch_size=16; less is needed by a smaller batch_size, precision=")
    assert "no checkpoint was written yet" in message
    assert json.loads((tmp_path / "run/manifest.json").read_text())["reason"] == message
    run_here(tmp_path / "run", "vectors", resume=True)
    assert differences(whole, tmp_path / "run") == []


def test_the_advice_names_the_queue_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(AdaptationModule, "training_step", exhausted(torch.cuda.OutOfMemoryError()))
    recipe = RECIPES["vectors"].override({"queue": 32, "precision": "bf16-mixed"})
    with pytest.raises(
        TrainingError, match=r"with batch_size=16 and queue=32; .* a smaller batch_size, a smaller queue"
    ):
        adapt(*domains("vectors"), recipe, tmp_path / "run")


@pytest.mark.parametrize("error", [RuntimeError("sizes differ"), ValueError("sizes differ"), AssertionError()])
def test_other_errors_are_what_they_are_and_the_run_counts_as_failed(error, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(AdaptationModule, "training_step", exhausted(error))
        with pytest.raises(type(error), match=f"^{error}$"):
            run_here(tmp_path / "run", "vectors")
    assert os.listdir(tmp_path / "run").count(".lock") == 0
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (manifest["status"], manifest["reason"]) == ("failed", str(error) or "AssertionError")
    run_here(tmp_path / "run", "vectors", resume=True)
    assert differences(whole, tmp_path / "run") == []
