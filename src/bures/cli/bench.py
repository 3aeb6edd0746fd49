"""``bures bench``: the paper's tables and ours, as grids of runs that go on where they stopped."""

from __future__ import annotations

import io
import logging
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.cli.adapt import read_overrides
from bures.files import check_output, write_text

if TYPE_CHECKING:
    import pandas as pd

    from bures.experiments import BenchTable, Grid, Sweep

__all__ = ["bench"]

FAILED = 1  # exit code where some cells failed and the others are finished
WHAT, HOW, SHOWN = "What is run", "How", "What is shown"
NAMES = (
    "digits, office10, office10-alexnet, office10-images, office-home, office-home-images, imageclef, hyperparameters, "
    "hyperparameters-digits, ablation"
)


def bench(
    grid: Annotated[str, typer.Argument(help=f"A YAML file, or one of: {NAMES}.")],
    methods: Annotated[str | None, typer.Option(help="Only these, by commas.", rich_help_panel=WHAT)] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Only these, by commas: amazon:dslr,dslr:amazon.", rich_help_panel=WHAT)
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these: 0,1 or 0-4.", rich_help_panel=WHAT)] = None,
    recipes: Annotated[str | None, typer.Option(help="Only these, by commas.", rich_help_panel=WHAT)] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Change a field of the recipes; such runs make rows of their own.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Run at most this many.", rich_help_panel=WHAT)] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin none later than this.", rich_help_panel=WHAT)
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the commands of the runs; run nothing.", rich_help_panel=WHAT),
    ] = False,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Show the table of what there is; run nothing.", rich_help_panel=WHAT)
    ] = False,
    results: Annotated[Path, typer.Option(help="Folder of the ledger, GRID.jsonl.", rich_help_panel=HOW)] = Path(
        "results"
    ),
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Runs side by side.", rich_help_panel=HOW)] = 1,
    backend: Annotated[
        str, typer.Option(help="loky: processes of this machine; dask: a Dask cluster.", rich_help_panel=HOW)
    ] = "loky",
    scheduler: Annotated[
        str | None, typer.Option(help="Address of the Dask scheduler; without it, a cluster here.", rich_help_panel=HOW)
    ] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, gpu.", rich_help_panel=HOW)] = "auto",
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data sets (default: $BURES_DATA).", rich_help_panel=HOW)
    ] = None,
    format: Annotated[
        str, typer.Option(help="terminal, markdown, latex, html or csv.", rich_help_panel=SHOWN)
    ] = "terminal",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table to a file.", rich_help_panel=SHOWN)
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Leave out rows of which nothing was run.", rich_help_panel=SHOWN)
    ] = False,
    commands: Annotated[
        bool, typer.Option("--commands", help="List commands under Markdown and LaTeX.", rich_help_panel=SHOWN)
    ] = False,
    paired: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD", help="Test this method against the others (Wilcoxon, Holm).", rich_help_panel=SHOWN
        ),
    ] = None,
    ranks: Annotated[
        Path | None,
        typer.Option(help="Draw average ranks and their critical difference into this file.", rich_help_panel=SHOWN),
    ] = None,
    over: Annotated[
        str, typer.Option(help="What is paired and ranked: tasks, seeds or auto.", rich_help_panel=SHOWN)
    ] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=SHOWN)] = False,
) -> None:
    """Run a grid of tasks, methods and seeds, and show its table beside the paper's figures.

    What is finished is kept in the ledger and never run again: the same command goes on after a kill, and several may
    run side by side. Runs that the ledger of another grid in the same folder holds count as finished. Runs that fail
    are listed at the end with their logs, and tried again the next time.
    """
    from bures.arrays import check_choice
    from bures.experiments import (
        Cell,
        Ledger,
        accuracy_matrix,
        bench_table,
        changed_recipes,
        finished_elsewhere,
        load_grid,
        rank_figure,
        rank_methods,
    )
    from bures.experiments._render import FORMATS
    from bures.experiments._significance import OVER

    check_choice("format", format, FORMATS)
    check_choice("backend", backend, ("loky", "dask"))
    check_choice("over", over, OVER)
    output, ranks = (None if file is None else check_output(file) for file in (output, ranks))
    chosen = load_grid(grid)
    only_methods, only_tasks, only_recipes = _split(methods), _read_tasks(tasks), _split(recipes)
    cells = chosen.cells(
        methods=only_methods,
        tasks=only_tasks,
        seeds=_read_seeds(seeds),
        recipes=only_recipes,
        changes=read_overrides(override or []),
    )
    if not cells:
        raise ValueError(f"no cell of {chosen.name} is left: no stage has these methods, tasks, seeds and recipes")
    kinds = {(cell.recipe, cell.method): cell for cell in cells if isinstance(cell, Cell)}
    for cell in kinds.values():
        cell.build()  # a change that no recipe takes is told now, not in every log
    ledger = Ledger(results / f"{chosen.name}.jsonl")
    shared = finished_elsewhere(cells, ledger.path)
    if dry_run:
        done = ledger.results() | shared
        for each in cells:
            print(f"{'finished' if each.key in done else 'to run':9}{each.command}")
        return
    for recipe, (count, fields) in changed_recipes(cells, ledger.results()).items():
        warnings.warn(
            f"{count} finished runs of {recipe} were made when it had other values of {', '.join(fields)}; they are "
            "not run again: choose another --results, or take them out of the ledger",
            UserWarning,
            stacklevel=2,
        )
    sweep = None
    if not table_only:
        sweep = _sweep(
            chosen,
            [each for each in cells if each.key not in shared],
            ledger.path,
            quiet,
            backend,
            scheduler,
            {
                "data_root": data_root,
                "n_jobs": jobs,
                "accelerator": accelerator,
                "limit": limit,
                "minutes": minutes,
            },
        )
    known = (ledger.results() | shared).values()
    table = bench_table(chosen, known, methods=only_methods, tasks=only_tasks, recipes=only_recipes)
    _show(table.finished() if finished else table, format, output, commands)
    failed = sweep is not None and _report(sweep)  # first: the tests may find that they cannot be made
    if paired is not None or ranks is not None:
        tested = chosen if only_tasks is None else replace(chosen, tasks=tuple(only_tasks))
        matrix = accuracy_matrix(tested, known, over=over, methods=only_methods, recipes=only_recipes)
        if paired is not None:
            _show_tests(matrix, paired, beside=format != "terminal" and output is None)
        if ranks is not None:
            rank_figure(rank_methods(matrix), title=chosen.title).savefig(ranks, dpi=150)
    if failed:
        raise typer.Exit(FAILED)


