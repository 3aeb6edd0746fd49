"""Tables of grids: numbers from the runs, the paper's beside them, and nothing pretended; in every format."""

import csv
import io
import re
import statistics
from html.parser import HTMLParser

import pytest
from rich.console import Console

from bures.experiments import Grid, accuracy_table, bench_table, load_grid, outcomes, render_table, to_markdown
from bures.experiments._grid import Stage
from bures.experiments._render import FORMATS, latex_text, rich_tables


def result(method, task, seed, accuracy, *, recipe="digits", best=None, curve=None, changes=None, **by_policy):
    source, target = task.split(":")
    return {
        "schema": 2,
        "key": f"{source}|{target}|{recipe}|{method}|{seed}|{changes}",
        "kind": "network",
        "task": f"{source}->{target}",
        "recipe_name": recipe,
        "method": method,
        "seed": seed,
        "changes": changes or {},
        "command": f"bures adapt --method {method} --seed {seed}",
        "final": {
            "accuracy": accuracy,
            "best": {"accuracy": best if best is not None else accuracy},
            "accuracy_by_batchnorm": by_policy or {"training": accuracy},
        },
        "epochs": {"target_accuracy": curve or [accuracy]},
    }


def row(table, method, recipe="digits", variant=""):
    (found,) = [line for line in table.rows if (line.recipe, line.method, line.variant) == (recipe, method, variant)]
    return found


RUNS = [
    *(result("ckb", "usps:mnist", seed, a, best=a - 0.01, curve=[a + 0.02, a]) for seed, a in enumerate([0.9, 0.94])),
    *(result("ckb", "mnist:usps", seed, a) for seed, a in enumerate([0.8, 0.82])),
    result("source", "usps:mnist", 0, 0.5, training=0.5, target=0.6),
    result("target", "usps:mnist", 0, 0.99),
]


def test_every_number_is_made_from_the_runs():
    table = bench_table(load_grid("digits"), RUNS)
    line = row(table, "ckb")
    assert line.entries["usps:mnist"].text() == "92.0 ± 2.8 (2/5)"
    assert line.entries["mnist:usps"].text() == "81.0 ± 1.4 (2/5)"
    # Over tasks: the mean of the means, its deviation that of the seeds' means.
    deviation = statistics.stdev([(90 + 80) / 2, (94 + 82) / 2])
    assert line.mean.text() == f"86.5 ± {deviation:.1f} (2/5)"
    assert line.mean.label_free.mean == pytest.approx((91 + 81) / 2)
    assert line.mean.oracle.mean == pytest.approx((94 + 81) / 2)
    assert row(table, "source").entries["usps:mnist"].text() == "50.0 (1/5)"
    assert row(table, "source").mean.text() == "not run"  # one task is missing
    assert row(table, "source+adabn").entries["usps:mnist"].text() == "60.0 (1/5)"
    assert row(table, "source+adabn").entries["usps:mnist"].text("oracle") == "–"
    assert row(table, "mcc").entries["usps:mnist"].text() == "not run"
    assert table.best("usps:mnist") == 92.0  # the upper bound is no competitor


def test_a_run_that_is_there_twice_counts_once():
    table = bench_table(load_grid("digits"), [*RUNS, *RUNS])
    assert row(table, "ckb").entries["usps:mnist"].last.n == 2


def test_the_deviation_over_tasks_needs_the_same_seeds():
    table = bench_table(load_grid("digits"), RUNS[:-3])
    assert row(table, "ckb").mean.last.sd is None
    assert row(table, "ckb").mean.last.mean == pytest.approx((92 + 80) / 2)


def test_a_row_says_how_many_seeds_it_has_and_a_cell_only_where_it_has_another_number():
    third = [*RUNS, result("ckb", "usps:mnist", 2, 0.92)]
    ckb = row(bench_table(load_grid("digits"), third), "ckb")
    assert ckb.seeds == "2/5"  # as many cells have two seeds as three: the row promises no more than all have
    assert ckb.text(ckb.entries["mnist:usps"]) == "81.0 ± 1.4"
    assert ckb.text(ckb.entries["usps:mnist"]) == "92.0 ± 2.0 (3/5)"
    assert ckb.text(ckb.mean) == "86.5"
    table = bench_table(load_grid("digits"), [result("ckb", "usps:mnist", seed, 0.9) for seed in range(5)])
    whole = row(table, "ckb")
    assert (whole.seeds, whole.text(whole.entries["usps:mnist"])) == ("5", "90.0 ± 0.0")
    assert whole.text(whole.entries["mnist:usps"]) == "not run"
    assert row(table, "ckw").seeds == "0/5"
    assert {line.seeds for line in table.rows if line.from_paper} == {""}


