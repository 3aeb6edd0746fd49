"""Saved models: what is written is what is read, samples that do not fit are refused, damage is named."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from runs import CLASSES, feature_domain, train_on_digits, train_on_features, write_digit
from safetensors.torch import save_file

from bures.data import Domain, TensorSamples, image_folder, optdigits
from bures.training import Assessment, Recipe, RunFolder, adapt, assemble, assess, load_model, save_model
from bures.training._inputs import luminance


def test_a_model_says_of_the_target_what_the_run_said(digits_run):
    target = optdigits().take(range(500, 800))
    predictions = digits_run.model().predict(target)
    rows = RunFolder(digits_run.path).predictions.read_text().splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == [str(label) for label in predictions.probabilities.argmax(1).tolist()]
    right = (predictions.probabilities.argmax(dim=1) == target.labels).double().mean()
    assert float(right) == pytest.approx(digits_run.accuracy)


def test_the_order_of_samples_and_their_number_in_a_batch_do_not_matter(digits_run):
    model, digits = digits_run.model(), optdigits().take(range(50))
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    whole = model.predict(digits).probabilities
    torch.testing.assert_close(model.predict(digits.take(order), batch_size=7).probabilities, whole[order])
    torch.testing.assert_close(model.predict(digits, batch_size=10**20).probabilities, whole)  # all at once


def test_labels_are_not_read(features_run):
    model, domain = features_run.model(), feature_domain(1)
    masked, _ = domain.hide_labels()
    assert torch.equal(model.predict(masked).probabilities, model.predict(domain).probabilities)


@pytest.mark.parametrize("named", [(0, 1), (0,), (1,)])
def test_a_model_finds_columns_by_name_where_a_domain_of_training_had_names(tmp_path, named):
    names = ("width", "length")
    source, target = (replace(feature_domain(side), feature_names=names if side in named else None) for side in (0, 1))
    recipe = Recipe(method="source", epochs=1, batch_size=30, hidden=16, features=8)
    model = adapt(source, target, recipe, tmp_path / "run").model()
    assert model.feature_names == names
    x = target.samples.tensor
    turned = Domain("turned", TensorSamples(x.flip(1)), (), feature_names=names[::-1])
    expected = model.predict(Domain("arrays", TensorSamples(x), ())).probabilities
    assert torch.equal(model.predict(turned).probabilities, expected)
    with pytest.raises(ValueError, match=r"'turned' lacks the column 'width' and has the unexpected column 'height'"):
        model.predict(replace(turned, feature_names=("length", "height")))


def test_the_best_model_of_a_folder_is_read_where_it_is_asked_for(features_run, tmp_path):
    folder = RunFolder(shutil.copytree(features_run.path, tmp_path / "run"))
    other = train_on_features(tmp_path / "other", seed=1)
    shutil.copy(RunFolder(other.path).model, folder.best_model)
    last, best = (load_model(folder.path, best=choice).predict(feature_domain(1)) for choice in (False, True))
    assert torch.equal(last.probabilities, features_run.model().predict(feature_domain(1)).probabilities)
    assert torch.equal(best.probabilities, other.model().predict(feature_domain(1)).probabilities)
    assert not torch.equal(last.probabilities, best.probabilities)


def test_colours_are_dropped_for_a_network_of_grey_images(digits_run, tmp_path):
    """Grey values written as RGB give the same predictions as the grey images themselves."""
    for number in range(3):
        write_digit(tmp_path / f"{number}.png", number, ("L", "RGB", "RGBA")[number])
    model = digits_run.model()
    found = model.predict(image_folder(tmp_path, size=8)).probabilities
    torch.testing.assert_close(found, model.predict(optdigits().take(range(3))).probabilities)


def test_luminance_is_that_of_pillow():
    from PIL import Image

    pixels = torch.randint(256, (2, 3, 9, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for image, grey in zip(pixels, luminance(pixels), strict=True):
        pillow = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
        assert grey[0].tolist() == torch.frombuffer(bytearray(pillow.tobytes()), dtype=torch.uint8).view(9, 9).tolist()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (torch.zeros(4, 3), "'odd' does not fit the model: the network takes vectors of 2 features but .* have 3"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), "takes vectors of 2 features but the samples are images"),
    ],
)
def test_samples_that_a_feature_model_cannot_take(features_run, samples, message):
    with pytest.raises(ValueError, match=message):
        features_run.model().predict(Domain("odd", TensorSamples(samples), ()))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (torch.zeros(4, 3), "'odd' does not fit the model: the network takes images but the samples are vectors of 3"),
        (torch.zeros(4, 2, 8, 8, dtype=torch.uint8), "its images have 2 channels; accepted are 1, 3"),
    ],
)
def test_samples_that_an_image_model_cannot_take(digits_run, samples, message):
    with pytest.raises(ValueError, match=message):
        digits_run.model().predict(Domain("odd", TensorSamples(samples), ()))


def test_outputs_that_are_no_numbers_are_not_handed_out(features_run):
    x = torch.zeros(3, 2)
    x[1] = 3e38
    with pytest.raises(ValueError, match=r"not finite for 1 of 3 samples of 'far' .first: number 1"):
        features_run.model().predict(Domain("far", TensorSamples(x), ()))


@pytest.mark.parametrize(("given", "named"), [(5, 5), (None, 512)])
def test_a_batch_that_no_memory_holds_is_named(features_run, monkeypatch, given, named):
    model = features_run.model()

    def fail(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model.network, "forward", fail)
    with pytest.raises(ValueError, match=f"batch_size={named} is too much for the memory of the GPU"):
        model.predict(feature_domain(1), batch_size=given)


def test_a_batch_of_none_is_refused(features_run):
    with pytest.raises(ValueError, match="batch_size=0 is out of range"):
        features_run.model().predict(feature_domain(1), batch_size=0)


def test_a_truncated_file_is_named_wherever_it_was_cut(features_run, tmp_path):
    content = RunFolder(features_run.path).model.read_bytes()
    for kept in (0, 5, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "cut.safetensors").write_bytes(content[:kept])
        with pytest.raises(ValueError, match=r"cut.safetensors is truncated or no safetensors file") as caught:
            load_model(tmp_path / "cut.safetensors")
        assert "\n" not in str(caught.value)


def _written(tmp_path, **changes):
    spec, network, _ = assemble(Recipe(hidden=4, features=2), 2, (3,))
    file = save_model(tmp_path / "model.safetensors", network, spec, ["a", "b"])
    description = {"schema": 1, "network": spec.to_dict(), "class_names": ["a", "b"]} | changes
    save_file(network.state_dict(), file, metadata={"bures": json.dumps(description)})
    return file, spec.to_dict()


def test_a_file_whose_description_is_not_ours_is_refused(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ValueError, match="is no model that this version of bures wrote"):
        load_model(tmp_path / "foreign.safetensors")
    _, spec = _written(tmp_path)
    for changes, message in (
        ({"schema": 2}, "is no model that this version of bures wrote"),
        ({"network": spec | {"colour": "red"}}, "written by another version of bures: .*'colour'"),
        ({"network": {}}, "written by another version of bures"),
        ({"class_names": ["a"]}, "is damaged: it names 1 classes for 2 outputs"),
        ({"feature_names": ["a"]}, "is damaged: it names 1 columns for "),
        ({"network": spec | {"hidden": 5}}, "does not fit the network; .* of another shape"),
    ):
        file, _ = _written(tmp_path, **changes)
        with pytest.raises(ValueError, match=message):
            load_model(file)


def test_folders_without_a_model_say_what_is_missing(features_run, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty is no run folder: model.safetensors and manifest.json are"):
        load_model(tmp_path / "empty")
    shutil.copytree(features_run.path, tmp_path / "several" / "ckb")
    with pytest.raises(FileNotFoundError, match=r"several runs, choose one: .*several/ckb"):
        load_model(tmp_path / "several")
    folder = RunFolder(tmp_path / "several" / "ckb")
    folder.model.unlink()
    with pytest.raises(FileNotFoundError, match=r"status 'finished' but no model.safetensors; it was removed"):
        load_model(folder.path)
    folder.write_manifest({"status": "stopped"})
    with pytest.raises(FileNotFoundError, match=r"status 'stopped' .* bures adapt --resume .*ckb"):
        load_model(folder.path)
    spaced = folder.path.rename(tmp_path / "my run")
    with pytest.raises(FileNotFoundError, match=r"bures adapt --resume '.*/my run'$"):
        load_model(spaced)


def test_a_file_has_no_best_model(features_run):
    with pytest.raises(ValueError, match="--best"):
        load_model(RunFolder(features_run.path).model, best=True)


def test_classes_are_aligned_by_name_and_some_may_be_absent(features_run):
    target = feature_domain(1)
    expected = assess(features_run.model(), target)
    assert expected.accuracy == pytest.approx(features_run.accuracy)
    turned = Domain("turned", target.samples, CLASSES[::-1], 2 - target.labels)
    assert torch.equal(assess(features_run.model(), turned).confusion, expected.confusion)
    one = target.take(target.labels == 1)
    alone = Domain("alone", one.samples, ["never seen", CLASSES[1]], torch.ones(len(one), dtype=torch.int64))
    result = assess(features_run.model(), alone)
    assert torch.equal(result.confusion[1], expected.confusion[1])
    assert result.classes()[0].accuracy is None
    assert result.mean_class_accuracy == result.accuracy


def test_unknown_classes_and_missing_labels_are_errors(features_run):
    target = feature_domain(1)
    with pytest.raises(ValueError, match=r"samples of the class 'emu', unknown to the model .*'=cmd"):
        assess(features_run.model(), Domain("zoo", target.samples, ["emu", *CLASSES[1:]], target.labels))
    with pytest.raises(ValueError, match="'there' is unlabelled"):
        assess(features_run.model(), target.hide_labels()[0])


def test_target_statistics_are_those_of_the_run_and_leave_the_model_alone(digits_run):
    model, target = digits_run.model(), optdigits().take(range(500, 800))
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    expected = digits_run.manifest["final"]["accuracy_by_batchnorm"]
    assert expected["training"] != expected["target"]
    for policy, accuracy in expected.items():
        assert assess(model, target, batchnorm=policy).accuracy == pytest.approx(accuracy)
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())


def test_a_frozen_backbone_stays_frozen_when_the_model_is_read(tmp_path):
    run = train_on_digits(tmp_path / "run", backbone_batchnorm="frozen")
    target = optdigits().take(range(500, 800))
    thawed = load_model(run.path)
    assert "FrozenBatchNorm" in repr(thawed.network.backbone)
    expected = run.manifest["final"]["accuracy_by_batchnorm"]["target"]
    assert assess(thawed, target, batchnorm="target").accuracy == pytest.approx(expected)


def test_target_statistics_need_batchnorm_and_two_samples(digits_run, tmp_path):
    digits = optdigits()
    with pytest.raises(ValueError, match="'optdigits' has one sample"):
        assess(digits_run.model(), digits.take([0]), batchnorm="target")
    spec, network, _ = assemble(Recipe(network="lenet", norm="group", head="linear"), 10, (1, 8, 8))
    model = load_model(save_model(tmp_path / "model.safetensors", network, spec, digits.class_names))
    with pytest.raises(ValueError, match="has none to adapt"):
        assess(model, digits, batchnorm="target")


def test_the_most_frequent_confusions_come_first():
    result = Assessment("x", "training", ("a", "b", "c"), torch.tensor([[5, 1, 0], [3, 2, 7], [0, 1, 0]]))
    assert [tuple(row) for row in result.most_confused(3)] == [("b", "c", 7), ("b", "a", 3), ("a", "b", 1)]
    assert (result.correct, result.samples) == (7, 19)
    assert result.mean_class_accuracy == pytest.approx((5 / 6 + 2 / 12 + 0) / 3)
