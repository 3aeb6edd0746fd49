"""Fill the tables of docs/methods.md from the methods themselves and the benchmark; --check only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bures.methods import method_info, method_names, method_options

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]  # the benchmarks are no part of the package

from page_tables import check_only, fill_tables, markdown_table, update  # noqa: E402

from benchmarks.report import machine  # noqa: E402

PAGE = ROOT / "docs" / "methods.md"
RESULTS = ROOT / "benchmarks" / "results"
NOT_MEASURED = "Not measured yet: `python -m benchmarks.method_cost --output benchmarks/results`."


def shipped() -> list[str]:
    """The methods of the library."""
    return [name for name in method_names() if method_info(name).paper]


def methods_table() -> str:
    """One row for each method: what it matches, in short, its paper, the cost of a step as a formula, what it needs."""
    heads = ("method", "matches", "in short", "paper", "cost of a step", "needs")
    rows = []
    for info in map(method_info, shipped()):
        needs = info.samples if info.samples != "any" else ""
        needs = needs if info.requires is None else f"`bures[{info.requires}]` {needs}".strip()
        rows.append([f"`{info.name}`", info.matches, info.summary, info.paper, info.cost, needs])
    return markdown_table(heads, rows, "l" * len(heads))


def options_table() -> str:
    """The options of each method with their defaults."""
    rows = []
    for name in shipped():
        options = ", ".join(f"`{option}={_plain(value)}`" for option, value in method_options(name).items())
        rows.append([f"`{name}`", options or "none"])
    return markdown_table(("method", "options and defaults"), rows, "ll")


def _plain(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def cost_table(folder: Path = RESULTS) -> str:
    """Measured: milliseconds of a step and its ratio to the source's, for each device and batch size."""
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("method-cost-*.json"))]
    if not manifests:
        return NOT_MEASURED
    columns = []
    for manifest in manifests:
        rows = {(row["method"], row["batch_size"]): row for row in manifest["results"]}
        columns += [(machine(manifest), size, rows) for size in sorted({size for _, size in rows})]
    heads = ["method", *(f"{place}, batch {size}: ms (ratio)" for place, size, _ in columns)]
    lines = [["`source`", *(_cell(_source(rows, size), 1.0) for _, size, rows in columns)]]
    names = dict.fromkeys(name for _, _, rows in columns for name, _ in rows)
    for name in names:
        found = [rows.get((name, size)) for _, size, rows in columns]
        images = any(row is not None and row["samples"] == "images" for row in found)
        cells = ["" if row is None else _cell(row["step_ms"], row["ratio"]) for row in found]
        lines.append([f"`{name}`" + (" (images)" if images else ""), *cells])
    return markdown_table(heads, lines, "l" + "r" * len(columns))


def _source(rows: dict[tuple[str, int], dict], size: int) -> float:
    """The step on the source alone, as it was seen beside the methods: the median over them."""
    seen = sorted(row["source_ms"] for (_, n), row in rows.items() if n == size and row["samples"] == "vectors")
    return seen[len(seen) // 2]


def _cell(milliseconds: float, ratio: float) -> str:
    return f"{milliseconds:.1f} ({ratio:.1f})"


def filled(text: str) -> str:
    """The page with its tables brought up to date."""
    return fill_tables(text, {"methods": methods_table, "options": options_table, "cost": cost_table})


def main() -> int:
    check = check_only(__doc__)
    return int(update(PAGE, filled, check=check) and check)


if __name__ == "__main__":
    sys.exit(main())
