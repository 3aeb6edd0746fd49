"""The measured times and memory as a Markdown page with plots: `python -m benchmarks.report FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COLUMNS = {
    "features": "features", "n": "n = m", "textbook_ms": "textbook ms", "bures_ms": "bures ms", "ratio": "ratio",
    "bures_value_error": "value error", "bures_gradient_error": "gradient error", "low_rank_ms": "low-rank ms",
    "low_rank_ratio": "ratio", "low_rank_gradient_error": "gradient error", "memory_ratio": "memory, of the textbook's",
}  # fmt: skip


def write_report(folder: Path) -> Path:
    """Write ``ckb.md`` and its plots beside the ``ckb-*.json`` files of a folder."""
    lines = ["# CKB: time and memory of a value and its gradient", ""]
    for file in sorted(folder.glob("ckb-*.json")):
        manifest = json.loads(file.read_text())
        name = file.stem.removeprefix("ckb-")
        rows = [*manifest["results"], *manifest.get("other_features", [])]
        lines += [f"## {manifest['hardware']}", "", f"`{manifest['command']}`", "", *_table(rows), ""]
        picture = _plot(manifest["results"], folder / f"ckb-{name}.png", str(manifest["hardware"]))
        lines += [f"![time and memory against n]({picture.name})", ""]
        if manifest.get("peers"):
            title = "Other distances on the same features (value and gradient, ms):"
            lines += [title, "", *_peers(manifest["peers"]), ""]
        for row in manifest.get("batched", []):
            lines.append(
                f"{row['pairs']} pairs of {row['n']} samples: {row['one_call_ms']:.1f} ms in one call, "
                f"{row['loop_ms']:.1f} ms one after another."
            )
            lines.append("")
    page = folder / "ckb.md"
    page.write_text("\n".join(lines), encoding="utf-8")
    return page


def _table(rows: list[dict[str, Any]]) -> list[str]:
    present = [key for key in COLUMNS if any(key in row for row in rows)]
    lines = [f"| {' | '.join(COLUMNS[key] for key in present)} |", "| ---: " * len(present) + "|"]
    return lines + [f"| {' | '.join(_cell(key, row.get(key)) for key in present)} |" for row in rows]


def _cell(key: str, value: Any) -> str:
    if value is None or isinstance(value, (str, int)):
        return "" if value is None else str(value)
    return f"{value:.0e}" if "error" in key else f"{value:.2f}"


def _peers(rows: list[dict[str, Any]]) -> list[str]:
    names = list(rows[0]["ms"])
    lines = [f"| n = m | {' | '.join(names)} |", "| ---: " * (1 + len(names)) + "|"]
    for row in rows:
        cells = [str(row["n"]), *(f"{row['ms'][name]:.2f}" for name in names)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _plot(rows: list[dict[str, Any]], file: Path, title: str) -> Path:
    import matplotlib.pyplot as plt

    sizes = [row["n"] for row in rows]
    figure, (time, memory) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for key, label in (("textbook", "textbook"), ("bures", "bures"), ("low_rank", "bures, low-rank")):
        if all(f"{key}_ms" in row for row in rows):
            time.loglog(sizes, [row[f"{key}_ms"] for row in rows], marker="o", label=label)
        if all(f"{key}_peak_bytes" in row for row in rows):
            memory.loglog(sizes, [row[f"{key}_peak_bytes"] / 2**20 for row in rows], marker="o", label=label)
    for axes, quantity in ((time, "time (ms)"), (memory, "peak memory (MiB)")):
        axes.set(xlabel="n = m", ylabel=quantity)
        axes.grid(alpha=0.3)
    time.legend()
    figure.suptitle(title)
    figure.savefig(file, dpi=150)
    plt.close(figure)
    return file


if __name__ == "__main__":
    print(f"Written: {write_report(Path(sys.argv[1]))}")
