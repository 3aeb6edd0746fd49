"""From a labelled source and an unlabelled target to a trained network in a run folder."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console

from bures.data import Domain, HiddenLabels, ImageFiles, align_classes
from bures.data._samples import fits_in_memory
from bures.methods import Method
from bures.networks import Network
from bures.networks._batchnorm import adaptable_layers
from bures.provenance import command_line, hardware, versions
from bures.training._assembly import NetworkSpec, assemble, fit_samples
from bures.training._batches import PairData
from bures.training._checkpoint import compare, load_checkpoint
from bures.training._checkpointer import Checkpointer, restore
from bures.training._errors import NonFiniteLossError, StoppedBySignal, TrainingError
from bures.training._evaluation import Evaluator
from bures.training._gather import world_size
from bures.training._inputs import Inputs
from bures.training._module import AdaptationModule
from bures.training._plan import derive_seed
from bures.training._progress import RichProgress
from bures.training._recipe import Recipe
from bures.training._recorder import EpochRecorder
from bures.training._run_folder import RunFolder, checksum
from bures.training._saved_model import SavedModel, load_model, save_model

__all__ = ["Run", "adapt"]


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and its manifest."""

    path: Path
    manifest: dict[str, Any]

    @property
    def accuracy(self) -> float | None:
        """Accuracy on the target after the last epoch; None where the target has no labels."""
        accuracy: float | None = self.manifest["final"]["accuracy"]
        return accuracy

    def model(self, *, best: bool = False) -> SavedModel:
        """The network after the last epoch, or with ``best`` of the epoch with the best label-free score."""
        folder = RunFolder(self.path)
        return load_model(folder.best_model if best else folder.model)


def adapt(
    source: Domain,
    target: Domain,
    recipe: Recipe,
    output: str | Path,
    *,
    evaluation: Domain | None = None,
    partial: bool = False,
    resume: bool = False,
    accelerator: str = "auto",
    devices: int = 1,
    strategy: str = "auto",
    sync_batchnorm: bool = False,
    checkpoint_every: float = 60.0,
    in_memory: bool | None = None,
    n_workers: int | None = None,
    progress: bool = False,
    origin: Mapping[str, Any] | None = None,
) -> Run:
    """Train a network on a labelled source and an unlabelled target, and write a run folder.

    Parameters
    ----------
    source : Domain
        With labels.
    target : Domain
        Its labels, where it has any, are hidden from training and used for evaluation alone.
    recipe : Recipe
        How to train.
    output : path
        The run folder: it must not exist or be empty, unless a run is resumed.
    evaluation : Domain, optional
        Target samples to be evaluated and predicted; None is ``target`` itself.
    partial : bool, optional
        Whether the target may lack classes of the source.
    resume : bool, optional
        Go on with the run in ``output``. On the CPU, with the same number of threads, the result is that of a run
        that was never stopped, bit by bit.
    accelerator, devices, strategy : optional
        Of Lightning's trainer.
    sync_batchnorm : bool, optional
        On several devices, let BatchNorm see the batch of all.
    checkpoint_every : float, optional
        Seconds between checkpoints; 0 saves after every step.
    in_memory : bool, optional
        Decode image files once and keep them. None does so up to 4 GiB for a domain.
    n_workers : int, optional
        Processes that decode image files that are not kept.
    progress : bool, optional
        Show a progress line on the standard error stream, where that is a terminal.
    origin : mapping, optional
        Where the data come from, for the manifest.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    TrainingError
        The loss is not finite, or a checkpoint cannot be written. The last checkpoint is intact.
    StoppedBySignal
        SIGTERM or SIGINT asked for an end. The state is saved.

    Examples
    --------
    >>> import tempfile
    >>> from bures.data import optdigits
    >>> from bures.training import Recipe, adapt
    >>> digits = optdigits()
    >>> recipe = Recipe(method="ckb", network="lenet", epochs=4, batch_size=64, hidden=64, features=32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = adapt(digits.take(range(0, 400)), digits.take(range(400, 800)), recipe, folder + "/run")
    >>> 0 <= run.accuracy <= 1
    True
    """
    folder = RunFolder(output)
    with _quiet():
        setting = _prepare(source, target, evaluation, recipe, partial, in_memory, n_workers, progress)
        _check_devices(setting, devices, strategy, sync_batchnorm)
        # Of several processes one writes the run folder.
        leads = devices == 1 or rank_zero_only.rank == 0  # type: ignore[attr-defined]
        state = _start(folder, setting, resume, origin, leads) if leads or resume else None
        if state == "finished":
            return Run(folder.path, folder.read_manifest())
        session = _Session(folder, setting, checkpoint_every, state if isinstance(state, dict) else None, progress)
        trainer_options = {
            "accelerator": accelerator,
            "devices": devices,
            "strategy": _strategy(setting.method, devices, strategy),
            "sync_batchnorm": sync_batchnorm,
        }
        try:
            session.fit(trainer_options)
            if leads:
                session.finish()
        except StoppedBySignal as stop:
            session.note_end("stopped", stop)
            raise
        except TrainingError as error:
            if leads:
                session.note_end("failed", error)
            raise
        except OSError as error:
            failure = TrainingError(f"the run cannot go on ({error}); {session.kept}. Mend this and resume the run")
            if leads:
                session.note_end("failed", failure)
            raise failure from error
        if world_size() > 1:
            torch.distributed.barrier()  # the others read what the first has written
        return Run(folder.path, folder.read_manifest())


