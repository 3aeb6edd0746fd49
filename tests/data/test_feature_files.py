"""Feature files of every kind are read alike; what cannot be read safely is refused with an explanation."""

import os
import pickle
import sys
import unicodedata

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
import torch

from bures.data import (
    Domain,
    ImageFiles,
    LostDigitsWarning,
    TensorSamples,
    align_classes,
    load_domain,
    read_features,
    write_features,
)

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([2, 0, 1, 2, 2, 0])
STRINGS = np.array(["cat", "ant", "bee", "cat", "cat", "ant"])


def features(domain):
    return domain.samples.tensor.numpy()


def savez(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.fixture
def office(tmp_path):
    return savez(
        tmp_path / "office.npz",
        amazon_x=X.astype(np.float16),
        amazon_y=Y.astype(np.uint8),
        amazon_files=np.array([f"{i}.jpg" for i in range(6)]),
        webcam_x=X[:4],
        webcam_y=Y[:4],
        classes=np.array(["backpack", "bike", "mug", "mouse"]),
    )


@pytest.mark.parametrize("keys", [("x", "y"), ("X", "Y"), ("features", "labels"), ("fts", "label")])
def test_npz_with_the_usual_keys(tmp_path, keys):
    domain = read_features(savez(tmp_path / "f.npz", **dict(zip(keys, (X, Y), strict=True))))
    np.testing.assert_allclose(features(domain), X, rtol=1e-6)
    assert domain.labels.tolist() == Y.tolist()
    assert domain.class_names == ("0", "1", "2")
    assert domain.name == "f"


def test_npz_with_keys_of_the_users_choice(tmp_path):
    path = savez(tmp_path / "f.npz", a=X, b=Y, other=X)
    assert read_features(path, x_key="a", y_key="b").labels.tolist() == Y.tolist()
    with pytest.raises(ValueError, match="choose one of its keys with x_key=: 'a', 'b', 'other'"):
        read_features(path)
    with pytest.raises(ValueError, match=r"x_key='z' is not in .*; it holds the keys 'a', 'b', 'other'"):
        read_features(path, x_key="z")
    with pytest.raises(ValueError, match="y_key='z' is not in"):
        read_features(path, x_key="a", y_key="z")


def test_a_file_of_several_domains(office):
    domain = read_features(office, domain="amazon")
    assert domain.name == "amazon"
    assert domain.class_names == ("backpack", "bike", "mug", "mouse")
    assert domain.counts().tolist() == [2, 1, 3, 0]
    assert domain.ids[1] == "1.jpg"
    assert read_features(office, domain="webcam").ids is None
    with pytest.raises(ValueError, match="holds several domains; choose one with domain=: amazon, webcam"):
        read_features(office)
    with pytest.raises(ValueError, match=r"domain='dslr' is not in .*; the domains there are amazon, webcam"):
        read_features(office, domain="dslr")


def test_the_only_domain_and_the_only_array_need_no_name(tmp_path):
    only = read_features(savez(tmp_path / "a.npz", dslr_x=X, dslr_y=Y))
    assert only.name == "dslr"
    assert only.labels.tolist() == Y.tolist()
    assert len(read_features(savez(tmp_path / "b.npz", whatever=X))) == 6


def test_npy_is_unlabelled(tmp_path):
    np.save(tmp_path / "f.npy", X)
    domain = read_features(tmp_path / "f.npy")
    np.testing.assert_allclose(features(domain), X, rtol=1e-6)
    assert domain.labels is None
    assert domain.class_names == ()
    with pytest.raises(ValueError, match="y_key='y' has no meaning"):
        read_features(tmp_path / "f.npy", y_key="y")


def test_images_in_a_feature_file_stay_bytes(tmp_path):
    path = savez(tmp_path / "f.npz", x=np.zeros((2, 3, 4, 4), dtype=np.uint8))
    assert read_features(path).samples.tensor.dtype == torch.uint8


@pytest.mark.parametrize("keys", [("fts", "labels"), ("X", "Y")])
def test_mat_counts_from_one_and_stores_columns(tmp_path, keys):
    scipy.io.savemat(tmp_path / "f.mat", {keys[0]: X, keys[1]: Y[:, None] + 1.0})
    domain = read_features(tmp_path / "f.mat")
    np.testing.assert_allclose(features(domain), X, rtol=1e-6)
    assert domain.class_names == ("1", "2", "3")
    assert domain.labels.tolist() == Y.tolist()


def test_mat_with_cells_of_strings(tmp_path):
    scipy.io.savemat(tmp_path / "f.mat", {"x": X, "y": STRINGS.astype(object)})
    domain = read_features(tmp_path / "f.mat")
    assert domain.class_names == ("ant", "bee", "cat")
    assert domain.labels.tolist() == [2, 0, 1, 2, 2, 0]


def test_mat_of_version_7_3_says_how_to_save_it(tmp_path):
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    (tmp_path / "f.mat").write_bytes(header + b"\x89HDF\r\n\x1a\n" + bytes(400))
    with pytest.raises(ValueError, match=r"version 7\.3 \(HDF5\).*save\(\.\.\., '-v7'\)"):
        read_features(tmp_path / "f.mat")


def table(**more):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], **more})


