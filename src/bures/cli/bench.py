"""``bures bench``: the paper's tables and ours, as grids of runs that go on where they stopped."""

from __future__ import annotations

import logging
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bures.cli._bench_output import Place, again, report, show_table, show_tests
from bures.cli._bench_plan import Plan, plan_grids, read_choice, read_grids
from bures.cli._naming import said_as
from bures.cli._serving import check_not_read
from bures.cli._streams import tell
from bures.files import check_output

if TYPE_CHECKING:
    from bures.experiments import Sweep

__all__ = ["bench"]

FAILED = 1  # exit code where some cells failed and the others are finished
WHAT, HOW, SHOWN = "What is run", "How", "What is shown"
NAMES = (
    "digits, office10, office10-alexnet, office10-images, office-home, office-home-images, imageclef, hyperparameters, "
    "hyperparameters-digits, ablation"
)


def bench(
    grids: Annotated[
        list[str],
        typer.Argument(metavar="GRID", help=f"YAML files, or some of: {NAMES}. Several are run one after the other."),
    ],
    methods: Annotated[list[str] | None, typer.Option(help="Only these, by commas.", rich_help_panel=WHAT)] = None,
    tasks: Annotated[
        list[str] | None, typer.Option(help="Only these, by commas: amazon:dslr,dslr:amazon.", rich_help_panel=WHAT)
    ] = None,
    seeds: Annotated[list[str] | None, typer.Option(help="Only these: 0,1 or 0-4.", rich_help_panel=WHAT)] = None,
    recipes: Annotated[list[str] | None, typer.Option(help="Only these, by commas.", rich_help_panel=WHAT)] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Change a field of the recipes; such runs make rows of their own.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Run at most this many, of all grids.", rich_help_panel=WHAT)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin none later than this, of any grid.", rich_help_panel=WHAT)
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the commands of the runs; run nothing.", rich_help_panel=WHAT),
    ] = False,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Show the tables of what there is; run nothing.", rich_help_panel=WHAT)
    ] = False,
    results: Annotated[Path, typer.Option(help="Folder of the ledgers, GRID.jsonl.", rich_help_panel=HOW)] = Path(
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
        Path | None,
        typer.Option("--output", "-o", help="Write the table of one grid to a file.", rich_help_panel=SHOWN),
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
        typer.Option(
            help="Draw average ranks of one grid and their critical difference into this file.", rich_help_panel=SHOWN
        ),
    ] = None,
    over: Annotated[
        str, typer.Option(help="What is paired and ranked: tasks, seeds or auto.", rich_help_panel=SHOWN)
    ] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=SHOWN)] = False,
) -> None:
    """Run grids of tasks, methods and seeds, and show their tables beside the paper's figures.

    What is finished is kept in the ledger of its grid and never run again: the same command goes on after a kill, and
    several may run side by side. Runs that the ledger of another grid in the same folder holds count as finished. Runs
    that fail are listed at the end with their logs, and tried again the next time.
    """
    from bures.arrays import check_choice
    from bures.experiments import rank_figure, rank_methods
    from bures.experiments._render import FORMATS
    from bures.experiments._significance import OVER

    check_choice("format", format, FORMATS)
    check_choice("backend", backend, ("loky", "dask"))
    check_choice("over", over, OVER)
    if output is not None:
        output = check_output(output)
        check_not_read(output, *grids)
        if output.resolve().suffix == ".jsonl":  # also before there is one: it is written before the table is
            raise ValueError(f"--output {str(output)!r} is called like a ledger, which keeps runs; choose another")
    if ranks is not None:  # before the runs: they take hours
        from bures.figures._save import check_figure_file

        with said_as({"output": "--ranks"}):
            ranks = check_figure_file(ranks)
    several = len(grids) > 1
    if several:
        _check_for_several(grids, output, ranks, format)
    chosen = read_grids(grids)
    choice = read_choice(methods, tasks, seeds, recipes, override)
    plans, skipped = plan_grids(chosen, choice, results)
    for name, reason in skipped.items():
        tell(f"{name} is skipped: {reason}")
    if dry_run:
        _list_commands(plans, headings=several)
        return
    _warn_of_changes(plans)
    sweeps: dict[str, Sweep] = {}
    if not table_only:
        with _cluster(backend, scheduler, jobs):
            options = {"data_root": data_root, "n_jobs": jobs, "backend": backend, "accelerator": accelerator}
            sweeps = _sweep(plans, results, options | {"limit": limit, "minutes": minutes}, quiet)
    known: dict[str, list[dict[str, Any]]] = {}
    for number, plan in enumerate(plans, 1):
        name = plan.grid.name
        known[name] = list((plan.ledger.results() | plan.shared()).values())
        if table_only and not known[name]:
            tell(
                f"{plan.ledger.path} has no run of {name}: name another folder by --results, or leave out "
                "--table-only to run it"
            )
        _warn_of_mixed_data(known[name])
        table = plan.table(known[name])
        place = Place(name, number == 1, number == len(plans)) if several else None
        show_table(table.finished() if finished else table, format, output, commands, place)
    failed = report(sweeps)  # first: the tests may find that they cannot be made
    if paired is not None:
        _test(plans, known, paired, over, several, beside=format != "terminal" and output is None)
    if ranks is not None:
        (plan,) = plans
        from bures.figures._save import write_figure

        matrix = plan.matrix(known[plan.grid.name], over)
        write_figure(rank_figure(rank_methods(matrix), title=plan.grid.title), ranks, dpi=150)
    if failed:
        raise typer.Exit(FAILED)


