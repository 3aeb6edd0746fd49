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
