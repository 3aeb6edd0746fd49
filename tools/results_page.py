"""Fill the tables of the documentation from the ledgers in results/ and the benchmarks; --check only compares."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from bures.experiments import accuracy_table, read_results, to_markdown
from bures.files import write_text

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "results.md", ROOT / "docs" / "testing.md", ROOT / "README.md")


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


def level_table() -> str:
    """How often the two-sample tests reject where there is no shift."""
    path = ROOT / "results" / "testing" / "level.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    low, high = (f"{100 * rate:.1f}" for rate in results["interval_99"])
    lines = [
        f"| test | rejections (%) | within {low} to {high} |",
        "| --- | ---: | --- |",
    ]
    for name, row in results["tests"].items():
        lines.append(f"| {name} | {100 * row['rejection_rate']:.1f} | {'yes' if row['within_interval'] else 'no'} |")
    return "\n".join(lines)


def power_table() -> str:
    """How often they reject, against the size of each kind of shift."""
    path = ROOT / "results" / "testing" / "power.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    names = list(next(iter(results.values()))["power"])
    lines = [f"| shift | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for shift, result in results.items():
        for number in range(1, len(result["strength"])):
            rates = [f"{100 * result['power'][name][number]:.0f}" for name in names]
            lines.append(f"| {shift}, {result['strength'][number]:g} | {' | '.join(rates)} |")
    return "\n".join(lines)


def speed_table() -> str:
    """What 999 permutations of 2000 samples in each domain cost."""
    manifest = json.loads((ROOT / "results" / "testing" / "speed.json").read_text(encoding="utf-8"))
    lines = ["| conditional test through | seconds | processor seconds |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {row['wall']:.0f} | {row['cpu']:.0f} |" for name, row in manifest["results"].items()]
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """The tables by name."""
    found = {"step": step_table(), "level": level_table(), "power": power_table(), "speed": speed_table()}
    for name in ("digits", "office10"):
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
