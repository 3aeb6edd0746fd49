"""Time and memory of mergeable moments on a stream of generated samples.

    python -m benchmarks.moments                            # a million samples on the CPU
    python -m benchmarks.moments --device cuda --n 10000000

512 features, 10 classes, 1024 Nyström landmarks, precision "mixed". The rate is that of the floating-point operations
the method needs, as a share of the rate of a plain float32 matrix product timed between the chunks of the same run, so
that a busy machine slows both. Per sample, with d features, L landmarks and D features of the map:

    2 d L   products with the landmarks
    2 L D   projection on the landmarks' eigenvectors
    2 D D   second moment

Exponentials, sums over classes and checks are not counted as work, but their time is. Generating samples is not timed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bures
from benchmarks.manifest import write_manifest

D_IN, CLASSES, LANDMARKS = 512, 10, 1024
MATRIX = {"cpu": 2048, "cuda": 8192}


class Stream:
    """Class clusters of low intrinsic dimension; every chunk is written into the same memory."""

    def __init__(self, chunk: int, device: str, scale: float) -> None:
        shared = torch.Generator(device).manual_seed(0)
        self.generator = torch.Generator(device).manual_seed(int(10 * scale))
        self.mixing = torch.randn(32, D_IN, generator=shared, device=device) * scale / 32**0.5
        self.centres = torch.randn(CLASSES, D_IN, generator=shared, device=device)
        self.x = torch.empty(chunk, D_IN, device=device)

    def draw(self, n: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(CLASSES, (n,), generator=self.generator, device=self.x.device)
        x = self.x[:n].normal_(generator=self.generator).mul_(0.3).add_(self.centres[y])
        latent = torch.randn(n, 32, generator=self.generator, device=self.x.device)
        return x.addmm_(latent, self.mixing), y


def seconds(function: Callable[[], Any], device: str) -> float:
    synchronise(device)
    start = time.perf_counter()
    function()
    synchronise(device)
    return time.perf_counter() - start


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def held_bytes(device: str) -> int:
    if device == "cuda":
        return torch.cuda.memory_allocated()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_bytes(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(n: int, chunk: int, device: str) -> dict[str, Any]:
    source, target = Stream(chunk, device, 1.0), Stream(chunk, device, 1.5)
    phi = bures.NystroemMap.fit(source.draw(2048)[0], target.draw(2048)[0], n_landmarks=LANDMARKS)
    m_s, m_t = (bures.ConditionalMoments(phi, CLASSES, precision="mixed") for _ in range(2))
    m_t.update(*target.draw(chunk))
    side = MATRIX[device]
    a, b = torch.randn(side, side, device=device), torch.randn(side, side, device=device)
    product = torch.empty(side, side, device=device)
    seconds(lambda: torch.mm(a, b, out=product), device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    x, y = source.draw(chunk)
    before, peaks, times, matmuls = held_bytes(device), [], [], []
    warm = bures.ConditionalMoments(phi, CLASSES, precision="mixed")
    warm.update(x, y)
    del warm
    while m_s.n_samples < n:
        x, y = source.draw(min(chunk, n - m_s.n_samples))
        times.append(seconds(lambda x=x, y=y: m_s.update(x, y), device))
        matmuls.append(seconds(lambda: torch.mm(a, b, out=product), device))
        peaks.append(peak_bytes(device))
    per_sample = 2 * D_IN * LANDMARKS + 2 * LANDMARKS * m_s.n_features + 2 * m_s.n_features**2
    rate, matmul_rate = n * per_sample / sum(times), len(matmuls) * 2 * side**3 / sum(matmuls)
    distance_seconds = seconds(lambda: m_s.measure(m_t), device)
    return {
        "device": device, "n": n, "d": D_IN, "classes": CLASSES, "landmarks": LANDMARKS, "D": m_s.n_features,
        "chunk": chunk, "flop_per_sample": per_sample, "seconds": sum(times), "samples_per_second": n / sum(times),
        "flop_per_second": rate, "matmul_flop_per_second": matmul_rate, "share_of_matmul_rate": rate / matmul_rate,
        "median_chunk_seconds": statistics.median(times), "distance_seconds": distance_seconds,
        "chunk_bytes": source.x.nbytes, "state_bytes": m_s.nbytes,
        "peak_bytes_above_chunk_first_quarter": peaks[max(0, len(peaks) // 4 - 1)] - before,
        "peak_bytes_above_chunk": peaks[-1] - before,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000, help="number of samples")
    parser.add_argument("--chunk", type=int, help="rows in a chunk (default 65536, on a GPU 262144)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"), help="folder for the JSON file")
    arguments = parser.parse_args()
    chunk = min(arguments.chunk or (65536 if arguments.device == "cpu" else 262144), arguments.n)
    result = measure(arguments.n, chunk, arguments.device)
    for name, value in result.items():
        print(f"{name:38} {value:,.4g}" if isinstance(value, float) else f"{name:38} {value}")
    command = f"python -m benchmarks.moments --n {arguments.n} --chunk {chunk} --device {arguments.device}"
    write_manifest(arguments.output, "moments", command, arguments.device, [result])


if __name__ == "__main__":
    main()
