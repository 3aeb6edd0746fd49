"""Work without what libraries say about themselves."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["errors_alone", "quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's announcements and its advice on data loaders from the user; errors and our warnings pass."""
    with errors_alone("lightning.pytorch", "lightning.fabric"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*")
        yield


@contextmanager
def errors_alone(*names: str) -> Iterator[None]:
    """Let the loggers of these names pass nothing below an error."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
