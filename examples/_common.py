"""What the measuring examples share: options, slopes on logarithmic scales, figures and manifests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from bures.files import write_json
from bures.provenance import hardware, versions


def read_arguments(name: str) -> argparse.Namespace:
    """Options of an example. A build of the documentation takes the quick form."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repetitions: seconds, not minutes")
    parser.add_argument("--output", type=Path, default=Path("outputs", name), help="folder of figures and manifest")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers")
    arguments = parser.parse_args()
    arguments.quick |= "sphinx_gallery" in sys.modules
    return arguments


def median_slope(x: ArrayLike, samples: ArrayLike, n_bootstrap: int = 200) -> tuple[float, float]:
    """Least-squares slope of log(median of samples) on log(x), for samples (len(x), repetitions).

    The standard error comes from drawing the repetitions again with replacement.
    """
    samples = np.asarray(samples, dtype=float)
    repetitions = samples.shape[1]
    drawn = np.random.default_rng(0).integers(repetitions, size=(n_bootstrap, len(samples), repetitions))
    resampled = np.median(np.take_along_axis(samples[None], drawn, axis=2), axis=2)
    medians = np.vstack([np.median(samples, axis=1), resampled])
    slopes = np.polynomial.polynomial.polyfit(np.log(x), np.log(medians).T, 1)[1]
    return float(slopes[0]), float(slopes[1:].std(ddof=1))


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"{name}.{suffix}", dpi=150, bbox_inches="tight")


def write_manifest(name: str, arguments: argparse.Namespace, settings: dict, results: dict) -> Path:
    """Write what was run, where and with which outcome to ``manifest.json``, whole or not at all."""
    quick = " --quick" if arguments.quick else ""
    manifest = {
        "command": f"python examples/{name}.py{quick} --seed {arguments.seed}",
        "versions": versions(),
        "hardware": hardware(),
        "seed": arguments.seed,
        "settings": settings,
        "results": results,
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    return write_json(arguments.output / "manifest.json", manifest)