@pytest.mark.parametrize("column", ["label", "class", "y", "Target"])
def test_csv_with_a_label_column_of_strings(tmp_path, column):
    table(**{column: STRINGS}).to_csv(tmp_path / "f.csv", index=False)
    domain = read_features(tmp_path / "f.csv")
    np.testing.assert_allclose(features(domain), X, rtol=1e-6)
    assert domain.class_names == ("ant", "bee", "cat")
    assert domain.labels.tolist() == [2, 0, 1, 2, 2, 0]


def test_csv_with_integers_counts_in_their_order(tmp_path):
    table(label=[10, 2, 2, 10, 1, 1]).to_csv(tmp_path / "f.csv", index=False)
    domain = read_features(tmp_path / "f.csv")
    assert domain.class_names == ("1", "2", "10")
    assert domain.labels.tolist() == [2, 1, 1, 2, 0, 0]


def test_the_index_of_pandas_and_file_names_are_no_features(tmp_path):
    table(label=Y).to_csv(tmp_path / "a.csv")
    domain = read_features(tmp_path / "a.csv")
    assert domain.samples.shape == (3,)
    assert domain.ids == tuple("012345")
    table(file=[f"{i}.jpg" for i in range(6)]).to_csv(tmp_path / "b.csv", index=False)
    domain = read_features(tmp_path / "b.csv")
    assert domain.samples.shape == (3,)
    assert domain.ids[5] == "5.jpg"
    assert domain.labels is None


def test_csv_whose_columns_are_numbered_has_a_header_and_one_of_data_has_not(tmp_path):
    pd.DataFrame(X).to_csv(tmp_path / "a.csv", index=False)
    assert read_features(tmp_path / "a.csv").samples.shape == (3,)
    pd.DataFrame(X).to_csv(tmp_path / "b.csv", index=False, header=False)
    with pytest.raises(ValueError, match="has no header: its first line is numbers"):
        read_features(tmp_path / "b.csv")


@pytest.mark.parametrize(
    "rows",
    [
        "1.0,2.0,3.0\n4.0,5.0,6.0\n",
        "0,2.0,3.0\n1,5.0,6.0\n2,8.0,9.0\n",  # pandas has one kind of index for these and for no names at all
        "\n7,2.0,3.0\n9,5.0,6.0\n",
        "0,2.0,\n1,5.0,\n",
        ",,\n1,5.0,\n",
    ],
)
def test_csv_with_more_values_than_names_is_refused(tmp_path, rows):
    (tmp_path / "a.csv").write_text(f"width,length\n{rows}")
    with pytest.raises(ValueError, match=r"a\.csv: its header names 2 columns but its rows have 3 values; give every"):
        read_features(tmp_path / "a.csv")


