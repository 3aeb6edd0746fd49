"""Fill tables and figures of README.md and of pages in docs/ from results/ and benchmarks/; --check only compares.

A marker is an HTML comment. ``<!-- table NAME -->`` is followed by a table, ``<!-- = QUESTION -->`` by a number and
``<!-- . -->``, never at the beginning of a line, where Markdown would take it for a block of HTML. Questions are

    paper TABLE ROW TASK                    a figure of the paper
    ours GRID RECIPE METHOD TASK            mean and deviation of our runs; METHOD as in the table, with changes of the
                                            recipe, and TASK may be "mean". Where seeds are missing, the section that
                                            has the number says so with the next question
    seeds GRID RECIPE METHOD                how many seeds are finished, such as "one of three seeds"
    paired GRID RECIPE METHOD OTHER FIELD   signed-rank test over tasks of METHOD against OTHER: difference, p or
                                            p_holm. RECIPE may be two, as "a+b", for a method of the one and a
                                            control of the other; methods that both have are named "ckw (a)"
    seed GRID RECIPE METHOD TASK NUMBER     the run with this number in the order of accuracy, from 0; -1 is the best
    trial KEY                               a trial, in results/trials.jsonl
    order GRID RECIPE VALIDATOR             rank correlation of a score with the accuracy over the trials of a recipe
    throughput FIELD                        of the benchmark of whole trainings: a ratio, or images per second
    trials RECIPE METHOD TASK               mean of trials over their seeds, with the task "mean" over all
    default-validator                       what selects an epoch where a recipe does not say
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
from scipy import stats

from bures.experiments import (
    BenchTable,
    accuracy_matrix,
    bench_table,
    epoch_accuracies,
    load_grid,
    outcomes,
    paired_tests,
    paper_table,
    rank_figure,
    rank_methods,
    read_results,
    render_table,
)
from bures.experiments._bench_table import Spread, TableRow
from bures.training import Recipe

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]  # benchmarks and tools are no part of the package

import figure_parts  # noqa: E402
import testing_tables  # noqa: E402
import trial_tables  # noqa: E402
import validator_tables  # noqa: E402
from page_tables import check_only, fill_tables, markdown_table, update  # noqa: E402

from benchmarks import scale  # noqa: E402
from benchmarks.report import machine, read_trainings  # noqa: E402
from benchmarks.table import markdown_table as times_table  # noqa: E402

PAGES = (
    ROOT / "docs" / "results.md",
    ROOT / "docs" / "trials.md",
    ROOT / "README.md",
    ROOT / "docs" / "large_data.md",
    ROOT / "docs" / "testing.md",
    ROOT / "docs" / "selection.md",
    ROOT / "docs" / "figures.md",
)
IMAGES = ROOT / "docs" / "images"

ALIGN_NOTHING = ("source", "source+adabn", "entropy", "im")
CONTROLS = (*ALIGN_NOTHING, "class-means", "mcc")
FAMILY = ("ckb", "ckb+mmd", "ckw")
MAIN = (*CONTROLS, *FAMILY, "target")  # what stands in the first table of a grid; the rest is folded
PRINTED = ("Source", "CKB", "CKB+MMD")  # what of the paper stands there, too
EARLIER = ("office-home-long", "office-home", "office-home-head-start")  # recipes that another has replaced
OVERVIEW = (
    ("USPS → MNIST, LeNet", "digits", ("digits", "digits-best"), "usps:mnist"),
    ("MNIST → USPS, LeNet", "digits", ("digits", "digits-best"), "mnist:usps"),
    ("Office10, frozen ResNet-50", "office10", ("office10-features", "office10-features-best"), "mean"),
    ("Office10, frozen AlexNet (pool5)", "office10-alexnet", ("office10-features",), "mean"),
    (
        "Office10, ResNet-50 fine-tuned",
        "office10-images",
        ("office10", "office10-best", "office10-aligned+office10-best"),
        "mean",
    ),
    (
        "Office-Home, frozen ResNet-50",
        "office-home",
        ("office-home-features", "office-home-features-best", "office-home-features-neighbours"),
        "mean",
    ),
    (
        "Office-Home, ResNet-50 fine-tuned",
        "office-home-images",
        ("office-home-long", "office-home-best", "office-home-aligned+office-home-best", "office-home-neighbours"),
        "mean",
    ),
    ("ImageCLEF-DA, ResNet-50 fine-tuned", "imageclef", ("imageclef",), "mean"),
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


def grid_part(grid: str, *, main: bool) -> str:
    """The rows of a grid that a reader wants first, or all others and what was not run; bold is the best of both."""
    shown = bench_table(load_grid(grid), results(grid)).finished()
    head, line, *lines = render_table(shown).splitlines()
    recipes = list(dict.fromkeys(row.recipe for row in shown.rows if not row.from_paper))

    def is_main(row: TableRow) -> bool:
        if row.from_paper:
            return row.method in PRINTED
        return row.method in MAIN and row.recipe not in ("shallow", *EARLIER)

    def place(row: TableRow) -> tuple[int, int]:
        if row.from_paper:
            return -1, PRINTED.index(row.method)
        return recipes.index(row.recipe), MAIN.index(row.method)

    chosen = [(row, text) for row, text in zip(shown.rows, lines, strict=True) if is_main(row) == main]
    if main:
        chosen.sort(key=lambda pair: place(pair[0]))
    part = "\n".join([head, line, *(text for _, text in chosen)])
    notes = [note for note in shown.notes if note.startswith(("In the paper", "Not run", "Declared")) != main]
    return "\n\n".join([part, *notes])


def digits_short() -> str:
    """The first rows of the digits for the README: both tasks and their mean after the last epoch."""
    head, line, *rows = (text for text in grid_part("digits", main=True).split("\n\n")[0].splitlines())
    keep = (1, 2, 4, 5, 6)  # without seeds, which the text names, and the other choices of the epoch
    own = [row for row in rows if row.startswith(("| paper", "| `digits")) and " | target | " not in row]
    assert {text.split("|")[3].strip() for text in own} <= {"", "5"}, "the README speaks of five seeds"
    return "\n".join(
        "| " + " | ".join(text.split("|")[cell].strip() for cell in keep) + " |" for text in (head, line, *own)
    )


def overview_table() -> str:
    """Means for each way of training on a data set: the paper, our controls, the metric, and the best of ours.

    Of recipes "a+b", b has the controls of a: where methods align nothing, both train in the same way.
    """
    methods = (*ALIGN_NOTHING, *FAMILY)
    heads = ["data, what is trained", "recipe", "seeds", "paper: CKB", "paper: CKB+MMD", *methods, "best of the recipe"]
    lines = []
    for name, grid, recipes, task in OVERVIEW:
        printed = [paper(load_grid(grid).paper or "", row, task).split(" ±")[0] for row in ("CKB", "CKB+MMD")]
        network = paper_table(load_grid(grid).paper or "").network
        same = network.split(",")[0] in name and "frozen" not in name
        printed = [figure if same else f"{figure} *" for figure in printed]
        for recipe in recipes:
            own, _, controls = recipe.partition("+")
            finished = [row for row in table(grid).rows if not row.is_empty]
            rows = {row.label: row for row in finished if row.recipe == controls and row.label in ALIGN_NOTHING}
            rows |= {row.label: row for row in finished if row.recipe == own}
            entries = {label: row.mean if task == "mean" else row.entries[task] for label, row in rows.items()}
            means = {label: entry.last.mean for label, entry in entries.items() if entry.last and label != "target"}
            shown = [f"{means[method]:.1f}" if method in means else "–" for method in methods]
            seeds = dict.fromkeys(rows[method].seeds for method in methods if method in means)
            best = max(means, key=means.__getitem__, default=None)
            last = "not run here" if best is None else f"{best} {means[best]:.1f}"
            if best is not None and rows[best].seeds not in seeds:
                last += f" ({rows[best].seeds})"
            named = f"`{own}`" + (f", controls of `{controls}`" if controls else "")
            lines.append([name, named, ", ".join(seeds), *printed, *shown, last])
    return markdown_table(heads, lines, "ll" + "r" * (len(methods) + 3) + "l")


@cache
def matrix_of(grid: str, recipe: str | None) -> pd.DataFrame:
    """Accuracies of the methods with a recipe or two, by default with the first of the grid and of the shallow ones."""
    recipes = recipe.split("+") if recipe else [load_grid(grid).stages[0].recipe or "", "shallow"]
    return accuracy_matrix(load_grid(grid), results(grid), over="seeds", recipes=recipes)


def paired_table(grid: str, reference: str, recipe: str | None = None) -> str:
    """Signed-rank tests of a method over tasks: against those with the same recipe and, for the first, the shallow."""
    matrix = matrix_of(grid, recipe)
    if reference not in matrix.columns:
        return f"{reference} was not run yet."
    lines = []
    for test in paired_tests(matrix, reference):
        counts = f"{test.wins}, {test.ties}, {test.losses}"
        lines.append([test.method, test.n, f"{test.difference:+.1f}", counts, f"{test.p:.2g}", f"{test.p_holm:.2g}"])
    return markdown_table(("method", "pairs", "difference", "wins, ties, losses", "p", "p (Holm)"), lines, "lrrrrr")


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


def paired(grid: str, recipe: str, method: str, other: str, field: str) -> str:
    """One figure of a signed-rank test over tasks; the corrected p is that of the table with this method."""
    whole = None if recipe == load_grid(grid).stages[0].recipe and grid != "office-home-images" else recipe
    (test,) = [test for test in paired_tests(matrix_of(grid, whole), method) if test.method == other]
    value: float = getattr(test, field)
    return f"{value:+.1f}" if field == "difference" else f"{value:.2g}"


Setting = tuple[str, str]  # method and changes of the recipe
Endings = dict[str, dict[str, Any]]  # by task, how the training of a setting ended


def complete_trials(
    grid: str, recipe: str, among: Callable[[list[str]], bool] = trial_tables.without_neighbours
) -> tuple[dict[str, str], dict[Setting, Endings]]:
    """Trials of a recipe's options on some tasks of a grid: names of the tasks, and how each setting ended on them.

    Of those ``among`` says yes to, given their changes.
    """
    declared = load_grid(grid)
    names = {
        declared.task_key(task): " → ".join(declared.short.get(domain, domain) for domain in task.split(":"))
        for task in declared.tasks
    }
    trials = [run for run in results("trials") if run["seed"] == trial_tables.TRIAL_SEED]
    runs = [run for run in trials if run["recipe_name"] == recipe and run["task"] in names]
    runs = [run for run in runs if among(changes_of(run))]
    counts = Counter(change for run in runs for change in changes_of(run))
    usual = {change for change, count in counts.items() if count > len(runs) / 2}  # the text tells what most have
    found: dict[Setting, Endings] = {}
    for run in runs:
        found.setdefault((run["method"], in_words(unusual(run, usual))), {})[run["task"]] = run["final"]
    tasks = {task: name for task, name in names.items() if any(task in of_task for of_task in found.values())}
    return tasks, {name: of_task for name, of_task in found.items() if set(of_task) == set(tasks)}


def changes_of(run: dict[str, Any]) -> list[str]:
    """What of its recipe a trial changed, as NAME=VALUE."""
    changes: list[str] = run["key"].split("|")[5:]
    return changes


def in_words(changes: list[str]) -> str:
    """Changes of a recipe as a table shows them."""
    return ", ".join(change.removeprefix("options.").replace("=", " = ") for change in changes)


def unusual(run: dict[str, Any], usual: set[str]) -> list[str]:
    """How a trial differs from one with the usual changes; where it leaves one out, by the value of its recipe."""
    own = [change for change in changes_of(run) if change not in usual]
    named = {change.partition("=")[0] for change in changes_of(run)}
    left_out = {change.partition("=")[0] for change in usual} - named
    values = {**asdict(Recipe()), **run["recipe"]}  # fields that are younger than the run have their defaults
    return sorted([*own, *(f"{name}={json.dumps(values[name])}" for name in left_out)])


def mean_scores(complete: dict[Setting, Endings], validator: str) -> dict[Setting, float]:
    """Of each setting, the mean over its tasks."""
    return {name: mean(final["scores"][validator] for final in finals.values()) for name, finals in complete.items()}


def option_trials_table(
    grid: str, recipe: str, among: Callable[[list[str]], bool] = trial_tables.without_neighbours
) -> str:
    """Trials of a recipe's options on some tasks of a grid: accuracies, and the score that the choice was made by."""
    tasks, complete = complete_trials(grid, recipe, among)
    columns = [*(f"{name}, {what}" for what in ("%", "score") for name in tasks.values()), "mean score"]
    lines = []
    scores = mean_scores(complete, "im")
    for name in sorted(complete, key=scores.__getitem__, reverse=True):
        finals = [complete[name][task] for task in tasks]
        cells = [f"{100 * final['accuracy']:.1f}" for final in finals]
        cells += [f"{final['scores']['im']:.3f}" for final in finals]
        lines.append([*name, *cells, f"{scores[name]:.3f}"])
    return markdown_table(["method", "changes", *columns], lines, "ll" + "r" * len(columns))


def ranked_trials_table(grid: str, recipe: str, method: str, among: Callable[[list[str]], bool]) -> str:
    """Trials of a method by the mean rank of all their scores, from the best, which is 1; accuracies stand beside."""
    tasks, complete = complete_trials(grid, recipe, among)
    of_method = {changes: finals for (name, changes), finals in complete.items() if name == method}
    scores = pd.DataFrame(
        {changes: {(task, v): score for task in tasks for v, score in finals[task]["scores"].items()}
         for changes, finals in of_method.items()}
    )  # fmt: skip
    ranks = scores.rank(axis="columns", ascending=False).mean()
    heads = ["changes", "mean rank", *(f"{name}, %" for name in tasks.values()), "mean, %"]
    lines = []
    for changes, rank in ranks.sort_values(kind="stable").items():
        accuracies = [100 * of_method[changes][task]["accuracy"] for task in tasks]
        lines.append([changes or "none", *(f"{value:.1f}" for value in [rank, *accuracies, mean(accuracies)])])
    return markdown_table(heads, lines, "l" + "r" * (len(heads) - 1))


def order(grid: str, recipe: str, validator: str) -> str:
    """Rank correlation of a validator's mean score with the mean accuracy, over the trials of a recipe."""
    _, complete = complete_trials(grid, recipe)
    accuracies = [mean(final["accuracy"] for final in finals.values()) for finals in complete.values()]
    return f"{stats.spearmanr(accuracies, list(mean_scores(complete, validator).values())).statistic:.2f}"


