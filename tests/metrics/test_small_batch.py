"""Which batches the pass of small batches takes, and its label factors against the formulas they stand for."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

import bures
from bures.deflation import sketch
from bures.metrics import _small_batch
from bures.metrics._small_batch import SmallLabels, is_ordinary, mean_weights, small_batch_distance

OPTIONS = {
    "kernel": "gaussian",
    "label_kernel": "gaussian",
    "label_bandwidth": "mean",
    "bandwidth": "shared",
    "prior": None,
    "eps": 1e-2,
    "method": "auto",
}
PARTS = [("covariances",), ("means",), ("covariances", "means")]


def batch(n=8, d=3, dtype=torch.float32, classes=3):
    generator = torch.Generator().manual_seed(0)
    z_s, z_t = (torch.randn(n, d, generator=generator, dtype=dtype) for _ in range(2))
    return [z_s, torch.arange(n) % classes, z_t + 1, torch.randn(n, classes, generator=generator).softmax(1)]


def small(*given, parts=("covariances",), **options):
    return small_batch_distance(*given, OPTIONS | options, parts, lambda *_: pytest.fail("the general path"))


def taken(*given, parts=("covariances",)):
    return small(*given, parts=parts) is not None


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_batches_that_the_pass_is_written_for(parts):
    z_s, y_s, z_t, p_t = batch()
    for given in (
        (z_s, y_s, z_t, p_t),
        (z_s[:1], y_s[:1], z_t[:1], p_t[:1]),
        batch(160),
        (z_s, one_hot(y_s).float(), z_t, p_t),
        (z_s, y_s, z_t, p_t.double()),
        (z_s, y_s + 2, z_t, one_hot(y_s + 4, 9).float()),  # more classes than samples
    ):
        assert taken(*given, parts=parts)


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_batches_that_are_left_to_the_general_path(parts):
    z_s, y_s, z_t, p_t = batch()
    rows = one_hot(y_s).float()
    others = {
        "empty": (z_s[:0], y_s[:0], z_t[:0], p_t[:0]),
        "large": batch(161),
        "vectors": (z_s[:, 0], y_s, z_t[:, 0], p_t),
        "other number of samples": (z_s, y_s, z_t[:5], p_t[:5]),
        "other dtypes": (z_s, y_s, z_t.double(), p_t),
        "half": (z_s.half(), y_s, z_t.half(), p_t),
        "double": (z_s.double(), y_s, z_t.double(), p_t),
        "classes of the target": (z_s, y_s, z_t, y_s),
        "fewer probabilities": (z_s, y_s, z_t, p_t[:5]),
        "fewer labels": (z_s, y_s[:5], z_t, p_t),
        "fewer labels and probabilities": (z_s, y_s[:5], z_t, p_t[:5]),
        "integers for probabilities": (z_s, y_s, z_t, rows.long()),
        "integers for rows": (z_s, rows.long(), z_t, p_t),
        "a class too many": (z_s, y_s + 1, z_t, p_t),
        "a negative class": (z_s, y_s - 1, z_t, p_t),
        "other integers": (z_s, y_s.int(), z_t, p_t),
        "other classes": (z_s, one_hot(y_s, 4).float(), z_t, p_t),
        "not on the simplex": (z_s, y_s, z_t, p_t + 1e-3),
        "rows not on the simplex": (z_s, 0.999 * rows, z_t, p_t),
        "one row of little sum": (z_s, y_s, z_t, torch.cat([0.999 * p_t[:1], p_t[1:]])),
        "one row of large sum": (z_s, y_s, z_t, torch.cat([1.001 * p_t[:1], p_t[1:]])),
        "negative": (
            z_s,
            y_s,
            z_t,
            torch.cat([p_t[:, :1] + p_t[:, 1:2] + 1e-3, -1e-3 + 0 * p_t[:, :1], p_t[:, 2:]], 1),
        ),
        "labels elsewhere": (z_s, y_s.to("meta"), z_t, p_t),
        "not finite": (z_s / 0, y_s, z_t, p_t),
        "not a probability": (z_s, y_s, z_t, p_t * torch.nan),
    }
    for name, given in others.items():
        assert not taken(*given, parts=parts), name


@pytest.mark.parametrize(
    ("method", "n", "expected"), [("low-rank", 95, True), ("low-rank", 96, False), ("gram", 96, True)]
)
def test_low_rank_is_another_name_for_small_matrices_alone(method, n, expected):
    assert (small(*batch(n), method=method) is not None) is expected


def test_nothing_is_taken_where_values_must_not_be_looked_at(monkeypatch):
    for name, value in (("checks_values", False), ("is_transformed", True)):
        with monkeypatch.context() as patched:
            patched.setattr(_small_batch, name, lambda value=value: value)
            assert not taken(*batch())


def test_a_gradient_is_computed_where_one_is_wanted(monkeypatch):
    z_s, y_s, z_t, p_t = batch()
    distance, asked = _small_batch.paired_distance, []

    def note(*arguments, wanted):
        asked.append(wanted)
        return distance(*arguments, wanted=wanted)

    monkeypatch.setattr(_small_batch, "paired_distance", note)
    leaf, other = z_s.clone().requires_grad_(), z_t.clone().requires_grad_()
    results = [small(leaf, y_s, z_t, p_t), small(z_s, y_s, other, p_t), small(z_s, y_s, z_t, p_t)]
    with torch.no_grad():
        results.append(small(leaf, y_s, other, p_t))
    assert asked == [result.requires_grad for result in results] == [True, True, False, False]
    values = [float(result.detach()) for result in results]
    assert values == pytest.approx([values[0]] * 4, rel=1e-5)


def test_the_result_is_of_the_type_of_the_features():
    torch.set_default_dtype(torch.float64)
    try:
        assert small(*batch()).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
@pytest.mark.parametrize("mass", [0.0, 5e-324, 1e-310, 1e-300])
def test_a_class_that_is_hardly_predicted_leaves_the_distance_a_number(parts, mass):
    """In float64 a softmax gives probabilities whose inverse is no number."""
    z_s, y_s, z_t, p_t = batch()
    p_t = p_t.double()
    p_t[:, 2] = 0
    p_t /= p_t.sum(dim=1, keepdim=True)
    p_t[3, 2] = mass
    leaf = z_t.clone().requires_grad_()
    value = small(z_s, y_s, leaf, p_t, parts=parts)
    value.backward()
    p_t[3, 2] *= 1e290  # the mean of that class is the third sample's, whatever the mass
    expected = small(z_s, y_s, z_t, p_t, parts=parts)
    assert float(value.detach()) == pytest.approx(float(expected), rel=1e-5)
    assert bool(leaf.grad.isfinite().all())


@pytest.mark.parametrize("make", [bures.CKBLoss, bures.CKWLoss, bures.ClassMeansLoss])
@pytest.mark.parametrize("labels", ["classes", "rows"])
@pytest.mark.parametrize("n", [8, 200])
def test_the_device_is_that_of_the_samples_whatever_the_default(make, labels, n):
    z_s, y_s, z_t, p_t = batch(n)
    y_s = y_s if labels == "classes" else one_hot(y_s).float()
    expected = make()(z_s, y_s, z_t, p_t)
    torch.set_default_device("meta")
    try:
        sketch.cache_clear()
        assert float(make()(z_s, y_s, z_t, p_t)) == float(expected)
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("make", [bures.CKBLoss, bures.CKWLoss, bures.ClassMeansLoss])
def test_samples_without_features_are_named(make):
    z_s, y_s, z_t, p_t = batch()
    with pytest.raises(ValueError, match=r"z_s is empty \(shape \(8, 0\)\)"):
        make()(z_s[:, :0], y_s, z_t[:, :0], p_t)


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "linear"},
        {"label_kernel": "linear"},
        {"label_bandwidth": 1.0},
        {"bandwidth": "median"},
        {"prior": "uniform"},
        {"method": "deflation"},
    ],
    ids=str,
)
def test_options_that_the_pass_is_written_for(change):
    assert is_ordinary(OPTIONS)
    assert is_ordinary(OPTIONS | {"bandwidth": "per-block"})
    assert is_ordinary(OPTIONS | {"bandwidth": 2.0})
    assert is_ordinary(OPTIONS | {"method": "gram"})
    assert is_ordinary(OPTIONS | {"eps": "auto"})
    assert not is_ordinary(OPTIONS | change)


def by_definition(rows, eps, narrowest=1e-300):
    """D H C C^T H D with C C^T = eps n (H K H + eps n I)^-1 and D = n^-1/2 I, for a Gaussian kernel of mean width."""
    n = len(rows)
    squares = ((rows[:, None] - rows) ** 2).sum(-1)
    centring = np.eye(n) - 1 / n
    kernel = np.exp(-squares / max(squares.mean(), narrowest))
    inverse = np.linalg.inv(centring @ kernel @ centring + eps * n * np.eye(n))
    return eps * centring @ inverse @ centring


@pytest.mark.parametrize("eps", [1e-3, 0.5])
def test_label_factors_are_those_of_the_formula(eps):
    labels = {
        "balanced": (torch.arange(9) % 3, 3),
        "unbalanced": (torch.tensor([0, 0, 0, 0, 1, 2, 2]), 3),
        "a class without samples": (torch.tensor([0, 0, 3, 3, 1]), 4),
        "the last without samples": (torch.tensor([0, 0, 1, 1, 1]), 4),
        "one class": (torch.tensor([1, 1, 1, 1]), 2),
        "one each": (torch.arange(6), 6),
        "more classes than samples": (torch.tensor([0, 4, 4]), 7),
    }
    for name, (y, classes) in labels.items():
        rows = one_hot(y, classes).double()
        expected = by_definition(rows.numpy(), eps)
        for given in (y, rows):
            read = SmallLabels.read(given, classes)
            np.testing.assert_array_equal(read.rows, rows)
            for found in (squared(read.factor(eps)), read.weights(eps)):
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12, err_msg=name)


def squared(factor):
    return factor.T @ factor


PRODUCTS = [
    lambda rows, eps: squared(SmallLabels.read(rows, rows.shape[1]).factor(eps)),
    lambda rows, eps: SmallLabels.read(rows, rows.shape[1]).weights(eps),
]


@pytest.mark.parametrize("product", PRODUCTS, ids=["factor", "weights"])
def test_probabilities_lead_to_the_formula_and_stay_as_they_are(product):
    rows = torch.rand(11, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = rows / rows.sum(dim=1, keepdim=True)
    given = rows.clone()
    found = product(given, 1e-2)
    assert torch.equal(given, rows)
    np.testing.assert_allclose(found.numpy(), by_definition(rows.numpy(), 1e-2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("product", PRODUCTS, ids=["factor", "weights"])
def test_the_width_of_rows_that_differ_by_rounding_is_that_of_the_rounding(product):
    """One entry is off by a float32: the mean of squared differences would be a width for which it stands apart."""
    rows = torch.full((6, 4), 0.25)
    rows[0, 0] += 2.0**-25
    found = product(rows, 1e-2)
    noise = 2 * torch.finfo(torch.float32).eps * float(rows.max())
    expected = by_definition(rows.double().numpy(), 1e-2, narrowest=noise**2)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-9)


def test_the_weights_of_class_means_are_those_of_the_formula():
    """Class 2 is missing from the source and class 3 from the target: their means are compared with nothing."""
    generator = torch.Generator().manual_seed(0)
    y_s = torch.tensor([0, 1, 1, 3, 0, 1])
    p_t = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    p_t[:, 3] = 0
    p_t /= p_t.sum(dim=1, keepdim=True)
    found = mean_weights(SmallLabels.read(y_s, 4), SmallLabels.read(p_t, 4)).numpy()
    embedding = np.random.default_rng(0).normal(size=(12, 5))  # of the pooled sample under a linear kernel
    expected = 0.0
    for c in (0, 1):
        members, shares = (y_s == c).numpy(), p_t[:, c].numpy()
        importance = (members.mean() + shares.mean()) / 2
        means = embedding[:6][members].mean(axis=0), shares @ embedding[6:] / shares.sum()
        expected += importance * ((means[0] - means[1]) ** 2).sum()
    assert ((embedding @ embedding.T) * found).sum() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-15)  # so that a constant in the kernel counts for nothing
