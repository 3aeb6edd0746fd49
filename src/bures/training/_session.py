"""One process' work on a run: Lightning's trainer with our callbacks, and what is written at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console

from bures.networks import Network
from bures.networks._batchnorm import adaptable_layers
from bures.provenance import hardware
from bures.training._assembly import start_network
from bures.training._checkpointer import Checkpointer, restore
from bures.training._errors import NonFiniteLossError, TrainingError
from bures.training._evaluation import Evaluation, effective_number
from bures.training._kept import keep, write_kept
from bures.training._module import AdaptationModule
from bures.training._progress import RichProgress
from bures.training._recorder import EpochRecorder
from bures.training._run_folder import RunFolder
from bures.training._saved_model import save_model
from bures.training._setting import Setting
from bures.training._signals import SignalListener

__all__ = ["Session"]


class Session:
    """One process' work on a run: from its start or its checkpoint to its end."""

    def __init__(
        self,
        folder: RunFolder,
        setting: Setting,
        every: float | None,
        state: dict[str, Any] | None,
        progress: bool,
        on_epoch: Callable[[Mapping[str, Any]], None] | None = None,
        *,
        keep_files: bool = True,
        devices: int = 1,
        signals: SignalListener | None = None,
        title: str | None = None,
    ) -> None:
        self.folder, self.setting, self.state, self.keep_files = folder, setting, state, keep_files
        n_steps = setting.recipe.epochs * setting.data.steps_per_epoch
        self.module = AdaptationModule(
            setting.network,
            setting.method,
            setting.inputs,
            setting.recipe,
            setting.data.steps_per_epoch,
            n_steps,
            direct=devices == 1,  # between devices backward is DDP's business
        )
        source_classes = effective_number(setting.source.counts().double() / len(setting.source))
        logged = setting.recipe.logged_validators
        self.recorder = EpochRecorder(
            setting.evaluator,
            folder if keep_files else None,
            setting.batchnorm,
            source_classes,
            logged,
            on_epoch,
            keep_best=keep_files or setting.evaluator.validation is not None,
        )
        self.signals = SignalListener() if signals is None else signals
        self.checkpointer = Checkpointer(
            folder, self.recorder, setting.fingerprint, every, self.signals, state, at_end=keep_files
        )
        self.console = Console(stderr=True)
        self.progress = progress and self.console.is_terminal
        self.title = title or f"{setting.source.name} → {setting.target.name}, {setting.recipe.method}"
        self.device = torch.device("cpu")
        self.hardware: dict[str, Any] = hardware()
        if state is not None:
            self.recorder.load_state_dict(state["recorder"])
            setting.data.first_step = state["step"]

    def fit(self, options: dict[str, Any]) -> None:
        """Train what is left to train."""
        first, length = self.setting.data.first_step, self.setting.data.steps_per_epoch
        if first >= self.module.n_steps:  # only the end was missing
            assert self.state is not None
            if self.setting.recipe.precision == "64-true":  # as the trainer would have done
                self.module.double()
            restore(None, self.module, self.state)
            self.place_by(options)  # as the trainer would have done, too: the end evaluates all samples
            return
        callbacks: list[L.Callback] = [_Placement(self), self.recorder, self.checkpointer]
        if self.progress:
            callbacks.append(RichProgress(self.recorder, self.title, self.console))
        trainer = L.Trainer(
            **options,
            max_epochs=self.setting.recipe.epochs - first // length,
            precision=self.setting.recipe.precision,  # type: ignore[arg-type]
            callbacks=callbacks,
            logger=self.keep_files
            and TensorBoardLogger(self.folder.path, name="tensorboard", version="", purge_step=first),
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            num_sanity_val_steps=0,
        )
        try:
            trainer.fit(self.module, datamodule=self.setting.data)
        except NonFiniteLossError as error:
            raise TrainingError(f"{error}; {self.kept}. A smaller lr or a gradient_clip may help") from error
        finally:
            self.module.forget_graphs()

    def place_by(self, options: Mapping[str, Any]) -> torch.device:
        """Bring samples and network to the device that Lightning's trainer would choose, and return it."""
        device = L.Fabric(accelerator=options["accelerator"], devices=1).device
        self.place(device)
        return device

    def place(self, device: torch.device) -> None:
        """Bring samples and network into the layout that the device likes."""
        self.device, self.hardware = device, hardware(device)
        setting = self.setting
        setting.data.move(device)
        setting.evaluator.move(device)
        if device.type == "cuda" and setting.spec.image_size is not None and setting.spec.name != "lenet":
            setting.network.to(memory_format=torch.channels_last)

    @property
    def kept(self) -> str:
        """Which checkpoint there is, in words."""
        step = self.checkpointer.saved_step
        if step is None:
            return "no checkpoint was written yet"
        return f"the last good checkpoint is that of step {step}, {self.folder.checkpoint}"

    def evaluate_again(self) -> None:
        """Look once more at the network, which has changed since the end of its last epoch."""
        self.recorder.look_again(self.module.network.to(self.device), aligned=self.setting.method.needs_target)

    def finish(self) -> None:
        """Evaluate the last network, and write what came of the run."""
        setting, network = self.setting, self.module.network.to(self.device)  # Lightning has moved it to the host
        evaluator, last = setting.evaluator, setting.batchnorm
        # The network is that of the last epoch, which was evaluated then, unless another process did so.
        final = self.recorder.last or evaluator.evaluate(network, last)
        accuracies = {"training": final.accuracy}
        if adaptable_layers(network):
            other = {"training": "target", "target": "training"}[last]
            both = {last: final.accuracy, other: evaluator.accuracy(evaluator.predict(network, other))}
            accuracies = {policy: both[policy] for policy in ("training", "target")}
        if self.keep_files:
            self._write_files(network, final)
        calibration = evaluator.reliability(final.predictions)
        temperature = evaluator.temperatures(network, final.predictions, last)
        best = self.recorder.best
        assert best is not None
        chosen = {name: value for name, value in best.items() if name != "network"}
        if "network" in best:
            network.load_state_dict(best["network"])
            if self.keep_files:
                names = setting.source.class_names
                adapted = evaluator.adapted(network, last)
                save_model(self.folder.best_model, adapted, setting.spec, names, setting.feature_names)
            if temperature is not None:
                chosen["temperature"] = evaluator.temperatures(network, evaluator.predict(network, last), last)
        outcome = {
            "accuracy": final.accuracy,
            "validator": setting.recipe.select,
            "score": final.score,
            "scores": {name: final.scores[name] for name in setting.recipe.logged_validators},
            "effective_classes": final.effective_classes,
            "batchnorm": last,
            "accuracy_by_batchnorm": accuracies,
            "best": chosen,
            "temperature": temperature,
            "calibration": None if calibration is None else calibration.to_dict(),
            "seconds": self.recorder.rows[-1]["seconds"],
        }
        self.signals.wait_for_the_end()
        self.write_status("finished", None, outcome)
        if not self.keep_files:
            self.folder.remove_checkpoint()

    def _write_files(self, network: Network, final: Evaluation) -> None:
        """Write the network and what it makes of the samples."""
        setting, folder, last = self.setting, self.folder, self.setting.batchnorm
        evaluator, names = setting.evaluator, setting.source.class_names
        save_model(folder.model, evaluator.adapted(network, last), setting.spec, names, setting.feature_names)
        folder.write_predictions(evaluator.domain, final.predictions.probabilities)
        if (confusion := evaluator.confusion(final.predictions)) is not None:
            folder.write_confusion(confusion, names)
        start = start_network(setting.spec, setting.recipe)[0].to(self.device)
        write_kept(folder.samples, keep(setting.source, evaluator, final, network, start, last))

    def note_end(self, status: str, reason: BaseException) -> None:
        """Bring the manifest up to date where that is possible: on a full disk it is not, and the reason matters."""
        with suppress(OSError):
            self.write_status(status, str(reason) or type(reason).__name__)

    def note_head(self, field: str, outcome: dict[str, Any]) -> None:
        """Write into the manifest what a training of the head alone came to."""
        content = self.folder.read_manifest()
        self.folder.write_manifest(content | {field: content[field] | outcome})

    def write_status(self, status: str, reason: str | None, outcome: dict[str, Any] | None = None) -> None:
        """Bring the manifest up to date."""
        content = self.folder.read_manifest()
        content |= {"status": status, "reason": reason, "hardware": self.hardware, "notes": self.recorder.notes}
        content |= {"epochs": self.recorder.rows, "final": outcome}
        self.folder.write_manifest(content)


class _Placement(L.Callback):
    """Places samples and network on the device once it is known."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.session.place(trainer.strategy.root_device)
