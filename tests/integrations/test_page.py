"""The code on the page of integrations runs, in its order."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import sklearn

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


@pytest.mark.filterwarnings("ignore")  # of the other libraries, which a reader sees too
def test_every_block_runs(tmp_path, monkeypatch):
    if not PAGE.is_file():
        pytest.skip("not a source tree")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 7
    names: dict[str, object] = {}
    for block in blocks:
        if block.startswith("# skada"):
            pytest.importorskip("skada", exc_type=ImportError)
        before = sklearn.get_config()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(block, str(PAGE), "exec"), names)
        finally:
            sklearn.set_config(**before)  # skada changes it for all
    assert names["classifier"].score(names["xt"], names["yt"]) > 0.9
    assert len(names["predicted"]) == 200
    assert 0 < float(names["metric"].compute()) < 1
    assert [row["epoch"] for row in names["monitor"].history] == [1, 3]
    assert float(names["loss"]) > 0
    assert not list(tmp_path.iterdir())
