"""What a training was asked for: the data, the recipe, the methods and the folder, typed or read from a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import typer

from bures.cli._naming import said_of_domain
from bures.cli._progress import progress_bar
from bures.cli._streams import tell
from bures.data import Domain, load_domain
from bures.data._decoding import Progress
from bures.data._registry import from_anywhere, has_test_part
from bures.files import read_json, read_yaml, write_json
from bures.provenance import shell_command
from bures.training import Recipe, RunFolder, StoppedBySignal
from bures.training._recipe_files import recipe_content
from bures.training._run_folder import COMPARISON
from bures.training._sizes import network_for

__all__ = [
    "Job",
    "absolute_weights",
    "fit_batch_size",
    "load_job",
    "names_batch_size",
    "note_on_weights",
    "origin_of",
    "planned",
    "read_job",
    "read_overrides",
    "tell_of_stop",
]


class Job:
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


def read_overrides(texts: list[str]) -> dict[str, Any]:
    """Changes of a recipe from texts FIELD=VALUE."""
    changes = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ValueError(f"--set {text!r} is no FIELD=VALUE; write for example --set options.eps=0.1")
        changes[name] = read_yaml(value, f"--set {text!r}: {value!r}")
    return changes


def names_batch_size(recipe: str | None, changes: Mapping[str, Any]) -> bool:
    """Whether the batch size is the user's own choice: an option, or in a recipe that is a file."""
    return "batch_size" in changes or (recipe is not None and "batch_size" in recipe_content(recipe, library=False))


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


def note_on_weights(recipe: Recipe, source: Domain, target: Domain) -> str | None:
    """What is to be known of a network for photographs that begins with random weights; None of others."""
    shapes = source.samples.shape, target.samples.shape
    if recipe.weights is not None or any(len(shape) != 3 for shape in shapes):
        return None
    network = network_for(recipe.network, recipe.image_size or max(shape[-1] for shape in shapes))
    if network in ("lenet", "identity"):
        return None
    return (
        f"{network} begins with random weights, and learns little from some thousands of images. --weights default "
        "--set download_weights=true begins with public ones, --weights FILE with those of a file."
    )


def load_job(job: Job, quiet: bool) -> tuple[Domain, Domain, Domain | None]:
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


def _load(job: Job, progress: Progress) -> tuple[Domain, Domain, Domain | None]:
    origin, recipe = job.origin, job.recipe

    def read(side: str, *, train: bool = True) -> Domain:
        with said_of_domain(f"--{side}"):
            return load_domain(
                origin[side],
                data_root=origin["data_root"],
                train=train,
                download=job.download,
                strict=origin["strict"],
                size=recipe.reading_size,
                in_memory=None,
                progress=progress,
            )

    source, target = read("source"), read("target")
    if origin["evaluation"] is not None:
        return source, target, read("evaluation", train=False)
    if has_test_part(origin["target"]):
        return source, target, read("target", train=False)
    return source, target, None


@contextmanager
def planned(job: Job) -> Iterator[None]:
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


def read_job(folder: Path) -> Job:
    """What was asked for when a folder was begun."""
    several = folder / COMPARISON
    if several.is_file():
        content = read_json(several.read_bytes(), several)
        kinds = {"origin": dict, "recipe": dict, "methods": list}
        if not isinstance(content, dict) or any(not isinstance(content.get(key), kind) for key, kind in kinds.items()):
            raise ValueError(f"{several} is damaged: accepted are the fields {', '.join(kinds)} of a comparison")
        return Job(content["origin"], Recipe(**content["recipe"]), content["methods"], folder, begun=True)
    manifest = RunFolder(folder).read_manifest()
    recipe = Recipe(**manifest["recipe"])
    origin = manifest["data"]["origin"]
    if not origin:
        raise ValueError(f"{folder} was not begun by `bures adapt`: resume it with bures.training.adapt(resume=True)")
    return Job(origin, recipe, [recipe.method], folder, begun=True)


def tell_of_stop(stop: StoppedBySignal, command: str, folder: Path) -> NoReturn:
    """Say how to go on after a signal, in a line that can be pasted, and leave with the exit code of the signal."""
    resume = shell_command(command, "--resume", folder)
    tell(f"{stop}; go on with: {resume}")
    raise typer.Exit(128 + stop.number) from None
