"""A trained network in one safetensors file: its weights, and in the header all that is needed to use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from bures.data import Domain
from bures.files import atomic_file
from bures.networks import Network
from bures.training._assembly import NetworkSpec, fit_samples
from bures.training._inputs import Inputs
from bures.training._prediction import Predictions, predict_samples

__all__ = ["SavedModel", "load_model", "save_model"]

SCHEMA = 1
MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class SavedModel:
    """A trained network, the names of its classes, and what is done to its inputs.

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

    def predict(self, domain: Domain, *, batch_size: int = 512, n_workers: int = 0) -> Predictions:
        """Features and class probabilities of all samples of a domain."""
        try:
            samples = fit_samples(domain.samples, self.spec)
        except ValueError as error:
            raise ValueError(f"{domain.name!r} does not fit the model: {error}") from error
        return predict_samples(self.network, samples, self.inputs, batch_size=batch_size, n_workers=n_workers)

    def to(self, device: str | torch.device) -> SavedModel:
        """The same model, its network moved to a device."""
        self.network.to(device)
        return self


def save_model(path: str | Path, network: Network, spec: NetworkSpec, class_names: Sequence[str]) -> Path:
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

    Returns
    -------
    Path
        The file.
    """
    description = {"schema": SCHEMA, "network": spec.to_dict(), "class_names": list(class_names)}
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with atomic_file(path) as stream:
        stream.write(save(tensors, metadata={"bures": json.dumps(description)}))
    return Path(path)


def load_model(path: str | Path) -> SavedModel:
    """Read a model from its file, or from the run folder that holds it.

    Parameters
    ----------
    path : path
        A file of `save_model`, or a run folder.

    Returns
    -------
    SavedModel
        In evaluation mode, in the memory of the host.
    """
    path = Path(path)
    if path.is_dir():
        path = path / MODEL_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; accepted are a run folder that is finished and a model file")
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {}).get("bures", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is truncated or no safetensors file: {error}") from error
    if not isinstance(description, dict) or description.get("schema") != SCHEMA:
        raise ValueError(f"{path} was not written by this version of bures: it lacks the description of the network")
    spec = NetworkSpec(**description["network"])
    network, inputs = spec.build()
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit the network that it describes: {error}") from error
    network.eval()
    return SavedModel(network, spec, tuple(description["class_names"]), inputs)