def trials_overview() -> str:
    """How many trials there were of each recipe, in the order in which they were made."""
    lines = []
    recipes = list(dict.fromkeys(run["recipe_name"] for run in results("trials")))
    for recipe in recipes:
        runs = [run for run in results("trials") if run["recipe_name"] == recipe]
        methods = ", ".join(sorted({run["method"] for run in runs}))
        numbers = ", ".join(str(number) for number in sorted({run["seed"] for run in runs}))
        pairs = len({run["task"] for run in runs})
        lines.append([f"`{recipe}`", len(runs), methods, pairs, numbers])
    lines.append(["all", len(results("trials")), "", "", ""])
    return markdown_table(("recipe", "trials", "methods", "pairs of domains", "seeds"), lines, "lrlrl")


def trials_table(recipe: str) -> str:
    """Every trial of a recipe: accuracy after the last epoch by task, mean and deviation over the seeds tried."""
    runs = [run for run in results("trials") if run["recipe_name"] == recipe]
    found: dict[Setting, dict[str, list[float]]] = {}
    invalid = set()  # their final evaluation was left out of the ledger; the epochs are there
    for run in runs:
        name = (run["method"], in_words(changes_of(run)))
        if "final" not in run:
            invalid.add(name)
        last = run["final"]["accuracy"] if "final" in run else epoch_accuracies(run)[-1]
        found.setdefault(name, {}).setdefault(run["task"], []).append(100 * last)
    tasks = sorted({run["task"] for run in runs})
    names = [" → ".join(re.split("[/#]", side)[-1] for side in task.split("->")) for task in tasks]
    lines = []
    for (method, changes), by_task in sorted(found.items()):
        counts = sorted({len(values) for values in by_task.values()})
        number = str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        mark = " ‡" if (method, changes) in invalid else ""
        cells = [str(Spread.of(by_task[task])) + mark if task in by_task else "" for task in tasks]
        lines.append([method, changes, number, *cells])
    note = (
        "‡ The final evaluation of these runs was invalid and is not in the ledger: accuracy noted at their last epoch."
    )
    table = markdown_table(["method", "changes", "seeds", *names], lines, "llr" + "r" * len(names))
    return f"{table}\n\n{note}" if invalid else table


def validators(*, draw: bool) -> str:
    """The study of validators, and its figure."""
    if draw:
        validator_tables.draw(IMAGES / "figure-validators")
    return validator_tables.study_table()


def step_table() -> str:
    """What the alignment costs, on every device that was measured."""
    lines = []
    for device in ("cpu", "cuda"):
        path = ROOT / "benchmarks" / "results" / f"training-step-{device}.json"
        if not path.is_file():
            continue
        manifest = json.loads(path.read_text(encoding="utf-8"))
        for row in manifest["results"]:
            times = [f"{row['ckb_ms']:.1f}", f"{row['without_ms']:.1f}", f"{row['ratio']:.2f}"]
            lines.append([machine(manifest), row["network"], row["batch_size"], *times])
    return markdown_table(("machine", "network", "batch", "step (ms)", "without (ms)", "ratio"), lines, "llrrrr")


def tables(*, draw: bool = False) -> dict[str, Callable[[], str]]:
    """What makes the tables, by name."""
    printed = ("source", "dan", "dann", "kgot", "cdan+e", "etd", "dmp", "ckb", "ckb+mmd")
    found: dict[str, Callable[[], str]] = {"step": step_table, "overview": overview_table}
    found["times"] = times_table
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
        found[grid] = partial(grid_part, grid, main=True)
        found[f"{grid} rest"] = partial(grid_part, grid, main=False)
        found[f"ranks {grid}"] = partial(ranks, grid, draw=draw)
        for method in FAMILY:
            found[f"paired {grid} {method}"] = partial(paired_table, grid, method)
    for grid, recipe in (("office-home", "office-home-features-best"), ("office-home-images", "office-home"),
                         ("office-home-images", "office-home-head-start"),
                         ("office-home-images", "office-home-long"),
                         ("office-home-images", "office-home-best"),
                         ("office-home-images", "office-home-neighbours")):  # fmt: skip
        for method in FAMILY:
            found[f"paired {grid} {recipe} {method}"] = partial(paired_table, grid, method, recipe)
    for grid, aligned in (("office10-images", "office10-aligned"), ("office-home-images", "office-home-aligned")):
        both = f"{aligned}+{aligned.replace('aligned', 'best')}"
        found[f"paired {grid} {aligned} ckw"] = partial(paired_table, grid, f"ckw ({aligned})", both)
    found["trials office-home"] = partial(option_trials_table, "office-home", "office-home-features")
    for recipe in ("office-home-head-start-v1", "office-home-head-start", "office-home-long"):
        found[f"trials {recipe}"] = partial(option_trials_table, "office-home-images", recipe)
    last = ("office-home-images", "office-home-best")
    found["trials office-home-best"] = partial(option_trials_table, *last, trial_tables.with_a_small_gradient)
    found["trials beside the full gradient"] = partial(
        ranked_trials_table, *last, "ckw", trial_tables.with_the_full_gradient
    )
    found |= {name: partial(table.render, trial) for name, table in trial_tables.TABLES.items()}
    found["trials"] = trials_overview
    for recipe in dict.fromkeys(run["recipe_name"] for run in results("trials")):
        found[f"all trials {recipe}"] = partial(trials_table, recipe)
    found["imageclef"] = partial(grid_table, "imageclef", methods=printed, recipes=("imageclef",))
    found["digits-short"] = digits_short
    return found


