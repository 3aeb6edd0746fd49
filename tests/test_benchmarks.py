"""The benchmarks' own arithmetic, the page made of their results, and guards that no machine's pace changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import reference
import torch
from torch.nn.functional import one_hot

import bures

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `benchmarks` is no installed package

from benchmarks import batches, report, step_graphs  # noqa: E402
from benchmarks.memory import peak_bytes  # noqa: E402
from benchmarks.textbook import textbook_ckb  # noqa: E402
from benchmarks.timing import time_in_turns, value_and_gradient  # noqa: E402


def losses_of(z_s, y_s, z_t, p_t, **options):
    rows, criterion = one_hot(y_s, p_t.shape[1]).to(z_s), bures.CKBLoss(**options)
    return lambda a, b: textbook_ckb(a, rows, b, p_t), lambda a, b: criterion(a, y_s, b, p_t)


def test_the_textbook_formula_is_theorem_5():
    z_s, y_s, z_t, p_t = (part.double() if part.is_floating_point() else part for part in batches.clusters(12))
    rows = one_hot(y_s, p_t.shape[1]).double()
    features = reference.gram_blocks(z_s.numpy(), z_t.numpy(), bandwidth="per-block")
    labels = (reference.label_gram(y.numpy()) for y in (rows, p_t))
    expected = reference.theorem_5(*features, *labels, 1e-2)[0]
    assert textbook_ckb(z_s, rows, z_t, p_t).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["clusters", "noise"])
def test_value_and_gradient_hold_at_most_half_of_the_textbook_formulas_memory(kind):
    """Counted, not sampled."""
    z_s, y_s, z_t, p_t = batches.available()[kind](512)
    textbook, ours = (
        peak_bytes(lambda loss=loss: lambda: value_and_gradient(loss, z_s, z_t), "cpu")
        for loss in losses_of(z_s, y_s, z_t, p_t)
    )
    assert ours <= 0.5 * textbook


def test_trainings_with_and_without_graphs_are_timed_past_their_first_epoch():
    row = step_graphs.measure("head", "entropy", "cpu", steps=1, rounds=1)
    assert row["epochs"] == step_graphs.EPOCHS - 1
    assert row["ratio"] == pytest.approx(row["launched_ms"] / row["replayed_ms"])
    assert 0 < row["replayed_ms"] < 60_000


def test_contestants_take_turns():
    calls = []

    def loss(name):
        return lambda a, b: (calls.append(name), (a.sum() + b.sum()))[1]

    x = torch.ones(2, 2)
    times = time_in_turns({"one": loss("one"), "two": loss("two")}, x, x, 0.0)
    assert {name: len(time.blocks) for name, time in times.items()} == {"one": 3, "two": 3}
    assert all(time.quartiles[0] <= time.median <= time.quartiles[1] for time in times.values())


def test_the_page_is_that_of_the_results():
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.report", "--check"], capture_output=True, encoding="utf-8", cwd=ROOT
    )
    assert printed.returncode == 0, printed.stdout + printed.stderr


@pytest.mark.slow  # a process of its own that measures
def test_a_short_run_writes_figures_and_page(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--device", "cpu", "--sizes", "24", "--seconds", "0.01",
         "--output", str(tmp_path)],
        capture_output=True, encoding="utf-8", cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    manifest = json.loads((tmp_path / "ckb-cpu.json").read_text())
    row = manifest["results"][0]
    assert row["n"] == 24
    assert row["bures_gradient_error"] < 1e-3
    assert row["textbook_peak_bytes"] > 0
    assert "torch MMD" in manifest["peers"][0]["ms"]
    page = (tmp_path / "benchmarks.md").read_text()
    assert f"| clusters | 24 | {row['textbook_ms']:.2f} | {row['bures_ms']:.2f} | {row['ratio']:.1f} |" in page
    assert (tmp_path / "images" / "benchmarks-cpu.png").stat().st_size > 1000
    assert report.read_manifests(tmp_path).keys() == {"cpu"}