def test_csv_columns_that_cannot_be_used_are_named(tmp_path):
    table(colour=STRINGS).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="column 'colour' is not numeric"):
        read_features(tmp_path / "a.csv")
    assert read_features(tmp_path / "a.csv", y_key="colour").n_classes == 3
    table(y=Y, label=Y).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match="several label columns: 'y', 'label'; remove or rename all but one"):
        read_features(tmp_path / "b.csv")
    with pytest.raises(ValueError, match=r"y_key='z' is not in .*; it holds the columns 'a'"):
        read_features(tmp_path / "b.csv", y_key="z")


def test_missing_labels_are_named(tmp_path):
    table(label=["a", None, "b", "a", None, "b"]).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=r"label of row 1 is missing \(2 such rows of 6\)"):
        read_features(tmp_path / "a.csv")
    (tmp_path / "none.csv").write_text("width,label\n1,cat\n2,None\n")
    with pytest.raises(ValueError, match=r"row 1 is missing .*; in a table NA, None, null and the like stand for that"):
        read_features(tmp_path / "none.csv")
    table(label=[0, 1, None, 1, 0, 1]).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match="label of row 2 is missing"):
        read_features(tmp_path / "b.csv")
    table(label=[0.0, 1.5, 2, 1, 0, 1]).to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(ValueError, match=r"label of row 1 is 1\.5, which is no class"):
        read_features(tmp_path / "c.csv")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_labels_in_floating_point_are_whole_numbers_that_it_tells_apart(tmp_path, dtype):
    np.savez(tmp_path / "a.npz", x=X, y=Y.astype(dtype))
    assert read_features(tmp_path / "a.npz").labels.tolist() == Y.tolist()
    if dtype != np.float16:
        np.savez(tmp_path / "b.npz", x=X, y=(Y + 1).astype(dtype) * dtype(1e19))  # all of them became one class
        with pytest.raises(ValueError, match=r"b\.npz: the label of row 0 is .*e\+19, which is no class \(6 such rows"):
            read_features(tmp_path / "b.npz")


@pytest.mark.parametrize("kind", ["string", "category", "object"])
def test_missing_labels_of_a_typed_column_are_named(tmp_path, kind):
    pytest.importorskip("pyarrow")
    labels = pd.Series(["a", None, "b", "a", None, "b"], dtype=kind)
    table(label=labels).to_parquet(tmp_path / "f.parquet")
    with pytest.raises(ValueError, match=r"f\.parquet: the label of row 1 is missing \(2 such rows of 6\)"):
        read_features(tmp_path / "f.parquet")
    assert read_features(tmp_path / "f.parquet", labels=False).labels is None


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "f.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow; install the extra: pip install 'bures\[parquet\]'"):
        read_features(tmp_path / "f.parquet")


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    table(label=STRINGS).to_parquet(tmp_path / "f.parquet")
    domain = read_features(tmp_path / "f.parquet")
    np.testing.assert_allclose(features(domain), X, rtol=1e-6)
    assert domain.class_names == ("ant", "bee", "cat")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match="cannot be read"):
        read_features(tmp_path / "bad.parquet")


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["npz", "npy", "pickle.npz", "pickle.npy"])
def test_pickled_content_is_refused_and_never_run(tmp_path, kind):
    trap, path = tmp_path / "trap", tmp_path / f"f.{kind}"
    content = np.array([Bomb(trap)], dtype=object)
    if kind == "npz":
        np.savez(path, x=content)
    elif kind == "npy":
        np.save(path, content)
    else:
        path.write_bytes(pickle.dumps(Bomb(trap)))
    with pytest.raises(ValueError, match=r"holds pickled Python objects|cannot be read as"):
        read_features(path)
    assert not trap.exists()


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".mat", ".csv"])
@pytest.mark.parametrize("content", [b"", b"garbage \x00\xff" * 20])
def test_damaged_files_are_named(tmp_path, suffix, content):
    path = tmp_path / f"f{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"f{suffix}"):
        read_features(path)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_truncated_files_are_named(tmp_path, share):
    for suffix in (".npz", ".npy", ".mat"):
        path = tmp_path / f"f{suffix}"
        if suffix == ".mat":
            scipy.io.savemat(path, {"x": X, "y": Y}, do_compression=True)
        elif suffix == ".npz":
            np.savez_compressed(path, x=X, y=Y)
        else:
            np.save(path, X)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match=f"f{suffix}"):
            read_features(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "y": Y[:4]}, "there are 4 labels for 6 samples"),
        ({"x": X[0], "y": Y}, r"the features have shape \(3,\)"),
        ({"x": STRINGS[:, None]}, "the features have dtype"),
        (
            {"x": np.where(np.arange(6)[:, None] == 2, np.nan, X)},
            r"the features contain NaN or infinity in 1 of 6 rows \(row 2,",
        ),
        ({"x": X[:0]}, "is empty"),
        ({"x": X, "y": Y, "classes": ["a", "b"]}, "labels contains class 2 but class_names has 2 entries"),
        ({"x": X, "y": STRINGS, "classes": ["ant", "bee"]}, "'cat' is not among the 2 names under 'classes'"),
        ({"x": X, "y": Y, "classes": ["a", "b", "a"]}, "more than once"),
        ({"x": X, "y": np.array([b"\xe9t\xe9", b"a"] * 3)}, r"b'\\xe9t\\xe9' is no text in UTF-8"),
        ({"x": np.zeros((6, 28, 20, 3), np.uint8)}, r"images of shape \(28, 20, 3\), .* accepted is \(C, H, W\)"),
        ({"x": np.zeros((6, 8, 8, 1), np.uint8)}, r"images of shape \(8, 8, 1\), .* accepted is \(C, H, W\)"),
    ],
)
def test_content_that_is_no_domain_is_refused_with_the_file_named(tmp_path, arrays, message):
    path = savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(ValueError, match=rf"odd\.npz.*{message}"):
        read_features(path)


