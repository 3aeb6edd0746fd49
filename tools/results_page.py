"""Fill tables and figures of README.md and of pages in docs/ from results/ and benchmarks/; --check only compares.

A marker is an HTML comment. ``<!-- table NAME -->`` is followed by a table, ``<!-- = QUESTION -->`` by a number and
``<!-- . -->``, never at the beginning of a line, where Markdown would take it for a block of HTML. Questions are

    paper TABLE ROW TASK                    a figure of the paper
    ours GRID RECIPE METHOD TASK            mean and deviation of our runs; METHOD as in the table, with changes of the
                                            recipe, and TASK may be "mean"
    seed GRID RECIPE METHOD TASK NUMBER     the run with this number in the order of accuracy, from 0; -1 is the best
    trial KEY                               a trial, in results/trials.jsonl
    throughput FIELD                        of the benchmark of whole trainings: a ratio, or images per second
    trials RECIPE METHOD TASK               mean of trials over their seeds, with the task "mean" over all
    default-validator                       what selects an epoch where a recipe does not say
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

from bures.experiments import (
    BenchTable,
    accuracy_matrix,
    bench_table,
    load_grid,
    outcomes,
    paired_tests,
    paper_table,
    rank_figure,
    rank_methods,
    read_results,
    render_table,
)

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]  # benchmarks and tools are no part of the package

import figure_parts  # noqa: E402
import testing_tables  # noqa: E402
import validator_tables  # noqa: E402
from page_tables import check_only, fill_tables, update  # noqa: E402

from benchmarks import scale  # noqa: E402
from benchmarks.report import machine, read_trainings  # noqa: E402
from benchmarks.table import markdown_table  # noqa: E402

PAGES = (
    ROOT / "docs" / "results.md",
    ROOT / "README.md",
    ROOT / "docs" / "large_data.md",
    ROOT / "docs" / "testing.md",
    ROOT / "docs" / "selection.md",
    ROOT / "docs" / "figures.md",
)
IMAGES = ROOT / "docs" / "images"

CONTROLS = ("source", "source+adabn", "entropy", "im", "class-means", "mcc")
FAMILY = ("ckb", "ckb+mmd", "ckw")
SUMMARY = (
    ("digits", "usps:mnist"),
    ("digits", "mnist:usps"),
    ("office10", "mean"),
    ("office10-alexnet", "mean"),
    ("office-home", "mean"),
)


@cache
def results(grid: str) -> list[dict[str, Any]]:
    """The runs of a grid; none where there is no ledger yet."""
    path = ROOT / "results" / f"{grid}.jsonl"
    return read_results(path) if path.is_file() else []


@cache
def table(grid: str) -> BenchTable:
    return bench_table(load_grid(grid), results(grid))


def grid_table(
    grid: str,
    *,
    methods: tuple[str, ...] | None = None,
    recipes: tuple[str, ...] | None = None,
    notes: bool = True,
) -> str:
    """The rows of a grid that were run, and the names of those that were not."""
    shown = bench_table(load_grid(grid), results(grid), methods=methods, recipes=recipes).finished()
    text = render_table(shown)
    return "\n\n".join([text, *shown.notes]) if notes else text


def summary_table() -> str:
    """The main recipe of every grid: the metric and the controls, and the paper."""
    heads = [f"{load_grid(grid).title}, {task.replace(':', ' → ')}" for grid, task in SUMMARY]
    lines = ["| method | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for method in (*CONTROLS, *FAMILY, "target"):
        cells = [ours(grid, load_grid(grid).stages[0].recipe or "", method, task) for grid, task in SUMMARY]
        name = f"{method} (upper bound)" if method == "target" else method
        lines.append("| " + " | ".join([name, *cells]) + " |")
    for name in ("CKB", "CKB+MMD"):
        cells = []
        for grid, task in SUMMARY:
            printed = load_grid(grid).paper or ""
            network = paper_table(printed).network
            cells.append(f"{paper(printed, name, task)} ({network})")
        lines.append("| " + " | ".join([f"paper: {name}", *cells]) + " |")
    return "\n".join(lines)


def paired_table(grid: str, reference: str, recipe: str | None = None) -> str:
    """Signed-rank tests of a method over tasks: against those with the same recipe and, for the first, the shallow."""
    recipes = [recipe] if recipe else [load_grid(grid).stages[0].recipe or "", "shallow"]
    matrix = accuracy_matrix(load_grid(grid), results(grid), recipes=recipes)
    if reference not in matrix.columns:
        return f"{reference} was not run yet."
    lines = ["| method | pairs | difference | wins, ties, losses | p | p (Holm) |", "| --- |" + " ---: |" * 5]
    for test in paired_tests(matrix, reference):
        counts = f"{test.wins}, {test.ties}, {test.losses}"
        cells = [test.method, str(test.n), f"{test.difference:+.1f}", counts, f"{test.p:.2g}", f"{test.p_holm:.2g}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ranks(grid: str, *, draw: bool) -> str:
    """The critical-difference diagram of the main recipe and the shallow methods."""
    recipe = load_grid(grid).stages[0].recipe
    matrix = accuracy_matrix(load_grid(grid), results(grid), recipes=[recipe or "", "shallow"])
    try:
        ranking = rank_methods(matrix)
    except ValueError:
        return "Too little was run for a ranking."
    if draw:
        rank_figure(ranking, title=load_grid(grid).title).savefig(IMAGES / f"ranks-{grid}.png", dpi=110)
    return f"![Average ranks on {load_grid(grid).title}](images/ranks-{grid}.png)"


TRIAL_SEED = 100  # by which options were chosen; it is among the seeds of no table


def option_trials_table(grid: str, recipe: str) -> str:
    """Trials of a recipe's options on some tasks of a grid: accuracies, and the score that the choice was made by."""
    declared = load_grid(grid)
    names = {
        declared.task_key(task): " → ".join(declared.short.get(domain, domain) for domain in task.split(":"))
        for task in declared.tasks
    }
    trials = [run for run in results("trials") if run["seed"] == TRIAL_SEED]
    runs = [run for run in trials if run["recipe_name"] == recipe and run["task"] in names]
    changes = {run["key"]: run["key"].split("|")[5:] for run in runs}
    shared = set.intersection(*map(set, changes.values()))  # the text tells what all of them have
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        own = ", ".join(part.removeprefix("options.") for part in changes[run["key"]] if part not in shared)
        found.setdefault(f"{run['method']} | {own.replace('=', ' = ')}", {})[run["task"]] = run["final"]
    tasks = [task for task in names if any(task in of_task for of_task in found.values())]
    heads = [f"{names[task]}, {what}" for what in ("%", "score") for task in tasks]
    lines = ["| method | changes | " + " | ".join([*heads, "mean score"]) + " |"]
    lines.append("| --- | --- |" + " ---: |" * (len(heads) + 1))
    complete = {name: of_task for name, of_task in found.items() if set(of_task) == set(tasks)}
    scores = {name: mean(of_task[task]["scores"]["im"] for task in tasks) for name, of_task in complete.items()}
    for name in sorted(complete, key=scores.__getitem__, reverse=True):
        finals = [complete[name][task] for task in tasks]
        cells = [f"{100 * final['accuracy']:.1f}" for final in finals]
        cells += [f"{final['scores']['im']:.3f}" for final in finals]
        lines.append("| " + " | ".join([name, *cells, f"{scores[name]:.3f}"]) + " |")
    return "\n".join(lines)


