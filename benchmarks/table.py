"""The measured times as a Markdown table, for documents: `python -m benchmarks.table`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import RESULTS, machine, read_manifests


def markdown_table(folder: Path = RESULTS) -> str:
    """One row for each batch size, with the time of the textbook formula and ours on each device measured."""
    manifests = list(read_manifests(folder).values())
    header = ["n = m", *(f"{machine(m)}: textbook, bures (ms) | ratio" for m in manifests)]
    lines = [f"| {' | '.join(header)} |", "| ---: " * (1 + 2 * len(manifests)) + "|"]
    measured = [{row["n"]: row for row in m["results"]} for m in manifests]
    for n in sorted({n for rows in measured for n in rows}):
        cells = [str(n)]
        for rows in measured:
            row = rows.get(n)
            cells += [f"{row['textbook_ms']:.1f}, {row['bures_ms']:.1f}", f"{row['ratio']:.1f}"] if row else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown_table())