def test_files_under_the_wrong_suffix_say_so(tmp_path):
    with open(tmp_path / "f.npz", "wb") as stream:
        np.save(stream, X)
    with pytest.raises(ValueError, match="holds one array"):
        read_features(tmp_path / "f.npz")
    with open(tmp_path / "f.npy", "wb") as stream:
        np.savez(stream, x=X)
    with pytest.raises(ValueError, match="holds several arrays"):
        read_features(tmp_path / "f.npy")


def test_unknown_suffixes_and_missing_files(tmp_path):
    with pytest.raises(ValueError, match=r"ends in '\.pkl'; accepted are \.npz, \.npy, \.mat, \.csv, \.parquet"):
        read_features(tmp_path / "f.pkl")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        read_features(tmp_path / "f.npz")


@pytest.mark.parametrize("labelled", [True, False])
def test_what_is_written_is_read_back(tmp_path, labelled):
    names, labels, ids = (("ä", "b", "c"), Y, list("uvwxyz")) if labelled else ((), None, None)
    domain = Domain("here", TensorSamples(X), names, labels, ids)
    path = write_features(tmp_path / "f.npz", domain)
    again = read_features(path)
    assert torch.equal(again.samples.tensor, domain.samples.tensor)
    assert (again.name, again.class_names, again.ids) == (domain.name, domain.class_names, domain.ids)
    if labelled:
        assert torch.equal(again.labels, domain.labels)
    assert [file.name for file in tmp_path.iterdir()] == ["f.npz"]


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    domain = Domain("here", TensorSamples(X), ("a", "b", "c"), Y)
    path = write_features(tmp_path / "f.npz", domain)
    before = path.read_bytes()

    def full(stream, **arrays):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        write_features(path, domain)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["f.npz"]


def test_only_npz_and_samples_in_memory_are_written(tmp_path):
    domain = Domain("here", TensorSamples(X), ("a", "b", "c"), Y)
    with pytest.raises(ValueError, match=r"ends in '\.csv'; features are written to \.npz"):
        write_features(tmp_path / "f.csv", domain)
    with pytest.raises(TypeError, match=r"domain\.samples is a ImageFiles"):
        write_features(tmp_path / "f.npz", Domain("here", ImageFiles(["a.png"]), ()))


def written(path, text):
    path.write_text(text)
    return path


