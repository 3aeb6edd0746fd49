"""The figures by name: what each shows, what it reads, and which options it takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure

from bures.figures._ablation import ablation_figure, ablation_table
from bures.figures._alignment import alignment_figure, alignment_states
from bures.figures._convergence import convergence_figure, convergence_table, read_convergence
from bures.figures._hyperparameters import hyperparameter_figure, hyperparameter_grid
from bures.figures._ledgers import folder_result, ledger_results, shared_results
from bures.figures._network import network_figure
from bures.figures._time import time_figure, time_table
from bures.figures._training import run_results, training_curves, training_figure
from bures.figures._tsne import run_feature_state, tsne_figure
from bures.figures._validators import grid_ledgers, validator_figure, validator_table

__all__ = ["FigureInfo", "draw_figure", "figure_info", "figure_names"]

Draw = Callable[..., Figure]


@dataclass(frozen=True)
class FigureInfo:
    """A figure that can be drawn by its name.

    Attributes
    ----------
    name : str
        What it is called on the command line.
    summary : str
        What it shows.
    reads : str
        What it is made from; empty where it is computed.
    default : str, optional
        What it reads where nothing else is given, in the folder of the results.
    options : tuple of str
        Keyword arguments of `draw_figure` that it takes.
    """

    name: str
    summary: str
    reads: str
    default: str | None
    options: tuple[str, ...]
    draw: Draw


def figure_names() -> list[str]:
    """Names of the figures.

    Examples
    --------
    >>> from bures.figures import figure_names
    >>> figure_names()
    ['ablation', 'alignment', 'convergence', 'hyperparameters', 'network', 'time', 'training', 'tsne', 'validators']
    """
    return sorted(_FIGURES)


def figure_info(name: str) -> FigureInfo:
    """What a figure shows and needs.

    Parameters
    ----------
    name : str
        One of `figure_names`.

    Examples
    --------
    >>> from bures.figures import figure_info
    >>> figure_info("time").default
    'digits.jsonl'
    """
    if name not in _FIGURES:
        raise ValueError(f"figure {name!r} is unknown; accepted are {', '.join(figure_names())}")
    return _FIGURES[name]


def draw_figure(
    name: str,
    inputs: Sequence[str | Path] = (),
    *,
    results: str | Path = "results",
    style: str = "light",
    **options: Any,
) -> Figure:
    """Draw a figure by its name.

    Parameters
    ----------
    name : str
        One of `figure_names`.
    inputs : sequence of path, optional
        Ledgers, manifests or run folders, as `figure_info` says; without them, the default in ``results``.
    results : path, optional
        Folder of the ledgers and manifests.
    style : {"light", "dark", "print"}, optional
        See `style_named`.
    **options
        As `figure_info` names them.

    Examples
    --------
    >>> from bures.figures import draw_figure
    >>> draw_figure("network", network="identity", n_classes=65).axes[0].axison
    False
    """
    info = figure_info(name)
    if unknown := sorted(set(options) - set(info.options)):
        accepted = ", ".join(info.options) or "none"
        raise ValueError(f"{unknown[0]!r} is no option of the figure {name!r}; accepted are: {accepted}")
    paths = [Path(path) for path in inputs]
    if not paths and info.default is not None:
        paths = [Path(results) / info.default]
    return info.draw(paths, style=style, **options)


def _one(paths: Sequence[Path], what: str) -> Path:
    if len(paths) != 1:
        raise ValueError(f"{len(paths)} inputs are given; accepted is one: {what}")
    return paths[0]


def _tell(what: str, command: str) -> None:
    """A figure of what there is, and what makes the rest."""
    warnings.warn(f"the figure has gaps: {what}; make them with: {command}", UserWarning, stacklevel=4)


def _hyperparameters(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    path = _one(paths, "a ledger")
    grid = hyperparameter_grid(ledger_results(path), **options)
    if grid.missing:
        _tell(f"{len(grid.missing)} of {grid.accuracy.size} places are not finished", f"bures bench {path.stem}")
    return hyperparameter_figure(grid, style=style)


def _ablation(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    path = _one(paths, "a ledger")
    table = ablation_table(shared_results(path), **options)
    # Columns are pairs of a task and a statistic; a method is missing where no task has a run of it.
    counts = table.xs("n", axis=1, level=1).to_numpy().sum(axis=1)
    if absent := [str(name) for name, count in zip(table.index, counts, strict=True) if count == 0]:
        command = f"bures bench {path.stem} --recipes {table.attrs['recipe']} --methods {','.join(absent)}"
        _tell(f"not run: {', '.join(absent)}", command)
    return ablation_figure(table, style=style)


def _time(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    if paths and all(path.is_dir() for path in paths):
        results = [folder_result(path) for path in paths]
    else:
        results = ledger_results(_one(paths, "a ledger, or run folders"))
    return time_figure(time_table(results, **options), style=style)


def _training(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    results = run_results(_one(paths, "a ledger or a run folder"), **options)
    return training_figure(training_curves(results), style=style)


def _convergence(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    manifest = read_convergence(_one(paths, "a manifest"))
    return convergence_figure(convergence_table(manifest, **options), style=style)


def _tsne(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    if len(paths) != 2:
        raise ValueError(
            f"{len(paths)} run folders are given; accepted are two, before and after adaptation, as made with: "
            "bures adapt --source SOURCE --target TARGET --method source --method ckb -o RUNS (in RUNS/source and "
            "RUNS/ckb)"
        )
    return tsne_figure([run_feature_state(path, **options) for path in paths], style=style)


def _validators(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    return validator_figure(validator_table(grid_ledgers(paths)), style=style)


def _alignment(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    return alignment_figure(alignment_states(**options), style=style)


def _network(paths: Sequence[Path], *, style: str, **options: Any) -> Figure:
    return network_figure(style=style, **options)


_FIGURES: Mapping[str, FigureInfo] = MappingProxyType(
    {
        info.name: info
        for info in (
            FigureInfo(
                "hyperparameters",
                "Accuracy over the weights of entropy and alignment, as a heat map and as bars in space",
                "a ledger of bures bench hyperparameters or hyperparameters-digits",
                "hyperparameters.jsonl",
                ("method", "tasks"),
                _hyperparameters,
            ),
            FigureInfo(
                "ablation",
                "CKB against Bures, kernel Bures, CKW, class means, and without its parts",
                "a ledger of bures bench; that of the grid ablation shares the cells of digits and office10",
                "ablation.jsonl",
                ("recipe", "tasks"),
                _ablation,
            ),
            FigureInfo(
                "tsne",
                "Features before and after adaptation, by domain and by class, with their distances",
                "two run folders of bures adapt",
                None,
                ("n", "seed", "data_root"),
                _tsne,
            ),
            FigureInfo(
                "time",
                "Seconds of an epoch, and until a given accuracy, for all methods",
                "a ledger of bures bench, or run folders of bures adapt",
                "digits.jsonl",
                ("accuracy", "recipe", "tasks"),
                _time,
            ),
            FigureInfo(
                "alignment",
                "Conditional against marginal alignment on two moons",
                "",
                None,
                ("n", "seed"),
                _alignment,
            ),
            FigureInfo(
                "network",
                "The network and its objective as a flowchart",
                "",
                None,
                ("network", "n_classes", "method"),
                _network,
            ),
            FigureInfo(
                "convergence",
                "Errors of the estimator against the sample size, beside the rates of the theorem",
                "the manifest of examples/convergence.py",
                "convergence/convergence.json",
                ("kernel",),
                _convergence,
            ),
            FigureInfo(
                "training",
                "Accuracy against the epoch, with CKB and CKW on a second axis",
                "a ledger of bures bench, or a run folder of bures adapt",
                "digits.jsonl",
                ("method", "recipe", "tasks"),
                _training,
            ),
            FigureInfo(
                "validators",
                "What the choices of validators lose against an oracle, among epochs and among runs",
                "ledgers of bures bench",
                "*.jsonl",
                (),
                _validators,
            ),
        )
    }
)
