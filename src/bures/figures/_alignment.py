"""Marginal against conditional alignment: toy domains brought together by either, and where their classes end up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from bures.data import DomainPair, rotated_moons
from bures.figures._style import Style, style_named
from bures.metrics import ckb, ckw, kernel_bures, mmd

__all__ = ["AlignmentState", "alignment_figure", "alignment_states"]

ANGLE = 120.0  # past 90 degrees, the moons of the other class are nearer than those of the own
STEPS, RATE = 150, 0.05
MARKS = (("+", "o"), ("x", "s"))  # of source and target in each class: colour alone tells nothing in print


@dataclass(frozen=True)
class AlignmentState:
    """Two domains, the target as it is or moved, and how far apart they are.

    Attributes
    ----------
    title : str
        What was done.
    pair : DomainPair
        Source and moved target, with their classes.
    distances : dict of str to float
        Squared distances of the two.
    accuracy : float
        Share of the target, from 0 to 1, that its five nearest source samples classify rightly.
    """

    title: str
    pair: DomainPair
    distances: dict[str, float]
    accuracy: float


def alignment_states(n: int = 200, *, seed: int = 0) -> list[AlignmentState]:
    """Two moons before alignment, after marginal and after conditional alignment.

    The target is turned by 120 degrees. An affine map, which starts as the identity, is fitted to it by gradient
    descent: once on kernel means and covariances of P(X), that is MMD and kernel Bures, which ignore classes, and
    once on CKW, the kernel means and covariances of P(X|Y). The latter is told the target's classes; in training it
    has predictions in their place.

    Parameters
    ----------
    n : int, optional
        Samples of each domain.
    seed : int, optional
        Of the samples.

    Examples
    --------
    >>> from bures.figures import alignment_states
    >>> before, marginal, conditional = alignment_states(60)
    >>> marginal.distances["MMD"] < 0.01, round(marginal.accuracy, 1), round(conditional.accuracy, 1)
    (True, 0.0, 1.0)
    """
    pair = rotated_moons(n, angle=ANGLE, seed=seed)
    marginal = _fitted(pair, lambda xs, ys, xt, yt: mmd(xs, xt) + kernel_bures(xs, xt))
    conditional = _fitted(pair, ckw)
    titles = ("before alignment", "marginal alignment\n(MMD + kernel Bures)", "conditional alignment\n(CKW)")
    return [
        _state(title, pair._replace(xt=xt)) for title, xt in zip(titles, (pair.xt, marginal, conditional), strict=True)
    ]


def alignment_figure(states: Sequence[AlignmentState], *, style: str = "light") -> Figure:
    """The states side by side, with their distances below.

    Parameters
    ----------
    states : sequence of AlignmentState
        Of `alignment_states`.
    style : {"light", "dark", "print"}, optional
        See `style_named`.

    Returns
    -------
    Figure
        The source is drawn as crosses, the target as open marks; colours and kinds of marks are classes.
    """
    look = style_named(style)
    with look.applied():
        figure = Figure(figsize=(3.1 * len(states), 4.25), layout="constrained")
        grid = figure.subplots(1, len(states), squeeze=False, sharex=True, sharey=True)[0]
        for axes, state in zip(grid, states, strict=True):
            _scatter(axes, state, look)
        figure.legend(handles=_handles(look), loc="outside lower center", ncols=4, handletextpad=0.3)
    return figure


def _fitted(pair: DomainPair, loss: Callable[..., Any]) -> NDArray[np.float64]:
    """The target under an affine map that makes the loss small."""
    xs, ys, xt, yt = (torch.as_tensor(part) for part in pair)
    linear = torch.eye(xt.shape[1], dtype=xt.dtype).requires_grad_()
    offset = torch.zeros(xt.shape[1], dtype=xt.dtype).requires_grad_()
    optimiser = torch.optim.Adam([linear, offset], lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        value: Tensor = loss(xs, ys, xt @ linear.T + offset, yt)
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return np.asarray((xt @ linear.T + offset).detach().numpy())


def _state(title: str, pair: DomainPair) -> AlignmentState:
    xs, ys, xt, yt = pair
    distances = {
        "MMD": float(mmd(xs, xt)),
        "kernel Bures": float(kernel_bures(xs, xt)),
        "CKB": float(ckb(xs, ys, xt, yt)),
        "CKW": float(ckw(xs, ys, xt, yt)),
    }
    accuracy = KNeighborsClassifier(n_neighbors=5).fit(xs, ys).score(xt, yt)
    return AlignmentState(title, pair, distances, float(accuracy))


def _scatter(axes: Any, state: AlignmentState, look: Style) -> None:
    xs, ys, xt, yt = state.pair
    for label in np.unique(ys):
        colour, (cross, ring) = look.colour(int(label)), MARKS[int(label)]
        axes.scatter(*xs[ys == label].T, marker=cross, s=24, linewidths=1.0, color=colour)
        axes.scatter(*xt[yt == label].T, marker=ring, s=18, linewidths=0.9, facecolors="none", edgecolors=colour)
    axes.set_title(state.title)
    axes.set(xticks=[], yticks=[], aspect="equal")
    lines = [f"{name} {value:.4f}" for name, value in state.distances.items()]
    text = f"{lines[0]}   {lines[1]}\n{lines[2]}   {lines[3]}\n{100 * state.accuracy:.0f} % of the target right"
    axes.set_xlabel(text, labelpad=6, linespacing=1.4)
    for spine in axes.spines.values():
        spine.set(visible=True, color=look.faint)


def _handles(look: Style) -> list[Line2D]:
    return [
        Line2D([], [], ls="", marker=mark, mfc="none", color=look.colour(label), label=f"{side}, class {label + 1}")
        for label, marks in enumerate(MARKS)
        for side, mark in zip(("source", "target"), marks, strict=True)
    ]