def test_a_table_has_the_names_of_its_feature_columns(tmp_path):
    path = written(tmp_path / "f.csv", "id, width,label,length \n7,1,cat,2\n8,3,dog,4\n")
    assert read_features(path).feature_names == ("width", "length")
    assert read_features(savez(tmp_path / "f.npz", x=X)).feature_names is None
    repeated = read_features(written(tmp_path / "g.csv", "a,a,b\n1,2,3\n"))  # pandas numbers them
    assert len(set(repeated.feature_names)) == 3
    pytest.importorskip("pyarrow")
    table(label=STRINGS).to_parquet(tmp_path / "f.parquet")
    assert read_features(tmp_path / "f.parquet").feature_names == ("a", "b", "c")


IDS = ["00001", "12345678901234567", "", "NA", " x ", "1e5"]


@pytest.mark.parametrize("column", ["id", "File", ""])
def test_names_of_samples_are_read_as_they_are_written(tmp_path, column):
    rows = "".join(f"{name},{i},cat\n" for i, name in enumerate(IDS))
    domain = read_features(written(tmp_path / "f.csv", f"{column},a,label\n{rows}"))
    assert domain.ids == tuple(IDS)
    assert features(domain).ravel().tolist() == list(range(6))


def test_lines_that_end_in_a_comma_name_no_samples(tmp_path):
    (tmp_path / "a.csv").write_text("width,label,\n1.0,cat,\n2.0,dog,\n")
    domain = read_features(tmp_path / "a.csv")
    assert (domain.ids, domain.feature_names, domain.class_names) == (None, ("width",), ("cat", "dog"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.array([2**60 + 1, None, 3, 4, 5, 6], dtype="Int64"), (str(2**60 + 1), "", "3", "4", "5", "6")),
        (np.arange(6) + 2**60, tuple(str(2**60 + i) for i in range(6))),
        (["007", None, "NA", "a ", "b", "c"], ("007", "", "NA", "a ", "b", "c")),
    ],
)
def test_names_of_samples_in_parquet_keep_all_digits(tmp_path, values, expected):
    pytest.importorskip("pyarrow")
    table(id=values).to_parquet(tmp_path / "f.parquet")
    assert read_features(tmp_path / "f.parquet").ids == expected


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("1 01 10", ("01", "1", "10")),
        ("1E2 100 3", ("100", "1E2", "3")),
        ("+1 1 2", ("+1", "1", "2")),
        ("1_0 10 2", ("10", "1_0", "2")),
        ("True true TRUE", ("TRUE", "True", "true")),
        ("2 10 1", ("1", "2", "10")),  # whole numbers, in their order
        ("-1 0 1", ("-1", "0", "1")),
        ("2.0 10.0 1.0", ("1", "2", "10")),  # as pandas writes them where some were missing
        ("10 2.0 1", ("1", "2", "10")),
        ("90071992547409931 90071992547409932 1", ("1", "90071992547409931", "90071992547409932")),
        ("123456789012345678901 5 6", ("123456789012345678901", "5", "6")),  # beyond an int64
    ],
)
def test_labels_of_a_csv_are_different_where_their_texts_are(tmp_path, labels, names):
    rows = "".join(f"{i},{label}\n" for i, label in enumerate(labels.split()))
    domain = read_features(written(tmp_path / "f.csv", f"a,label\n{rows}"))
    assert domain.class_names == names
    given = [label.removesuffix(".0") for label in labels.split()]
    assert [domain.class_names[label] for label in domain.labels] == given


def test_blanks_around_whole_numbers_do_not_matter(tmp_path):
    domain = read_features(written(tmp_path / "f.csv", "a, label\n1, 10\n2, 2\n3,2\n"))
    assert domain.class_names == ("2", "10")
    assert domain.labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize("labels", ["0.5 1e-05 2", "1 2 0.25", "inf 1 2"])
def test_measurements_are_no_classes(tmp_path, labels):
    rows = "".join(f"{i},{label}\n" for i, label in enumerate(labels.split()))
    with pytest.raises(ValueError, match=r"the label of row [02] is (0\.5, which is no class|0\.25|missing or inf)"):
        read_features(written(tmp_path / "f.csv", f"a,label\n{rows}"))


