"""The measured times as a Markdown table, for documents: `python -m benchmarks.table`."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
DEVICES = ("cpu", "cuda")


def markdown_table(folder: Path = RESULTS) -> str:
    """One row for each batch size, with the time of the textbook formula and ours on each device measured."""
    manifests = [json.loads((folder / f"ckb-{device}.json").read_text()) for device in DEVICES]
    header = ["n = m", *(f"{m['hardware']}: textbook, bures (ms) | ratio" for m in manifests)]
    lines = [f"| {' | '.join(header)} |", "| ---: " * (1 + 2 * len(manifests)) + "|"]
    for rows in zip(*(m["results"] for m in manifests), strict=True):
        cells = [str(rows[0]["n"])]
        for row in rows:
            cells += [f"{row['textbook_ms']:.1f}, {row['bures_ms']:.1f}", f"{row['ratio']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown_table())
