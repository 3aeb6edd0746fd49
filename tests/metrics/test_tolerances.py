"""How far an input may be off before it is refused: exactly as far as rounding explains, from either side."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bures

ROOT_OF_EPS = 2.0**-26  # of float64


@pytest.mark.parametrize("scale", [1.0, 4.0, 1e-3])
def test_covariances_may_be_asymmetric_by_half_the_digits_of_their_largest_entry(scale):
    def cov(share):
        return scale * np.array([[1.0, share * ROOT_OF_EPS], [0.0, 0.5]])

    expected = scale * (1.5 + 2 - 2 * (1 + np.sqrt(0.5)))
    for share in (0.9, -0.9):
        assert bures.bures_covariance(cov(share), scale * np.eye(2)) == pytest.approx(expected, rel=1e-6)
    for share in (1.1, -1.1):
        with pytest.raises(ValueError, match="cov_s is not symmetric"):
            bures.bures_covariance(cov(share), scale * np.eye(2))
        with pytest.raises(ValueError, match="cov_t is not symmetric"):
            bures.bures_covariance(scale * np.eye(2), cov(share))


@pytest.mark.parametrize("scale", [1.0, 4.0, 1e-3])
def test_eigenvalues_of_covariances_may_be_below_zero_by_half_the_digits_of_the_largest_entry(scale):
    fine = scale * np.diag([1.0, -0.9 * ROOT_OF_EPS])
    assert bures.bures_covariance(fine, fine) == pytest.approx(0, abs=1e-6 * scale)
    with pytest.raises(ValueError, match="cov_s has the negative eigenvalue -"):
        bures.bures_covariance(scale * np.diag([1.0, -1.1 * ROOT_OF_EPS]), scale * np.eye(2))


def test_the_gradient_of_a_covariance_is_symmetric():
    cov = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    bures.bures_covariance(cov, torch.eye(2, dtype=torch.float64)).backward()
    assert torch.allclose(cov.grad, cov.grad.T)
    # d tr(S) + d tr(T) - 2 d tr(S^(1/2)) = I - S^(-1/2), as T is the unit matrix.
    values, vectors = torch.linalg.eigh(cov.detach())
    assert torch.allclose(cov.grad, torch.eye(2).double() - vectors / values.sqrt() @ vectors.T)


def test_the_unbiased_mmd_is_the_mean_over_pairs_of_different_samples():
    rng = np.random.default_rng(0)
    xs, xt = rng.normal(size=(5, 2)), rng.normal(size=(4, 2)) + 1
    ws, wt = rng.uniform(0.5, 1, size=5), rng.uniform(0.5, 1, size=4)
    ws, wt = ws / ws.sum(), wt / wt.sum()

    def kernel(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 3.0)

    def within(x, w):
        pairs = [(i, j) for i in range(len(x)) for j in range(len(x)) if i != j]
        total = sum(w[i] * w[j] for i, j in pairs)
        return sum(w[i] * w[j] * kernel(x, x)[i, j] for i, j in pairs) / total

    expected = within(xs, ws) + within(xt, wt) - 2 * (ws @ kernel(xs, xt) @ wt)
    got = bures.mmd(xs, xt, bandwidth=3.0, unbiased=True, sample_weight_s=ws, sample_weight_t=wt)
    assert got == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("argument", "position"), [("xs", 0), ("xt", 1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_unbiased_mmd_needs_two_samples_of_positive_weight_on_each_side(argument, position, weighted):
    samples = [np.zeros((2, 1)), np.zeros((2, 1))]
    weights = [None, None]
    if weighted:
        weights[position] = np.array([1.0, 0.0])
    else:
        samples[position] = np.zeros((1, 1))
    with pytest.raises(ValueError, match=f"^{argument} has one sample"):
        bures.mmd(*samples, bandwidth=1.0, unbiased=True, sample_weight_s=weights[0], sample_weight_t=weights[1])


def test_what_rounding_leaves_of_symmetry_is_averaged():
    other = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    uneven = torch.tensor([[1.0, 3e-4], [0.0, 0.5]])  # within the tolerance of float32
    even = (uneven + uneven.T) / 2
    assert bures.bures_covariance(uneven, other).item() == bures.bures_covariance(even, other).item()
    assert bures.bures_covariance(uneven.tril(), other).item() != pytest.approx(
        bures.bures_covariance(even, other).item(), rel=1e-5
    )


def test_a_negative_matrix_is_refused_for_its_eigenvalue():
    for matrix in (np.array([[-2.0]]), -np.ones((2, 2))):
        with pytest.raises(ValueError, match="cov_s has the negative eigenvalue -2"):
            bures.bures_covariance(matrix, np.eye(len(matrix)))
