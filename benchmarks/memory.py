"""The most memory a call holds at a time, above what was there before: counted, not sampled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.timing import WARM_UP


def peak_bytes(make: Callable[[], Callable[[], Any]], device: str) -> int:
    """Peak of the tensors and workspaces that torch allocates for a call, which ``make`` prepares.

    On a GPU the calls that warm up and capture a graph are among those counted, and so is what a graph keeps. On the
    CPU every allocation and release is an event of torch's profiler; LAPACK's workspaces are among them.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before, kept_before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        call, start = make(), time.perf_counter()
        for _ in range(WARM_UP):
            call()
            torch.cuda.synchronize()
            if time.perf_counter() > start + 1:  # too slow for a graph to matter
                break
        torch.cuda.empty_cache()
        kept = torch.cuda.memory_reserved() - kept_before
        return max(torch.cuda.max_memory_allocated() - before, kept)
    call = make()
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    changes = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
