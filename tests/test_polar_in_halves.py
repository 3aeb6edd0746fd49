"""The polar factor with its last steps in half precision: that of the SVD to four digits, and bounded everywhere."""

import pytest
import torch

from bures import polar
from bures.polar import norm_and_rounded_polar_factor, polar_factor


@pytest.fixture
def in_halves(monkeypatch):
    """The path of a GPU, from the first side on."""
    monkeypatch.setattr(polar, "has_half_products", lambda matrix: True)
    monkeypatch.setattr(polar, "HALVES_FROM", 1)


def rounded_polar_factor(matrix):
    return norm_and_rounded_polar_factor(matrix.clone())[1]


def with_spectrum(m, n, spectrum, seed=0):
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(k, len(spectrum), generator=generator).double())[0] for k in (m, n))
    return u * spectrum @ v.T, u, v


@pytest.mark.parametrize(("m", "n"), [(90, 90), (120, 70), (70, 120), (1, 1), (1, 7), (7, 1)])
@pytest.mark.parametrize("decades", [0, 2, 5, 7])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_the_factor_is_that_of_the_svd(in_halves, m, n, decades, scale):
    spectrum = scale * torch.logspace(0, -decades, min(m, n), dtype=torch.float64)
    matrix, u, v = with_spectrum(m, n, spectrum)
    norm, found = norm_and_rounded_polar_factor(matrix)
    assert float(norm) == pytest.approx(float(spectrum.sum()), rel=1e-6)
    assert found.dtype == torch.float32
    error = found.double() - u @ v.T
    assert float(error.norm()) < 5e-5 * min(m, n) ** 0.5
    assert float(torch.linalg.matrix_norm(error, 2)) < 3e-4


def test_directions_that_are_not_there_stay_out(in_halves):
    spectrum = torch.logspace(0, -6, 60, dtype=torch.float64)
    spectrum[30:] = 0
    matrix, u, v = with_spectrum(80, 60, spectrum)
    found = rounded_polar_factor(matrix).double()
    assert float((found - u[:, :30] @ v[:, :30].T).abs().max()) < 1e-3


def test_directions_below_the_lower_end_stay_between_zero_and_one(in_halves):
    matrix, _, _ = with_spectrum(100, 80, torch.logspace(0, -14, 80, dtype=torch.float64))
    assert float(torch.linalg.matrix_norm(rounded_polar_factor(matrix).double(), 2)) < 1 + 3e-4


def test_zero_and_rank_one(in_halves):
    assert torch.equal(rounded_polar_factor(torch.zeros(4, 3, dtype=torch.float64)), torch.zeros(4, 3))
    found = rounded_polar_factor(torch.full((3, 3), 1e-30, dtype=torch.float64))
    torch.testing.assert_close(found, torch.full((3, 3), 1 / 3), rtol=1e-4, atol=1e-4)


def test_where_halves_are_not_multiplied_the_factor_is_the_plain_one():
    matrix, _, _ = with_spectrum(30, 40, torch.logspace(0, -5, 30, dtype=torch.float64))
    assert torch.equal(rounded_polar_factor(matrix), polar_factor(matrix).float())
    assert float(norm_and_rounded_polar_factor(matrix)[0]) == pytest.approx(float(torch.logspace(0, -5, 30).sum()))


@pytest.mark.parametrize(("has", "first", "plain"), [(False, 1, True), (True, 31, True), (True, 30, False)])
def test_halves_are_multiplied_where_the_device_has_them_and_the_smaller_side_is_large(monkeypatch, has, first, plain):
    matrix, _, _ = with_spectrum(30, 40, torch.logspace(0, -5, 30, dtype=torch.float64))
    monkeypatch.setattr(polar, "has_half_products", lambda matrix: has)
    monkeypatch.setattr(polar, "HALVES_FROM", first)
    assert torch.equal(rounded_polar_factor(matrix), polar_factor(matrix).float()) is plain


def test_the_last_three_steps_take_fewer_products(in_halves, monkeypatch):
    taken = []

    def counted(name):
        function = getattr(polar, name)
        monkeypatch.setattr(polar, name, lambda *a, **k: (taken.append((name, k.get("quick"))), function(*a, **k))[1])

    for name in ("gram_of_halves", "add_product", "add_small_product"):
        counted(name)
    rounded_polar_factor(with_spectrum(9, 7, torch.linspace(1, 0.1, 7, dtype=torch.float64))[0])
    whole = len(polar.SCALINGS_IN_HALVES) - 3
    last = [("add_small_product", None)]
    assert taken == [
        ("add_product", None),  # of the rational step
        *whole * [("gram_of_halves", None), ("add_product", None)],
        *2 * [("gram_of_halves", True), *last],
        *[("gram_of_halves", False), *last],
    ]


def test_the_rational_step_divides_by_a_bound_and_moves_every_singular_value_by_its_function(in_halves):
    a, b, c, _ = polar.STEPS.rational
    s = 3 * torch.logspace(0, -7, 40, dtype=torch.float64)
    matrix, u, v = with_spectrum(50, 40, s)
    given = matrix.clone()
    moved, bound = polar._rational_step_in_halves(given)
    assert float(bound) == pytest.approx(float((s**4).sum() ** 0.25) * (1 + polar.LOWER_END), rel=1e-12)
    torch.testing.assert_close(given, matrix / bound)
    s = s / bound
    expected = s * (a + b * s**2) / (1 + c * s**2)
    torch.testing.assert_close((u.T @ moved.double() @ v).diagonal(), expected, rtol=1e-3, atol=1e-5)