def _check_for_several(grids: Sequence[str], output: Path | None, ranks: Path | None, format: str) -> None:
    """Refuse what holds one table; pages of HTML after one another are none."""
    given = {"--output FILE": output is not None, "--ranks FILE": ranks is not None, "--format html": format == "html"}
    for option in (option for option, is_given in given.items() if is_given):
        raise ValueError(
            f"{option} takes one grid, and {len(grids)} are named; run them without it, then for each "
            f"grid: bures bench {shlex.quote(grids[0])} --table-only {option}"
        )


def _list_commands(plans: Sequence[Plan], *, headings: bool) -> None:
    for plan in plans:
        done = plan.ledger.results() | plan.shared()
        if headings:
            print(f"# {plan.grid.name}")
        for cell in plan.cells:
            print(f"{'finished' if cell.key in done else 'to run':9}{cell.command}")


def _warn_of_changes(plans: Sequence[Plan]) -> None:
    """Say which finished runs are not those of today's recipes; a ledger that cannot be read is an error here."""
    from bures.experiments import changed_recipes

    for plan in plans:
        for recipe, (count, fields) in changed_recipes(plan.cells, plan.ledger.results()).items():
            warnings.warn(
                f"{count} finished runs of {recipe} were made when it had other values of {', '.join(fields)}; they "
                "are not run again: choose another --results, or take them out of the ledger",
                UserWarning,
                stacklevel=3,
            )


def _warn_of_mixed_data(results: Sequence[dict[str, Any]]) -> None:
    """Say which rows of a table are not of the same data."""
    from bures.experiments._mixed_data import mixed_data

    if tasks := mixed_data(results):
        warnings.warn(
            f"finished runs of {', '.join(tasks)} did not see the same data: files were changed between them; choose "
            "another --results, or take the older ones out of the ledger",
            UserWarning,
            stacklevel=3,
        )


def _sweep(plans: Sequence[Plan], results: Path, options: dict[str, Any], quiet: bool) -> dict[str, Sweep]:
    """Run what the ledgers of the grids lack; what came of each grid."""
    from bures.cli._sweep_progress import sweep_progress
    from bures.experiments import InterruptedSweep, run_sweeps

    grids = [
        ([cell for cell in plan.cells if cell.key not in shared], plan.ledger.path)
        for plan, shared in ((plan, plan.shared()) for plan in plans)
    ]
    title, cells = ", ".join(plan.grid.title for plan in plans), [cell for of_grid, _ in grids for cell in of_grid]
    finished = {key for plan in plans for key in plan.ledger.results()}
    with sweep_progress(title, cells, finished, quiet=quiet) as notify:
        try:
            sweeps = run_sweeps(grids, on_event=notify, **options)
        except (InterruptedSweep, KeyboardInterrupt) as stop:
            tell(
                f"stopped; what is finished is kept in {results if len(plans) > 1 else plans[0].ledger.path}, and long "
                f"trainings keep their state. Go on with: {again()}"
            )
            raise typer.Exit(128 + getattr(stop, "number", 2)) from None
    return dict(zip((plan.grid.name for plan in plans), sweeps, strict=True))


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


def _test(
    plans: Sequence[Plan],
    known: Mapping[str, list[dict[str, Any]]],
    reference: str,
    over: str,
    several: bool,
    *,
    beside: bool,
) -> None:
    """Show the tests of every grid in which they can be made; an error where that is none."""
    refused: dict[str, str] = {}
    for plan in plans:
        matrix, title = plan.matrix(known[plan.grid.name], "seeds"), plan.grid.title if several else None
        try:
            show_tests(matrix, reference, over, title, beside=beside)
        except ValueError as error:
            refused[plan.grid.name] = str(error)
    if len(refused) == len(plans):
        raise ValueError("; ".join(f"{name}: {why}" if several else why for name, why in refused.items()))
    for name, why in refused.items():
        tell(f"{name} is not tested: {why}")
