"""docs/methods.md: its tables are those of the methods and of the benchmark, and no method is missing."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

from bures.methods import method_info, method_names
from bures.methods._registry import _FACTORIES

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
SHIPPED = [name for name in method_names() if method_info(name).paper]  # tests register methods of their own


def tool():
    spec = importlib.util.spec_from_file_location("methods_page", ROOT / "tools/methods_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_made_from_the_methods_and_the_benchmark():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/methods_page.py"), "--check"], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_method_has_a_description_and_a_warning():
    failures = PAGE[PAGE.index("## What to watch for") : PAGE.index("## Objectives and defaults")]
    groups = [line.split(", ") for line, after in zip(failures.splitlines(), failures.splitlines()[1:], strict=False)
              if after.startswith(": ")]  # fmt: skip
    assert sorted(name for group in groups for name in group) == sorted(SHIPPED)
    described = set(re.findall(r"autofunction:: (\S+)", PAGE))
    assert described == {f"{_FACTORIES[name].__module__}.{_FACTORIES[name].__name__}" for name in SHIPPED}


def test_measured_costs_become_a_table(tmp_path):
    rows = [
        {"method": name, "batch_size": n, "samples": kind, "step_ms": 2.0 * n, "source_ms": n, "ratio": 2.0}
        for n in (32, 128)
        for name, kind in (("ckb", "vectors"), ("cycada", "images"))
    ]
    for device, machine in (("cpu", {"threads": 2}), ("cuda", {"threads": 2, "accelerator": "a GPU"})):
        manifest = {"hardware": machine, "results": rows}
        (tmp_path / f"method-cost-{device}.json").write_text(json.dumps(manifest), encoding="utf-8")
    lines = [re.split(r" *\| *", line.strip("| ")) for line in tool().cost_table(tmp_path).splitlines()]
    assert lines[0][1:] == [f"{m}, batch {n}: ms (ratio)" for m in ("2 CPU cores", "a GPU") for n in (32, 128)]
    assert lines[2] == ["`source`", "32.0 (1.0)", "128.0 (1.0)", "32.0 (1.0)", "128.0 (1.0)"]
    assert lines[3] == ["`ckb`", "64.0 (2.0)", "256.0 (2.0)", "64.0 (2.0)", "256.0 (2.0)"]
    assert lines[4][0] == "`cycada` (images)"
    assert tool().cost_table(tmp_path / "empty").startswith("Not measured yet")
