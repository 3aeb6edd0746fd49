"""One seed, one result: bit by bit, in another process, with other loaders, and from the manifest alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from small_runs import SMALL, adapt, differences, outcome, pictures
from torchvision.utils import save_image

from bures.cli._job import load_job, read_job
from bures.data import load_domain
from bures.methods import method_info, method_names
from bures.training import Recipe
from tests.nightly._processes import begin, command_line, finish, seconds_of, tiny_options, write_pair

WORKERS = (0, 1, 2)
QUICK = ("ckb",)


def run(quick: bool, seed: int) -> dict:
    figures: dict = {"failures": []}
    begin(int).join()  # the process that the others are forked from takes seconds to start
    for name, part in (
        ("the same seed again", same_seed),
        ("numbers of loading processes", loading_processes),
        ("the manifest alone", from_manifest),
    ):
        folder = Path(tempfile.mkdtemp(prefix="bures-nightly-"))
        try:
            seconds, found = seconds_of(lambda p=part, f=folder: p(f, quick, seed))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        figures["failures"] += [f"{name}: {failure}" for failure in found.pop("failures")]
        figures[name] = {**found, "seconds": round(seconds, 1)}
    return figures


# ------------------------------------------------------------------------------------------------ the same seed again


def same_seed(folder: Path, quick: bool, seed: int) -> dict:
    """Every method in two processes; another seed must give something else, or the comparison would see nothing."""
    failures, compared, left_out, other = [], [], {}, 0
    for method in QUICK if quick else method_names():
        log = folder / "log.txt"
        codes = [finish(begin(_train, folder / f"{method}{n}", method, seed, log=log)) for n in range(2)]
        if codes != [0, 0]:
            text = " ".join(log.read_text(errors="replace").split())[-200:]
            if method_info(method).requires and "install bures[" in text:
                left_out[method] = "an optional library is missing"
            else:
                failures.append(f"{method}: exit codes {codes}: {text}")
            continue
        compared.append(method)
        failures += [f"{method}: {name} differs" for name in differences(folder / f"{method}0", folder / f"{method}1")]
    if compared and not failures and not quick:
        finish(begin(_train, folder / "other", compared[0], seed + 1, log=folder / "log.txt"))
        weights = [outcome(folder / name)["model.safetensors"] for name in (f"{compared[0]}0", "other")]
        other = int(weights[0] != weights[1])
        failures += [] if other else ["another seed gives the same weights: nothing is compared"]
    return {"methods": len(compared), "left_out": left_out, "another_seed_differs": other, "failures": failures}


def _train(folder: Path, method: str, seed: int) -> None:
    source, target = pictures(56, seed=1, name="here"), pictures(50, seed=2, name="there", shift=30)
    recipe = Recipe(method=method, network="lenet", augment="affine", seed=seed, **SMALL)
    adapt(source, target, recipe, folder)


# ------------------------------------------------------------------------------------------------ loading processes


def loading_processes(folder: Path, quick: bool, seed: int) -> dict:
    """Image files that are decoded while training, by this process or by others."""
    for part, (number, shift) in {"here": (1, 0), "there": (2, 30)}.items():
        domain = pictures(48, seed=number, shift=shift)
        for index, label in enumerate(domain.labels.tolist()):
            path = folder / part / domain.class_names[label] / f"{index:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            save_image(domain.samples.tensor[index].float() / 255, path)
    failures = []
    numbers = WORKERS[::2] if quick else WORKERS
    for workers in numbers:
        code = finish(begin(_train_on_files, folder, workers, seed, log=folder / "log.txt"))
        failures += [f"n_workers={workers} failed: {(folder / 'log.txt').read_text()[-300:]}"] * (code != 0)
    if not failures:
        for workers in numbers[1:]:
            found = differences(folder / "run0", folder / f"run{workers}")
            failures += [f"n_workers={workers}: {name} is not that of n_workers=0" for name in found]
    return {"numbers": list(numbers), "failures": failures}


def _train_on_files(folder: Path, workers: int, seed: int) -> None:
    # A process of a fork server would start another such server for its loaders, which loads everything again.
    multiprocessing.set_start_method("fork", force=True)
    source, target = (load_domain(str(folder / part), size=8, in_memory=False) for part in ("here", "there"))
    recipe = Recipe(method="ckb", network="lenet", image_size=8, augment="affine", seed=seed, **{**SMALL, "epochs": 1})
    adapt(source, target, recipe, folder / f"run{workers}", in_memory=False, n_workers=workers)


# ------------------------------------------------------------------------------------------------- the manifest alone


def from_manifest(folder: Path, quick: bool, seed: int) -> dict:
    """The command of a finished run's manifest, and its recipe and origin, each in an empty folder."""
    source, target = write_pair(folder / "data")
    words = ["adapt", "--source", source, "--target", target, "--method", "ckw", "--seed", seed, *tiny_options()]
    words += [
        "--set",
        "options.means=0.3",
        "--accelerator",
        "cpu",
        "--no-figure",
        "--no-report",
        "--quiet",
        "-o",
        "run",
    ]
    failures, log = [], folder / "log.txt"
    code = finish(begin(_in_folder, folder / "first", *words, log=log))
    if code != 0:
        return {"failures": [f"the first run ended with {code}: {log.read_text()[-300:]}"]}
    manifest = json.loads((folder / "first/run/manifest.json").read_text())
    program, *again = shlex.split(manifest["command"])
    if program != "bures":
        failures.append(f"the command is of {program}")
    ways = {"command": (_in_folder, again)}
    if not quick:
        ways["recipe"] = (_repeat, [folder / "first/run"])
    for name, (function, arguments) in ways.items():
        code = finish(begin(function, folder / name, *arguments, log=log))
        if code != 0:
            failures.append(f"the {name} of the manifest ended with {code}: {log.read_text()[-300:]}")
            continue
        found = differences(folder / "first/run", folder / name / "run")
        failures += [f"by the {name} of the manifest, {file} differs" for file in found]
    return {"ways": list(ways), "failures": failures}


def _in_folder(folder: Path, *words) -> None:
    folder.mkdir()
    os.chdir(folder)
    command_line(*words)


def _repeat(folder: Path, first: Path) -> None:
    """With nothing of the first run but its manifest."""
    alone = folder / "alone"
    alone.mkdir(parents=True)
    shutil.copy(first / "manifest.json", alone)
    job = read_job(alone)
    source, target, _ = load_job(job, quiet=True)
    adapt(source, target, job.recipe, folder / "run")
