"""Time and memory of CKB's value and gradient beside the textbook formula and other libraries, in the same run.

    python -m benchmarks            # about two minutes
    python -m benchmarks --full     # batches up to 4096

The contestants take turns, block by block, so that a change of the machine's pace meets all; times are medians of the
blocks. Errors are relative to the textbook formula in float64: of the value to the sum of the traces, of the gradient
in norm. On a GPU the textbook formula uses the fastest of torch's SVD drivers, tried in the same run. Peak memory is
counted (`benchmarks.memory`). Writes a JSON file for each device, and a page with plots (`benchmarks.report`).
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
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
from benchmarks.report import write_report
from benchmarks.textbook import textbook_ckb
from bures.files import write_json

EPS = 1e-2
DRIVERS = ("gesvd", "gesvdj", "gesvda")
Loss = Callable[[Tensor, Tensor], Tensor]


def make_batch(n: int, device: str) -> Batch:
    """The clusters, on a device."""
    z_s, y_s, z_t, p_t = batches.clusters(n)
    return z_s.to(device), y_s.to(device), z_t.to(device), p_t.to(device)


def value_and_gradient(loss: Loss, z_s: Tensor, z_t: Tensor) -> tuple[Tensor, Tensor]:
    z_s, z_t = z_s.detach().requires_grad_(), z_t.detach().requires_grad_()
    value = loss(z_s, z_t)
    value.backward()
    return value.detach(), torch.cat([z_s.grad, z_t.grad])


def time_in_turns(losses: dict[str, Loss], z_s: Tensor, z_t: Tensor, seconds: float) -> dict[str, float]:
    """Median milliseconds of a value and gradient of each, from blocks of calls taken in turns."""

    def block(loss: Loss, calls: int) -> float:
        _synchronise(z_s)
        start = time.perf_counter()
        for _ in range(calls):
            value_and_gradient(loss, z_s, z_t)
        _synchronise(z_s)
        return (time.perf_counter() - start) / calls

    calls = {}
    for name, loss in losses.items():
        for _ in range(5 if z_s.is_cuda else 1):  # warm-up; a shape is captured at its fourth call
            value_and_gradient(loss, z_s, z_t)
        calls[name] = max(1, min(20, int(0.02 / block(loss, 1))))
    times: dict[str, list[float]] = {name: [] for name in losses}
    until = time.perf_counter() + seconds * len(losses)
    while time.perf_counter() < until or len(times[name]) < 3:
        for name, loss in losses.items():
            times[name].append(block(loss, calls[name]))
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def _synchronise(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()


def fastest_driver(loss: Callable[..., Tensor], z_s: Tensor, z_t: Tensor) -> str | None:
    """The SVD driver with the shortest time; None on the CPU, which has one."""
    if not z_s.is_cuda:
        return None
    losses = {name: lambda a, b, name=name: loss(a, b, driver=name) for name in DRIVERS}
    times = time_in_turns(losses, z_s, z_t, 0.0)
    return min(times, key=times.__getitem__)


def measure(batch: Batch, features: str, device: str, seconds: float) -> dict[str, Any]:
    z_s, y_s, z_t, p_t = (part.to(device) for part in batch)
    n, classes = len(z_s), p_t.shape[1]
    rows = one_hot(y_s, classes)

    def textbook(a: Tensor, b: Tensor, driver: str | None = None) -> Tensor:
        return textbook_ckb(a, rows.to(a), b, p_t.to(a), EPS, driver=driver)

    def ours(method: str) -> Loss:
        criterion = bures.CKBLoss(eps=EPS, method=method)
        return lambda a, b: criterion(a, y_s, b, p_t)

    driver = fastest_driver(textbook, z_s, z_t)
    losses: dict[str, Loss] = {
        "textbook": lambda a, b: textbook(a, b, driver),
        "bures": ours("auto"),
        "low_rank": ours("low-rank"),
    }
    exact_value, exact_gradient = value_and_gradient(textbook, z_s.double(), z_t.double())
    explained = bures.explain(z_s, y_s, z_t, p_t, bandwidth="per-block", eps=EPS, n_permutations=0, n_bootstrap=0)
    traces = explained.trace_s + explained.trace_t
    result: dict[str, Any] = {
        "device": device, "features": features, "n": n, "d": z_s.shape[1], "classes": classes, "svd_driver": driver,
    }  # fmt: skip
    times = time_in_turns(losses, z_s, z_t, seconds)
    for name, loss in losses.items():
        value, gradient = value_and_gradient(loss, z_s, z_t)
        result[f"{name}_ms"] = times[name]
        result[f"{name}_value_error"] = float(abs(value - exact_value)) / traces
        result[f"{name}_gradient_error"] = float((gradient - exact_gradient).norm() / exact_gradient.norm())
        result[f"{name}_peak_bytes"] = peak_bytes(lambda loss=loss: value_and_gradient(loss, z_s, z_t), device)
    result["ratio"] = result["textbook_ms"] / result["bures_ms"]
    result["low_rank_ratio"] = result["textbook_ms"] / result["low_rank_ms"]
    result["memory_ratio"] = result["bures_peak_bytes"] / result["textbook_peak_bytes"]
    return result


def measure_peers(n: int, device: str, seconds: float) -> dict[str, Any]:
    """Milliseconds of other libraries' distances on the clusters, and ours again beside them."""
    z_s, y_s, z_t, p_t = make_batch(n, device)
    criterion = bures.CKBLoss(eps=EPS)
    losses: dict[str, Loss] = {"bures CKB": lambda a, b: criterion(a, y_s, b, p_t), **peers.available()}
    return {"device": device, "n": n, "d": FEATURES, "ms": time_in_turns(losses, z_s, z_t, seconds)}


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
    return {"device": device, "n": n, "pairs": pairs, **{f"{name}_ms": value for name, value in times.items()}}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also batches of 1024, 2048 and 4096")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"), help="folder for the JSON files")
    there = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=there, action="append", help="only this device (default: all)")
    arguments = parser.parse_args()
    sizes = [40, 128, 256, 512] + ([1024, 2048, 4096] if arguments.full else [])
    other_sizes = [128, 512] + ([1024, 2048] if arguments.full else [])
    seconds = 2.0 if arguments.full else 0.7
    arguments.output.mkdir(parents=True, exist_ok=True)
    for device in arguments.device or there:
        results = [measure(batches.clusters(n), "clusters", device, seconds) for n in sizes]
        others = []
        for name, make in batches.available().items():
            for n in other_sizes if name != "clusters" else []:
                try:
                    batch = make(n)
                except ValueError:  # the data set is smaller
                    continue
                others.append(measure(batch, name, device, seconds))
        show(results + others)
        manifest = {
            "command": f"python -m benchmarks{' --full' if arguments.full else ''} --device {device}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "bures": bures.__version__},
            "hardware": torch.cuda.get_device_name() if device == "cuda" else f"{os.cpu_count()} CPU cores",
            "threads": torch.get_num_threads(),
            "results": results,
            "other_features": others,
            "peers": [measure_peers(n, device, seconds / 2) for n in (128, 512)],
            "batched": [measure_batched(40, 32, device, seconds)],
        }
        print(f"Written: {write_json(arguments.output / f'ckb-{device}.json', manifest)}")
    print(f"Written: {write_report(arguments.output)}")


if __name__ == "__main__":
    main()
