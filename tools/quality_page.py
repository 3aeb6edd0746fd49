"""Fill the tables of docs/quality.md from results/quality; --check only compares.

``<!-- NAME -->`` and ``<!-- end -->`` stand around the table that is made from ``results/quality/NAME.json``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "quality.md"
RESULTS = ROOT / "results" / "quality"


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the tables of docs/quality.md.")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    old = PAGE.read_text(encoding="utf-8")
    new = filled(old)
    if not parser.parse_args().check:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit("error: docs/quality.md is not that of results/quality; run: python tools/quality_page.py")


def filled(page: str) -> str:
    def table(match: re.Match) -> str:
        file = RESULTS / f"{match['name']}.json"
        if not file.is_file():
            return match[0]
        told = json.loads(file.read_text(encoding="utf-8"))
        return f"<!-- {match['name']} -->\n{TABLES[match['name']](told)}\n<!-- end -->"

    return re.sub(r"<!-- (?P<name>\w+) -->\n.*?<!-- end -->", table, page, flags=re.DOTALL)


def coverage(told: dict) -> str:
    rows = [
        (
            f"**{name}**" if name == "total" else name,
            shares(c["lines_run"], c["lines"]),
            shares(c["branches_run"], c["branches"]),
        )
        for name, c in told.items()
    ]
    return markdown(("package", "lines run", "branches run"), rows)


def mutation(told: dict) -> str:
    counts = {path.removeprefix("src/bures/"): c for path, c in told["files"].items()} | {"**total**": told["total"]}
    rows = [
        (name, c["faults"], shares(c["noticed"], c["faults"]), c["faults"] - c["noticed"], c["explained"])
        for name, c in counts.items()
        if c
    ]
    return markdown(("file", "faults", "noticed", "survivors", "explained"), rows)


def oldest(told: dict) -> str:
    rows = [(name, c["passed"], c["skipped"], c["failed"]) for name, c in told["parts"].items()]
    pins = ", ".join(pin.replace("==", " ") for pin in told["pins"])
    return f"With Python {told['python']} and {pins}:\n\n" + markdown(("tests", "passed", "skipped", "failed"), rows)


def shares(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


def markdown(head: tuple, rows: list[tuple]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(["", *("| " + " | ".join(map(str, line)) + " |" for line in lines), ""])


TABLES = {"coverage": coverage, "mutation": mutation, "oldest": oldest}

if __name__ == "__main__":
    main()
