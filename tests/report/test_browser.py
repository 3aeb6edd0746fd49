"""The page in headless Chromium: it renders without a complaint, its filters work, and keys do what the mouse does."""

import pytest
from browser import CHROMIUM
from folders import write_run

from bures.report import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

NAMES = ("ant", "<script>alert(1)</script>", "cow")
# What the map shows, counted in the data by themselves.
EXPECTED = """(() => {
  const data = JSON.parse(document.getElementById("data").textContent), group = data.groups[0];
  const count = (wanted) => data.maps.map((map) => ["source", "target"].reduce((sum, side, s) =>
    sum + map.pca[s][0].filter((_, i) => wanted(side, group[side].labels[i], map.prediction[s][i])).length, 0));
  return %s;
})()"""
SHOWN = "[...document.querySelectorAll('.map figcaption span:last-child')].map((e) => parseInt(e.textContent))"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "source", NAMES, n=60, method="source", side=16, right=0.5)
    write_run(folder / "ckb", NAMES, n=60, side=16, right=0.9)
    return write_report([folder], tsne=60)


def click(browser, selector):
    browser.evaluate(f"document.querySelector({selector!r}).click()")


def select(browser, name, value):
    browser.evaluate(
        f"(() => {{ const field = document.querySelector('[name={name}]'); field.value = {value!r};"
        " field.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def painted(browser, number=0):
    """How many pixels of a map are not empty."""
    return browser.evaluate(
        f"(() => {{ const c = document.querySelectorAll('.map canvas')[{number}];"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
        " for (let i = 3; i < d.length; i += 4) if (d[i] > 0) n++; return n; })()"
    )


@pytest.mark.parametrize(
    "options", [{}, {"dark": True}, {"width": 400, "height": 800, "touch": True}], ids=["light", "dark", "phone"]
)
def test_the_page_renders_without_a_complaint_and_fits_its_window(browser, page, options):
    browser.open(page, **options)
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert painted(browser) > 200
    assert browser.evaluate("document.querySelectorAll('svg.chart').length") >= 5
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((v) => v < 80)")
    assert dark is options.get("dark", False)
    # Every picture of a sample is there.
    assert browser.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")


def visible(browser, selector):
    """How many of these elements are laid out."""
    found = f"[...document.querySelectorAll({selector!r})]"
    return browser.evaluate(f"{found}.filter((element) => element.offsetParent !== null).length")


def test_without_javascript_there_are_no_controls_that_do_nothing(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert visible(browser, ".controls, .controls *, .copy, .sample") == 0
        assert visible(browser, "noscript p") == 1
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    browser.open(page)
    assert visible(browser, ".controls") == 1
    assert visible(browser, ".copy") >= 1


def test_on_paper_the_key_of_the_map_stays_and_buttons_go(browser, page):
    browser.open(page)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert visible(browser, "#class-filter .chip") == len(NAMES)
        assert visible(browser, "nav, .copy, .controls button, .controls select") == 0
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


def test_filters_show_what_they_say(browser, page):
    browser.open(page)
    select(browser, "plane", "pca")
    assert browser.evaluate(SHOWN) == browser.evaluate(EXPECTED % "count(() => true)") == [120, 120]
    all_pixels = painted(browser)
    click(browser, "[name=domain][value=source]")
    assert browser.evaluate(SHOWN) == browser.evaluate(EXPECTED % "count((side) => side === 'target')") == [60, 60]
    assert 0 < painted(browser) < all_pixels
    click(browser, "[name=class][value='0']")
    expected = browser.evaluate(EXPECTED % "count((side, label) => side === 'target' && label !== 0)")
    assert browser.evaluate(SHOWN) == expected
    assert 0 < expected[0] < 60
    select(browser, "outcome", "wrong")
    wrong = browser.evaluate(EXPECTED % "count((side, label, p) => side === 'target' && label !== 0 && label !== p)")
    assert browser.evaluate(SHOWN) == wrong
    assert wrong[0] != wrong[1]  # each map has its own
    click(browser, "#no-classes")
    assert browser.evaluate(SHOWN) == [0, 0]
    assert painted(browser) == 0
    click(browser, "#reset")
    assert browser.evaluate(SHOWN) == [60, 60]  # t-SNE again, of fewer samples
    assert "60 of 60 samples shown" in browser.evaluate("document.getElementById('shown').textContent")
    assert browser.complaints() == []


def test_the_address_holds_the_view(browser, page):
    browser.open(page, fragment="#map?domain=target&class=ant&plane=pca")
    expected = browser.evaluate(EXPECTED % "count((side, label) => side === 'target' && label === 0)")
    assert browser.evaluate(SHOWN) == expected
    assert browser.evaluate("document.querySelector('[name=domain][value=source]').checked") is False
    select(browser, "outcome", "right")
    assert "outcome=right" in browser.evaluate("location.hash")
    browser.open(page, fragment="#map?class=none&outcome=no&domain=<b>")
    assert browser.evaluate(SHOWN) == [0, 0]
    assert browser.complaints() == []


@pytest.mark.parametrize("colour", ["class", "prediction", "domain", "outcome", "confidence"])
def test_every_colour_is_drawn(browser, page, colour):
    browser.open(page, fragment=f"#map?colour={colour}")
    colours = browser.evaluate(
        "(() => { const c = document.querySelector('.map canvas'), found = new Set();"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 180) found.add((d[i] >> 5) + ',' + (d[i + 1] >> 5));"
        " return found.size; })()"
    )
    assert colours >= 2
    assert browser.complaints() == []


def test_pointing_at_a_sample_shows_its_picture_class_prediction_and_confidence(browser, page):
    browser.open(page)
    browser.evaluate("document.querySelector('.maps').scrollIntoView({block: 'center', behavior: 'instant'})")
    place = browser.evaluate(
        "(() => { const data = JSON.parse(document.getElementById('data').textContent);"
        " const [xs, ys] = data.maps[0].tsne[1];"
        " const box = document.querySelector('.map canvas').getBoundingClientRect(), inner = box.width * 0.93;"
        " return [box.left + box.width * 0.035 + xs[0] / 4095 * inner, box.top + box.height * 0.035"
        " + (1 - ys[0] / 4095) * inner]; })()"
    )
    assert browser.evaluate("document.getElementById('sample').hidden")
    browser.move(*place)
    text = browser.evaluate("document.getElementById('sample').innerText")
    assert "there (target), sample" in text
    assert "class" in text
    assert "%" in text
    assert "source: " in text  # what each run says of it
    assert "ckb: " in text
    assert browser.evaluate("document.querySelector('#sample .thumb').style.backgroundImage.startsWith('url(\"data:')")
    browser.move(3, 3)
    assert browser.evaluate("document.getElementById('sample').hidden")


def test_the_map_can_be_used_with_keys_alone(browser, page):
    browser.open(page)
    # Through the page with the tabulator alone until a map has the focus.
    reached = []
    for _ in range(80):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        browser.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.append(browser.evaluate("document.activeElement.name || document.activeElement.tagName"))
        if reached[-1] == "CANVAS":
            break
    assert {"A", "domain", "class", "outcome", "colour", "plane", "CANVAS"} <= set(reached)
    said = set()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        browser.press(key)
        assert not browser.evaluate("document.getElementById('sample').hidden")
        said.add(browser.evaluate("document.getElementById('sample').textContent"))
    assert len(said) >= 2
    before = painted(browser)
    browser.press("+")
    assert painted(browser) != before
    browser.press("0")
    browser.press("Escape")
    assert browser.evaluate("document.getElementById('sample').hidden")
    assert browser.evaluate("document.activeElement.tagName") == "CANVAS"
    assert browser.complaints() == []


def test_names_with_markup_run_nothing(browser, page):
    browser.open(page)
    assert browser.evaluate("document.body.innerText.includes('<script>alert(1)</script>')")
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    # Even a script that got into the page would not run: the policy names ours alone.
    browser.evaluate(
        "(() => { const script = document.createElement('script'); script.textContent = 'window.taken = 1';"
        " document.body.append(script); })()"
    )
    assert browser.evaluate("window.taken === undefined")


def test_hundreds_of_classes_are_chosen_from_a_list_and_targets_need_no_labels(browser, tmp_path):
    write_run(tmp_path / "run", [f"class {k}" for k in range(300)], n=400, labelled=False)
    browser.open(write_report([tmp_path / "run"], tsne=0))
    assert browser.evaluate("document.querySelectorAll('[name=class]').length") == 0
    assert browser.evaluate("document.querySelectorAll('[name=one-class] option').length") == 301
    assert browser.evaluate("document.querySelector('[name=outcome]').closest('label').hidden")
    select(browser, "one-class", "7")
    # Without labels, the class of a target sample is what is predicted.
    expected = browser.evaluate(
        EXPECTED.replace("group[side].labels[i]", "(group[side].labels ? group[side].labels[i] : map.prediction[s][i])")
        % "count((side, label) => label === 7)"
    )
    assert browser.evaluate(SHOWN) == expected
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []
