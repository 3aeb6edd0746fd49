"""The pass of a GPU, run on the CPU with its products of halves, gives the distance of float64 and its gradient."""

import pytest
import torch
from float64_peer import in_float64, labelled_batch, value_and_gradient
from torch.nn.functional import one_hot

import bures
from bures import half_products, polar
from bures.metrics import _fused
from bures.metrics._fused_device import value_and_gradient_on_device


@pytest.fixture(params=["in halves", "in float64"])
def on_device(request, monkeypatch):
    """Every float32 call takes the pass, and where so named its products of halves."""

    def take_the_pass(xs, xt, problem, *, wanted):
        found = value_and_gradient_on_device(xs, xt, problem.weights, problem.factors, problem.bandwidth, wanted=wanted)
        assert found is not None  # which would be the general path
        return found

    monkeypatch.setattr(_fused, "_block_by_block", take_the_pass)
    monkeypatch.setattr("bures.losses._conditional.small_batch_distance", lambda *_: None)
    if request.param == "in halves":
        for module in (half_products, polar):
            monkeypatch.setattr(module, "has_half_products", lambda matrix: True)
        monkeypatch.setattr(half_products, "LARGE", 1)
        monkeypatch.setattr(polar, "HALVES_FROM", 1)


def batch(n=60, m=60, *sizes):
    return labelled_batch(n, m, *sizes)


def assert_agrees(distance, z_s, z_t, monkeypatch, share=1e-3):
    value, gradient = value_and_gradient(distance, z_s, z_t)
    expected, expected_gradient = in_float64(distance, z_s, z_t, monkeypatch)
    assert value.dtype == gradient.dtype == torch.float32
    assert float(value) == pytest.approx(float(expected), rel=1e-4, abs=1e-5)
    assert float((gradient - expected_gradient).norm()) <= share * float(expected_gradient.norm()) + 1e-9


@pytest.mark.parametrize("sizes", [(60, 60, 5), (50, 70, 5), (70, 50, 5), (20, 25, 40), (1, 1, 3)], ids=str)
@pytest.mark.parametrize("bandwidth", ["per-block", "shared", 2.5])
def test_the_loss_is_that_of_float64(on_device, monkeypatch, bandwidth, sizes):
    z_s, y_s, z_t, p_t = batch(*sizes)
    loss = bures.CKBLoss(bandwidth=bandwidth)
    assert_agrees(lambda a, b: loss(a, y_s, b, p_t.to(b)), z_s, z_t, monkeypatch)


@pytest.mark.parametrize("labels", ["hard", "soft", "continuous", "weights", "prior", "one each", "missing"])
def test_labels_and_weights_of_every_kind(on_device, monkeypatch, labels):
    z_s, y_s, z_t, p_t = batch(30, 40)
    y_t = p_t.argmax(1)
    calls = {
        "hard": lambda a, b: bures.ckb(a, y_s, b, y_t),
        "soft": lambda a, b: bures.ckb(a, one_hot(y_s, 3).to(a), b, p_t.to(b)),
        "continuous": lambda a, b: bures.ckb(a, z_s[:, 0].to(a), b, z_t[:, 0].to(b), conditioning="continuous"),
        "weights": lambda a, b: bures.ckb(a, y_s, b, p_t.to(b), sample_weight_s=torch.arange(30.0).to(a)),
        "prior": lambda a, b: bures.ckb(a, y_s, b, p_t.to(b), prior="uniform"),
        "one each": lambda a, b: bures.ckb(a, torch.arange(30), b, torch.arange(40)),
        "missing": lambda a, b: bures.ckb(a, y_s.clamp_max(1), b, p_t.to(b)),
    }
    assert_agrees(calls[labels], z_s, z_t, monkeypatch)


def test_features_near_a_surface_keep_their_small_directions(on_device, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(3, 40, generator=generator)
    _, y_s, _, p_t = batch(90, 90)
    z_s, z_t = (scale * torch.randn(90, 3, generator=generator) @ mixing for scale in (1.0, 1.2))
    assert_agrees(lambda a, b: bures.ckb(a, y_s, b, p_t.to(b)), z_s, z_t, monkeypatch)


@pytest.mark.parametrize("case", ["constant", "zero", "duplicates", "huge", "tiny", "far"])
def test_degenerate_features(on_device, monkeypatch, case):
    z_s, y_s, z_t, p_t = batch()
    changes = {
        "constant": lambda z: torch.full_like(z, 3.7),
        "zero": torch.zeros_like,
        "duplicates": lambda z: z[torch.arange(len(z)) // 4],
        "huge": lambda z: 1e18 * z,
        "tiny": lambda z: 1e-18 * z,
        "far": lambda z: z + 300.0,
    }
    z_s, z_t = changes[case](z_s), changes[case](z_t)
    distance = lambda a, b: bures.CKBLoss()(a, y_s, b, p_t.to(b))  # noqa: E731
    value, gradient = value_and_gradient(distance, z_s, z_t)
    expected, expected_gradient = in_float64(distance, z_s, z_t, monkeypatch)
    assert float(value) == pytest.approx(float(expected), rel=1e-3, abs=1e-5)
    assert bool(gradient.isfinite().all())
    if case != "duplicates":  # there the norm has a kink, and each path has a subgradient of its own
        largest = float(expected_gradient.norm())
        assert float((gradient - expected_gradient).norm()) <= 5e-3 * largest + 1e-6


def test_a_sample_and_itself_are_at_no_distance(on_device):
    z_s, y_s, _, _ = batch()
    assert abs(float(bures.ckb(z_s.requires_grad_(), y_s, z_s, y_s).detach())) < 5e-6


def test_autocast_does_not_reach_the_pass(on_device):
    z_s, y_s, z_t, p_t = batch()
    outside = bures.CKBLoss()(z_s, y_s, z_t, p_t)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = bures.CKBLoss()(z_s, y_s, z_t, p_t)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)


def test_the_second_derivative_is_that_of_the_general_path(on_device, monkeypatch):
    z_s, y_s, z_t, p_t = batch(12, 10)

    def curvature(a, b):
        a = a.clone().requires_grad_()
        (first,) = torch.autograd.grad(bures.ckb(a, y_s, b, p_t.to(b), bandwidth=8.0), a, create_graph=True)
        return torch.autograd.grad(first.square().sum(), a)[0]

    found = curvature(z_s, z_t)
    expected = curvature(z_s.double(), z_t.double())
    assert float((found - expected).norm()) <= 1e-2 * float(expected.norm())
