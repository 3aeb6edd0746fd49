"""
A shift that marginal distances do not see
==========================================

Two domains can look alike as a whole and differ class by class. The left column shows the misalignment of the paper's
Figure 1: in the target, parts of the two classes have changed places, while the cloud of all points and the class
frequencies are what they were. MMD and kernel Bures compare :math:`P(X)` and stay at their null level. CKB and CKW
compare :math:`P(X|Y)` and rise.

In the right column one of three classes drifts away and turns. Every distance sees this, and CKB says which class it
was.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from _common import read_arguments
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

import bures
from bures.data import DomainPair

DISTANCES = {
    "CKB": lambda pair: bures.ckb(*pair),
    "CKW": lambda pair: bures.ckw(*pair),
    "kernel Bures": lambda pair: bures.kernel_bures(pair.xs, pair.xt),
    "MMD": lambda pair: bures.mmd(pair.xs, pair.xt),
}
CONDITIONAL = ("CKB", "CKW")
COLOURS = {"CKB": "#b2182b", "CKW": "#ef8a62", "kernel Bures": "#2166ac", "MMD": "#67a9cf"}
CLASS_COLOURS = ("#7b3294", "#e08214", "#1b7837")

# %%
# Each distance is computed along the shift, for several seeds. A distance between two finite samples of one
# distribution is positive; the value at no shift, averaged over the seeds, is the level to compare with.


def along_shift(make_pair, strengths: np.ndarray, n_seeds: int) -> dict[str, np.ndarray]:
    """Distances of shape (strengths, seeds), by name."""
    pairs = [[make_pair(strength, seed) for seed in range(n_seeds)] for strength in strengths]
    return {name: np.array([[distance(pair) for pair in row] for row in pairs]) for name, distance in DISTANCES.items()}


def show_samples(ax: Axes, pair: DomainPair, title: str) -> None:
    for c, colour in enumerate(CLASS_COLOURS[: pair.ys.max() + 1]):
        source, target = pair.xs[pair.ys == c], pair.xt[pair.yt == c]
        ax.scatter(*source.T, marker="+", s=28, color=colour, alpha=0.55, linewidths=1, label=f"class {c}, source")
        ax.scatter(*target.T, marker="o", s=16, facecolors="none", edgecolors=colour, label=f"class {c}, target")
    ax.set(title=title, xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=len(np.unique(pair.ys)), fontsize=8, frameon=False)


def show_distances(ax: Axes, strengths: np.ndarray, curves: dict[str, np.ndarray], label: str) -> None:
    for name, values in curves.items():
        mean, spread = values.mean(axis=1), values.std(axis=1)
        style = "-" if name in CONDITIONAL else "--"
        ax.plot(strengths, mean, style, color=COLOURS[name], linewidth=2, label=name)
        ax.fill_between(strengths, mean - spread, mean + spread, color=COLOURS[name], alpha=0.15, linewidth=0)
    ax.set(xlabel=label, ylabel="squared distance", xlim=(strengths[0], strengths[-1]))
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)


def show_table(console: Console, title: str, strengths: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("distance")
    for strength in strengths:
        table.add_column(f"{strength:g}", justify="right")
    for name, values in curves.items():
        table.add_row(name, *(f"{value:.4f}" for value in values.mean(axis=1)))
    console.print(table)


# %%
# The two shifts side by side.


def main(quick: bool, output: Path) -> None:
    n, n_seeds = (80, 2) if quick else (200, 5)
    shares, drifts = np.linspace(0, 1, 5), np.linspace(0, 3, 7)
    console = Console()

    exchanged = along_shift(
        lambda share, seed: bures.data.exchanged_regions(n, share=share, seed=seed), shares, n_seeds
    )
    drifted = along_shift(lambda drift, seed: bures.data.drifting_class(n, drift=drift, seed=seed), drifts, n_seeds)
    show_table(console, "Two classes exchange regions: share exchanged", shares, exchanged)
    show_table(console, "One class of three drifts: drift", drifts, drifted)

    pair = bures.data.drifting_class(n, drift=2.0)
    console.print("\nWhich class has drifted? [bold]bures.explain[/bold] on the drift of 2:\n")
    print(bures.explain(*pair))

    figure, axes = plt.subplots(2, 2, figsize=(10, 9.2), layout="constrained", height_ratios=[1.15, 1])
    show_samples(axes[0, 0], bures.data.exchanged_regions(n, share=1.0), "Classes exchange regions; P(X) is the same")
    show_samples(axes[0, 1], pair, "One class drifts and turns")
    show_distances(axes[1, 0], shares, exchanged, "share of the second lobes that changes class")
    show_distances(axes[1, 1], drifts, drifted, "drift of class 0")

    output.mkdir(parents=True, exist_ok=True)
    path = output / "conditional_shift.png"
    figure.savefig(path, dpi=110)
    console.print(f"\nFigure: {path}")


arguments = read_arguments("conditional_shift")
main(arguments.quick, arguments.output)