def test_a_row_whose_tasks_were_asked_for_different_numbers_of_seeds_names_both():
    grid = load_grid("office10-images")
    more = next(stage for stage in grid.stages if stage.recipe == "office10" and len(stage.seeds) > 1)
    runs = [
        result("ckw", task, seed, 0.9, recipe="office10") | {"task": grid.task_key(task)}
        for task in grid.tasks for seed in (0, *(more.seeds if task in more.tasks else ()))
    ]  # fmt: skip
    line = row(bench_table(grid, runs), "ckw", "office10")
    assert line.seeds == "1–3"
    assert {line.text(entry) for entry in line.entries.values()} == {"90.0", "90.0 ± 0.0"}
    assert line.text(line.mean) == "90.0"


def test_rows_of_which_nothing_was_run_become_notes():
    shown = bench_table(load_grid("office10-images"), []).finished()
    assert all(line.from_paper for line in shown.rows)
    assert "Not run here: AlexNet, fine-tuned: ckb, ckb+mmd." in shown.notes
    waiting = "Declared and not run yet: office10-best: im, source, source+adabn, cdan+e, "
    assert [note for note in shown.notes if note.startswith(waiting)]


def test_changes_of_a_recipe_make_rows_of_their_own():
    runs = [*RUNS, result("ckb", "usps:mnist", 0, 0.1, changes={"options.eps": 0.1, "augment": "none"})]
    table = bench_table(load_grid("digits"), runs)
    assert row(table, "ckb").entries["usps:mnist"].text() == "92.0 ± 2.8 (2/5)"
    assert row(table, "ckb", variant="augment=none, options.eps=0.1").entries["usps:mnist"].text() == "10.0"


def test_both_kinds_of_tables_name_runs_alike():
    runs = [*RUNS, result("ckb", "usps:mnist", 0, 0.1, changes={"options.eps": 0.1, "augment": "none"})]
    ours = {line.label for line in bench_table(load_grid("digits"), runs, paper=False).rows if not line.is_waiting}
    assert ours == set(accuracy_table(runs).index.get_level_values("method"))
    assert {"ckb", "ckb (augment=none, options.eps=0.1)"} <= ours


def test_a_table_of_results_without_a_grid_is_kept_in_its_columns():
    (line,) = to_markdown(accuracy_table([result("ckb", "a:b", 0, 0.5, changes={"weights": HOSTILE})])).splitlines()[2:]
    assert len(re.split(r"(?<!\\)\|", line)) == 5


def test_lines_of_the_first_schema_are_read():
    old = {
        "key": 'a|b|r|ckb|0|augment="none"',
        "task": "a->b",
        "recipe_name": "r",
        "method": "ckb",
        "seed": 0,
        "final": {"accuracy": 0.5, "best": {"accuracy": 0.4}},
        "epochs": [{"target_accuracy": 0.6}, {"target_accuracy": 0.5}],
    }
    (found,) = outcomes([old])
    assert (found.variant, found.last, found.label_free, found.oracle) == ("augment=none", 50.0, 40.0, 60.0)


def test_the_paper_stands_beside_and_what_was_not_run_is_told():
    table = bench_table(load_grid("digits"), RUNS)
    labels = [(line.from_paper, line.method) for line in table.rows]
    assert labels[labels.index((False, "ckb")) + 1] == (True, "CKB")
    paper = table.rows[labels.index((True, "CKB"))]
    assert paper.entries["usps:mnist"].text() == "96.6 ± 0.4"
    alexnet = bench_table(load_grid("office10-images"), [])
    (line,) = [line for line in alexnet.rows if (line.recipe, line.method) == ("AlexNet, fine-tuned", "ckb")]
    assert {line.entries[task].text(missing=line.missing) for task in alexnet.tasks} == {"not run here"}
    clef = bench_table(load_grid("imageclef"), [])
    assert {line.missing for line in clef.rows if not line.from_paper} == {"not run here"}
    assert "could not be had" in clef.notes[0]
    alexnet = bench_table(load_grid("office10-images"), [])
    assert [line.missing for line in alexnet.rows if line.recipe == "AlexNet, fine-tuned"] == ["not run here"] * 2


def test_rows_of_the_paper_without_one_of_ours_are_named():
    table = bench_table(load_grid("office10-images"), [])
    assert [line.method for line in table.rows if line.method == "GFK"] == ["GFK"]
    (note,) = [note for note in table.notes if "not run here" in note]
    assert note.startswith("In the paper alone, and not run here: GFK, ")
    assert "CKB" not in note
    without = bench_table(load_grid("office10-images"), [], paper=False)
    assert not any("not run here" in note for note in without.notes)


def test_fewer_tasks_and_methods_on_request():
    table = bench_table(load_grid("digits"), RUNS, methods=["ckb"], tasks=["usps:mnist"], recipes=["digits"])
    assert [line.method for line in table.rows] == ["ckb", "CKB"]
    assert table.rows[0].mean.last.mean == 92.0
    assert table.rows[1].mean.last is None  # a mean that the paper does not print


def test_a_row_of_the_paper_whose_method_was_not_asked_for_is_no_row_that_was_not_run():
    table = bench_table(load_grid("office10"), [], recipes=["shallow"])
    assert "CKB" not in {line.method for line in table.rows}
    assert "not run here" not in {line.missing for line in table.rows}


HOSTILE = '=1+1|<script>alert("x")</script>&_%$#{}~^\\'


@pytest.fixture
def hostile():
    domains = {"a": "a", "b": "b"}
    stage = Stage("digits", ("ckb",), (0,), {"weights": HOSTILE}, ("a:b",))
    grid = Grid("mine", f"<b>{HOSTILE}", domains, ("a:b",), (stage,), about=HOSTILE)
    return bench_table(grid, [result("ckb", "a:b", 0, 0.5, changes={"weights": HOSTILE})])


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.rows, self.titles = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.titles += [value for name, value in attrs if name == "title"]

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_html_is_a_page_of_its_own_with_the_commands_behind_the_numbers(hostile):
    text = render_table(bench_table(load_grid("digits"), RUNS), "html")
    page = Page()
    page.feed(text)
    (ckb,) = [line for line in page.rows if line[:2] == ["digits", "ckb"]]
    assert ckb[2:5] == ["2/5", "92.0 ± 2.8", "81.0 ± 1.4"]
    assert "bures adapt --method ckb --seed 0\nbures adapt --method ckb --seed 1" in page.titles
    assert not {"script", "link", "img"} & set(page.tags)
    assert "http" not in text
    assert "92.0 <span>± 2.8</span></b>" in text  # a narrow column breaks before the spread, never within it
    assert text.count("commands that repeat the runs") == 1
    assert "commands that repeat" not in render_table(bench_table(load_grid("digits"), []), "html")
    escaped = render_table(hostile, "html")
    assert "<script" not in escaped
    page = Page()
    page.feed(escaped)
    assert "<script>alert(" in page.rows[1][1]  # as text


def test_csv_has_a_line_for_each_task_and_no_formulas(hostile):
    lines = list(csv.DictReader(io.StringIO(render_table(bench_table(load_grid("digits"), RUNS), "csv"))))
    ours = [line for line in lines if (line["recipe"], line["method"]) == ("digits", "ckb")]
    assert [(line["source"], line["target"]) for line in ours] == [("usps", "mnist"), ("mnist", "usps")]
    assert float(ours[0]["last_mean"]) == 92.0
    assert float(ours[0]["oracle_mean"]) == 94.0
    assert ours[0]["commands"].splitlines() == [f"bures adapt --method ckb --seed {seed}" for seed in (0, 1)]
    assert (ours[0]["seeds"], ours[0]["seeds_declared"]) == ("2", "5")
    assert {line["from"] for line in lines} == {"here", "paper", "not run"}
    bold = bench_table(load_grid("digits"), [result("=cmd", "usps:mnist", 0, 0.5, recipe="+r", changes={"@x": 1})])
    cells = [cell for line in csv.reader(io.StringIO(render_table(bold, "csv"))) for cell in line]
    assert "'=cmd" in cells
    assert not [cell for cell in cells if cell[:1] in "=+@" and cell]


