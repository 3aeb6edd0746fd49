"""DeepJDOT and ETD against POT and by hand."""

import numpy as np
import pytest
import torch
from small_batches import random_batch

from bures.methods import make_method
from bures.methods.etd import attention

ot = pytest.importorskip("ot")


def distances(batch):
    a, b = batch.z_s.detach().numpy(), batch.z_t.detach().numpy()
    return ((a[:, None] - b) ** 2).sum(2)


def value(name, batch, **options):
    return make_method(name, **options)(batch, 0.0).values["transport"]


def test_deepjdot_is_the_exact_cost_of_features_and_labels():
    batch = random_batch(12, 9)
    log_p = batch.p_t.detach().log().numpy()
    cost = 0.3 * distances(batch) - 0.7 * log_p[:, batch.y_s.numpy()].T
    wanted = ot.emd2(np.full(12, 1 / 12), np.full(9, 1 / 9), cost)
    found = value("deepjdot", batch, alpha=0.3, lambda_t=0.7)
    assert found.item() == pytest.approx(wanted, rel=1e-9)


def test_deepjdot_takes_the_published_weights():
    batch = random_batch(12, 9)
    assert value("deepjdot", batch).item() == pytest.approx(value("deepjdot", batch, alpha=1e-3, lambda_t=1e-4).item())
    assert value("deepjdot", batch).item() != pytest.approx(value("deepjdot", batch, alpha=1e-3, lambda_t=0.0).item())


def test_the_plan_is_a_constant_and_the_gradient_goes_through_the_cost():
    batch = random_batch(6, 6)
    cost = 0.3 * torch.cdist(batch.z_s, batch.z_t).square()
    cost = cost - 0.7 * batch.logits_t.log_softmax(1)[:, batch.y_s].T
    weights = np.full(6, 1 / 6)
    plan = torch.as_tensor(ot.emd(weights, weights, cost.detach().numpy()))
    inputs = [batch.z_s, batch.z_t, batch.logits_t]
    wanted = torch.autograd.grad((plan * cost).sum(), inputs)
    found = torch.autograd.grad(value("deepjdot", batch, alpha=0.3, lambda_t=0.7), inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("label", "shown"), [(-1, "-1"), (-100, "-100"), (3, "3")])
def test_a_label_that_numbers_no_class_is_refused(label, shown):
    batch = random_batch(6, 6)
    with pytest.raises(ValueError, match=rf"y_s contains class {shown}; accepted are 0 to 2"):
        value("deepjdot", batch._replace(y_s=torch.tensor([0, 1, 2, 0, 1, label])))


def test_the_gradient_of_an_exact_plan_is_that_of_finite_differences():
    batch = random_batch(5, 4, 3)
    method = make_method("deepjdot", alpha=0.3, lambda_t=0.7)

    def total(z_s, z_t, logits_t):
        return method(batch._replace(z_s=z_s, z_t=z_t, logits_t=logits_t), 0.0).total

    assert torch.autograd.gradcheck(total, [batch.z_s, batch.z_t, batch.logits_t])


def test_deepjdot_pairs_samples_that_coincide_at_no_cost():
    batch = random_batch(12, 12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    sure = 1e3 * torch.eye(3, dtype=torch.float64)[batch.y_s]
    same = batch._replace(z_t=batch.z_s[order], logits_t=sure[order])
    options = {"alpha": 1.0, "lambda_t": 1.0}
    assert value("deepjdot", same, **options).item() == pytest.approx(0, abs=1e-9)
    # The right features with the wrong labels are not the same distribution.
    wrong = same._replace(logits_t=(sure / 1e3).roll(1, dims=1)[order])
    assert value("deepjdot", wrong, **options).item() > 0.5


def test_etd_is_the_cost_of_the_entropic_plan():
    batch = random_batch(12, 9)
    p = batch.p_t.detach().numpy()
    weight = np.exp(-p[:, batch.y_s.numpy()].T / 0.5)
    weight = 9 * weight / weight.sum(1, keepdims=True)
    cost = weight * distances(batch) / distances(batch).mean()
    plan = ot.sinkhorn(np.full(12, 1 / 12), np.full(9, 1 / 9), cost, 0.3, numItermax=5000, stopThr=1e-12)
    found = value("etd", batch, temperature=0.5, reg=0.3)
    assert found.item() == pytest.approx((plan * cost).sum(), rel=1e-5)


def test_the_gradient_of_etd_is_that_of_the_features_in_the_cost():
    batch = random_batch(12, 9)
    found = torch.autograd.grad(value("etd", batch, reg=0.3), [batch.z_s, batch.z_t])
    squared = torch.cdist(batch.z_s, batch.z_t).square()
    weight = attention(batch.y_s, batch.p_t.detach(), 1.0)
    cost = weight * squared / squared.detach().mean()
    uniform = np.full(12, 1 / 12), np.full(9, 1 / 9)
    plan = torch.as_tensor(ot.sinkhorn(*uniform, cost.detach().numpy(), 0.3, numItermax=5000, stopThr=1e-12))
    wanted = torch.autograd.grad((plan * cost).sum(), [batch.z_s, batch.z_t])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_attention_makes_pairs_of_one_class_cheaper():
    p_t = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    weights = attention(torch.tensor([0, 1, 1]), p_t, 1.0)
    torch.testing.assert_close(weights.mean(dim=1), torch.ones(3))
    assert float(weights[0, 0]) < 1 < float(weights[0, 1])
    torch.testing.assert_close(weights[0, 1] / weights[0, 0], torch.tensor(1.0).exp())
    torch.testing.assert_close(weights[1], weights[0].flip(0))


def test_etd_does_not_depend_on_the_scale_of_features():
    batch = random_batch(12, 9)
    scaled = batch._replace(z_s=100 * batch.z_s, z_t=100 * batch.z_t)
    assert value("etd", scaled).item() == pytest.approx(value("etd", batch).item(), rel=1e-9)


def test_etd_with_a_target_at_the_source_costs_less():
    batch = random_batch(12, 12, shift=2.0)
    assert value("etd", batch._replace(z_t=batch.z_s)).item() < 0.2 * value("etd", batch).item()


def test_etd_has_the_published_entropy():
    assert make_method("etd")(random_batch(), 0.0).weights == {"entropy": 0.1, "transport": 1.0}
