"""Faults of the machine: full disks, folders that cannot be written, processes that die, full memory, clocks that jump.

Each must end in a clear error that names a remedy, lose nothing, and leave what can be resumed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import yaml
from small_runs import differences, run_here
from toy_cells import ToyCell, cells

import bures
from bures.experiments import read_results, run_sweep
from bures.training import AdaptationModule, RunFolder, TrainingError
from tests.nightly._processes import begin, command_line, finish, seconds_of, tiny_options, unreadable, write_pair

SIZES = 20  # of disks that are too small, for each kind of work
PAGE = 4096
MACHINE = ["--accelerator", "cpu", "--checkpoint-every", 0, "--no-figure", "--no-report", "--quiet"]


def run(quick: bool, seed: int) -> dict:
    figures: dict = {"failures": []}
    begin(int).join()  # the process that the others are forked from takes seconds to start
    parts = [
        ("full disk, training", full_for_training),
        ("full disk, moments", full_for_moments),
        ("read-only folder", read_only),
        ("full memory", full_memory),
        ("clock that jumps", jumping_clock),
    ]
    if not quick:  # these take longer; tests/experiments has a ledger without room and a process that dies, too
        parts += [("full disk, sweep", full_for_sweep), ("process of a sweep that ends", dying_process)]
    for name, part in parts:
        folder = Path(tempfile.mkdtemp(prefix="bures-nightly-"))
        try:
            generator = random.Random(f"{name} {seed}")
            seconds, found = seconds_of(lambda p=part, f=folder, g=generator: p(f, g, 1 if quick else SIZES))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        figures["failures"] += [f"{name}: {failure}" for failure in found.pop("failures")]
        figures[name] = {**found, "seconds": round(seconds, 1)}
    return figures


# ------------------------------------------------------------------------------------------------------ small disks


class Disk:
    """A place with room for some bytes: a file system of this size, or else a limit on the size of each file."""

    def __init__(self, path: Path, room: int, mounted: bool) -> None:
        self.path, self.room, self.mounted = path, room, mounted

    def begin(self, *words, log: Path, temporary: Path):
        limit = None if self.mounted else self.room
        return begin(_with_limit, limit, *words, log=log, temporary=temporary)

    def make_room(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", self.path], check=True)
        self.room = 2**26


def _with_limit(limit, *words):
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    command_line(*words)


@contextmanager
def small_disk(path: Path, room: int):
    """A `Disk` of a size; mounting is for root alone."""
    path.mkdir(parents=True)
    mounted = _mount(path, f"size={room}")
    try:
        yield Disk(path, room, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", path], check=True)


def _mount(path: Path, options: str) -> bool:
    if shutil.which("mount") is None or os.geteuid() != 0:
        return False
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True).returncode == 0


@cache
def _can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mounted = _mount(Path(folder), "size=1m")
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)
    return mounted


def _how(disk: Disk) -> str:
    return "a file system of this size" if disk.mounted else "a limit on the size of files"


def _used(folder: Path) -> int:
    """Bytes of a file system of pages that a folder takes; with a limit on files, those of the largest."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(-(-size // PAGE) * PAGE for size in sizes) if _can_mount() else max(sizes)


