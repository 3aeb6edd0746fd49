"""``bures adapt``: from a labelled source and an unlabelled target to a model and predictions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bures.cli._options import (
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
from bures.cli._progress import leading_process, progress_bar
from bures.data import Domain, load_domain
from bures.data._decoding import Progress
from bures.data._overlap import count_shared
from bures.data._registry import from_anywhere, has_test_part
from bures.files import read_json, read_yaml, write_json
from bures.methods import method_names
from bures.provenance import shell_command
from bures.selection import validator_names
from bures.training import Recipe, RunFolder, StoppedBySignal, load_recipe
from bures.training._recipe_files import is_recipe_file, recipe_content

if TYPE_CHECKING:
    from bures.experiments import Comparison
    from bures.training import Run

__all__ = [
    "absolute_weights",
    "adapt_command",
    "fit_batch_size",
    "load_job",
    "names_batch_size",
    "origin_of",
    "read_job",
    "read_overrides",
    "tell_of_stop",
]

COMPARISON = "adapt.json"  # what was asked for, in a folder of several runs
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
        typer.Option(help="The domain to adapt to; its labels, if any, serve evaluation only.", rich_help_panel=DATA),
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="Target samples to evaluate (default: the test part of mnist and usps, else the target).",
            rich_help_panel=DATA,
        ),
    ] = None,
    data_root: DataRoot = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch missing digits.", rich_help_panel=DATA)] = False,
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
    epochs: Annotated[int | None, typer.Option(help="How long to train.", rich_help_panel=TRAINING)] = None,
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
        job = _Job(origin, chosen, methods, output or _default_output(origin, methods), download)
        job.fits_batch = not names_batch_size(recipe, changes)
    if devices > 1 and len(job.methods) > 1:
        raise ValueError(f"--devices {devices} trains one method at a time; give --method once")
    # On several devices Lightning runs this command once for each; the first speaks for all.
    leads = leading_process()
    # Runs that were begun before this was noted had both.
    figure = job.origin.get("figure", True) if figure is None else figure
    report = job.origin.get("report", True) if report is None else report
    _run(job, machine, resume is not None, bool(figure) and leads, bool(report) and leads, quiet or not leads)


def names_batch_size(recipe: str | None, changes: Mapping[str, Any]) -> bool:
    """Whether the batch size is the user's own choice: an option, or in a recipe that is a file."""
    own = recipe is not None and is_recipe_file(recipe)
    return "batch_size" in changes or (own and "batch_size" in recipe_content(str(recipe)))


def fit_batch_size(recipe: Recipe, methods: list[str], source: Domain, target: Domain) -> tuple[Recipe, str | None]:
    """The recipe with a batch size that every method can draw from both domains, and a note where that is smaller."""
    from bures.training._batches import largest_batch

    largest = min(largest_batch(source, target, recipe.override({"method": name})) for name in methods)
    if not 2 <= largest < recipe.batch_size:  # a domain of one sample is refused whatever the size
        return recipe, None
    note = (
        f"Batches of {largest} samples, not of {recipe.batch_size} as the recipe has it: a domain has no more to train "
        "on. --set batch_size=N chooses another size."
    )
    return recipe.override({"batch_size": largest}), note


def _check_methods(methods: list[str], recipe: Recipe) -> None:
    """Tell of what would end a comparison, before the first method is trained."""
    for number, name in enumerate(methods):
        if name in methods[:number]:
            raise ValueError(f"--method {name} is given twice; give each method once")
        recipe.override({"method": name})


class _Job:
    """What was asked for: data, recipe, methods and the folder."""

    def __init__(
        self,
        origin: dict[str, Any],
        recipe: Recipe,
        methods: list[str],
        output: Path,
        download: bool = False,
        *,
        begun: bool = False,
    ) -> None:
        self.origin, self.recipe, self.methods, self.output, self.download = origin, recipe, methods, output, download
        self.begun = begun  # whether the folder is there, and says what was asked for
        self.fits_batch = False  # whether a batch size that is too large is made smaller
        self.note: str | None = None  # that it was


