"""`bures figure`: files from ledgers and folders, and errors that say what is missing and what makes it."""

import json
import re
from functools import partial

import pytest
from commands import ended, invoke

from bures.cli.figure import NAMES
from bures.figures import figure_info, figure_names

run = partial(invoke, "figure")


def write_ledger(path, **rest):
    epochs = {"target_accuracy": [0.5, 0.75], "ckb": [0.5, 0.25], "means": [0.5, 0.25], "seconds": [1.0, 2.0]}
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as stream:
        for method in ("source", "ckb", "ckw"):
            line = {"key": f"a|b|r|{method}|0", "task": "a->b", "recipe_name": "r", "method": method, "seed": 0}
            line |= {"changes": {}, "recipe": {"options": {"entropy": 0.1, "weight": 1.0}}, "epochs": epochs}
            line |= {"final": {"accuracy": 0.75, "seconds": 2.0}, "hardware": {"accelerator": "a GPU"}, **rest}
            stream.write(json.dumps(line) + "\n")
    return path


@pytest.mark.parametrize("arguments", [(), ("--list",)])
def test_the_list_has_every_figure_and_what_it_reads(arguments):
    shown = {line.split("\t")[0]: line.split("\t") for line in run(*arguments).stdout.splitlines()}
    assert sorted(shown) == figure_names() == sorted(NAMES.split(", "))
    assert shown["hyperparameters"][2].endswith("(hyperparameters.jsonl)")
    assert shown["alignment"][2] == "nothing, it is computed"


@pytest.mark.filterwarnings("ignore:the figure has gaps")
@pytest.mark.parametrize("name", ["ablation", "hyperparameters", "time", "training"])
def test_figures_of_a_ledger_are_written_in_all_formats(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_ledger(tmp_path / "results" / figure_info(name).default)
    done = run(name, "--style", "print")
    assert done.exit_code == 0
    written = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert written == [f"{name}.pdf", f"{name}.png", f"{name}.svg"]
    assert done.stderr.count("Written: ") == 3


def test_an_output_with_a_suffix_is_one_file(tmp_path):
    arguments = ("network", "--network", "lenet")
    assert run(*arguments, "-o", tmp_path / "drawn.v2.PNG").stderr.count("Written: ") == 1
    assert run(*arguments, "-o", tmp_path / "named.svg", "--format", "svg").exit_code == 0  # what is asked for counts
    assert run(*arguments, "-o", tmp_path / "run.v3", "--format", "svg").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn.v2.png", "named.svg.svg", "run.v3.svg"]


def test_a_point_in_the_name_of_an_output_is_no_suffix(tmp_path):
    for name in ("v1.2-figure", "lenet.jpg-like"):
        assert run("network", "--network", "lenet", "-o", tmp_path / name).exit_code == 0
    stems = ("lenet.jpg-like", "v1.2-figure")
    wanted = [f"{stem}.{kind}" for stem in stems for kind in ("pdf", "png", "svg")]
    assert sorted(path.name for path in tmp_path.iterdir()) == wanted


def test_the_ledgers_of_all_grids_are_read_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="results holds no ledger of a grid; make one with: bures bench digits"):
        run("validators")
    scores = {"target_accuracy": [0.5, 0.75], "score_im": [1.0, 2.0], "score_snd": [2.0, 1.0]}
    write_ledger(tmp_path / "results" / "digits.jsonl", epochs=scores)
    write_ledger(tmp_path / "results" / "trials.jsonl", epochs=[])  # the ledger of no grid
    assert run("validators", "--format", "svg").exit_code == 0
    svg = (tmp_path / "validators.svg").read_text()
    assert "digits (3 runs)" in svg
    assert "trials" not in svg


