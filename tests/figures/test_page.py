"""The documentation's figures that follow the ledgers: shown once their runs are there, and else what is missing."""

import importlib.util
import json
from pathlib import Path

import pytest

from bures.experiments import load_grid
from bures.experiments._cell import rounded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("figure_parts", ROOT / "tools" / "figure_parts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder, cells):
    lines = [
        {
            "key": cell.key,
            "task": f"{cell.source}->{cell.target}",
            "recipe_name": cell.recipe,
            "method": cell.method,
            "seed": cell.seed,
            "changes": dict(cell.changes),
            "recipe": rounded(cell.build().to_dict()),
            "final": {"accuracy": 0.5},
        }
        for cell in cells
    ]
    (folder / "digits.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_an_ablation_is_shown_when_every_method_was_run_on_every_task(tool, tmp_path):
    cells = load_grid("ablation").cells(recipes=["digits"], seeds=[0])
    parts = tool.parts(draw=True, results=tmp_path, images=tmp_path)
    write(tmp_path, cells[:-1])
    waiting = parts["figure ablation digits"]()
    assert waiting.startswith("Not shown yet: 15 of 80 runs of `bures bench ablation --recipes digits` are finished;")
    assert not list(tmp_path.glob("*.svg"))
    write(tmp_path, cells)
    shown = parts["figure ablation digits"]()
    assert "```{image} images/figure-ablation-digits-dark.svg\n:class: only-dark\n" in shown
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == [
        "figure-ablation-digits-dark.svg", "figure-ablation-digits.svg",
    ]  # fmt: skip
    # The text is the same whether it is drawn or only compared.
    assert tool.parts(results=tmp_path, images=tmp_path)["figure ablation digits"]() == shown
    assert "0 of 480 runs" in parts["figure ablation office10-features"]()
