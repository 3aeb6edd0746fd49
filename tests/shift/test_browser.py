"""The page of `bures shift --html` in headless Chromium: it says what the report says, draws it, and loads nothing."""

import numpy as np
import pytest
from commands import ended

import bures

HOSTILE = "<img src=http://example.invalid/x onerror=document.title='broken'>"
NAMES = np.array([HOSTILE, "dog", "a class with a name that is much longer than any column of a table could ever be"])
OPTIONS = ["--permutations", "99", "--seed", "0"]


@pytest.fixture(scope="module")
def data():
    return bures.data.drifting_class(80, drift=2.0)


@pytest.fixture(scope="module")
def page(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shift")
    for side, x, y in (("source", data.xs, data.ys), ("target", data.xt, data.yt)):
        np.savez(folder / f"{side}.npz", x=x, y=NAMES[y])
    files = [folder / f"{side}.npz" for side in ("source", "target")]
    ended("shift", *files, *OPTIONS, "--html", folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def report(data):
    return bures.shift_report(data.xs, NAMES[data.ys], data.xt, NAMES[data.yt], n_permutations=99, seed=0)


def texts(browser, selector):
    return browser.evaluate(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent.trim())")


@pytest.mark.parametrize(
    "options", [{}, {"dark": True}, {"width": 400, "height": 800, "touch": True}], ids=["light", "dark", "phone"]
)
def test_the_page_renders_without_a_complaint_and_fits_its_window(browser, page, options):
    browser.open(page, **options)
    assert browser.complaints() == []  # nothing is loaded from anywhere, whatever classes are called
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((v) => v < 80)")
    assert dark is options.get("dark", False)


def test_what_is_shown_is_what_was_found(browser, page, report):
    browser.open(page)
    assert texts(browser, "h1") == [report.headline]
    words = {True: "found", False: "not found", None: "not asked"}
    assert texts(browser, ".card .badge") == [words[finding.found] for finding in report.findings]
    assert texts(browser, ".advice strong") == [tip.method for tip in report.advice]
    rows = report.ranked_classes()
    assert texts(browser, "tbody td:first-child") == [row.name for row in rows]
    assert browser.evaluate("document.title") == "source.npz → target.npz: shift report"  # the name of a class is text
    assert browser.evaluate("document.images.length") == 0


def test_bars_have_the_lengths_of_their_numbers(browser, page, report):
    browser.open(page)
    widths = "[...document.querySelectorAll('.track%s > i')].map((e) => e.getBoundingClientRect().width)"
    target = np.array(browser.evaluate(widths % ".t"))
    expected = np.array([row.frequency_target for row in report.ranked_classes()])
    # Of one scale: lengths are to each other as the frequencies are, up to rounding of pixels.
    assert target / target.sum() == pytest.approx(expected / expected.sum(), abs=0.01)
    # The line of the statistic stands where it lies in the range that the histogram spans.
    for number, test in enumerate((report.marginal, report.conditional)):
        place, left, right = browser.evaluate(
            f"(() => {{ const svg = document.querySelectorAll('.card svg')[{number}];"
            " const box = svg.getBoundingClientRect();"
            " const bars = [...svg.querySelectorAll('.bar')].map((e) => e.getBoundingClientRect());"
            " const line = svg.querySelector('.observed').getBoundingClientRect();"
            " return [(line.left + line.right) / 2, Math.min(...bars.map((b) => b.left)),"
            " Math.max(...bars.map((b) => b.right))].map((x) => (x - box.left) / box.width); })()"
        )
        if test.statistic > test.null.max():
            assert place > right - 0.03
        else:
            assert left - 0.03 <= place <= right + 0.03
        assert 0 <= left < right <= 1
    assert report.conditional.statistic > report.conditional.null.max()  # the drift is large: the case above was met
