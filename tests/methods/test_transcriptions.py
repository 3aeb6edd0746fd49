"""The methods beside their formulas, written out slowly in float64: values and gradients on unkind batches."""

import copy
from itertools import combinations

import numpy as np
import pytest
import torch
from small_batches import random_batch, ready_for

from bures.methods import Batch

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
WEIGHT = 0.3  # of the games

SIZES = {
    "few classes": (20, 15, 40, 3),
    "more target than source": (12, 30, 40, 3),
    "a class": (15, 20, 40, 1),
    "a sample of each class": (65, 41, 90, 65),
}
PREDICTIONS = {
    "as they come": lambda logits: logits,
    "all of one class": lambda logits: 0 * logits + 60 * torch.eye(logits.shape[1])[0],
    "nearly even": lambda logits: 1e-3 * logits,
}


def distances(a, b):
    return (a[:, None, :] - b[None, :, :]).square().sum(2)


def entropies(p):
    return -torch.special.xlogy(p, p).sum(1)


def gaussian(a, b, width, multiples=(1.0,)):
    return torch.stack([torch.exp(-distances(a, b) / (multiple * width)) for multiple in multiples]).mean(0)


def mean_distance(a, b):
    pooled = torch.cat([a, b]).detach()
    return distances(pooled, pooled).mean()


def mmd(k):
    return k("s", "s").mean() + k("t", "t").mean() - 2 * k("s", "t").mean()


def dan(b):
    z = {"s": b.z_s, "t": b.z_t}
    return mmd(lambda i, j: gaussian(z[i], z[j], mean_distance(b.z_s, b.z_t), WIDTHS))


def jan(b):
    z, p = {"s": b.z_s, "t": b.z_t}, {"s": b.logits_s.softmax(1), "t": b.logits_t.softmax(1)}
    width, label_width = mean_distance(*z.values()), mean_distance(*p.values())
    # A single class has predictions at distance zero, whose kernel is one whatever its width.
    label_width = label_width if label_width > 0 else torch.ones(())
    return mmd(lambda i, j: gaussian(z[i], z[j], width, WIDTHS) * gaussian(p[i], p[j], label_width))


def dsan(b):
    z, width, p = {"s": b.z_s, "t": b.z_t}, mean_distance(b.z_s, b.z_t), b.logits_t.softmax(1).detach()
    k = {i + j: gaussian(z[i], z[j], width, WIDTHS) for i, j in ("ss", "tt", "st")}
    found = []
    for c in b.y_s.unique():
        s, t = (b.y_s == c).double() / (b.y_s == c).sum(), p[:, c] / p[:, c].sum()
        found.append(s @ k["ss"] @ s + t @ k["tt"] @ t - 2 * s @ k["st"] @ t)
    return torch.stack(found).mean()


def deep_coral(b):
    c_s, c_t = (torch.cov(z.T).reshape(z.shape[1], -1) for z in (b.z_s, b.z_t))
    return (c_s - c_t).square().sum() / (4 * b.z_s.shape[1] ** 2)


def mcc(b):
    p = (b.logits_t / 2.5).softmax(1)
    w = 1 + torch.exp(-entropies(p.detach()))
    confusion = sum(w[i] / w.mean() * torch.outer(p[i], p[i]) for i in range(len(p)))
    rows = confusion / confusion.sum(1, keepdim=True)
    return (rows.sum() - rows.trace()) / p.shape[1]


def bnm(b):
    return -torch.linalg.svdvals(b.logits_t.softmax(1)).sum() / len(b.logits_t)


def im(b):
    p = b.logits_t.softmax(1)
    return 0.5 * entropies(p).mean() - 0.5 * entropies(p.mean(0, keepdim=True)).sum()


def deepjdot(b):
    ot = pytest.importorskip("ot")
    cost = 1e-3 * distances(b.z_s, b.z_t) - 1e-4 * b.logits_t.log_softmax(1)[:, b.y_s].T
    plan = ot.emd(*(np.full(n, 1 / n) for n in cost.shape), cost.detach().numpy())
    return (torch.from_numpy(plan) * cost).sum()


def cosine(a, b):
    return a @ b / (a.norm() * b.norm())


