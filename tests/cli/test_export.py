"""`bures export`: files that do what the run's model does."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from commands import printed
from runs import feature_domain

from bures.training import RunFolder, load_model

run = partial(printed, "export")


def test_onnx_lies_beside_the_model_and_the_difference_is_told(features_run):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    printed = run(features_run.path)
    file = features_run.path / "model.onnx"
    assert printed.startswith(f"{file}  identity: vectors float32 (n, 2) → probabilities (n, 3), features")
    assert float(re.search(r"difference from torch (\S+)", printed)[1]) < 1e-5
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], {"vectors": feature_domain(1).samples.tensor.numpy()})
    np.testing.assert_allclose(found, features_run.model().predict(feature_domain(1)).probabilities, atol=1e-5)


def test_the_best_model_goes_to_a_file_of_its_own(features_run, tmp_path):
    pytest.importorskip("onnxscript")
    assert str(features_run.path / "best.onnx") in run(features_run.path, "--best")
    assert str(tmp_path / "mine.onnx") in run(features_run.path, "--best", "-o", tmp_path / "mine.onnx", "--opset", 20)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.onnx"]


def test_safetensors_is_a_model_that_loads(features_run, tmp_path):
    file = tmp_path / "handed on.safetensors"
    assert "load_model" in run(features_run.path, "--format", "safetensors", "-o", file)
    assert file.read_bytes() == RunFolder(features_run.path).model.read_bytes()
    assert "load_model" in run(features_run.path, "-o", tmp_path / "by its name.safetensors")
    assert (tmp_path / "by its name.safetensors").read_bytes() == file.read_bytes()
    model, domain = load_model(file), feature_domain(1)
    assert model.class_names == features_run.model().class_names
    assert torch.equal(model.predict(domain).probabilities, features_run.model().predict(domain).probabilities)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "safetensors"], "--output is missing; .*model.safetensors already is a safetensors file"),
        (["-o", "none/model.onnx"], "none is not a folder; make it first"),
        (
            ["--format", "onnx", "-o", "a.safetensors"],
            "a.safetensors has the name of another kind of file than --format",
        ),
        (["--format", "safetensors", "-o", "a.onnx"], r"a\.onnx has the name of another kind of file than --format"),
    ],
)
def test_wrong_options_are_named(features_run, options, message):
    with pytest.raises((OSError, ValueError), match=message):
        run(features_run.path, *options)


def test_the_model_is_never_written_over(features_run):
    model = features_run.path / "model.safetensors"
    before = model.read_bytes()
    for kind in ("onnx", "safetensors"):
        with pytest.raises(ValueError, match="is read by this command; choose another file"):
            run(features_run.path, "--format", kind, "-o", model)
    assert model.read_bytes() == before
    best = features_run.path / "best.safetensors"
    before = best.read_bytes()
    with pytest.raises(ValueError, match=r"is a file of the run in .*, and would be lost; choose another file"):
        run(features_run.path, "-o", best)
    assert best.read_bytes() == before


def test_a_run_that_is_not_finished_is_named(tmp_path):
    RunFolder(tmp_path).write_manifest({"status": "running"})
    with pytest.raises(FileNotFoundError, match=r"status 'running' but no model.safetensors; finish the run first"):
        run(tmp_path)
