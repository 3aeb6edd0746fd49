"""What a run keeps of its samples is what its network says of them; and it can be made anew."""

import numpy as np
import pytest
import torch
from PIL import Image
from runs import CLASSES, feature_domain, train_on_features
from safetensors.torch import load_file, save_file

from bures.data import Domain, HiddenLabels, ImageFiles, optdigits
from bures.training import AdaptationModule, RunFolder, adapt, assemble, predict_samples, refresh_samples
from bures.training._kept import KEPT, _choose, read_kept
from bures.training._pictures import encode_sheet, picture_sheet, read_sheet
from bures.training._recipe import Recipe


@pytest.fixture(scope="module")
def features_run(tmp_path_factory):
    return train_on_features(tmp_path_factory.mktemp("features") / "run", method="ckb")


def kept_of(run):
    return read_kept(RunFolder(run.path).samples)


def test_features_and_predictions_are_those_of_the_model(digits_run):
    kept, digits = kept_of(digits_run), optdigits()
    for side, domain in ((kept.source, digits.take(range(500))), (kept.target, digits.take(range(500, 800)))):
        chosen = domain.take(side.index.long())
        expected = digits_run.model().predict(chosen)
        torch.testing.assert_close(side.features.float(), expected.features, atol=2e-2, rtol=2e-3)
        p = expected.probabilities
        assert torch.equal(side.prediction.long(), p.argmax(dim=1))
        torch.testing.assert_close(side.confidence, p.max(dim=1).values)
        assert torch.equal(side.labels.long(), chosen.labels)
        torch.testing.assert_close(side.p_true, p[torch.arange(len(p)), chosen.labels])
        np.testing.assert_array_equal(side.pictures()[..., 0], chosen.samples.tensor[:, 0])
        assert side.total == len(domain) == len(side)


def test_features_before_are_those_of_the_network_that_training_began_with(digits_run):
    kept = kept_of(digits_run)
    _, network, inputs = assemble(Recipe(**digits_run.manifest["recipe"]), 10, (1, 8, 8))
    digits = optdigits().take(range(500))
    samples = digits.samples.subset(kept.source.index.long())
    expected = predict_samples(network, samples, inputs).features
    torch.testing.assert_close(kept.source.before.float(), expected, atol=2e-3, rtol=2e-3)


def test_feature_vectors_have_no_pictures_and_odd_names_stay(features_run):
    kept = kept_of(features_run)
    assert kept.class_names == CLASSES
    assert kept.batchnorm == "own"  # target statistics at evaluation: each domain has its own
    assert kept.target.pictures() is None
    assert kept.target.features.shape == (90, 8)


def test_a_target_without_labels_keeps_none(tmp_path):
    target = feature_domain(1)
    recipe = Recipe(method="source", epochs=1, batch_size=30, hidden=8, features=4)
    hidden = Domain("there", target.samples, target.class_names)
    kept = kept_of(adapt(feature_domain(0), hidden, recipe, tmp_path / "run"))
    assert kept.target.labels is None
    assert kept.target.p_true is None
    assert kept.source.labels is not None


def test_labels_of_the_target_come_out_once_and_when_training_is_over(tmp_path, monkeypatch):
    happened = []
    step, record = AdaptationModule.training_step, HiddenLabels.for_the_record

    def training_step(module, *arguments):
        happened.append("step")
        return step(module, *arguments)

    def for_the_record(hidden, index):
        happened.append("record")
        return record(hidden, index)

    monkeypatch.setattr(AdaptationModule, "training_step", training_step)
    monkeypatch.setattr(HiddenLabels, "for_the_record", for_the_record)
    train_on_features(tmp_path / "run", method="ckb", epochs=2)
    assert happened[-1] == "record"
    assert happened.count("record") == 1
    assert happened.count("step") >= 2


def test_refreshed_samples_are_the_same(features_run, tmp_path):
    file = RunFolder(features_run.path).samples
    before = load_file(file)
    file.unlink()
    refresh_samples(features_run.path, feature_domain(0), feature_domain(1))
    after = load_file(file)
    assert before.keys() == after.keys()
    for name, values in before.items():
        torch.testing.assert_close(after[name].double(), values.double(), atol=2e-3, rtol=2e-3, msg=name)
    with pytest.raises(ValueError, match="the source samples are not those of the run"):
        refresh_samples(features_run.path, feature_domain(0, n=60), feature_domain(1))


def test_many_samples_are_chosen_at_random_but_always_the_same():
    many = range(3 * KEPT)
    chosen = _choose(many, 4)
    assert len(chosen) == KEPT == len(chosen.unique())
    assert torch.equal(chosen, _choose(many, 4))
    assert abs(float(chosen.double().mean()) / len(many) - 0.5) < 0.03
    assert len(_choose(many, 2**13)) < KEPT  # wide features are kept of fewer


@pytest.mark.parametrize(("side", "colours"), [(8, 1), (12, 3), (32, 3)])
def test_pictures_come_back_from_their_sheet(side, colours):
    smooth = np.linspace(0, 255, 70 * colours).reshape(70, 1, 1, colours).astype(np.uint8)
    images = np.broadcast_to(smooth, (70, side, side, colours))
    found = read_sheet(encode_sheet(images, None), side, 70)
    np.testing.assert_array_equal(found, np.broadcast_to(images, found.shape))
    lossy = read_sheet(encode_sheet(images, 80), side, 70).astype(int)
    assert np.abs(lossy[:, side // 2, side // 2] - images[:, 0, 0]).mean() < 12


def test_image_files_are_decoded_to_the_kept_size(tmp_path):
    for number in range(3):
        Image.new("RGB", (90, 60), (80 * number, 10, 200)).save(tmp_path / f"{number}.png")
    sheet, side = picture_sheet(ImageFiles(sorted(tmp_path.glob("*.png")), 64))
    pictures = read_sheet(sheet, side, 3).astype(int)
    assert side == 32
    np.testing.assert_allclose(pictures[:, 16, 16], [[80 * number, 10, 200] for number in range(3)], atol=12)


def test_a_damaged_file_is_an_error_that_says_so(features_run, tmp_path):
    file = tmp_path / "samples.safetensors"
    file.write_bytes(RunFolder(features_run.path).samples.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        read_kept(file)
    save_file({"a": torch.ones(2)}, file)
    with pytest.raises(ValueError, match="holds something else; accepted is samples of a run"):
        read_kept(file)