def dmp(b):
    spans = []
    for z in (b.z_s, b.z_t):
        _, values, axes = torch.linalg.svd(z - z.mean(0), full_matrices=False)
        axes = axes[values > 1e-4 * values[0]]
        spans.append((axes.T @ axes, len(axes)))
    (project_s, rank_s), (project_t, rank_t) = spans
    means = {int(c): b.z_s[b.y_s == c].mean(0) for c in b.y_s.unique()}
    centre = torch.stack(list(means.values())).mean(0).detach()
    inter = [((1 + cosine(means[i] - centre, means[j] - centre)) / 2) ** 2 for i, j in combinations(means, 2)]
    p = b.logits_t.softmax(1)
    likeliest = [int(row.argmax()) for row in p]
    near = [(p[j, c] * cosine(b.z_t[j], means[c].detach())) ** 2 for j, c in enumerate(likeliest) if c in means]
    apart = sum(inter) / max(len(inter), 1)
    return (project_s - project_t).square().sum() / (rank_s + rank_t) + apart - sum(near) / len(p)


FORMULAS = {
    "bnm": bnm,
    "dan": dan,
    "deep-coral": deep_coral,
    "deepjdot": deepjdot,
    "dmp": dmp,
    "dsan": dsan,
    "im": im,
    "jan": jan,
    "mcc": mcc,
}


def batches(size, predictions, missing):
    """A batch in float32, and the same in float64; with every second class left out of the source or not."""
    batch = random_batch(*SIZES[size], dtype=torch.float32)
    labels = batch.y_s // 2 if missing else batch.y_s
    logits = PREDICTIONS[predictions](batch.logits_t.detach())
    single = batch._replace(logits_t=logits.requires_grad_(), y_s=labels)
    double = [part.detach().double().requires_grad_() if part.is_floating_point() else part for part in single]
    return single, Batch(*double)


def gradients(value, batch, more=()):
    parts = [batch.z_s, batch.logits_s, batch.z_t, batch.logits_t, *more]
    found = torch.autograd.grad(value, parts, allow_unused=True)
    pairs = zip(found, parts, strict=True)
    return [(torch.zeros_like(part) if gradient is None else gradient).double() for gradient, part in pairs]


def assert_close(ours, formula, largest):
    assert float((ours - formula).abs().max()) <= 1e-4 * max(largest, 1e-5)


@pytest.mark.parametrize("missing", [False, True], ids=["all classes", "classes missing"])
@pytest.mark.parametrize("predictions", PREDICTIONS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FORMULAS)
def test_a_method_in_mixed_precision_is_its_formula(name, size, predictions, missing):
    single, double = batches(size, predictions, missing)
    method = ready_for(name, single, **({} if name == "im" else {"ramp": 0.0}))
    with torch.autocast("cpu", torch.bfloat16):
        value = method(single, 100.0).total
    expected = FORMULAS[name](double)
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-6)
    ours, formula = gradients(value, single), gradients(expected, double)
    largest = max(float(gradient.abs().max()) for gradient in formula)
    for a, b in zip(ours, formula, strict=True):
        assert_close(a, b, largest)


def game(term, discriminator, z, logits, source):
    """The part of one domain in the cross-entropy of a discriminator that sees what the publication says."""
    p = logits.softmax(1)
    seen = z
    if term in ("cdan", "cdan+e"):
        seen = torch.stack([torch.outer(z[i], p[i].detach()).flatten() for i in range(len(z))])
    right = torch.sigmoid(discriminator(seen)[:, 0])
    surprise = -torch.log(right if source else 1 - right)
    weights = 1 + torch.exp(-entropies(p)) if term == "cdan+e" else torch.ones(len(z), dtype=p.dtype)
    return (weights / weights.detach().sum()) @ surprise


@pytest.mark.parametrize("predictions", PREDICTIONS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["cdan", "cdan+e", "dann"])
def test_a_game_is_its_formula_and_what_leaves_the_discriminator_is_reversed(name, size, predictions):
    single, double = batches(size, predictions, missing=False)
    options = {"largest": 10_000} if name != "dann" else {}
    method = ready_for(name, single, weight=WEIGHT, ramp=0.0, hidden=8, **options)
    discriminator = copy.deepcopy(method.terms[0].discriminator).double()
    with torch.autocast("cpu", torch.bfloat16):
        value = method(single, 100.0).total
    parts = (double.z_s, double.logits_s, True), (double.z_t, double.logits_t, False)
    expected = sum(game(name, discriminator, *part) for part in parts) / 2
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-6)
    ours = gradients(value, single, method.parameters())
    formula = gradients(expected, double, discriminator.parameters())
    largest = max(float(gradient.abs().max()) for gradient in formula)
    for i, (a, b) in enumerate(zip(ours, formula, strict=True)):
        assert_close(a, b if i > 3 else -WEIGHT * b, largest)
