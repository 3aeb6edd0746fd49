"""ONNX: the graph does what the model does for any batch, the file describes itself, and a bad one is never written."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from runs import CLASSES, feature_domain, train_on_digits, train_on_features

from bures.data import image_folder, optdigits
from bures.training import Recipe, assemble, export_onnx, load_model, save_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def features_model(tmp_path_factory):
    return train_on_features(tmp_path_factory.mktemp("features") / "run").model()


@pytest.fixture(scope="module")
def digits_model(tmp_path_factory):
    return train_on_digits(tmp_path_factory.mktemp("digits") / "run").model()


def run_graph(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["probabilities", "features"], {session.get_inputs()[0].name: np.asarray(x)})


def assert_same(path, model, domain):
    x = model.fit(domain).samples.take(torch.arange(len(domain)))
    probabilities, features = run_graph(path, x)
    expected = model.predict(domain)
    np.testing.assert_allclose(probabilities, expected.probabilities, atol=1e-5)
    np.testing.assert_allclose(features, expected.features, atol=1e-4)


def test_images_go_in_as_they_are_stored_in_batches_of_any_size(digits_model, tmp_path):
    written = export_onnx(digits_model, tmp_path / "digits.onnx")
    assert (written.input_name, written.input_shape) == ("images", (1, 8, 8))
    assert written.difference < 1e-5
    for n in (1, 2, 33):
        assert_same(written.path, digits_model, optdigits().take(range(n)))


def test_feature_vectors(features_model, tmp_path):
    written = export_onnx(features_model, tmp_path / "features.onnx")
    assert (written.input_name, written.input_shape) == ("vectors", (2,))
    for n in (1, 40):
        assert_same(written.path, features_model, feature_domain(1).take(range(n)))


def test_a_pretrained_kind_of_network_has_window_and_normalisation_in_the_graph(tmp_path):
    """ResNet-18: images of 73 pixels are stored, a window of 64 is seen."""
    from PIL import Image

    spec, network, _ = assemble(Recipe(network="resnet18", image_size=64), 5, (3, 256, 256))
    model = load_model(save_model(tmp_path / "model.safetensors", network, spec, "abcde"))
    rng = np.random.default_rng(0)
    for number in range(3):
        Image.fromarray(rng.integers(256, size=(90, 120, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    written = export_onnx(model, tmp_path / "resnet.onnx")
    assert written.input_shape == (3, 73, 73)
    domain = image_folder(tmp_path)
    assert_same(written.path, model, domain)
    stored = model.fit(domain).samples.take(torch.arange(3))
    border = stored.clone()
    border[..., :2] = 0  # outside the window
    for changed, first in zip(run_graph(written.path, border), run_graph(written.path, stored), strict=True):
        assert np.array_equal(changed, first)


def test_the_file_is_one_and_describes_itself(features_model, tmp_path):
    written = export_onnx(features_model, tmp_path / "features.onnx", opset=20)
    assert list(tmp_path.iterdir()) == [written.path]
    content = onnx.load(written.path)
    metadata = {item.key: item.value for item in content.metadata_props}
    assert json.loads(metadata["class_names"]) == list(CLASSES)
    assert json.loads(metadata["network"])["in_features"] == 2
    assert metadata["input"] == "float32 (n, 2)"
    assert "feature_names" not in metadata
    assert [item.version for item in content.opset_import if item.domain == ""] == [20]


def test_the_file_names_the_columns_that_the_network_takes(features_model, tmp_path):
    written = export_onnx(replace(features_model, feature_names=("width", "length")), tmp_path / "features.onnx")
    metadata = {item.key: item.value for item in onnx.load(written.path).metadata_props}
    assert json.loads(metadata["feature_names"]) == ["width", "length"]


def test_a_difference_beyond_the_tolerance_leaves_what_was_there(features_model, tmp_path):
    file = tmp_path / "features.onnx"
    file.write_bytes(b"before")
    with pytest.raises(ValueError, match=r"differs from torch by \d\.\de-\d\d, more than tolerance=1e-30"):
        export_onnx(features_model, file, tolerance=1e-30)
    assert [entry.name for entry in tmp_path.iterdir()] == ["features.onnx"]
    assert file.read_bytes() == b"before"


def test_a_graph_that_is_wrong_is_found_out(features_model, tmp_path, monkeypatch):
    """Weights that change between translation and comparison stand for any error of the exporter."""
    from bures.training import _export

    translate = _export._translate

    def wrong(model, opset):
        graph = translate(model, opset)
        with torch.no_grad():
            model.network.head.classifier.bias[0] += 0.01
        return graph

    monkeypatch.setattr(_export, "_translate", wrong)
    with pytest.raises(ValueError, match="differs from torch"):
        export_onnx(features_model, tmp_path / "features.onnx")
    assert not list(tmp_path.iterdir())


def test_the_model_is_left_as_it_is(digits_model, tmp_path):
    before = {name: value.clone() for name, value in digits_model.network.state_dict().items()}
    digits_model.network.train()
    try:
        written = export_onnx(digits_model, tmp_path / "digits.onnx")
        assert digits_model.network.training
        assert_same(written.path, digits_model, optdigits().take(range(3)))
    finally:
        digits_model.network.eval()
    assert all(torch.equal(value, before[name]) for name, value in digits_model.network.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opset": 11}, "opset=11 is out of range; accepted are 18"),
        ({"opset": 99}, "opset=99 is out of reach"),
        ({"tolerance": 0}, "tolerance=0.0 is out of range"),
    ],
)
def test_options_out_of_range(features_model, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export_onnx(features_model, tmp_path / "model.onnx", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_names_the_extra(features_model, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'needs {package}; .*pip install "bures\[onnx\]"'):
        export_onnx(features_model, tmp_path / "model.onnx")


def test_a_torch_too_old_is_named(features_model, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.4.1+cpu")
    with pytest.raises(ImportError, match=r"needs torch 2.6 or newer, but 2.4.1\+cpu is installed"):
        export_onnx(features_model, tmp_path / "model.onnx")
