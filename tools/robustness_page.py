"""Fill the tables of docs/robustness.md from results/nightly; --check only compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from page_tables import check_only, fill_tables, markdown_table, update  # noqa: E402

RESULTS = ROOT / "results" / "nightly"
PAGE = ROOT / "docs" / "robustness.md"
SOAKS = "soak", "soak_calls"


def manifests(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What the sections found, by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def sections_table(found: dict[str, dict[str, Any]]) -> str:
    """All sections that were run, also those that have no table of their own."""
    rows = []
    for manifest in found.values():
        machine = f"{manifest['hardware'].get('accelerator') or manifest['hardware']['processor']}"
        software = f"Python {manifest['versions']['python']}, torch {manifest['versions']['torch']}"
        duration = f"{manifest.get('seconds', 0) / 60:.1f}"
        rows.append([f"`{manifest['command']}`", machine, software, duration, str(len(manifest["failures"]))])
    return markdown_table(["command", "machine", "versions", "minutes", "findings"], rows, "lllrr")


def kills_table(found: dict[str, dict[str, Any]]) -> str:
    """What was killed, how often and when, and what of it was not as it should be."""
    rows = []
    for name, part in parts(found["kills"]).items():
        struck = ", ".join(f"{when}: {count}" for when, count in part.get("killed", {}).items())
        if "second_turned_away" in part:
            struck = f"the second was told of the first: {part['second_turned_away']}, or found the run finished"
        if "stopped_and_noted" in part:
            struck = f"noted as stopped: {part['stopped_and_noted']}, others met the process before or after"
        rows.append([name, str(part.get("kills", part.get("rounds"))), struck, findings(found["kills"], name)])
    return markdown_table(["work", "times", "where it struck", "findings"], rows, "lrlr")


def disks_table(found: dict[str, dict[str, Any]]) -> str:
    """The faults of the machine."""
    rows = []
    for name, part in parts(found["disks"]).items():
        cases = next(
            part[key] for key in ("disks", "commands", "steps", "durations", "sweeps", "left_out") if key in part
        )
        ended = ", ".join(f"{when}: {count}" for when, count in part.get("ended", {}).items())
        rows.append([name, part.get("how", ""), str(cases), ended, findings(found["disks"], name)])
    return markdown_table(["fault", "how", "cases", "where it struck", "findings"], rows, "llrlr")


def soak_table(found: dict[str, dict[str, Any]]) -> str:
    """Memory and open files from the beginning to the end, of calls and of training; each of its latest run."""
    rows, runs = [], [found[name] for name in SOAKS if name in found]
    latest = {name: manifest for manifest in runs for name in parts(manifest)}
    for name, manifest in latest.items():
        part = manifest[name]
        count = next(f"{part[key]:,} {key}" for key in ("calls", "steps", "runs") if key in part)
        if part.get("asked", 0) > part.get("calls", 0):
            count += f" of {part['asked']:,}"
        memory = " → ".join(f"{value:.1f}" for value in part["memory_mib"])
        handles = " → ".join(map(str, part["handles"]))
        minutes = f"{part['seconds'] / 60:.1f}"
        rows.append([name, count, minutes, memory, handles, findings(manifest, name)])
    return markdown_table(["work", "how much", "minutes", "memory (MiB)", "open files", "findings"], rows, "lrrrrr")


def reproducibility_table(found: dict[str, dict[str, Any]]) -> str:
    """What was repeated, and whether it was the same."""
    rows = []
    for name, part in parts(found["reproducibility"]).items():
        what = {
            "methods": lambda part: f"{part['methods']} methods, in two processes each",
            "numbers": lambda part: ", ".join(map(str, part["numbers"])),
            "ways": lambda part: " and ".join(f"its {way}" for way in part["ways"]),
        }
        said = next(words(part) for key, words in what.items() if key in part)
        rows.append([name, said, findings(found["reproducibility"], name)])
    return markdown_table(["repeated with", "what", "findings"], rows, "llr")


def inputs_table(found: dict[str, dict[str, Any]]) -> str:
    """Random calls and damaged files: how many went through, and how many were refused."""
    rows = []
    if calls := found.get("api_fuzz"):
        counts = calls["cases"], calls["cases"] - calls["refused"], calls["refused"], len(calls["failures"])
        rows.append([f"calls, {calls['targets']} targets", *(f"{count:,}" for count in counts)])
    if files := found.get("file_fuzz"):
        read, refused = (sum(part[key] for part in files["outcomes"].values()) for key in ("read", "refused"))
        counts = files["cases"], read, refused, len(files["failures"])
        rows.append([f"damaged files, {files['kinds']} kinds", *(f"{count:,}" for count in counts)])
    return markdown_table(["input", "cases", "went through", "refused by name", "findings"], rows, "lrrrr")


TABLES: dict[str, Callable[[dict[str, dict[str, Any]]], str]] = {
    "sections": sections_table, "kills": kills_table, "disks": disks_table, "soak": soak_table,
    "reproducibility": reproducibility_table, "inputs": inputs_table,
}  # fmt: skip


def parts(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts of a section by name."""
    known = ("versions", "hardware")
    return {name: value for name, value in manifest.items() if isinstance(value, dict) and name not in known}


def findings(manifest: dict[str, Any], part: str) -> str:
    """How many findings a part has."""
    return str(sum(failure.startswith(f"{part}: ") for failure in manifest["failures"]))


def filled(text: str, found: dict[str, dict[str, Any]]) -> str:
    """The page with its tables brought up to date."""

    def make(name: str) -> str:
        needed = {"sections": set(found), "inputs": {"api_fuzz", "file_fuzz"}, "soak": set(SOAKS)}.get(name, {name})
        return TABLES[name](found) if needed & set(found) else "Not run yet."

    return fill_tables(text, {name: partial(make, name) for name in TABLES})


def main(arguments: list[str] | None = None) -> int:
    check = check_only(__doc__, arguments)
    return int(update(PAGE, lambda text: filled(text, manifests()), check=check) and check)


if __name__ == "__main__":
    sys.exit(main())