def _complaint(log: Path, code: int, words: tuple[str, ...], codes: tuple[int, ...] = (2,)) -> list[str]:
    """What is wrong with the error that a command ended with."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    if code not in codes:
        return [f"exit code {code}, not {codes[0]}: {' '.join(text.split())[-300:]}"]
    if "Traceback" in text:
        return [f"a traceback: {' '.join(text.split())[-300:]}"]
    if not any(word in text for word in words):
        return [f"no remedy in: {' '.join(text.split())[-300:]}"]
    return []


def full_for_training(folder: Path, generator: random.Random, count: int) -> dict:
    """Disks on which a run does not fit; then there is room, and the run is resumed."""
    source, target = write_pair(folder / "data")
    fresh = ["adapt", "--source", source, "--target", target, "--method", "ckb", *tiny_options(), *MACHINE]
    if finish(begin(command_line, *fresh, "-o", folder / "whole", log=folder / "log.txt", temporary=folder)) != 0:
        return {"failures": ["the run with room enough failed"]}
    most, failures, stages, how = _used(folder / "whole"), [], {}, ""
    for number in range(count):
        with small_disk(folder / f"disk{number}", _room(generator, most)) as disk:
            how, output, log = _how(disk), disk.path / "run", folder / f"log{number}.txt"
            code = finish(disk.begin(*fresh, "-o", output, log=log, temporary=folder))
            failed = code != 0
            stage = _reached(output) if failed else "it had room enough"
            stages[stage] = stages.get(stage, 0) + 1
            if failed:
                words = ("resume the run", "cannot be written", "cannot be made")
                failures += [f"room {disk.room}: {fault}" for fault in _complaint(log, code, words)]
            failures += [f"room {disk.room}: {damage}" for damage in unreadable(output)]
            disk.make_room()
            again = ["adapt", "--resume", output, *MACHINE] if RunFolder(output).exists() else [*fresh, "-o", output]
            code = finish(disk.begin(*again, log=log, temporary=folder))
            if code != 0:
                failures.append(f"resumed with room, it ended with {code}: {log.read_text()[-300:]}")
                continue
            failures += [f"{name} is not that of a run left alone" for name in differences(folder / "whole", output)]
    return {"disks": count, "how": how, "ended": stages, "failures": failures}


def _room(generator: random.Random, most: int) -> int:
    """A number of bytes below what is needed, in pages."""
    return generator.randint(3, max(4, most // PAGE - 1)) * PAGE


def _reached(output: Path) -> str:
    if not RunFolder(output).exists():
        return "before the manifest"
    if not RunFolder(output).checkpoint.exists():
        return "before the first checkpoint"
    return "in the outcome" if RunFolder(output).model.exists() else "in training"


def full_for_sweep(folder: Path, generator: random.Random, count: int) -> dict:
    """Disks on which a ledger does not fit; then there is room, and the sweep goes on."""
    write_pair(folder)
    domains = {name: f"{name}.npz" for name in ("here", "there")}
    stages = [{"methods": ["logistic", "coral", "subspace-alignment", "gfk", "tca", "ckb-map"], "seeds": [0]}]
    (folder / "tiny.yaml").write_text(yaml.safe_dump({"title": "Tiny", "domains": domains, "stages": stages}))
    words = ["bench", folder / "tiny.yaml", "--data-root", folder, "--accelerator", "cpu", "--quiet", "--results"]
    if finish(begin(command_line, *words, folder / "whole", log=folder / "log.txt", temporary=folder)) != 0:
        return {"failures": ["the sweep with room enough failed"]}
    whole, failures, kept, how = _outcomes(folder / "whole/tiny.jsonl"), [], 0, ""
    most = (folder / "whole/tiny.jsonl").stat().st_size
    for number in range(count):
        room = max(1, generator.randint(1, max(1, most // PAGE - 1))) * PAGE + PAGE
        with small_disk(folder / f"disk{number}", room) as disk:
            how, log = _how(disk), folder / f"log{number}.txt"
            if disk.mounted:  # claims and logs need a page each
                disk.path.joinpath("filler").write_bytes(bytes(PAGE))
            code = finish(disk.begin(*words, disk.path / "results", log=log, temporary=folder))
            ledger = disk.path / "results/tiny.jsonl"
            lines = ledger.read_text().split("\n")[:-1] if ledger.is_file() else []
            kept += len(lines)
            if code != 0:
                faults = _complaint(log, code, ("Make room", "No space left", "File too large"), (2, 1))
                failures += [f"room {room}: {fault}" for fault in faults]
            elif len(lines) < len(whole):
                failures.append(f"room {room}: the sweep says it is finished with {len(lines)} of {len(whole)} cells")
            disk.make_room()
            code = finish(disk.begin(*words, disk.path / "results", log=log, temporary=folder))
            if code != 0:
                failures.append(f"with room, it ended with {code}: {log.read_text()[-300:]}")
                continue
            if ledger.read_text().split("\n")[: len(lines)] != lines:
                failures.append(f"room {room}: a line that was finished has changed")
            if _outcomes(ledger) != whole:
                failures.append(f"room {room}: numbers are not those of a sweep left alone")
    return {"disks": count, "how": how, "lines_kept": kept, "failures": failures}


def _outcomes(ledger: Path) -> dict:
    return {
        result["key"]: {name: value for name, value in result["final"].items() if name != "seconds"}
        for result in read_results(ledger)
    }


def full_for_moments(folder: Path, generator: random.Random, count: int) -> dict:
    """A checkpoint of moments that finds no room leaves the one before."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 8)), rng.integers(3, size=400)
    feature_map = bures.NystroemMap.fit(x, n_landmarks=48)
    failures, how = [], ""
    for number in range(count):
        moments = bures.ConditionalMoments(feature_map, 3).update(x[:200], y[:200])
        size = moments.save(folder / "room.safetensors").stat().st_size
        with small_disk(folder / f"disk{number}", (size // PAGE + 3) * PAGE) as disk:
            path = moments.save(disk.path / "moments.safetensors")
            before, how = path.read_bytes(), _how(disk)
            moments.update(x[200:], y[200:])
            try:
                with _no_room(disk, generator.randint(1, size // 2)):
                    moments.save(path)  # beside the one before, for a while
                failures.append("the second checkpoint cannot have fitted")
            except OSError as error:
                if "No space" not in str(error) and "too large" not in str(error):
                    failures.append(f"an unclear error: {error}")
            left = sorted(entry.name for entry in disk.path.iterdir())
            if path.read_bytes() != before or left != ["moments.safetensors"]:
                failures.append(f"the checkpoint of before was not left alone: {left}")
            resumed = bures.ConditionalMoments.load(path, feature_map).update(x[200:], y[200:])
            other = bures.ConditionalMoments(feature_map, 3).update(x[:100], y[:100])
            if resumed.ckb(other) != moments.ckb(other):
                failures.append("the stream that went on from it gives another distance")
    return {"disks": count, "how": how, "failures": failures}


@contextmanager
def _no_room(disk: Disk, limit: int):
    if disk.mounted:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# ---------------------------------------------------------------------------------------------------- read-only folder


def read_only(folder: Path, generator: random.Random, count: int) -> dict:
    """Folders that cannot be written: an error before the work, and what lies there can still be read."""
    source, target = write_pair(folder / "data")
    fresh = ["adapt", "--source", source, "--target", target, "--method", "source", *tiny_options(), *MACHINE]
    place, log, failures = folder / "place", folder / "log.txt", []
    place.mkdir()
    mounted = _mount(place, "size=16m")
    if not mounted and os.geteuid() == 0:
        return {"left_out": "as root, only a file system that is mounted read-only binds", "failures": []}
    try:
        if finish(begin(command_line, *fresh, "-o", place / "run", log=log, temporary=folder)) != 0:
            return {"failures": ["the run with a folder that can be written failed"]}
        _close(place, mounted)
        before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        stages = [{"methods": ["coral"], "seeds": [0]}]
        domains = {name: f"{name}.npz" for name in ("here", "there")}
        (folder / "tiny.yaml").write_text(yaml.safe_dump({"title": "T", "domains": domains, "stages": stages}))
        bench = ["bench", folder / "tiny.yaml", "--data-root", folder / "data", "--quiet"]
        tried = {
            "a new run": ([*fresh, "-o", place / "other"], 2),
            "a sweep": ([*bench, "--results", place], 2),
            "a finished run, resumed": (["adapt", "--resume", place / "run", *MACHINE], 0),
            "a table to be written": (["predict", place / "run", target, "-o", place / "p.csv"], 2),
            "a table written elsewhere": (["predict", place / "run", target, "-o", folder / "p.csv"], 0),
        }
        if count == 1:
            tried = {what: tried[what] for what in ("a new run", "a finished run, resumed")}
        for what, (words, expected) in tried.items():
            log = folder / f"{what}.log"
            code = finish(begin(command_line, *words, log=log, temporary=folder))
            words = (
                "cannot be written",
                "cannot be made",
                "not writable",
                "Read-only file system",
                "Permission denied",
            )
            faults = _complaint(log, code, words) if expected else [f"exit code {code}"] * (code != 0)
            failures += [f"{what}: {fault}" for fault in faults]
        if {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} != before:
            failures.append("what was there has changed")
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", place], check=True)
        else:
            place.chmod(0o755)
    return {"commands": len(tried), "how": "mounted read-only" if mounted else "permissions", "failures": failures}


def _close(place: Path, mounted: bool) -> None:
    if mounted:
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    else:
        place.chmod(0o555)


# ---------------------------------------------------------------------------------------------- processes and memory


@dataclass(frozen=True)
class EndingCell(ToyCell):
    """A cell that ends its process without a word."""

    def run(self, data_root, accelerator, unfinished):
        os._exit(7)


def dying_process(folder: Path, generator: random.Random, count: int) -> dict:
    """A cell that ends its process costs itself alone; where the sweep has one process, what is finished is kept."""
    failures = []
    work = cells(folder, 6, 0.05)
    work.insert(generator.randrange(6), EndingCell("ending", str(folder)))
    sweep = run_sweep(work, folder / "two.jsonl", n_jobs=2)
    if {result["key"] for result in sweep.results} != {cell.key for cell in work} - {"ending"}:
        failures.append(f"of the others, {len(sweep.results)} of 6 are finished")
    if "its process died" not in sweep.failures.get("ending", ""):
        failures.append(f"the cell that ended its process is noted as {sweep.failures}")
    work = [*cells(folder, 3, 0.0), EndingCell("ending", str(folder)), *cells(folder, 6, 0.0)[3:]]
    code = finish(begin(run_sweep, work, folder / "one.jsonl"))
    kept = [result["key"] for result in read_results(folder / "one.jsonl")]
    if code != 7 or kept != ["cell00", "cell01", "cell02"]:
        failures.append(f"one process: exit code {code}, kept {kept}")
    mended = run_sweep([ToyCell("ending", str(folder)), *cells(folder, 6, 0.0)], folder / "one.jsonl")
    if len(mended.results) != 7 or mended.failures:
        failures.append("the mended sweep did not go on")
    return {"sweeps": 3, "failures": failures}


def full_memory(folder: Path, generator: random.Random, count: int) -> dict:
    """Memory of an accelerator that runs out in a step: advice, and a run that can be resumed."""
    failures = []
    run_here(folder / "whole", "vectors")
    original = AdaptationModule.training_step
    for number in range(min(count, 6)):
        output, calls = folder / f"run{number}", itertools.count()

        def step(self, batch, index, calls=calls, last=number):
            if next(calls) == last:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return original(self, batch, index)

        message = ""
        with mock.patch.object(AdaptationModule, "training_step", step):
            try:
                run_here(output, "vectors", checkpoint_every=0.0)
            except TrainingError as error:
                message = str(error)
        wanted = ("ran out with batch_size=16", "a smaller batch_size", "resume the run", "checkpoint")
        failures += [f"step {number}: {word!r} is not in {message!r}" for word in wanted if word not in message]
        if json.loads((output / "manifest.json").read_text())["reason"] != message:
            failures.append(f"step {number}: the manifest has another reason")
        run_here(output, "vectors", resume=True)
        failures += [f"step {number}: {name} differs" for name in differences(folder / "whole", output)]
    return {"steps": min(count, 6), "failures": failures}


# ------------------------------------------------------------------------------------------------------------- clocks


def jumping_clock(folder: Path, generator: random.Random, count: int) -> dict:
    """The clock on the wall jumps by years at every look: durations and results do not care."""
    failures, jumps = [], itertools.cycle([3e7, -9e7, 5e5, -1.0, 6e7])
    real, real_ns = time.time, time.time_ns

    def seconds_on_the_wall():
        return real() + next(jumps)

    def nanoseconds_on_the_wall():
        return real_ns() + int(1e9 * next(jumps))

    with (
        mock.patch.object(time, "time", seconds_on_the_wall),
        mock.patch.object(time, "time_ns", nanoseconds_on_the_wall),
    ):
        run_here(folder / "run", "vectors", checkpoint_every=0.0)
        sweep = run_sweep(cells(folder, 3, 0.01), folder / "ledger.jsonl", minutes=5)
    run_here(folder / "whole", "vectors")
    manifest = json.loads((folder / "run/manifest.json").read_text())
    seconds = [0.0, *(row["seconds"] for row in manifest["epochs"]), manifest["final"]["seconds"]]
    if seconds != sorted(seconds):
        failures.append(f"the seconds of epochs are {seconds}")
    if len(sweep.results) != 3 or sweep.left:
        failures.append("the sweep with minutes=5 did not run its cells")
    if any(not 0.01 <= result["seconds"] < 60 for result in sweep.results):
        failures.append(f"cells took {[result['seconds'] for result in sweep.results]} s")
    failures += [f"{name} differs" for name in differences(folder / "whole", folder / "run")]
    return {"durations": len(seconds) - 1 + len(sweep.results), "failures": failures}
