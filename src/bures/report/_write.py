"""The page: one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from bures import __version__
from bures.arrays import check_count
from bures.files import check_output, to_json, write_text
from bures.report._content import report_content
from bures.report._runs import read_runs
from bures.training._run_folder import check_not_of_run

__all__ = ["report_place", "write_report"]

TSNE = 600  # samples of a run that t-SNE places: about a second
NAME = "report.html"


def write_report(paths: Iterable[str | Path], output: str | Path | None = None, *, tsne: int = TSNE) -> Path:
    """Write a report on runs as one HTML file that needs no network.

    Parameters
    ----------
    paths : iterable of paths
        Run folders, or folders that ``bures adapt`` has made for several methods. Runs that are not finished are
        reported as far as they came.
    output : path, optional
        The file. None is ``report.html`` in the given folder or, for several, in the one that holds them.
    tsne : int, optional
        Samples of each run that t-SNE places in the plane, half of them from each domain; 0 shows principal
        components alone.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from bures.data import optdigits
    >>> from bures.report import write_report
    >>> from bures.training import Recipe, adapt
    >>> digits = optdigits()
    >>> recipe = Recipe(method="source", network="lenet", epochs=2, epoch=60, batch_size=25, hidden=64, features=32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = adapt(digits.take(range(0, 200)), digits.take(range(200, 400)), recipe, folder + "/run")
    ...     page = write_report([run.path], tsne=0)
    ...     page.name, page.read_text().startswith("<!doctype html>")
    ('report.html', True)
    """
    tsne = check_count("tsne", tsne, minimum=0)
    if isinstance(paths, (str, Path)):
        paths = [paths]
    folders = [Path(path) for path in paths]
    place = check_output(output if output is not None else report_place(folders))
    check_not_of_run(place)
    return write_text(place, render(report_content(read_runs(folders), tsne=tsne)))


def report_place(folders: list[Path]) -> Path:
    """Where a report goes that was not told: into the folder, or the one that holds all of them."""
    if len(folders) == 1:
        if folders[0].is_file():
            raise NotADirectoryError(f"{folders[0]} is a file; accepted are run folders of bures adapt")
        if not folders[0].exists():
            raise FileNotFoundError(f"{folders[0]} does not exist; accepted are run folders of bures adapt")
        return folders[0] / NAME
    parents = {folder.resolve().parent for folder in folders}
    return folders[0].parent / NAME if len(parents) == 1 else Path(NAME)


def render(content: dict[str, Any]) -> str:
    """The page with its style, its script and its data inside."""
    script = _part("script.js")
    environment = Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        content,
        data=as_script(content["data"]),
        style=Markup(_part("style.css")),
        script=Markup(script),
        script_digest=digest,
        version=__version__,
    )


def as_script(value: Any) -> Markup:
    """JSON that ends no script element, whatever names are in it."""
    text = to_json(value)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _part(name: str) -> str:
    return files("bures.report").joinpath("templates", name).read_text(encoding="utf-8")