@pytest.mark.parametrize("empty", ["", " ", "NA"])
def test_an_empty_column_of_labels_is_none(tmp_path, empty):
    domain = read_features(written(tmp_path / "f.csv", f"a,label\n1,{empty}\n2,{empty}\n"))
    assert domain.labels is None
    assert domain.class_names == ()
    assert domain.samples.shape == (1,)


@pytest.mark.parametrize("kind", ["float64", "object", "string"])
def test_an_empty_column_of_labels_in_parquet_is_none(tmp_path, kind):
    pytest.importorskip("pyarrow")
    table(label=pd.Series([None] * 6, dtype=kind)).to_parquet(tmp_path / "f.parquet")
    assert read_features(tmp_path / "f.parquet").labels is None


def test_a_header_without_rows_is_told(tmp_path):
    for name, text in (("a", "a,b,label\n"), ("b", "a,b\n\n")):
        with pytest.raises(ValueError, match=rf"{name}\.csv has names of columns but no rows"):
            read_features(written(tmp_path / f"{name}.csv", text))


def test_a_table_without_features_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"f\.csv has no column of features: 'id', 'label' hold labels or ids"):
        read_features(written(tmp_path / "f.csv", "id,label\n1,cat\n"))


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_part_columns_where_there_is_no_comma(tmp_path, separator):
    table(label=STRINGS, id=range(6)).to_csv(tmp_path / "f.csv", index=False, sep=separator)
    domain = read_features(tmp_path / "f.csv")
    np.testing.assert_allclose(features(domain), X, rtol=1e-6)
    assert domain.feature_names == ("a", "b", "c")
    assert domain.class_names == ("ant", "bee", "cat")
    assert domain.ids == tuple("012345")


def test_decimal_commas_are_told(tmp_path):
    table(label=STRINGS).to_csv(tmp_path / "f.csv", index=False, sep=";", decimal=",")
    with pytest.raises(
        ValueError, match=r"column 'a' is not numeric \(first such value '\S+,\d+'\); decimal commas are"
    ):
        read_features(tmp_path / "f.csv")


def test_what_is_said_of_labels_helps_in_a_command_too(tmp_path):
    path = written(tmp_path / "f.csv", "a,species\n1,cat\n2,dog\n")
    with pytest.raises(
        ValueError, match=r"'species' .* value 'cat'\).*If it is the label, rename it to one of 'label'"
    ):
        read_features(path)
    path = written(tmp_path / "g.csv", "a,label,label\n1,cat,cat\n2,dog,dog\n")
    with pytest.raises(ValueError, match=r"several label columns: 'label', 'label'; remove or rename all but one"):
        read_features(path)
    path = written(tmp_path / "h.csv", "a\n1\n2\n?\n")
    with pytest.raises(ValueError, match=r"column 'a' is not numeric \(first such value '\?'\)"):
        read_features(path)


@pytest.mark.parametrize(("suffix", "named"), [(".npz", r"1 \(counted from 0\)"), (".csv", "'time'")])
def test_differences_that_float32_rounds_away_are_told(tmp_path, suffix, named):
    rng = np.random.default_rng(0)
    steps = rng.normal(scale=60.0, size=50)
    for offset, lost in ((0.0, False), (1e6, False), (1.7e9, True), (-1.7e9, True)):
        x = np.column_stack([rng.normal(size=50), offset + steps])
        file = tmp_path / f"times{suffix}"
        if suffix == ".npz":
            np.savez(file, x=x)
        else:
            np.savetxt(file, x, delimiter=",", header="width,time", comments="")
        if lost:
            with pytest.warns(LostDigitsWarning, match=f"times.*the values of column {named}, near .*1.7e.09, differ"):
                read_features(file)
            with pytest.raises(ValueError, match=f"times.*the values of column {named}, near .*1.7e.09, differ"):
                load_domain(file, strict=True)
        else:  # warnings are errors in these tests
            rounded = features(read_features(file)).astype(float)
            assert np.abs(rounded - x)[:, 1].max() < 0.1 * steps.std()


