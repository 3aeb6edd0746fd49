"""DAN, JAN, DSAN, Deep CORAL and KGOT against sums written out, kernel by kernel."""

import itertools

import numpy as np
import pytest
import torch
from small_batches import random_batch

import bures
from bures.methods import _gaussian, dan, jan, make_method

MULTIPLES = (0.5, 1.0, 3.0)


def rows(*parts):
    return [part.detach().numpy() for part in parts]


def kernel(x, y, widths):
    return np.mean([np.exp(-((x - y) ** 2).sum() / width) for width in widths])


def mean_distance(*parts):
    """Of all pairs of the pooled samples."""
    pooled = np.concatenate(parts)
    return np.mean([((x - y) ** 2).sum() for x in pooled for y in pooled])


def value(name, batch, **options):
    (found,) = make_method(name, **options)(batch, 0.0).values.values()
    return found


def block_mean(a, b, widths, *, off_diagonal=False):
    pairs = [(i, j) for i in range(len(a)) for j in range(len(b)) if not (off_diagonal and i == j)]
    return np.mean([kernel(a[i], b[j], widths) for i, j in pairs])


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_dan_is_the_mmd_of_the_mixture_of_kernels(estimator):
    batch = random_batch(6, 5, 3)
    a, b = rows(batch.z_s, batch.z_t)
    widths = [multiple * mean_distance(a, b) for multiple in MULTIPLES]
    off = estimator == "unbiased"
    wanted = block_mean(a, a, widths, off_diagonal=off) + block_mean(b, b, widths, off_diagonal=off)
    wanted -= 2 * block_mean(a, b, widths)
    found = value("dan", batch, multiples=MULTIPLES, estimator=estimator)
    assert found.item() == pytest.approx(wanted, rel=1e-9)


def test_dan_with_one_kernel_is_the_mmd_of_the_library():
    batch = random_batch()
    for estimator, unbiased in (("biased", False), ("unbiased", True)):
        found = value("dan", batch, multiples=[1.0], estimator=estimator)
        torch.testing.assert_close(found, bures.mmd(batch.z_s, batch.z_t, unbiased))


def test_dan_in_linear_time_takes_neighbours_as_pairs():
    batch = random_batch(7, 5, 3)  # two pairs in each domain, and samples without a partner
    a, b = rows(batch.z_s, batch.z_t)
    widths = [multiple * mean_distance(a, b) for multiple in MULTIPLES]
    wanted = 0.0
    for i in (0, 2):
        wanted += kernel(a[i], a[i + 1], widths) + kernel(b[i], b[i + 1], widths)
        wanted -= kernel(a[i], b[i + 1], widths) + kernel(a[i + 1], b[i], widths)
    found = value("dan", batch, multiples=MULTIPLES, estimator="linear")
    assert found.item() == pytest.approx(wanted / 2, rel=1e-9)


@pytest.mark.parametrize("estimator", ["unbiased", "linear"])
def test_estimators_without_bias_average_to_the_same_and_to_zero_without_a_shift(estimator):
    found = [value("dan", random_batch(8, 8, 2, seed=seed, shift=0.0), estimator=estimator) for seed in range(400)]
    mean, deviation = np.mean([v.item() for v in found]), np.std([v.item() for v in found]) / 20
    assert abs(mean) < 4 * deviation < 0.05
    assert min(found) < 0 < max(found)
    biased = np.mean([value("dan", random_batch(8, 8, 2, seed=seed, shift=0.0)).item() for seed in range(50)])
    assert biased > 0.05


def test_a_wide_kernel_is_the_squared_difference_of_means():
    batch = random_batch(dtype=torch.float32)
    width = 1e7
    found = width * value("dan", batch, multiples=[width])
    difference = (batch.z_s.double().mean(0) - batch.z_t.double().mean(0)).square().sum()
    wanted = 2 * difference / _gaussian.mean_squared_distance(batch.z_s, batch.z_t)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=0)  # k - 1 is kept; k would have no digit left


