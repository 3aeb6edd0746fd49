"""Data and places that do not fit: each a clear error before anything is lost, or a run that copes."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from small_runs import CLASSES, SMALL, adapt, pictures, vectors

from bures.data import Domain, ImageFiles, TensorSamples, align_classes, image_folder
from bures.training import PairData, Recipe, load_model

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")


def refused(tmp_path, message, *, source=None, target=None, error=ValueError, call=None, **changes):
    """The error of a run that must not begin; no folder is made."""
    source = vectors(56, seed=1, name="here") if source is None else source
    target = vectors(50, seed=2, name="there") if target is None else target
    with pytest.raises(error, match=message) as caught:
        adapt(source, target, Recipe(**{**SMALL, **changes}), tmp_path / "run", **(call or {}))
    assert not (tmp_path / "run").exists()
    assert "\n" not in str(caught.value)


# Classes


def named(names, n=40, seed=2, labels=None):
    labels = torch.arange(n) % len(names) if labels is None else labels
    return Domain("there", vectors(n, seed=seed).samples, names, labels)


def test_a_class_unknown_in_the_source_is_refused(tmp_path):
    message = r"target 'there' has the class 'cube', unknown in source 'here' .*rename or remove them"
    refused(tmp_path, message, target=named(["circle", "cross", "cube", "line", "point"]))
    refused(tmp_path, message, target=named(["circle", "cube"]), call={"partial": True})
    refused(tmp_path, "has the class 'cube'", call={"evaluation": named(["circle", "cube"])})


def test_a_class_that_the_target_lacks_is_refused_unless_it_may(tmp_path):
    target = named(["point", "circle", "cross"])
    refused(
        tmp_path, r"target 'there' lacks the class 'line' of source 'here'; .*partial=True \(--partial\)", target=target
    )
    run = adapt(vectors(56, seed=1), target, Recipe(**SMALL, method="ckb"), tmp_path / "partial", partial=True)
    assert run.manifest["status"] == "finished"
    lines = (run.path / "confusion.csv").read_text().splitlines()
    totals = {line.split(",")[0]: sum(map(int, line.split(",")[1:])) for line in lines[1:]}
    assert totals == {"circle": 13, "cross": 13, "line": 0, "point": 14}


def test_classes_are_found_by_name_and_not_by_number(tmp_path):
    source = vectors(56, seed=1)
    target = vectors(52, seed=2)
    turned = Domain("there", target.samples, CLASSES[::-1], 3 - target.labels)
    recipe = Recipe(**SMALL, method="source", lr=0.01)
    runs = [adapt(source, domain, recipe, tmp_path / name) for name, domain in (("plain", target), ("turned", turned))]
    assert runs[0].accuracy == runs[1].accuracy > 0.5
    assert (runs[0].path / "predictions.csv").read_text() == (runs[1].path / "predictions.csv").read_text()


def test_an_unnamed_target_is_taken_to_have_the_classes_of_the_source():
    source = vectors(20, seed=1)
    target = align_classes(source, Domain("there", vectors(10, seed=2).samples, []))
    assert target.class_names == source.class_names
    assert target.labels is None


def test_one_class_is_no_classification(tmp_path):
    refused(
        tmp_path,
        "the source has 1 class; a classifier needs at least two",
        source=vectors(20, seed=1, classes=1),
        target=vectors(20, seed=2, classes=1),
    )


@pytest.mark.parametrize("labels", [[0, 1, 4], [0, -1, 1], [0.5, 1, 2]])
def test_labels_out_of_range_are_refused(labels):
    with pytest.raises(ValueError, match=r"labels (contains class|is a) .*accepted are 3 integers from 0 to 3"):
        Domain("here", TensorSamples(torch.eye(3)), CLASSES, labels)


def test_a_source_without_labels_is_refused(tmp_path):
    refused(tmp_path, "source 'vectors' is unlabelled", source=vectors(20, seed=1, labelled=False))


# Numbers of samples


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_domain_with_one_image_is_refused(side, tmp_path):
    data = {"source": pictures(20, seed=1, name="here"), "target": pictures(20, seed=2, name="there")}
    data[side] = data[side].take([0])
    message = f"{side} '{data[side].name}' has one sample; training needs at least two"
    refused(tmp_path, message, **data, batch_size=2)


def test_one_image_can_be_evaluated(tmp_path):
    data = pictures(20, seed=1), pictures(20, seed=2)
    recipe = Recipe(**SMALL, network="lenet", method="source+adabn")
    run = adapt(*data, recipe, tmp_path / "run", evaluation=pictures(1, seed=3))
    assert run.accuracy in (0.0, 1.0)


@pytest.mark.parametrize(("side", "n"), [("source", 15), ("target", 9)])
def test_a_batch_larger_than_a_domain_is_refused(side, n, tmp_path):
    message = f"batch_size=16 is larger than {side} 'few', which has {n} samples; accepted is up to {n}"
    refused(tmp_path, message, **{side: vectors(n, seed=1, name="few")})


def test_a_batch_as_large_as_the_data_is_enough(tmp_path):
    data = vectors(16, seed=1), vectors(16, seed=2)
    run = adapt(*data, Recipe(**SMALL, method="ckb"), tmp_path / "run")
    assert [row["step"] for row in run.manifest["epochs"]] == [1, 2]


@pytest.mark.parametrize("method", ["ckb", "ckb+mmd", "ckw", "class-means", "im"])
@pytest.mark.parametrize("balanced", [False, True])
def test_a_class_with_one_sample_is_trained_on(method, balanced, tmp_path):
    labels = torch.tensor([0] * 20 + [1] * 20 + [2] * 15 + [3])
    source = Domain("here", vectors(56, seed=1).samples, CLASSES, labels)
    recipe = Recipe(**SMALL, method=method, class_balanced=balanced)
    run = adapt(source, vectors(50, seed=2), recipe, tmp_path / "run")
    assert all(bool(value.isfinite().all()) for value in load_file(run.path / "model.safetensors").values())


def test_a_class_without_samples_is_trained_on(tmp_path):
    source = Domain("here", vectors(56, seed=1).samples, CLASSES, torch.arange(56) % 3)
    run = adapt(source, vectors(50, seed=2), Recipe(**SMALL, method="ckw"), tmp_path / "run")
    assert run.manifest["data"]["source"]["counts"] == [19, 19, 18, 0]


# Shapes


def test_features_of_another_width_are_refused(tmp_path):
    message = r"source and target have samples of shapes \(6,\) and \(5,\); features of both .* same extractor"
    refused(tmp_path, message, target=vectors(50, seed=2, d=5))
    evaluation = vectors(50, seed=2, d=5)
    refused(tmp_path, r"takes vectors of 6 features but the samples have 5", call={"evaluation": evaluation})


def test_images_and_features_do_not_mix(tmp_path):
    refused(tmp_path, r"samples of shapes \(6,\) and \(1, 8, 8\)", target=pictures(50, seed=2))
    refused(tmp_path, r"samples of shapes \(1, 8, 8\) and \(6,\)", source=pictures(50, seed=2))
    refused(tmp_path, "takes vectors of 6 features but the samples are", call={"evaluation": pictures(50, seed=2)})
    refused(tmp_path, "network='lenet' takes images but the samples are feature vectors of length 6", network="lenet")
    images = {"source": pictures(50, seed=1), "target": pictures(50, seed=2)}
    refused(
        tmp_path, "network='identity' takes feature vectors but the samples are images", network="identity", **images
    )
    refused(tmp_path, "stored_size=8 is smaller than the 16 pixels", image_size=16, stored_size=8, **images)


def test_a_model_says_which_features_it_takes(tmp_path):
    run = adapt(vectors(56, seed=1), vectors(50, seed=2), Recipe(**SMALL), tmp_path / "run")
    with pytest.raises(ValueError, match=r"'wide' does not fit the model: the network takes vectors of 6 features"):
        load_model(run.path).predict(vectors(10, seed=1, d=7, name="wide"))


# Images in files


def drawn(folder, modes, n=24, size=12, seed=0):
    """A folder of two classes, dark and bright, whose images are of several kinds."""
    generator = np.random.default_rng(seed)
    for number in range(n):
        shade = (60, 190)[number % 2]
        values = generator.integers(shade - 40, shade + 40, (size, size, 3), dtype=np.uint8)
        path = Path(folder, ("dark", "bright")[number % 2], f"{number:03}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).convert(modes[number % len(modes)]).save(path)
    return image_folder(folder, size=size)


def test_grey_and_transparent_and_coloured_images_mix(tmp_path):
    # The mode changes every second image, so that it says nothing of the class.
    modes = [mode for mode in ("L", "RGBA", "RGB", "P", "LA", "1") for _ in range(2)]
    source, target = drawn(tmp_path / "here", modes), drawn(tmp_path / "there", modes, seed=1)
    recipe = Recipe(**{**SMALL, "batch_size": 8, "epochs": 4}, method="ckb", network="lenet", lr=0.003)
    run = adapt(source, target, recipe, tmp_path / "run", evaluation=None)
    assert run.manifest["network"]["in_channels"] == 3
    assert run.manifest["status"] == "finished"


def test_grey_pictures_and_coloured_ones_can_be_two_domains(tmp_path):
    coloured = TensorSamples(pictures(50, seed=2, size=12).samples.tensor.expand(-1, 3, -1, -1).contiguous())
    target = Domain("there", coloured, CLASSES, torch.arange(50) % 4)
    for joint in (False, True):
        recipe = Recipe(**SMALL, network="lenet", joint_forward=joint, augment="affine")
        run = adapt(pictures(56, seed=1), target, recipe, tmp_path / f"run-{joint}")
        assert run.manifest["network"]["in_channels"] == 3
        assert run.manifest["network"]["image_size"] == 12


def test_streaming_through_worker_processes_changes_no_bit(tmp_path):
    source, target = drawn(tmp_path / "here", ["RGB"]), drawn(tmp_path / "there", ["RGB", "L"], n=20, seed=1)
    assert isinstance(source.samples, ImageFiles)
    recipe = Recipe(**{**SMALL, "batch_size": 8}, method="ckb", network="lenet", augment="affine")
    kept = adapt(source, target, recipe, tmp_path / "kept", in_memory=True)
    for name, workers in (("streamed", 2), ("alone", 0)):
        run = adapt(source, target, recipe, tmp_path / name, in_memory=False, n_workers=workers)
        for file in ("model.safetensors", "best.safetensors", "predictions.csv", "confusion.csv"):
            assert (run.path / file).read_bytes() == (kept.path / file).read_bytes()


def test_files_are_decoded_by_as_many_processes_as_are_asked_for(tmp_path, monkeypatch):
    source, target = drawn(tmp_path / "here", ["RGB"]), drawn(tmp_path / "there", ["RGB"], seed=1).hide_labels()[0]

    def workers(asked):
        return PairData(source, target, Recipe(batch_size=4), n_workers=asked).train_dataloader().num_workers

    monkeypatch.setattr(torch.utils.data.DataLoader, "check_worker_number_rationality", lambda self: None)
    assert [workers(asked) for asked in (0, 3, 12)] == [0, 3, 12]
    for threads, usual in ((1, 1), (6, 5), (64, 8)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert workers(None) == usual
    with pytest.raises(ValueError, match="n_workers=-1 is out of range; accepted is an integer of at least 0"):
        workers(-1)


def test_a_streamed_run_stays_off_the_device_even_where_one_domain_is_in_memory(tmp_path):
    source, target = drawn(tmp_path / "here", ["RGB"]), drawn(tmp_path / "there", ["RGB"], seed=1)
    kept = Domain("here", source.samples.in_memory(), source.class_names, source.labels)
    data = PairData(kept, target.hide_labels()[0], Recipe(batch_size=4))
    data.move(torch.device("cuda"))  # would be an error where there is none, and in the workers where there is one
    assert data.source.samples.device.type == "cpu"


def test_an_image_that_vanishes_is_named(tmp_path):
    source, target = drawn(tmp_path / "here", ["RGB"]), drawn(tmp_path / "there", ["RGB"], seed=1)
    gone = Path(target.samples.paths[3])
    gone.unlink()
    with pytest.raises((ValueError, OSError, RuntimeError), match=gone.name):
        adapt(source, target, Recipe(**{**SMALL, "batch_size": 24}, network="lenet"), tmp_path / "run", in_memory=True)


@pytest.mark.parametrize(("network", "channels"), [("resnet18", (4, 4)), ("resnet18", (3, 2)), ("lenet", (2, 3))])
def test_images_with_channels_that_the_network_cannot_take_are_refused(network, channels, tmp_path):
    source, target = (
        Domain("there", TensorSamples(pictures(20, seed=1).samples.tensor.expand(-1, n, -1, -1)), CLASSES, [0, 1] * 10)
        for n in channels
    )
    odd = next(n for n in channels if n != 3)
    message = rf"has images of {odd} channels but network='{network}' takes 3, or 1 that is repeated$"
    refused(tmp_path, message, source=source, target=target, network=network, image_size=8)


@pytest.mark.parametrize(("network", "field"), [("vit_b_16", "image_size"), ("squeezenet1_0", "training_size")])
def test_images_of_a_size_that_the_network_cannot_take_are_refused(network, field, tmp_path):
    refused(
        tmp_path,
        rf"^network='{network}' fails on images of 9 x 9 pixels \({field}=9\): .*; it was made for image_size=224$",
        source=pictures(20, seed=1),
        target=pictures(20, seed=2),
        **{"network": network, "image_size": 224, "augment": "crop", field: 9},
    )


def test_feature_vectors_have_no_second_view(tmp_path):
    message = r"consistency=0\.5 compares two random changes of an image but the samples are feature vectors; .* is 0$"
    refused(tmp_path, message, consistency=0.5, augment="affine")


def test_a_share_that_holds_out_nothing_says_which_would(tmp_path):
    few = vectors(56, seed=1).take(range(8))
    refused(tmp_path, "at most 2 samples; accepted is a larger share, or 0", source=few, source_holdout=0.1)
    message = "holds out no sample of .*, which has one sample of each class and none to spare; accepted is 0$"
    refused(tmp_path, message, source=few.take(range(4)), source_holdout=0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"devices": 0}, r"^accelerator='cpu', devices=0, strategy='auto' will not do: .*devices=0"),
        ({"devices": -1}, r"^accelerator='cpu', devices=-1, strategy='auto' will not do: .*should be an int > 0"),
        ({"accelerator": "abacus"}, r"^accelerator='abacus', devices=1, strategy='auto' will not do: .*abacus"),
        ({"strategy": "by-hand"}, r"^accelerator='cpu', devices=1, strategy='by-hand' will not do: .*by-hand"),
    ],
)
def test_devices_that_are_not_there_are_refused(call, message, tmp_path):
    refused(tmp_path, message, call=call)


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    refused(tmp_path, r"^accelerator='gpu', devices=1, .* No supported gpu backend", call={"accelerator": "gpu"})


# Places


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    data = vectors(56, seed=1), vectors(50, seed=2)
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file / "run", file, Path("/proc/bures-run")):
        with pytest.raises(OSError, match="cannot be made") as caught:
            adapt(*data, Recipe(**SMALL), place)
        assert f"output={str(place)!r}" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert file.read_text() == "mine"


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    data = vectors(56, seed=1), vectors(50, seed=2)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"is not empty \(notes.txt, ...\); choose another folder, or resume"):
        adapt(*data, Recipe(**SMALL), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    run = adapt(*data, Recipe(**SMALL), tmp_path / "run")
    before = (run.path / "model.safetensors").read_bytes()
    with pytest.raises(FileExistsError, match="is not empty"):
        adapt(*data, Recipe(**SMALL, seed=1), tmp_path / "run")
    assert (run.path / "model.safetensors").read_bytes() == before
    (tmp_path / "empty/checkpoints").mkdir(parents=True)
    stale = tmp_path / "empty/checkpoints/last.ckpt"
    stale.write_text("of a run whose manifest is gone")
    with pytest.raises(FileExistsError, match="is not empty"):
        adapt(*data, Recipe(**SMALL), tmp_path / "empty")
    stale.unlink()
    assert adapt(*data, Recipe(**SMALL), tmp_path / "empty").manifest["status"] == "finished"


def test_nothing_else_is_warned_of(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapt(vectors(56, seed=1), vectors(50, seed=2), Recipe(**SMALL, method="source", lr=0.01), tmp_path / "run")
