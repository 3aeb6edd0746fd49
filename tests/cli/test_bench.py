"""`bures bench`: from a grid to its table, on a stand-in of every kind of data."""

import csv
import io
import json
import os
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import ended, invoke
from PIL import Image
from small_runs import vectors

from bures.cli.bench import NAMES
from bures.data import write_features
from bures.experiments import InterruptedSweep, Ledger, Sweep, grid_names, load_grid, read_results
from bures.experiments._cell import load_cached

# Networks that made a few steps predict few classes.
pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed")

QUICK = ["--set", "epochs=1", "--set", "epoch=2", "--set", "batch_size=16", "--set", "hidden=16", "--set", "features=8"]

run = partial(ended, "bench")


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


def test_a_table_is_not_written_over_a_ledger_or_a_grid(grid, tmp_path):
    path, options = grid
    ledger = tmp_path / "results" / "two.jsonl"
    ledger.parent.mkdir()
    show = [*options, "--table-only", "--format", "csv", "-o"]
    with pytest.raises(ValueError, match=r"--output '.*two\.jsonl' is called like a ledger, which keeps runs"):
        run(path, *show, ledger)  # the runs would be kept there before the table is written
    assert not ledger.exists()
    ledger.write_text("")
    (tmp_path / "table.csv").symlink_to(ledger)
    with pytest.raises(ValueError, match="is called like a ledger, which keeps runs; choose another"):
        run(path, *show, tmp_path / "table.csv")
    content = path.read_text()
    with pytest.raises(ValueError, match="is read by this command; choose another file"):
        run(path, *show, path)
    assert (ledger.read_text(), path.read_text()) == ("", content)


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
    assert f"| `shallow` | coral | 1 | **{100 * accuracy:.1f}** |" in second.stdout
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
        ended(*words, *extra)
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
    several = (
        "--methods",
        "ckb",
        "--methods",
        "coral",
        "--seeds",
        "0",
        "--tasks",
        "here:there",
        "--tasks",
        "there:here",
    )
    assert run(path, *options, "--dry-run", *several).stdout.splitlines() == lines
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


def test_data_that_changed_between_runs_are_told(grid, tmp_path):
    path, options = grid
    stages = [{"recipe": "office10-features", "methods": ["ckb", "target", "source"], "seeds": [0]}]
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"stages": stages}))
    chosen = ("--tasks", "here:there")
    run(path, *options, *chosen, *QUICK, "--methods", "ckb,target")
    run(path, *options, "--table-only")
    there = tmp_path / "there.npz"
    arrays = dict(np.load(there))
    np.savez(there, **{name: -array if array.dtype.kind == "f" else array for name, array in arrays.items()})
    load_cached.cache_clear()  # as a process of its own would
    with pytest.warns(UserWarning, match=r"finished runs of here\.npz->there\.npz did not see the same data"):
        run(path, *options, *chosen, *QUICK, "--methods", "source")


def test_failures_are_listed_with_their_logs_and_the_others_are_finished(grid, tmp_path):
    path, options = grid
    wrong = ["--methods", "ckb,coral", "--tasks", "here:there", "--seeds", "0", *options, "--set", "batch_size=4000"]
    result = run(path, *wrong, code=1)
    assert "failed: here.npz|there.npz|office10-features|ckb|0|batch_size=4000" in result.stderr
    (log,) = (tmp_path / "results" / "two.logs").iterdir()
    assert f"log: {log}" in result.stderr
    assert "Traceback" in log.read_text()
    assert " other" not in result.stderr
    assert [entry["method"] for entry in read_results(tmp_path / "results" / "two.jsonl")] == ["coral"]


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex", "html", "csv"])
def test_tables_are_written_to_files(grid, tmp_path, format):
    path, options = grid
    result = run(path, *options, "--table-only", "--format", format, "-o", tmp_path / "table")
    assert result.stdout == ""
    assert "not run" in (tmp_path / "table").read_text(encoding="utf-8")
    assert "has no run of two: name another folder by --results" in " ".join(result.stderr.split())


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
    result = invoke("bench", path, *wrong, "--paired", "ckb", catch=True)
    assert isinstance(result.exception, ValueError)
    assert "failed: here.npz|there.npz|office10-features|ckb|0" in result.stderr