@dataclass
class _Setting:
    """What a run works on, ready for training."""

    recipe: Recipe
    spec: NetworkSpec
    network: Network
    inputs: Inputs
    method: Method
    source: Domain
    target: Domain
    evaluator: Evaluator
    data: PairData
    checksums: dict[str, str]

    @property
    def batchnorm(self) -> str:
        if self.method.adapts_batchnorm:
            return "target"
        if self.recipe.evaluation_batchnorm != "auto":
            return self.recipe.evaluation_batchnorm
        return "target" if self.method.needs_target and not self.recipe.joint_forward else "training"

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What decides the training: a checkpoint fits where all of it is the same."""
        return _fingerprint(self.recipe.to_dict(), self.checksums)


def _fingerprint(recipe: Mapping[str, Any], checksums: Mapping[str, str]) -> dict[str, Any]:
    options = {f"options.{name}": value for name, value in recipe["options"].items()}
    plain = {name: value for name, value in recipe.items() if name not in ("options", "weights")}
    return {**plain, **options, **{f"data.{side}": value for side, value in checksums.items()}}


def _prepare(
    source: Domain,
    target: Domain,
    evaluation: Domain | None,
    recipe: Recipe,
    partial: bool,
    in_memory: bool | None,
    n_workers: int | None,
    progress: bool,
) -> _Setting:
    if source.labels is None:
        raise ValueError(f"source {source.name!r} is unlabelled; training needs its labels")
    method = recipe.build_method()
    target = align_classes(source, target, partial=partial)
    evaluation = target if evaluation is None else align_classes(source, evaluation, partial=True)
    if method.trains_on_target:
        if target.labels is None:
            raise ValueError(f"method={recipe.method!r} trains on target labels, but {target.name!r} has none")
        source = target
    spec, network, inputs = assemble(recipe, source.n_classes, source.samples.shape, target.samples.shape)
    same = evaluation is target
    with torch.random.fork_rng(devices=[]):  # a method's weights depend on the seed of the recipe alone
        torch.default_generator.manual_seed(derive_seed(recipe.seed, "method"))
        method.setup(int(getattr(network.head, "out_features", 0)), source.n_classes)
    source, target = (_stored(domain, spec, in_memory, progress) for domain in (source, target))
    evaluation = target if same else _stored(evaluation, spec, in_memory, progress)
    hidden: HiddenLabels | None = None
    if evaluation.labels is not None:
        evaluation, hidden = evaluation.hide_labels()
    masked = target.hide_labels()[0] if target.labels is not None else target
    evaluator = Evaluator(evaluation, hidden, masked, inputs, n_workers=n_workers or 0)
    data = PairData(source, masked, recipe, n_workers)
    checksums = {"source": checksum(source), "target": checksum(masked), "evaluation": checksum(evaluation)}
    return _Setting(recipe, spec, network, inputs, method, source, masked, evaluator, data, checksums)


def _stored(domain: Domain, spec: NetworkSpec, in_memory: bool | None, progress: bool) -> Domain:
    """The domain with samples of the size that the network asks for, in memory where they fit."""
    samples = fit_samples(domain.samples, spec)
    if isinstance(samples, ImageFiles):
        keep = fits_in_memory(samples) if in_memory is None else in_memory
        samples = samples.in_memory() if keep else samples
    return replace(domain, samples=samples)


def _start(
    folder: RunFolder, setting: _Setting, resume: bool, origin: Mapping[str, Any] | None, leads: bool
) -> dict[str, Any] | str | None:
    """Begin a run folder or open one: the state of its checkpoint, None without one, or "finished"."""
    if resume:
        manifest = folder.read_manifest()
        if manifest["status"] == "finished":
            return "finished"
        state = None
        if folder.checkpoint.is_file():
            state = load_checkpoint(folder.checkpoint, setting.fingerprint)
        else:
            there = {side: manifest["data"][side]["checksum"] for side in setting.checksums}
            compare(folder.manifest, _fingerprint(manifest["recipe"], there), setting.fingerprint)
        if leads:
            folder.remove_partial_files()
            manifest.pop("schema")
            folder.write_manifest(manifest | {"status": "running", "reason": None})
            if not folder.recipe.is_file():
                setting.recipe.save(folder.recipe)
        return state
    folder.create()
    folder.write_manifest(
        {
            "status": "running",
            "command": command_line(),
            "recipe": setting.recipe.to_dict(),
            "seed": setting.recipe.seed,
            "trains_on_target_labels": setting.method.trains_on_target,  # the upper bound is marked as such
            "network": setting.spec.to_dict(),
            "data": {
                "source": _described(setting.source, setting.checksums["source"]),
                "target": _described(setting.target, setting.checksums["target"]),
                "evaluation": _described(setting.evaluator.domain, setting.checksums["evaluation"]),
                "origin": dict(origin or {}),
            },
            "versions": versions(),
        }
    )
    setting.recipe.save(folder.recipe)  # after the manifest, which makes the folder a run that can be resumed
    return None


def _described(domain: Domain, digest: str) -> dict[str, Any]:
    counts = None if domain.labels is None else domain.counts().tolist()
    return {"name": domain.name, "samples": len(domain), "counts": counts, "checksum": digest}


class _Session:
    """One process' work on a run: from its start or its checkpoint to its end."""

    def __init__(
        self, folder: RunFolder, setting: _Setting, every: float, state: dict[str, Any] | None, progress: bool
    ) -> None:
        self.folder, self.setting, self.state = folder, setting, state
        n_steps = setting.recipe.epochs * setting.data.steps_per_epoch
        self.module = AdaptationModule(
            setting.network, setting.method, setting.inputs, setting.recipe, setting.data.steps_per_epoch, n_steps
        )
        self.recorder = EpochRecorder(setting.evaluator, folder, setting.batchnorm, _source_classes(setting.source))
        self.checkpointer = Checkpointer(folder, self.recorder, setting.fingerprint, every, state)
        self.console = Console(stderr=True)
        self.progress = progress and self.console.is_terminal
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
            return
        callbacks: list[L.Callback] = [_Placement(self), self.recorder, self.checkpointer, _NextEpoch()]
        if self.progress:
            title = f"{self.setting.source.name} → {self.setting.target.name}, {self.setting.recipe.method}"
            callbacks.append(RichProgress(self.recorder, title, self.console))
        trainer = L.Trainer(
            **options,
            max_epochs=self.setting.recipe.epochs - first // length,
            precision=self.setting.recipe.precision,  # type: ignore[arg-type]
            gradient_clip_val=self.setting.recipe.gradient_clip,
            callbacks=callbacks,
            logger=TensorBoardLogger(self.folder.path, name="tensorboard", version="", purge_step=first),
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

    @property
    def kept(self) -> str:
        """Which checkpoint there is, in words."""
        step = self.checkpointer.saved_step
        if step is None:
            return "no checkpoint was written yet"
        return f"the last good checkpoint is that of step {step}, {self.folder.checkpoint}"

    def finish(self) -> None:
        """Evaluate the last network, and write what came of the run."""
        setting, network = self.setting, self.module.network.to(self.device)  # Lightning has moved it to the host
        evaluator, last = setting.evaluator, setting.batchnorm
        policies = ("training", "target") if adaptable_layers(network) else ("training",)
        evaluations = {policy: evaluator.evaluate(network, policy) for policy in policies}
        final = evaluations.get(last, evaluations["training"])
        folder, names = self.folder, setting.source.class_names
        save_model(folder.model, evaluator.adapted(network, last), setting.spec, names)
        folder.write_predictions(evaluator.domain, final.predictions.probabilities)
        if (confusion := evaluator.confusion(final.predictions)) is not None:
            folder.write_confusion(confusion, names)
        best = self.recorder.best
        assert best is not None
        network.load_state_dict(best["network"])
        save_model(folder.best_model, evaluator.adapted(network, last), setting.spec, names)
        outcome = {
            "accuracy": final.accuracy,
            "score": final.score,
            "effective_classes": final.effective_classes,
            "batchnorm": last,
            "accuracy_by_batchnorm": {policy: part.accuracy for policy, part in evaluations.items()},
            "best": {name: value for name, value in best.items() if name != "network"},
            "seconds": self.recorder.rows[-1]["seconds"],
        }
        self.write_status("finished", None, outcome)

    def note_end(self, status: str, reason: Exception) -> None:
        """Bring the manifest up to date where that is possible: on a full disk it is not, and the reason matters."""
        with suppress(OSError):
            self.write_status(status, str(reason))

    def write_status(self, status: str, reason: str | None, outcome: dict[str, Any] | None = None) -> None:
        """Bring the manifest up to date."""
        content = self.folder.read_manifest()
        content |= {"status": status, "reason": reason, "hardware": self.hardware, "notes": self.recorder.notes}
        content |= {"epochs": self.recorder.rows, "final": outcome}
        content.pop("schema")
        self.folder.write_manifest(content)


class _Placement(L.Callback):
    """Brings samples and network into the layout that the device likes."""

    def __init__(self, session: _Session) -> None:
        self.session = session

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        device = trainer.strategy.root_device
        self.session.device, self.session.hardware = device, hardware(device)
        setting = self.session.setting
        setting.data.move(device)
        setting.evaluator.move(device)
        if device.type == "cuda" and setting.spec.image_size is not None and setting.spec.name != "lenet":
            setting.network.to(memory_format=torch.channels_last)


class _NextEpoch(L.Callback):
    """Tells the data where the next epoch begins, after the others have looked at the last."""

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        trainer.datamodule.first_step = pl_module.steps_done  # type: ignore[attr-defined]


def _source_classes(source: Domain) -> float:
    frequencies = source.counts().double() / len(source)
    return float(torch.special.entr(frequencies).sum().exp())


def _check_devices(setting: _Setting, devices: int, strategy: str, sync_batchnorm: bool) -> None:
    if devices <= 1:
        return
    if any(name in strategy for name in ("spawn", "fork", "notebook")):
        raise ValueError(
            f"strategy={strategy!r} trains in processes that do not give back the state of a run; accepted is 'ddp'"
        )
    if setting.recipe.batch_size < 2 * devices:
        raise ValueError(
            f"batch_size={setting.recipe.batch_size} is too small for {devices} devices; it is that of all of them "
            f"together: accepted is {2 * devices} or more"
        )
    if adaptable_layers(setting.network) and not sync_batchnorm:
        warnings.warn(
            f"BatchNorm sees {setting.recipe.batch_size // devices} samples of a device at a time, not the batch of "
            "all; on GPUs sync_batchnorm=True (--sync-batchnorm) lets it see all",
            UserWarning,
            stacklevel=3,
        )


def _strategy(method: Method, devices: int, strategy: str) -> str:
    """The strategy, told that a method's own parameters have no gradient while its terms do not count yet."""
    if devices > 1 and strategy in ("auto", "ddp") and any(True for _ in method.parameters()):
        return "ddp_find_unused_parameters_true"
    return strategy


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's announcements and its advice on data loaders from the user; errors and our warnings pass."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            warnings.filterwarnings("ignore", message=".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
