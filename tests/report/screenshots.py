"""Pictures of a report for the documentation: python tests/report/screenshots.py REPORT.html FOLDER."""

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser import Browser

POINT = """(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const map = data.maps.at(-1), target = data.groups[map.group].target;
  const [xs, ys] = (map.tsne || map.pca)[1];
  const wrong = [...xs.keys()].find((i) => target.labels && target.labels[i] !== map.prediction[1][i]) ?? 0;
  const box = [...document.querySelectorAll(".map canvas")].at(-1).getBoundingClientRect(), inner = box.width * 0.93;
  const x = xs[wrong] / 4095, y = 1 - ys[wrong] / 4095, margin = box.width * 0.035;
  return [box.left + margin + x * inner, box.top + margin + y * inner];
})()"""


def show(browser, section):
    browser.evaluate(f"document.documentElement.style.scrollBehavior = 'auto'; location.hash = '#{section}'")
    time.sleep(0.3)


def save(browser, file):
    """A picture of few colours: a page has no more, and it takes a third of the room."""
    browser.screenshot(file)
    picture = Image.open(io.BytesIO(file.read_bytes())).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, optimize=True)


def main(page, folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, Browser(profile) as browser:
        browser.open(page, width=1180, height=1000)
        save(browser, folder / "report-result.png")
        show(browser, "map")
        browser.move(*browser.evaluate(POINT))
        save(browser, folder / "report-map.png")
        browser.open(page, width=1180, height=1000, dark=True)
        show(browser, "classes")
        save(browser, folder / "report-classes-dark.png")
        browser.open(page, width=400, height=860, touch=True)
        save(browser, folder / "report-phone.png")
        assert browser.complaints() == []


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
