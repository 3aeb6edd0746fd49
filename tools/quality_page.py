"""Fill the tables of docs/quality.md from results/quality; --check only compares."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from page_tables import check_only, fill_tables, markdown_table, update  # noqa: E402

PAGE = ROOT / "docs" / "quality.md"
RESULTS = ROOT / "results" / "quality"


def main() -> int:
    check = check_only(__doc__)
    return int(update(PAGE, filled, check=check) and check)


def filled(page: str) -> str:
    """The page with the tables made from ``results/quality/NAME.json``."""
    return fill_tables(page, {name: partial(made, name) for name in TABLES})


def made(name: str) -> str:
    file = RESULTS / f"{name}.json"
    return TABLES[name](json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else "Not measured yet."


def coverage(told: dict) -> str:
    rows = [
        (
            f"**{name}**" if name == "total" else name,
            shares(c["lines_run"], c["lines"]),
            shares(c["branches_run"], c["branches"]),
        )
        for name, c in told.items()
    ]
    return markdown_table(("package", "lines run", "branches run"), rows, "lll")


def mutation(told: dict) -> str:
    counts = {path.removeprefix("src/bures/"): c for path, c in told["files"].items()} | {"**total**": told["total"]}
    rows = [
        (
            name,
            f"{c['faults']} of {c['of']}, drawn at random" if "of" in c else c["faults"],
            shares(c["noticed"], c["faults"]),
            c["faults"] - c["noticed"],
            c["explained"],
        )
        for name, c in counts.items()
        if c
    ]
    missing = ", ".join(f"`{path.removeprefix('src/bures/')}`" for path in told["not_tried"])
    found = markdown_table(("file", "faults", "noticed", "survivors", "explained"), rows, "lllll")
    return f"{found}\n\nNot tried as a whole yet: {missing}." if missing else found


def oldest(told: dict) -> str:
    rows = [(name, c["passed"], c["skipped"], c["failed"]) for name, c in told["parts"].items()]
    pins = ", ".join(pin.replace("==", " ") for pin in told["pins"])
    table = markdown_table(("tests", "passed", "skipped", "failed"), rows, "llll")
    return f"With Python {told['python']} and {pins}:\n\n{table}"


def shares(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


TABLES = {"coverage": coverage, "mutation": mutation, "oldest": oldest}


if __name__ == "__main__":
    sys.exit(main())