def test_a_result_that_does_not_name_its_recipe_is_shown(grid, tmp_path):
    path, options = grid
    cell = load_grid(path).cells(methods=["ckb"], tasks=["here:there"], seeds=[0])[0]
    result = {"key": cell.key, "task": "here.npz->there.npz", "recipe_name": cell.recipe, "method": "ckb", "seed": 0}
    (tmp_path / "results").mkdir()
    (tmp_path / "results/two.jsonl").write_text(json.dumps(result | {"final": {"accuracy": 0.625}}) + "\n")
    (line,) = [line for line in run(path, *options, "--table-only").stdout.splitlines() if "62.5" in line]
    assert [cell.strip() for cell in line.split("│")[2:5]] == ["ckb", "1/2", "62.5"]


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
        (["digits", "--format", "pdf"], "--format 'pdf'"),
        (["digits", "--backend", "mpi"], "--backend 'mpi'"),
        (["digits", "--scheduler", "x:1"], "--scheduler is given, but --backend is not dask"),
        (["digits", "-o", "none/table"], "none is not a folder"),
        (["digits", "--ranks", "none/ranks.svg"], "none is not a folder"),
        (["digits", "--ranks", "ranks.txt"], "'ranks.txt' ends in no format of figures; accepted are .* pdf, .* svg"),
        (["digits", "--set", "colour=red"], "no field 'colour'"),
        (["digits", "office10", "digit"], "grid='digit' is unknown"),
        (["digits", "office10", "digits"], "the grid digits is named twice"),
        (["digits", "office10", "-o", "x"], "--output FILE takes one grid, and 2 are named; .* digits --table-only"),
        (["digits", "office10", "--ranks", "x.svg"], "--ranks FILE takes one grid"),
        (["digits", "office10", "--format", "html"], "--format html takes one grid"),
        (["digits", "office10", "--methods", "ckb,cbk"], "methods: 'cbk' is in none of the grids; .* ckb, .*gfk"),
        (["digits", "office10", "--tasks", "usps:amazon"], "tasks: 'usps:amazon' is in none of the grids"),
        (["digits", "office10", "--seeds", "0,99"], "seeds: 99 is in none of the grids; accepted are 0, 1, 2, 3, 4"),
        (["digits", "office10", "--recipes", "digit"], "recipes: 'digit' is in none of the grids"),
        (
            ["digits", "office10", "--recipes", "digits", "--methods", "gfk"],
            "nothing of any grid is left; digits: none of the methods gfk is .*; office10: none of the recipes digits",
        ),
        (
            ["digits", "office10", "--recipes", "paper-code", "--seeds", "3"],
            "nothing of any grid is left; digits, office10: no stage has these",
        ),
        (["digits", "office10", "--set", "colour=red"], "left; digits, office10: a recipe has no field 'colour'"),
        (["digits", "office10", "--set", "seed=7"], "left; digits, office10: seed is no change of a cell"),
    ],
)
def test_mistakes_are_told_before_anything_is_run(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        invoke("bench", *arguments, "--limit", "0")


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


def test_a_log_sees_now_and_then_that_the_sweep_goes_on(grid, tmp_path, monkeypatch):
    path, options = grid
    monkeypatch.setattr("bures.cli._sweep_progress.PAUSE", 0.0)
    quiet = run(path, "--methods", "coral", *options, "--limit", 1, "--quiet")
    assert "finished" not in quiet.stderr
    done = run(path, "--methods", "coral", *options)
    last = read_results(tmp_path / "results" / "two.jsonl")[-1]["key"]
    assert done.stderr == f"2 of 2 finished, last {last}\n"


def test_the_help_names_every_grid():
    assert sorted(NAMES.split(", ")) == grid_names()


@pytest.fixture
def grids(grid, tmp_path):
    """The grid above and one of shallow methods alone, which shares a domain with it."""
    path, options = grid
    write_features(tmp_path / "far.npz", vectors(40, seed=3, name="far", shift=3.0))
    content = {
        "title": "Three",
        "domains": {name: f"{name}.npz" for name in ("there", "far")},
        "stages": [{"methods": ["coral", "gfk"], "seeds": [0]}],
    }
    other = tmp_path / "three.yaml"
    other.write_text(yaml.safe_dump(content))
    return [path, other], options


def kept(folder, name):
    """What the ledger of a grid holds, as methods and tasks."""
    ledger = folder / "results" / f"{name}.jsonl"
    return [(result["method"], result["task"]) for result in read_results(ledger)] if ledger.exists() else []


def test_several_grids_are_run_in_their_order_within_one_limit(grids, tmp_path):
    paths, options = grids
    chosen = [*paths, "--methods", "coral,gfk", *options]
    first = run(*chosen, "--limit", 1)
    assert "5 cells are left (1 of two, 4 of three); go on with: bures" in first.stderr
    assert (kept(tmp_path, "two"), kept(tmp_path, "three")) == ([("coral", "here.npz->there.npz")], [])
    second = run(*chosen, "--limit", 2)
    assert "3 cells are left (3 of three); go on with: bures" in second.stderr
    assert kept(tmp_path, "two")[1:] == [("coral", "there.npz->here.npz")]
    assert len(kept(tmp_path, "three")) == 1
    third = run(*chosen, "--format", "markdown")
    assert third.stderr == ""
    assert len(kept(tmp_path, "three")) == 4
    alone = [
        run(path, "--methods", names, *options, "--format", "markdown")
        for path, names in zip(paths, ["coral", "coral,gfk"], strict=True)
    ]
    assert third.stdout == f"## Two\n\n{alone[0].stdout}\n## Three\n\n{alone[1].stdout}"


def test_several_grids_are_one_sweep_with_the_minutes_of_all(grids, tmp_path, monkeypatch):
    paths, options = grids
    asked = []

    def sweeps(grids, **options):
        asked.append(([ledger.stem for _, ledger in grids], options["minutes"]))
        return [Sweep() for _ in grids]

    monkeypatch.setattr("bures.experiments.run_sweeps", sweeps)
    run(*paths, *options, "--minutes", 9)
    assert asked == [(["two", "three"], 9)]


def test_a_failure_in_one_of_several_grids_ends_the_command_after_the_others(grids, tmp_path):
    (path, other), options = grids
    (tmp_path / "here.npz").unlink()
    result = run(path, other, "--methods", "coral,gfk", *options, "--format", "csv", code=1)
    (failed,) = (line for line in result.stderr.splitlines() if line.startswith("failed: "))
    assert failed.endswith("|coral|0 and 1 other")  # both for the same reason
    assert result.stderr.count(f"log: {tmp_path / 'results' / 'two.logs'}") == 1
    assert len(list((tmp_path / "results" / "two.logs").iterdir())) == 2
    assert len(kept(tmp_path, "three")) == 4
    assert result.stdout.count("\nthree,") == 4
    assert run(other, path, "--methods", "coral,gfk", *options, code=1).stdout.startswith("Three")


def test_tables_of_several_grids_are_those_of_each(grids):
    paths, options = grids
    run(*paths, "--methods", "coral,gfk", *options)
    shown = [*options, "--table-only", "--finished"]
    rows = list(csv.reader(io.StringIO(run(*paths, *shown, "--format", "csv").stdout)))
    assert rows[0][0] == "grid"
    for path in paths:
        alone = list(csv.reader(io.StringIO(run(path, *shown, "--format", "csv").stdout)))
        assert [row[1:] for row in rows if row[0] in ("grid", path.stem)] == alone
    both, latex = run(*paths, *shown).stdout, run(*paths, *shown, "--format", "latex").stdout
    for path in paths:
        *table, footnote = run(path, *shown).stdout.splitlines()
        assert "\n".join(table) in both
        assert both.count(footnote) == 1
        assert f"% {load_grid(path).title}\n{run(path, *shown, '--format', 'latex').stdout}" in latex


def test_what_is_to_be_run_of_several_grids_is_listed_by_grid(grids):
    paths, options = grids
    listed = run(*paths, *options, "--dry-run").stdout
    assert listed == "".join(f"# {path.stem}\n{run(path, *options, '--dry-run').stdout}" for path in paths)


@pytest.mark.parametrize(
    ("chosen", "note", "left"),
    [
        (["--methods", "gfk"], "two is skipped: none of the methods gfk is in the grid", ["three"]),
        (["--methods", "source+adabn"], "three is skipped: none of the methods source+adabn is in", ["two"]),
        (["--tasks", "there:far"], "two is skipped: none of the tasks there:far is in the grid", ["three"]),
        (["--seeds", "1"], "three is skipped: none of the seeds 1 is in the grid", ["two"]),
        (["--recipes", "office10-features"], "three is skipped: none of the recipes office10-features", ["two"]),
        (["--methods", "coral,ckb", "--tasks", "here:there,there:far"], "", ["two", "three"]),
        (["--set", "lr=0.5"], "three is skipped: no recipe is left that --set could change", ["two"]),
    ],
)
def test_a_choice_that_is_nothing_of_one_grid_skips_this_one(grids, chosen, note, left):
    paths, options = grids
    done = run(*paths, *options, *chosen, "--dry-run")
    assert [line[2:] for line in done.stdout.splitlines() if line.startswith("# ")] == left
    assert done.stderr.startswith(note) if note else done.stderr == ""


def test_each_of_several_grids_takes_its_own_part_of_a_choice(grids):
    paths, options = grids
    chosen = ["--methods", "gfk,ckb", "--tasks", "here:there,there:far", "--seeds", "0,1"]
    lines = run(*paths, *options, *chosen, "--dry-run").stdout.splitlines()
    words = [line.split()[2:] for line in lines if not line.startswith("#")]
    assert [line[:2] for line in words] == [["bures", "adapt"]] * 2 + [["bures", "bench"]]
    assert run(*paths, *options, *chosen, "--table-only", "--format", "markdown").stdout.count("\n| `") == 2


def test_changes_that_one_of_several_grids_does_not_take_skip_it(grids):
    (path, other), options = grids
    stages = [{"recipe": "office10-features", "methods": ["ckb"], "seeds": [0]}]
    other.write_text(yaml.safe_dump(yaml.safe_load(other.read_text()) | {"stages": stages}))
    done = run(path, other, *options, "--set", "options.eps=0.5", "--dry-run")
    assert done.stderr.startswith("two is skipped: method 'source' has no option 'eps'")
    assert done.stdout.count("--set options.eps=0.5") == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"paper": "none"}, "'none' is unknown"), ({"stages": [{"methods": ["coral"]}]}, "lacks the field 'seeds'")],
)
def test_a_grid_that_cannot_be_used_is_told_before_another_is_run(grids, tmp_path, wrong, message):
    (path, other), options = grids
    other.write_text(yaml.safe_dump(yaml.safe_load(other.read_text()) | wrong))
    with pytest.raises(ValueError, match=message):
        run(path, other, "--methods", "coral", *options)
    assert not (tmp_path / "results").exists()


