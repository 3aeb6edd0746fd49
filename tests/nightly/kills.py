"""Kills without warning at random moments of a training, of a sweep and of a stream of moments, each then resumed.

What is resumed must end as if nothing had happened: no file is damaged, nothing that was finished is lost or done
again, and the numbers are the same, bit by bit. Beside these: two processes that resume one run at once, and SIGTERM
while the outcome of a run is written.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import yaml
from small_runs import Child, Trap, differences

import bures
from bures.experiments import read_results
from bures.training import RunFolder
from tests.nightly._processes import (
    begin,
    command_line,
    finish,
    kill_at_random,
    seconds_of,
    tiny_options,
    unreadable,
    write_pair,
)

KILLS = 50  # of each kind of work
OTHERS = 20  # of the other faults
IN_A_ROW = 3  # at most, before the work may end


def run(quick: bool, seed: int) -> dict:
    parts = [("training", trainings, KILLS), ("sweep", sweeps, KILLS), ("moments", streams, KILLS)]
    if quick:  # what is left out is in tests/training/test_run_in_use.py, at chosen moments
        parts = [(name, part, 1) for name, part, _ in parts]
    else:
        parts += [("two resumers", resumers, OTHERS), ("SIGTERM while the outcome is written", terminations, OTHERS)]
    figures: dict = {"failures": []}
    begin(int).join()  # the process that the others are forked from takes seconds to start
    for name, part, count in parts:
        folder = Path(tempfile.mkdtemp(prefix="bures-nightly-"))
        try:
            generator = random.Random(f"{name} {seed}")
            seconds, found = seconds_of(lambda part=part, f=folder, g=generator, n=count: part(f, g, n))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        figures["failures"] += [f"{name}: {failure}" for failure in found.pop("failures")]
        figures[name] = {**found, "seconds": round(seconds, 1)}
    return figures


# ------------------------------------------------------------------------------------------------------- training


def trainings(folder: Path, generator: random.Random, kills: int) -> dict:
    """`bures adapt`, killed and resumed."""
    source, target = write_pair(folder / "data")
    machine = ["--accelerator", "cpu", "--checkpoint-every", 0, "--no-figure", "--quiet"]
    fresh = ["adapt", "--source", source, "--target", target, "--method", "ckb", *tiny_options(), "--set", "queue=20"]
    log, failures, moments, done, runs, late = folder / "log.txt", [], Counter(), 0, 0, 0

    def start(output):
        words = ["--resume", output] if RunFolder(output).exists() else None
        return begin(
            command_line, *(["adapt", *words] if words else [*fresh, "-o", output]), *machine, log=log, temporary=folder
        )

    longest, code = seconds_of(lambda: finish(start(folder / "whole")))
    if code != 0:
        return {"failures": [f"the run that was left alone ended with {code}: {_tail(log)}"]}
    while done < kills:
        output, runs = folder / f"run{runs}", runs + 1
        for _ in range(min(generator.randint(1, IN_A_ROW), kills - done)):
            if not kill_at_random(start(output), longest, generator):
                late, longest = late + 1, 0.95 * longest  # the machine is faster than it was
                break
            done += 1
            moments[_moment(output)] += 1
            failures += [f"run {runs}: {damage}" for damage in unreadable(output)]
        code = finish(start(output))
        if code != 0:
            failures.append(f"run {runs}: resumed after a kill ended with {code}: {_tail(log)}")
            continue
        failures += [f"run {runs}: {name} is not that of a run left alone" for name in _differing(folder, output)]
        failures += [f"run {runs}: {path.name} is left" for path in _litter(output)]
        shutil.rmtree(output)
    return {"kills": done, "runs": runs, "ended_before_the_kill": late, "killed": dict(moments), "failures": failures}


def _moment(output: Path) -> str:
    """What a run was at when it was killed, as its folder tells it."""
    if not RunFolder(output).exists():
        return "before the manifest"
    if RunFolder(output).read_manifest()["status"] == "finished":
        return "in the report"
    if not RunFolder(output).checkpoint.exists():
        return "before the first checkpoint"
    return "in the outcome" if RunFolder(output).model.exists() else "in training"


def _differing(folder: Path, output: Path) -> list[str]:
    missing = [name for name in ("report.html",) if not (output / name).is_file()]
    return [*differences(folder / "whole", output), *missing]


def _litter(output: Path) -> list[Path]:
    return [path for path in output.rglob(".*") if path.suffix == ".partial" or path.name == ".lock"]


def _tail(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split())[-300:] if log.is_file() else ""


# ---------------------------------------------------------------------------------------------------------- sweep


def sweeps(folder: Path, generator: random.Random, kills: int) -> dict:
    """`bures bench` on a grid of six cells, or of four where one kill is enough, killed and started again."""
    write_pair(folder)
    stages = [
        {"recipe": "office10-features", "methods": ["ckb", "source"], "seeds": [0, 1]},
        {"methods": ["coral", "subspace-alignment"], "seeds": [0]},
    ]
    domains = {name: f"{name}.npz" for name in ("here", "there")}
    grid = folder / "tiny.yaml"
    grid.write_text(yaml.safe_dump({"title": "Tiny", "domains": domains, "stages": stages}))
    words = ["bench", grid, "--data-root", folder, "--accelerator", "cpu", "--tasks", "here:there", *tiny_options()]
    words += ["--seeds", 0] if kills == 1 else []
    log, failures, finished, done, runs, late = folder / "log.txt", [], Counter(), 0, 0, 0

    def start(results):
        return begin(command_line, *words, "--results", results, "--quiet", log=log, temporary=folder)

    longest, code = seconds_of(lambda: finish(start(folder / "whole")))
    if code != 0:
        return {"failures": [f"the sweep that was left alone ended with {code}: {_tail(log)}"]}
    whole = _numbers(folder / "whole" / "tiny.jsonl")
    while done < kills:
        results, runs = folder / f"results{runs}", runs + 1
        ledger, lines = results / "tiny.jsonl", []
        for _ in range(min(generator.randint(1, IN_A_ROW), kills - done)):
            if not kill_at_random(start(results), longest, generator):
                late, longest = late + 1, 0.95 * longest  # the machine is faster than it was
                break
            done += 1
            lines = _whole_lines(ledger)
            finished[len(lines)] += 1
        code = finish(start(results))
        if code != 0:
            failures.append(f"sweep {runs}: started again after a kill ended with {code}: {_tail(log)}")
            continue
        if _whole_lines(ledger)[: len(lines)] != lines:
            failures.append(f"sweep {runs}: a line that was finished before the kill has changed")
        if _numbers(ledger) != whole:
            failures.append(f"sweep {runs}: numbers are not those of a sweep left alone")
        keys = [json.loads(line)["key"] for line in _whole_lines(ledger)]
        if len(keys) != len(set(keys)):
            failures.append(f"sweep {runs}: a cell was kept twice")
        failures += [f"sweep {runs}: {path.name} is left" for path in results.glob(".*")]
        shutil.rmtree(results)
    counts = {f"{number} of {len(whole)} cells finished": finished[number] for number in sorted(finished)}
    return {"kills": done, "sweeps": runs, "ended_before_the_kill": late, "killed": counts, "failures": failures}


def _whole_lines(ledger: Path) -> list[str]:
    return ledger.read_text().split("\n")[:-1] if ledger.is_file() else []


def _numbers(ledger: Path) -> dict:
    """What the cells came to, without the time they took."""
    found = {}
    for result in read_results(ledger):
        epochs = result.get("epochs") or {}
        columns = {name: values for name, values in epochs.items() if name != "seconds"}
        final = {name: value for name, value in result["final"].items() if name != "seconds"}
        found[result["key"]] = (final, columns)
    return found


# -------------------------------------------------------------------------------------------------------- moments


def streams(folder: Path, generator: random.Random, kills: int) -> dict:
    """`ConditionalMoments.update_from` with a checkpoint after each chunk, killed and continued."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=60_000)
    np.save(folder / "y.npy", labels)
    np.save(folder / "x.npy", rng.normal(size=(60_000, 6)) + labels[:, None])
    log, failures, chunks, done, runs, late = folder / "log.txt", [], Counter(), 0, 0, 0

    def start(checkpoint):
        return begin(_stream, folder, checkpoint, log=log)

    longest, code = seconds_of(lambda: finish(start(folder / "whole.safetensors")))
    if code != 0:
        return {"failures": [f"the stream that was left alone ended with {code}: {_tail(log)}"]}
    whole = _measured(folder, folder / "whole.safetensors")
    while done < kills:
        checkpoint, runs = folder / f"moments{runs}.safetensors", runs + 1
        for _ in range(min(generator.randint(1, IN_A_ROW), kills - done)):
            if not kill_at_random(start(checkpoint), longest, generator):
                late, longest = late + 1, 0.95 * longest  # the machine is faster than it was
                break
            done += 1
            if not checkpoint.is_file():
                chunks["before the first chunk"] += 1
                continue
            try:
                moments = bures.ConditionalMoments.load(checkpoint, _feature_map(folder))
                chunks["between the first chunk and the last"] += moments.n_samples < len(labels)
                chunks["after the last chunk"] += moments.n_samples == len(labels)
            except ValueError as error:
                failures.append(f"stream {runs}: {error}")
        code = finish(start(checkpoint))
        if code != 0:
            failures.append(f"stream {runs}: continued after a kill ended with {code}: {_tail(log)}")
        elif _measured(folder, checkpoint) != whole:
            failures.append(f"stream {runs}: the moments are not those of a stream left alone")
    killed = {name: count for name, count in chunks.items() if count}
    return {"kills": done, "streams": runs, "ended_before_the_kill": late, "killed": killed, "failures": failures}


