"""Figures of docs/figures.md that are made from ledgers: drawn anew with them, or what they still wait for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bures.experiments import Grid, grid_results, load_grid
from bures.figures import ablation_table, draw_figure, hyperparameter_grid, save_figure

ROOT = Path(__file__).resolve().parent.parent
STYLES = {"light": "", "dark": "-dark"}


def parts(
    *, draw: bool = False, results: Path = ROOT / "results", images: Path = ROOT / "docs" / "images"
) -> dict[str, Callable[[], str]]:
    """What makes the parts of the page, by the names of their markers."""
    make = partial(_part, draw=draw, results=results, images=images)
    found: dict[str, Callable[[], str]] = {}
    for recipe, title in (("digits", "digits"), ("office10-features", "features of Office10")):
        alt = f"Accuracies of CKB and of what can stand in its place on {title}"
        found[f"figure ablation {recipe}"] = partial(
            make, "ablation", "ablation", f"ablation-{recipe}", alt, _ablation_is_whole, {"recipe": recipe}
        )
    for grid in ("hyperparameters", "hyperparameters-digits"):
        alt = "Accuracy over the weights of entropy and alignment"
        found[f"figure {grid}"] = partial(make, "hyperparameters", grid, grid, alt, _weights_are_whole, {})
    return found


def _part(
    figure: str,
    grid: str,
    stem: str,
    alt: str,
    is_whole: Callable[..., bool],
    options: dict[str, Any],
    *,
    draw: bool,
    results: Path,
    images: Path,
) -> str:
    """The figure for white and for dark pages, once its runs are there; before, how many of them are."""
    declared = load_grid(grid)
    found = grid_results(declared, results)
    if not is_whole(found, **options):
        return _waiting(declared, found, figure, options)
    if draw:
        for style, suffix in STYLES.items():
            drawn = draw_figure(figure, [results / f"{grid}.jsonl"], style=style, **options)
            save_figure(drawn, images / f"figure-{stem}{suffix}", ["svg"], style=style)
    blocks = [
        f"```{{image}} images/figure-{stem}{suffix}.svg\n:class: only-{style}\n:alt: {alt}\n```"
        for style, suffix in STYLES.items()
    ]
    return "\n\n".join(blocks)


def _waiting(grid: Grid, found: list[dict[str, Any]], figure: str, options: dict[str, Any]) -> str:
    recipe = options.get("recipe")
    cells = grid.cells(recipes=None if recipe is None else [recipe])
    done = len({result["key"] for result in found} & {cell.key for cell in cells})
    chosen, drawn = (f" --recipes {recipe}", f" --recipe {recipe}") if recipe else ("", "")
    rest = f"; `bures figure {figure}{drawn}` draws these" if done else ""
    return f"Not shown yet: {done} of {len(cells)} runs of `bures bench {grid.name}{chosen}` are finished{rest}."


def _ablation_is_whole(results: list[dict[str, Any]], *, recipe: str) -> bool:
    """Whether every method was run on every task."""
    if not any(result["recipe_name"] == recipe for result in results):
        return False
    return bool((ablation_table(results, recipe=recipe)["mean", "n"] > 0).all())


def _weights_are_whole(results: list[dict[str, Any]]) -> bool:
    if not results:
        return False
    return not hyperparameter_grid(results).missing
