"""`bures bench`: from a grid to its table, on a stand-in of every kind of data."""

import csv
import io
import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from small_runs import vectors
from typer.testing import CliRunner

from bures.cli._app import app
from bures.cli.bench import NAMES
from bures.data import write_features
from bures.experiments import grid_names, load_grid, read_results

# Networks that made a few steps predict few classes.
pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")

QUICK = ["--set", "epochs=1", "--set", "epoch=2", "--set", "batch_size=16", "--set", "hidden=16", "--set", "features=8"]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture
def grid(tmp_path):
    """A grid of two small domains of feature vectors, in a folder of its own."""
    for name, seed in (("here", 1), ("there", 2)):
        write_features(tmp_path / f"{name}.npz", vectors(40, seed=seed, name=name, shift=float(seed)))
    stages = [
        {"recipe": "office10-features", "methods": ["ckb", "source"], "seeds": [0, 1]},
        {"methods": ["coral"], "seeds": [0]},
    ]
    content = {"title": "Two", "domains": {name: f"{name}.npz" for name in ("here", "there")}, "stages": stages}
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(content))
    return path, ["--data-root", tmp_path, "--results", tmp_path / "results", "--accelerator", "cpu"]


def test_a_grid_is_run_goes_on_and_is_shown(grid, tmp_path):
    path, options = grid
    ledger = tmp_path / "results" / "two.jsonl"
    chosen = ["--tasks", "here:there", *options, *QUICK]
    first = run(path, *chosen, "--limit", 2)
    assert "3 cells are left; go on with: bures" in first.stderr
    assert len(read_results(ledger)) == 2
    second = run(path, *chosen, "--format", "markdown")
    results = read_results(ledger)
    assert [result["method"] for result in results] == ["ckb", "source", "ckb", "source", "coral"]
    accuracy = next(result for result in results if result["method"] == "coral")["final"]["accuracy"]
    assert f"| `shallow` | coral | **{100 * accuracy:.1f}** |" in second.stdout
    before = ledger.read_bytes()
    run(path, *chosen, "--quiet")
    assert ledger.read_bytes() == before


def test_the_command_of_a_cell_repeats_it(grid, tmp_path, monkeypatch):
    path, options = grid
    run(path, "--tasks", "here:there", "--seeds", 0, *options, *QUICK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BURES_DATA", str(tmp_path))
    for result in read_results(tmp_path / "results" / "two.jsonl"):
        words = shlex.split(result["command"])[1:]
        extra = ["-o", "again", "--accelerator", "cpu", "--no-figure"] if words[0] == "adapt" else []
        done = CliRunner().invoke(app, [*words, *extra], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        if words[0] == "adapt":
            again = json.loads(Path("again/manifest.json").read_text())
            Path("again").rename(f"again-{result['method']}")
        else:
            (again,) = read_results("results-local/two.jsonl")
        assert again["final"]["accuracy"] == pytest.approx(result["final"]["accuracy"], abs=1e-6)
        assert again["data"]["target"]["checksum"] == result["data"]["target"]["checksum"]


def test_what_is_to_be_run_is_listed_with_commands(grid):
    path, options = grid
    lines = run(path, *options, "--dry-run", "--methods", "ckb,coral", "--seeds", "0-0").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["to"] * 4
    command = "bures adapt --source here.npz --target there.npz --recipe office10-features --method ckb --seed 0"
    assert lines[0] == f"to run   {command}"
    assert run(path, *options, "--table-only").stdout.count("not run") > 4


def test_a_recipe_that_changed_since_is_told(grid, tmp_path):
    path, options = grid
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("{network: identity, epochs: 1, epoch: 2, batch_size: 16, hidden: 16, features: 8, lr: 0.1}")
    stages = [{"recipe": str(recipe), "methods": ["source"], "seeds": [0], "tasks": ["here:there"]}]
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"stages": stages}))
    run(path, *options)
    run(path, *options, "--table-only")
    recipe.write_text(recipe.read_text().replace("lr: 0.1", "lr: 0.2, options: {eps: 0.5}"))
    with pytest.warns(UserWarning, match="1 finished runs of .*mine.yaml were made .* other values of lr; they"):
        run(path, *options, "--table-only")


