"""The list of commands, which is shown without importing them."""

import numpy as np
import pytest
import typer
from commands import invoke
from rich.text import Text

from bures.cli._app import app
from bures.cli._commands import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_summaries_are_the_beginning_of_each_commands_own_help(name):
    command = typer.main.get_command(app).load(name)
    assert command.name == name
    assert command.help.split("\n\n")[0] == COMMANDS[name].summary


def test_the_help_lists_all_commands_in_their_order():
    shown = Text.from_ansi(invoke("--help").output).plain
    rows = shown.split("Commands")[1].splitlines()
    listed = [row.split()[1] for row in rows if row.startswith("│ ") and row[2] != " "]
    assert listed == list(COMMANDS)


def test_a_mistyped_command_is_told_the_one_that_may_be_meant():
    done = invoke("adpt")
    assert done.exit_code == 2
    assert "Did you mean 'adapt'?" in done.output


def test_a_command_is_found_again_after_it_was_loaded():
    group = typer.main.get_command(app)
    assert group.load("shift") is group.load("shift") is group.commands["shift"]
    assert group.load("shift").params


@pytest.mark.filterwarnings("ignore:predictions collapsed")
def test_a_home_folder_is_found_behind_an_option_where_shells_leave_it_to_the_command(tmp_path, monkeypatch):
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    x = np.random.default_rng(0).normal(size=(24, 2))
    for name, moved in (("here.npz", x), ("there.npz", x + 1)):
        np.savez(home / name, x=moved, y=np.arange(24) % 2)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    data = ["--source=here.npz", "--target=there.npz", "--data-root=~"]
    train = ["--method=source", "--epochs=1", "--set=hidden=4", "--set=features=4", "--no-figure", "--accelerator=cpu"]
    done = invoke("adapt", *data, *train, "--output=~/run")
    assert done.exit_code == 0
    assert (home / "run" / "model.safetensors").is_file()
    assert (home / "run" / "report.html").is_file()
    assert invoke("adapt", "--resume=~/run", "--no-figure", "--accelerator=cpu").exit_code == 0
    assert invoke("report", "~/run", "--tsne=0").exit_code == 0  # in quotes
    assert not list(here.iterdir())  # a folder that is called ~ invites a command that removes the other


@pytest.mark.parametrize(
    "words", [["doctor", "--source=~nouser/a", "--target=optdigits"], ["report", "run", "--output=~nouser/a.html"]]
)
def test_the_home_of_an_unknown_user_is_a_path_as_for_shells(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    error = invoke(*words, catch=True).exception
    assert isinstance(error, FileNotFoundError)
