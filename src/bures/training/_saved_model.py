"""A trained network in one safetensors file: its weights, and in the header all that is needed to use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from bures.arrays import check_flags
from bures.data import Domain
from bures.data._columns import with_columns
from bures.data._decoding import Progress
from bures.data._domain import composed
from bures.devices import usual_defaults
from bures.files import atomic_file
from bures.networks import Network
from bures.networks._weights import fit_weights
from bures.provenance import shell_command
from bures.training._assembly import NetworkSpec, fit_samples
from bures.training._inputs import Inputs
from bures.training._prediction import Predictions, predict_samples, usual_batch_size
from bures.training._run_folder import RunFolder
from bures.wording import reason_of

__all__ = ["SavedModel", "load_model", "model_file", "save_model"]

SCHEMA = 1


@dataclass(frozen=True)
class SavedModel:
    """A trained network, the names of its classes, and what is done to its inputs.

    Parameters
    ----------
    network : Network
        In evaluation mode.
    spec : NetworkSpec
        How it is built.
    class_names : tuple of str
        What its K outputs stand for.
    inputs : Inputs
        What is done to samples before the network sees them.
    feature_names : tuple of str, optional
        Names of the columns that it takes, where it was trained on tables that had some: columns of data are found by
        name.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bures.data import optdigits
    >>> from bures.training import Recipe, assemble, load_model, save_model
    >>> digits = optdigits()
    >>> spec, network, _ = assemble(Recipe(network="lenet"), 10, digits.samples.shape)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = load_model(save_model(pathlib.Path(folder, "model.safetensors"), network, spec, digits.class_names))
    >>> model.predict(digits).probabilities.shape
    torch.Size([1797, 10])
    """

    network: Network
    spec: NetworkSpec
    class_names: tuple[str, ...]
    inputs: Inputs
    feature_names: tuple[str, ...] | None = None

    @usual_defaults()
    def predict(
        self, domain: Domain, *, batch_size: int | None = None, n_workers: int = 0, progress: Progress | None = None
    ) -> Predictions:
        """Features and class probabilities of all samples of a domain, in its order; labels are not read.

        Parameters
        ----------
        domain : Domain
            Images of any size, or feature vectors as in training; columns that have names may be in any order. Colours
            are dropped where the network was trained on grey images.
        batch_size : int, optional
            Samples forwarded at once; None is 512, and fewer of large images.
        n_workers : int, optional
            Processes that decode image files.
        progress : callable, optional
            Called as ``progress(done, total)`` after each batch.

        Returns
        -------
        Predictions
            Column c of the probabilities is ``class_names[c]``.
        """
        samples = self.fit(domain).samples
        try:
            predictions = predict_samples(
                self.network, samples, self.inputs, batch_size=batch_size, n_workers=n_workers, progress=progress
            )
        except torch.cuda.OutOfMemoryError as error:
            raise ValueError(
                f"batch_size={batch_size or usual_batch_size(samples)} is too much for the memory of the GPU; accepted "
                "is a smaller number"
            ) from error
        unusable = (~predictions.probabilities.isfinite()).any(dim=1).nonzero().flatten().tolist()
        if unusable:
            raise ValueError(
                f"the network's output is not finite for {len(unusable)} of {len(domain)} samples of {domain.name!r} "
                f"(first: number {unusable[0]}, counted from 0); the samples are far from those of training, or the "
                "training went wrong"
            )
        return predictions

    def fit(self, domain: Domain) -> Domain:
        """The domain with samples as the network takes them; an error where that cannot be."""
        domain = with_columns(domain, self.feature_names, "the model", repr(domain.name))
        try:
            samples = fit_samples(domain.samples, self.spec)
        except ValueError as error:
            raise ValueError(f"{domain.name!r} does not fit the model: {error}") from error
        if self.inputs.preprocessing is not None:
            channels = sorted({1, 3, self.inputs.preprocessing.channels})
            if samples.shape[0] not in channels:
                raise ValueError(
                    f"{domain.name!r} does not fit the model: its images have {samples.shape[0]} channels; accepted "
                    f"are {', '.join(map(str, channels))}"
                )
        return replace(domain, samples=samples)

    def to(self, device: str | torch.device) -> SavedModel:
        """The same model, its network moved to a device."""
        self.network.to(device)
        return self


def save_model(
    path: str | Path,
    network: Network,
    spec: NetworkSpec,
    class_names: Sequence[str],
    feature_names: Sequence[str] | None = None,
) -> Path:
    """Write a network to a safetensors file, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    network : Network
        As ``spec`` builds it.
    spec : NetworkSpec
        How the network is built.
    class_names : sequence of str
        What its outputs stand for.
    feature_names : sequence of str, optional
        What the columns of its inputs are called, where they are feature vectors with names.

    Returns
    -------
    Path
        The file.
    """
    description: dict[str, object] = {"schema": SCHEMA, "network": spec.to_dict(), "class_names": list(class_names)}
    if feature_names is not None:
        description["feature_names"] = list(feature_names)
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with atomic_file(path) as stream:
        stream.write(save(tensors, metadata={"bures": json.dumps(description)}))
    return Path(path)


@usual_defaults()
def load_model(path: str | Path, *, best: bool = False) -> SavedModel:
    """Read a model from its file, or from the run folder that holds it.

    Parameters
    ----------
    path : path
        A file of `save_model`, or a run folder.
    best : bool, optional
        From a run folder, the network of the epoch with the best label-free score instead of the last.

    Returns
    -------
    SavedModel
        In evaluation mode, in the memory of the host.

    Examples
    --------
    >>> from bures.training import load_model
    >>> load_model("runs/none")
    Traceback (most recent call last):
    FileNotFoundError: runs/none does not exist; accepted are a run folder and a model file (.safetensors)
    """
    file = model_file(path, best=best)
    try:
        with safe_open(file, framework="pt") as content:
            description = json.loads((content.metadata() or {}).get("bures", "null"))
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{file} is truncated or no safetensors file, as a model of bures is: {reason_of(error)}"
        ) from error
    if not isinstance(description, dict) or description.get("schema") != SCHEMA:
        raise ValueError(
            f"{file} is no model that this version of bures wrote: the description of the network is not in it. "
            "Weights of a backbone go into training: bures adapt --weights"
        )
    try:
        spec = NetworkSpec(**description["network"])
        class_names = tuple(composed(str(name)) for name in description["class_names"])
        columns = description.get("feature_names")  # models that know of none do not have it
        feature_names = None if columns is None else tuple(map(str, columns))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file} was written by another version of bures: its description has {error}") from error
    if len(class_names) != spec.n_classes:
        raise ValueError(f"{file} is damaged: it names {len(class_names)} classes for {spec.n_classes} outputs")
    if feature_names is not None and len(feature_names) != spec.in_features:
        raise ValueError(f"{file} is damaged: it names {len(feature_names)} columns for {spec.in_features} inputs")
    try:
        network, inputs = spec.build()
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{file} is damaged: the network that it describes cannot be built: {error}") from error
    fit_weights(network, tensors, source=str(file))
    network.eval()
    return SavedModel(network, spec, class_names, inputs, feature_names)


def model_file(path: str | Path, *, best: bool = False) -> Path:
    """The file of a model, given itself or as a run folder; an error that says what is missing."""
    check_flags(best=best)
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; accepted are a run folder and a model file (.safetensors)")
        if best:
            raise ValueError(f"best=True (--best) chooses between the models of a run folder, but {path} is a file")
        return path
    folder = RunFolder(path)
    file = folder.best_model if best else folder.model
    if file.is_file():
        return file
    if not folder.exists():
        runs = sorted(entry.parent.name for entry in path.glob(f"*/{folder.manifest.name}"))
        several = f"; it holds several runs, choose one: {', '.join(str(path / name) for name in runs)}" if runs else ""
        raise FileNotFoundError(f"{path} is no run folder: {file.name} and {folder.manifest.name} are missing{several}")
    status = folder.read_manifest().get("status")
    remedy = "it was removed"
    if status != "finished":
        remedy = f"finish the run first: {shell_command('adapt', '--resume', path)}"
    raise FileNotFoundError(f"{path} holds a run with the status {status!r} but no {file.name}; {remedy}")
