"""Names of classes in figures: characters that matplotlib's own font lacks come from fonts that are installed."""

import warnings

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from bures.experiments._fonts import fonts_for

NOWHERE = "\u0378"  # no character has this number


def test_characters_come_from_a_font_that_has_them(tmp_path):
    with mpl.rc_context({"font.family": ["cmr10"]}):
        with fonts_for(["cat", "☃ snow"]):  # the snowman is in DejaVu Sans
            assert mpl.rcParams["font.family"][0] == "cmr10"
            assert len(mpl.rcParams["font.family"]) == 2
            figure = Figure()
            figure.text(0.5, 0.5, "☃ snow")
        assert mpl.rcParams["font.family"] == ["cmr10"]
        figure.savefig(tmp_path / "a.png")  # warnings are errors here


def test_plain_names_need_no_other_font():
    before = mpl.rcParams["font.family"]
    with fonts_for(["cat", "bïke", "→ x"]):
        assert mpl.rcParams["font.family"] == before


def test_characters_that_no_font_has_are_named_once():
    message = f"no installed font has character {NOWHERE}, which the figure"
    with pytest.warns(UserWarning, match=message) as told, fonts_for([f"a{NOWHERE}", f"{NOWHERE}b"]):
        pass
    assert len(told) == 1


def test_a_font_that_cannot_be_read_is_passed_over(monkeypatch, tmp_path):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    entries = mpl.font_manager.fontManager.ttflist
    bad = type(entries[0])(fname=str(broken), name="Broken")
    monkeypatch.setattr(mpl.font_manager.fontManager, "ttflist", [bad, *entries])
    with warnings.catch_warnings(), mpl.rc_context({"font.family": ["cmr10"]}), fonts_for(["☃"]):
        assert "Broken" not in mpl.rcParams["font.family"]
