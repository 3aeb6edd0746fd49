"""A saved model as one ONNX file, preprocessing included, checked against torch before it is written."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

import bures
from bures.arrays import check_positive
from bures.data import TensorSamples
from bures.devices import usual_defaults
from bures.files import atomic_file, check_output
from bures.training._prediction import predict_samples
from bures.training._quiet import errors_alone
from bures.training._saved_model import SavedModel
from bures.wording import reason_of

if TYPE_CHECKING:
    import onnx

__all__ = ["OnnxExport", "export_onnx"]

OPSET = 18  # that of torch's own translations; later ones are converted from it
OUTPUTS = ("probabilities", "features")
LARGEST = 2**31 - 1  # bytes of a protocol buffer


class OnnxExport(NamedTuple):
    """A written ONNX file.

    Attributes
    ----------
    path : Path
        The file.
    input_name : str
        "images" or "vectors".
    input_shape : tuple of int
        Shape of one sample.
    difference : float
        Largest difference from torch that was found.
    """

    path: Path
    input_name: str
    input_shape: tuple[int, ...]
    difference: float


@usual_defaults()
def export_onnx(model: SavedModel, path: str | Path, *, tolerance: float = 1e-4, opset: int = OPSET) -> OnnxExport:
    """Write a model to one ONNX file, after its outputs were compared with torch's.

    Parameters
    ----------
    model : SavedModel
        It is left as it is.
    path : path
        The file. It appears whole, or not at all where the export fails or the outputs differ.
    tolerance : float, optional
        Largest difference from torch that is accepted: of probabilities, and of features relative to the largest of
        them where that is above one.
    opset : int, optional
        Version of ONNX's operators, at least 18.

    Returns
    -------
    OnnxExport
        The file, its input, and the largest difference that was found.

    Notes
    -----
    The graph of a network for images takes ``images``: uint8 (n, C, S, S) in RGB or grey, the whole picture warped to
    the square of side S that is stored in training. Window and normalisation are part of the graph. That of a network
    for features takes ``vectors``: float32 (n, d). n is free. The outputs are ``probabilities`` (n, K) and
    ``features`` (n, d'). The file's metadata hold ``class_names`` (JSON), ``input``, ``network`` and ``bures_version``,
    and ``feature_names`` (JSON) where the columns of the vectors have names.

    Needs the extra ``onnx`` and torch 2.6 or newer.

    Examples
    --------
    >>> from bures.training import export_onnx, load_model
    >>> export_onnx(load_model("runs/mnist-usps-ckb"), "model.onnx")  # doctest: +SKIP
    OnnxExport(path=PosixPath('model.onnx'), input_name='images', input_shape=(1, 28, 28), difference=1.2e-07)
    """
    _check_onnx()
    tolerance = check_positive("tolerance", tolerance)
    if opset < OPSET:
        raise ValueError(f"opset={opset} is out of range; accepted are {OPSET} and later versions of ONNX's operators")
    file = check_output(path)
    cpu = replace(model, network=copy.deepcopy(model.network).float().cpu().eval())
    graph = _translate(cpu, opset)
    content = graph.SerializeToString()
    difference = _largest_difference(cpu, content)
    if not difference <= tolerance:  # NaN is no small difference
        raise ValueError(
            f"the ONNX graph differs from torch by {difference:.1e}, more than tolerance={tolerance:g}; {file} was not "
            "written"
        )
    with atomic_file(file) as stream:
        stream.write(content)
    return OnnxExport(file, *_input(model), difference)


class _Deployed(nn.Module):
    """From stored samples to probabilities and features."""

    def __init__(self, model: SavedModel) -> None:
        super().__init__()
        self.network, self.inputs = model.network, model.inputs

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, logits = self.network(self.inputs.evaluation(x))
        return logits.softmax(dim=1), z


def _input(model: SavedModel) -> tuple[str, tuple[int, ...]]:
    """Name of the input and shape of one sample."""
    spec = model.spec
    if spec.stored_size is None:
        assert spec.in_features is not None
        return "vectors", (spec.in_features,)
    assert model.inputs.preprocessing is not None
    return "images", (model.inputs.preprocessing.channels, spec.stored_size, spec.stored_size)


def _translate(model: SavedModel, opset: int) -> onnx.ModelProto:
    import onnx

    name, _ = _input(model)
    n_bytes = sum(value.nbytes for value in model.network.state_dict().values())
    if n_bytes > LARGEST:
        raise ValueError(f"the weights take {n_bytes / 2**30:.1f} GiB; one ONNX file holds 2 GiB at most")
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                _Deployed(model).eval(),
                (_trials(model)[0],),
                input_names=[name],
                output_names=list(OUTPUTS),
                dynamic_shapes=({0: torch.export.Dim("n")},),
                opset_version=opset,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        reason = reason_of(error.__cause__ or error, 300)
        raise ValueError(f"network {model.spec.name!r} cannot be translated to ONNX: {reason}") from error
    assert program is not None
    graph = program.model_proto
    written = next(item.version for item in graph.opset_import if item.domain in ("", "ai.onnx"))
    if written != opset:  # the converter leaves a graph that it cannot convert as it was
        raise ValueError(
            f"opset={opset} is out of reach of torch {torch.__version__} for network {model.spec.name!r}; "
            f"{written} is accepted, and perhaps versions in between"
        )
    onnx.helper.set_model_props(graph, _description(model))
    onnx.checker.check_model(graph)
    return graph


def _description(model: SavedModel) -> dict[str, str]:
    """The metadata of the file, for those who have nothing but the file."""
    name, shape = _input(model)
    takes = f"float32 (n, {shape[0]})"
    if name == "images":
        colours = "RGB" if shape[0] == 3 else "grey" if shape[0] == 1 else f"{shape[0]} channels"
        takes = f"uint8 (n, {', '.join(map(str, shape))}), {colours}, each picture warped to the square (bilinear)"
    columns = {} if model.feature_names is None else {"feature_names": json.dumps(model.feature_names)}
    return {
        **columns,
        "class_names": json.dumps(model.class_names),
        "input": takes,
        "network": json.dumps(model.spec.to_dict()),
        "bures_version": bures.__version__,
    }


def _largest_difference(model: SavedModel, content: bytes) -> float:
    """The largest difference of the outputs of a graph from those of torch, over samples of several kinds."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    name, _ = _input(model)
    largest = torch.zeros(())
    for x in _trials(model):
        expected = predict_samples(model.network, TensorSamples(x), model.inputs)
        found = session.run(list(OUTPUTS), {name: x.numpy()})
        for ours, theirs in zip((expected.probabilities, expected.features), found, strict=True):
            scale = ours.abs().max().clamp(min=1)
            difference = (ours - torch.from_numpy(theirs)).abs().max() / scale
            largest = torch.maximum(largest, difference)  # passes NaN on
    return float(largest)


def _trials(model: SavedModel) -> list[Tensor]:
    """Batches of several sizes: noise, smooth pictures or large numbers, and extremes."""
    generator = torch.Generator().manual_seed(0)
    name, shape = _input(model)
    if name == "vectors":
        normal = torch.randn(8, *shape, generator=generator)
        return [normal[:3], 30 * normal[3:], torch.zeros(1, *shape)]
    noise = torch.rand(3, *shape, generator=generator)
    coarse = torch.rand(4, shape[0], 4, 4, generator=generator)
    smooth = nn.functional.interpolate(coarse, size=shape[1:], mode="bilinear")
    flat = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1).expand(2, *shape)
    batches = [noise, smooth, flat, smooth[:1]]
    return [(255 * batch).round().to(torch.uint8) for batch in batches]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the exporter says about itself from the user."""
    with errors_alone("torch.onnx", "torch.export", "onnxscript", "onnx_ir"), warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning, UserWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(torch|onnxscript|onnx_ir|copyreg)\b.*")
        yield


def _check_onnx() -> None:
    """Raise where a package that the export needs is missing or too old."""
    try:
        for package in ("onnx", "onnxruntime", "onnxscript"):
            import_module(package)
    except ImportError as error:
        raise ImportError(
            f'exporting to ONNX needs {error.name or "onnx"}; install the extra: pip install "bures[onnx]"'
        ) from error
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    if version < (2, 6):
        raise ImportError(f"exporting to ONNX needs torch 2.6 or newer, but {torch.__version__} is installed")
