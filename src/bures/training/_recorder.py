"""The end of an epoch: evaluate, write the log, notice a collapse, remember the best by a label-free score."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger

from bures.networks import Network
from bures.training._errors import CollapseWarning
from bures.training._evaluation import Evaluation, Evaluator, predicted_frequencies
from bures.training._module import AdaptationModule
from bures.training._run_folder import RunFolder

__all__ = ["EpochRecorder"]

COLLAPSED = 0.25  # share of the source's effective classes, less one, below which predictions count as collapsed
SETTLED = 50  # steps after which BatchNorm's running statistics are those of the data


class EpochRecorder(L.Callback):
    """Evaluates at the end of every epoch and writes the log.

    Parameters
    ----------
    evaluator : Evaluator
        Holds the target's labels; training reads nothing of it.
    folder : RunFolder or None
        Where the log goes; None writes none.
    batchnorm : {"training", "target"}
        BatchNorm statistics at evaluation.
    source_classes : float
        Effective number of classes of the source's labels.
    logged : sequence of str, optional
        Validators whose scores go into the log.
    on_epoch : callable, optional
        Called with the row of each epoch once it is written.
    keep_best : bool, optional
        Keep the weights of the best epoch, too.

    Attributes
    ----------
    last : Evaluation or None
        That of the last epoch, where this process has seen it, or of what became of the network behind it.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        folder: RunFolder | None,
        batchnorm: str,
        source_classes: float,
        logged: Sequence[str] = (),
        on_epoch: Callable[[Mapping[str, Any]], None] | None = None,
        *,
        keep_best: bool = True,
    ) -> None:
        self.evaluator, self.folder, self.batchnorm = evaluator, folder, batchnorm
        self.source_classes = source_classes
        self.logged, self.on_epoch, self.keep_best = logged, on_epoch, keep_best
        self.last: Evaluation | None = None
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.best: dict[str, Any] | None = None
        self._seconds = 0.0
        self._since = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self._since = time.perf_counter()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate and write the row of the epoch."""
        assert isinstance(pl_module, AdaptationModule)
        pl_module.check_finite()
        means, weights = pl_module.record.means(), pl_module.record.weights
        pl_module.record.reset()
        evaluation = self.last = self.evaluator.evaluate(pl_module.network, self.batchnorm)
        epoch = pl_module.steps_done // pl_module.steps_per_epoch
        row: dict[str, Any] = {"epoch": epoch, "step": pl_module.steps_done, **means}
        row |= {f"weight_{name}": weight for name, weight in weights.items()}  # those of the epoch's last step
        row |= {"target_accuracy": evaluation.accuracy} if evaluation.accuracy is not None else {}
        row |= {"target_score": evaluation.score, "target_effective_classes": evaluation.effective_classes}
        row |= {f"score_{name}": evaluation.scores[name] for name in self.logged}
        row |= {"lr": trainer.optimizers[0].param_groups[-1]["lr"], "seconds": round(self._elapsed(), 3)}
        self.rows.append(row)
        self._remember_best(pl_module.network, evaluation, epoch)
        if trainer.is_global_zero:
            # A network that has not learnt the source yet has nothing that could collapse, and in the first steps the
            # running statistics of BatchNorm still remember where they started.
            learnt = means["source_accuracy"] >= 0.5 and pl_module.steps_done >= SETTLED
            if learnt or pl_module.steps_done >= pl_module.n_steps:
                self._notice_collapse(evaluation, epoch, aligned=pl_module.method.needs_target)
            if self.folder is not None:
                self.folder.write_log(self.rows)
            if isinstance(trainer.logger, TensorBoardLogger):
                numbers = {name: value for name, value in row.items() if name not in ("epoch", "step")}
                trainer.logger.log_metrics(numbers, pl_module.steps_done)
            if self.on_epoch is not None:
                self.on_epoch(row)

    def look_again(self, network: Network, *, aligned: bool) -> None:
        """Evaluate a network that was trained on since its last epoch, whose row stays as it is."""
        epoch = self.rows[-1]["epoch"]
        self.last = self.evaluator.evaluate(network, self.batchnorm)
        self._remember_best(network, self.last, epoch)
        self._notice_collapse(self.last, epoch, aligned=aligned)

    def _elapsed(self) -> float:
        """Seconds of training up to now, without those between a stop and a resumption."""
        now = time.perf_counter()
        self._seconds, self._since = self._seconds + now - self._since, now
        return self._seconds

    def _remember_best(self, network: Network, evaluation: Evaluation, epoch: int) -> None:
        # An epoch without a score (NaN) is kept only as long as there is none with one.
        if self.best is not None and not math.isnan(self.best["score"]) and not evaluation.score > self.best["score"]:
            return
        self.best = {"epoch": epoch, "score": evaluation.score, "accuracy": evaluation.accuracy}
        if self.keep_best:
            state = network.state_dict()
            self.best["network"] = {name: value.detach().cpu().clone() for name, value in state.items()}

    def _notice_collapse(self, evaluation: Evaluation, epoch: int, *, aligned: bool) -> None:
        if self.notes or evaluation.effective_classes - 1 >= COLLAPSED * (self.source_classes - 1):
            return
        frequencies = predicted_frequencies(evaluation.predictions.probabilities)
        share, label = float(frequencies.max()), int(frequencies.argmax())
        name = self.evaluator.domain.class_names[label]
        remedy = (
            "a smaller weight of the alignment, a later start or a ramp may help"
            if aligned
            else "target statistics for BatchNorm (source+adabn) or an adapting method may help"
        )
        note = (
            f"predictions collapsed in epoch {epoch}: {100 * share:.0f} % of the target is taken for class {name!r}, "
            f"all of it for {evaluation.effective_classes:.1f} effective classes where the source has "
            f"{self.source_classes:.1f}; {remedy}"
        )
        self.notes.append(note)
        warnings.warn(note, CollapseWarning, stacklevel=2)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"rows": self.rows, "notes": self.notes, "best": self.best, "seconds": self._elapsed()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.rows, self.notes, self.best = state_dict["rows"], state_dict["notes"], state_dict["best"]
        self._seconds = state_dict["seconds"]
