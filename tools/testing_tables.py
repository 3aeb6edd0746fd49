"""Level, power and speed of the two-sample tests as Markdown tables, from the manifests in results/testing."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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
