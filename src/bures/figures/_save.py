"""Figures as files: all formats are made before the first is written, and each appears whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from bures.arrays import check_choice
from bures.figures._style import style_named
from bures.files import atomic_file, check_output

__all__ = ["FORMATS", "check_figure_file", "save_figure", "write_figure"]

FORMATS = ("svg", "pdf", "png")
# Dates would make a new file of the same figure.
_UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def save_figure(
    figure: Figure, stem: str | Path, formats: Sequence[str] = FORMATS, *, style: str = "light"
) -> list[Path]:
    """Write a figure to one file for each format.

    Parameters
    ----------
    figure : Figure
        As the functions of this package draw it.
    stem : path
        The files without their suffix, in a folder that exists.
    formats : sequence of {"svg", "pdf", "png"}, optional
        What is written.
    style : {"light", "dark", "print"}, optional
        The style that the figure was drawn in.

    Returns
    -------
    list of Path
        The files. Where a format cannot be made, none is written; the same figure gives the same bytes.

    Examples
    --------
    >>> import tempfile
    >>> from bures.figures import network_figure, save_figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save_figure(network_figure("lenet"), folder + "/network", ["svg"])]
    ['network.svg']
    """
    for kind in formats:
        check_choice("formats", kind, FORMATS)
    # Not with_suffix: a point in the stem is part of the name.
    paths = [check_output(f"{stem}.{kind}") for kind in formats]
    with style_named(style).applied():
        contents = [_content(figure, kind) for kind in formats]
    for path, content in zip(paths, contents, strict=True):
        with atomic_file(path) as file:
            file.write(content)
    return paths


def check_figure_file(path: str | Path) -> Path:
    """Return the file of a figure; raise at once where it could not be written, or ends in no format of figures.

    Examples
    --------
    >>> from bures.figures._save import check_figure_file
    >>> check_figure_file("ranks.txt")
    Traceback (most recent call last):
    ValueError: output='ranks.txt' ends in no format of figures; accepted are the endings ...
    """
    kinds = FigureCanvasBase.get_supported_filetypes()
    if _kind(path) not in kinds:
        raise ValueError(
            f"output={str(path)!r} ends in no format of figures; accepted are the endings {', '.join(sorted(kinds))}"
        )
    return check_output(path)


def write_figure(figure: Figure, path: str | Path, *, dpi: float | None = None) -> Path:
    """Write a figure, as it was drawn, to one file whose ending is the format."""
    file = check_figure_file(path)
    content = _content(figure, _kind(file), dpi=dpi)
    with atomic_file(file) as stream:
        stream.write(content)
    return file


def _kind(path: str | Path) -> str:
    return Path(path).suffix[1:].lower()


def _content(figure: Figure, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata=_UNDATED.get(kind), **options)
    return stream.getvalue()
