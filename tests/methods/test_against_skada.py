"""The deep methods against skada on the same tensors.

Where skada (0.6) departs from the publication, the test says how, shows the right value, and compares on tensors on
which the error makes no difference; it also passes once skada has mended it.
"""

import math

import pytest
import torch
from skada_peer import agrees, import_skada
from small_batches import random_batch, ready_for
from torch import nn

from bures.methods import Batch, make_method
from bures.methods._adversarial import reverse_gradient

skada = import_skada()
from skada.deep import _adversarial as adversarial  # noqa: E402 - they load with the package, or not at all
from skada.deep import losses, modules  # noqa: E402


def value(name, batch, **options):
    (found,) = make_method(name, **options)(batch, 0.0).values.values()
    return found


def same_gradients(ours, theirs, inputs, **tolerance):
    for one, other in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), strict=True):
        assert float(other.abs().max()) > 1e-9
        torch.testing.assert_close(one, other, **tolerance)


def test_deep_coral():
    batch = random_batch(20, 15, 6)
    ours, theirs = value("deep-coral", batch), losses.deepcoral_loss(batch.z_s, batch.z_t)
    torch.testing.assert_close(ours, theirs)
    same_gradients(ours, theirs, [batch.z_s, batch.z_t])


def test_mcc():
    batch = random_batch(20, 15, k=5)
    for temperature in (1.0, 2.5):
        ours, theirs = value("mcc", batch, temperature=temperature), losses.mcc_loss(batch.logits_t, T=temperature)
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)  # skada adds 1e-7 inside of a logarithm


def test_the_weights_of_mcc_are_constants_which_skada_lets_move():
    """The authors' program detaches the weights by entropy. In a batch that is even in all respects both agree."""
    logits = torch.tensor([[3.0, 0.0, -1.0]]).double()
    even = torch.cat([logits.roll(shift, dims=1) for shift in range(3)]).requires_grad_()
    batch = random_batch(6, 3, k=3)._replace(logits_t=even)
    # All weights have the same effect there, and their mean is one: it cancels.
    same_gradients(value("mcc", batch, temperature=1.0), losses.mcc_loss(even), [even], rtol=1e-4, atol=1e-7)
    batch = random_batch(6, 15, k=3)
    (ours,) = torch.autograd.grad(value("mcc", batch, temperature=1.0), batch.logits_t)
    p = batch.logits_t.softmax(1)
    weights = 1 + (p * p.log()).sum(1).exp()
    confusion = p.T @ (p * (weights / weights.mean()).detach()[:, None])
    rows = confusion / confusion.sum(1, keepdim=True)
    (wanted,) = torch.autograd.grad((rows.sum() - rows.trace()) / 3, batch.logits_t)
    torch.testing.assert_close(ours, wanted)


def test_deepjdot():
    batch = random_batch(14, 14)
    ours = value("deepjdot", batch, alpha=0.3, lambda_t=0.7)
    uniform = torch.full((14,), 1 / 14, dtype=torch.float64)
    theirs = losses.deepjdot_loss(
        batch.y_s, batch.logits_t, batch.z_s, batch.z_t, 0.3, 0.7, sample_weights=uniform, target_sample_weights=uniform
    )
    torch.testing.assert_close(ours, theirs)
    same_gradients(ours, theirs, [batch.z_s, batch.z_t, batch.logits_t])


def test_deepjdot_with_unequal_batches_which_skada_does_not_take():
    """skada repeats labels and predictions by their own numbers; ours is compared with POT elsewhere."""
    batch = random_batch(14, 9)
    assert bool(value("deepjdot", batch).isfinite())
    try:
        losses.deepjdot_loss(batch.y_s, batch.logits_t, batch.z_s, batch.z_t, 0.3, 0.7)
    except (RuntimeError, ValueError, AssertionError):
        return


def kernels_of(name, a, b, widths):
    """The sum over kernels that skada uses, with distances as they are ("laplace") or squared ("gauss")."""
    distances = torch.cdist(a, b) if name == "laplace" else torch.cdist(a, b).square()
    return torch.stack([torch.exp(-distances / width) for width in widths]).sum(0)


