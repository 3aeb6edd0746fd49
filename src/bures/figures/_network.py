"""The flowchart of a network and its objective, drawn from the modules themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from bures.arrays import check_choice
from bures.figures._blocks import Block, input_shape, network_blocks
from bures.figures._style import Style, style_named
from bures.methods import make_method
from bures.methods._method import ConditionalTerm, FeatureTerm
from bures.networks import build_network

__all__ = ["network_figure"]

WIDTH, HEIGHT, GAP = 3.7, 0.44, 0.24  # of the boxes of the network, in inches
SIDE, RIGHT, STEP = 2.3, 5.1, HEIGHT + 0.3  # width, left edge and distance of the boxes of the objective
ROUND = "round,pad=0,rounding_size=0.07"
# Methods that add terms to the cross-entropy and nothing else: no networks, no steps of their own.
METHODS = (
    "bures", "ckb", "ckb+mmd", "ckb-no-entropy", "ckw", "class-means", "entropy", "im", "kernel-bures", "source"
)  # fmt: skip
NAMES = {"ckb": "CKB", "mmd": "MMD of labels", "means": "class means", "bures": "Bures", "kernel-bures": "kernel Bures"}


def network_figure(
    network: str = "lenet",
    *,
    n_classes: int = 10,
    method: str = "ckb",
    in_features: int | None = None,
    style: str = "light",
) -> Figure:
    """The way of both domains through a network to the terms of its objective.

    Parameters
    ----------
    network : str, optional
        A backbone of `bures.networks.build_network`; it is built with random weights, and its modules are read.
    n_classes : int, optional
        Number of classes.
    method : str, optional
        Of the CKB family, its ablations and controls; terms and weights are read from the method itself.
    in_features : int, optional
        Width of the features, for "identity"; 2048 where it is left out.
    style : {"light", "dark", "print"}, optional
        See `style_named`.

    Examples
    --------
    >>> from bures.figures import network_figure
    >>> texts = [text.get_text() for text in network_figure("lenet").axes[0].texts]
    >>> any("conv 5×5" in text for text in texts)
    True
    """
    if network == "identity" and in_features is None:
        in_features = 2048
    built = build_network(network, n_classes, in_features=in_features, seed=0)
    shape = input_shape(built)
    blocks = network_blocks(built, shape)
    terms = _terms(method)
    look = style_named(style)
    below = sum(kind == "p" for _, _, kind in terms)  # terms under the last block
    height = 1.3 + max(1, below) * STEP + len(blocks) * (HEIGHT + GAP)
    with look.applied():
        figure = Figure(figsize=(RIGHT + SIDE + 0.25, height))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set(xlim=(0, RIGHT + SIDE + 0.25), ylim=(0, height))
        tops = _column(axes, blocks, shape, height, look, network)
        _objective(axes, terms, tops, len(blocks), look)
    return figure


def _terms(method: str) -> list[tuple[str, float, str]]:
    """Name, weight and kind of each term that a method adds: on features and classes, on features, on predictions."""
    check_choice("method", method, METHODS)
    found = []
    for term in make_method(method).terms:
        kind = (
            "conditional" if isinstance(term, ConditionalTerm) else "marginal" if isinstance(term, FeatureTerm) else "p"
        )
        schedule: Any = term.schedule
        found.append((NAMES.get(str(term.name), str(term.name)), float(schedule.value), kind))
    return found


def _column(
    axes: Any, blocks: Sequence[Block], shape: tuple[int, ...], height: float, look: Style, network: str
) -> list[float]:
    """Inputs and blocks from top to bottom; where the middle of each block is."""
    x, y = 0.45, height - 0.3 - HEIGHT
    half = (WIDTH - 0.2) / 2
    words = " × ".join(map(str, shape))
    what = "images" if len(shape) == 3 else "features"
    for number, (side, label) in enumerate((("source", "labels y"), ("target", "no labels"))):
        left = x + number * (half + 0.2)
        _box(axes, (left, y), half, f"{side} {what}, {label}", look, look.colour(number), shape=words)
        end = (x + WIDTH / 2 + (number - 0.5) * 0.5, y - GAP - 0.12)
        _arrow(axes, (left + half / 2, y), end, look.colour(number), dashed=number == 1)
    y -= 0.12
    middles = []
    parts = [block.part if block.part == "backbone" else "head" for block in blocks]
    for number, block in enumerate(blocks):
        y -= HEIGHT + GAP
        given = " × ".join(map(str, block.shape))
        if number == len(blocks) - 2:
            given = f"features z: {given}"
        elif number == len(blocks) - 1:
            given = f"logits: {given}; their softmax is p"
        _box(axes, (x, y), WIDTH, ", ".join(block.words), look, look.ink, shape=given)
        middles.append(y + HEIGHT / 2)
        if number + 1 < len(blocks):
            for domain in (0, 1):
                at = x + WIDTH / 2 + (domain - 0.5) * 0.5
                _arrow(axes, (at, y), (at, y - GAP), look.colour(domain), dashed=domain == 1)
    for part in dict.fromkeys(parts):
        own = [middle for middle, other in zip(middles, parts, strict=True) if other == part]
        top, bottom = own[0] + HEIGHT / 2 + 0.07, own[-1] - HEIGHT / 2 - 0.07
        axes.add_patch(
            Rectangle(
                (x - 0.1, bottom), WIDTH + 0.2, top - bottom, fill=False, edgecolor=look.faint, ls="--", lw=1, zorder=0
            )
        )
        label = f"backbone: {network}" if part == "backbone" else "head"
        axes.text(x - 0.19, (top + bottom) / 2, label, rotation=90, ha="center", va="center")
    return middles


def _objective(
    axes: Any, terms: Sequence[tuple[str, float, str]], middles: Sequence[float], n_blocks: int, look: Style
) -> None:
    """Boxes of the terms beside what they see, and their sum."""
    edge = 0.45 + WIDTH
    features, logits = middles[-2] if n_blocks > 1 else middles[-1], middles[-1]
    aligned = [term for term in terms if term[2] != "p"]
    others: list[tuple[str, float | None, str]] = [("cross-entropy", None, "source: p and y")]
    for name, weight, kind in terms:
        if kind == "p":
            others.append((name, weight, "source: y, target: p" if name == NAMES["mmd"] else "target: p"))
    y = features + (len(aligned) - 1) * STEP + 0.1
    for name, weight, kind in aligned:
        inputs = "source: z and y, target: z and p" if kind == "conditional" else "z of both"
        _term(axes, y, name, weight, inputs, look)
        _arrow(axes, (edge, features), (RIGHT, y), look.ink)
        if kind == "conditional":
            _arrow(axes, (edge, logits), (RIGHT, y - 0.1), look.ink, dashed=True)
        y -= STEP
    note = "Both domains pass\nthrough the same weights.\nBelow the modules: shape\nof what they give."
    axes.text(RIGHT, axes.get_ylim()[1] - 0.3, note, va="top", fontsize=look.size - 1, linespacing=1.4)
    y = min(logits, y)
    for name, share, inputs in others:
        _term(axes, y, name, share, inputs, look)
        _arrow(axes, (edge, logits), (RIGHT, y), look.ink)
        y -= STEP
    parts = ["cross-entropy", *(f"{weight:g} · {name}" for name, weight, _ in terms)]
    axes.text(0.45, 0.22, "minimised: " + " + ".join(parts), va="center", weight="bold")


def _term(axes: Any, y: float, name: str, weight: float | None, inputs: str, look: Style) -> None:
    label = name if weight is None else f"{name}, weight {weight:g}"
    box: dict[str, Any] = {"boxstyle": ROUND, "facecolor": look.paper, "edgecolor": look.colour(2), "lw": 1.5}
    axes.add_patch(FancyBboxPatch((RIGHT, y - HEIGHT / 2 - 0.04), SIDE, HEIGHT + 0.08, **box))
    axes.text(RIGHT + SIDE / 2, y + 0.1, label, ha="center", va="center", weight="bold")
    axes.text(RIGHT + SIDE / 2, y - 0.12, inputs, ha="center", va="center", fontsize=look.size - 2.5)


def _box(
    axes: Any, corner: tuple[float, float], width: float, label: str, look: Style, edge: str, *, shape: str
) -> None:
    x, y = corner
    box: dict[str, Any] = {"boxstyle": ROUND, "facecolor": look.paper, "edgecolor": edge, "lw": 1.2}
    axes.add_patch(FancyBboxPatch((x, y), width, HEIGHT, **box))
    axes.text(x + width / 2, y + HEIGHT / 2 + 0.09, label, ha="center", va="center", fontsize=look.size - 1)
    axes.text(x + width / 2, y + HEIGHT / 2 - 0.11, shape, ha="center", va="center", fontsize=look.size - 2, alpha=0.85)


def _arrow(
    axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str, *, dashed: bool = False
) -> None:
    style: dict[str, Any] = {
        "arrowstyle": "-|>",
        "mutation_scale": 9,
        "lw": 1.3,
        "color": colour,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.add_patch(FancyArrowPatch(start, end, linestyle="--" if dashed else "-", **style))
