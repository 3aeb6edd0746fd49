"""What ``bures adapt`` shows in the end: a table, a drawing of the features and the report."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.cli._progress import progress_bar
from bures.data import Domain
from bures.data._overlap import count_shared

if TYPE_CHECKING:
    from bures.experiments import Comparison
    from bures.training import Run

__all__ = ["draw_features", "show", "write_page"]


def show(console: Console, comparison: Comparison, source: Domain, target: Domain, evaluation: Domain | None) -> None:
    """The table of the methods, and what a reader must know of its numbers."""
    tested = evaluation or target
    title = f"{source.name} ({len(source)} labelled) → {target.name} ({len(target)} unlabelled)"
    # As text: a name in brackets is no markup, and must not cost what a training has found.
    table = Table(title=Text(title), title_justify="left")
    table.add_column("method")
    labelled = tested.labels is not None
    compared = comparison.baseline is not None and len(comparison.runs) > 1
    if labelled:
        table.add_column("target accuracy %", justify="right")
    if compared:
        table.add_column("gain", justify="right")
    select = next(iter(comparison.runs.values())).manifest["recipe"].get("select", "im")
    table.add_column("label-free score" if select == "im" else f"label-free score ({select})", justify="right")
    table.add_column("seconds", justify="right")
    for row in comparison.rows():
        accuracy = "" if row.accuracy is None else f"{100 * row.accuracy:.1f}"
        gain = "" if row.gain is None else f"{100 * row.gain:+.1f}"
        score = "" if row.score is None else f"{row.score:.3f}"
        seconds = "" if row.seconds is None else f"{row.seconds:.0f}"
        table.add_row(Text(row.label), *[accuracy] * labelled, *[gain] * compared, score, seconds)
    console.print(table)
    finished = any("head_finish" in run.manifest for run in comparison.runs.values())
    notes = ["Behind the head finish." if finished else "Last epoch."]
    if labelled:
        notes.append(_seen(source, tested))
    if compared:
        notes.append("Gains are over the better of the two source-only rows.")
    console.print(" ".join(notes), highlight=False)
    for run in comparison.runs.values():
        for note in run.manifest["notes"]:
            console.print(f"{run.manifest['recipe']['method']}: {note}", markup=False, highlight=False)


def _seen(source: Domain, tested: Domain) -> str:
    """What the accuracy was measured on, and whether training knew it."""
    shared = count_shared(source, tested)
    if shared == 0:
        return f"Accuracy on {len(tested)} target samples, whose labels training has not seen."
    which = f"all {shared} target samples" if shared == len(tested) else f"{shared} of {len(tested)} target samples"
    return f"Warning: {which} are also in the source, with their labels: the accuracy is no test on new samples."


def draw_features(
    comparison: Comparison, source: Domain, target: Domain, folder: Path, accelerator: str, *, quiet: bool
) -> Path | None:
    """The features of the first and the last method, or of the only one; None where they cannot be written."""
    import lightning as L

    from bures.experiments import feature_figure
    from bures.figures._save import write_figure

    names = list(dict.fromkeys([next(iter(comparison.runs)), list(comparison.runs)[-1]]))
    device = L.Fabric(accelerator=accelerator, devices=1).device  # that of the training: a CPU may take minutes
    models = {_title(name, comparison.runs[name]): comparison.runs[name].model().to(device) for name in names}
    with progress_bar("drawing the features", quiet=quiet) as report:
        figure = feature_figure(models, source, target, progress=report)
    try:
        _, drawing = (write_figure(figure, folder / f"features.{kind}", dpi=150) for kind in ("svg", "png"))
    except OSError as error:  # the training is over, and what it came to is told all the same
        warnings.warn(f"the features could not be drawn: {error}", UserWarning, stacklevel=2)
        return None
    return drawing


def _title(name: str, run: Run) -> str:
    return name if run.accuracy is None else f"{name}: {100 * run.accuracy:.1f} % of the target right"


def write_page(folder: Path) -> Path | None:
    """The page on all runs of a folder; what the training came to does not hang on it."""
    from bures.report import write_report

    try:
        return write_report([folder])
    except (OSError, ValueError) as error:
        warnings.warn(f"the report could not be written: {error}", UserWarning, stacklevel=2)
        return None