def test_failures_are_listed_with_their_logs_and_the_others_are_finished(grid, tmp_path):
    path, options = grid
    wrong = ["--methods", "ckb,coral", "--tasks", "here:there", "--seeds", "0", *options, "--set", "batch_size=4000"]
    result = run(path, *wrong, code=1)
    assert "failed: here.npz|there.npz|office10-features|ckb|0|batch_size=4000" in result.stderr
    (log,) = (tmp_path / "results" / "two.logs").iterdir()
    assert f"log: {log}" in result.stderr
    assert "Traceback" in log.read_text()
    assert [entry["method"] for entry in read_results(tmp_path / "results" / "two.jsonl")] == ["coral"]


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex", "html", "csv"])
def test_tables_are_written_to_files(grid, tmp_path, format):
    path, options = grid
    result = run(path, *options, "--table-only", "--format", format, "-o", tmp_path / "table")
    assert result.stdout == ""
    assert "not run" in (tmp_path / "table").read_text(encoding="utf-8")


def test_a_home_folder_is_found_where_the_shell_leaves_it_to_the_command(grid, tmp_path, monkeypatch):
    path, options = grid
    monkeypatch.setenv("HOME", str(tmp_path))
    run(path, *options, "--table-only", "--output=~/found.txt")
    assert (tmp_path / "found.txt").is_file()


def test_paired_tests_and_ranks_are_made_from_the_ledger(tmp_path):
    results = Path(__file__).parents[2] / "results"
    picture = tmp_path / "ranks.png"
    options = ["--results", results, "--table-only", "--recipes", "digits"]
    shown = run("digits", *options, "--paired", "ckw", "--ranks", picture)
    assert "ckw against the others" in shown.stdout
    with Image.open(picture) as image:
        assert image.width > 500


def test_paired_tests_are_made_over_the_tasks_asked_for_and_stay_out_of_a_table_that_is_piped():
    results = Path(__file__).parents[2] / "results"
    options = ["--results", results, "--table-only", "--recipes", "digits", "--methods", "ckb,ckw", "--paired", "ckw"]
    done = run("digits", *options, "--tasks", "usps:mnist", "--format", "csv")
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert {len(row) for row in rows} == {len(rows[0])}
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("│ ckb"))
    assert line.split("│")[2].strip() == "5"  # seeds of the one task


def test_failures_are_listed_where_the_tests_cannot_be_made(grid):
    path, options = grid
    wrong = ["--methods", "ckb", "--tasks", "here:there", "--seeds", "0", *options, "--set", "batch_size=4000"]
    result = CliRunner().invoke(app, ["bench", *map(str, [path, *wrong, "--paired", "ckb"])])
    assert isinstance(result.exception, ValueError)
    assert "failed: here.npz|there.npz|office10-features|ckb|0" in result.stderr


