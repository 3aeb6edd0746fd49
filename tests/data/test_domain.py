"""Domains are checked when they are made, and hidden labels stay hidden."""

import copy
import gc
import pickle
import types

import numpy as np
import pytest
import torch

from bures.data import Domain, HiddenLabels, TensorSamples

LABELS = [2, 0, 1, 2, 2, 0]


def make(labels=LABELS, n=6, **options):
    x = torch.arange(2.0 * n).reshape(n, 2)
    return Domain("here", TensorSamples(x), options.pop("class_names", ["a", "b", "c"]), labels, **options)


def test_a_domain_knows_its_size_classes_and_counts():
    domain = make(ids=[f"{i}.jpg" for i in range(6)])
    assert len(domain) == 6
    assert domain.n_classes == 3
    assert domain.class_names == ("a", "b", "c")
    assert domain.labels.dtype == torch.int64
    assert domain.counts().tolist() == [2, 1, 3]
    assert repr(domain) == "Domain('here', 6 samples of shape (2,), 3 classes: a 2, b 1, c 3)"
    assert repr(make(None)) == "Domain('here', 6 samples of shape (2,), 3 classes, unlabelled)"
    assert repr(make(None, class_names=())) == "Domain('here', 6 samples of shape (2,), unlabelled)"


@pytest.mark.parametrize(
    "labels", [np.array(LABELS, dtype=np.uint8), torch.tensor(LABELS, dtype=torch.int32), tuple(LABELS)]
)
def test_labels_of_any_integer_kind_become_int64(labels):
    assert make(labels).labels.tolist() == LABELS


def test_read_only_arrays_are_copied_without_a_warning():
    labels, x = np.array(LABELS), np.ones((6, 2))
    labels.setflags(write=False)
    x.setflags(write=False)
    assert len(Domain("here", TensorSamples(x), ["a", "b", "c"], labels)) == 6


@pytest.mark.parametrize("index", [[5, 0, 1], np.array([5, 0, 1]), torch.tensor([5, 0, 1])])
def test_take_selects_samples_labels_and_ids_together(index):
    part = make(ids="pqrstu").take(index)
    assert part.samples.tensor.tolist() == [[10, 11], [0, 1], [2, 3]]
    assert part.labels.tolist() == [0, 2, 0]
    assert part.ids == ("u", "p", "q")
    assert part.class_names == ("a", "b", "c")


def test_take_reads_a_mask():
    assert make().take(torch.tensor(LABELS) == 2).labels.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([6], IndexError, "index contains 6; accepted are integers from 0 to 5"),
        ([-1], IndexError, "index contains -1"),
        ([0.5], ValueError, "index is a Tensor of shape"),
        ([True, False], ValueError, "a mask of 6 truth values"),
        ([], ValueError, "index selects no sample"),
    ],
)
def test_take_refuses_what_selects_nothing_or_lies_outside(index, error, message):
    with pytest.raises(error, match=message):
        make().take(index)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"labels": [0, 1]}, ValueError, "labels has 2 entries but there are 6 samples"),
        ({"labels": [0, 1, 2, 3, 0, 0]}, ValueError, "labels contains class 3 but class_names has 3 entries"),
        ({"labels": [0, 1, 2, -1, 0, 0]}, ValueError, "labels contains class -1"),
        ({"labels": [0.0] * 6}, ValueError, "labels is a Tensor of shape .* accepted are 6 integers from 0 to 2"),
        ({"labels": ["a"] * 6}, TypeError, "labels is a list"),
        ({"labels": [[0]] * 6}, ValueError, "labels is a Tensor of shape"),
        ({"class_names": ["a", "b", "a"]}, ValueError, "class_names contains 'a' more than once"),
        ({"class_names": "abc"}, TypeError, "class_names='abc' is a string"),
        ({"class_names": []}, ValueError, "class_names is empty"),
        ({"ids": ["x"]}, ValueError, "ids has 1 entries but samples has 6"),
    ],
)
def test_domains_that_do_not_fit_together_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_masked_entries_are_refused():
    """NumPy hands out what is behind the mask: a class that is not known would be one that is."""
    numbers = np.ma.masked_equal([0, 1, 2, 2, 1, 9], 9)
    calls = [
        lambda: make(labels=numbers),
        lambda: HiddenLabels(numbers, ["a", "b", "c"]),
        lambda: make(labels=[0] * 6).hide_labels()[1].accuracy(numbers),
        lambda: make().take(numbers),
        lambda: TensorSamples(np.ma.masked_less(np.eye(2), 1)),
    ]
    for name, call in zip(["labels", "labels", "predictions", "index", "tensor"], calls, strict=True):
        with pytest.raises(ValueError, match=f"{name} has [12] masked entries; remove or impute"):
            call()
    assert make(labels=np.ma.array([0, 1, 2, 2, 1, 0])).labels.tolist() == [0, 1, 2, 2, 1, 0]


