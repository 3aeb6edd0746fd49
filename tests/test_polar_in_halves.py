"""The polar factor with its last steps in half precision: that of the SVD to four digits, and bounded everywhere."""

import pytest
import torch

from bures import polar
from bures.polar import RATIONAL, polar_factor, rounded_polar_factor


@pytest.fixture(params=["rational", "polynomial"])
def in_halves(request, monkeypatch):
    """The path of a GPU, from the first side on, with either kind of first steps."""
    monkeypatch.setattr(polar, "has_half_products", lambda matrix: True)
    monkeypatch.setattr(polar, "HALVES_FROM", 1)
    monkeypatch.setattr(polar, "RATIONAL_HALVES_FROM", 1 if request.param == "rational" else 10**9)


def with_spectrum(m, n, spectrum, seed=0):
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(k, len(spectrum), generator=generator).double())[0] for k in (m, n))
    return u * spectrum @ v.T, u, v


@pytest.mark.parametrize(("m", "n"), [(90, 90), (120, 70), (70, 120), (1, 1), (1, 7), (7, 1)])
@pytest.mark.parametrize("decades", [0, 2, 5, 7])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_the_factor_is_that_of_the_svd(in_halves, m, n, decades, scale):
    matrix, u, v = with_spectrum(m, n, scale * torch.logspace(0, -decades, min(m, n), dtype=torch.float64))
    found = rounded_polar_factor(matrix)
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
    assert torch.equal(rounded_polar_factor(matrix.clone()), polar_factor(matrix).float())


def test_first_steps_of_either_kind_lead_as_far_as_half_precision_needs():
    lower = polar.LOWER_END
    for rho in polar.FIRST_SCALINGS:
        lower = rho * lower * (3 - (rho * lower) ** 2) / 2
    assert RATIONAL.lower > 5e-3
    assert lower > 5e-3
