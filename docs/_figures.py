"""The pictures that the site draws of itself: from ledgers and manifests under results/, or computed by the library.

`build` is called when the documentation is built (see conf.py). It draws what is missing and what has changed: a
picture is drawn anew when the code that draws it, or a file that it reads, is not what it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib.lines
import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import rotate
from sklearn.datasets import load_digits

import bures
from bures.figures import __file__ as figures_package
from bures.figures import alignment_figure, alignment_states, draw_figure, save_figure, style_named

ROOT = Path(__file__).resolve().parent.parent
STYLES = {"light": "", "dark": "-dark"}
STAMPS = "stamps.json"


@dataclass(frozen=True)
class Picture:
    """A picture: how it is drawn in a style, and the files below the root that it is made from."""

    draw: Callable[[str], Figure]
    reads: tuple[str, ...] = ()


# --- pictures of the page on conditional shift ---------------------------------------------------------------------

CLASSES = np.array([[-1.3, 0.0], [1.3, 0.0]])
KINDS = {
    "label shift:\nP(Y) differs, P(X|Y) does not": {"shares": (0.85, 0.15)},
    "marginal view suffices:\nall classes move alike": {"move": np.array([[0.0, 1.6], [0.0, 1.6]])},
    "conditional shift:\neach class moves on its own": {"move": np.array([[0.35, 1.5], [-0.35, -1.5]])},
}


def two_classes(n: int, shares=(0.5, 0.5), move=0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Samples of two round classes, with their frequencies and centres changed."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) >= round(shares[0] * n)).astype(int)
    return (CLASSES + move)[y] + 0.42 * rng.normal(size=(n, 2)), y


def kinds_figure(style: str) -> Figure:
    """Three shifts of the same two classes."""
    look = style_named(style)
    xs, ys = two_classes(90)
    with look.applied():
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        grid = figure.subplots(1, len(KINDS), sharex=True, sharey=True)
        for axes, (title, change) in zip(grid, KINDS.items(), strict=True):
            scatter(axes, look, xs, ys, *two_classes(90, seed=1, **change))
            axes.set_title(title)
        figure.legend(handles=legend(look), loc="outside lower center", ncols=4, handletextpad=0.3)
    return figure


def scatter(axes, look, xs, ys, xt, yt) -> None:
    """The source as crosses, the target as open marks; colours and kinds of marks are classes."""
    for label, (cross, ring) in enumerate((("+", "o"), ("x", "s"))):
        axes.scatter(*xs[ys == label].T, marker=cross, s=26, linewidths=1.0, color=look.colour(label))
        axes.scatter(
            *xt[yt == label].T, marker=ring, s=18, linewidths=0.9, facecolors="none", edgecolors=look.colour(label)
        )
    axes.set(xticks=[], yticks=[], aspect="equal")
    for spine in axes.spines.values():
        spine.set(visible=True, color=look.faint)


def legend(look) -> list[matplotlib.lines.Line2D]:
    return [
        matplotlib.lines.Line2D(
            [], [], ls="", marker=mark, mfc="none", color=look.colour(label), label=f"{side}, class {label + 1}"
        )
        for label, marks in enumerate((("+", "o"), ("x", "s")))
        for side, mark in zip(("source", "target"), marks, strict=True)
    ]


DISTANCES = {
    "CKB": lambda pair: bures.ckb(*pair),
    "CKW": lambda pair: bures.ckw(*pair),
    "kernel Bures": lambda pair: bures.kernel_bures(pair.xs, pair.xt),
    "MMD": lambda pair: bures.mmd(pair.xs, pair.xt),
}
SHARES = np.linspace(0, 1, 6)
SEEDS = range(4)


@cache
def exchanged_distances() -> dict[str, np.ndarray]:
    """Squared distances (shares, seeds) while two classes exchange regions."""
    pairs = [[bures.data.exchanged_regions(150, share=share, seed=seed) for seed in SEEDS] for share in SHARES]
    return {name: np.array([[distance(pair) for pair in row] for row in pairs]) for name, distance in DISTANCES.items()}


def exchanged_figure(style: str) -> Figure:
    """Two classes that exchange regions: the samples, and what four distances say along the way."""
    look = style_named(style)
    with look.applied():
        figure = Figure(figsize=(9.6, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
        pair = bures.data.exchanged_regions(150, share=1.0)
        scatter(left, look, *pair)
        left.set_aspect("equal", adjustable="datalim")
        left.set_title("right-hand groups have changed class")
        figure.legend(handles=legend(look), loc="outside lower left", ncols=4, handletextpad=0.3)
        for number, (name, values) in enumerate(exchanged_distances().items()):
            mean, spread = values.mean(axis=1), values.std(axis=1)
            colour = look.colour(number)
            right.plot(
                SHARES, mean, ls=look.dash(number), marker=look.marker(number), color=colour, label=name, clip_on=False
            )
            right.fill_between(SHARES, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        right.set(xlabel="share that has changed class", ylabel="squared distance", xlim=(0, 1))
        right.set_ylim(bottom=0)
        right.legend()
    return figure


def offices_figure(style: str) -> Figure:
    """The first digit of each class in the two offices of the tutorial."""
    images, labels = load_digits(return_X_y=True)
    look = style_named(style)
    with look.applied():
        figure = Figure(figsize=(9.6, 2.1), layout="constrained")
        grid = figure.subplots(2, 10)
        for digit, (above, below) in enumerate(grid.T):
            image = images[np.argmax(labels == digit)].reshape(8, 8)
            for axes, pixels in ((above, image), (below, rotate(image, 15, reshape=False, order=1))):
                axes.imshow(pixels, cmap="gray" if style == "dark" else "gray_r", vmin=0, vmax=16)
                axes.set(xticks=[], yticks=[])
                for spine in axes.spines.values():
                    spine.set(visible=True, color=look.faint)
        for axes, name in zip(grid[:, 0], ("here", "there"), strict=True):
            axes.set_ylabel(name)
    return figure


@cache
def moons() -> list:
    return alignment_states()


# --- all of them ----------------------------------------------------------------------------------------------------

RESULTS = ROOT / "results"
PICTURES = {
    "kinds": Picture(kinds_figure),
    "exchanged": Picture(exchanged_figure),
    "offices": Picture(offices_figure),
    "alignment": Picture(lambda style: alignment_figure(moons(), style=style)),
    "network": Picture(lambda style: draw_figure("network", style=style)),
    "convergence": Picture(
        lambda style: draw_figure("convergence", results=RESULTS, style=style),
        ("results/convergence/convergence.json",),
    ),
    "training": Picture(lambda style: draw_figure("training", results=RESULTS, style=style), ("results/digits.jsonl",)),
    "time": Picture(lambda style: draw_figure("time", results=RESULTS, style=style), ("results/digits.jsonl",)),
}


@cache
def code_digest() -> str:
    """A digest of the code that draws: this file and the package of the figures."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(Path(figures_package).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp(picture: Picture) -> str:
    """What a picture is made from, as one word."""
    digest = hashlib.sha256(code_digest().encode())
    for path in picture.reads:
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()


def build(folder: Path) -> list[str]:
    """Draw the pictures that are missing or out of date, in both styles; return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    stamps = folder / STAMPS
    known = json.loads(stamps.read_text(encoding="utf-8")) if stamps.is_file() else {}
    drawn = []
    for name, picture in PICTURES.items():
        wanted = stamp(picture)
        files = [folder / f"{name}{suffix}.svg" for suffix in STYLES.values()]
        if known.get(name) == wanted and all(file.is_file() for file in files):
            continue
        for style, suffix in STYLES.items():
            save_figure(picture.draw(style), folder / f"{name}{suffix}", ["svg"], style=style)
        drawn.append(name)
        known[name] = wanted
        stamps.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return drawn
