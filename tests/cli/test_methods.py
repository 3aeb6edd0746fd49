"""`bures methods`: everything there is to choose from, for people and for programs."""

import json
import re
import subprocess
import sys
from functools import partial

import pytest
from commands import printed
from rich.console import Console

from bures.cli.methods import NOTES, _table
from bures.methods import method_info, method_names, method_options

SHIPPED = [name for name in method_names() if method_info(name).paper]  # tests register methods of their own

run = partial(printed, "methods")


def test_a_pipe_gets_a_line_for_each_method():
    lines = {line.split("\t")[0]: line.split("\t") for line in run().splitlines()}
    assert sorted(lines) == method_names()
    assert lines["deepjdot"] == [
        "deepjdot",
        "joint",
        "Optimal transport of features and labels together",
        "Damodaran et al., ECCV 2018",
        method_info("deepjdot").cost,
        "bures[ot]",
    ]


def test_json_has_all_fields_and_the_options():
    found = {entry["name"]: entry for entry in json.loads(run("--json"))}
    assert sorted(found) == method_names()
    assert found["etd"]["requires"] == "ot"
    assert found["dan"]["requires"] is None
    assert found["dan"]["options"] == {name: _plain(value) for name, value in method_options("dan").items()}


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def test_a_terminal_gets_a_table_with_names_whole():
    console = Console(width=100, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(_table([method_info(name) for name in method_names()]))
    text = capture.get()
    for name in SHIPPED:
        assert any(line.split()[0] == name for line in text.splitlines() if line.strip())
    assert "bures[ot]" in text
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize("name", SHIPPED)
def test_every_method_says_what_it_is(name):
    info = method_info(name)
    assert info.name == name
    assert len(info.summary) > 10
    assert ":math" not in info.summary
    assert info.cost
    assert info.matches in ("nothing", "marginal", "joint", "conditional", "predictions")


def test_the_whole_paper_is_there():
    """Deep rows of the paper's tables."""
    deep = {"source", "dan", "dann", "cdan+e", "kgot", "etd", "dmp", "deepjdot", "cycada", "bures", "kernel-bures"}
    assert deep <= set(SHIPPED)


def test_the_notes_explain_every_word_of_the_columns():
    notes = " ".join(NOTES)
    for matches in {method_info(name).matches for name in SHIPPED} - {"nothing"}:
        assert matches in notes
    letters = {letter for name in SHIPPED for letter in re.findall(r"(?<![a-z])[a-zA-Z](?![a-z])", _formula(name))}
    for letter in letters:
        assert re.search(rf"\b{letter}\b", notes)


def _formula(name):
    return re.sub(r"[a-z]{2,}|CPU", " ", method_info(name).cost.replace("HW", "H W "))


def test_an_extra_that_is_missing_is_named_in_one_line():
    code = "import sys; sys.modules['ot'] = None; from bures.cli import main; main()"
    command = [sys.executable, "-c", code, "adapt", "--source", "optdigits", "--target", "mnist5k"]
    done = subprocess.run([*command, "--method", "etd"], capture_output=True, encoding="utf-8")
    assert done.returncode == 2
    assert done.stderr == "error: method 'etd' needs POT; install the extra: pip install \"bures[ot]\"\n"