def test_samples_must_be_samples_and_not_empty():
    with pytest.raises(TypeError, match=r"samples is a Tensor .* TensorSamples\(array\)"):
        Domain("here", torch.eye(2), ["a"])
    with pytest.raises(ValueError, match="samples of domain 'here' is empty"):
        Domain("here", TensorSamples(torch.empty(0, 2)), ["a"])


def reachable(start):
    """Every object that can be reached from one, by any reference the interpreter knows of."""
    seen, stack = {}, [start]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, (types.ModuleType, type, types.FrameType)):
            continue
        seen[id(item)] = item
        stack += gc.get_referents(item)
        stack += [getattr(item, "__dict__", None), getattr(item, "__closure__", None)]
        if isinstance(item, torch.Tensor):
            stack.append(item._base)
    return list(seen.values())


def test_nothing_reachable_from_a_masked_domain_is_the_labels():
    domain = make(ids="pqrstu")
    storage = domain.labels.untyped_storage().data_ptr()
    masked, hidden = domain.hide_labels()
    assert masked.labels is None
    found = reachable(masked)
    assert any(item is domain.samples for item in found), "the walk does reach the samples"
    assert any(item is domain.labels for item in reachable(domain)), "and would reach labels"
    for item in found:
        assert item is not hidden
        assert item is not domain
        if isinstance(item, torch.Tensor):
            assert item.untyped_storage().data_ptr() != storage
            assert item.dtype != torch.int64
    for copied in (pickle.loads(pickle.dumps(masked)), copy.deepcopy(masked), masked.take([0, 1])):
        assert copied.labels is None


def test_hidden_labels_are_a_copy():
    domain = make()
    _, hidden = domain.hide_labels()
    domain.labels.zero_()
    assert hidden.accuracy(LABELS) == 1


def test_hidden_labels_do_not_hand_out_the_labels_but_for_the_record():
    _, hidden = make().hide_labels()
    assert repr(hidden) == str(hidden) == "HiddenLabels(6 samples)"
    public = [name for name in dir(hidden) if not name.startswith("_")]
    assert sorted(public) == [
        "accuracy", "class_names", "confusion", "for_the_record", "per_class_accuracy", "reliability",
    ]  # fmt: skip
    assert hidden.for_the_record(torch.tensor([2, 0])).tolist() == [LABELS[2], LABELS[0]]
    assert not hasattr(hidden, "__dict__")
    with pytest.raises(AttributeError):
        _ = hidden.labels
    with pytest.raises(TypeError, match="not iterable"):
        iter(hidden)
    with pytest.raises(TypeError, match="not subscriptable"):
        hidden[0]
    with pytest.raises((TypeError, RuntimeError)):
        torch.as_tensor(hidden)


def test_hidden_labels_survive_a_pickle():
    _, hidden = make().hide_labels()
    again = pickle.loads(pickle.dumps(hidden))
    assert len(again) == 6
    assert again.accuracy(LABELS) == 1
    assert again.class_names == ("a", "b", "c")


def test_scores_agree_with_scikit_learn():
    from sklearn.metrics import accuracy_score, confusion_matrix, recall_score

    rng = np.random.default_rng(0)
    y, p = rng.integers(4, size=200), rng.integers(4, size=200)
    hidden = HiddenLabels(y, tuple("abcd"))
    assert hidden.accuracy(p) == pytest.approx(accuracy_score(y, p))
    assert hidden.confusion(p).dtype == torch.int64
    np.testing.assert_array_equal(hidden.confusion(p), confusion_matrix(y, p))
    np.testing.assert_allclose(hidden.per_class_accuracy(p), recall_score(y, p, average=None))
    scores = np.eye(4)[p]
    assert hidden.accuracy(torch.as_tensor(scores)) == hidden.accuracy(p)


def test_a_class_without_samples_has_no_accuracy():
    scores = HiddenLabels([0, 0], ("a", "b")).per_class_accuracy([0, 1])
    assert scores[0] == 0.5
    assert scores[1].isnan()


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([0, 1], "predictions has 2 entries but there are 6 samples"),
        ([0, 1, 2, 3, 0, 0], "predictions contains class 3"),
        (np.full((6, 3), np.nan), "predictions contains NaN"),
        (np.zeros((6, 2)), "predictions is a Tensor of shape"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(predictions, message):
    _, hidden = make().hide_labels()
    with pytest.raises(ValueError, match=message):
        hidden.accuracy(predictions)


def test_an_unlabelled_domain_has_nothing_to_hide_or_count():
    with pytest.raises(ValueError, match="domain 'here' is unlabelled"):
        make(None).hide_labels()
    with pytest.raises(ValueError, match="counts need labels"):
        make(None).counts()
