"""Columns of two domains with names are matched by them; without names, by their position."""

from dataclasses import replace

import pytest
import torch

from bures.data import Domain, TensorSamples, align_columns

X = torch.arange(6.0).reshape(2, 3)


def domain(names, x=X, name="there"):
    return Domain(name, TensorSamples(x), ["cat", "dog"], [0, 1], ids=["u", "v"], feature_names=names)


def test_columns_are_put_into_the_order_of_the_source():
    aligned = align_columns(domain(["b", "c", "a"], name="here"), domain(["a", "b", "c"]))
    assert aligned.feature_names == ("b", "c", "a")
    assert aligned.samples.tensor.tolist() == X[:, [1, 2, 0]].tolist()
    assert (aligned.name, aligned.labels.tolist(), aligned.ids) == ("there", [0, 1], ("u", "v"))


@pytest.mark.parametrize(("first", "second"), [(None, "abc"), ("abc", None), ("abc", "abc"), (None, None)])
def test_nothing_changes_where_the_order_is_the_same_or_unknown(first, second):
    target = domain(None if second is None else list(second))
    assert align_columns(domain(None if first is None else list(first)), target) is target


def test_columns_that_differ_are_named():
    source = domain(["a", "b", "c"], name="here")
    with pytest.raises(
        ValueError, match=r"^target 'there' lacks the column 'b'; .* source 'here' by name: rename, add"
    ):
        align_columns(source, domain(["c", "a"], X[:, :2]))
    many = domain([*"abc", *(f"x{i}" for i in range(30))], torch.zeros(2, 33))
    with pytest.raises(ValueError, match=r"has the unexpected columns 'x0', .*'x9', \.\.\. and 20 more; its"):
        align_columns(source, many)


def test_names_stay_with_samples_that_are_taken_and_with_labels_that_are_hidden():
    assert domain(["a", "b", "c"]).take([1]).feature_names == ("a", "b", "c")
    assert domain(["a", "b", "c"]).hide_labels()[0].feature_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["a", "b"], ValueError, r"feature_names has 2 entries but samples are TensorSamples of shape \(3,\)"),
        (["a", "b", "a"], ValueError, "feature_names contains 'a' more than once"),
        ("abc", TypeError, "feature_names='abc' is a string"),
    ],
)
def test_names_that_are_none_of_the_samples_are_refused(names, error, message):
    with pytest.raises(error, match=message):
        domain(names)


def test_images_have_no_columns():
    images = TensorSamples(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match="accepted is one for each column of feature vectors"):
        replace(domain(["a", "b", "c"]), samples=images)
