"""DANN and CDAN: the reversed gradient, the maps and weights the discriminator sees, and the game itself."""

import math

import pytest
import torch
from small_batches import random_batch, ready, ready_for
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from bures.methods import Batch, make_method
from bures.methods._adversarial import reverse_gradient
from bures.methods.cdan import multilinear_map

ADVERSARIAL = ["dann", "cdan", "cdan+e"]


def term_of(name, batch, **options):
    (term,) = ready_for(name, batch, **options).terms
    return term


def test_the_reversed_gradient_has_sign_and_factor():
    x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    y = reverse_gradient(x, 0.25)
    assert torch.equal(y, x)
    (gradient,) = torch.autograd.grad((y**3).sum(), x)
    torch.testing.assert_close(gradient, -0.25 * 3 * x.detach() ** 2)


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_features_get_the_gradient_reversed_and_the_discriminator_as_it_is(name):
    batch = random_batch()
    method = ready_for(name, batch, weight=0.3, ramp=0.0)
    (term,) = method.terms
    objective = method(batch, 1.0)
    inputs = [batch.z_s, batch.z_t]
    reversed_ = torch.autograd.grad(objective.total, [*inputs, *method.parameters()])
    plain = torch.autograd.grad(plain_loss(term, name, batch), [*inputs, *method.parameters()])
    for found, wanted in zip(reversed_[:2], plain[:2], strict=True):
        assert float(wanted.abs().max()) > 1e-6
        torch.testing.assert_close(found, -0.3 * wanted)
    for found, wanted in zip(reversed_[2:], plain[2:], strict=True):
        torch.testing.assert_close(found, wanted)  # at its full rate
    assert objective.weights == {"domains": 0.3}
    torch.testing.assert_close(objective.values["domains"], objective.total)


def plain_loss(term, name, batch):
    """The discriminator's cross-entropy without any reversal, from the formulas."""
    sides = []
    for z, logits, label in ((batch.z_s, batch.logits_s, 1.0), (batch.z_t, batch.logits_t, 0.0)):
        p = logits.softmax(1)
        seen = z if name == "dann" else torch.einsum("nd,nk->ndk", z, p.detach()).flatten(1)
        scores = term.discriminator(seen).squeeze(1)
        surprise = binary_cross_entropy_with_logits(scores, torch.full_like(scores, label), reduction="none")
        if name == "cdan+e":
            weights = 1 + torch.exp((p * p.log()).sum(1))
            surprise = surprise * weights / weights.detach().mean()
        sides.append(surprise.mean())
    return (sides[0] + sides[1]) / 2


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_value_is_the_cross_entropy_of_the_discriminator(name):
    batch = random_batch()
    term = term_of(name, batch)
    torch.testing.assert_close(term(batch), plain_loss(term, name, batch))


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_a_discriminator_that_knows_nothing_gives_log_2(name):
    batch = random_batch()
    term = term_of(name, batch)
    torch.nn.init.zeros_(term.discriminator[-1].weight)
    torch.nn.init.zeros_(term.discriminator[-1].bias)
    assert term(batch).item() == pytest.approx(math.log(2))


def test_the_gradient_through_entropy_weights_is_reversed_and_through_predictions_none():
    batch = random_batch()
    term = term_of("cdan+e", batch)
    wanted = torch.autograd.grad(plain_loss(term, "cdan+e", batch), [batch.logits_s, batch.logits_t])
    found = torch.autograd.grad(term.weighted(batch, 0.7)[1], [batch.logits_s, batch.logits_t])
    for one, other in zip(found, wanted, strict=True):
        assert float(other.abs().max()) > 1e-6
        torch.testing.assert_close(one, -0.7 * other)
    cdan = term_of("cdan", batch)
    logits = [batch.logits_s, batch.logits_t]
    assert torch.autograd.grad(cdan(batch), logits, allow_unused=True) == (None, None)