def _sweep(
    grid: Grid,
    cells: list[Any],
    ledger: Path,
    quiet: bool,
    backend: str,
    scheduler: str | None,
    options: dict[str, Any],
) -> Sweep:
    from bures.cli._sweep_progress import sweep_progress
    from bures.experiments import InterruptedSweep, run_sweep

    with _cluster(backend, scheduler, options["n_jobs"]), sweep_progress(grid, cells, ledger, quiet=quiet) as notify:
        try:
            return run_sweep(cells, ledger, backend=backend, on_event=notify, **options)
        except (InterruptedSweep, KeyboardInterrupt) as stop:
            number = getattr(stop, "number", 2)
            again = shlex.join(["bures", *sys.argv[1:]])
            Console(stderr=True, soft_wrap=True).print(
                f"stopped; what is finished is kept in {ledger}. Go on with: {again}", markup=False, highlight=False
            )
            raise typer.Exit(128 + number) from None


@contextmanager
def _cluster(backend: str, scheduler: str | None, jobs: int) -> Iterator[None]:
    """A Dask client where that is the backend: joblib finds it by itself."""
    if backend != "dask":
        if scheduler is not None:
            raise ValueError("--scheduler is given, but --backend is not dask")
        yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("--backend dask needs Dask; install bures[dask]") from error
    here = {"n_workers": jobs, "threads_per_worker": 1, "silence_logs": logging.ERROR}
    options: dict[str, Any] = here if scheduler is None else {"address": scheduler}
    with Client(**options):
        yield


def _show(table: BenchTable, format: str, output: Path | None, commands: bool) -> None:
    from bures.experiments import render_table
    from bures.experiments._render import FOOTNOTE, rich_tables

    if format != "terminal":
        text = render_table(table, format, commands=commands).rstrip("\n") + "\n"
        if output is None:
            print(text, end="")
        else:
            write_text(output, text)
        return
    file = None if output is None else io.StringIO()
    console = Console(file=file)
    if not console.is_terminal:
        console = Console(file=file, width=1000)  # a pipe or a file wraps nothing
    for part in rich_tables(table, console.width):
        console.print(part)
    for note in (*table.notes, FOOTNOTE.replace("`", "")):
        console.print(note, markup=False, highlight=False, soft_wrap=not console.is_terminal)
    if output is not None and file is not None:
        write_text(output, file.getvalue())


def _show_tests(matrix: pd.DataFrame, reference: str, *, beside: bool) -> None:
    """Print the tests; ``beside`` a table that programs read, on the standard error stream."""
    from bures.experiments import paired_tests

    pairs = "tasks, means over seeds" if matrix.index.nlevels == 1 else "seeds of tasks, not independent evidence"
    title = Text(f"{reference} against the others, signed-rank test over {pairs}")
    shown = Table(title=title, title_justify="left")
    shown.add_column("method")
    for name in ("pairs", "difference", "wins", "ties", "losses", "p", "p Holm"):
        shown.add_column(name, justify="right")
    for test in paired_tests(matrix, reference):
        counts = [str(count) for count in (test.wins, test.ties, test.losses)]
        cells = [str(test.n), f"{test.difference:+.2f}", *counts, f"{test.p:.2g}", f"{test.p_holm:.2g}"]
        shown.add_row(Text(test.method), *cells)
    Console(stderr=beside).print(shown)


def _report(sweep: Sweep) -> bool:
    """Say what failed and what is left; True where something failed."""
    console = Console(stderr=True, soft_wrap=True)
    for key, trace in sweep.failures.items():
        last = trace.strip().splitlines()[-1]
        console.print(f"failed: {key}\n  {last}\n  log: {sweep.logs[key]}", markup=False, highlight=False)
    if sweep.left:
        again = shlex.join(["bures", *sys.argv[1:]])
        console.print(f"{len(sweep.left)} cells are left; go on with: {again}", markup=False, highlight=False)
    return bool(sweep.failures)


def _split(text: str | None) -> list[str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"{text!r} names nothing; accepted are names with commas between them")
    return parts


def _read_tasks(text: str | None) -> list[str] | None:
    parts = _split(text)
    return None if parts is None else [part.replace("->", ":").replace("→", ":") for part in parts]


def _read_seeds(text: str | None) -> list[int] | None:
    """Seeds as numbers: 0,2 or 0-4 or both."""
    seeds: list[int] = []
    for part in _split(text) or []:
        first, sign, last = part.partition("-")
        try:
            span = range(int(first), int(last if sign else first) + 1)
        except ValueError:
            span = range(0)
        if not span:  # 3-1 as well: no seeds would stand for all of them
            raise ValueError(f"--seeds {text!r}: {part!r} is no seed; accepted are 0,1 or 0-4")
        seeds += span
    return seeds or None
