"""Cells that grids share: one run serves all, unless its recipe has changed since."""

import json
from dataclasses import replace

import pytest

from bures.experiments import Ledger, changed_fields, finished_elsewhere, grid_results, load_grid
from bures.experiments._cell import rounded
from bures.figures._ablation import ABLATION


def line(cell, **recipe):
    """What a ledger would hold of a cell."""
    written = rounded(cell.build().to_dict()) | recipe
    words = {"task": f"{cell.source}->{cell.target}", "recipe_name": cell.recipe, "method": cell.method}
    return {"key": cell.key, **words, "seed": cell.seed, "changes": {}, "recipe": written, "final": {"accuracy": 0.5}}


def write(path, *results):
    path.write_text("".join(json.dumps(result) + "\n" for result in results))


@pytest.fixture
def cells():
    return load_grid("ablation").cells(methods=["ckb", "bures"], tasks=["usps:mnist"], seeds=[0, 1])


def test_the_cells_of_the_ablation_are_cells_of_the_tables():
    tables = {cell.key for name in ("digits", "office10") for cell in load_grid(name).cells()}
    ablation = load_grid("ablation")
    assert {cell.key for cell in ablation.cells()} <= tables
    assert set(ABLATION) <= set(ablation.methods)
    # Two tasks of digits and twelve of Office10, five seeds.
    assert len(ablation.cells()) == (2 + 12) * 5 * len(ablation.methods)


def test_what_another_grid_has_finished_is_found_by_its_key(cells, tmp_path):
    first, second, *_ = cells
    write(tmp_path / "digits.jsonl", line(first), line(second), {"key": "other", "recipe": {}})
    write(tmp_path / "trials.jsonl", *(line(cell) for cell in cells))  # the ledger of no grid
    own = tmp_path / "ablation.jsonl"
    assert list(finished_elsewhere(cells, own)) == [first.key, second.key]
    write(own, line(first) | {"final": {"accuracy": 0.75}})
    assert list(finished_elsewhere(cells, own)) == [second.key]
    found = grid_results(load_grid("ablation"), tmp_path)
    assert [(result["key"], result["final"]["accuracy"]) for result in found] == [(first.key, 0.75), (second.key, 0.5)]


def test_a_run_of_a_recipe_that_has_changed_is_another_run(cells, tmp_path):
    changed, watched, *_ = cells
    write(tmp_path / "digits.jsonl", line(changed, lr=0.5), line(watched, select="snd", validators=["snd"]))
    assert list(finished_elsewhere(cells, tmp_path / "ablation.jsonl")) == [watched.key]  # who looks changes nothing


def test_a_field_that_is_younger_than_a_run_had_its_default(cells):
    """As checkpoints take it: a line without the field is compared with what trainings did before there was one."""
    cell = cells[0]
    old = line(cell)
    for name in ("queue", "head_start", "weights"):
        del old["recipe"][name]
    assert changed_fields(cell, old) == []
    for changes in ({"queue": 64}, {"head_start": "demo"}, {"weights": "resnet.pth"}, {"lr": 0.5}):
        today = replace(cell, changes=changes)
        assert changed_fields(today, old) == list(changes)
    assert changed_fields(cell, {"key": cell.key, "recipe": {}}) == []  # nothing is known of it


def test_a_damaged_ledger_of_another_grid_is_told_and_left_alone(cells, tmp_path):
    (tmp_path / "digits.jsonl").write_text("{\n" + json.dumps(line(cells[0])) + "\n")
    with pytest.warns(UserWarning, match=r"digits.jsonl is damaged in line 1: .*; its runs are not looked at"):
        assert finished_elsewhere(cells, tmp_path / "ablation.jsonl") == {}
    assert Ledger(tmp_path / "ablation.jsonl").results() == {}
