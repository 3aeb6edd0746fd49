"""The list of commands, which is shown without importing them."""

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