def mmd_of(name, z_s, z_t, widths):
    within = kernels_of(name, z_s, z_s, widths).mean() + kernels_of(name, z_t, z_t, widths).mean()
    return within - 2 * kernels_of(name, z_s, z_t, widths).mean()


def test_dan_where_a_distance_and_its_square_are_the_same():
    """Corners of a simplex have distances 0 and 1, so that the error of the next test does not matter."""
    corners = torch.eye(6, dtype=torch.float64) / math.sqrt(2)
    z_s, z_t = corners[[0, 1, 2, 3, 0, 1]], corners[[2, 3, 4, 5, 4, 4, 4]]
    batch = random_batch(6, 7, 6)._replace(z_s=z_s.requires_grad_(), z_t=z_t.requires_grad_())
    pooled = torch.cat([z_s, z_t])
    unit = torch.cdist(pooled, pooled).square().mean().item()
    ours = value("dan", batch, multiples=[0.5, 1.0, 3.0])
    assert ours.item() > 0.05
    theirs = losses.dan_loss(z_s.float(), z_t.float(), sigmas=[0.5 * unit, unit, 3.0 * unit])
    assert 3 * ours.item() == pytest.approx(theirs.item(), rel=1e-5)  # a sum over kernels, ours is their mean


def test_the_kernel_of_dan_is_gaussian_while_that_of_skada_forgets_the_square():
    batch = random_batch(12, 9, 5, dtype=torch.float32)
    pooled = torch.cat([batch.z_s, batch.z_t]).detach()
    unit = torch.cdist(pooled, pooled).square().mean().item()
    widths = [0.5 * unit, unit, 3.0 * unit]
    right, wrong = (mmd_of(name, batch.z_s, batch.z_t, widths) for name in ("gauss", "laplace"))
    ours = 3 * value("dan", batch, multiples=[0.5, 1.0, 3.0])
    torch.testing.assert_close(ours, right)
    assert not agrees(right, wrong, rel=0.2)
    theirs = losses.dan_loss(batch.z_s, batch.z_t, sigmas=widths)
    assert agrees(theirs, wrong) or agrees(theirs, right)


def test_the_reversed_gradient():
    x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    ours, theirs = reverse_gradient(x, 0.3), modules.GradientReversalLayer.apply(x, 0.3)
    same_gradients((ours**3).sum(), (theirs**3).sum(), [x])


class Doubtful(nn.Module):
    """A discriminator as skada takes it, from one of ours: probabilities of the target, with a reversed gradient."""

    def __init__(self, scores, alpha):
        super().__init__()
        self.scores, self.alpha = scores, alpha

    def forward(self, x):
        return torch.sigmoid(-self.scores(modules.GradientReversalLayer.apply(x, self.alpha))).squeeze(1)


def test_dann():
    batch = random_batch(dtype=torch.float32)
    method = ready_for("dann", batch, weight=0.3, ramp=0.0, hidden=16)
    discriminator = Doubtful(method.terms[0].discriminator, 0.3)
    ours = method(batch, 1.0).total
    loss = adversarial.DANNLoss()
    theirs = loss(discriminator(batch.z_s), discriminator(batch.z_t)) / 2  # a sum over domains, ours a mean
    torch.testing.assert_close(ours, theirs)
    same_gradients(ours, theirs, [batch.z_s, batch.z_t, *method.parameters()])


@pytest.mark.filterwarnings("ignore:Implicit dimension choice for softmax")
def test_the_discriminator_of_skada_by_default_is_a_constant():
    """A softmax over one unit: every sample is taken for the target, whatever its features are. Ours is none."""
    x = random_batch(dtype=torch.float32).z_s.detach()
    with torch.no_grad():
        theirs = modules.DomainClassifier(24)(x)
        ours = torch.sigmoid(ready_for("dann", random_batch(dtype=torch.float32)).terms[0].discriminator(x))
    assert bool((theirs == 1).all()) or float(theirs.std()) > 1e-4  # wrong, or mended
    assert float(ours.std()) > 1e-4


