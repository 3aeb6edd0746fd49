"""Level, power and speed of the two-sample tests as Markdown tables, from the manifests in results/testing."""

from __future__ import annotations

import json
from pathlib import Path

from page_tables import markdown_table

ROOT = Path(__file__).resolve().parent.parent


def level_table() -> str:
    """How often the two-sample tests reject where there is no shift."""
    path = ROOT / "results" / "testing" / "level.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    low, high = (f"{100 * rate:.1f}" for rate in results["interval_99"])
    rows = [
        (name, f"{100 * row['rejection_rate']:.1f}", "yes" if row["within_interval"] else "no")
        for name, row in results["tests"].items()
    ]
    return markdown_table(("test", "rejections (%)", f"within {low} to {high}"), rows, "lrl")


def power_table() -> str:
    """How often they reject, against the size of each kind of shift."""
    path = ROOT / "results" / "testing" / "power.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    names = list(next(iter(results.values()))["power"])
    rows = []
    for shift, result in results.items():
        for number in range(1, len(result["strength"])):
            rates = [f"{100 * result['power'][name][number]:.0f}" for name in names]
            rows.append([f"{shift}, {result['strength'][number]:g}", *rates])
    return markdown_table(["shift", *names], rows, "l" + "r" * len(names))


def speed_table() -> str:
    """What 999 permutations of 2000 samples in each domain cost."""
    manifest = json.loads((ROOT / "results" / "testing" / "speed.json").read_text(encoding="utf-8"))
    rows = [(name, f"{row['wall']:.0f}", f"{row['cpu']:.0f}") for name, row in manifest["results"].items()]
    return markdown_table(("conditional test through", "seconds", "processor seconds"), rows, "lrr")
