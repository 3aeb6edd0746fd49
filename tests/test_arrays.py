"""The boundary between NumPy and torch: what is read, what is shared, what comes back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import bures
from bures.arrays import (
    as_feature_pair,
    as_result,
    as_sample_weight,
    check_choice,
    check_finite,
    check_positive,
    describe,
    full_precision,
    is_tensor_call,
    numpy_to_tensor,
)


def test_float64_arrays_are_shared_not_copied():
    array = np.arange(6.0).reshape(3, 2)
    tensor, _ = as_feature_pair(array, array)
    assert tensor.dtype == torch.float64
    assert tensor.data_ptr() == array.ctypes.data


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int8).reshape(3, 2),
        np.arange(6, dtype=np.uint16).reshape(3, 2),
        np.arange(6, dtype=np.float32).reshape(3, 2),
        np.arange(6, dtype=np.float16).reshape(3, 2),
        np.arange(6, dtype=">f8").reshape(3, 2),
        np.arange(6.0)[::-1].reshape(3, 2)[::-1, ::-1],
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.arange(12.0).reshape(3, 4)[:, ::2] / 2,
        pd.DataFrame({"a": [0.0, 2.0, 4.0], "b": [1, 3, 5]}),
        [[0, 1], [2, 3], [4, 5]],
        [(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)],
        np.arange(6.0, dtype=object).reshape(3, 2),
    ],
    ids=[
        "int8",
        "uint16",
        "float32",
        "float16",
        "big-endian",
        "reversed",
        "fortran",
        "strided",
        "pandas",
        "list",
        "tuples",
        "object",
    ],
)
def test_whatever_numpy_reads_becomes_a_float64_tensor(array):
    tensor = numpy_to_tensor("xs", array)
    assert tensor.dtype == torch.float64
    assert tensor.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_read_only_array_is_read_without_a_warning_and_left_alone():
    array = np.arange(4.0).reshape(2, 2)
    array.flags.writeable = False
    assert numpy_to_tensor("xs", array).tolist() == [[0, 1], [2, 3]]
    assert bures.mmd(array, array) == pytest.approx(0, abs=1e-12)


def test_a_vector_is_a_sample_of_one_feature():
    column, other = as_feature_pair(np.arange(3.0), np.zeros((2, 1)))
    assert column.shape == (3, 1)
    assert other.shape == (2, 1)
    x = np.array([0.0, 1.0, 3.0])
    assert bures.bures(x, 2 * x) == pytest.approx(bures.bures(x[:, None], 2 * x[:, None]))


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        ((torch.float64, torch.float64), torch.float64),
        ((torch.float32, torch.float32), torch.float32),
        ((torch.float32, torch.float64), torch.float64),
        ((torch.bfloat16, torch.bfloat16), torch.float32),
        ((torch.float16, torch.bfloat16), torch.float32),
        ((torch.float16, torch.float64), torch.float64),
        ((torch.int64, torch.int64), torch.float32),
        ((torch.uint8, torch.float64), torch.float64),
    ],
    ids=str,
)
def test_tensors_are_computed_in_one_dtype_of_at_least_float32(given, computed):
    s, t = as_feature_pair(torch.ones(2, 1, dtype=given[0]), torch.ones(3, 1, dtype=given[1]))
    assert (s.dtype, t.dtype) == (computed, computed)


def test_a_float32_tensor_is_passed_on_as_it_is():
    x = torch.ones(2, 3, requires_grad=True)
    assert as_feature_pair(x, x)[0] is x


def test_numpy_in_gives_a_python_float_and_torch_in_a_tensor_in_the_graph():
    rng = np.random.default_rng(0)
    xs, xt, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 2)), np.arange(6) % 2
    leaf = torch.as_tensor(xs).requires_grad_()
    calls = [
        (bures.ckb, (xs, y, xt, y), (leaf, torch.as_tensor(y), torch.as_tensor(xt), torch.as_tensor(y))),
        (bures.ckw, (xs, y, xt, y), (leaf, torch.as_tensor(y), torch.as_tensor(xt), torch.as_tensor(y))),
        *((metric, (xs, xt), (leaf, torch.as_tensor(xt))) for metric in (bures.kernel_bures, bures.mmd, bures.bures)),
    ]
    for metric, arrays, tensors in calls:
        value, tensor = metric(*arrays), metric(*tensors)
        assert type(value) is float
        assert tensor.shape == ()
        assert tensor.requires_grad
        assert value == pytest.approx(tensor.item(), rel=1e-12)


def test_lists_and_pandas_give_the_same_number_as_arrays():
    rng = np.random.default_rng(0)
    xs, xt, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 2)), np.arange(6) % 2
    expected = bures.ckb(xs, y, xt, y)
    assert bures.ckb(xs.tolist(), y.tolist(), xt.tolist(), y.tolist()) == expected
    assert bures.ckb(pd.DataFrame(xs), pd.Series(y), pd.DataFrame(xt, index=list("abcdef")), pd.Series(y)) == expected


def test_arguments_are_not_changed():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(6, 2)), rng.dirichlet([1, 1], 6), rng.normal(size=(5, 2)), rng.dirichlet([1, 1], 5)]
    copies = [array.copy() for array in arrays]
    weights = np.arange(1.0, 7.0)
    bures.explain(*arrays, sample_weight_s=weights, prior="uniform", n_permutations=2, n_bootstrap=2)
    bures.ckw(*arrays, sample_weight_s=weights)
    for array, copy in zip(arrays, copies, strict=True):
        assert np.array_equal(array, copy)
    assert weights.tolist() == [1, 2, 3, 4, 5, 6]


def test_names_and_lists_are_allowed_beside_tensors():
    x = torch.ones(2, 1)
    assert is_tensor_call(xs=x, ys=np.array(["a", "b"]), xt=x, yt=["a", "b"], sample_weight_s=None)
    assert not is_tensor_call(xs=np.ones((2, 1)), ys=["a", "b"])
    with pytest.raises(TypeError, match="xs is a torch tensor but ys is a ndarray"):
        is_tensor_call(xs=x, ys=np.arange(2))


def test_equal_weights_are_the_default_and_sum_to_one():
    like = torch.zeros(1)
    assert as_sample_weight("w", None, 4, like).tolist() == [0.25] * 4
    assert as_sample_weight("w", [3, 3], 2, like).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1.0, 1e300, 1e308])
def test_weights_of_any_scale_are_normalised(scale):
    weights = as_sample_weight("w", np.array([1.0, 0.0, 0.5]) * scale, 3, torch.zeros(1))
    assert weights.tolist() == pytest.approx([2 / 3, 0, 1 / 3], rel=1e-3)


def test_weights_are_constants():
    weight = torch.ones(3, requires_grad=True)
    assert not as_sample_weight("w", weight, 3, torch.zeros(1)).requires_grad


def test_whole_number_weights_repeat_samples():
    rng = np.random.default_rng(0)
    xs, xt, ys, yt = rng.normal(size=(7, 3)), rng.normal(size=(6, 3)), np.arange(7) % 2, np.arange(6) % 2
    weights = np.array([1, 2, 0, 3, 1, 1, 2])
    repeated = np.repeat(xs, weights, axis=0), np.repeat(ys, weights)
    weighted = bures.ckb(xs, ys, xt, yt, sample_weight_s=weights, bandwidth=2.0)
    assert weighted == pytest.approx(bures.ckb(*repeated, xt, yt, bandwidth=2.0), rel=1e-9)


def test_check_finite_counts_rows_and_names_the_first():
    x = torch.ones(5, 2)
    check_finite("x", x)
    x[3, 0], x[4, 1] = torch.nan, torch.inf
    with pytest.raises(ValueError, match=r"x contains NaN or infinity in 2 of 5 rows \(first: row 3\)"):
        check_finite("x", x)


@pytest.mark.parametrize(
    "value", [1, 2.5, np.float32(2), np.int64(3), np.array(1.5), torch.tensor(0.5), "auto"], ids=repr
)
def test_one_positive_number_is_read_from_any_library(value):
    if value == "auto":
        with pytest.raises(TypeError, match=r"eps='auto' is not a number; accepted is a positive number or so"):
            check_positive("eps", value, alternatives=" or so")
    else:
        assert check_positive("eps", value) == float(value)


@pytest.mark.parametrize("value", [np.True_, np.bool_(False), torch.tensor(True)], ids=repr)
def test_booleans_of_any_library_are_not_numbers(value):
    with pytest.raises(TypeError, match="eps"):
        check_positive("eps", value)


def test_check_choice_lists_what_is_accepted():
    check_choice("kernel", "a", ("a", "b"))
    with pytest.raises(ValueError, match=r"^kernel='c' is unknown; accepted are 'a', 'b', or d$"):
        check_choice("kernel", "c", ("a", "b"), alternatives=", or d")


def test_describe_names_type_shape_and_dtype():
    assert describe(np.zeros((2, 3), dtype=np.float32)) == "ndarray of shape (2, 3) and dtype float32"
    assert describe(torch.zeros(2)) == "Tensor of shape (2,) and dtype torch.float32"
    assert describe([1, 2]) == "list"


def test_results_cross_back_in_the_callers_language():
    value = torch.tensor(1.5, requires_grad=True)
    assert as_result(value, tensor_call=True) is value
    assert as_result(value.detach(), tensor_call=False) == 1.5


def test_full_precision_switches_autocast_off_and_back():
    x = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision(x):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16


def test_seeds_may_be_integers_of_numpy():
    rng = np.random.default_rng(0)
    xs, xt, y = rng.normal(size=(12, 2)), rng.normal(size=(12, 2)), np.arange(12) % 2
    landmarks = {"n_landmarks": 4, "landmarks": "pivoted-cholesky"}
    drawn = {
        "test": lambda seed: bures.conditional_test(xs, y, xt, y, n_permutations=19, seed=seed).null,
        "explain": lambda seed: bures.explain(xs, y, xt, y, n_permutations=3, n_bootstrap=3, seed=seed).null_95,
        "report": lambda seed: bures.shift_report(xs, y, xt, y, n_permutations=19, seed=seed).marginal.null,
        "nystroem": lambda seed: bures.NystroemMap.fit(xs, xt, **landmarks, seed=seed)(xs),
        "fourier": lambda seed: bures.RandomFourierMap.fit(xs, xt, n_features=4, seed=seed)(xs),
        "running": lambda seed: (
            bures.RunningCKWLoss(type(seed)(2), type(seed)(2), n_waves=type(seed)(4), seed=seed).waves
        ),
    }
    for name, draw in drawn.items():
        np.testing.assert_array_equal(draw(np.int64(3)), draw(3), err_msg=name)


def test_masked_labels_are_refused_wherever_labels_are_read():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), np.arange(12) % 2
    masked = np.ma.masked_array(y, mask=y == 0)
    moments = bures.ConditionalMoments(bures.LinearMap.fit(x), 2)
    for call in {
        "pairs": lambda: bures.ckb(x[None], masked[None], x[None], y[None]),
        "moments": lambda: moments.update(x, masked),
        "selection": lambda: bures.selection.negative_ckb(x, masked, x, np.eye(2)[y]),
        "predictions": lambda: bures.testing.out_of_fold_labels(x, masked, x),
    }.values():
        with pytest.raises(ValueError, match="has 6 masked entries"):
            call()


def test_seeds_may_be_larger_than_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    x, y, seed = rng.normal(size=(12, 2)), np.arange(12) % 2, 2**40 + 1
    assert len(bures.testing.out_of_fold_labels(x, y, x, seed=seed).target) == 12
    assert bures.NystroemMap.fit(x, n_landmarks=4, landmarks="k-means++", seed=seed).n_features == 4


def _frames():
    rng = np.random.default_rng(0)
    xs, xt = (
        pd.DataFrame(rng.normal(size=(n, 3)) * [1, 3, 9] + shift, columns=["a", "b", "c"])
        for n, shift in ((30, 0), (25, 1))
    )
    return xs, np.arange(30) % 2, xt, np.arange(25) % 2


@pytest.mark.parametrize(
    "distance",
    [
        lambda xs, ys, xt, yt: bures.ckb(xs, ys, xt, yt),
        lambda xs, ys, xt, yt: bures.mmd(xs, xt),
        lambda xs, ys, xt, yt: bures.conditional_test(xs, ys, xt, yt, n_permutations=19).statistic,
        lambda xs, ys, xt, yt: bures.marginal_test(xs, xt, n_permutations=19).statistic,
        lambda xs, ys, xt, yt: bures.shift_report(xs, ys, xt, yt, n_permutations=19).to_json(),
    ],
)
def test_data_frames_are_matched_by_the_names_of_their_columns(distance):
    xs, ys, xt, yt = _frames()
    turned = xt[["c", "a", "b"]]
    expected = distance(xs.to_numpy(), ys, xt.to_numpy(), yt)
    assert distance(xs, ys, turned, yt) == expected
    assert distance(xs.to_numpy(), ys, turned.to_numpy(), yt) != expected  # arrays are taken as they are
    with pytest.raises(ValueError, match=r"xt lacks the columns 'a', 'b' and has the unexpected columns 'A', 'B'; its"):
        distance(xs, ys, xt.rename(columns={"a": "A", "b": "B"}), yt)


def test_a_frame_beside_an_array_or_with_numbered_columns_is_taken_as_it_is():
    xs, _, xt, _ = _frames()
    numbered = xt[["c", "a", "b"]].set_axis([0, 1, 2], axis=1)
    for other in (numbered, numbered.to_numpy()):
        assert bures.mmd(xs, other) == bures.mmd(xs.to_numpy(), numbered.to_numpy())


def test_repeated_columns_have_no_order():
    _, _, xt, _ = _frames()
    twice = xt.set_axis(["a", "a", "b"], axis=1)
    assert bures.mmd(twice, twice) == 0
    with pytest.raises(ValueError, match="two columns of one name"):
        bures.mmd(twice, twice[["b", "a"]])


def test_covariances_in_data_frames_are_turned_as_a_whole():
    xs, _, xt, _ = _frames()
    expected = bures.bures_covariance(xs.cov().to_numpy(), xt.cov().to_numpy())
    assert bures.bures_covariance(xs.cov(), xt[["c", "a", "b"]].cov()) == pytest.approx(expected, rel=1e-12)
