"""What moments of many samples cost, as Markdown tables from the measured rates: `python -m benchmarks.scale`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.report import machine

RESULTS = Path(__file__).parent / "results"
DEVICES = ("cpu", "cuda")
SAMPLES, MACHINES = 10**9, 32


def measured(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The manifests of `python -m benchmarks.moments`, of every device that was measured."""
    paths = [folder / f"moments-{device}.json" for device in DEVICES]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


def moments_table(manifests: list[dict[str, Any]]) -> str:
    """The rates as they were measured."""
    lines = [
        "| machine | samples | seconds | samples/s | share of the matrix-product rate | memory above the chunk (MiB) |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for manifest in manifests:
        row = manifest["results"][0]
        cells = [
            machine(manifest),
            f"{row['n']:,}",
            f"{row['seconds']:.1f}",
            f"{row['samples_per_second']:,.0f}",
            f"{100 * row['share_of_matmul_rate']:.0f} %",
            f"{row['peak_bytes_above_chunk'] / 2**20:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def billion_table(manifests: list[dict[str, Any]]) -> str:
    """A billion samples of each domain on 32 machines, from the rate of one."""
    lines = [
        "| 32 machines with | time (2 domains) | reading (MB/s each) | sums (MB) | traffic (MB) | memory (MiB) |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for manifest in manifests:
        row = manifest["results"][0]
        seconds = 2 * SAMPLES / MACHINES / row["samples_per_second"]
        reading = 4 * row["d"] * row["samples_per_second"]  # float32 features
        state = row["state_bytes"]
        # A tree over P machines sends P - 1 times what one machine holds, in log2 P rounds; two domains.
        traffic = 2 * (MACHINES - 1) * state
        cells = [
            machine(manifest),
            duration(seconds),
            f"{reading / 1e6:,.0f}",
            f"{state / 1e6:.1f}",
            f"{traffic / 1e6:,.0f} in {math.ceil(math.log2(MACHINES))} rounds",
            f"{(row['peak_bytes_above_chunk'] + row['chunk_bytes']) / 2**20:,.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, to two digits."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    found = measured()
    print(moments_table(found), billion_table(found), sep="\n\n")
