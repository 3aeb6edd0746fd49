"""Time and memory of CKB's value and gradient beside the textbook formula and other libraries, in the same run.

    python -m benchmarks                     # about two minutes
    python -m benchmarks --full              # batches up to 4096
    python -m benchmarks --full --publish    # into benchmarks/results and docs/benchmarks.md

The contestants take turns, block by block, so that a change of the machine's pace meets all; times are medians of the
blocks. Errors are relative to the textbook formula in float64: of the value to the sum of the traces, of the gradient
in norm. On a GPU the textbook formula uses the fastest of torch's SVD drivers, tried in the same run. Peak memory is
counted (`benchmarks.memory`). Writes a JSON file for each device, after every row, and a page with plots
(`benchmarks.report`).
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import one_hot

import bures
from benchmarks import batches, peers
from benchmarks.batches import FEATURES, Batch
from benchmarks.memory import peak_bytes
from benchmarks.report import PAGE, RESULTS, write_report
from benchmarks.textbook import textbook_ckb, textbook_terms
from benchmarks.timing import Loss, once, time_in_turns, value_and_gradient
from bures.files import write_json
from bures.provenance import hardware, versions

EPS = 1e-2
OURS = {"bures": "auto", "low_rank": "low-rank"}
DRIVERS = ("gesvd", "gesvdj", "gesvda")
TOO_SLOW = 4  # a driver this many times slower than the fastest is not tried again at this size and larger ones


class Drivers:
    """The SVD drivers of torch on a GPU, tried at every size; the CPU has one."""

    def __init__(self) -> None:
        self.slow_from: dict[str, int] = {}

    def try_each(self, loss: Callable[..., Tensor], z_s: Tensor, z_t: Tensor) -> dict[str, float]:
        """Milliseconds of a value and gradient with each driver; nothing on the CPU."""
        if not z_s.is_cuda:
            return {}
        n, times = len(z_s), {}
        for name in DRIVERS:
            if n >= self.slow_from.get(name, n + 1):
                continue
            try:
                calls = [once(lambda name=name: value_and_gradient(bind(loss, name), z_s, z_t), z_s) for _ in range(2)]
            except torch.linalg.LinAlgError:  # a driver that does not converge on these samples is no baseline
                continue
            times[name] = calls[-1]
        for name, time in times.items():
            if time > TOO_SLOW * min(times.values()):
                self.slow_from[name] = min(n, self.slow_from.get(name, n))
        return times


def bind(loss: Callable[..., Tensor], driver: str | None) -> Loss:
    return lambda a, b: loss(a, b, driver=driver)


def measure(batch: Batch, features: str, device: str, seconds: float, drivers: Drivers) -> dict[str, Any]:
    z_s, y_s, z_t, p_t = (part.to(device) for part in batch)
    n, classes = len(z_s), p_t.shape[1]
    rows = one_hot(y_s, classes)

    def textbook(a: Tensor, b: Tensor, driver: str | None = None) -> Tensor:
        return textbook_ckb(a, rows.to(a), b, p_t.to(a), EPS, driver=driver)

    def ours(method: str) -> Loss:
        criterion = bures.CKBLoss(eps=EPS, method=method)
        return lambda a, b: criterion(a, y_s, b, p_t)

    driver_ms = drivers.try_each(textbook, z_s, z_t)
    driver = min(driver_ms, key=driver_ms.__getitem__) if driver_ms else None
    makers: dict[str, Callable[[], Loss]] = {"textbook": lambda: bind(textbook, driver)}
    makers |= {name: lambda method=method: ours(method) for name, method in OURS.items()}
    # On the host, whose SVD always converges; the drivers of a GPU do not.
    exact = value_and_gradient(bind(textbook, None), z_s.double().cpu(), z_t.double().cpu())
    exact_value, exact_gradient = (part.to(device) for part in exact)
    traces = float(textbook_terms(z_s, rows.to(z_s), z_t, p_t, EPS, driver=driver)[0])
    result: dict[str, Any] = {
        "device": device, "features": features, "n": n, "d": z_s.shape[1], "classes": classes,
        "svd_driver": driver, "svd_driver_ms": driver_ms,
    }  # fmt: skip
    losses = {name: make() for name, make in makers.items()}
    times = time_in_turns(losses, z_s, z_t, seconds)
    for name, loss in losses.items():
        value, gradient = value_and_gradient(loss, z_s, z_t)
        result[f"{name}_ms"] = times[name].median
        result[f"{name}_ms_quartiles"] = times[name].quartiles
        result[f"{name}_blocks"] = len(times[name].blocks)
        result[f"{name}_value_error"] = float(abs(value.double() - exact_value)) / traces
        result[f"{name}_gradient_error"] = float((gradient - exact_gradient).norm() / exact_gradient.norm())
    del losses, loss, gradient, exact_gradient
    for name, make in makers.items():

        def prepare(make: Callable[[], Loss] = make) -> Callable[[], object]:
            loss = make()
            return lambda: value_and_gradient(loss, z_s, z_t)

        result[f"{name}_peak_bytes"] = peak_bytes(prepare, device)
    for name in OURS:
        prefix = "" if name == "bures" else f"{name}_"
        result[f"{prefix}ratio"] = result["textbook_ms"] / result[f"{name}_ms"]
        result[f"{prefix}memory_ratio"] = result[f"{name}_peak_bytes"] / result["textbook_peak_bytes"]
    return result


def measure_peers(n: int, device: str, seconds: float) -> dict[str, Any]:
    """Milliseconds of other libraries' distances on the clusters, and ours again beside them."""
    z_s, y_s, z_t, p_t = (part.to(device) for part in batches.clusters(n))
    criterion = bures.CKBLoss(eps=EPS)
    losses: dict[str, Loss] = {"bures CKB": lambda a, b: criterion(a, y_s, b, p_t), **peers.available()}
    times = time_in_turns(losses, z_s, z_t, seconds)
    return {"device": device, "n": n, "d": FEATURES, "ms": {name: time.median for name, time in times.items()}}


