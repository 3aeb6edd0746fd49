"""``bures report``: runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bures.cli._job import load_job, read_job
from bures.files import is_stream
from bures.provenance import shell_command
from bures.training import RunFolder

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders with a run for each method.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file (default: report.html in the folder of the runs).")
    ] = None,
    tsne: Annotated[
        int, typer.Option(help="Samples of each run that t-SNE places in the plane; 0 for principal components alone.")
    ] = 600,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Read the data of the runs again and renew samples.safetensors, or make it."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Write what was run and what came of it as one HTML file that needs no network; several runs stand side by side.

    Runs that are not finished are reported as far as they came.
    """
    from bures.report import read_runs, write_report

    if refresh:
        for record in read_runs(runs):
            _refresh(record.path, quiet)
    page = write_report(runs, output, tsne=tsne)
    if not quiet:
        typer.echo(f"written: {page}", err=is_stream(page))  # the page may have gone to the standard output


def _refresh(folder: Path, quiet: bool) -> None:
    """Make a run's samples anew from its model and its data."""
    from bures.training._refresh import refresh_samples

    manifest = RunFolder(folder).read_manifest()
    if not manifest["data"].get("origin"):
        raise ValueError(
            f"{folder} was not begun by `bures adapt`, which would have noted where the data lie; use "
            "bures.training.refresh_samples"
        )
    if manifest.get("status") != "finished":
        resume = shell_command("adapt", "--resume", folder)
        raise ValueError(f"--refresh needs finished runs; finish this one first: {resume}")
    job = read_job(folder)
    source, target, evaluation = load_job(job, quiet)
    refresh_samples(folder, source, target, evaluation, partial=job.origin["partial"])