def test_changes_that_a_grid_declares_and_no_recipe_takes_are_no_reason_to_skip_it(grids, tmp_path):
    (path, other), options = grids
    stages = [{"recipe": "digits", "methods": ["ckb"], "seeds": [0], "changes": {"colour": "red"}}]
    other.write_text(yaml.safe_dump(yaml.safe_load(other.read_text()) | {"stages": stages}))
    with pytest.raises(ValueError, match="no field 'colour'"):
        run(path, other, "--seeds", "0", *options)
    assert not (tmp_path / "results").exists()


def test_a_damaged_ledger_of_the_last_grid_is_told_before_the_first_is_run(grids, tmp_path):
    paths, options = grids
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "three.jsonl").write_text("{\n")
    with pytest.raises(ValueError, match=r"three.jsonl is damaged in line 1"):
        run(*paths, "--methods", "coral", *options)
    assert kept(tmp_path, "two") == []


def test_grids_that_would_share_a_ledger_are_refused(grids, tmp_path):
    (path, _), options = grids
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / path.name
    copy.write_text(path.read_text())
    with pytest.raises(ValueError, match=f"{path} and {copy} would share the ledger two.jsonl; rename one"):
        run(path, copy, *options)


def test_a_run_of_another_grid_is_not_made_again(tmp_path, monkeypatch):
    asked = []

    def sweeps(grids, **options):
        asked.append({ledger.stem: [cell.key for cell in cells] for cells, ledger in grids})
        (cell,), ledger = grids[0]
        words = {"task": f"{cell.source}->{cell.target}", "recipe_name": cell.recipe, "method": cell.method}
        Ledger(ledger).append({"key": cell.key, **words, "seed": cell.seed, "final": {"accuracy": 0.625}})
        return [Sweep() for _ in grids]

    monkeypatch.setattr("bures.experiments.run_sweeps", sweeps)
    chosen = ["--recipes", "digits", "--methods", "ckb", "--tasks", "usps:mnist", "--seeds", "0"]
    options = [*chosen, "--results", tmp_path, "--format", "csv"]
    done = run("digits", "ablation", *options)
    assert done.stdout.count(",62.500,") == 2  # both tables have it
    monkeypatch.setattr("bures.experiments.run_sweeps", lambda grids, **options: asked.append(grids) or [Sweep()])
    run("ablation", *options)
    assert asked[0] == {"digits": ["usps|mnist|digits|ckb|0"], "ablation": ["usps|mnist|digits|ckb|0"]}
    assert asked[1] == [([], tmp_path / "ablation.jsonl")]