def _run(job: _Job, machine: dict[str, Any], resume: bool, figure: bool, report: bool, quiet: bool) -> None:
    from bures.experiments import Comparison, compare  # Lightning takes seconds to import: not for --help
    from bures.training import adapt

    console = Console()
    source, target, evaluation = load_job(job, quiet)
    if job.fits_batch:
        job.recipe, job.note = fit_batch_size(job.recipe, job.methods, source, target)
    options = {**machine, "evaluation": evaluation, "partial": job.origin["partial"], "origin": job.origin}
    try:
        if len(job.methods) == 1:
            run = adapt(source, target, job.recipe, job.output, resume=resume, **options)
            comparison = Comparison({job.methods[0]: run})
        else:
            with nullcontext() if resume else _planned(job):
                comparison = compare(source, target, job.recipe, job.methods, job.output, resume=resume, **options)
    except StoppedBySignal as stop:
        tell_of_stop(stop, "adapt", job.output)
    drawing = _draw(comparison, source, evaluation or target, job.output) if figure else None
    page = _report(job.output) if report else None
    if not quiet:
        _show(console, comparison, source, target, evaluation)
        if job.note is not None:
            console.print(job.note, markup=False, highlight=False)
        for path in filter(None, (job.output, drawing, page)):
            console.print(f"written: {path}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _planned(job: _Job) -> Iterator[None]:
    """Write what was asked for into the folder; where no run comes of it, leave the folder as it was."""
    there = job.output.exists()
    RunFolder(job.output).claim()  # what lies there has a plan of its own, or is a single run
    plan = job.output / COMPARISON
    write_json(plan, {"origin": job.origin, "recipe": job.recipe.to_dict(), "methods": job.methods})
    try:
        yield
    except BaseException:
        runs = [RunFolder(job.output / name) for name in job.methods]
        if not any(run.exists() for run in runs):
            plan.unlink(missing_ok=True)
            for folder in [*(run.path for run in runs), *([] if there else [job.output])]:
                with suppress(OSError):  # never made, or not empty
                    folder.rmdir()
        raise


def tell_of_stop(stop: StoppedBySignal, command: str, folder: Path) -> NoReturn:
    """Say how to go on after a signal, in a line that can be pasted, and leave with the exit code of the signal."""
    resume = shell_command(command, "--resume", folder)
    Console(stderr=True, soft_wrap=True).print(f"{stop}; go on with: {resume}", markup=False, highlight=False)
    raise typer.Exit(128 + stop.number) from None


def origin_of(
    source: str, target: str, evaluation: str | None, data_root: Path | None, *, strict: bool, partial: bool
) -> dict[str, Any]:
    """Where the data lie, in words that mean the same when a run is resumed from another working folder."""
    return {
        "source": from_anywhere(source, data_root),
        "target": from_anywhere(target, data_root),
        "evaluation": None if evaluation is None else from_anywhere(evaluation, data_root),
        "data_root": None if data_root is None else str(data_root.absolute()),
        "strict": strict,
        "partial": partial,
    }


def absolute_weights(recipe: Recipe) -> Recipe:
    """The recipe with the path of its weights, where it is one, as it can be read from any working folder."""
    weights = recipe.weights
    if weights is None or not ("." in weights or "/" in weights) or not Path(weights).is_file():  # else a name
        return recipe
    return recipe.override({"weights": str(Path(weights).absolute())})


def load_job(job: _Job, quiet: bool) -> tuple[Domain, Domain, Domain | None]:
    """Source, target and, where it is another, what is evaluated."""
    with progress_bar("reading images", quiet=quiet) as progress:
        try:
            return _load(job, progress)
        except FileNotFoundError as error:
            if not job.begun:
                raise
            raise FileNotFoundError(
                f"data of {job.output} are not where they were when it was begun: {error}. Put them, or a link to "
                "them, there again; if the path is relative, call from the folder from which it was begun"
            ) from error


def _load(job: _Job, progress: Progress) -> tuple[Domain, Domain, Domain | None]:
    origin, recipe = job.origin, job.recipe

    def read(spec: str, *, train: bool = True) -> Domain:
        return load_domain(
            spec,
            data_root=origin["data_root"],
            train=train,
            download=job.download,
            strict=origin["strict"],
            size=recipe.reading_size,
            in_memory=None,
            progress=progress,
        )

    source, target = read(origin["source"]), read(origin["target"])
    if origin["evaluation"] is not None:
        return source, target, read(origin["evaluation"], train=False)
    if has_test_part(origin["target"]):
        return source, target, read(origin["target"], train=False)
    return source, target, None


def _show(console: Console, comparison: Comparison, source: Domain, target: Domain, evaluation: Domain | None) -> None:
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


def _draw(comparison: Comparison, source: Domain, target: Domain, folder: Path) -> Path:
    """The features of the first and the last method, or of the only one."""
    from bures.experiments import feature_figure

    names = list(dict.fromkeys([next(iter(comparison.runs)), list(comparison.runs)[-1]]))
    models = {_title(name, comparison.runs[name]): comparison.runs[name].model() for name in names}
    figure = feature_figure(models, source, target)
    for suffix in ("svg", "png"):
        figure.savefig(folder / f"features.{suffix}", dpi=150)
    return folder / "features.png"


def _report(folder: Path) -> Path | None:
    """The page on all runs of a folder; what the training came to does not hang on it."""
    from bures.report import write_report

    try:
        return write_report([folder])
    except (OSError, ValueError) as error:
        warnings.warn(f"the report could not be written: {error}", UserWarning, stacklevel=2)
        return None


def _title(name: str, run: Run) -> str:
    return name if run.accuracy is None else f"{name}: {100 * run.accuracy:.1f} % of the target right"


def read_overrides(texts: list[str]) -> dict[str, Any]:
    """Changes of a recipe from texts FIELD=VALUE."""
    changes = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ValueError(f"--set {text!r} is no FIELD=VALUE; write for example --set options.eps=0.1")
        changes[name] = read_yaml(value, f"--set {text!r}: {value!r}")
    return changes


def _default_output(origin: dict[str, Any], methods: list[str]) -> Path:
    """A folder that does not exist yet, named after the task."""
    names = [Path(origin[side].rstrip("/")).stem for side in ("source", "target")]
    base = Path("runs", "-".join([*names, *methods]))
    number = 2
    path = base
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path


def read_job(folder: Path) -> _Job:
    """What was asked for when a folder was begun."""
    several = folder / COMPARISON
    if several.is_file():
        content = read_json(several.read_bytes(), several)
        kinds = {"origin": dict, "recipe": dict, "methods": list}
        if not isinstance(content, dict) or any(not isinstance(content.get(key), kind) for key, kind in kinds.items()):
            raise ValueError(f"{several} is damaged: accepted are the fields {', '.join(kinds)} of a comparison")
        return _Job(content["origin"], Recipe(**content["recipe"]), content["methods"], folder, begun=True)
    manifest = RunFolder(folder).read_manifest()
    recipe = Recipe(**manifest["recipe"])
    origin = manifest["data"]["origin"]
    if not origin:
        raise ValueError(f"{folder} was not begun by `bures adapt`: resume it with bures.training.adapt(resume=True)")
    return _Job(origin, recipe, [recipe.method], folder, begun=True)
