"""How fast the estimates approach the populations' values, beside the rates of the theorem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bures.arrays import check_choice
from bures.figures._style import Style, style_named

__all__ = ["convergence_figure", "convergence_table", "read_convergence"]

KERNELS = ("linear", "gaussian")
QUANTITIES = {"trace": "trace of the conditional covariance", "ckb": "squared CKB distance"}
REFERENCES = {"regularised": "its regularised value", "limit": "its limit for ε = 0"}
COMMAND = "python examples/convergence.py (it writes outputs/convergence/manifest.json)"


def read_convergence(path: str | Path) -> dict[str, Any]:
    """A manifest of ``examples/convergence.py``; where it is not there, an error with the command that makes it.

    Parameters
    ----------
    path : path
        Such as ``results/convergence/convergence.json``.

    Returns
    -------
    dict
        Settings and results, as `convergence_table` takes them.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; make it with: {COMMAND}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest["results"]["slopes"], manifest["results"]["median_errors_by_size"], manifest["settings"]["sizes"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no manifest of the convergence example ({error}); make one with: {COMMAND}"
        ) from error
    return dict(manifest)


def convergence_table(manifest: Mapping[str, Any], *, kernel: str = "linear") -> pd.DataFrame:
    """Median errors by sample size, with slopes and rates.

    Parameters
    ----------
    manifest : mapping
        Of `read_convergence`.
    kernel : {"linear", "gaussian"}, optional
        Kernel on the features.

    Returns
    -------
    DataFrame
        A row for each "quantity", "error_to" and "alpha", with "slope", "standard_error", "rate" and "verdict"; its
        columns that are numbers are the median errors at that sample size.
    """
    check_choice("kernel", kernel, KERNELS)
    sizes, medians = manifest["settings"]["sizes"], manifest["results"]["median_errors_by_size"]
    rows = []
    for fit in manifest["results"]["slopes"]:
        if fit["kernel"] == kernel:
            errors = medians[f"{kernel} {fit['quantity']} {fit['error_to']} alpha={fit['alpha']:g}"]
            rows.append({**fit, **dict(zip(sizes, errors, strict=True))})
    if not rows:
        raise ValueError(f"the manifest has no slopes of the {kernel} kernel")
    table = pd.DataFrame(rows)
    table.attrs |= {"kernel": kernel, "sizes": sizes, "fit_from": manifest["settings"]["fit_from"]}
    return table


def convergence_figure(table: pd.DataFrame, *, style: str = "light") -> Figure:
    """Errors against the sample size on logarithmic axes, with a thin line at the rate for each.

    Parameters
    ----------
    table : DataFrame
        Of `convergence_table`.
    style : {"light", "dark", "print"}, optional
        See `style_named`.
    """
    look = style_named(style)
    with look.applied():
        figure = Figure(figsize=(8.6, 7.0), layout="constrained")
        grid = figure.subplots(2, 2, sharex=True, sharey="row")
        for row, quantity in zip(grid, QUANTITIES, strict=True):
            for axes, reference in zip(row, REFERENCES, strict=True):
                part = table[(table["quantity"] == quantity) & (table["error_to"] == reference)]
                _panel(axes, part, dict(table.attrs), look)
                axes.set_title(f"{QUANTITIES[quantity]}:\nerror to {REFERENCES[reference]}")
            row[0].set_ylabel("median error")
            row[0].set_ylim(bottom=row[0].get_ylim()[0] / 4)  # room for the legends
        for axes in grid[1]:
            axes.set_xlabel("samples in each domain, n")
        figure.suptitle(
            f"{str(table.attrs['kernel']).capitalize()} kernel. Marked: measured; thin: as fast as the theorem's rate"
        )
    return figure


def _panel(axes: Any, part: pd.DataFrame, attrs: Mapping[Any, Any], look: Style) -> None:
    sizes = np.array(attrs["sizes"])
    first = attrs["sizes"].index(attrs["fit_from"])
    for number, (_, fit) in enumerate(part.sort_values("alpha").iterrows()):
        errors = fit[list(attrs["sizes"])].to_numpy(float)
        label = f"α = {fit['alpha']:g}: slope {fit['slope']:+.2f} ± {fit['standard_error']:.2f}, rate {fit['rate']:+g}"
        marked = {"marker": look.marker(number), "color": look.colour(number), "label": label.replace("-", "−")}
        axes.plot(sizes, errors, **marked)
        at_the_rate = errors[first] * (sizes[first:] / sizes[first]) ** fit["rate"]
        axes.plot(sizes[first:], at_the_rate, ls="--", color=look.colour(number), lw=1)
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, which="major")
    axes.set_axisbelow(True)
    axes.legend(loc="lower left", handlelength=1.6, borderaxespad=0.2, frameon=True, edgecolor="none")
