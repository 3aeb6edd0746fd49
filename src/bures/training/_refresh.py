"""The samples that a run keeps, made anew from its model and its data."""

from __future__ import annotations

from pathlib import Path

from bures.arrays import check_flags
from bures.data import Domain
from bures.training._assembly import start_network
from bures.training._kept import keep, write_kept
from bures.training._recipe import Recipe
from bures.training._run_folder import RunFolder
from bures.training._saved_model import load_model
from bures.training._setting import prepare

__all__ = ["refresh_samples"]


def refresh_samples(
    path: str | Path, source: Domain, target: Domain, evaluation: Domain | None = None, *, partial: bool = False
) -> Path:
    """Write the samples that a finished run keeps for its report, as the run itself would have.

    Parameters
    ----------
    path : path
        The run folder.
    source, target, evaluation : Domain
        The data of the run; other data are an error.
    partial : bool, optional
        Whether the target may lack classes of the source.

    Returns
    -------
    Path
        The file.
    """
    check_flags(partial=partial)
    folder = RunFolder(path)
    manifest = folder.read_manifest()
    recipe = Recipe(**manifest["recipe"])
    setting = prepare(source, target, evaluation, recipe, partial=partial)
    for side, digest in setting.checksums.items():
        if manifest["data"][side]["checksum"] != digest:
            raise ValueError(f"the {side} samples are not those of the run in {path}; its features cannot be made anew")
    network = load_model(folder.path).network  # statistics of the evaluation are in it
    evaluated = setting.evaluator.evaluate(network, "training")
    start, _ = start_network(setting.spec, recipe)
    return write_kept(
        folder.samples, keep(setting.source, setting.evaluator, evaluated, network, start, setting.batchnorm)
    )