def test_a_result_that_does_not_name_its_recipe_is_shown(grid, tmp_path):
    path, options = grid
    cell = load_grid(path).cells(methods=["ckb"], tasks=["here:there"], seeds=[0])[0]
    result = {"key": cell.key, "task": "here.npz->there.npz", "recipe_name": cell.recipe, "method": "ckb", "seed": 0}
    (tmp_path / "results").mkdir()
    (tmp_path / "results/two.jsonl").write_text(json.dumps(result | {"final": {"accuracy": 0.625}}) + "\n")
    assert "62.5 (1/2)" in run(path, *options, "--table-only").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digit"], "grid='digit' is unknown"),
        (["digits", "--methods", "cbk"], "methods: 'cbk' is not in the grid"),
        (["digits", "--seeds", "x"], "'x' is no seed; accepted are 0,1 or 0-4"),
        (["digits", "--seeds", "3-1"], "'3-1' is no seed; accepted are 0,1 or 0-4"),
        (["digits", "--seeds", "1-"], "'1-' is no seed; accepted are 0,1 or 0-4"),
        (["digits", "--set", "method=source"], "method is no change of a cell"),
        (["digits", "--set", "seed=7"], "seed is no change of a cell"),
        (["digits", "--seeds", "3", "--recipes", "paper-code"], "no cell of digits is left"),
        (["digits", "--format", "pdf"], "format='pdf'"),
        (["digits", "--backend", "mpi"], "backend='mpi'"),
        (["digits", "--scheduler", "x:1"], "--scheduler is given, but --backend is not dask"),
        (["digits", "-o", "none/table"], "none is not a folder"),
        (["digits", "--set", "colour=red"], "no field 'colour'"),
    ],
)
def test_mistakes_are_told_before_anything_is_run(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        CliRunner().invoke(app, ["bench", *arguments, "--limit", "0"], catch_exceptions=False)


@pytest.fixture
def imageclef(tmp_path):
    """A stand-in for ImageCLEF-DA: its domains, classes and numbers of images, with a colour for each class."""
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 255, size=(12, 3))
    for shift, domain in enumerate("cip"):
        for label, colour in enumerate(colours):
            folder = tmp_path / "imageclef-da" / domain / f"class{label:02}"
            folder.mkdir(parents=True)
            for number in range(50):
                noise = rng.integers(-20, 20, size=(8, 8, 3)) + 15 * shift
                Image.fromarray((colour + noise).clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path


def test_imageclef_runs_on_a_stand_in_of_its_shape(imageclef, tmp_path):
    tiny = {"network": "lenet", "weights": "null", "image_size": 12, "precision": "32-true", "augment": "none"}
    tiny |= {"backbone_batchnorm": "training", "hidden": 32, "features": 16, "epochs": 1, "epoch": 12}
    changes = [word for name, value in tiny.items() for word in ("--set", f"{name}={value}")]
    run(
        *("imageclef", "--methods", "ckb", "--tasks", "I:P", "--seeds", "0", "--recipes", "imageclef"),
        *("--data-root", imageclef, "--results", tmp_path / "results", "--accelerator", "cpu", *changes),
    )
    (result,) = read_results(tmp_path / "results" / "imageclef.jsonl")
    assert result["task"] == "imageclef-da/i->imageclef-da/p"
    assert [result["data"][side]["samples"] for side in ("source", "target")] == [600, 600]
    assert result["final"]["accuracy"] > 1 / 12
    assert not [note for note in result["notes"] if "image files" in note]  # the numbers are those of the set


def test_imageclef_says_what_it_needs_where_the_images_are_not(tmp_path):
    result = run("imageclef", "--limit", 1, "--data-root", tmp_path, "--results", tmp_path / "results", code=1)
    assert "ImageCLEF-DA is not in" in result.stderr
    assert "not run here" in result.stdout


@pytest.mark.skipif("BURES_DATA" not in os.environ, reason="BURES_DATA names no data")
@pytest.mark.parametrize("name", ["office10", "office10-alexnet", "office-home"])
def test_the_feature_files_are_where_the_grids_look_for_them(name):
    from bures.data import load_domain

    grid = load_grid(name)
    for spec in grid.domains.values():
        if not Path(os.environ["BURES_DATA"], spec.partition("#")[0]).is_file():
            pytest.skip(f"{spec} is not there")
        assert load_domain(spec).labels is not None


def test_nothing_but_the_table_is_printed_where_there_is_no_terminal(grid):
    path, options = grid
    done = run(path, "--methods", "coral", *options, "--format", "csv")
    assert done.stderr == ""
    assert done.stdout.startswith("recipe,method,variant,from,source,target")


def test_the_help_names_every_grid():
    assert sorted(NAMES.split(", ")) == grid_names()