def validators(*, draw: bool) -> str:
    """The study of validators, and its figure."""
    if draw:
        validator_tables.draw(IMAGES / "figure-validators")
    return validator_tables.study_table()


def step_table() -> str:
    """What the alignment costs, on every device that was measured."""
    lines = [
        "| machine | network | batch | step (ms) | without (ms) | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for device in ("cpu", "cuda"):
        path = ROOT / "benchmarks" / "results" / f"training-step-{device}.json"
        if not path.is_file():
            continue
        manifest = json.loads(path.read_text(encoding="utf-8"))
        for row in manifest["results"]:
            times = [f"{row['ckb_ms']:.1f}", f"{row['without_ms']:.1f}", f"{row['ratio']:.2f}"]
            lines.append("| " + " | ".join([machine(manifest), row["network"], str(row["batch_size"]), *times]) + " |")
    return "\n".join(lines)


def tables(*, draw: bool = False) -> dict[str, Callable[[], str]]:
    """What makes the tables, by name."""
    printed = ("source", "dan", "dann", "kgot", "cdan+e", "etd", "dmp", "ckb", "ckb+mmd")
    found: dict[str, Callable[[], str]] = {"step": step_table, "summary": summary_table}
    found["times"] = markdown_table
    found |= {
        "level": testing_tables.level_table, "power": testing_tables.power_table, "speed": testing_tables.speed_table,
    }  # fmt: skip
    found |= {
        "validators": partial(validators, draw=draw), "validator verdict": validator_tables.verdict_table,
        "validator failures": validator_tables.failure_table,
    }  # fmt: skip
    found |= figure_parts.parts(draw=draw)
    found["moments"] = lambda: scale.moments_table(scale.measured())
    found["billion"] = lambda: scale.billion_table(scale.measured())
    for grid in ("digits", "office10", "office10-alexnet", "office10-images", "office-home", "office-home-images"):
        found[grid] = partial(grid_table, grid)
        found[f"ranks {grid}"] = partial(ranks, grid, draw=draw)
        for method in FAMILY:
            found[f"paired {grid} {method}"] = partial(paired_table, grid, method)
    for grid, recipe in (("office-home", "office-home-features-best"), ("office-home-images", "office-home"),
                         ("office-home-images", "office-home-head-start"),
                         ("office-home-images", "office-home-long"),
                         ("office-home-images", "office-home-best")):  # fmt: skip
        for method in FAMILY:
            found[f"paired {grid} {recipe} {method}"] = partial(paired_table, grid, method, recipe)
    for name, recipe in (("office-home", "office-home-features"), 2 * ("office-home-features-best",)):
        found[f"trials {name}"] = partial(option_trials_table, "office-home", recipe)
    for recipe in ("office-home-head-start-v1", "office-home-head-start", "office-home-long", "office-home-best"):
        found[f"trials {recipe}"] = partial(option_trials_table, "office-home-images", recipe)
    found["imageclef"] = partial(grid_table, "imageclef", methods=printed, recipes=("imageclef",))
    own = ("digits", "digits-plain", "digits-best")
    found["digits-short"] = partial(grid_table, "digits", methods=(*CONTROLS, *FAMILY), recipes=own, notes=False)
    return found


def paper(name: str, row: str, task: str) -> str:
    """A figure of the paper."""
    (line,) = [line for line in paper_table(name).rows if line.name == row]
    figure, deviation = (line.mean, None) if task == "mean" else line.values[task]
    return f"{figure:.1f}" if deviation is None else f"{figure:.1f} ± {deviation:.1f}"


def ours(grid: str, recipe: str, method: str, task: str) -> str:
    """A figure of ours."""
    rows = [row for row in table(grid).rows if (row.recipe, row.label) == (recipe, method)]
    if not rows:
        raise KeyError(f"{grid} has no row {recipe} {method}")
    return (rows[0].mean if task == "mean" else rows[0].entries[task]).text()


def _runs(grid: str, recipe: str, method: str) -> list[dict[str, Any]]:
    return [run for run in results(grid) if (run["recipe_name"], run["method"]) == (recipe, method)]


def head_start(grid: str, recipe: str, method: str) -> str:
    """Mean accuracy of the head before the backbone was trained with it."""
    return f"{100 * mean(run['head_start']['accuracy'] for run in _runs(grid, recipe, method)):.1f}"


def before_finish(grid: str, recipe: str, method: str) -> str:
    """Mean accuracy of networks whose head was trained on by itself in the end, before that."""
    found = _runs(grid, recipe, method)
    assert all("head_finish" in run for run in found)
    return f"{100 * mean(run['epochs']['target_accuracy'][-1] for run in found):.1f}"


def seed(grid: str, recipe: str, method: str, task: str, number: str) -> str:
    """One of the seeds, in the order of accuracy."""
    key = load_grid(grid).task_key(task)
    found = [run for run in outcomes(results(grid)) if (run.recipe, run.method, run.task) == (recipe, method, key)]
    return f"{sorted(run.last for run in found)[int(number)]:.1f}"


def trial(key: str) -> str:
    """The accuracy of a trial."""
    (found,) = [result for result in results("trials") if result["key"] == key]
    return f"{100 * found['final']['accuracy']:.1f}"


def trials(recipe: str, method: str, task: str) -> str:
    """Mean accuracy of trials over their seeds, and with "mean" over their tasks."""
    found = [run for run in _runs("trials", recipe, method) if task in ("mean", run["task"].replace("->", ":"))]
    return f"{100 * mean(run['final']['accuracy'] for run in found):.1f}"


def throughput(field: str) -> str:
    """A ratio of the benchmark of whole trainings on a GPU, or the images per second of a contestant, in hundreds."""
    (found,) = [manifest for manifest in read_trainings()["throughput"] if "accelerator" in manifest["hardware"]]
    (row,) = found["results"]
    rates = row["images_per_second"]
    return f"{round(rates[field], -2):,.0f}" if field in rates else f"{row[field]:.2f}"


QUESTIONS: dict[str, Callable[..., str]] = {
    "paper": paper, "ours": ours, "seed": seed, "trial": trial, "trials": trials,
    "head-start": head_start,
    "before-finish": before_finish,
    "throughput": throughput,
    "default-validator": validator_tables.default_validator,
}  # fmt: skip


def filled(text: str, *, draw: bool = False) -> str:
    """A page with everything after its markers brought up to date."""

    def fill_number(match: re.Match[str]) -> str:
        word, *arguments = shlex.split(match[2])
        return f"{match[1]}{QUESTIONS[word](*arguments)}<!-- . -->"

    text = fill_tables(text, tables(draw=draw))
    return re.sub(r"(<!-- = (.+?) -->).*?<!-- \. -->", fill_number, text, flags=re.S)


def misplaced(text: str) -> list[str]:
    """Markers of numbers at the beginning of a line."""
    return re.findall(r"^ *<!-- = .*?-->", text, flags=re.M)


def unmarked(text: str) -> list[str]:
    """Numbers with a decimal point in the text of a page that no marker accounts for."""
    text = re.sub(r"<!-- table .*?<!-- end -->|<!-- = .*?<!-- \. -->|```.*?```|`[^`]*`", "", text, flags=re.S)
    return re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)", text)


def main() -> int:
    check = check_only(__doc__)
    stale = [update(page, partial(filled, draw=not check), check=check) for page in PAGES]
    text = PAGES[0].read_text(encoding="utf-8")
    faults = [f"the number {number} has no marker" for number in unmarked(text)]
    faults += [f"a line begins with {marker}" for marker in misplaced(text)]
    for fault in faults:
        print(f"{PAGES[0].name}: {fault}")
    return int(bool(faults) or (check and any(stale)))


if __name__ == "__main__":
    sys.exit(main())
