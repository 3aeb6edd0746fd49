"""A callback for any Lightning module that watches the shift between two domains while it trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bures.arrays import check_count, describe
from bures.integrations._shift_reading import ShiftReading, read_shift
from bures.networks._modes import evaluation_mode

try:
    import lightning as L
except ImportError as error:
    raise ImportError("bures.integrations.lightning needs Lightning: pip install lightning") from error

__all__ = ["ShiftMonitor", "ShiftReading", "read_shift"]


def second_item(batch: Any) -> Any:
    """The labels of a batch ``(samples, labels, ...)``."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise TypeError(
            f"a source batch is a {describe(batch)}; accepted is (samples, labels, ...), or pass source_labels, a "
            "function from a batch to its labels"
        )
    return batch[1]


class ShiftMonitor(L.Callback):
    """Callback that logs how far two domains are apart for the module that is being trained.

    Parameters
    ----------
    outputs : callable
        ``outputs(module, batch)`` gives features (n, d) and logits (n, K) of a batch, which lies on the device of the
        module. The module is in evaluation mode, and no gradient is recorded.
    source, target : iterable of batches
        Such as a ``DataLoader``, read anew at every look: source batches with labels, target batches with or without.
        At best source samples that are not trained on, and loaders that shuffle, for only the first are looked at.
    source_labels : callable, optional
        ``source_labels(batch)`` gives the classes (n,), integers from 0 to K - 1. None takes ``batch[1]``.
    target_labels : callable, optional
        The same for target batches, where labels exist. None: there are none.
    every : int, optional
        Look after every so many epochs.
    max_samples : int, optional
        Samples of each domain that are looked at; reading stops there.
    class_names : sequence of str, optional
        Also log the estimated frequency of each class in the target, as ``PREFIXprior/NAME``.
    eps : float or "auto", optional
        As in `bures.ckb`.
    prefix : str, optional
        Begin of the names in the log.

    Attributes
    ----------
    history : list of dict
        What was logged, with ``"epoch"``. It is kept in checkpoints.

    Notes
    -----
    Logged are the fields of `ShiftReading`: ``shift/ckb``, ``shift/label_shift``, ``shift/source_accuracy``,
    ``shift/target_accuracy_estimate`` and, with `target_labels`, ``shift/target_accuracy``. The training does not
    notice: modes, BatchNorm statistics and torch's random numbers are as before. Of several processes the first looks;
    strategies that shard a model over processes cannot be watched. Features that are not finite give a warning and
    NaN, and the training goes on.

    Examples
    --------
    >>> import torch, lightning as L
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from bures.integrations.lightning import ShiftMonitor
    >>> class Classifier(L.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.body, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
    ...
    ...     def training_step(self, batch, batch_idx):
    ...         return torch.nn.functional.cross_entropy(self.head(self.body(batch[0]).relu()), batch[1])
    ...
    ...     def configure_optimizers(self):
    ...         return torch.optim.Adam(self.parameters())
    >>> def outputs(module, batch):
    ...     z = module.body(batch[0]).relu()
    ...     return z, module.head(z)
    >>> source = DataLoader(TensorDataset(torch.randn(64, 4), torch.arange(64) % 2), batch_size=16)
    >>> target = DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=16)
    >>> monitor = ShiftMonitor(outputs, source, target)
    >>> trainer = L.Trainer(
    ...     max_epochs=2,
    ...     accelerator="cpu",
    ...     callbacks=[monitor],
    ...     logger=False,
    ...     enable_checkpointing=False,
    ...     enable_progress_bar=False,
    ...     enable_model_summary=False,
    ...     log_every_n_steps=1,
    ... )
    >>> trainer.fit(Classifier(), source)
    >>> sorted(monitor.history[-1])
    ['epoch', 'shift/ckb', 'shift/label_shift', 'shift/source_accuracy', 'shift/target_accuracy_estimate']
    """

    def __init__(
        self,
        outputs: Callable[[Any, Any], tuple[Tensor, Tensor]],
        source: Iterable[Any],
        target: Iterable[Any],
        *,
        source_labels: Callable[[Any], Any] | None = None,
        target_labels: Callable[[Any], Any] | None = None,
        every: int = 1,
        max_samples: int = 512,
        class_names: Sequence[str] | None = None,
        eps: str | float = 1e-2,
        prefix: str = "shift/",
    ) -> None:
        for name, function in (
            ("outputs", outputs),
            ("source_labels", source_labels),
            ("target_labels", target_labels),
        ):
            if not callable(function) and (function is not None or name == "outputs"):
                raise TypeError(f"{name} is a {describe(function)}; accepted is a function")
        for name, loader in (("source", source), ("target", target)):
            if not isinstance(loader, Iterable) or isinstance(loader, Iterator):
                raise TypeError(f"{name} is a {describe(loader)}; accepted are batches that can be read again and "
                                "again, such as a DataLoader or a list")  # fmt: skip
        self.outputs, self.source, self.target = outputs, source, target
        self.source_labels, self.target_labels = source_labels or second_item, target_labels
        self.every, self.max_samples = check_count("every", every), check_count("max_samples", max_samples)
        self.class_names = None if class_names is None else tuple(map(str, class_names))
        self.eps, self.prefix = eps, prefix
        self.history: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look at both domains after every few epochs, and log what is seen."""
        if (trainer.current_epoch + 1) % self.every:
            return
        found: dict[str, float] = {}
        if trainer.is_global_zero:
            plugin, strategy = trainer.precision_plugin, trainer.strategy
            with plugin.forward_context():
                found = self.look(pl_module, lambda batch: strategy.batch_to_device(plugin.convert_input(batch)))
        found = trainer.strategy.broadcast(found)
        values = {f"{self.prefix}{name}": value for name, value in found.items()}
        self.history.append({"epoch": trainer.current_epoch, **values})
        # The same in every process; their mean, which Lightning asks for, changes nothing.
        several = trainer.world_size > 1
        pl_module.log_dict(values, on_step=False, on_epoch=True, batch_size=1, sync_dist=several)

    def look(self, module: Any, to_device: Callable[[Any], Any] | None = None) -> dict[str, float]:
        """What would be logged for a module, by name and without the prefix; outside a trainer too.

        Parameters
        ----------
        module : nn.Module
            What `outputs` takes.
        to_device : callable, optional
            Moves a batch to the device of the module, and to its dtype where this is not that of the data. None leaves
            it where it is.

        Returns
        -------
        dict of str to float
        """
        devices = list(range(torch.cuda.device_count()))
        # A loader that shuffles draws random numbers; the training must not miss them.
        with torch.no_grad(), torch.random.fork_rng(devices=devices), evaluation_mode(module):
            z_s, logits_s, y_s = self._read("source", module, to_device, self.source_labels)
            z_t, logits_t, y_t = self._read("target", module, to_device, self.target_labels)
        assert y_s is not None
        if logits_s.shape[1] != logits_t.shape[1] or z_s.shape[1] != z_t.shape[1]:
            raise ValueError(
                f"outputs gave features and logits of {z_s.shape[1]} and {logits_s.shape[1]} columns for the source, "
                f"{z_t.shape[1]} and {logits_t.shape[1]} for the target; accepted are the same for both"
            )
        k = logits_s.shape[1]
        if self.class_names is not None and len(self.class_names) != k:
            raise ValueError(f"class_names has {len(self.class_names)} names but outputs gives logits of {k} classes")
        if not all(bool(part.isfinite().all()) for part in (z_s, logits_s, z_t, logits_t)):
            warnings.warn("the features or logits of the module are not finite; the shift cannot be read", stacklevel=2)
            nan = float("nan")
            reading = ShiftReading(nan, nan, nan, nan, None if y_t is None else nan, np.full(k, nan))
        else:
            with torch.autocast("cpu", enabled=False):  # of a trainer in half precision
                reading = read_shift(z_s, logits_s, y_s, z_t, logits_t, y_t, eps=self.eps)
        values = {name: value for name, value in reading._asdict().items() if name != "priors" and value is not None}
        for name, share in zip(self.class_names or (), reading.priors, strict=False):
            values[f"prior/{name}"] = float(share)
        return values

    def _read(
        self, side: str, module: Any, to_device: Callable[[Any], Any] | None, labels: Callable[[Any], Any] | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features, logits and, where there are any, labels of the first samples of a domain."""
        features: list[Tensor] = []
        logits: list[Tensor] = []
        classes: list[Tensor] = []
        seen = 0
        for batch in getattr(self, side):
            placed = batch if to_device is None else to_device(batch)
            z, scores = _read_outputs(side, self.outputs(module, placed))
            features.append(z)
            logits.append(scores)
            if labels is not None:
                classes.append(_read_classes(side, labels(placed), scores))
            seen += len(z)
            if seen >= self.max_samples:
                break
        if seen < 2:
            raise ValueError(f"{side} gave {seen} samples; a shift needs two of each domain at least")
        parts = (torch.cat(part)[: self.max_samples] for part in (features, logits))
        return *parts, torch.cat(classes)[: self.max_samples] if classes else None  # type: ignore[return-value]

    def state_dict(self) -> dict[str, Any]:
        """The history, for a checkpoint."""
        return {"history": list(self.history)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the history of a checkpoint."""
        self.history = list(state_dict["history"])

    @property
    def state_key(self) -> str:
        """Several monitors of one trainer are told apart by their prefixes."""
        return self._generate_state_key(prefix=self.prefix)


def _read_outputs(side: str, found: Any) -> tuple[Tensor, Tensor]:
    pair = isinstance(found, (tuple, list)) and len(found) == 2 and all(isinstance(part, Tensor) for part in found)
    if not pair or found[0].ndim < 2 or found[1].ndim != 2 or len(found[0]) != len(found[1]):
        shapes = [tuple(part.shape) for part in found] if pair else describe(found)
        raise ValueError(
            f"outputs gave {shapes} for a {side} batch; accepted are two tensors, features (n, d) and logits (n, K)"
        )
    return found[0].detach().flatten(1).float().cpu(), found[1].detach().float().cpu()


def _read_classes(side: str, labels: Any, logits: Tensor) -> Tensor:
    n, k = logits.shape
    y = torch.as_tensor(labels, device="cpu")
    if y.shape != (n,) or y.is_floating_point() or y.is_complex():
        raise ValueError(f"{side}_labels gave a {describe(labels)} for {n} samples; accepted are integers ({n},)")
    if len(y) and (int(y.min()) < 0 or int(y.max()) >= k):
        raise ValueError(
            f"{side}_labels gave classes from {int(y.min())} to {int(y.max())} but the logits have {k} columns; "
            f"accepted are 0 to {k - 1}"
        )
    return y.long()
