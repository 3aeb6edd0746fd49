"""Accuracy over the two weights of the objective: a heat map, and the same as bars in space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from bures.experiments._outcomes import changes_of
from bures.figures._ledgers import on_tasks, task_words
from bures.figures._style import Style, style_named
from bures.methods import method_options

__all__ = ["ENTROPIES", "WEIGHTS", "HyperparameterGrid", "hyperparameter_figure", "hyperparameter_grid"]

ENTROPIES = (0.01, 0.05, 0.1, 0.5, 1.0)
WEIGHTS = (0.1, 1.0, 10.0, 100.0)
LAMBDAS = {"options.entropy", "options.weight"}


@dataclass(frozen=True)
class HyperparameterGrid:
    """Accuracies in percent over the weights of entropy and alignment.

    Attributes
    ----------
    entropies, weights : tuple of float
        λ1 and λ2.
    accuracy : array (len(entropies), len(weights))
        Mean over tasks and seeds; NaN where a run is missing.
    tasks : tuple of str
        What the means are over.
    n_seeds : tuple of int
        Fewest and most seeds of a finished place.
    recipe, method : str
        What was run.
    """

    entropies: tuple[float, ...]
    weights: tuple[float, ...]
    accuracy: NDArray[np.float64]
    tasks: tuple[str, ...]
    n_seeds: tuple[int, int]
    recipe: str
    method: str

    @property
    def missing(self) -> list[tuple[float, float]]:
        """The places (λ1, λ2) that are not finished."""
        return [(self.entropies[i], self.weights[j]) for i, j in np.argwhere(np.isnan(self.accuracy))]


def hyperparameter_grid(
    results: Sequence[Mapping[str, Any]],
    *,
    method: str = "ckb",
    tasks: Sequence[str] = (),
    entropies: Sequence[float] = ENTROPIES,
    weights: Sequence[float] = WEIGHTS,
) -> HyperparameterGrid:
    """Arrange the runs of a ledger by the weights λ1 of the entropy and λ2 of the alignment.

    Parameters
    ----------
    results : sequence of mapping
        As `bures.experiments.read_results` gives them. Runs that differ from their recipe in anything but the two
        weights are left out.
    method : str, optional
        The method.
    tasks : sequence of str, optional
        Only these; a place is finished where every task has a run.
    entropies, weights : sequence of float, optional
        The values of λ1 and λ2; the defaults are the paper's.

    Returns
    -------
    HyperparameterGrid
        With NaN where a task has no run: means over different tasks could not be compared.

    Examples
    --------
    >>> from bures.figures import hyperparameter_grid
    >>> run = {"task": "a->b", "recipe_name": "r", "method": "ckb", "seed": 0, "changes": {}}
    >>> run |= {"recipe": {"options": {"entropy": 0.05, "weight": 1.0}}, "final": {"accuracy": 0.75}}
    >>> grid = hyperparameter_grid([run])
    >>> float(grid.accuracy[1, 1]), len(grid.missing)
    (75.0, 19)
    """
    fitting = [dict(result) for result in results if result["method"] == method and set(changes_of(result)) <= LAMBDAS]
    if not fitting:
        raise ValueError(
            f"the ledger holds no runs of {method!r} that differ from their recipe in the two weights alone"
        )
    recipes = list(dict.fromkeys(result["recipe_name"] for result in fitting))
    if len(recipes) > 1:
        raise ValueError(f"the ledger holds runs of several recipes ({', '.join(recipes)}); accepted are those of one")
    fitting = on_tasks(fitting, tasks)
    names = tuple(dict.fromkeys(result["task"] for result in fitting))
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for result in fitting:
        place = tuple(_index(value, near) for value, near in zip(_lambdas(result), (entropies, weights), strict=True))
        accuracy = (result.get("final") or {}).get("accuracy")
        if accuracy is None or None in place:
            continue
        found.setdefault(place, {}).setdefault(result["task"], []).append(100 * accuracy)  # type: ignore[arg-type]
    values = np.full((len(entropies), len(weights)), np.nan)
    counts = []
    for place, by_task in found.items():
        if set(by_task) == set(names):
            values[place] = np.mean([np.mean(runs) for runs in by_task.values()])
            counts += [len(runs) for runs in by_task.values()]
    seeds = (min(counts, default=0), max(counts, default=0))
    return HyperparameterGrid(tuple(entropies), tuple(weights), values, names, seeds, recipes[0], method)


def hyperparameter_figure(grid: HyperparameterGrid, *, style: str = "light") -> Figure:
    """Heat map and bars of a grid; missing places are hatched in the one and empty in the other.

    Parameters
    ----------
    grid : HyperparameterGrid
        Of `hyperparameter_grid`.
    style : {"light", "dark", "print"}, optional
        See `style_named`.
    """
    look = style_named(style)
    with look.applied():
        figure = Figure(figsize=(9.2, 4.3), layout="constrained")
        flat = figure.add_subplot(1, 2, 1)
        space: Any = figure.add_subplot(1, 2, 2, projection="3d")
        scale = _scale(grid.accuracy)
        _heat(flat, grid, look, scale)
        _bars(space, grid, look, scale)
        figure.suptitle(_title(grid))
        # Before Matplotlib 3.11 the layout of axes in space fails until their ticks have been placed once.
        figure.set_layout_engine("none")
        figure.draw_without_rendering()
        figure.set_layout_engine("constrained")
    return figure


def _heat(axes: Any, grid: HyperparameterGrid, look: Style, scale: Normalize) -> None:
    axes.imshow(grid.accuracy, cmap=look.heat, norm=scale, aspect="auto", origin="lower")
    for (i, j), value in np.ndenumerate(grid.accuracy):
        if np.isnan(value):
            box = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=look.paper, edgecolor=look.faint, hatch="////", lw=0)
            axes.add_patch(box)
            label, colour = "not run", look.ink
        else:
            shade = float(scale(value))
            strong = shade > 0.45
            label, colour = f"{value:.1f}", "white" if strong == (look.paper == "white") else "#10181F"
        ground = {"facecolor": look.paper, "edgecolor": "none", "pad": 1.5} if np.isnan(value) else None
        axes.text(j, i, label, ha="center", va="center", color=colour, bbox=ground)
    if not np.isnan(grid.accuracy).all():
        i, j = np.unravel_index(np.nanargmax(grid.accuracy), grid.accuracy.shape)
        axes.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=look.colour(1), lw=2.2))
    axes.set_xticks(range(len(grid.weights)), [f"{value:g}" for value in grid.weights])
    axes.set_yticks(range(len(grid.entropies)), [f"{value:g}" for value in grid.entropies])
    axes.set(xlabel="λ2, weight of the alignment", ylabel="λ1, weight of the entropy")
    axes.set_title("accuracy on the target (%), the best framed")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _bars(axes: Any, grid: HyperparameterGrid, look: Style, scale: Normalize) -> None:
    floor = scale.vmin or 0.0
    # The farthest bars first, so that near ones cover them.
    for i in range(len(grid.entropies) - 1, -1, -1):
        for j in range(len(grid.weights)):
            value = grid.accuracy[i, j]
            if np.isnan(value):
                axes.plot([j], [i], [floor], "x", color=look.ink, ms=6)
                continue
            colour = look.heat(scale(value))
            edges = {"edgecolor": look.ink, "linewidth": 0.4}
            axes.bar3d(j - 0.32, i - 0.32, floor, 0.64, 0.64, value - floor, color=colour, shade=True, **edges)
    axes.set_xticks(range(len(grid.weights)), [f"{value:g}" for value in grid.weights])
    axes.set_yticks(range(len(grid.entropies)), [f"{value:g}" for value in grid.entropies])
    axes.set_zlim(floor, scale.vmax)
    axes.set(xlabel="λ2", ylabel="λ1")
    axes.set_title(f"the same; bars begin at {floor:g} %" + (", × not run" if grid.missing else ""))
    axes.view_init(elev=28, azim=-55)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((0, 0, 0, 0))
        axis._axinfo["grid"]["color"] = look.faint
        axis.line.set_color(look.ink)


def _scale(accuracy: NDArray[np.float64]) -> Normalize:
    finished = accuracy[~np.isnan(accuracy)]
    if not finished.size:
        return Normalize(0, 100)
    low = max(0.0, 5 * np.floor((finished.min() - 1) / 5))
    return Normalize(low, max(finished.max(), low + 1))


def _title(grid: HyperparameterGrid) -> str:
    few, many = grid.n_seeds
    seeds = f"{few} seed{'s' * (few != 1)}" if few == many else f"{few} to {many} seeds"
    words = [task_words(task) for task in grid.tasks]
    tasks = ", ".join(words) if len(words) <= 4 else f"mean over {len(words)} tasks"
    return f"{grid.method}, recipe {grid.recipe}: {tasks}; {seeds}"


def _lambdas(result: Mapping[str, Any]) -> tuple[float, float]:
    options = {**method_options(result["method"]), **(result["recipe"].get("options") or {})}
    return float(options["entropy"]), float(options["weight"])


def _index(value: float, near: Sequence[float]) -> int | None:
    return next((number for number, other in enumerate(near) if np.isclose(value, other, rtol=1e-6)), None)
