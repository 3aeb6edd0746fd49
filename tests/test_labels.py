"""The conditioning variable: how it is read, how classes are numbered, and what agrees with what."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import bures
from bures.labels import Labels, class_prior_weights, read_labels

N, M, K = 9, 8, 3
RNG = np.random.default_rng(0)
XS, XT = RNG.normal(size=(N, 2)), RNG.normal(size=(M, 2)) * 2
YS, YT = np.arange(N) % K, np.arange(M)[::-1] % K
PS, PT = RNG.dirichlet(np.ones(K), size=N), RNG.dirichlet(np.ones(K), size=M)
EYE = np.eye(K)


def read(ys, yt, conditioning=None) -> tuple[Labels, Labels]:
    return read_labels(ys, yt, conditioning, len(ys), len(yt), like=torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize(
    ("ys", "yt", "conditioning", "kinds"),
    [
        (YS, YT, None, ("hard", "hard")),
        (PS, PT, None, ("soft", "soft")),
        (YS, PT, None, ("hard", "soft")),
        (PS, YT, None, ("soft", "hard")),
        (EYE[YS], EYE[YT], None, ("soft", "soft")),
        (EYE[YS].astype(int), EYE[YT].astype(int), None, ("soft", "soft")),
        (PS, PT, "hard", ("hard", "hard")),
        (PS, PT, ("soft", "hard"), ("soft", "hard")),
        (YS, PT, "soft", ("soft", "soft")),
        (YS, YT, "soft", ("soft", "soft")),
        (YS, YT, "continuous", ("continuous", "continuous")),
        (XS[:, 0], XT[:, 0], "continuous", ("continuous", "continuous")),
        (XS, XT, "continuous", ("continuous", "continuous")),
        (PS, PT, "continuous", ("continuous", "continuous")),
        (YS.astype(float), YT.astype(float), "hard", ("hard", "hard")),
        (YS.astype(str), YT.astype(str), None, ("hard", "hard")),
        (YS > 0, YT > 0, None, ("hard", "hard")),
        (PS, PT, ["hard", "soft"], ("hard", "soft")),
    ],
)
@pytest.mark.parametrize("language", ["numpy", "torch"])
def test_kind_is_read_from_shape_and_dtype_unless_declared(ys, yt, conditioning, kinds, language):
    if language == "torch" and ys.dtype.kind != "U":
        ys, yt = torch.as_tensor(ys), torch.as_tensor(yt)
    source, target = read(ys, yt, conditioning)
    assert (source.kind, target.kind) == kinds
    assert (len(source), len(target)) == (N, M)
    assert (source.n_classes is None) == (kinds[0] == "continuous")


def test_classes_are_the_sorted_union_of_both_domains():
    source, target = read(np.array([10, 30, 10]), np.array([20, 30]))
    assert source.class_names() == target.class_names() == [10, 20, 30]
    assert source.values.tolist() == [0, 2, 0]
    assert target.values.tolist() == [1, 2]
    assert source.membership().tolist() == [[1, 0, 0], [0, 0, 1], [1, 0, 0]]


def test_negative_and_large_class_numbers_are_names():
    source, target = read(torch.tensor([-5, 2**40]), torch.tensor([2**40]))
    assert source.class_names() == [-5, 2**40]
    assert target.values.tolist() == [1]


def test_columns_are_classes_beside_a_matrix_whether_present_or_not():
    source, target = read(np.array([0, 0, 1]), PT)
    assert source.n_classes == target.n_classes == K
    assert source.class_names() == [0, 1, 2]
    assert source.membership().tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_continuous_values_have_no_classes():
    source, _ = read(XS[:, 0], XT[:, 0], "continuous")
    assert source.rows().shape == (N, 1)
    assert source.class_names() == []
    with pytest.raises(ValueError, match="no classes"):
        source.membership()


def test_labels_of_some_samples():
    source, _ = read(np.array(["a", "b", "c"]), np.array(["a"]))
    part = source.take(torch.tensor([2, 0]))
    assert part.values.tolist() == [2, 0]
    assert (part.kind, part.n_classes, part.class_names()) == ("hard", 3, ["a", "b", "c"])


ALIKE = {
    "strings": (np.array(["ape", "bee", "cow"])[YS], np.array(["ape", "bee", "cow"])[YT]),
    "objects": (np.array(["ape", "bee", "cow"], dtype=object)[YS], np.array(["ape", "bee", "cow"], dtype=object)[YT]),
    "bytes": (np.array([b"ape", b"bee", b"cow"])[YS], np.array([b"ape", b"bee", b"cow"])[YT]),
    "lists": (YS.tolist(), YT.tolist()),
    "list-of-strings": ([f"c{y}" for y in YS], [f"c{y}" for y in YT]),
    "categorical": (pd.Categorical.from_codes(YS, list("xyz")), pd.Categorical.from_codes(YT, list("xyz"))),
    "categorical-series": (pd.Series(YS, dtype="category"), pd.Series(YT, dtype="category")),
    "string-series": (pd.Series([f"c{y}" for y in YS]), pd.Series([f"c{y}" for y in YT])),
    "uint8": (YS.astype(np.uint8), YT.astype(np.uint8)),
    "other-numbers": (10 * YS - 7, 10 * YT - 7),
}
if hasattr(np.dtypes, "StringDType"):  # NumPy 2
    ALIKE["variable-width-strings"] = tuple(
        np.array([f"c{y}" for y in ys], dtype=np.dtypes.StringDType()) for ys in (YS, YT)
    )


@pytest.mark.parametrize("names", ALIKE)
@pytest.mark.parametrize("metric", [bures.ckb, bures.ckw], ids=["ckb", "ckw"])
def test_what_classes_are_called_does_not_matter(metric, names):
    assert metric(XS, ALIKE[names][0], XT, ALIKE[names][1]) == pytest.approx(metric(XS, YS, XT, YT), rel=1e-12)


def test_declared_float_classes_are_hard_classes():
    expected = bures.ckb(XS, YS, XT, YT)
    assert bures.ckb(XS, YS.astype(float), XT, YT.astype(float), conditioning="hard") == expected
    tensors = [torch.as_tensor(a) for a in (XS, YS.astype(float), XT, YT.astype(float))]
    assert bures.ckb(*tensors, conditioning="hard").item() == pytest.approx(expected, rel=1e-12)


def test_booleans_are_two_classes():
    expected = bures.ckb(XS, (YS > 0).astype(int), XT, (YT > 0).astype(int))
    assert bures.ckb(XS, YS > 0, XT, YT > 0) == expected
    tensors = [torch.as_tensor(a) for a in (XS, YS > 0, XT, YT > 0)]
    assert bures.ckb(*tensors).item() == pytest.approx(expected, rel=1e-12)


def test_class_names_may_stand_beside_tensors():
    names = np.array(["ape", "bee", "cow"])
    value = bures.ckb(torch.as_tensor(XS), names[YS], torch.as_tensor(XT), names[YT].tolist())
    assert value.item() == pytest.approx(bures.ckb(XS, YS, XT, YT), rel=1e-12)


@pytest.mark.parametrize("metric", [bures.ckb, bures.ckw], ids=["ckb", "ckw"])
@pytest.mark.parametrize("eps", [1e-6, 1e-3, 1e-2, 1.0])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_kernel": "laplacian"},
        {"label_kernel": "linear"},
        {"label_bandwidth": "median"},
        {"label_bandwidth": 0.7},
        {"prior": "uniform"},
    ],
    ids=str,
)
def test_one_hot_rows_agree_with_hard_classes(metric, eps, options):
    hard = metric(XS, YS, XT, YT, eps=eps, **options)
    size = bures.explain(XS, YS, XT, YT, eps=eps, n_permutations=0, n_bootstrap=0, **options).trace_s
    # One is a low-rank formula, the other a Cholesky factor of condition 1 / eps: rounding grows with it.
    tolerance = max(1e-12, 1e-16 / eps) * max(hard, size)
    for ys, yt in ((EYE[YS], EYE[YT]), (YS, EYE[YT]), (EYE[YS], YT)):
        assert abs(metric(XS, ys, XT, yt, eps=eps, **options) - hard) <= tolerance


def test_rows_declared_hard_are_their_most_probable_class():
    expected = bures.ckb(XS, PS.argmax(1), XT, PT.argmax(1))
    assert bures.ckb(XS, PS, XT, PT, conditioning="hard") == expected
    assert bures.ckb(XS, PS, XT, PT) != pytest.approx(expected, rel=1e-3)


def test_class_numbers_declared_soft_are_one_hot_rows():
    assert bures.ckb(XS, YS, XT, YT, conditioning="soft") == bures.ckb(XS, EYE[YS], XT, EYE[YT])


def test_a_continuous_vector_is_a_matrix_of_one_column():
    vector = bures.ckb(XS, XS[:, 0], XT, XT[:, 0], conditioning="continuous")
    assert bures.ckb(XS, XS[:, :1], XT, XT[:, :1], conditioning="continuous") == vector


def test_integers_declared_continuous_are_not_classes():
    continuous = bures.ckb(XS, YS, XT, YT, conditioning="continuous")
    assert continuous == bures.ckb(XS, YS.astype(float), XT, YT.astype(float), conditioning="continuous")
    assert continuous != pytest.approx(bures.ckb(XS, YS, XT, YT), rel=1e-3)


def test_probabilities_rounded_to_float32_or_four_digits_are_accepted():
    expected = bures.ckb(XS, PS, XT, PT)
    assert bures.ckb(XS, PS.astype(np.float32), XT, PT.astype(np.float32)) == pytest.approx(expected, rel=1e-5)
    written = [np.column_stack([p[:, :2].round(4), 1 - p[:, :2].sum(1).round(4)]) for p in (PS, PT)]
    assert bures.ckb(XS, written[0], XT, written[1]) == pytest.approx(expected, rel=1e-2)


def test_no_gradient_reaches_the_labels():
    p = torch.as_tensor(PT).requires_grad_()
    x = torch.as_tensor(XT).requires_grad_()
    bures.ckb(torch.as_tensor(XS), torch.as_tensor(PS), x, p).backward()
    assert p.grad is None
    assert bool(x.grad.any())


def test_prior_weights_give_both_domains_the_wanted_frequencies():
    source, target = read(np.array([0, 0, 0, 1]), np.array([0, 1, 1]))
    ws, wt = (torch.full((n,), 1 / n, dtype=torch.float64) for n in (4, 3))
    for prior, wanted in (
        ("source", [0.75, 0.25]),
        ("target", [1 / 3, 2 / 3]),
        ("uniform", [0.5, 0.5]),
        ([0.1, 0.9], [0.1, 0.9]),
    ):
        new_s, new_t, frequencies = class_prior_weights(source, target, ws, wt, prior)
        assert frequencies.tolist() == pytest.approx(wanted)
        assert (new_s @ source.membership()).tolist() == pytest.approx(wanted)
        assert (new_t @ target.membership()).tolist() == pytest.approx(wanted)


def test_a_prior_of_zero_leaves_a_class_out():
    keep_s, keep_t = YS != 2, YT != 2
    left_out = bures.ckb(XS, YS, XT, YT, prior=[0.5, 0.5, 0.0], bandwidth=2.0, label_bandwidth=1.0)
    without = bures.ckb(
        XS[keep_s], YS[keep_s], XT[keep_t], YT[keep_t], prior="uniform", bandwidth=2.0, label_bandwidth=1.0
    )
    assert left_out == pytest.approx(without, rel=1e-9)


@pytest.mark.parametrize(
    ("y", "conditioning", "resolution"),
    [
        (YS, None, 0.0),
        (torch.as_tensor(YS), None, 0.0),
        (YS, "soft", 0.0),
        (PS, "hard", 0.0),
        (PS.astype(np.float32), None, 2.0**-23),
        (torch.as_tensor(PS), None, 2.0**-52),
        (torch.as_tensor(XS[:, 0]).float(), "continuous", 2.0**-23),
        (torch.as_tensor(YS), "continuous", 0.0),
        (YS, "continuous", 0.0),
    ],
)
def test_resolution_is_the_rounding_of_the_numbers_as_they_came(y, conditioning, resolution):
    assert [side.resolution for side in read(y, y, conditioning)] == [resolution, resolution]


def test_rows_declared_hard_name_all_their_columns_as_classes():
    never_the_second = np.array([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7]])
    source, target = read(never_the_second, np.array([2, 0, 2]), "hard")
    assert source.values.tolist() == [0, 2]
    assert source.n_classes == target.n_classes == 3
    assert source.class_names() == [0, 1, 2]


def test_a_continuous_variable_has_no_class_names():
    assert read(XS, XT, "continuous")[0].class_names() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_float_classes_in_a_tensor_are_finite(value):
    with pytest.raises(ValueError, match="yt contains"):
        read(torch.tensor([0.0, 1.0]), torch.tensor([0.0, value]), "hard")


# Four digits, or four units of the dtype where that is more: exactly so much, from either side.
@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (torch.float64, [0.5, 0.50009], [0.5, 0.50011]),
        (torch.float64, [0.5, 0.49991], [0.5, 0.49989]),
        (torch.float64, [1.0001, -0.0001], [1.00011, -0.00011]),
        (torch.bfloat16, [0.5, 0.53125], [0.5, 0.53515625]),  # 1 + 4 and 1 + 4.5 units of 2^-7
    ],
)
def test_probabilities_are_accepted_up_to_the_tolerance_and_refused_beyond(dtype, good, bad):
    fine = torch.tensor([[1.0, 0.0]], dtype=dtype)
    good, bad = (torch.tensor([row], dtype=dtype) for row in (good, bad))
    read(torch.cat([fine, good]), fine)
    for rows, position in (([bad, fine], 0), ([fine, bad], 1), ([good, bad], 1)):
        with pytest.raises(ValueError, match=rf"ys has 1 of 2 rows that are not probabilities \(row {position}:"):
            read(torch.cat(rows), fine)


def test_integers_in_rows_are_read_as_probabilities_in_float64():
    source, _ = read(torch.as_tensor(EYE[YS]).int(), torch.as_tensor(EYE[YT]).float())
    assert source.values.dtype == torch.float64
    assert source.resolution == 0


def test_column_numbers_of_any_width_become_64_bits():
    source, _ = read(torch.tensor([2, 0], dtype=torch.int32), PT)
    assert source.values.dtype == torch.int64


def test_classes_in_an_array_and_in_a_tensor_are_numbered_together():
    for ys, yt in ((np.array([30, 10]), torch.tensor([10, 20])), (torch.tensor([30, 10]), np.array([10, 20]))):
        source, target = read(ys, yt)
        assert source.class_names() == [10, 20, 30]
        assert (source.values.tolist(), target.values.tolist()) == ([2, 0], [0, 1])


@pytest.mark.parametrize("as_labels", [np.asarray, torch.as_tensor, list, pd.Series])
def test_labels_that_are_hidden_are_not_taken_for_a_class(as_labels):
    hidden = as_labels(np.full(M, -1))
    with pytest.raises(ValueError, match=r"yt is -1 for all 8 samples.*skada and POT.*true classes or predictions"):
        read(as_labels(YS), hidden)
    with pytest.raises(ValueError, match="ys is -1 for all 8 samples"):
        read(hidden, as_labels(YS))
    signs = as_labels(np.where(np.arange(N) % 2, 1, -1))  # classes of a binary problem
    assert read(signs, hidden)[1].class_names() == [-1, 1]
    assert read(hidden, hidden)[0].class_names() == [-1]
    assert read(np.array(["-1", "1"]), np.array(["-1"]))[0].class_names() == ["-1", "1"]


def equal_weights(*sizes):
    return [torch.full((n,), 1 / n, dtype=torch.float64) for n in sizes]


def test_a_prior_by_an_unknown_name_is_refused_where_it_is_used_too():
    source, target = read(np.array([0, 1]), np.array([0, 1]))
    with pytest.raises(ValueError, match="prior='soruce' is unknown"):
        class_prior_weights(source, target, *equal_weights(2, 2), "soruce")


def test_no_gradient_reaches_the_prior():
    source, target = read(np.array([0, 1]), np.array([0, 1]))
    prior = torch.tensor([0.1, 0.9], requires_grad=True)
    assert not any(part.requires_grad for part in class_prior_weights(source, target, *equal_weights(2, 2), prior))


def test_a_prior_may_be_off_one_by_a_millionth_and_is_then_scaled():
    source, target = read(np.array([0, 1]), np.array([0, 1]))
    *_, frequencies = class_prior_weights(source, target, *equal_weights(2, 2), [0.25, 0.75 + 0.9e-6])
    assert frequencies.sum().item() == pytest.approx(1, abs=1e-12)
    for wrong in (1.1e-6, -1.1e-6):
        with pytest.raises(ValueError, match="prior sums to"):
            class_prior_weights(source, target, *equal_weights(2, 2), [0.25, 0.75 + wrong])
