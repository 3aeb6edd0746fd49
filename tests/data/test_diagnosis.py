"""A diagnosis finds what was planted, says how grave it is and what to do, and keeps quiet about what is well."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from bures.data import Diagnosis, Domain, ImageFiles, TensorSamples, diagnose, image_folder
from bures.files import to_json


def features(name="here", n=40, d=4, k=2, *, scale=1.0, seed=0, **options):
    rng = np.random.default_rng(seed)
    values = {"class_names": [f"c{c}" for c in range(k)], "labels": np.arange(n) % k} | options
    return Domain(name, TensorSamples(scale * rng.normal(size=(n, d)).astype(np.float32)), **values)


def images(name="here", n=40, k=2, *, shape=(1, 28, 28), seed=0, **options):
    pixels = np.random.default_rng(seed).integers(0, 256, size=(n, *shape), dtype=np.uint8)
    values = {"class_names": [f"c{c}" for c in range(k)], "labels": np.arange(n) % k} | options
    return Domain(name, TensorSamples(pixels), **values)


def changed(domain, edit):
    """The same domain after an edit of its array."""
    array = domain.samples.tensor.numpy().copy()
    edit(array)
    return Domain(domain.name, TensorSamples(array), domain.class_names, domain.labels, domain.ids)


def found(diagnosis, *, level=None, topic=None, text=""):
    """The findings that match."""
    return [
        finding
        for finding in diagnosis.findings
        if level in (None, finding.level) and topic in (None, finding.topic) and text in finding.text
    ]


def only(diagnosis, **wanted):
    (finding,) = found(diagnosis, **wanted)
    return finding


def test_two_sound_domains_have_nothing_but_ok():
    diagnosis = diagnose(features(seed=1), features("there", seed=2))
    assert diagnosis.level == "ok"
    assert {finding.level for finding in diagnosis.findings} == {"ok"}
    assert {finding.topic for finding in diagnosis.findings} == {"labels", "classes", "balance", "duplicates", "values"}
    assert diagnosis.settings == {"network": "identity", "batch_size": 40}
    assert diagnosis.verdict() == "nothing stands in the way"


# Classes


def test_target_classes_that_the_source_lacks_are_an_error():
    diagnosis = diagnose(features(seed=1), features(seed=2, k=3))
    finding = only(diagnosis, level="error")
    assert finding.text == "target classes that are not in the source, 1 of 3: c2"
    assert "leave them out" in finding.remedy
    assert diagnosis.settings == {}


def test_disjoint_classes_are_an_error():
    diagnosis = diagnose(features(seed=1), features(seed=2, class_names=["0", "1"]))
    assert "the domains share no class: source c0, c1; target 0, 1" in only(diagnosis, level="error").text


def test_source_classes_that_the_target_lacks_ask_for_partial():
    diagnosis = diagnose(features(seed=1, k=3), features(seed=2, k=2))
    assert diagnosis.level == "warning"
    assert "--partial" in only(diagnosis, level="warning", topic="classes").remedy
    assert diagnosis.settings["partial"] is True
    assert "--partial" in diagnosis.options()


def test_a_class_that_is_named_but_has_no_samples_is_not_there():
    names = ["c0", "c1", "c2"]
    partial = diagnose(features(seed=1, k=3), features(seed=2, class_names=names))
    assert partial.settings["partial"] is True
    assert diagnose(features(seed=1, class_names=names), features(seed=2)).settings.get("partial") is None
    assert only(diagnose(features(seed=1, class_names=names), features(seed=2, k=3)), level="error").topic == "classes"


def test_a_source_without_labels_is_an_error_and_a_target_without_is_none():
    unlabelled = features(seed=1, labels=None)
    assert "no labels, which training needs" in only(diagnose(unlabelled, features(seed=2)), level="error").text
    diagnosis = diagnose(features(seed=2), unlabelled)
    assert diagnosis.level == "note"
    assert "accuracy there cannot be measured" in only(diagnosis, topic="labels").text
    assert diagnosis.class_counts() == [("c0", 20, None), ("c1", 20, None)]
    assert "?" in str(diagnosis)


def test_one_class_and_one_sample_are_errors():
    alone = features(seed=1, class_names=["c0"], labels=np.zeros(40, dtype=int))
    unlabelled = features(seed=2, class_names=[], labels=None)
    assert "the source has one class, 'c0'" in only(diagnose(alone, unlabelled), level="error").text
    one = features(n=1, seed=3)
    assert found(diagnose(features(seed=1), one), level="error", text="the target has one sample")


# Balance


def test_imbalance_and_classes_with_one_sample_are_named():
    labels = np.array([0] * 36 + [1] * 3 + [2])
    diagnosis = diagnose(features(seed=1, k=3, labels=labels), features(seed=2, k=3))
    assert only(diagnosis, level="warning", topic="balance").text == "classes with one sample in the source: c2"
    note = only(diagnosis, level="note", topic="balance", text="largest source class")
    assert "36.0 times" in note.text
    assert "--class-balanced" in note.remedy
    assert diagnosis.settings["class_balanced"] is True
    assert only(diagnosis, level="note", topic="balance", text="frequencies differ").remedy


def test_the_change_of_class_frequencies_is_their_total_variation():
    labels = np.array([0] * 30 + [1] * 10)
    diagnosis = diagnose(features(seed=1), features(seed=2, labels=labels))
    assert "25% of the target" in only(diagnosis, text="frequencies differ").text


# Duplicates


def test_equal_rows_across_and_within_domains_are_counted_and_named():
    source, target = features(seed=1, ids=[f"s{i}" for i in range(40)]), features(seed=2)
    rows = source.samples.tensor.numpy()

    def plant(array):
        array[[4, 9]] = rows[7]
        array[11] = array[13]

    diagnosis = diagnose(source, changed(target, plant))
    across = only(diagnosis, topic="duplicates", level="warning", text="in the source as well")
    assert "2 of 40: s7 = sample 4, s7 = sample 9" in across.text
    assert (
        "copies of samples within the target, 2 of 40: sample 4 = sample 9"
        in only(diagnosis, topic="duplicates", level="note").text
    )
    assert diagnosis.to_dict()["duplicates_across"] == 2
    assert [diagnosis.to_dict()[side]["duplicates"] for side in ("source", "target")] == [0, 2]


def test_equal_samples_of_different_classes_are_a_warning():
    def plant(array):
        array[1] = array[0]

    diagnosis = diagnose(changed(features(seed=1), plant), features(seed=2))
    assert "sample 0 = sample 1" in only(diagnosis, level="warning", text="under several classes").text


def test_negative_zero_is_zero():
    source, target = (changed(features(seed=seed), lambda array: array.__setitem__(3, 0.0)) for seed in (1, 2))
    target.samples.tensor[3] *= -1
    assert "sample 3 = sample 3" in only(diagnose(source, target), topic="duplicates", level="warning").text


def test_the_same_picture_in_grey_and_in_colour_is_a_duplicate():
    grey = images(seed=1)
    colour = Domain("colour", TensorSamples(grey.samples.tensor.expand(-1, 3, -1, -1)), grey.class_names, grey.labels)
    assert diagnose(grey, colour).to_dict()["duplicates_across"] == 40
    tinted = changed(colour, lambda array: array.__setitem__((slice(None), 0, 0, 0), 7))
    tinted.samples.tensor[:, 1, 0, 0] = 9
    assert diagnose(grey, tinted).to_dict()["duplicates_across"] == 0


# Features


def test_widths_and_kinds_that_differ_are_errors():
    assert "4 features, the target 5" in only(diagnose(features(), features(d=5)), level="error").text
    diagnosis = diagnose(images(), features())
    assert only(diagnosis, level="error").text == "the source holds images, the target feature vectors"
    assert "bures features extract" in only(diagnosis, level="error").remedy


def test_constant_and_zero_columns():
    def constant(array):
        array[:, 0] = 3

    def zero(array):
        array[:, :2] = 0

    diagnosis = diagnose(changed(features(seed=1), constant), changed(features(seed=2), zero))
    assert only(diagnosis, level="note", topic="values").text.endswith("constant in both domains: 1 of 4, zero 0")
    assert only(diagnosis, level="warning", topic="values").text.endswith("constant in the other: 1 of 4")
    assert diagnosis.to_dict()["target"]["columns"]["zero"] == 2


@pytest.mark.parametrize(("scale", "level"), [(1.0, "ok"), (2.0, "ok"), (4.0, "warning"), (0.2, "warning")])
def test_scales_that_differ(scale, level):
    diagnosis = diagnose(features(n=400, seed=1), features(n=400, seed=2, scale=scale))
    assert only(diagnosis, topic="values").level == level
    assert diagnosis.target.columns.scale == pytest.approx(scale, rel=0.1)


def test_values_are_those_of_the_array():
    domain = features(n=3000, seed=1, scale=2.5)
    x = domain.samples.tensor.double().numpy()
    summary = diagnose(domain, features(seed=2)).source
    np.testing.assert_allclose(
        [summary.minimum, summary.maximum, summary.mean, summary.std], [x.min(), x.max(), x.mean(), x.std()], rtol=1e-6
    )
    np.testing.assert_allclose(summary.columns.std, x.std(axis=0), rtol=1e-6)


def test_a_column_that_decides_every_distance():
    big = changed(features(seed=1), lambda array: array.__setitem__((slice(None), 0), 1000 * array[:, 0]))
    assert "decides every distance" in only(diagnose(big, big), topic="values", level="warning").text


def test_fewer_samples_than_features():
    diagnosis = diagnose(features(n=40, d=50, seed=1), features(n=60, d=50, seed=2))
    assert only(diagnosis, topic="samples", level="note").text.endswith("singular: source (40)")


# Images


def save(path, size=(40, 30), mode="RGB", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, size=(size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.fixture
def photographs(tmp_path):
    for side, sizes in (("s", [(300, 200), (400, 300), (500, 100)]), ("t", [(256, 256)] * 3)):
        for c in ("cat", "dog"):
            for i, size in enumerate(sizes):
                save(tmp_path / side / c / f"{i}.png", size, seed=100 * ord(c[0]) + 10 * ord(side) + i)
    save(tmp_path / "t" / "dog" / "9.png", mode="RGBA", seed=5)
    save(tmp_path / "t" / "cat" / "8.png", mode="L", seed=6)
    return tmp_path


def test_sizes_and_modes_are_those_of_the_files(photographs):
    diagnosis = diagnose(image_folder(photographs / "s", size=16), image_folder(photographs / "t", size=16))
    pictures = diagnosis.source.pictures
    assert (pictures.widths, pictures.heights) == ((300, 400, 500), (100, 200, 300))
    assert pictures.aspect == 1.5
    assert "one side more than twice the other in the source: 2 of 6" in only(diagnosis, text="twice").text
    assert dict(diagnosis.target.pictures.modes) == {"RGB": 6, "L": 1, "RGBA": 1}
    assert "in the target: 1 of 8" in only(diagnosis, text="transparency").text
    assert diagnosis.settings["network"] == "resnet50"
    assert diagnosis.settings["image_size"] == 224
    assert "300 to 500 x 100 to 300, median 400 x 200 pixels" in str(diagnosis)


def test_files_that_do_not_decode_are_named_and_with_strict_an_error(photographs):
    (photographs / "s" / "cat" / "0.png").write_bytes(b"")
    paths = sorted((photographs / "s").glob("*/*.png"))
    source = Domain("s", ImageFiles(paths), ["cat", "dog"], [0, 0, 0, 1, 1, 1], ids=[p.name for p in paths])
    target = image_folder(photographs / "t")
    finding = only(diagnose(source, target), level="warning", text="cannot be decoded")
    assert "1 of 6: 0.png (the file is empty)" in finding.text
    diagnosis = diagnose(source, target, strict=True)
    assert only(diagnosis, level="error").text == finding.text
    assert diagnosis.to_dict()["source"]["images"]["unreadable"] == [{"file": "0.png", "reason": "the file is empty"}]
    for path in paths:
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="none of the 6 image files of 's' can be decoded"):
        diagnose(source, target)


def test_what_was_said_while_loading_is_a_finding():
    arguments = features(seed=1), features(seed=2)
    assert only(diagnose(*arguments, loading=["3 files are bad"]), topic="loading").level == "warning"
    assert only(diagnose(*arguments, loading=["3 files are bad"], strict=True), topic="loading").level == "error"


def test_progress_counts_the_files_of_each_domain(photographs):
    calls = []
    domains = [image_folder(photographs / side) for side in "st"]
    diagnose(*domains, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(i + 1, 6) for i in range(6)] + [(i + 1, 8) for i in range(8)]


def test_blank_inverted_and_scaled_images():
    blank = changed(images(seed=1), lambda array: array.__setitem__(5, 17))
    assert "in the source: 1 of 40" in only(diagnose(blank, images(seed=2)), text="one value throughout").text
    dark = changed(images(seed=1), lambda array: array.__ifloordiv__(4))
    finding = only(diagnose(dark, images(seed=2)), topic="values", level="note")
    means = [domain.samples.tensor.double().mean() for domain in (dark, images(seed=2))]
    assert finding.text == f"the mean pixel is {means[0]:.0f} in the source and {means[1]:.0f} in the target, of 255"
    ones = changed(images(seed=1), lambda array: array.__ifloordiv__(128))
    assert "multiply by 255" in only(diagnose(ones, images(seed=2)), topic="values", level="warning").remedy


def test_grey_against_colour():
    diagnosis = diagnose(images(seed=1), images(seed=2, shape=(3, 28, 28)))
    assert "100% of the source and 0% of the target are grey" in only(diagnosis, text="grey").text


# Settings


@pytest.mark.parametrize(
    ("source", "target", "network", "size"),
    [
        (images(shape=(1, 28, 28)), images(shape=(1, 16, 16), seed=2), "lenet", 28),
        (images(shape=(3, 32, 32)), images(shape=(3, 8, 8), seed=2), "lenet", 32),
        (images(shape=(3, 33, 33)), images(shape=(3, 8, 8), seed=2), "resnet50", 224),
    ],
)
def test_the_network_follows_the_size_of_the_images(source, target, network, size):
    diagnosis = diagnose(source, target)
    settings = diagnosis.settings
    assert (settings["network"], settings["image_size"]) == (network, size)
    # From random weights a large network learns nothing from a folder of photographs.
    assert ("--weights default" in " ".join(diagnosis.options())) == (network == "resnet50")
    assert settings["batch_size"] == (40 if network == "lenet" else 32)


def test_small_images_for_a_large_network_are_noted():
    diagnosis = diagnose(images(shape=(3, 40, 40)), images(shape=(3, 40, 40), seed=2))
    assert "images of 40 pixels are enlarged to 224" in only(diagnosis, level="note", topic="images").text


def test_the_batch_is_at_most_the_smaller_domain_and_warned_of_where_classes_are_absent():
    many = features(n=2000, k=300, seed=1)
    assert diagnose(many, features(n=3000, k=300, seed=2)).settings["batch_size"] == 1024
    diagnosis = diagnose(many, features(n=500, k=300, seed=2))
    assert diagnosis.settings["batch_size"] == 500
    assert "a batch of 500 holds 1.7 samples of each of 300 classes" in only(diagnosis, topic="batch").text


# The whole


def test_a_diagnosis_reads_well_and_becomes_json():
    diagnosis = diagnose(features("here", seed=1, k=3), features("there", seed=2, k=2))
    assert isinstance(diagnosis, Diagnosis)
    text = str(diagnosis)
    assert text.startswith("source  here: 40 samples of 4 features, 3 classes; values")
    assert "warning  classes     source classes that are not in the target, 1 of 3: c2\n" in text
    assert " -> allow it with --partial" in text
    assert "suggested  --network identity --batch-size 40 --partial" in text
    assert text.endswith("verdict  1 warning")
    read = json.loads(to_json(diagnosis.to_dict()))
    assert read["level"] == "warning"
    assert read["source"]["counts"] == {"c0": 14, "c1": 13, "c2": 13}
    assert read["settings"] == {"network": "identity", "batch_size": 40, "partial": True}
    assert {"level", "topic", "text", "remedy"} == set(read["findings"][0])


def test_many_classes_are_not_listed_one_by_one():
    text = str(diagnose(features(n=400, k=100, seed=1), features(n=400, k=100, seed=2)))
    assert "c57" not in text


def test_every_finding_that_is_not_ok_or_of_labels_has_a_remedy():
    labels = np.array([0] * 38 + [1] * 1 + [2])
    one = features(seed=1, k=3, d=90, labels=labels)
    diagnosis = diagnose(one, features(n=10, d=90, k=2, seed=2, scale=50))
    assert {finding.level for finding in diagnosis.findings} == {"ok", "note", "warning"}
    assert all(finding.remedy for finding in diagnosis.findings if finding.level != "ok")


def test_samples_of_another_kind_are_refused():
    class Stream:
        shape = (3,)

        def __len__(self):
            return 2

        def take(self, index):
            return torch.zeros(len(index), 3)

        def subset(self, index):
            return self

    with pytest.raises(TypeError, match="samples of 'odd' is a Stream; accepted are TensorSamples and ImageFiles"):
        diagnose(Domain("odd", Stream(), ["a"]), features())
