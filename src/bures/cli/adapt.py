"""``bures adapt``: from a labelled source and an unlabelled target to a model and predictions."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bures.cli._job import (
    Job,
    absolute_weights,
    fit_batch_size,
    load_job,
    names_batch_size,
    note_on_weights,
    origin_of,
    planned,
    read_job,
    read_overrides,
    tell_of_stop,
)
from bures.cli._outcome import draw_features, show, write_page
from bures.cli._progress import leading_process
from bures.cli._training_options import (
    DATA,
    MACHINE,
    TRAINING,
    Accelerator,
    DataRoot,
    Partial,
    Quiet,
    RecipeName,
    refuse_beside_resume,
)
from bures.methods import method_names
from bures.selection import validator_names
from bures.training import Recipe, StoppedBySignal, load_recipe

__all__ = ["adapt_command"]

# Options that may be others when a run is resumed; the rest is in its folder.
NOT_IN_A_FOLDER = (
    "figure", "report", "quiet", "accelerator", "devices", "strategy", "sync_batchnorm", "checkpoint_every",
)  # fmt: skip


def adapt_command(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Option(
            help="Labelled domain: image folder, feature file, or a name (mnist, office10/amazon, ...).",
            rich_help_panel=DATA,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The domain to adapt to; its labels, if any, are for evaluation only.", rich_help_panel=DATA),
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="Target samples to evaluate (default: the test part of mnist and usps, else the target).",
            rich_help_panel=DATA,
        ),
    ] = None,
    data_root: DataRoot = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch MNIST or USPS.", rich_help_panel=DATA)] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a bad image file.", rich_help_panel=DATA)] = False,
    partial: Partial = False,
    recipe: RecipeName = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"Repeat to compare several. One of: {', '.join(method_names())}.", rich_help_panel=TRAINING),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="lenet, identity, a torchvision model, timm:NAME or auto.", rich_help_panel=TRAINING),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="File of the backbone's weights, or 'default'.", rich_help_panel=TRAINING)
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs.", rich_help_panel=TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples of each domain.", rich_help_panel=TRAINING)] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the images the network sees.", rich_help_panel=TRAINING)
    ] = None,
    class_balanced: Annotated[
        bool | None,
        typer.Option("--class-balanced", help="Draw source classes equally often.", rich_help_panel=TRAINING),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=TRAINING)] = None,
    precision: Annotated[
        str | None, typer.Option(help="32-true, bf16-mixed or 64-true.", rich_help_panel=TRAINING)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.", rich_help_panel=TRAINING)] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help=f"Chooses the best epoch without target labels. One of: {', '.join(validator_names())}.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Any field of the recipe, such as options.eps=0.1.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run folder (default: runs/SOURCE-TARGET-METHOD).")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder; needs nothing else.")] = None,
    figure: Annotated[
        bool | None,
        typer.Option(help="Draw the features of both domains (default: as the run was begun, else yes)."),
    ] = None,
    report: Annotated[
        bool | None, typer.Option(help="Write report.html (default: as the run was begun, else yes).")
    ] = None,
    quiet: Quiet = False,
    accelerator: Accelerator = "auto",
    devices: Annotated[int, typer.Option(help="Number of devices.", rich_help_panel=MACHINE)] = 1,
    strategy: Annotated[str, typer.Option(help="auto, ddp, ...", rich_help_panel=MACHINE)] = "auto",
    sync_batchnorm: Annotated[
        bool, typer.Option("--sync-batchnorm", help="BatchNorm over all devices.", rich_help_panel=MACHINE)
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints.", rich_help_panel=MACHINE)
    ] = 60.0,
) -> None:
    """Train on a labelled source and an unlabelled target; write a run folder with the model and its predictions.

    An interrupted run goes on with: bures adapt --resume FOLDER
    """
    machine = {
        "accelerator": accelerator,
        "devices": devices,
        "strategy": strategy,
        "sync_batchnorm": sync_batchnorm,
        "checkpoint_every": checkpoint_every,
        "progress": not quiet,
    }
    if resume is not None:
        refuse_beside_resume(context, "data, recipe and methods from the run folder", NOT_IN_A_FOLDER)
        job = read_job(resume)
    else:
        if source is None or target is None:
            raise ValueError("--source and --target are needed, or --resume with a run folder")
        origin = origin_of(source, target, evaluation, data_root, strict=strict, partial=partial)
        # A resumption goes by them; a run of its own has no other place that is written before the training.
        origin |= {"figure": figure is not False, "report": report is not False}
        fields = {
            "network": network,
            "weights": weights,
            "epochs": epochs,
            "batch_size": batch_size,
            "image_size": image_size,
            "class_balanced": class_balanced,
            "lr": lr,
            "precision": precision,
            "seed": seed,
            "select": select,
        }
        changes = {name: value for name, value in fields.items() if value is not None} | read_overrides(override or [])
        base = Recipe() if recipe is None else load_recipe(recipe)
        if method and "method" in changes:
            raise ValueError("--method and --set method are the same; give one of them")
        methods = method or [str(changes.pop("method", base.method))]
        chosen = base.override({"method": methods[0], **changes} if len(methods) == 1 else changes)
        chosen = absolute_weights(chosen.locate_weights(data_root))
        _check_methods(methods, chosen)
        job = Job(origin, chosen, methods, output or _default_output(origin, methods), download)
        job.fits_batch = not names_batch_size(recipe, changes)
    if devices > 1 and len(job.methods) > 1:
        raise ValueError(f"--devices {devices} trains one method at a time; give --method once")
    # On several devices Lightning runs this command once for each; the first speaks for all.
    leads = leading_process()
    # Runs that were begun before this was noted had both.
    figure = job.origin.get("figure", True) if figure is None else figure
    report = job.origin.get("report", True) if report is None else report
    _run(job, machine, resume is not None, bool(figure) and leads, bool(report) and leads, quiet or not leads)


def _check_methods(methods: list[str], recipe: Recipe) -> None:
    """Tell of what would end a comparison, before the first method is trained."""
    for number, name in enumerate(methods):
        if name in methods[:number]:
            raise ValueError(f"--method {name} is given twice; give each method once")
        recipe.override({"method": name})


def _run(job: Job, machine: dict[str, Any], resume: bool, figure: bool, report: bool, quiet: bool) -> None:
    from bures.experiments import Comparison, compare  # Lightning takes seconds to import: not for --help
    from bures.training import adapt

    console = Console()
    source, target, evaluation = load_job(job, quiet)
    if job.fits_batch:
        job.recipe, job.note = fit_batch_size(job.recipe, job.methods, source, target)
    note = None if resume or quiet else note_on_weights(job.recipe, source, target)
    if note is not None:  # before hours are spent
        Console(stderr=True, soft_wrap=True).print(f"note: {note}", markup=False, highlight=False)
    options = {**machine, "evaluation": evaluation, "partial": job.origin["partial"], "origin": job.origin}
    try:
        if len(job.methods) == 1:
            run = adapt(source, target, job.recipe, job.output, resume=resume, **options)
            comparison = Comparison({job.methods[0]: run})
        else:
            with nullcontext() if resume else planned(job):
                comparison = compare(source, target, job.recipe, job.methods, job.output, resume=resume, **options)
    except StoppedBySignal as stop:
        tell_of_stop(stop, "adapt", job.output)
    drawn = (comparison, source, evaluation or target, job.output, machine["accelerator"])
    drawing = draw_features(*drawn, quiet=quiet) if figure else None
    page = write_page(job.output) if report else None
    if not quiet:
        show(console, comparison, source, target, evaluation)
        if job.note is not None:
            console.print(job.note, markup=False, highlight=False)
        for path in filter(None, (job.output, drawing, page)):
            console.print(f"written: {path}", markup=False, highlight=False, soft_wrap=True)


def _default_output(origin: dict[str, Any], methods: list[str]) -> Path:
    """A folder that does not exist yet, named after the task."""
    names = [Path(origin[side].rstrip("/")).stem for side in ("source", "target")]
    base = Path("runs", "-".join([*names, *methods]))
    number = 2
    path = base
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path
