"""Processes that load data end with the process that they load it for."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.connection import wait

__all__ = ["end_with_parent"]


def end_with_parent(worker: int) -> None:
    """End this process when the one that started it has ended; the ``worker_init_fn`` of data loaders.

    Torch looks at the parent in the system's sense, which is the fork server where Python starts processes by one (the
    default on Linux from Python 3.14 on): the loaders of a training that was killed would wait for ever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="bures-loader-watch").start()
