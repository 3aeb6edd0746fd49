"""Fill the tables of docs/results.md from the ledgers in results/ and the benchmarks; --check only compares."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from bures.experiments import accuracy_table, read_results, to_markdown
from bures.files import write_text

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "results.md", ROOT / "README.md")


def step_table() -> str:
    """What the alignment costs, on every device that was measured."""
    lines = [
        "| machine | network | batch | step (ms) | without (ms) | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for device in ("cpu", "cuda"):
        path = ROOT / "benchmarks" / "results" / f"training-step-{device}.json"
        if not path.is_file():
            continue
        manifest = json.loads(path.read_text(encoding="utf-8"))
        machine = manifest["hardware"].get("accelerator", f"{manifest['hardware']['threads']} CPU cores")
        for row in manifest["results"]:
            times = [f"{row['ckb_ms']:.1f}", f"{row['without_ms']:.1f}", f"{row['ratio']:.2f}"]
            lines.append("| " + " | ".join([machine, row["network"], str(row["batch_size"]), *times]) + " |")
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """The tables by name."""
    found = {"step": step_table()}
    for name in ("digits", "office10-images"):
        found[name] = to_markdown(accuracy_table(read_results(ROOT / "results" / f"{name}.jsonl")))
    return found


def filled(text: str) -> str:
    """A page with every table after its marker brought up to date."""
    for name, table in tables().items():
        pattern = rf"(<!-- {name} -->\n)(\n\|[^\n]*(\n\|[^\n]*)*\n)?"
        text = re.sub(pattern, lambda match, table=table: f"{match[1]}\n{table}\n", text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 where a page is out of date")
    check = parser.parse_args().check
    stale = [page for page in PAGES if filled(page.read_text(encoding="utf-8")) != page.read_text(encoding="utf-8")]
    for page in stale:
        print(f"{page.name} is out of date" if check else f"updated {page.name}")
        if not check:
            write_text(page, filled(page.read_text(encoding="utf-8")))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