def paper(name: str, row: str, task: str) -> str:
    """A figure of the paper."""
    (line,) = [line for line in paper_table(name).rows if line.name == row]
    figure, deviation = (line.mean, None) if task == "mean" else line.values[task]
    return f"{figure:.1f}" if deviation is None else f"{figure:.1f} ± {deviation:.1f}"


def ours(grid: str, recipe: str, method: str, task: str) -> str:
    """A figure of ours; the text around it tells with `seeds` where some are missing (`uncounted`)."""
    row = row_of(grid, recipe, method)
    entry = row.mean if task == "mean" else row.entries[task]
    if entry.last is None:
        raise KeyError(f"{grid} has no figure {recipe} {method} {task}")
    return str(entry.last)


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


def row_of(grid: str, recipe: str, method: str) -> TableRow:
    """A row of ours."""
    rows = [row for row in table(grid).rows if (row.recipe, row.label) == (recipe, method)]
    if not rows:
        raise KeyError(f"{grid} has no row {recipe} {method}")
    return rows[0]


def seeds(grid: str, recipe: str, method: str) -> str:
    """How many seeds are behind a row, in words."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    n, *declared = [words[int(number)] for number in re.findall(r"\d+", row_of(grid, recipe, method).seeds)]
    text = row_of(grid, recipe, method).seeds
    if declared:
        return f"{n} of {declared[0]} seeds" if "/" in text else f"{n} to {declared[0]} seeds"
    return f"{n} seed" if n == "one" else f"{n} seeds"


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
    "paper": paper, "ours": ours, "seeds": seeds, "paired": paired, "seed": seed, "trial": trial, "trials": trials,
    "head-start": head_start,
    "before-finish": before_finish,
    "throughput": throughput,
    "order": order,
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


def uncounted(text: str) -> list[str]:
    """Figures of rows that lack seeds, in sections that do not say so."""
    found = []
    for section in re.split(r"^#+ ", text, flags=re.M):
        asked = [shlex.split(question) for question in re.findall(r"<!-- = (.+?) -->", section)]
        told = {tuple(words[1:3]) for words in asked if words[0] == "seeds"}
        for word, *arguments in asked:
            if word == "ours" and "/" in row_of(*arguments[:3]).seeds and tuple(arguments[:2]) not in told:
                found.append(" ".join(arguments))
    return found


def unmarked(text: str) -> list[str]:
    """Numbers with a decimal point in the text of a page that no marker accounts for."""
    text = re.sub(r"<!-- table .*?<!-- end -->|<!-- = .*?<!-- \. -->|```.*?```|`[^`]*`", "", text, flags=re.S)
    return re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)", text)


def main() -> int:
    check = check_only(__doc__)
    stale = [update(page, partial(filled, draw=not check), check=check) for page in PAGES]
    faults = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.stem in ("results", "trials"):
            faults += [f"{page.name}: the number {number} has no marker" for number in unmarked(text)]
        faults += [f"{page.name}: a line begins with {marker}" for marker in misplaced(text)]
        faults += [
            f"{page.name}: seeds are missing of {row}, and the section does not say so" for row in uncounted(text)
        ]
    print("\n".join(faults), end="\n" if faults else "")
    return int(bool(faults) or (check and any(stale)))


if __name__ == "__main__":
    sys.exit(main())
