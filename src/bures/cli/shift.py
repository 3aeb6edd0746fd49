"""``bures shift``: which shift there is between two domains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import bures
from bures.cli._options import AsJson, DataRoot
from bures.cli._progress import progress_bar
from bures.cli._samples import class_names, feature_rows, load_pair
from bures.cli._serving import check_not_read
from bures.cli._streams import tell
from bures.files import check_output

__all__ = ["shift"]


def shift(
    source: Annotated[
        str, typer.Argument(help="Labelled feature file (.npz, .mat, .csv, .parquet), file.npz#domain or name.")
    ],
    target: Annotated[str, typer.Argument(help="The same for the target; labels are used if there are any.")],
    hide_labels: Annotated[
        bool, typer.Option("--hide-labels", help="Leave the target's labels aside and predict them.")
    ] = False,
    permutations: Annotated[int, typer.Option(help="Number of permutations of each test.")] = 499,
    level: Annotated[float, typer.Option(help="How often a shift may be found where there is none.")] = 0.05,
    max_samples: Annotated[int, typer.Option(help="Look at no more samples of a domain than this.")] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of everything drawn at random.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page to this file.")] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Tell label shift, marginal shift and conditional shift apart, and say what to try."""
    if html is not None:
        html = check_output(html)  # before the work, not after it
        check_not_read(html, source, target, data_root=data_root)
    domains = load_pair(source, target, data_root, labels=(True, not hide_labels))
    xs, xt = (feature_rows(domain) for domain in domains)
    if domains[0].labels is None:
        raise ValueError(
            f"{domains[0].name!r} has no labels; the source must be labelled to tell one shift from another"
        )
    ys = class_names(domains[0])
    yt = None if domains[1].labels is None else class_names(domains[1])
    with progress_bar("permuting") as progress:
        report = bures.shift_report(
            xs,
            ys,
            xt,
            yt,
            n_permutations=permutations,
            level=level,
            max_samples=max_samples,
            seed=seed,
            progress=progress,
        )
    print(report.to_json() if as_json else report)
    if html is not None:
        report.to_html(html, title=" → ".join(Path(spec).name for spec in (source, target)))
        tell(f"Written: {html}")
