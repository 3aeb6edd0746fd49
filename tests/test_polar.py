"""The polar factor by matrix products: right above its lower end, bounded below it."""

import math

import pytest
import torch
from torch import Tensor

from bures import polar
from bures.polar import LOWER_END, polar_factor
from bures.spectral import nuclear_norm


def with_spectrum(m: int, n: int, spectrum: Tensor, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with given singular values, and its singular vectors."""
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(k, len(spectrum), generator=generator).double())[0] for k in (m, n))
    return u * spectrum @ v.T, u, v


@pytest.mark.parametrize(("m", "n"), [(30, 30), (60, 25), (25, 60), (1, 1), (1, 7), (7, 1)])
@pytest.mark.parametrize("decades", [0, 2, 5, 7])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_polar_factor_is_that_of_the_svd(m, n, decades, scale):
    matrix, u, v = with_spectrum(m, n, scale * torch.logspace(0, -decades, min(m, n), dtype=torch.float64))
    assert float((polar_factor(matrix) - u @ v.T).abs().max()) < 1e-8


@pytest.mark.parametrize("decades", [0, 2, 5, 7])
def test_a_rational_step_leads_to_the_same_factor(monkeypatch, decades):
    monkeypatch.setattr("bures.polar.RATIONAL_FROM", 1)
    matrix, u, v = with_spectrum(60, 40, torch.logspace(0, -decades, 40, dtype=torch.float64))
    error = (polar_factor(matrix) - u @ v.T).abs().max()
    assert float(error) < 1e-4  # the condition number of the step, 7e10, times the rounding of float64, and no worse
    stack = torch.stack([matrix, torch.zeros_like(matrix)])
    torch.testing.assert_close(polar_factor(stack), torch.stack([polar_factor(matrix), stack[1]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_below_the_lower_end_stay_between_zero_and_one(dtype):
    spectrum = torch.logspace(0, -14, 80, dtype=torch.float64)
    matrix, u, v = with_spectrum(100, 80, spectrum)
    amplitudes = (u.T @ polar_factor(matrix.to(dtype)).double() @ v).diagonal()
    if dtype == torch.float64:
        assert float((amplitudes[spectrum > 10 * LOWER_END] - 1).abs().max()) < 1e-7
    assert float(torch.linalg.matrix_norm(polar_factor(matrix.to(dtype)).double(), 2)) < 1 + 1e-5


@pytest.mark.parametrize("matrix", [torch.zeros(4, 3), torch.zeros(3, 4, dtype=torch.float64)])
def test_zero_has_the_polar_factor_zero(matrix):
    assert torch.equal(polar_factor(matrix), matrix)


def test_rank_one_is_scaled_to_norm_one():
    expected = torch.full((3, 3), 1 / 3)
    torch.testing.assert_close(polar_factor(torch.full((3, 3), 1e-30)), expected)
    torch.testing.assert_close(polar_factor(torch.full((3, 3), 1e30)), expected)


def test_batches_are_taken_one_by_one():
    stack = torch.randn(2, 3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    polar = polar_factor(stack)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(polar[i, j], polar_factor(stack[i, j]))


def test_nuclear_norm_by_products_agrees_with_the_svd_in_value_and_gradient():
    matrix, _, _ = with_spectrum(40, 30, torch.logspace(0, -6, 30, dtype=torch.float64))
    results = {}
    for method in ("svd", "polar"):
        x = matrix.clone().requires_grad_()
        norm = nuclear_norm(x, method)
        norm.backward()
        results[method] = norm.detach(), x.grad
    torch.testing.assert_close(results["polar"], results["svd"], rtol=1e-8, atol=1e-8)
    assert float(nuclear_norm(matrix, "polar")) == pytest.approx(float(results["svd"][0]), rel=1e-8)


@pytest.mark.parametrize("lower", [1e-8, 1e-4, 0.01, 0.3])
def test_the_rational_step_raises_the_lower_end_as_far_as_it_can(lower):
    """The best rational function of its type swings between its bounds: lowest at the end and once more inside."""
    step = polar._optimal_rational(lower)
    x = torch.logspace(math.log10(lower), 0, 200_001, dtype=torch.float64)
    y = x * (step.a + step.b * x**2) / (1 + step.c * x**2)
    assert float(y[-1]) == pytest.approx(1, rel=1e-9)
    assert float(y.max()) == pytest.approx(1, rel=1e-8)
    peak = int((y.diff() < 0).int().argmax())
    inner = float(y[peak:].min())
    assert float(y[peak]) == pytest.approx(1, rel=1e-6)
    assert inner == pytest.approx(float(y[0]), rel=1e-6)
    assert step.lower == pytest.approx(float(y[0]), rel=1e-9)


@pytest.mark.parametrize(("lower", "converged"), [(1e-8, 1e-9), (5e-3, 1e-5), (0.5, 1e-9)])
def test_scalings_make_both_ends_meet_and_are_no_more_than_are_needed(lower, converged):
    x, lowest = torch.linspace(lower, 1, 100_001, dtype=torch.float64), []
    for rho in polar._optimal_scalings(lower, converged):
        lowest.append(float(x.min()))
        x = torch.linspace(lowest[-1], 1, 100_001, dtype=torch.float64)
        x = rho * x * (3 - (rho * x) ** 2) / 2
        assert float(x[0]) == pytest.approx(float(x[-1]), rel=1e-6)
        assert float(x.max()) == pytest.approx(1, rel=1e-9)
    assert 1 - float(x.min()) <= converged * (1 + 1e-6)
    assert 1 - lowest[-1] > converged


def test_the_steps_of_each_way_are_those_of_its_lower_end():
    assert polar._optimal_rational(LOWER_END) == polar.STEPS.rational
    after = polar.STEPS.rational.lower
    assert after == pytest.approx(5e-3, rel=0.1)
    assert polar._optimal_scalings(LOWER_END, 1e-9) == polar.STEPS.scalings
    assert polar._optimal_scalings(after, 1e-9) == polar.STEPS.after_rational
    assert polar._optimal_scalings(after, 1e-5) == polar.SCALINGS_IN_HALVES
    assert len(polar.STEPS.scalings) - len(polar.STEPS.after_rational) == 14


def test_the_bound_of_the_largest_singular_value_is_above_it_by_little_and_one_for_zero():
    bound = polar._bound(torch.tensor([16.0, 0.0], dtype=torch.float64))
    assert bound.tolist() == pytest.approx([4 * (1 + 1e-8), 1], rel=1e-12)


def test_the_rational_step_moves_every_singular_value_by_its_function():
    a, b, c, _ = polar.STEPS.rational
    s = torch.logspace(0, -10, 40, dtype=torch.float64)
    moved = polar._rational_step(torch.diag(s)).diagonal()
    torch.testing.assert_close(moved, s * (a + b * s**2) / (1 + c * s**2), rtol=1e-9, atol=0)
