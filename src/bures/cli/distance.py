"""``bures distance``: how far apart two domains are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

import bures
from bures.cli._options import AsJson, DataRoot
from bures.cli._samples import class_names, feature_rows, load_pair, read_eps
from bures.files import to_json

__all__ = ["distance"]


class Metric(StrEnum):
    """Distances by name."""

    CKB = "ckb"
    CKW = "ckw"
    KERNEL_BURES = "kernel-bures"
    BURES = "bures"
    MMD = "mmd"


CONDITIONAL: dict[Metric, Callable[..., Any]] = {Metric.CKB: bures.ckb, Metric.CKW: bures.ckw}
MARGINAL: dict[Metric, Callable[..., Any]] = {
    Metric.KERNEL_BURES: bures.kernel_bures,
    Metric.BURES: bures.bures,
    Metric.MMD: bures.mmd,
}


def distance(
    source: Annotated[
        str, typer.Argument(help="Feature file (.npz, .npy, .mat, .csv, .parquet), file.npz#domain or name.")
    ],
    target: Annotated[str, typer.Argument(help="The same for the target.")],
    metric: Annotated[
        Metric, typer.Option(help="ckb and ckw compare P(X|Y) and need labels; the others P(X).")
    ] = Metric.CKB,
    explain: Annotated[bool, typer.Option(help="Show terms, classes and null level of the CKB distance.")] = False,
    eps: Annotated[str, typer.Option(help="Regulariser of ckb and ckw: a number or 'auto'.")] = "0.01",
    prior: Annotated[
        str | None, typer.Option(help="Weigh both domains to the class frequencies of: source, target, uniform.")
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print the squared distance between two domains of feature vectors."""
    conditional = metric in CONDITIONAL
    domains = load_pair(source, target, data_root, labels=(conditional, conditional))
    xs, xt = (feature_rows(domain) for domain in domains)
    if not conditional:
        if explain or prior is not None:
            raise ValueError(f"--explain and --prior need labels; --metric {metric} compares P(X), use --metric ckb")
        _show(metric, MARGINAL[metric](xs, xt), as_json)
        return
    ys, yt = (class_names(domain) for domain in domains)
    options: dict[str, Any] = {"eps": read_eps(eps), "prior": prior}
    if explain:
        result = bures.explain(xs, ys, xt, yt, **options)
        print(to_json(dataclasses.asdict(result)) if as_json else result)
    else:
        _show(metric, CONDITIONAL[metric](xs, ys, xt, yt, **options), as_json)


def _show(metric: Metric, squared_distance: float, as_json: bool) -> None:
    if as_json:
        print(to_json({"metric": metric, "squared_distance": squared_distance}))
    else:
        print(f"{metric}  squared distance {squared_distance:.6g}")
