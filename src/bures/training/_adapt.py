"""From a labelled source and an unlabelled target to a trained network in a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only

from bures.arrays import check_flags, check_not_negative
from bures.data import Domain
from bures.devices import usual_defaults
from bures.provenance import command_line, versions
from bures.training._checkpoint import compare, load_checkpoint
from bures.training._devices import check_devices, check_trainer, strategy_for
from bures.training._errors import StoppedBySignal, StopTraining, TrainingError
from bures.training._gather import world_size
from bures.training._head_training import head_recipes, train_head
from bures.training._memory import is_out_of_memory, memory_advice
from bures.training._quiet import quiet
from bures.training._recipe import Recipe
from bures.training._run_folder import RunFolder, checksum
from bures.training._saved_model import SavedModel, load_model
from bures.training._session import Session
from bures.training._setting import Setting, fingerprint_of, prepare

__all__ = ["Run", "adapt"]


@dataclass(frozen=True)
class Run:
    """A finished run.

    Parameters
    ----------
    path : Path
        The run folder.
    manifest : dict
        What was run and with which outcome.
    """

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


@usual_defaults()
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
    checkpoint_every: float | None = 60.0,
    in_memory: bool | None = None,
    n_workers: int | None = None,
    progress: bool = False,
    origin: Mapping[str, Any] | None = None,
    on_epoch: Callable[[Mapping[str, Any]], None] | None = None,
    keep_files: bool = True,
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
        Seconds between checkpoints; 0 saves after every step, None never.
    in_memory : bool, optional
        Decode image files once and keep them. None does so up to 4 GiB for a domain.
    n_workers : int, optional
        Processes that decode image files that are not kept. None: some for training, see `PairData`, and threads of
        this process for evaluation.
    progress : bool, optional
        Show a progress line on the standard error stream, where that is a terminal.
    origin : mapping, optional
        Where the data come from, for the manifest.
    on_epoch : callable, optional
        Called with the row of the log after each epoch; it may end the run by raising `StopTraining`. On one device
        only, because the others would wait for ever.
    keep_files : bool, optional
        Whether the run folder keeps more than recipe and manifest. Without it no model, predictions, log or samples for
        a report are written, and a checkpoint goes away when the run is finished: for grids that keep the manifest
        alone.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    TrainingError
        The loss is not finite, memory ran out, or a file cannot be written. The last checkpoint is intact.
    RunInUseError
        Another process works on this run.
    StoppedBySignal
        SIGTERM or SIGINT asked for an end. The state is saved.
    StopTraining
        Raised by ``on_epoch``.

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
    check_flags(partial=partial, resume=resume, sync_batchnorm=sync_batchnorm, progress=progress, keep_files=keep_files)
    folder = RunFolder(output)
    if on_epoch is not None and devices > 1:
        raise ValueError(f"on_epoch is called in one process of devices={devices}; accepted is devices=1 with it")
    if checkpoint_every is not None:
        check_not_negative("checkpoint_every", checkpoint_every)
    with quiet():
        setting = prepare(source, target, evaluation, recipe, partial=partial, in_memory=in_memory, n_workers=n_workers)
        check_devices(setting, devices, strategy, sync_batchnorm)
        trainer_options = {
            "accelerator": accelerator,
            "devices": devices,
            "strategy": strategy_for(setting.method, devices, strategy),
            "sync_batchnorm": sync_batchnorm,
        }
        check_trainer(trainer_options)
        manifest = folder.read_manifest() if resume else None
        setting.head_recipes = head_recipes(setting, manifest)
        # Of several processes one writes the run folder.
        leads = devices == 1 or rank_zero_only.rank == 0  # type: ignore[attr-defined]
        if manifest is not None and manifest["status"] == "finished":
            _check_same(folder, manifest, setting)
            return Run(folder.path, manifest)
        with folder.held() if leads else nullcontext():
            state = _start(folder, setting, resume, origin, leads) if leads or resume else None
            if state != "finished":
                begun = state if isinstance(state, dict) else None
                session = Session(
                    folder, setting, checkpoint_every, begun, progress, on_epoch, keep_files=keep_files, devices=devices
                )
                with session.signals:
                    _work(session, trainer_options, leads)
        if world_size() > 1:
            torch.distributed.barrier()  # the others read what the first has written
        return Run(folder.path, folder.read_manifest())


def _work(session: Session, trainer_options: dict[str, Any], leads: bool) -> None:
    """Train and write what came of it; whatever ends this before its time is noted in the manifest."""
    cause: BaseException | None
    try:
        heads = session.setting.head_recipes
        if "head_start" in heads and session.state is None:  # a checkpoint has the head, and more
            train_head(session, "head_start", trainer_options)
        session.fit(trainer_options)
        if leads:
            steps = session.module.n_steps
            session.signals.end_at_once(steps, saved=session.checkpointer.saved_step == steps)
            if "head_finish" in heads:
                train_head(session, "head_finish", trainer_options)
                session.evaluate_again()
            session.finish()
        return
    except (StoppedBySignal, StopTraining) as stop:
        session.note_end("stopped", stop)
        raise
    except (KeyboardInterrupt, SystemExit):  # Lightning makes the second of the first
        if leads:
            session.note_end("stopped", KeyboardInterrupt("stopped at once"))
        raise
    except TrainingError as error:
        cause, failure = error.__cause__, error
    except OSError as error:
        cause = error
        failure = TrainingError(f"the run cannot go on ({error}); {session.kept}. Mend this and resume the run")
    except Exception as error:
        if not is_out_of_memory(error):  # of a method, of an image, of on_epoch: it is what it is
            if leads:
                session.note_end("failed", error)
            raise
        cause = error
        failure = TrainingError(f"{memory_advice(session.setting.recipe, error)}; {session.kept}")
    if leads:
        session.note_end("failed", failure)
    raise failure from cause


def _check_same(folder: RunFolder, manifest: Mapping[str, Any], setting: Setting) -> None:
    """Raise where the run of a folder had another recipe or other data."""
    there = {side: manifest["data"][side]["checksum"] for side in setting.checksums}
    compare(folder.manifest, fingerprint_of(manifest["recipe"], there), setting.fingerprint)


def _start(
    folder: RunFolder, setting: Setting, resume: bool, origin: Mapping[str, Any] | None, leads: bool
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
            _check_same(folder, manifest, setting)
        if leads:
            folder.remove_partial_files()
            folder.make_room_for_checkpoints()
            steps = [*manifest.get("resumed", []), 0 if state is None else state["step"]]
            folder.write_manifest(manifest | {"status": "running", "reason": None, "resumed": steps})
            if not folder.recipe.is_file():
                setting.recipe.save(folder.recipe)
        return state
    folder.create()
    held = setting.evaluator.validation
    folder.write_manifest(
        {
            "status": "running",
            "command": command_line(),
            "recipe": setting.recipe.to_dict(),
            "seed": setting.recipe.seed,
            "trains_on_target_labels": setting.method.trains_on_target,  # the upper bound is marked as such
            "network": setting.spec.to_dict(),
            # By which recipes the head is trained by itself; how that went is added when it is over.
            **{
                field: {"name": getattr(setting.recipe, field), "recipe": recipe.to_dict()}
                for field, recipe in setting.head_recipes.items()
            },
            "data": {
                "source": _described(setting.source, setting.checksums["source"]),
                "target": _described(setting.target, setting.checksums["target"]),
                "evaluation": _described(setting.evaluator.domain, setting.checksums["evaluation"]),
                **({} if held is None else {"held_out": _described(held, checksum(held))}),
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