class Outputs(nn.Module):
    """Stands for a network: features as they come, and predictions of the given kind from a linear layer."""

    def __init__(self, k, d, kind):
        super().__init__()
        self.layer, self.classifier, self.kind = nn.Identity(), nn.Linear(d, k, dtype=torch.float64), kind

    def forward(self, x):
        logits = self.classifier(self.layer(x))
        return logits.softmax(1) if self.kind == "probabilities" else logits


class Seen(nn.Module):
    """A discriminator that gives back what it sees."""

    def forward(self, x):
        return x


def seen_by_skada(z, kind, **options):
    torch.manual_seed(0)
    network = Outputs(3, z.shape[1], kind)
    module = adversarial.CDANModule(network, "layer", Seen(), **options).train()
    with torch.no_grad():
        return network, module(z)[1]


def seen_by_us(z, network, **options):
    with torch.no_grad():
        logits = network.classifier(z)
        (term,) = ready_for("cdan", Batch(z, logits, torch.arange(len(z)) % 3, z, logits), **options).terms
        return term, term.inputs(z, logits.softmax(1))


def test_the_multilinear_map_of_cdan():
    z = random_batch(8, 8, 5).z_s.detach()
    network, theirs = seen_by_skada(z, "probabilities")
    _, ours = seen_by_us(z, network)
    by_class = ours.reshape(8, 5, 3).transpose(1, 2).flatten(1)  # skada counts features within a class
    torch.testing.assert_close(by_class, theirs)


def test_cdan_conditions_on_predictions_while_skada_takes_what_the_network_gives():
    """A network for cross-entropy gives logits, and then these are multiplied with the features."""
    z = random_batch(8, 8, 5).z_s.detach()
    network, theirs = seen_by_skada(z, "logits")
    _, ours = seen_by_us(z, network)
    right = torch.einsum("nd,nk->ndk", z, network(z).softmax(1)).detach()
    torch.testing.assert_close(ours, right.flatten(1))
    wrong = torch.einsum("nd,nk->nkd", z, network(z)).detach().flatten(1)
    assert torch.allclose(theirs, wrong) or torch.allclose(theirs, right.transpose(1, 2).flatten(1))


def test_the_random_map_of_cdan(monkeypatch):
    z = random_batch(8, 8, 5).z_s.detach().float()
    made = []
    original = adversarial._RandomLayer.__init__

    def keep(layer, *args, **kwargs):
        original(layer, *args, **kwargs)
        made.append(layer)

    monkeypatch.setattr(adversarial._RandomLayer, "__init__", keep)
    network = Outputs(3, 5, "probabilities").float()
    module = adversarial.CDANModule(network, "layer", Seen(), max_features=12).train()
    with torch.no_grad():
        theirs = module(z)[1]
        term, _ = seen_by_us(z, network, largest=12, random_features=12)
        term.projection_z, term.projection_p = made[0].random_matrix
        torch.testing.assert_close(term.inputs(z, network(z)), theirs)


def test_cdan():
    batch = random_batch(dtype=torch.float32)
    method = ready_for("cdan", batch, weight=0.3, ramp=0.0, hidden=16)
    (term,) = method.terms
    discriminator = Doubtful(term.discriminator, 0.3)

    def seen(z, logits):
        return discriminator(torch.einsum("nd,nk->ndk", z, logits.softmax(1).detach()).flatten(1))

    predictions = seen(batch.z_s, batch.logits_s), seen(batch.z_t, batch.logits_t)
    theirs = adversarial.CDANLoss()(*predictions, batch.z_s, batch.z_t) / 2
    torch.testing.assert_close(method(batch, 1.0).total, theirs)
    same_gradients(method(batch, 1.0).total, theirs, [batch.z_s, batch.z_t, *method.parameters()])