def test_dan_refuses_to_estimate_from_one_sample():
    batch = random_batch(1, 4)
    assert bool(value("dan", batch).isfinite())
    for estimator in ("unbiased", "linear"):
        with pytest.raises(ValueError, match=rf"has 1 source and 4 target samples; estimator='{estimator}' needs two"):
            value("dan", batch, estimator=estimator)


def test_deep_coral_is_the_frobenius_distance_of_covariances():
    batch = random_batch(9, 7, 5)
    a, b = (np.cov(x, rowvar=False) for x in rows(batch.z_s, batch.z_t))
    wanted = np.linalg.norm(a - b, "fro") ** 2 / (4 * 5**2)
    assert value("deep-coral", batch).item() == pytest.approx(wanted, rel=1e-12)


def test_deep_coral_does_not_see_means():
    batch = random_batch(20, 20)
    moved = batch._replace(z_t=batch.z_s + 3.0)
    assert value("deep-coral", moved).item() == pytest.approx(0, abs=1e-12)


def test_jan_is_the_mmd_of_the_product_of_kernels():
    batch = random_batch(6, 5, 3)
    a, b = rows(batch.z_s, batch.z_t)
    p, q = rows(batch.logits_s.softmax(1), batch.logits_t.softmax(1))
    widths, label_widths = [m * mean_distance(a, b) for m in MULTIPLES], [mean_distance(p, q)]

    def block(x, u, y, v):
        pairs = itertools.product(range(len(x)), range(len(y)))
        return np.mean([kernel(x[i], y[j], widths) * kernel(u[i], v[j], label_widths) for i, j in pairs])

    wanted = block(a, p, a, p) + block(b, q, b, q) - 2 * block(a, p, b, q)
    assert value("jan", batch, multiples=MULTIPLES, ramp=0.0).item() == pytest.approx(wanted, rel=1e-9)


def test_jan_sees_exchanged_classes_that_dan_does_not():
    batch = random_batch(12, 12)
    sure = 8.0 * torch.eye(3, dtype=torch.float64)[batch.y_s]
    exchanged = batch._replace(z_t=batch.z_s, logits_s=sure, logits_t=sure.roll(1, dims=1))
    assert value("dan", exchanged).item() == pytest.approx(0, abs=1e-12)
    assert value("jan", exchanged).item() > 0.02


def test_dsan_with_sure_predictions_is_the_mean_of_the_mmds_of_classes():
    batch = random_batch(9, 8, 3)
    a, b = rows(batch.z_s, batch.z_t)
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    sure = 1e4 * torch.eye(3, dtype=torch.float64)[labels]
    widths = [multiple * mean_distance(a, b) for multiple in MULTIPLES]
    parts = []
    for c in range(3):
        s, t = a[batch.y_s.numpy() == c], b[labels == c]
        parts.append(block_mean(s, s, widths) + block_mean(t, t, widths) - 2 * block_mean(s, t, widths))
    found = value("dsan", batch._replace(logits_t=sure), multiples=MULTIPLES, ramp=0.0)
    assert found.item() == pytest.approx(np.mean(parts), rel=1e-9)
    # Without the last class in the source, the others are what remains.
    fewer = batch._replace(z_s=batch.z_s[batch.y_s < 2], y_s=batch.y_s[batch.y_s < 2], logits_t=sure)
    widths = [multiple * mean_distance(*rows(fewer.z_s, fewer.z_t)) for multiple in MULTIPLES]
    parts = []
    for c in range(2):
        s, t = fewer.z_s[fewer.y_s == c].detach().numpy(), b[labels == c]
        parts.append(block_mean(s, s, widths) + block_mean(t, t, widths) - 2 * block_mean(s, t, widths))
    found = value("dsan", fewer, multiples=MULTIPLES, ramp=0.0)
    assert found.item() == pytest.approx(np.mean(parts), rel=1e-9)


