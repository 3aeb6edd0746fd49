"""Sweeps: every cell once, a kill costs nothing, a failure costs itself; and the tables made from them."""

import atexit
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import weakref
from functools import partial
from pathlib import Path

import pytest
from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor, get_reusable_executor
from toy_cells import ToyCell, cells, marks, survivors

from bures.experiments import (
    Cell,
    InterruptedSweep,
    Ledger,
    accuracy_table,
    read_results,
    run_sweep,
    run_sweeps,
    to_markdown,
)
from bures.experiments._sweep import _attempt, _freeze, _Place
from bures.training import AdaptationModule, RunFolder, adapt

# Networks that made two steps predict few classes.
pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")

QUICK = {"epochs": 1, "epoch": 2, "batch_size": 16, "hidden": 16, "features": 8, "image_size": 8}


def cell(method="source", seed=0, **changes):
    return Cell("optdigits", "optdigits", "digits-plain", method, seed, {**QUICK, **changes})


def test_finished_cells_are_not_run_again_and_a_cut_line_is(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    seen = []
    first = run_sweep([cell(seed=0), cell(seed=1)], ledger, on_event=lambda event: seen.append(event.what))
    assert seen == ["started", "finished"] * 2
    assert not first.failures
    lines = ledger.read_text().splitlines()
    ledger.write_text(lines[0] + "\n" + lines[1][: len(lines[1]) // 2])  # killed while the second line was written
    assert [result["seed"] for result in read_results(ledger)] == [0]
    again = run_sweep([cell(seed=0), cell(seed=1)], ledger, on_event=lambda event: seen.append(event.what))
    assert seen[4:] == ["started", "finished"]
    assert len(read_results(ledger)) == 2
    without_time = [{**result["final"], "seconds": 0} for result in again.results]
    assert without_time == [{**result["final"], "seconds": 0} for result in first.results]


def test_a_failing_cell_leaves_the_others_alone(tmp_path):
    sweep = run_sweep([cell(batch_size=10_000), cell()], tmp_path / "ledger.jsonl")
    assert [result["seed"] for result in sweep.results] == [0]
    (message,) = sweep.failures.values()
    assert "batch_size=10000 is larger than" in message


def test_what_a_process_keeps_out_of_collections_is_collected_at_its_end(monkeypatch):
    at_exit = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    _freeze.__wrapped__()
    assert gc.get_freeze_count() > 0
    for function in at_exit:
        function()
    assert gc.get_freeze_count() == 0


def test_weights_of_finished_cells_do_not_pile_up(tmp_path, monkeypatch):
    optimisers, original = [], AdaptationModule.configure_optimizers

    def note(module):
        made = original(module)
        optimisers.append(weakref.ref(made["optimizer"]))
        return made

    monkeypatch.setattr(AdaptationModule, "configure_optimizers", note)
    gc.disable()  # a collection that comes by itself would hide what is left to it
    try:
        run_sweep([cell(seed=0), cell(seed=1)], tmp_path / "ledger.jsonl")
        left = [optimiser() for optimiser in optimisers]
    finally:
        gc.enable()
    assert left == [None, None]


def test_a_result_says_how_it_came_about(tmp_path):
    (result,) = run_sweep([cell("entropy", 3, validators=["snd"])], tmp_path / "ledger.jsonl").results
    assert result["command"].startswith("bures adapt --source optdigits --target optdigits --recipe digits-plain")
    assert result["recipe"]["seed"] == result["seed"] == 3
    assert result["schema"] == 2
    assert len(result["epochs"]["target_accuracy"]) == 1
    assert result["epochs"]["score_snd"] == [result["final"]["scores"]["snd"]]  # the study of validators reads it
    assert result["seconds"] >= result["final"]["seconds"]
    assert {"versions", "hardware"} <= set(result)
    assert str(tmp_path) not in json.dumps(result)


LONG = {"epochs": 2, "epoch": 3}


def cut_off(cells, ledger, monkeypatch, number=4, checkpoint_every=0.0):
    """Begin a sweep whose trainings end in a step; unless told otherwise, with a checkpoint of the step before."""
    step = AdaptationModule.training_step

    def stopping(module, batch, index):
        if batch.number == number:
            raise RuntimeError("cut off")
        return step(module, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(AdaptationModule, "training_step", stopping)
        patch.setattr("bures.experiments._cell.adapt", partial(adapt, checkpoint_every=checkpoint_every))
        sweep = run_sweep(cells, ledger)
    assert len(sweep.failures) == len(cells)


def counted_steps(monkeypatch):
    """Numbers of the steps that are made from now on."""
    made, step = [], AdaptationModule.training_step
    monkeypatch.setattr(
        AdaptationModule, "training_step", lambda module, batch, i: made.append(batch.number) or step(module, batch, i)
    )
    return made


def without_clock(result):
    epochs = {name: column for name, column in result["epochs"].items() if name != "seconds"}
    return epochs, {**result["final"], "seconds": 0}


def test_a_training_that_was_cut_off_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    ledger, wanted = tmp_path / "ledger.jsonl", [cell("ckb", 5, **LONG)]
    (whole,) = run_sweep(wanted, tmp_path / "whole.jsonl").results
    cut_off(wanted, ledger, monkeypatch)
    assert Ledger(ledger).unfinished(wanted[0].key).is_dir()
    made = counted_steps(monkeypatch)
    (result,) = run_sweep(wanted, ledger).results
    assert made == [4, 5]
    assert result["resumed"] == [4]
    assert "resumed" not in whole
    assert without_clock(result) == without_clock(whole)
    assert not list(tmp_path.glob(".*"))  # neither claims nor states are left


def test_a_training_that_fails_before_its_first_checkpoint_leaves_nothing(tmp_path, monkeypatch):
    cut_off([cell("ckb", 5, **LONG)], tmp_path / "ledger.jsonl", monkeypatch, checkpoint_every=60.0)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("cause", ["recipe", "manifest", "checkpoint", "versions", "finished"])
def test_a_state_that_does_not_fit_is_not_gone_on_from(cause, tmp_path, monkeypatch):
    ledger, recipe = tmp_path / "ledger.jsonl", tmp_path / "own.yaml"
    text = "{method: ckb, network: lenet, image_size: 8, epochs: 2, epoch: 3, batch_size: 16, hidden: 16, features: 8"
    recipe.write_text(text + "}")
    wanted = Cell("optdigits", "optdigits", str(recipe), "ckb", 0)
    cut_off([wanted], ledger, monkeypatch)
    state = RunFolder(Ledger(ledger).unfinished(wanted.key))
    if cause == "recipe":
        recipe.write_text(text + ", lr: 1.0e-5}")
    elif cause == "finished":
        state.write_manifest(state.read_manifest() | {"status": "finished", "final": {"accuracy": 0.5}})
    elif cause == "versions":
        monkeypatch.setattr("bures.experiments._cell.versions", lambda: {"bures": "another"})
    else:
        getattr(state, cause).write_bytes(b"{")
    made = counted_steps(monkeypatch)
    (result,) = run_sweep([wanted], ledger).results
    assert made == list(range(6))
    assert "resumed" not in result
    assert result["recipe"]["lr"] == (1e-5 if cause == "recipe" else 1e-3)


def test_a_cell_on_a_machine_without_the_disk_of_the_ledger_leaves_nothing_there(tmp_path):
    elsewhere = Ledger(tmp_path / "not" / "here" / "ledger.jsonl").unfinished("key")
    assert cell().run(unfinished=elsewhere)["seed"] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_a_sweep_when_what_runs_is_over(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    ledger, wanted = tmp_path / "ledger.jsonl", [ToyCell("a", str(tmp_path), fate="ask"), *cells(tmp_path, 1, 0.0)]
    with pytest.raises(InterruptedSweep, match="SIGTERM") as stop:
        run_sweep(wanted, ledger)
    assert stop.value.number == signal.SIGTERM
    assert [result["key"] for result in read_results(ledger)] == ["a"]
    assert marks(tmp_path) == {"a": 1}
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(run_sweep(wanted, ledger).results) == 2


@pytest.mark.parametrize("asked", [None, 3])
def test_processes_side_by_side_share_the_cores_for_compiling(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", str(asked))
    get_reusable_executor().shutdown(wait=True)  # processes of other tests have settled this
    try:
        found = run_sweep(cells(tmp_path, 2, 0.0), tmp_path / "ledger.jsonl", n_jobs=2).results
    finally:
        get_reusable_executor().shutdown(wait=True)
    assert [result["compilers"] for result in found] == [asked or 4] * 2


def test_a_signal_that_comes_twice_at_once_is_one(tmp_path):
    ledger, wanted = tmp_path / "ledger.jsonl", [ToyCell("a", str(tmp_path), fate="echo"), *cells(tmp_path, 1, 0.0)]
    with pytest.raises(InterruptedSweep, match="SIGTERM"):
        run_sweep(wanted, ledger)
    assert [result["key"] for result in read_results(ledger)] == ["a"]  # what ran is over, and kept


@pytest.mark.parametrize(("fate", "patience"), [("insist", 60.0), ("ask", 0.5)])
def test_a_second_signal_or_the_end_of_patience_ends_it_at_once(fate, patience, tmp_path, monkeypatch):
    monkeypatch.setattr("bures.experiments._sweep.PATIENCE", patience)
    began, ledger = time.monotonic(), tmp_path / "ledger.jsonl"
    with pytest.raises(InterruptedSweep):
        run_sweep([ToyCell("a", str(tmp_path), 30.0, fate), *cells(tmp_path, 1, 0.0)], ledger)
    assert time.monotonic() - began < 20
    assert marks(tmp_path) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("a.mark", f"{os.getpid()}.pid")] == []


def test_a_training_saves_its_state_when_a_signal_ends_the_sweep(tmp_path, monkeypatch):
    ledger, wanted = tmp_path / "ledger.jsonl", [cell("ckb", seed, **LONG) for seed in (0, 1)]
    step = AdaptationModule.training_step

    def asking(module, batch, index):
        if batch.number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(module, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(AdaptationModule, "training_step", asking)
        with pytest.raises(InterruptedSweep):
            run_sweep(wanted, ledger)
    made = counted_steps(monkeypatch)
    sweep = run_sweep(wanted, ledger)
    assert made == [4, 5, *range(6)]
    assert [result.get("resumed") for result in sweep.results] == [[4], None]


def test_a_signal_to_all_processes_of_a_sweep_is_no_failure_of_its_cells(tmp_path):
    process = start(tmp_path, 4, 20.0, 2, start_new_session=True, stderr=subprocess.PIPE)
    wait_for(lambda: len(marks(tmp_path)) == 2)
    os.killpg(process.pid, signal.SIGTERM)
    assert "InterruptedSweep: stopped by SIGTERM" in process.communicate(timeout=60)[1]
    wait_for(lambda: not survivors(tmp_path))
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".mark", ".pid")]
    assert marks(tmp_path) == {"cell00": 1, "cell01": 1}


def start(folder, *arguments, **options):
    script = Path(__file__).parents[1] / "toy_cells.py"
    command = [sys.executable, str(script), str(folder), str(folder / "ledger.jsonl"), *map(str, arguments)]
    return subprocess.Popen(command, **{"stderr": subprocess.DEVNULL, "text": True, **options})


def wait_for(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen within a minute")


def test_a_sweep_that_was_killed_goes_on_and_repeats_nothing_that_is_finished(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    process = start(tmp_path, 8, 0.2, 2)
    wait_for(lambda: ledger.is_file() and len(ledger.read_text().splitlines()) >= 3)
    process.kill()  # SIGKILL
    process.wait()
    finished = [result["key"] for result in read_results(ledger)]
    assert 3 <= len(finished) < 8
    wait_for(lambda: not survivors(tmp_path))
    sweep = run_sweep(cells(tmp_path, 8, 0.0), ledger)
    assert [result["key"] for result in sweep.results] == [f"cell{number:02}" for number in range(8)]
    assert not list(tmp_path.glob(".*"))  # no claims are left
    assert {key: count for key, count in marks(tmp_path).items() if key in finished} == dict.fromkeys(finished, 1)


def test_a_process_that_was_made_ready_behind_the_end_of_its_sweep_runs_nothing(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    work = cells(tmp_path, 1, 0.0)[0]
    with ProcessPoolExecutor(1) as pool:
        begun = pool.submit(_attempt, work, tmp_path / "state", _Place(None, "cpu", gone.pid, 1))
        assert isinstance(begun.exception(60), BrokenProcessPool)
    assert not list(tmp_path.iterdir())


def test_a_sweep_that_runs_in_a_process_of_a_pool_runs_its_cells(tmp_path):
    with ProcessPoolExecutor(1) as pool:
        sweep = pool.submit(run_sweep, cells(tmp_path, 2, 0.0), tmp_path / "ledger.jsonl").result(60)
    assert [result["key"] for result in sweep.results] == ["cell00", "cell01"]


def test_two_sweeps_on_one_ledger_share_the_work(tmp_path):
    sweeps = [start(tmp_path, 12, 0.3, 1) for _ in range(2)]
    assert [sweep.wait(timeout=120) for sweep in sweeps] == [0, 0]
    assert marks(tmp_path) == {f"cell{number:02}": 1 for number in range(12)}
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert sorted(line["key"] for line in lines) == [f"cell{number:02}" for number in range(12)]
    assert not list(tmp_path.glob(".*"))


def test_what_another_sweep_gave_up_is_taken_over_in_the_end(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    others = {name: ledger.claim(name) for name in ("cell00", "cell01")}
    heard = []

    def listen(event):
        heard.append((event.what, event.cell.key))
        if event == ("finished", work[-1], ""):
            others["cell00"].release()

    work = cells(tmp_path, 3, 0.0)
    sweep = run_sweep(work, ledger.path, on_event=listen)
    assert [result["key"] for result in sweep.results] == ["cell00", "cell02"]
    assert [cell.key for cell in sweep.left] == ["cell01"]
    assert heard[-1] == ("elsewhere", "cell01")
    others["cell01"].release()


def test_a_process_that_dies_takes_only_its_own_cell_with_it(tmp_path):
    fates = ["finish", "die", "finish", "raise", "finish"]
    work = [ToyCell(f"cell{number}", str(tmp_path), 0.1, fate) for number, fate in enumerate(fates)]
    sweep = run_sweep(work, tmp_path / "ledger.jsonl", n_jobs=2)
    assert [result["key"] for result in sweep.results] == ["cell0", "cell2", "cell4"]
    assert set(sweep.failures) == {"cell1", "cell3"}
    assert sweep.begun == 5  # what was begun twice, because a process died beside it, counts once
    assert "its process died" in sweep.logs["cell1"].read_text()
    log = sweep.logs["cell3"].read_text()
    assert "toy cell3" in log
    assert "Traceback" in log
    assert "ValueError: nothing to be done" in log
    mended = [ToyCell(f"cell{number}", str(tmp_path)) for number in range(5)]
    assert not run_sweep(mended, tmp_path / "ledger.jsonl").failures
    assert not (tmp_path / "ledger.logs").exists()


def test_no_more_cells_are_begun_than_asked_for(tmp_path):
    work = cells(tmp_path, 4, 0.0)
    first = run_sweep(work, tmp_path / "ledger.jsonl", limit=1)
    assert [cell.key for cell in first.left] == ["cell01", "cell02", "cell03"]
    assert first.begun == 1
    assert run_sweep(work, tmp_path / "ledger.jsonl", minutes=0).left == first.left
    assert set(marks(tmp_path)) == {"cell00"}


def test_processes_that_the_last_cells_of_a_grid_leave_free_begin_the_next(tmp_path):
    # The last cell of the first grid waits for the one of the second, for a minute.
    last = ToyCell("last", str(tmp_path), fate="wait")
    grids = [
        ([*cells(tmp_path, 2, 0.0), last], tmp_path / "first.jsonl"),
        ([ToyCell("next", str(tmp_path), fate="mark")], tmp_path / "second.jsonl"),
    ]
    events = []
    first, second = run_sweeps(grids, n_jobs=2, on_event=lambda event: events.append((event.what, event.cell.key)))
    assert events.index(("started", "next")) < events.index(("finished", "last"))
    assert [result["key"] for result in first.results] == ["cell00", "cell01", "last"]
    assert [result["key"] for result in second.results] == ["next"]
    assert [len(read_results(ledger)) for _, ledger in grids] == [3, 1]


def test_cells_of_several_grids_are_begun_in_order_and_each_for_the_first(tmp_path):
    work, begun = cells(tmp_path, 4, 0.0), []
    grids = [(work[:2], tmp_path / "first.jsonl"), (work[1:], tmp_path / "second.jsonl")]
    note = lambda event: begun.append(event.cell.key) if event.what == "started" else None  # noqa: E731
    first, second = run_sweeps(grids, limit=3, on_event=note)
    assert begun == ["cell00", "cell01", "cell02"]
    assert (first.begun, second.begun) == (2, 1)
    assert [cell.key for cell in second.left] == ["cell03"]
    assert [result["key"] for result in second.results] == ["cell02"]
    assert marks(tmp_path) == dict.fromkeys(begun, 1)
    broken = ToyCell("broken", str(tmp_path), fate="raise")
    first, second = run_sweeps([(work[:2], grids[0][1]), ([broken, *work[2:]], grids[1][1])])
    assert not first.failures
    assert set(second.failures) == {"broken"}
    assert second.logs["broken"].parent == tmp_path / "second.logs"


def test_the_next_sweep_finds_the_processes_of_the_last_one(tmp_path):
    run_sweep(cells(tmp_path, 2, 0.0), tmp_path / "first.jsonl", n_jobs=2, limit=1)
    waiting = {child.pid for child in multiprocessing.active_children()}
    (tmp_path / "second").mkdir()
    run_sweep(cells(tmp_path / "second", 2, 0.0), tmp_path / "second.jsonl", n_jobs=2)
    used = {int(path.stem) for path in (tmp_path / "second").glob("*.pid")}
    assert used
    assert used <= waiting  # each would import torch again


@pytest.mark.filterwarnings("error:A worker stopped")
def test_a_process_that_keeps_its_data_for_the_next_cell_is_not_taken_for_a_leak(tmp_path):
    # Loky looks once a second.
    get_reusable_executor().shutdown()
    try:
        run_sweep([ToyCell(name, str(tmp_path), 1.1, "grow") for name in "abcdef"], tmp_path / "ledger.jsonl", n_jobs=2)
    finally:
        get_reusable_executor().shutdown()  # with what they keep
    assert set(marks(tmp_path)) == set("abcdef")
    assert len(list(tmp_path.glob("*.pid"))) <= 2


@pytest.mark.parametrize("extra", [[], pytest.param([cell("entropy", 1)], marks=pytest.mark.slow, id="a training")])
def test_a_dask_cluster_is_a_change_of_the_backend(tmp_path, extra):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.Client(**options, silence_logs=50):
        work = [*cells(tmp_path, 4, 0.05), ToyCell("broken", str(tmp_path), fate="raise"), *extra]
        sweep = run_sweep(work, tmp_path / "ledger.jsonl", n_jobs=2, backend="dask", accelerator="cpu")
    assert [result["key"] for result in sweep.results] == [each.key for each in work if each.key != "broken"]
    assert "nothing to be done" in sweep.failures["broken"]
    assert len(read_results(tmp_path / "ledger.jsonl")) == len(work) - 1


def result(method, task, seed, accuracy, **by_policy):
    final = {"accuracy": accuracy, "accuracy_by_batchnorm": by_policy or {"training": accuracy}}
    return {"recipe_name": "r", "method": method, "task": task, "seed": seed, "final": final}


def test_tables_give_mean_and_deviation_and_both_source_rows():
    results = [
        result("source", "a->b", 0, 0.5, training=0.5, target=0.6),
        result("ckb", "a->b", 0, 0.90),
        result("ckb", "a->b", 1, 0.94),
        result("ckb", "b->a", 0, 0.8),
    ]
    table = accuracy_table(results)
    assert table.loc[("r", "ckb"), "a->b"] == "92.0 ± 2.8"
    assert table.loc[("r", "ckb"), "b->a"] == "80.0"
    assert table.loc[("r", "source"), "a->b"] == "50.0"
    assert table.loc[("r", "source+adabn"), "a->b"] == "60.0"
    assert table.loc[("r", "source"), "b->a"] == "not run"
    assert "| `r` | ckb | 92.0 ± 2.8 | 80.0 |" in to_markdown(table)


def test_runs_of_a_changed_recipe_are_no_further_seeds_and_nothing_is_a_table_too():
    runs = [result("ckb", "a->b", 0, 0.9), result("ckb", "a->b", 0, 0.5) | {"changes": {"lr": 0.1}}]
    table = accuracy_table(runs, tasks=["a->b", "b->a"])
    assert table["a->b"].to_dict() == {("r", "ckb"): "90.0", ("r", "ckb (lr=0.1)"): "50.0"}
    assert table["b->a"].tolist() == ["not run", "not run"]
    unlabelled = result("ckb", "a->b", 0, 0.9) | {"final": {"accuracy": None}}
    assert accuracy_table([unlabelled]).empty


def test_the_mean_over_tasks_is_that_of_their_means_and_needs_all():
    results = [
        result("ckb", task, seed, 0.1 * (task == "c->d") + 0.5) for task in ("a->b", "b->c", "c->d") for seed in (0, 1)
    ]
    results.append(result("ckw", "a->b", 0, 0.5))
    table = accuracy_table(results)
    assert table.loc[("r", "ckb"), "mean"] == "53.3"
    assert table.loc[("r", "ckw"), "mean"] == "not run"
