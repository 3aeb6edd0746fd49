"""The notebooks run from the first cell to the last, come to the conclusions they draw, and carry no outputs in git."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")


def run(name, folder, monkeypatch):
    """Run a notebook in a folder of its own; return what its cells printed and gave, as text."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_carries_no_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.metadata == {}
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_no_notebook_is_left_out():
    assert [path.stem for path in NOTEBOOKS] == ["practitioner", "researcher"], "a new notebook needs a test here"


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own
def test_practitioner(tmp_path, monkeypatch):
    printed = run("practitioner.ipynb", tmp_path, monkeypatch)
    assert "conditional  found" in printed
    assert "label        not found" in printed
    rows = {line.split()[1]: line.split() for line in printed.splitlines() if line[:1].isdigit() and "." in line}
    assert float(rows["ckw"][2]) > max(float(rows[name][2]) for name in ("source", "source+adabn")) + 0.05
    assert (next(tmp_path.glob("*/report.html"))).stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_researcher(tmp_path, monkeypatch):
    printed = run("researcher.ipynb", tmp_path, monkeypatch)
    lines = [line.split() for line in printed.splitlines() if line.startswith(("source", "ck"))]
    means = {words[0]: float(words[1]) for words in lines if len(words) == 3}
    assert means["ckb"] > means["source"] + 5
    assert means["ckw"] > means["source"] + 5
