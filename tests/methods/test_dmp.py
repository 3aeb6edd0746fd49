"""Manifold propagation: the projection distance by principal angles, and discrimination by hand."""

import numpy as np
import pytest
import scipy.linalg
import torch
from small_batches import random_batch, ready_for

from bures.methods import Batch, dmp, make_method
from bures.methods.dmp import subspace_distance


def test_the_distance_of_subspaces_is_that_of_principal_angles():
    batch = random_batch(6, 5, 20)
    spans = [np.asarray(z.detach() - z.detach().mean(0)).T for z in (batch.z_s, batch.z_t)]
    bases = [np.linalg.svd(span, full_matrices=False)[0][:, :rank] for span, rank in zip(spans, (5, 4), strict=True)]
    angles = scipy.linalg.subspace_angles(*bases)
    wanted = (5 + 4 - 2 * (np.cos(angles) ** 2).sum()) / 9  # of r_s + r_t dimensions those that are not shared
    found = make_method("dmp")(batch, 0.0).values
    assert set(found) == {"subspaces"}  # discrimination begins later
    assert found["subspaces"].item() == pytest.approx(wanted, rel=1e-9)


def test_it_lies_between_0_for_equal_and_1_for_orthogonal_subspaces():
    batch = random_batch(6, 6, 20)
    method = make_method("dmp")
    mixed = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) @ batch.z_s
    centre = batch.z_s.mean(0)
    same = batch._replace(z_t=batch.z_s.flip(0) + 3.0)
    assert method(same, 0.0).values["subspaces"].item() == pytest.approx(0, abs=1e-9)
    inside = batch._replace(z_t=mixed - mixed.mean(0) + centre)
    assert method(inside, 0.0).values["subspaces"].item() > 1e-3  # six rows of weights do not sum to zero
    half = torch.arange(20) < 10
    apart = batch._replace(z_s=batch.z_s * half, z_t=batch.z_t * ~half)
    assert method(apart, 0.0).values["subspaces"].item() == pytest.approx(1, rel=1e-9)


def test_directions_that_are_rounding_are_left_out():
    batch = random_batch(6, 5, 20)
    wanted = subspace_distance(batch.z_s, batch.z_t).item()
    z_s, z_t = batch.z_s.detach().float() + 100.0, batch.z_t.detach().float() - 100.0
    repeated = subspace_distance(torch.cat([z_s, z_s]), torch.cat([z_t, z_t, z_t]))
    assert repeated.item() == pytest.approx(wanted, abs=1e-5)
    # Constant features, whose mean is rounded, span nothing: neither do two such batches share anything.
    assert subspace_distance(torch.full((6, 20), 0.1), torch.full((6, 20), 0.3)).item() == 0
    assert subspace_distance(torch.full((6, 20), 0.1), z_t).item() == pytest.approx(1)


@pytest.mark.parametrize("least", [1.0, 1e-3])
def test_the_gradient_of_the_subspaces_is_that_of_finite_differences(least):
    batch = random_batch(4, 3, 6)
    scales = torch.logspace(0, np.log10(least), 6, dtype=torch.float64)  # singular values as unequal as in training
    parts = (part.detach() * scales for part in (batch.z_s, batch.z_t))
    batch = batch._replace(**dict(zip(("z_s", "z_t"), (part.requires_grad_() for part in parts), strict=True)))
    method = make_method("dmp")

    def total(z_s, z_t):
        return method(batch._replace(z_s=z_s, z_t=z_t), 0.0).total

    assert torch.autograd.gradcheck(total, [batch.z_s, batch.z_t])


def test_batches_that_span_everything_are_warned_of():
    batch = random_batch(8, 9, 6)
    with pytest.warns(UserWarning, match=r"batches of 8 samples span all 6 features"):
        value = make_method("dmp")(batch, 0.0).values["subspaces"]
    assert value.item() == pytest.approx(0, abs=1e-9)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_discrimination_by_hand():
    batch = random_batch(6, 4, 5)
    (_, term) = ready_for("dmp", batch).terms
    x, y, z, p = (part.detach().numpy() for part in (batch.z_s, batch.y_s, batch.z_t, batch.p_t))
    centres = np.stack([x[y == c].mean(0) for c in range(3)])
    mean = centres.mean(0)
    pairs = [((1 + cosine(centres[i] - mean, centres[j] - mean)) / 2) ** 2 for i, j in ((0, 1), (0, 2), (1, 2))]
    near = [(p[j].max() * cosine(z[j], centres[p[j].argmax()])) ** 2 for j in range(4)]
    assert term(batch).item() == pytest.approx(np.mean(pairs) - np.mean(near), rel=1e-9)


