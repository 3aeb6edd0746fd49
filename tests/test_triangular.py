"""Triangular matrices by blocks give what torch gives at once."""

import pytest
import torch

from bures import triangular
from bures.triangular import invert_lower_, lower_gram, multiply_by_transposed_lower


def lower_triangle(n, *, by_columns=False):
    root = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    lower = torch.linalg.cholesky(root @ root.T + n * torch.eye(n))
    return lower.T.contiguous().T if by_columns else lower


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 32, 40, 64, 100, 130])
@pytest.mark.parametrize("invert", [invert_lower_, triangular._invert_by_blocks_], ids=["by halves", "by blocks"])
def test_the_inverse_is_the_inverse_and_lies_in_the_same_memory(monkeypatch, invert, n, by_columns):
    monkeypatch.setattr(triangular, "LEAF", 8)
    monkeypatch.setattr(triangular, "BLOCKS_FROM", 16)
    monkeypatch.setattr(triangular, "SMALL_TRIANGLE", 16)
    lower = lower_triangle(n, by_columns=by_columns)
    expected, given = torch.linalg.inv(lower), lower.data_ptr()
    inverse = invert(lower)
    torch.testing.assert_close(inverse, expected, rtol=1e-12, atol=1e-14)
    assert inverse.data_ptr() == given


def test_many_triangles_are_inverted_one_by_one():
    stack = torch.stack([lower_triangle(150), 2 * lower_triangle(150)])
    torch.testing.assert_close(invert_lower_(stack.clone()), torch.linalg.inv(stack), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("m", "n"), [(5, 1), (3, 3), (50, 37), (64, 64)])
@pytest.mark.parametrize("width", [1, 30, 1000])
def test_products_by_strips(monkeypatch, width, m, n):
    monkeypatch.setattr(triangular, "WIDE_STRIP", width)
    x = torch.randn(m, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(lower_gram(x).tril(), (x.T @ x).tril())
    lower = lower_triangle(n)
    torch.testing.assert_close(multiply_by_transposed_lower(x, lower), x @ lower.T)


def test_a_cholesky_decomposition_needs_the_lower_triangle_only(monkeypatch):
    monkeypatch.setattr(triangular, "WIDE_STRIP", 10)
    x = torch.randn(60, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.cholesky_ex(lower_gram(x))[0], torch.linalg.cholesky(x.T @ x))