def test_certain_predictions_weigh_up_to_twice_as_much_and_means_are_one():
    batch = random_batch(4, 4)
    term = term_of("cdan+e", batch)
    weights = term.sample_weights(torch.tensor([[40.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64))
    assert weights.mean().item() == pytest.approx(1)
    assert (weights[0] / weights[1]).item() == pytest.approx(2 / (1 + 1 / 3))


def test_the_map_is_the_outer_product():
    batch = random_batch()
    z, p = batch.z_s.detach(), batch.logits_s.detach().softmax(1)
    wanted = torch.stack([torch.outer(a, b).flatten() for a, b in zip(z, p, strict=True)])
    torch.testing.assert_close(multilinear_map(z, p), wanted)


def test_above_its_size_the_map_is_random_and_keeps_inner_products():
    batch = random_batch(6, 6, 20)
    exact = multilinear_map(batch.z_s, batch.logits_s.softmax(1)).detach()
    term = term_of("cdan", batch, largest=59, random_features=60_000, hidden=2)
    mapped = term.inputs(batch.z_s, batch.logits_s.softmax(1)).detach()
    assert mapped.shape == (6, 60_000)
    torch.testing.assert_close(mapped @ mapped.T, exact @ exact.T, rtol=0, atol=0.1 * float((exact @ exact.T).max()))
    small = term_of("cdan", batch, largest=60)
    assert small.projection_z is None
    assert small.discriminator[0].in_features == 60
    assert term_of("cdan", batch, largest=59, random_features=7).discriminator[0].in_features == 7


def test_the_discriminator_has_three_layers_and_dropout_where_asked():
    batch = random_batch()
    linear = [m for m in term_of("dann", batch, hidden=10).discriminator if isinstance(m, torch.nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(24, 10), (10, 10), (10, 1)]
    term = term_of("dann", batch, dropout=0.5)
    assert term(batch).item() != term(batch).item()
    term.eval()
    assert term(batch).item() == term(batch).item()


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_parameters_made_at_first_use_are_warned_of(name):
    batch = random_batch()
    method = make_method(name)
    with pytest.warns(UserWarning, match=r"an optimiser made before does not train it; call method.setup"):
        objective = method(batch, 1.0)
    assert objective.total.dtype == torch.float64
    method(batch, 1.0)  # once: warnings are errors here


def test_setting_up_again_keeps_what_was_learnt():
    method = ready("cdan", 24, 3, largest=10)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    assert {"terms.0.projection_z", "terms.0.discriminator.0.weight"} <= before.keys()
    method.setup(24, 3)
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_gradient_of_the_discriminator_is_that_of_finite_differences(name):
    batch = random_batch(5, 4, 3)
    method = ready_for(name, batch, hidden=3)
    names = [name for name, _ in method.named_parameters()]

    def total(*parameters):
        replaced = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(method, replaced, (batch, 1.0)).total

    assert torch.autograd.gradcheck(total, [p.detach().requires_grad_() for p in method.parameters()])


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_game_brings_domains_together(name):
    """The target differs by an offset that the network may move: with the sign right it ends near zero."""
    generator = torch.Generator().manual_seed(0)
    offset = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    method = ready(name, 2, 2, torch.float32, hidden=16, ramp=0.0)
    optimiser = torch.optim.Adam([{"params": [offset], "lr": 0.02}, {"params": method.parameters(), "lr": 0.01}])
    path = []
    for _ in range(400):
        y = torch.randint(2, (128,), generator=generator)
        x = torch.randn(128, 2, generator=generator) + 2.0 * y[:, None]
        logits = 6.0 * one_hot(y, 2).float()
        batch = Batch(x[:64], logits[:64], y[:64], x[64:] + offset, logits[64:])
        optimiser.zero_grad()
        method(batch, 1.0).total.backward()
        optimiser.step()
        path.append(offset.detach().clone())
    end = torch.stack(path[-100:]).mean(dim=0)  # a game circles around its solution
    assert float(end.norm()) < 0.5
