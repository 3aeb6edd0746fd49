"""The page of measured times and memory, from the JSON files: `python -m benchmarks.report` (--check only compares)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = "images"  # the folder beside a page

INTRODUCTION = """\
# Benchmarks

Value and gradient of the squared CKB distance through `bures.CKBLoss`: float32, classes in the source, soft predictions
in the target, one bandwidth for each kernel matrix. *Textbook* is Theorem 5 as it is written: explicit inverses,
eigendecompositions, a singular value decomposition (on a GPU by the fastest of torch's drivers, tried in the same run),
and autograd through all of it. Contestants take turns in one process, and times are medians. Ratios are textbook over
bures: above one, bures is faster. Errors are relative to the textbook formula in float64: of the value to the sum of
the two traces, of the gradient in norm. Memory is the peak during value and gradient, as a share of the textbook's. On
a GPU it includes what the CUDA graph keeps that `CKBLoss` makes for batches up to 2048: torch gives a graph memory of
its own, in pieces of 2 and 20 MiB, which is more than small batches need; `cuda_graphs=False` does without.

Features: *clusters* (classes of 32 intrinsic dimensions in 512), *noise* (512 independent dimensions), *lenet* (512
features of a LeNet after a short training on MNIST and USPS, or on the bundled digits where these are not there),
*resnet50* (two domains of Office-Home, 2048 features, 65 classes).

`method="low-rank"` is an approximation: its value has a bound, which `bures.explain` reports; the error of its
gradient is in the table.

`make bench` measures on your machine, `python -m benchmarks --full` with larger batches. This page is written by
`python -m benchmarks.report` from the files in `benchmarks/results`."""

THROUGHPUT = """\
## Training

Images per second of whole training steps, images in memory, medians over rounds in which the three take turns. *ckb*
is the library's loop with the alignment, *without* the same loop and images without that term (method `entropy`),
*plain* a data loader with torchvision's transforms in worker processes and the same network, precision and number of
images. On a GPU the library's loop makes random windows on it, compiles the backbone and replays steps as CUDA graphs;
the plain loop does none of it. The step ratio is the time of a step with the alignment over one without; the batch is
that of each domain."""

STEP_GRAPHS = """\
## Steps as CUDA graphs

Milliseconds of a training step in full precision, with data, optimiser and the trainer's overhead: *launched* kernel by
kernel, *replayed* as a CUDA graph, which is what `bures adapt` does where the method allows it."""

COLUMNS = {
    "features": "features", "n": "n = m", "textbook_ms": "textbook ms", "bures_ms": "bures ms", "ratio": "ratio",
    "bures_value_error": "value error", "bures_gradient_error": "gradient error",
    "textbook_gradient_error": "textbook's gradient error", "memory_ratio": "memory",
}  # fmt: skip

LOW_RANK_COLUMNS = {
    "features": "features", "n": "n = m", "low_rank_ms": "low-rank ms", "low_rank_ratio": "ratio",
    "low_rank_value_error": "value error", "low_rank_gradient_error": "gradient error",
    "low_rank_memory_ratio": "memory",
}  # fmt: skip


def read_manifests(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What was measured, by device."""
    files = sorted(folder.glob("ckb-*.json"))
    return {file.stem.removeprefix("ckb-"): json.loads(file.read_text(encoding="utf-8")) for file in files}


def read_trainings(folder: Path = RESULTS) -> dict[str, list[dict[str, Any]]]:
    """What the benchmarks of whole trainings have measured, a manifest for each device; none where one did not run."""
    found = {}
    for name in ("throughput", "step-graphs"):
        files = sorted(folder.glob(f"{name}-*.json"))
        found[name] = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return found


def machine(manifest: dict[str, Any]) -> str:
    """The hardware in words."""
    found = manifest["hardware"]
    return str(found.get("accelerator") or f"{found['threads']} CPU cores")


def page(manifests: dict[str, dict[str, Any]], trainings: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """The page in Markdown; the pictures are named as `write_report` writes them."""
    lines = [INTRODUCTION, ""]
    for device, manifest in manifests.items():
        rows = [*manifest["results"], *manifest.get("other_features", [])]
        versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
        lines += [f"## {machine(manifest)}", "", f"`{manifest['command']}` ({versions})", ""]
        lines += [*_table(rows, COLUMNS), "", f"![time and memory against n]({IMAGES}/{_picture(device)})", ""]
        if any("low_rank_ms" in row for row in rows):
            lines += ['With `method="low-rank"`:', "", *_table(rows, LOW_RANK_COLUMNS), ""]
        if manifest.get("peers"):
            lines += [
                "Other distances on the clusters (value and gradient, ms). None of them conditions on labels; what is",
                "compared is what an alignment term costs.", "", *_peers(manifest["peers"]), "",
            ]  # fmt: skip
        for row in manifest.get("batched", []):
            lines += [
                f"{row['pairs']} pairs of {row['n']} samples: {row['one_call_ms']:.1f} ms in one call of `bures.ckb`, "
                f"{row['loop_ms']:.1f} ms one after another.",
                "",
            ]
    lines += _throughput(trainings.get("throughput", ()))
    return "\n".join([*lines, *_step_graphs(trainings.get("step-graphs", ()))])


def write_report(folder: Path = RESULTS, file: Path = PAGE) -> Path:
    """Write the page of the ``ckb-*.json`` files of a folder, and its plots beside it."""
    manifests = read_manifests(folder)
    images = file.parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for device, manifest in manifests.items():
        _plot(manifest["results"], images / _picture(device), machine(manifest))
    file.write_text(page(manifests, read_trainings(folder)), encoding="utf-8")
    return file


def _picture(device: str) -> str:
    return f"benchmarks-{device}.png"


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> list[str]:
    present = [key for key in columns if any(key in row for row in rows)]
    lines = [f"| {' | '.join(columns[key] for key in present)} |", "| ---: " * len(present) + "|"]
    return lines + [f"| {' | '.join(_cell(key, row.get(key)) for key in present)} |" for row in rows]


def _cell(key: str, value: Any) -> str:
    if value is None or isinstance(value, (str, int)):
        return "" if value is None else str(value)
    if "error" in key:
        return f"{value:.0e}"
    return f"{value:.1f}" if key in ("ratio", "low_rank_ratio") else f"{value:.2f}"


def _peers(rows: list[dict[str, Any]]) -> list[str]:
    names = list(rows[0]["ms"])
    lines = [f"| n = m | {' | '.join(names)} |", "| ---: " * (1 + len(names)) + "|"]
    for row in rows:
        cells = [str(row["n"]), *(f"{row['ms'][name]:.2f}" for name in names)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _throughput(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """The section on whole trainings; nothing where none was measured."""
    if not manifests:
        return []
    heads = [
        "machine",
        "network",
        "images",
        "batch",
        "precision",
        "ckb",
        "without",
        "step ratio",
        "plain",
        "ckb / plain",
    ]
    lines = [THROUGHPUT, "", f"| {' | '.join(heads)} |", "| --- | --- | --- | ---: | --- |" + " ---: |" * 5]
    for manifest in manifests:
        for row in manifest["results"]:
            rates = row["images_per_second"]
            cells = [machine(manifest), row["network"], row["images"], str(row["batch_size"]), row["precision"]]
            cells += [f"{rates['ckb']:.0f}", f"{rates['without']:.0f}", f"{row['ratio']:.3f}", f"{rates['plain']:.0f}"]
            lines.append(f"| {' | '.join([*cells, format(row['over_plain'], '.2f')])} |")
    return [*lines, "", _measured_by(manifests), ""]


def _step_graphs(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """The section on replayed steps; nothing where none was measured."""
    if not manifests:
        return []
    heads = "| machine | network | batch | method | launched ms | replayed ms | ratio |"
    lines = [STEP_GRAPHS, "", heads, "| --- | --- | ---: | --- |" + " ---: |" * 3]
    for manifest in manifests:
        for row in manifest["results"]:
            cells = [machine(manifest), row["network"], str(row["batch_size"]), row["method"]]
            cells += [f"{row['launched_ms']:.2f}", f"{row['replayed_ms']:.2f}", f"{row['ratio']:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", _measured_by(manifests), ""]


def _measured_by(manifests: Sequence[dict[str, Any]]) -> str:
    commands = dict.fromkeys(f"`{manifest['command']}`" for manifest in manifests)
    return f"Measured by {', '.join(commands)}."


# A marker for each, and colours that colour-blind readers tell apart.
LINES = (
    ("textbook", "textbook", "#0072b2", "o"),
    ("bures", "bures", "#d55e00", "s"),
    ("low_rank", "bures, low-rank", "#009e73", "^"),
)


def _plot(rows: list[dict[str, Any]], file: Path, title: str) -> None:
    import matplotlib.pyplot as plt

    quantities = {"ms": ("time (ms)", 1), "peak_bytes": ("peak memory (MiB)", 2**20)}
    measured = {key: words for key, words in quantities.items() if all(f"bures_{key}" in row for row in rows)}
    figure, panels = plt.subplots(
        1, len(measured), figsize=(4.5 * len(measured), 3.6), layout="constrained", squeeze=False
    )
    for axes, (quantity, (words, unit)) in zip(panels[0], measured.items(), strict=True):
        for key, label, colour, marker in LINES:
            if all(f"{key}_{quantity}" in row for row in rows):
                values = [row[f"{key}_{quantity}"] / unit for row in rows]
                axes.loglog([row["n"] for row in rows], values, marker=marker, color=colour, label=label)
        axes.set(xlabel="n = m", ylabel=words)
        axes.grid(alpha=0.3)
    panels[0, 0].legend()
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 where the page is out of date"
    )
    if parser.parse_args().check:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page(read_manifests(), read_trainings())
        print(f"{PAGE.name} is {'up to date' if current else 'out of date'}")
        return 0 if current else 1
    os.environ.setdefault("MPLBACKEND", "Agg")
    print(f"Written: {write_report()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
