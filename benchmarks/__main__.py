"""Time one training step's worth of CKB, value and gradient, beside the textbook formula in the same run.

    python -m benchmarks            # about a minute
    python -m benchmarks --full     # larger batches

Medians after warm-up, on the CPU and on the GPU where there is one (`torch.utils.benchmark` synchronises the device).
Errors are relative to the textbook formula in float64: of the value to the sum of the traces, of the gradient in norm.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.benchmark import Timer

import bures
from benchmarks.textbook import textbook_ckb
from bures.files import write_json

FEATURES, CLASSES, EPS = 512, 10, 1e-2


def make_batch(n: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Class clusters of low intrinsic dimension in 512 features, with soft target predictions."""
    generator = torch.Generator().manual_seed(n)
    mixing = torch.randn(32, FEATURES, generator=generator) / 32**0.5
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    y_s, y_t = (torch.randint(CLASSES, (n,), generator=generator) for _ in range(2))
    z_s, z_t = (
        centres[y] + scale * torch.randn(n, 32, generator=generator) @ mixing for y, scale in ((y_s, 1.0), (y_t, 1.5))
    )
    logits = 3 * one_hot(y_t, CLASSES) + torch.randn(n, CLASSES, generator=generator)
    return z_s.to(device), y_s.to(device), z_t.to(device), logits.softmax(1).to(device)


def value_and_gradient(loss: Callable[[Tensor, Tensor], Tensor], z_s: Tensor, z_t: Tensor) -> tuple[Tensor, Tensor]:
    z_s, z_t = z_s.detach().requires_grad_(), z_t.detach().requires_grad_()
    value = loss(z_s, z_t)
    value.backward()
    return value.detach(), torch.cat([z_s.grad, z_t.grad])


def measure(n: int, device: str, seconds: float) -> dict[str, float | int | str]:
    z_s, y_s, z_t, p_t = make_batch(n, device)
    rows = one_hot(y_s, CLASSES)
    criterion = bures.CKBLoss(eps=EPS)

    def ours(a: Tensor, b: Tensor) -> Tensor:
        return criterion(a, y_s, b, p_t)

    def textbook(a: Tensor, b: Tensor) -> Tensor:
        return textbook_ckb(a, rows.to(a), b, p_t.to(a), EPS)

    exact_value, exact_gradient = value_and_gradient(textbook, z_s.double(), z_t.double())
    traces = bures.explain(z_s, y_s, z_t, p_t, bandwidth="per-block", eps=EPS, n_permutations=0, n_bootstrap=0)
    result: dict[str, float | int | str] = {"device": device, "n": n, "d": FEATURES, "classes": CLASSES}
    for name, loss in (("textbook", textbook), ("bures", ours)):
        value, gradient = value_and_gradient(loss, z_s, z_t)
        timer = Timer(
            "run(loss, z_s, z_t)",
            globals={"run": value_and_gradient, "loss": loss, "z_s": z_s, "z_t": z_t},
            num_threads=torch.get_num_threads(),
        )
        result[f"{name}_ms"] = 1e3 * timer.blocked_autorange(min_run_time=seconds).median
        result[f"{name}_value_error"] = float(abs(value - exact_value)) / (traces.trace_s + traces.trace_t)
        result[f"{name}_gradient_error"] = float((gradient - exact_gradient).norm() / exact_gradient.norm())
    result["ratio"] = float(result["textbook_ms"]) / float(result["bures_ms"])
    return result


def show(results: list[dict[str, float | int | str]]) -> None:
    table = Table(title="CKB, value and gradient, float32 (soft target labels)", title_justify="left")
    for column in (
        "device",
        "n = m",
        "textbook ms",
        "bures ms",
        "ratio",
        "value error",
        "gradient error",
        "textbook's",
    ):
        table.add_column(column, justify="right")
    for row in results:
        table.add_row(
            str(row["device"]), str(row["n"]), f"{row['textbook_ms']:.2f}", f"{row['bures_ms']:.2f}",
            f"{row['ratio']:.1f}", f"{row['bures_value_error']:.0e}", f"{row['bures_gradient_error']:.0e}",
            f"{row['textbook_gradient_error']:.0e}",
        )  # fmt: skip
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also batches of 1024 and 2048")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"), help="folder for the JSON files")
    available = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=available, action="append", help="only this device (default: all)")
    arguments = parser.parse_args()
    sizes = [40, 128, 256, 512] + ([1024, 2048] if arguments.full else [])
    arguments.output.mkdir(parents=True, exist_ok=True)
    for device in arguments.device or available:
        results = [measure(n, device, seconds=2.0 if arguments.full else 1.0) for n in sizes]
        show(results)
        manifest = {
            "command": f"python -m benchmarks{' --full' if arguments.full else ''} --device {device}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "bures": bures.__version__},
            "hardware": torch.cuda.get_device_name() if device == "cuda" else f"{os.cpu_count()} CPU cores",
            "threads": torch.get_num_threads(),
            "results": results,
        }
        print(f"Written: {write_json(arguments.output / f'ckb-{device}.json', manifest)}")


if __name__ == "__main__":
    main()