def measure_batched(n: int, pairs: int, device: str, seconds: float) -> dict[str, Any]:
    """Many pairs of domains in one call, and one after another."""
    many = [batches.clusters(n + offset) for offset in range(pairs)]
    z_s, z_t = (torch.stack([batch[part][:n] for batch in many]).to(device) for part in (0, 2))
    y_s, p_t = (torch.stack([batch[part][:n] for batch in many]).to(device) for part in (1, 3))
    losses: dict[str, Loss] = {
        "one_call": lambda a, b: bures.ckb(a, y_s, b, p_t).sum(),
        "loop": lambda a, b: torch.stack([bures.ckb(a[i], y_s[i], b[i], p_t[i]) for i in range(pairs)]).sum(),
    }
    times = time_in_turns(losses, z_s, z_t, seconds)
    return {"device": device, "n": n, "pairs": pairs, **{f"{name}_ms": time.median for name, time in times.items()}}


def show(results: list[dict[str, Any]]) -> None:
    table = Table(title="CKB, value and gradient, float32 (soft target labels)", title_justify="left")
    columns = (
        "device", "features", "n = m", "textbook ms", "bures ms", "ratio", "value error", "gradient error",
        "textbook's", "memory", "low-rank ms", "ratio", "gradient error",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for row in results:
        table.add_row(
            str(row["device"]), row["features"], str(row["n"]), f"{row['textbook_ms']:.2f}", f"{row['bures_ms']:.2f}",
            f"{row['ratio']:.1f}", f"{row['bures_value_error']:.0e}", f"{row['bures_gradient_error']:.0e}",
            f"{row['textbook_gradient_error']:.0e}", f"{row['memory_ratio']:.2f}", f"{row['low_rank_ms']:.2f}",
            f"{row['low_rank_ratio']:.1f}", f"{row['low_rank_gradient_error']:.0e}",
        )  # fmt: skip
    Console(width=160).print(table)


def command_line(device: str, arguments: argparse.Namespace) -> str:
    """What repeats the measurement on one device; no folders of this machine."""
    words = ["python", "-m", "benchmarks", "--device", device, *(["--full"] if arguments.full else [])]
    words += ["--sizes", *map(str, arguments.sizes)] if arguments.sizes else []
    words += ["--seconds", str(arguments.seconds)] if arguments.seconds else []
    words += ["--features", arguments.features.name] if arguments.features else []
    return shlex.join(words)


def run(device: str, arguments: argparse.Namespace, file: Path) -> list[dict[str, Any]]:
    """Measure everything on one device; the file is written after every row, so that an end in between loses little."""
    seconds = arguments.seconds or (2.0 if arguments.full else 0.7)
    sizes = arguments.sizes or [40, 128, 256, 512] + ([1024, 2048, 4096] if arguments.full else [])
    other_sizes = [n for n in sizes if n in ((128, 512, 2048) if arguments.full else (128, 512))]
    rows: dict[str, list[dict[str, Any]]] = {"results": [], "other_features": [], "peers": [], "batched": []}
    manifest = {
        "command": command_line(device, arguments),
        "versions": versions(),
        "hardware": hardware(device),
        **rows,
    }

    def keep(part: str, row: dict[str, Any]) -> None:
        rows[part].append(row)
        write_json(file, manifest)

    drivers = Drivers()
    for n in sizes:
        keep("results", measure(batches.clusters(n), "clusters", device, seconds, drivers))
    for n in (128, 512):
        keep("peers", measure_peers(n, device, seconds / 2))
    keep("batched", measure_batched(40, 32, device, seconds))
    for name, make in batches.available(arguments.features).items():
        for n in other_sizes if name != "clusters" else []:
            try:
                batch = make(n)
            except ValueError:  # the data set is smaller
                continue
            keep("other_features", measure(batch, name, device, seconds, drivers))
    return rows["results"] + rows["other_features"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--full", action="store_true", help="also batches of 1024, 2048 and 4096")
    parser.add_argument("--device", choices=there, action="append", help="only this device (default: all)")
    parser.add_argument("--sizes", type=int, nargs="+", help="samples in a batch of a domain")
    parser.add_argument("--seconds", type=float, help="for each contestant of a row")
    parser.add_argument("--features", type=Path, help="features of networks, as `benchmarks.batches` writes them")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"), help="folder for files and page")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/results and docs/benchmarks.md")
    arguments = parser.parse_args()
    folder = RESULTS if arguments.publish else arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    for device in arguments.device or there:
        file = folder / f"ckb-{device}.json"
        show(run(device, arguments, file))
        print(f"Written: {file}")
    print(f"Written: {write_report(folder, PAGE if arguments.publish else folder / 'benchmarks.md')}")


if __name__ == "__main__":
    main()
