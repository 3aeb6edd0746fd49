"""Every long campaign in short, and the tool that runs them."""

import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


nightly = load_tool("nightly")


@pytest.mark.parametrize("name", nightly.sections())
def test_a_short_campaign_finds_nothing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # tiny networks collapse, and say so
        found = nightly.load(name).run(quick=True, seed=0)
    assert found["failures"] == []
    json.dumps(found, allow_nan=False)


def test_sections_are_the_files_that_can_be_run(tmp_path):
    (tmp_path / "one.py").write_text("def run(quick, seed):\n    return {}\n")
    (tmp_path / "helper.py").write_text("class A:\n    def run(self):\n        pass\n")
    (tmp_path / "_two.py").write_text("import one\n")
    assert nightly.sections(tmp_path) == ["one"]
    assert {"disks", "kills", "reproducibility", "soak", "soak_calls"} <= set(nightly.sections())


GOOD = "def run(quick, seed):\n    return {'cases': seed, 'failures': []}\n"
DEAD = "import os\ndef run(quick, seed):\n    os._exit(9)\n"


def test_the_tool_writes_what_was_found_and_goes_on_after_a_section_that_dies(tmp_path):
    """In a copy of the repository with sections of its own."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tests/nightly").mkdir(parents=True)
    tool = tmp_path / "tools/nightly.py"
    tool.write_text((ROOT / "tools/nightly.py").read_text(encoding="utf-8"), encoding="utf-8")
    for name, text in {"a": DEAD, "b": GOOD}.items():
        (tmp_path / "tests/nightly" / f"{name}.py").write_text(text)
    done = subprocess.run([sys.executable, tool, "--quick", "--seed", "3"], capture_output=True, text=True)
    assert done.returncode == 1
    dead, good = done.stdout.splitlines()
    assert dead.startswith("a ... see ")
    assert good.startswith("b ... nothing found")
    written = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "outputs/nightly").glob("*")}
    assert written["a"]["failures"] == ["the section ended with exit code 9 and told nothing"]
    assert written["b"]["cases"] == written["b"]["seed"] == 3
    assert written["b"]["command"] == "python tools/nightly.py b --quick --seed 3"
    assert {"versions", "hardware", "seconds"} <= set(written["b"])


class Odd:
    @staticmethod
    def run(quick, seed):
        raise ValueError("odd")


def test_a_section_that_raises_has_found_something(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nightly, "load", lambda name: Odd)
    assert not nightly.run_here("kills", True, 0, tmp_path / "kills.json")
    assert json.loads((tmp_path / "kills.json").read_text())["failures"] == ["ValueError: odd"]
    assert "Traceback" in capsys.readouterr().err


def test_a_section_that_is_not_there_is_an_error(capsys):
    with pytest.raises(SystemExit):
        nightly.main(["nothing"])
    assert "no section is called 'nothing'; accepted are" in capsys.readouterr().err


page_tool = load_tool("robustness_page")


def test_the_page_is_that_of_the_results():
    text = page_tool.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- table ") == len(page_tool.TABLES)
    assert page_tool.filled(text, page_tool.manifests()) == text


def test_what_was_run_in_full_is_what_is_published():
    found = page_tool.manifests()
    assert set(found) <= set(nightly.sections())
    for name in ("disks", "kills", "reproducibility", "soak", "soak_calls"):
        manifest = found[name]
        assert manifest["quick"] is False, name
        assert manifest["command"].endswith(f"python tools/nightly.py {name} --seed {manifest['seed']}")
        assert {"versions", "hardware", "seconds", "failures"} <= set(manifest), name


def test_findings_are_counted_where_they_belong():
    manifest = {"kills": {"failures": ["sweep: a", "sweep: b"], "sweep": {"kills": 2}, "training": {"kills": 2}}}
    rows = page_tool.kills_table(manifest).splitlines()[2:]
    assert rows == ["| sweep | 2 |  | 2 |", "| training | 2 |  | 0 |"]


def test_calls_that_were_run_apart_stand_in_the_place_of_earlier_ones():
    def part(**figures):
        return figures | {"seconds": 60.0, "memory_mib": [1.0, 1.0], "handles": [4, 4]}

    both = {"failures": ["calls of ckb: old"], "calls of ckb": part(calls=7, asked=9), "short runs": part(runs=2)}
    found = {"soak": both, "soak_calls": {"failures": [], "calls of ckb": part(calls=9, asked=9)}}
    rows = page_tool.soak_table(found).splitlines()[2:]
    assert rows == [
        "| calls of ckb | 9 calls | 1.0 | 1.0 → 1.0 | 4 → 4 | 0 |",
        "| short runs | 2 runs | 1.0 | 1.0 → 1.0 | 4 → 4 | 0 |",
    ]
    assert page_tool.soak_table({"soak": both}).splitlines()[2].startswith("| calls of ckb | 7 calls of 9 |")


def test_growth_is_noticed_and_a_file_that_is_open_for_a_moment_is_not():
    gauge = nightly.load("_gauge").Gauge()
    gauge.seconds, gauge.memory, gauge.handles = 1.0, [100.0] * 30, [6, *[5] * 28, 6]
    assert gauge.faults(allowed=1.0) == []
    gauge.memory = [50.0, 60.0, 70.0, *(100 + 0.1 * n for n in range(27))]
    gauge.handles = [5 + n // 10 for n in range(30)]
    memory, files = gauge.faults(allowed=1.0)
    assert memory.startswith("memory grew by 2.2")
    assert files == "open files grew from 5 to 7"
