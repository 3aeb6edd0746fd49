"""``bures tune``: a search for the fields of a recipe, judged without target labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.cli._job import (
    Job,
    absolute_weights,
    fit_batch_size,
    load_job,
    names_batch_size,
    origin_of,
    read_overrides,
    tell_of_stop,
)
from bures.cli._training_options import (
    DATA,
    TRAINING,
    Accelerator,
    DataRoot,
    Partial,
    Quiet,
    RecipeName,
    refuse_beside_resume,
)
from bures.files import read_json, write_json
from bures.methods import method_names
from bures.selection import validator_names
from bures.training import Recipe, StoppedBySignal, load_recipe

if TYPE_CHECKING:
    from bures.experiments import TrialResult, Tuning

__all__ = ["tune_command"]

SEARCH = "tune.json"  # what was asked for, in the folder of a search
NOT_IN_A_FOLDER = ("trials", "storage", "quiet", "accelerator")  # options that may be others when a search is resumed
SHOWN = 10  # trials of the table
TUNING = "Search"


def tune_command(
    context: typer.Context,
    source: Annotated[
        str | None, typer.Option(help="Labelled domain, as in bures adapt.", rich_help_panel=DATA)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The domain to adapt to; its labels, if any, play no part.", rich_help_panel=DATA),
    ] = None,
    evaluation: Annotated[
        str | None, typer.Option(help="Target samples that are judged, as in bures adapt.", rich_help_panel=DATA)
    ] = None,
    data_root: DataRoot = None,
    partial: Partial = False,
    recipe: RecipeName = None,
    method: Annotated[
        str | None, typer.Option(help=f"One of: {', '.join(method_names())}.", rich_help_panel=TRAINING)
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Any field of the recipe.", rich_help_panel=TRAINING),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of what is searched, such as: lr: {low: 1e-4, high: 1e-2, log: true}",
            rich_help_panel=TUNING,
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help=f"Validator whose score is made large. One of: {', '.join(validator_names())}.",
            rich_help_panel=TUNING,
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Runs in all, over all machines (default: 20).", rich_help_panel=TUNING)
    ] = None,
    at: Annotated[
        str, typer.Option(help="Judge the last epoch of a run, or its best one: last, best.", rich_help_panel=TUNING)
    ] = "last",
    prune: Annotated[
        bool, typer.Option("--prune", help="Stop runs below the median of earlier ones.", rich_help_panel=TUNING)
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            help="URL of a database, the same for several machines (default: SQLite in the folder).",
            envvar="BURES_STORAGE",
            rich_help_panel=TUNING,
        ),
    ] = None,
    study: Annotated[str, typer.Option(help="Name of the search in the database.", rich_help_panel=TUNING)] = "bures",
    seed: Annotated[int, typer.Option(help="Of the search; --set seed=N is that of runs.", rich_help_panel=TUNING)] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder (default: runs/SOURCE-TARGET-METHOD-tune).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the search in this folder; --trials may grow.")
    ] = None,
    quiet: Quiet = False,
    accelerator: Accelerator = "auto",
) -> None:
    """Search for fields of a recipe that give the best score without target labels; each trial is a run folder.

    An interrupted search goes on with: bures tune --resume FOLDER
    """
    if resume is not None:
        refuse_beside_resume(context, "data, recipe and space from the folder", NOT_IN_A_FOLDER)
        job = _read_search(resume)
        job["trials"] = trials or job["trials"]
        if job["shared"] and storage is None:
            raise ValueError(f"the trials of {resume} are in a database; give its URL: --storage or $BURES_STORAGE")
        folder, fits_batch = resume, False
    else:
        if source is None or target is None or space is None:
            raise ValueError("--source, --target and --space are needed, or --resume with the folder of a search")
        changes = read_overrides(override or [])
        changes |= {name: value for name, value in (("method", method), ("select", select)) if value is not None}
        chosen = (Recipe() if recipe is None else load_recipe(recipe)).override(changes)
        chosen = absolute_weights(chosen)
        job = {
            "origin": origin_of(source, target, evaluation, data_root, strict=False, partial=partial),
            "recipe": chosen.to_dict(),
            "space": _space(space, chosen),
            "trials": trials or 20,
            "at": at,
            "prune": prune,
            "shared": storage is not None,  # the URL itself may hold a password
            "study": study,
            "seed": seed,
        }
        folder = output or Path("runs", "-".join([*_stems(source, target), chosen.method, "tune"]))
        fits_batch = not names_batch_size(recipe, changes) and "batch_size" not in job["space"]
    _search(job, folder, storage, accelerator, quiet, fits_batch)


def _search(
    job: dict[str, Any], folder: Path, storage: str | None, accelerator: str, quiet: bool, fits_batch: bool
) -> None:
    from bures.experiments import SearchSpace, tune  # Lightning takes seconds to import: not for --help
    from bures.experiments._tuning import import_optuna

    import_optuna()  # what is missing is said before data are read
    recipe = Recipe(**job["recipe"]).locate_weights(job["origin"]["data_root"])
    # A search that was refused has no trials, and what it was asked for does not hold for the next one.
    begun = (folder / SEARCH).is_file() and (folder / "trials").is_dir()
    source, target, evaluation = load_job(Job(job["origin"], recipe, [recipe.method], folder, begun=begun), quiet)
    if fits_batch:
        recipe, note = fit_batch_size(recipe, [recipe.method], source, target)
        job["recipe"]["batch_size"] = recipe.batch_size
        if note is not None and not quiet:
            Console(stderr=True).print(note, markup=False, highlight=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"output={str(folder)!r} cannot be made ({error.strerror}); choose another folder") from error
    if not begun:
        write_json(folder / SEARCH, job)
    console = Console()

    def told(trial: TrialResult) -> None:
        if not quiet:
            score = trial.reason if trial.score is None else f"{recipe.select} {trial.score:.4f}"
            values = ", ".join(f"{name} {_short(value)}" for name, value in trial.values.items())
            console.print(Text(f"trial {trial.number}: {trial.state}, {score} ({values})"), soft_wrap=True)

    try:
        result = tune(
            source,
            target,
            recipe,
            SearchSpace(job["space"], recipe),
            folder,
            n_trials=job["trials"],
            at=job["at"],
            prune=job["prune"],
            storage=storage if job["shared"] else None,
            study_name=job["study"],
            seed=job["seed"],
            on_trial=told,
            evaluation=evaluation,
            partial=job["origin"]["partial"],
            origin=job["origin"],
            accelerator=accelerator,
            progress=not quiet,
        )
    except StoppedBySignal as stop:
        tell_of_stop(stop, "tune", folder)
    if not quiet:
        _show(console, result)


def _show(console: Console, result: Tuning) -> None:
    labelled = any(trial.accuracy is not None for trial in result.trials)
    names = list(result.best.values)
    table = Table(title=f"{len(result.trials)} trials, best {result.validator} first", title_justify="left")
    table.add_column("trial", justify="right")
    table.add_column("state")
    for name in (result.validator, *names):
        table.add_column(name, justify="right")
    if labelled:
        table.add_column("target accuracy %", justify="right")
    for trial in result.trials[:SHOWN]:
        score = "" if trial.score is None else f"{trial.score:.4f}"
        accuracy = "" if trial.accuracy is None else f"{100 * trial.accuracy:.1f}"
        values = (_short(trial.values.get(name, "")) for name in names)
        table.add_row(str(trial.number), trial.state, score, *map(Text, values), *[accuracy] * labelled)
    console.print(table)
    if labelled:
        console.print("The search has not used the accuracies.")
    for path in (result.path / "best-recipe.yaml", result.path / "trials.csv", result.best.folder):
        console.print(f"written: {path}", markup=False, highlight=False, soft_wrap=True)


def _space(file: Path, recipe: Recipe) -> dict[str, Any]:
    from bures.experiments import load_space

    return load_space(file, recipe).to_dict()


def _read_search(folder: Path) -> dict[str, Any]:
    file = folder / SEARCH
    if not file.is_file():
        raise FileNotFoundError(f"{folder} is no folder of a search: {SEARCH} is missing")
    content = read_json(file.read_bytes(), file)
    if not isinstance(content, dict):
        raise ValueError(f"{file} is damaged: it holds a {type(content).__name__}")
    missing = {"origin", "recipe", "space", "trials", "at", "prune", "shared", "study", "seed"} - set(content)
    if missing:
        raise ValueError(f"{file} is damaged: {sorted(missing)[0]} is missing")
    return content


def _stems(*specs: str) -> list[str]:
    return [Path(spec.rstrip("/")).stem for spec in specs]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