def test_gaps_are_drawn_and_the_command_that_fills_them_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_ledger(tmp_path / "results" / "ablation.jsonl")
    wanted = "not run: bures, kernel-bures, entropy, ckb-no-entropy, class-means; make them with: bures bench ablation "
    with pytest.warns(UserWarning, match=wanted + "--recipes r --methods bures,kernel-bures,entropy"):
        run("ablation", "--format", "svg")
    write_ledger(tmp_path / "results" / "hyperparameters.jsonl")
    with pytest.warns(UserWarning, match="19 of 20 places are not finished; make them with: bures bench hyperparam"):
        run("hyperparameters", "--format", "svg")


def test_the_ablation_takes_runs_that_another_grid_has_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ablation.jsonl does not exist; make it with: bures bench ablation$"):
        run("ablation")
    line = {"key": "usps|mnist|digits|ckb|0", "task": "usps->mnist", "recipe_name": "digits", "method": "ckb"}
    line |= {"seed": 0, "changes": {}, "recipe": {}, "final": {"accuracy": 0.875}}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "digits.jsonl").write_text(json.dumps(line) + "\n")
    others = "bures, kernel-bures, entropy, ckb-no-entropy, class-means, ckw"
    with pytest.warns(UserWarning, match=f"the figure has gaps: not run: {others};"):  # ckb is there
        run("ablation", "--format", "svg", "--recipe", "digits")
    assert (tmp_path / "ablation.svg").is_file()


def test_a_figure_goes_where_it_is_told_in_the_formats_it_is_told(tmp_path):
    ledger = write_ledger(tmp_path / "mine.jsonl")
    run("time", ledger, "--accuracy", "60", "--task", "a:b", "--format", "svg", "-o", tmp_path / "clock")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clock.svg", "mine.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flowers"], "figure 'flowers' is unknown; accepted are ablation, alignment"),
        (["hyperparameters"], "hyperparameters.jsonl does not exist; make it with: bures bench hyperparameters$"),
        (["convergence"], r"make it with: python examples/convergence\.py"),
        (["tsne"], "0 run folders are given; accepted are two"),
        (["tsne", "a", "b"], "a is no run folder; make one with: bures adapt --method source -o a"),
        (["alignment", "x.jsonl"], "is computed and reads nothing, but x.jsonl is given"),
        (
            ["alignment", "--task", "a:b"],
            "--task is no option of the figure 'alignment'; accepted are --samples, --seed",
        ),
        (["network", "--style", "neon"], "--style 'neon' is unknown"),
        (["network", "--format", "gif"], "--format 'gif' is unknown; accepted are svg, pdf, png"),
        (["network", "-o", "f.jpg"], r"--output 'f\.jpg' ends in .*; accepted are \.svg, \.pdf, \.png, or a name"),
        (["network", "-o", "f.v2.TIFF"], r"ends in \.TIFF, which is not written"),
        (["network", "-o", "f.html", "--format", "svg"], r"ends in \.html, which is not written"),
        (["network", "-o", "none/net"], "none is not a folder"),
        (["time", "a.jsonl", "b.jsonl"], "2 inputs are given; accepted is one: a ledger, or run folders"),
    ],
)
def test_errors_name_what_is_wrong_and_nothing_is_written(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        run(*arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:predictions collapsed")
def test_features_of_two_runs_of_embedded_digits(tmp_path):
    quick = ["--set", "epochs=1", "--set", "epoch=2", "--set", "batch_size=16", "--set", "augment=none"]
    command = ["adapt", "--source", "optdigits", "--target", "optdigits", "--recipe", "demo", "--accelerator", "cpu"]
    command += ["--method", "source", "--method", "ckb", *quick, "-o", str(tmp_path / "runs"), "--quiet", "--no-figure"]
    ended(*command)
    folders = [tmp_path / "runs" / name for name in ("source", "ckb")]
    run("time", *folders, "--accuracy", 1, "--format", "svg", "-o", tmp_path / "clock")
    words = re.findall("<!--(.*?)-->", (tmp_path / "clock.svg").read_text())
    assert {"source", "ckb"} <= {word.strip() for word in words}
    done = run("tsne", *folders, "--samples", 60, "--format", "png", "-o", tmp_path / "map")
    assert done.exit_code == 0
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"
