"""MCC and BNM: what they make of predictions, by hand and by NumPy."""

import math

import numpy as np
import pytest
import torch
from small_batches import random_batch

from bures.methods import _terms, make_method


def value(name, logits, **options):
    batch = random_batch(k=logits.shape[1])._replace(logits_t=logits)
    (found,) = make_method(name, **options)(batch, 0.0).values.values()
    return found


def test_mcc_of_two_samples_by_hand():
    # Predictions (1, 0) and (1/2, 1/2), with entropies 0 and log 2 and weights 2 and 3/2, or 8/7 and 6/7 of the mean.
    logits = torch.tensor([[800.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    corner, rest = 8 / 7 + 6 / 7 / 4, 6 / 7 / 4  # C_11, and the other three entries
    wanted = (rest / (corner + rest) + rest / (2 * rest)) / 2
    assert value("mcc", logits, temperature=1.0).item() == pytest.approx(wanted, rel=1e-12)


def test_mcc_is_the_formula():
    batch = random_batch(5, 12, k=4)
    p = (batch.logits_t.detach() / 2.5).softmax(1).numpy()
    weights = 1 + np.exp((p * np.log(p)).sum(1))
    confusion = p.T @ np.diag(12 * weights / weights.sum()) @ p
    rows = confusion / confusion.sum(1, keepdims=True)
    wanted = (rows.sum() - np.trace(rows)) / 4
    assert value("mcc", batch.logits_t).item() == pytest.approx(wanted, rel=1e-9)


def test_mcc_is_least_for_certain_and_greatest_for_even_predictions():
    sure = 1e3 * torch.eye(4, dtype=torch.float64).repeat(3, 1)
    assert value("mcc", sure).item() == pytest.approx(0, abs=1e-12)
    assert value("mcc", 0 * sure).item() == pytest.approx(3 / 4)


def test_the_gradient_of_mcc_is_that_of_finite_differences(monkeypatch):
    # The weights are constants of the graph, which finite differences would see move.
    monkeypatch.setattr(_terms, "prediction_entropies", lambda logits: torch.linspace(0, 1, len(logits)).double())
    logits = random_batch(5, 6, k=4).logits_t
    assert torch.autograd.gradcheck(lambda x: value("mcc", x), logits)


def test_the_weights_of_mcc_are_constants(monkeypatch):
    logits = random_batch(5, 6, k=4).logits_t
    (wanted,) = torch.autograd.grad(value("mcc", logits, temperature=1.0), logits)
    fixed = _terms.prediction_entropies(logits.detach())
    monkeypatch.setattr(_terms, "prediction_entropies", lambda _: fixed)
    (found,) = torch.autograd.grad(value("mcc", logits, temperature=1.0), logits)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("shape", [(12, 4), (3, 5)])
def test_bnm_is_minus_the_nuclear_norm_over_the_batch(shape):
    logits = random_batch(5, shape[0], k=shape[1]).logits_t
    p = logits.detach().softmax(1).numpy()
    wanted = -np.linalg.svd(p, compute_uv=False).sum() / shape[0]
    assert value("bnm", logits).item() == pytest.approx(wanted, rel=1e-12)


def test_bnm_is_least_for_certain_and_even_predictions():
    sure = 1e3 * torch.eye(4, dtype=torch.float64).repeat(3, 1)
    assert value("bnm", sure).item() == pytest.approx(-math.sqrt(12 * 4) / 12)  # the bound sqrt(m min(m, K))
    one_class = 1e3 * torch.eye(4, dtype=torch.float64)[[0] * 12]
    assert value("bnm", one_class).item() == pytest.approx(-1 / math.sqrt(12))
    assert value("bnm", 0 * sure).item() > value("bnm", one_class).item()


def test_the_gradient_of_bnm_is_that_of_finite_differences():
    logits = random_batch(5, 6, k=4).logits_t
    assert torch.autograd.gradcheck(lambda x: value("bnm", x), logits)


def test_the_gradient_of_bnm_is_finite_for_equal_predictions():
    """Repeated and vanishing singular values, where the gradient of an SVD is NaN."""
    logits = torch.zeros(8, 4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(value("bnm", logits), logits)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", ["ckb", "ckb+mmd", "ckw", "class-means", "ckw-running", "im"])
def test_confusion_adds_the_term_of_mcc(name):
    batch = random_batch(k=4)
    parts = make_method(name, confusion=0.5)(batch, 0.0)
    assert set(parts.values) - set(make_method(name)(batch, 0.0).values) == {"confusion"}
    assert parts.values["confusion"].item() == pytest.approx(value("mcc", batch.logits_t).item())


def neighbours_term(logits, features, n_neighbours=2):
    batch = random_batch(k=logits.shape[1])._replace(logits_t=logits, z_t=features)
    return _terms.NeighboursTerm(1.0, n_neighbours)(batch)


@pytest.mark.parametrize("n_neighbours", [1, 3, 40])
def test_the_term_of_neighbours_is_its_definition(n_neighbours):
    batch = random_batch(5, 12, k=4)
    z, logits = batch.z_t.detach(), batch.logits_t
    p, drawn, count = logits.detach().softmax(1), logits.softmax(1), min(n_neighbours, 11)
    total = 0.0
    for i in range(12):
        angles = [
            math.inf if i == j else math.acos(float(z[i] @ z[j] / (z[i].norm() * z[j].norm()))) for j in range(12)
        ]
        for j in sorted(range(12), key=angles.__getitem__)[:count]:
            total = total + 1 - drawn[i] @ p[j]
    wanted, found = total / (12 * count), neighbours_term(logits, z, n_neighbours)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(value, logits)[0] for value in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_neighbours_agree_where_groups_of_samples_are_of_one_class():
    features, classes = torch.eye(3).repeat(4, 1), 1e3 * torch.eye(3).repeat(4, 1)
    assert neighbours_term(classes, features, 3).item() == pytest.approx(0, abs=1e-6)
    assert neighbours_term(classes, features.roll(1, dims=1) * 1e-6, 3).item() == pytest.approx(0, abs=1e-6)
    # Groups of classes 0, 1, 2, 0 and the like: two of the twelve pairs in each agree.
    assert neighbours_term(classes, torch.eye(3).repeat_interleave(4, dim=0), 3).item() == pytest.approx(10 / 12)
    assert neighbours_term(0 * classes, features, 3).item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("features", [torch.zeros(6, 5), torch.ones(6, 5), torch.full((6, 5), 1e-30)])
def test_neighbours_among_equal_samples_give_finite_gradients(features):
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (gradient,) = torch.autograd.grad(neighbours_term(logits, features), logits)
    assert bool(gradient.isfinite().all())
    assert gradient.norm() > 0


def test_a_sample_without_neighbours_agrees_with_itself():
    logits = torch.randn(1, 4, requires_grad=True)
    found = neighbours_term(logits, torch.randn(1, 5))
    assert found.item() == 0
    assert torch.equal(torch.autograd.grad(found, logits)[0], torch.zeros(1, 4))


def test_neighbours_are_looked_for_in_full_precision():
    """In bfloat16 these three directions are one."""
    features = torch.tensor([[1.0, 0.0], [1.0, 0.002], [1.0, 0.0005]])
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    wanted = neighbours_term(logits, features, 1)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(neighbours_term(logits, features, 1), wanted)


@pytest.mark.parametrize("name", ["ckb", "ckb+mmd", "ckw", "class-means", "ckw-running", "im"])
def test_neighbours_are_an_option_of_every_method_with_terms_on_predictions(name):
    batch = random_batch(k=4)
    parts = make_method(name, neighbours=0.5, n_neighbours=3)(batch, 0.0)
    assert set(parts.values) - set(make_method(name)(batch, 0.0).values) == {"neighbours"}
    torch.testing.assert_close(parts.values["neighbours"], neighbours_term(batch.logits_t, batch.z_t, 3))


@pytest.mark.parametrize(
    ("options", "error"),
    [({"neighbours": -1}, ValueError), ({"n_neighbours": 0}, ValueError), ({"n_neighbours": 1.5}, TypeError)],
)
def test_bad_options_of_neighbours_are_refused_by_name(options, error):
    with pytest.raises(error, match=next(iter(options))):
        make_method("im", **options)
