"""Progress of a training on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bures.data._decoding import Progress as Report
from bures.training._module import AdaptationModule
from bures.training._recorder import EpochRecorder

__all__ = ["RichProgress", "counted"]

REFRESH = 0.5  # seconds between looks at the losses, each of which waits for the device


class RichProgress(L.Callback):
    """A line with epoch, loss terms, accuracies and the time left, while the console is a terminal.

    Parameters
    ----------
    recorder : EpochRecorder
        Knows the accuracy after the last epoch.
    title : str
        What is trained.
    console : Console
        Where the line goes.
    """

    def __init__(self, recorder: EpochRecorder, title: str, console: Console) -> None:
        self.recorder, self.title = recorder, title
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._last = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the line."""
        assert isinstance(pl_module, AdaptationModule)
        self._task = self._bar.add_task(self.title, total=pl_module.n_steps, completed=pl_module.steps_done, status="")
        self._bar.start()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Bring the line up to date, a few times a second."""
        assert isinstance(pl_module, AdaptationModule)
        assert self._task is not None
        if time.monotonic() - self._last >= REFRESH:
            self._last = time.monotonic()
            self._bar.update(self._task, completed=pl_module.steps_done, status=self._status(pl_module))

    def _status(self, module: AdaptationModule) -> str:
        epochs = module.n_steps // module.steps_per_epoch
        means = module.record.means()
        accuracy = means.pop("source_accuracy", None)
        parts = [f"epoch {min(module.steps_done // module.steps_per_epoch + 1, epochs)}/{epochs}"]
        parts += [f"{name.replace('_', ' ')} {value:.3f}" for name, value in means.items() if name != "loss"]
        if accuracy is not None:
            parts.append(f"source {100 * accuracy:.1f} %")
        if self.recorder.rows and "target_accuracy" in self.recorder.rows[-1]:
            parts.append(f"target {100 * self.recorder.rows[-1]['target_accuracy']:.1f} %")
        return "  ".join(parts)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the line away."""
        self._bar.stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Take the line away."""
        self._bar.stop()


@contextmanager
def counted(title: str, console: Console, *, shown: bool) -> Iterator[Report]:
    """A line that counts samples, moved by calling ``report(done, total)``, which elsewhere shows nothing."""
    if not shown:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
