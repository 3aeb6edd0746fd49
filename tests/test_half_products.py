"""Products by halves have the digits of float32, at any scale of the entries."""

import pytest
import torch

from bures import half_products
from bures.half_products import add_product, add_small_product, gram, gram_of_halves, has_half_products, multiply, split


@pytest.fixture
def halves_everywhere(monkeypatch):
    """Products of halves in float32, as a GPU has them, for matrices of every size."""
    monkeypatch.setattr(half_products, "has_half_products", lambda matrix: True)
    monkeypatch.setattr(half_products, "LARGE", 1)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def relative_error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


def test_two_halves_keep_22_binary_digits():
    matrix = normal(200, 300)
    high, low = split(matrix)
    assert high.dtype == low.dtype == torch.half
    assert relative_error((high.double() + low.double()) / half_products.UNIT, matrix.double()) < 2.0**-22


def test_products_of_halves_are_those_of_float64_to_six_digits():
    a, b, c = normal(40, 60) / 8, normal(60, 50, seed=1) / 8, normal(40, 50, seed=2)
    exact = 0.3 * c.double() - 0.7 * a.double() @ b.double()
    assert relative_error(add_product(c, split(a), split(b), beta=0.3, alpha=-0.7), exact) < 1e-6
    exact = c.double() + a.double() @ (1e-3 * b).double()
    assert relative_error(add_small_product(c, split(a), 1e-3 * b), exact) < 1e-6


def test_gram_matrices_of_halves():
    x = normal(70, 40) / 8
    exact = x.double().T @ x.double()
    assert relative_error(gram_of_halves(split(x)), exact) < 1e-6
    assert 1e-6 < relative_error(gram_of_halves(split(x), quick=True), exact) < 1e-3


@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e15])
def test_entries_of_any_size_keep_their_digits(halves_everywhere, scale):
    a, b = scale * normal(30, 40), normal(40, 20, seed=1) / scale
    assert relative_error(multiply(a, b), a.double() @ b.double()) < 1e-6
    assert relative_error(gram(a.T), a.double() @ a.double().T) < 1e-6


def test_zero_times_anything_is_zero(halves_everywhere):
    zero = torch.zeros(3, 4)
    assert torch.equal(multiply(zero, normal(4, 5)), torch.zeros(3, 5))
    assert torch.equal(gram(zero), torch.zeros(4, 4))


def test_elsewhere_products_are_plain():
    a, b = normal(30, 40), normal(40, 20, seed=1)
    assert not has_half_products(a)
    assert torch.equal(multiply(a, b), a @ b)
    assert torch.equal(gram(a), a.T @ a)
    wide = a.double()
    assert torch.equal(multiply(wide, b.double()), wide @ b.double())