@pytest.mark.parametrize(
    "column",
    [
        np.full(20, 0.1) * (1 + 1e-15 * np.arange(20)),  # a constant, but for its last digits
        1.7e9 + 1024 * np.arange(20),  # float32 has these numbers
        np.where(np.arange(20) == 3, 0.0, 1.7e9),  # one of them is far away
        np.full(20, 2**40),
    ],
)
def test_columns_of_which_float32_keeps_what_there_is_are_read_in_silence(tmp_path, column):
    np.savez(tmp_path / "x.npz", x=np.column_stack([column, np.arange(20)]))
    assert read_features(tmp_path / "x.npz").samples.shape == (2,)


def test_blanks_around_the_labels_of_a_csv_are_no_part_of_them(tmp_path):
    (tmp_path / "spaced.csv").write_text("a, b, label\n1, 2, cat\n3, 4,cat \n5, 6, big dog\n7, 8,cat\n")
    domain = read_features(tmp_path / "spaced.csv")
    assert domain.class_names == ("big dog", "cat")
    assert domain.labels.tolist() == [1, 1, 0, 1]
    assert domain.feature_names == ("a", "b")


@pytest.mark.parametrize("key", ["x", "y"])
def test_sparse_matrices_of_matlab_are_refused_with_the_remedy(tmp_path, key):
    arrays = {"x": X, "y": Y[:, None].astype(float)}
    scipy.io.savemat(tmp_path / "s.mat", {**arrays, key: scipy.sparse.csc_matrix(arrays[key])})
    with pytest.raises(
        ValueError, match=rf"s.mat: '{key}' is a sparse matrix; accepted are dense ones: .*full\({key}\)"
    ):
        read_features(tmp_path / "s.mat")


@pytest.mark.parametrize(
    ("index", "ids"),
    [
        (pd.Index(["p", "q", None], name="patient"), ("p", "q", "")),
        (pd.Index([7, 0, 3]), ("7", "0", "3")),
        (pd.RangeIndex(3), None),
    ],
)
def test_the_index_of_a_parquet_file_names_the_samples(tmp_path, index, ids):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "label": ["cat", "dog", "cat"]}, index=index)
    table.to_parquet(tmp_path / "t.parquet")
    domain = read_features(tmp_path / "t.parquet")
    assert domain.ids == ids
    assert domain.feature_names == ("a",)
    table.assign(file=["x.png", "y.png", "z.png"]).to_parquet(tmp_path / "t.parquet")
    assert read_features(tmp_path / "t.parquet").ids == ("x.png", "y.png", "z.png")


@pytest.mark.parametrize(("encoding", "byte"), [("latin-1", 13), ("utf-16", 0)])
def test_a_table_in_another_encoding_is_told_what_to_do(tmp_path, encoding, byte):
    file = tmp_path / "table.csv"
    file.write_text("a,label\n1,caf\N{LATIN SMALL LETTER E WITH ACUTE}\n", encoding=encoding)
    with pytest.raises(
        ValueError,
        match=rf"table\.csv cannot be read as \.csv: it is not in UTF-8 \(byte {byte} is none of it\); save it with",
    ):
        read_features(file)


def test_names_that_look_the_same_are_the_same_class_whichever_system_wrote_them(tmp_path):
    one, two = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))
    assert one != two
    (tmp_path / "here.csv").write_text(f"width,label\n1.0,{one}\n2.0,dog\n", encoding="utf-8")
    (tmp_path / "there.csv").write_text(f"width,label\n1.0,{two}\n2.0,dog\n3.0,{one}\n", encoding="utf-8")
    np.savez(tmp_path / "named.npz", x=X[:2], y=[0, 1], classes=[two, "dog"])
    here, there, named = (read_features(tmp_path / name) for name in ("here.csv", "there.csv", "named.npz"))
    assert here.class_names == there.class_names == (one, "dog")
    assert align_classes(here, there).labels.tolist() == [0, 1, 0]
    assert align_classes(here, named).labels.tolist() == [0, 1]
    assert Domain("d", TensorSamples(X), [two], labels=[0] * 6).class_names == (one,)
