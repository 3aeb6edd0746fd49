"""Draw which part of the project imports which, from the code, into docs/images/import-map.svg.

    python tools/import_map.py           # write it
    python tools/import_map.py --check   # exit status 1 if the drawing is not that of the code

The parts stand in the order of the layers that pyproject.toml prescribes: what imports stands above what it imports,
so that every line runs downwards. A line is left out where a longer way down says the same (a imports b and b imports
c; then a may import c, too); a test holds the drawing up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
DRAWING = ROOT / "docs" / "images" / "import-map.svg"
PROJECT = "bures"

ROW, LEFT, WIDTH, TOP = 26, 24, 150, 16
BOX = 20
BEND = 15  # how far a line bends to the right for each row that it passes
INK, PAPER, FILL, EDGE = "#333", "#fff", "#e8eef7", "#4a6fa5"


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the imports between the parts of the project.")
    parser.add_argument("--check", action="store_true", help="compare with the drawing and write nothing")
    drawing = draw(layers(), imports())
    if parser.parse_args().check:
        if not DRAWING.is_file() or DRAWING.read_text(encoding="utf-8") != drawing:
            sys.exit(f"error: {DRAWING.relative_to(ROOT)} is not that of the code; run: python tools/import_map.py")
    else:
        DRAWING.write_text(drawing, encoding="utf-8")


def layers() -> list[str]:
    """Parts of the project from the top layer to the lowest, as the contract of import-linter names them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [name for layer in contract["layers"] for name in re.findall(rf"{PROJECT}\.(\w+)", layer)]


def imports() -> dict[str, set[str]]:
    """For each part, the parts that a module of it imports when it runs."""
    graph = grimp.build_graph(PROJECT, exclude_type_checking_imports=True, cache_dir=None)
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            above, below = part(module), part(imported)
            if above and below and above != below:
                found.setdefault(above, set()).add(below)
    return found


def part(module: str) -> str:
    """The part that a module belongs to, or nothing for the package itself."""
    return module.removeprefix(PROJECT).removeprefix(".").partition(".")[0]


def reduced(imported: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that no longer way implies."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(imported.get(start, ()))
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += imported.get(name, ())
        return seen

    reached = {name: reach(name) for name in imported}
    return sorted(
        (above, below)
        for above, belows in imported.items()
        for below in belows
        if not any(below in reached.get(other, ()) for other in belows - {below})
    )


def draw(parts: list[str], imported: dict[str, set[str]]) -> str:
    row = {name: position for position, name in enumerate(parts)}
    edges = reduced({a: {b for b in belows if b in row} for a, belows in imported.items() if a in row})
    right = LEFT + WIDTH
    longest = max((row[below] - row[above] for above, below in edges), default=0)
    width, height = right + BEND * longest, TOP * 2 + ROW * len(parts)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12" role="img">',
        "<title>Which part of bures imports which; every line runs downwards</title>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        f'<g fill="none" stroke="{EDGE}" stroke-opacity="0.55" stroke-width="1.3">',
    ]
    for above, below in edges:
        start, end = middle(row[above]) + 4, middle(row[below]) - 4
        bend = right + BEND * (row[below] - row[above]) + 10
        curve = f"M{right} {start}C{bend} {start} {bend} {end} {right} {end}"
        lines.append(f'<path d="{curve}"><title>{above} imports {below}</title></path>')
    lines.append("</g>")
    for name in parts:
        y = middle(row[name])
        box = f'x="{LEFT}" y="{y - BOX // 2}" width="{WIDTH}" height="{BOX}" rx="4"'
        lines.append(f'<rect {box} fill="{FILL}" stroke="{EDGE}"/>')
        lines.append(f'<text x="{LEFT + 10}" y="{y + 4}" fill="{INK}">{name}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def middle(row: int) -> int:
    return TOP + ROW * row + ROW // 2


if __name__ == "__main__":
    main()
