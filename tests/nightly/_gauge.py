"""Memory and file handles of a process while it works, and what counts as growth."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import time
from contextlib import suppress
from pathlib import Path

MINUTES = "BURES_SOAK_MINUTES"


def command(section: str, seed: int) -> dict[str, str]:
    """What repeats a soak that was made shorter than it is by itself; nothing for one that was not."""
    limit = os.environ.get(MINUTES)
    return {"command": f"{MINUTES}={float(limit):g} python tools/nightly.py {section} --seed {seed}"} if limit else {}


class Gauge:
    """Memory and file handles of this process over time, after a first tenth in which caches fill."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.memory: list[float] = []
        self.handles: list[int] = []

    def read(self) -> None:
        give_back_what_is_free()
        memory, handles = memory_and_handles()
        self.memory.append(memory)
        self.handles.append(handles)
        self.seconds = time.monotonic() - self.started

    def _ends(self) -> tuple[float, float]:
        """Median memory near the beginning and at the end."""
        tenth = max(1, len(self.memory) // 10)
        settled = self.memory[tenth : 3 * tenth + 1] or self.memory
        return statistics.median(settled), statistics.median(self.memory[-tenth:])

    def figures(self) -> dict:
        first, last = self._ends()
        some = max(2, len(self.handles) // 10)
        return {
            "seconds": round(self.seconds, 1),
            "readings": len(self.memory),
            "memory_mib": [round(first, 1), round(last, 1)],
            "growth_mib": round(last - first, 2),
            # The fewest of some readings: a thread that writes a log has its file open now and then.
            "handles": [min(self.handles[:some]), min(self.handles[-some:])],
        }

    def faults(self, allowed: float) -> list[str]:
        figures, found = self.figures(), []
        if figures["growth_mib"] > allowed:
            found.append(f"memory grew by {figures['growth_mib']} MiB; {allowed} are allowed")
        if figures["handles"][1] > figures["handles"][0]:
            found.append(f"open files grew from {figures['handles'][0]} to {figures['handles'][1]}")
        return found


def give_back_what_is_free() -> None:
    """Collect cycles and return free pages to the system: what allocators keep for later use is no growth."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has this
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def memory_and_handles() -> tuple[float, int]:
    """MiB in memory and open files of this process; where there is no /proc, the most there ever were and none."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 0