def test_latex_is_set_with_booktabs_and_escaped(hostile):
    text = render_table(bench_table(load_grid("digits"), RUNS), "latex", commands=True)
    assert text.startswith("\\begin{tabular}{llrrrrrr}\n\\toprule\n")
    assert r"digits & ckb & 2/5 & \textbf{92.0 $\pm$ 2.8} &" in text
    assert "usps $\\to$ mnist" in text
    body = text.split("\\end{tabular}")[0]
    assert {line.count("&") for line in body.splitlines() if line.endswith("\\\\")} == {7}
    assert "% bures adapt --method ckb --seed 1" in text
    assert latex_text("a_b & 100% $x$ {y} #1 \\z ~^") == (
        r"a\_b \& 100\% \$x\$ \{y\} \#1 \textbackslash{}z \textasciitilde{}\textasciicircum{}"
    )
    (line,) = [line for line in render_table(hostile, "latex").splitlines() if "ckb" in line]
    assert line.replace(r"\&", "").count("&") == 6


def test_markdown_has_as_many_cells_in_every_line(hostile):
    text = render_table(bench_table(load_grid("digits"), RUNS), commands=True)
    assert "| `digits` | ckb | 2/5 | **92.0 ± 2.8** | **81.0 ± 1.4** |" in text
    assert "\nbures adapt --method ckb --seed 1\n" in text
    lines = [line for line in render_table(hostile).splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in lines} == {8}


def test_a_terminal_gets_parts_that_fit():
    grid = load_grid("office10")
    table = bench_table(grid, [])
    for width in (100, 400):
        console = Console(width=width, record=True, file=io.StringIO())
        for part in rich_tables(table, width):
            console.print(part)
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        heads = " ".join(line for line in lines if "┃" in line)
        assert all(table.head(task) in heads for task in grid.tasks)
        assert "…" not in heads


def test_other_formats_are_refused():
    table = bench_table(load_grid("digits"), [])
    with pytest.raises(ValueError, match="format='pdf' is unknown"):
        render_table(table, "pdf")
    assert FORMATS[0] == "terminal"


def test_names_and_commands_stay_text_in_a_terminal_and_in_latex():
    domains = {"[red]": "a.npz", "[/b]": "b.npz"}
    stage = Stage("office10-features", ("ckb",), (0,), {}, ("[red]:[/b]",))
    grid = Grid("odd", "Odd [/] title", domains, ("[red]:[/b]",), (stage,))
    command = "bures adapt --source 'a\n\\input{secret}'"
    run = {"key": "k", "task": "a.npz->b.npz", "recipe_name": "office10-features", "method": "ckb", "seed": 0}
    table = bench_table(grid, [run | {"final": {"accuracy": 0.5}, "command": command}])
    console = Console(file=io.StringIO(), width=200)
    for part in rich_tables(table, 200):
        console.print(part)
    shown = console.file.getvalue()
    assert "Odd [/] title" in shown
    assert "[red] → [/b]" in shown
    latex = render_table(table, "latex", commands=True).splitlines()
    assert "% \\input{secret}'" in latex
    assert latex[-3:] == [r"\end{tabular}", *(f"% {line}" for line in command.splitlines())]


def test_a_long_name_costs_no_digit_in_a_narrow_terminal():
    changes = {"batch_size": 16, "epochs": 1, "schedule_gamma": 0.001}
    table = bench_table(load_grid("digits"), [result("ckb", "usps:mnist", 0, 0.625, changes=changes)], methods=["ckb"])
    console = Console(file=io.StringIO(), width=60)
    for part in rich_tables(table, 60):
        console.print(part)
    assert " 62.5 │" in console.file.getvalue()
    assert "…" not in console.file.getvalue()
