"""The line on the terminal, and its absence elsewhere."""

import io
import re

import pytest
from rich.console import Console
from small_runs import SMALL, adapt, vectors

from bures.training import Recipe, TrainingError
from bures.training import _progress as progress
from bures.training import _session as module

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 200 columns is sent."""
    sent = io.StringIO()
    monkeypatch.setattr(
        module, "Console", lambda **options: Console(file=sent, force_terminal=True, width=200, color_system=None)
    )
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    return sent


def test_the_line_shows_epoch_terms_accuracies_and_the_time_left(terminal, tmp_path):
    data = vectors(56, seed=1, name="here"), vectors(50, seed=2, name="there")
    adapt(*data, Recipe(**{**SMALL, "epochs": 30}, method="ckb"), tmp_path / "run", progress=True)
    text = terminal.getvalue()
    for pattern in (
        "here → there, ckb",
        r"epoch \d+/30",
        r"cross entropy \d\.\d{3}",
        r"entropy \d\.\d{3}",
        r"ckb \d\.\d{3}",
        r"source \d+\.\d %",
        r"target \d+\.\d %",
        r"\d:\d\d:\d\d",
    ):
        assert re.search(pattern, text), pattern
    assert text.rstrip().endswith("\x1b[2K")  # the line is taken away


def test_no_target_accuracy_is_shown_without_labels(terminal, tmp_path):
    data = vectors(56, seed=1), vectors(50, seed=2, labelled=False)
    adapt(*data, Recipe(**SMALL, method="ckb"), tmp_path / "run", progress=True)
    assert "source " in terminal.getvalue()
    assert "target " not in terminal.getvalue()


def test_the_line_is_taken_away_when_a_run_fails(terminal, tmp_path):
    data = vectors(56, seed=1), vectors(50, seed=2)
    with pytest.raises(TrainingError):
        adapt(*data, Recipe(**SMALL, method="ckb", lr=1e30), tmp_path / "run", progress=True)
    assert "\x1b[?25l" in terminal.getvalue()  # the cursor was hidden
    assert "\x1b[?25h" in terminal.getvalue().rpartition("\x1b[?25l")[2]  # and is shown again


def test_nothing_is_shown_unless_it_is_asked_for(terminal, tmp_path):
    adapt(vectors(56, seed=1), vectors(50, seed=2), Recipe(**SMALL), tmp_path / "run")
    assert terminal.getvalue() == ""