def _feature_map(folder: Path):
    return bures.NystroemMap.fit(np.load(folder / "x.npy", mmap_mode="r")[:500], n_landmarks=64)


def _stream(folder: Path, checkpoint: Path) -> None:
    feature_map = _feature_map(folder)
    if checkpoint.is_file():
        moments = bures.ConditionalMoments.load(checkpoint, feature_map)
    else:
        moments = bures.ConditionalMoments(feature_map, 4)
    moments.update_from(folder / "x.npy", folder / "y.npy", chunk=1000, checkpoint=checkpoint)


def _measured(folder: Path, checkpoint: Path) -> tuple:
    """All numbers of the moments, as bytes."""
    state = bures.ConditionalMoments.load(checkpoint, _feature_map(folder)).state_dict()
    return tuple((name, value.numpy().tobytes() if hasattr(value, "numpy") else value) for name, value in state.items())


# ---------------------------------------------------------------------------------------------- two resumers, signals

STEP = ("bures.training._module", "AdaptationModule.training_step")
FINISH = ("bures.training._session", "Session.finish")


def resumers(folder: Path, generator: random.Random, rounds: int) -> dict:
    """Two processes resume one run: one of them does, the other is told who does, or finds the run finished."""
    failures, turned_away = [], 0
    Child(folder / "whole", "vectors").wait()
    for number in range(rounds):
        output = folder / f"run{number}"
        Child(output, "vectors", Trap(*STEP, generator.randint(1, 6), "kill")).wait()
        both = [Child(output, "vectors", resume=True) for _ in range(2)]
        codes = sorted(child.wait() for child in both)
        if codes == [0, 3]:
            turned_away += 1
            message = both[0].message
            if not (
                message.startswith("RunInUseError") and "process " in message and "choose another folder" in message
            ):
                failures.append(f"round {number}: {message}")
        elif codes != [0, 0]:
            failures.append(f"round {number}: the two ended with {codes}")
        failures += [f"round {number}: {name} differs" for name in differences(folder / "whole", output)]
        failures += [f"round {number}: {path.name} is left" for path in _litter(output)]
    return {"rounds": rounds, "second_turned_away": turned_away, "failures": failures}