def test_several_grids_that_are_stopped_say_how_to_go_on(grids, tmp_path, monkeypatch):
    paths, options = grids

    def sweeps(grids, **options):
        raise InterruptedSweep(15)

    monkeypatch.setattr("bures.experiments.run_sweeps", sweeps)
    done = run(*paths, *options, "--format", "markdown", code=128 + 15)
    assert f"stopped; what is finished is kept in {tmp_path / 'results'}, and" in done.stderr
    assert "Go on with: bures" in done.stderr


def test_paired_tests_of_several_grids_are_those_of_each():
    options = [
        "--results",
        Path(__file__).parents[2] / "results",
        "--table-only",
        "--format",
        "csv",
        "--methods",
        "ckb,ckw",
    ]
    chosen = ["--recipes", "digits,office10-features", "--paired", "ckw"]
    both = run("digits", "office10", "imageclef", *options, *chosen)
    for name, recipe in (("digits", "digits"), ("office10", "office10-features")):
        alone = run(name, *options, "--recipes", recipe, "--paired", "ckw").stderr.splitlines()
        (line,) = (line for line in alone if line.startswith("│ ckb"))
        assert line in both.stderr
        assert f"{load_grid(name).title}: ckw against the others" in " ".join(both.stderr.split())
    assert "imageclef is skipped: none of the recipes" in both.stderr


def test_paired_tests_that_cannot_be_made_in_one_grid_are_made_in_the_others(grids):
    paths, options = grids
    run(*paths, "--methods", "coral,gfk", *options)
    done = run(*paths, *options, "--table-only", "--paired", "gfk")
    assert "Three: gfk against the others" in done.stdout
    assert "two is not tested: reference='gfk' is not among the methods that were run" in done.stderr
    with pytest.raises(ValueError, match=r"two: reference='nope' is not .*; three: reference='nope' is not"):
        run(*paths, *options, "--table-only", "--paired", "nope")