def test_centres_are_running_means_and_a_class_not_seen_has_none():
    batch = random_batch(6, 4, 5)
    (_, term) = ready_for("dmp", batch).terms
    first = batch._replace(y_s=batch.y_s % 2)
    term(first)
    assert term.seen.tolist() == [True, True, False]
    torch.testing.assert_close(term.centres[0], first.z_s[first.y_s == 0].mean(0).detach())
    assert term.centres[2].abs().max().item() == 0
    before = term.centres.clone()
    second = random_batch(6, 4, 5, seed=1)._replace(y_s=torch.zeros(6, dtype=torch.int64))
    term(second)
    torch.testing.assert_close(term.centres[0], 0.95 * before[0] + 0.05 * second.z_s.mean(0).detach())
    torch.testing.assert_close(term.centres[1:], before[1:])
    assert {"centres", "seen"} <= term.state_dict().keys()


def test_the_gradient_of_discrimination_is_that_of_finite_differences(monkeypatch):
    batch = random_batch(6, 4, 5)
    (_, term) = ready_for("dmp", batch).terms
    term(random_batch(6, 4, 5, seed=1))
    monkeypatch.setattr(dmp, "MOMENTUM", 1.0)  # centres are constants of the graph; finite differences would move them

    def value(z_s, z_t, logits_t):
        return term(batch._replace(z_s=z_s, z_t=z_t, logits_t=logits_t))

    assert torch.autograd.gradcheck(value, [batch.z_s, batch.z_t, batch.logits_t])


def test_discrimination_is_least_for_samples_on_their_centres():
    batch = random_batch(6, 6, 5)
    (_, term) = ready_for("dmp", batch).terms
    corners = torch.eye(5, dtype=torch.float64)[batch.y_s]
    sure = 100.0 * torch.eye(3, dtype=torch.float64)[batch.y_s]
    best = batch._replace(z_s=corners, z_t=corners, logits_t=sure)
    # Three directions from their mean are at 120 degrees at best: (1 - 1/2) / 2 squared.
    assert term(best).item() == pytest.approx(1 / 16 - 1)
    assert term(best._replace(z_t=corners.roll(1, dims=1))).item() > -0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_source_classes_at_one_point_have_no_direction_to_learn_from(dtype):
    for seed in range(10):
        batch = random_batch(20, 18, 30, seed=seed, dtype=dtype)
        z_s = batch.z_s.detach()[:1].repeat(20, 1).requires_grad_()
        value = ready_for("dmp", batch)(batch._replace(z_s=z_s), 100.0).values["discrimination"]
        (gradient,) = torch.autograd.grad(value, z_s)
        assert float(gradient.norm()) == 0


def test_a_doubtful_sample_is_drawn_to_the_centre_of_its_likeliest_class_and_to_no_nearer_one():
    corners = torch.eye(3, 5, dtype=torch.float64)
    batch = Batch(corners, torch.zeros(3, 3, dtype=torch.float64), torch.arange(3), *doubtful())
    (_, term) = ready_for("dmp", batch).terms
    (gradient,) = torch.autograd.grad(term(batch), batch.z_t)
    towards = -gradient[0]
    assert towards[0] > 0  # the class it is predicted for, though its features lie at the centre of the next
    assert towards[1] < 0
    p, z = batch.p_t.detach()[0], batch.z_t.detach()[0]
    assert term(batch).item() == pytest.approx(1 / 16 - (p[0] * z[0] / z.norm()).square().item())


def doubtful():
    """Features at the second centre, nearly, and a prediction that is just for the first class."""
    z = torch.tensor([[0.2, 1.0, 0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    return z, torch.tensor([[0.1, 0.0, -3.0]], dtype=torch.float64)


def test_a_class_without_a_centre_yet_draws_nothing():
    batch = random_batch(6, 4, 5)
    batch = batch._replace(
        y_s=batch.y_s % 2, logits_t=torch.tensor([[0.0, 0.1, 0.2]], dtype=torch.float64).repeat(4, 1)
    )
    (_, term) = ready_for("dmp", batch).terms
    (gradient,) = torch.autograd.grad(term(batch), batch.z_t)
    assert float(gradient.abs().max()) == 0