def test_dsan_weighs_by_probabilities_and_takes_them_as_constants():
    batch = random_batch(9, 8, 3)
    a, b = rows(batch.z_s, batch.z_t)
    y, p = np.eye(3)[batch.y_s], batch.p_t.detach().numpy()
    widths = [mean_distance(a, b)]
    gram = np.array([[kernel(x, z, widths) for z in np.concatenate([a, b])] for x in np.concatenate([a, b])])
    weights = np.concatenate([y / y.sum(0), -p / p.sum(0)])
    found = value("dsan", batch, multiples=[1.0], ramp=0.0)
    assert found.item() == pytest.approx(np.trace(weights.T @ gram @ weights) / 3, rel=1e-9)
    (to_logits,) = torch.autograd.grad(found, batch.logits_t, allow_unused=True)
    assert to_logits is None


def test_dsan_sees_exchanged_classes():
    batch = random_batch(12, 12)
    right = 1e4 * torch.eye(3, dtype=torch.float64)[batch.y_s]
    same = batch._replace(z_t=batch.z_s, logits_t=right)
    assert value("dsan", same).item() == pytest.approx(0, abs=1e-12)
    assert value("dsan", same._replace(logits_t=right.roll(1, dims=1))).item() > 0.1


def test_kgot_is_the_distance_of_gaussians_in_the_rkhs():
    batch = random_batch()
    values = make_method("kgot", bandwidth=2.0)(batch, 0.0).values
    torch.testing.assert_close(values["kernel-bures"], bures.kernel_bures(batch.z_s, batch.z_t, bandwidth=2.0))
    torch.testing.assert_close(values["mmd"], bures.mmd(batch.z_s, batch.z_t, bandwidth=2.0))
    assert make_method("kgot", weight=2.0, means=3.0)(batch, 0.0).weights == {"kernel-bures": 2.0, "mmd": 6.0}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dan", {"estimator": "biased"}),
        ("dan", {"estimator": "unbiased"}),
        ("dan", {"estimator": "linear"}),
        ("deep-coral", {}),
        ("jan", {"ramp": 0.0}),
        ("dsan", {"ramp": 0.0}),
        ("kgot", {"bandwidth": 2.0}),
    ],
)
def test_gradients_are_those_of_finite_differences(name, options, monkeypatch):
    # The mean distance is a constant of the graph, which finite differences would see move.
    for module in (_gaussian, dan):
        monkeypatch.setattr(module, "mean_squared_distance", lambda a, b: torch.tensor(2.5, dtype=a.dtype))
    # The scale of samples is a power of two of their largest entry: far from a jump, it is a constant too.
    batch = random_batch(6, 5, 3)
    method = make_method(name, **options)

    def total(z_s, z_t, logits_s, logits_t):
        if name == "dsan":
            logits_t = logits_t.detach()
        return method(batch._replace(z_s=z_s, z_t=z_t, logits_s=logits_s, logits_t=logits_t), 0.0).total

    inputs = [batch.z_s, batch.z_t]
    inputs += [part.requires_grad_(name == "jan") for part in (batch.logits_s.detach(), batch.logits_t.detach())]
    assert torch.autograd.gradcheck(total, inputs, atol=1e-6, rtol=1e-4)


def test_jan_keeps_the_digits_of_sure_predictions():
    batch = random_batch(12, 12, dtype=torch.float32)
    sure = 12.0 * torch.eye(3)[batch.y_s]
    batch = batch._replace(z_t=batch.z_s, logits_s=sure, logits_t=1.05 * sure)
    exact = random_batch(12, 12)._replace(
        z_s=batch.z_s.double(), z_t=batch.z_t.double(), logits_s=sure.double(), logits_t=batch.logits_t.double()
    )
    term = jan.JointMMDTerm(make_method("jan").terms[0].schedule, (1.0,))
    assert term(batch).item() == pytest.approx(term(exact).item(), abs=1e-6)