def terminations(folder: Path, generator: random.Random, rounds: int) -> dict:
    """SIGTERM at a random moment between the last step and the end."""
    failures, stopped = [], 0
    Child(folder / "whole", "vectors").wait()
    longest = None
    for number in range(-1, rounds):
        output = folder / f"run{number}"
        child = Child(output, "vectors", Trap(*FINISH, 1, "wait"))
        child.wait_for_marker()
        begun = time.monotonic()
        child.marker.unlink()
        if longest is None:  # the first is left alone, to see how long the end takes
            child.wait()
            longest = time.monotonic() - begun
            continue
        time.sleep(generator.uniform(0, longest))
        if child.process.is_alive():
            os.kill(child.process.pid, signal.SIGTERM)
        code = child.wait()
        status = json.loads((output / "manifest.json").read_text())["status"]
        stopped += status == "stopped"
        # A signal behind the end, or in the moment in which it is written, is passed on.
        expected = {"stopped": (3,), "finished": (0, -signal.SIGTERM)}
        if code not in expected.get(status, ()):
            failures.append(f"round {number}: exit code {code}, and the manifest says {status}")
        failures += [f"round {number}: {damage}" for damage in unreadable(output)]
        if Child(output, "vectors", resume=True).wait() != 0:
            failures.append(f"round {number}: the run could not be resumed")
            continue
        failures += [f"round {number}: {name} differs" for name in differences(folder / "whole", output)]
    return {"rounds": rounds, "stopped_and_noted": stopped, "failures": failures}
