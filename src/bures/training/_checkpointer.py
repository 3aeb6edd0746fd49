"""Checkpoints inside and between epochs, and a clean stop when the process is asked to end."""

from __future__ import annotations

import signal
import time
from typing import Any

import lightning as L

from bures.training._checkpoint import save_checkpoint
from bures.training._errors import NonFiniteLossError, TrainingError
from bures.training._memory import is_out_of_memory
from bures.training._module import AdaptationModule
from bures.training._recorder import EpochRecorder
from bures.training._run_folder import RunFolder
from bures.training._signals import SignalListener

__all__ = ["Checkpointer", "restore"]


class Checkpointer(L.Callback):
    """Saves the state of the training from time to time, at its end, and before a stop.

    Parameters
    ----------
    folder : RunFolder
        Where the checkpoint goes.
    recorder : EpochRecorder
        Its rows belong to the state.
    fingerprint : dict
        What decides the training.
    every : float or None
        Seconds between checkpoints; 0 saves after every step, None never.
    signals : SignalListener
        Hears who asks for a stop; it is entered around the training.
    state : dict, optional
        State of a checkpoint to go on from.
    at_end : bool, optional
        Save at the end of training in any case, for what comes behind it; else only when it is time.
    """

    def __init__(
        self,
        folder: RunFolder,
        recorder: EpochRecorder,
        fingerprint: dict[str, Any],
        every: float | None,
        signals: SignalListener,
        state: dict[str, Any] | None = None,
        *,
        at_end: bool = True,
    ) -> None:
        self.folder, self.recorder, self.fingerprint, self.every = folder, recorder, fingerprint, every
        self._to_restore, self._at_end = state, at_end
        self._last = time.monotonic()
        self.signals = signals
        self.saved_step: int | None = None if state is None else state["step"]

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restore the state."""
        assert isinstance(pl_module, AdaptationModule)
        if self._to_restore is not None:
            restore(trainer, pl_module, self._to_restore)
            self._to_restore = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Listen to signals in place of Lightning, and stop where one came while the training was made ready."""
        assert isinstance(pl_module, AdaptationModule)
        self.signals.listen()
        if self.signals.heard is not None:
            self._save_if_due(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save inside an epoch when it is time."""
        assert isinstance(pl_module, AdaptationModule)
        # The end of an epoch saves by itself, after its row is in the log.
        if pl_module.steps_done % pl_module.steps_per_epoch:
            self._save_if_due(trainer, pl_module)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save between epochs when it is time, and at the end of training."""
        assert isinstance(pl_module, AdaptationModule)
        self._save_if_due(trainer, pl_module, always=self._at_end and pl_module.steps_done >= pl_module.n_steps)

    def _save_if_due(self, trainer: L.Trainer, module: AdaptationModule, *, always: bool = False) -> None:
        heard = self.signals.heard  # once: a signal that comes after this is for the next step, which saves its state
        asked = always or heard is not None
        if self.every is not None and trainer.is_global_zero and (asked or time.monotonic() - self._last >= self.every):
            self._save(trainer, module)
        if heard is not None and trainer.is_global_zero:
            if trainer.strategy.launcher is not None:  # the others wait for this process and have nothing to save
                trainer.strategy.launcher.kill(signal.SIGKILL)
            raise self.signals.stopped(heard, module.steps_done, saved=self.every is not None)

    def _save(self, trainer: L.Trainer, module: AdaptationModule) -> None:
        path = self.folder.checkpoint
        module.check_finite()  # a checkpoint is always one that training can go on from
        try:
            save_checkpoint(path, self._state(trainer, module), self.fingerprint)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            if isinstance(error, NonFiniteLossError) or is_out_of_memory(error):
                raise
            kept = "there is none yet" if self.saved_step is None else f"that of step {self.saved_step} is intact"
            raise TrainingError(
                f"the checkpoint of step {module.steps_done} could not be written to {path} "
                f"({error}); of earlier ones, {kept}. Make room and resume the run"
            ) from error
        self.saved_step, self._last = module.steps_done, time.monotonic()

    def _state(self, trainer: L.Trainer, module: AdaptationModule) -> dict[str, Any]:
        # A method that makes its own steps has optimisers beside the recipe's, and no schedule with a state.
        first, *others = trainer.optimizers
        return {
            **module.progress(),
            "network": module.network.state_dict(),
            "method": module.method.state_dict(),
            "optimiser": first.state_dict(),
            "other_optimisers": [optimiser.state_dict() for optimiser in others],
            "schedule": next((config.scheduler.state_dict() for config in trainer.lr_scheduler_configs), None),
            "recorder": self.recorder.state_dict(),
        }


def restore(trainer: L.Trainer | None, module: AdaptationModule, state: dict[str, Any]) -> None:
    """Bring a module, and the optimisers and schedules of its trainer, to the state of a checkpoint."""
    module.network.load_state_dict(state["network"])
    module.method.load_state_dict(state["method"])
    module.go_on_from(state)
    if trainer is not None:
        states = [state["optimiser"], *state.get("other_optimisers", ())]
        for optimiser, saved in zip(trainer.optimizers, states, strict=True):
            optimiser.load_state_dict(saved)
        for config in trainer.lr_scheduler_configs:
            config.scheduler.load_state_dict(state["schedule"])
