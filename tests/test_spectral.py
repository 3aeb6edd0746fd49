"""Nuclear norms: values, gradients where singular values repeat or vanish, and the way out when an SVD fails."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

import bures
from bures import spectral
from bures.deflation import is_steep, level_leading
from bures.spectral import (
    covariance_fidelity,
    norm_and_polar_factor,
    nuclear_norm,
    nuclear_norm_error,
    product_nuclear_norm,
    psd_eigh,
)

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def matrix_of(singular_values, m: int = 5, n: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with given singular values, and its singular vectors, in float64."""
    rng = np.random.default_rng(seed)
    u, _ = np.linalg.qr(rng.normal(size=(m, m)))
    v, _ = np.linalg.qr(rng.normal(size=(n, n)))
    u, v = u[:, : len(singular_values)], v[:, : len(singular_values)]
    return tuple(torch.as_tensor(a) for a in (u * singular_values @ v.T, u, v))


SPECTRA = {
    "distinct": [4.0, 3.0, 2.0, 1.0],
    "repeated": [2.0, 2.0, 2.0, 1.0],
    "all-equal": [1.0, 1.0, 1.0, 1.0],
    "nearly-equal": [1.0, 1.0 - 1e-14, 1.0 - 2e-14, 0.5],
    "small": [1.0, 1e-2, 1e-4, 1e-6],
    "rank-two": [3.0, 1.0],
    "rank-one": [3.0],
}


# Squaring a float64 matrix leaves singular values good to 1e-8 of the largest; a float32 matrix loses nothing by it.
TOLERANCE = {
    (torch.float32, "svd"): 1e-5,
    (torch.float32, "gram"): 1e-5,
    (torch.float64, "svd"): 1e-12,
    (torch.float64, "gram"): 1e-7,
    (torch.float32, "deflation"): 1e-5,
    (torch.float64, "deflation"): 1e-9,
}
each_method = pytest.mark.parametrize("method", ["svd", "gram", "deflation"])


@both_dtypes
@each_method
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("shape", [(5, 4), (4, 5), (4, 4)], ids=str)
def test_nuclear_norm_is_the_sum_of_singular_values_and_its_gradient_the_polar_factor(spectrum, shape, method, dtype):
    matrix, u, v = matrix_of(SPECTRA[spectrum], *shape)
    leaf = matrix.to(dtype).requires_grad_()
    norm = nuclear_norm(leaf, method)
    norm.backward()
    tolerance = TOLERANCE[dtype, method]
    assert norm.dtype == leaf.grad.dtype == dtype
    assert norm.item() == pytest.approx(sum(SPECTRA[spectrum]), rel=tolerance)
    assert nuclear_norm(leaf.detach(), method).item() == pytest.approx(norm.item(), rel=tolerance)
    # Directions of singular values near the resolution are noise; what is compared is what can be held.
    keep = sum(value > 1e2 * tolerance for value in SPECTRA[spectrum])
    polar = leaf.grad.double()
    expected = torch.eye(keep, dtype=torch.float64)
    torch.testing.assert_close(u[:, :keep].T @ polar @ v[:, :keep], expected, rtol=0, atol=1e2 * tolerance)
    assert float(torch.linalg.matrix_norm(polar, ord=2)) <= 1 + 1e-3


@pytest.mark.parametrize(
    ("dtype", "method"), [(torch.float32, "gram"), (torch.float64, "svd")], ids=["float32", "float64"]
)
def test_auto_is_the_gram_matrix_for_float32_and_the_svd_for_float64(dtype, method):
    leaf = matrix_of(SPECTRA["small"])[0].to(dtype).requires_grad_()
    other = leaf.detach().clone().requires_grad_()
    nuclear_norm(leaf).backward()
    nuclear_norm(other, method).backward()
    assert torch.equal(leaf.grad, other.grad)


def test_methods_are_taken_where_they_may_be():
    """One matrix at a time for those that look at values, and only where its smaller side is worth it."""
    for method, shape, dtype, expected in (
        ("auto", (96, 200), torch.float32, "deflation"),
        ("auto", (200, 95), torch.float32, "gram"),
        ("auto", (95, 200), torch.float32, "gram"),
        ("auto", (2, 96, 96), torch.float32, "gram"),
        ("auto", (96, 96), torch.float64, "svd"),
        ("deflation", (3, 3), torch.float32, "deflation"),
        ("deflation", (2, 96, 96), torch.float32, "gram"),
        ("low-rank", (96, 200), torch.float64, "low-rank"),
        ("low-rank", (200, 95), torch.float64, "gram"),
        ("low-rank", (95, 200), torch.float64, "gram"),
        ("low-rank", (100, 100, 100), torch.float32, "gram"),
        ("polar", (2, 3, 3), torch.float32, "polar"),
        ("svd", (3, 3), torch.float32, "svd"),
    ):
        assert spectral._resolve(method, torch.empty(shape, dtype=dtype)) == expected, (method, shape, dtype)


def test_the_gram_matrix_holds_small_directions_of_a_float32_matrix():
    """Singular values of 1e-6 and less of the largest, where a float32 SVD would give noise for vectors."""
    leaf = torch.diag(torch.tensor([1.0, 2.0**-20, 2.0**-22])).requires_grad_()
    nuclear_norm(leaf, "gram").backward()
    torch.testing.assert_close(leaf.grad, torch.eye(3), rtol=0, atol=1e-3)


@pytest.mark.parametrize("decades", [1, 4, 7])
@pytest.mark.parametrize("shape", [(130, 130), (160, 120), (120, 160)], ids=str)
def test_deflation_holds_small_directions_as_the_gram_matrix_in_float64_does(shape, decades):
    spectrum = np.logspace(0, -decades, min(shape))
    matrix, u, v = matrix_of(spectrum, *shape)
    leaf = matrix.float().requires_grad_()
    norm = nuclear_norm(leaf)  # "auto" takes it from this size on
    norm.backward()
    assert norm.item() == pytest.approx(spectrum.sum(), rel=1e-6)
    held = (u.T @ leaf.grad.double() @ v).diagonal()[torch.as_tensor(spectrum > 1e-5)]
    assert float((held - 1).abs().max()) < 5e-3
    named = leaf.detach().clone().requires_grad_()
    nuclear_norm(named, "deflation").backward()
    assert torch.equal(named.grad, leaf.grad)


def steep_spectrum(n):
    """Six directions hold nearly all; the others fall over five decades."""
    return np.concatenate([np.linspace(1, 0.5, 6), np.logspace(-1, -6, n - 6)])


@pytest.mark.parametrize("shape", [(130, 130), (300, 300), (330, 260), (260, 330)], ids=str)
def test_deflation_holds_small_directions_of_a_steep_spectrum(shape):
    spectrum = steep_spectrum(min(shape))
    matrix, u, v = matrix_of(spectrum, *shape)
    norm, polar = norm_and_polar_factor(matrix.float(), "deflation")
    assert norm.item() == pytest.approx(spectrum.sum(), rel=1e-6)
    held = torch.as_tensor(spectrum > 1e-5)
    off = (u.T @ polar.double() @ v)[held][:, held] - torch.eye(int(held.sum()), dtype=torch.float64)
    assert float(off.abs().max()) < 5e-3


def test_levelling_lowers_the_leading_singular_values_and_keeps_the_polar_factor():
    spectrum = np.concatenate([np.linspace(1, 0.5, 6), np.logspace(-2, -6, 294)])
    matrix, u, v = matrix_of(spectrum, 300, 300)
    single = matrix.float()
    gram = single.mT @ single
    assert is_steep(gram)
    taken, levelled, new_gram = level_leading(single, gram)
    left, s, right = torch.linalg.svd(levelled.double())
    assert float(s[0]) < 0.05
    assert float(taken.sum() + s.sum()) == pytest.approx(spectrum.sum(), rel=1e-5)
    torch.testing.assert_close(new_gram, levelled.mT @ levelled)
    held = torch.as_tensor(spectrum > 1e-4)
    diagonal = (u.T @ left @ right @ v).diagonal()[held]
    assert float((diagonal - 1).abs().max()) < 1e-3


def test_a_flat_spectrum_is_not_levelled():
    matrix = matrix_of(np.linspace(1, 0.1, 200), 200, 200)[0].float()
    gram = matrix.mT @ matrix
    assert not is_steep(gram)
    assert not is_steep(torch.zeros(200, 200))
    assert level_leading(matrix, gram)[1] is matrix


@both_dtypes
@pytest.mark.parametrize("decades", [0.5, 3, 12])
@pytest.mark.parametrize("shape", [(130, 130), (160, 120), (120, 160)], ids=str)
def test_the_low_rank_norm_is_within_its_bound(shape, decades, dtype):
    spectrum = np.logspace(0, -decades, min(shape))
    leaf = matrix_of(spectrum, *shape)[0].to(dtype).requires_grad_()
    norm = nuclear_norm(leaf, "low-rank")
    norm.backward()
    bound = nuclear_norm_error(leaf.detach(), "low-rank")
    assert abs(norm.item() - spectrum.sum()) <= bound + 1e-5 * spectrum.sum()
    assert bound < 0.7 * spectrum.sum()
    # Homogeneous of degree one, so that value and gradient belong to each other; a small rest has fewer digits.
    digits = {torch.float32: 1e-3, torch.float64: 1e-10}[dtype]
    assert float((leaf.grad * leaf.detach()).sum()) == pytest.approx(norm.item(), rel=digits)
    assert nuclear_norm_error(leaf.detach(), "auto") == 0


@pytest.mark.parametrize("exponent", [-115, -60, -30, 60, 100])
def test_the_low_rank_norm_is_the_same_in_every_unit(exponent):
    """A power of two changes no digit."""
    matrix, unit = torch.randn(170, 130, generator=torch.Generator().manual_seed(0)), 2.0**exponent
    found = norm_and_polar_factor(unit * matrix, "low-rank")
    expected = norm_and_polar_factor(matrix, "low-rank")
    assert float(found[0]) == pytest.approx(unit * float(expected[0]), rel=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-6)
    assert nuclear_norm_error(unit * matrix, "low-rank") == pytest.approx(
        unit * nuclear_norm_error(matrix, "low-rank"), rel=1e-5
    )


@both_dtypes
@pytest.mark.parametrize("shape", [(130, 130), (160, 120), (120, 160)], ids=str)
def test_the_low_rank_norm_of_a_matrix_of_low_rank_is_exact(shape, dtype):
    """Down to directions of 1e-4 of the largest; elsewhere is a kink, where any contraction is a subgradient."""
    spectrum = np.logspace(0, -4, 20)
    matrix, u, v = matrix_of(spectrum, *shape)
    leaf = matrix.to(dtype).requires_grad_()
    norm = nuclear_norm(leaf, "low-rank")
    norm.backward()
    assert norm.item() == pytest.approx(spectrum.sum(), rel={torch.float32: 1e-5, torch.float64: 1e-12}[dtype])
    assert nuclear_norm_error(leaf.detach(), "low-rank") == 0
    polar = leaf.grad.double()
    within = {torch.float32: 2e-2, torch.float64: 1e-6}[dtype]
    torch.testing.assert_close(u.T @ polar @ v, torch.eye(20, dtype=torch.float64), rtol=0, atol=within)
    assert float(torch.linalg.matrix_norm(polar, ord=2)) <= 1 + 1e-3


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_low_rank_estimates_are_those_of_their_definition(scale):
    """Of 128 equal singular values a quarter is computed, and seven tenths of the others are counted."""
    rotation = scale * matrix_of(np.ones(128), 128, 128)[0]
    assert float(nuclear_norm(rotation, "low-rank")) == pytest.approx(scale * (32 + 0.7 * 96))
    assert nuclear_norm_error(rotation, "low-rank") == pytest.approx(scale * 0.7 * 96)
    exact = scale * matrix_of(np.linspace(1, 0.5, 20), 128, 128)[0]
    assert nuclear_norm_error(exact, "low-rank") == 0


def test_singular_vectors_of_a_batch_from_gram_matrices_are_those_of_each_matrix():
    batch = torch.randn(4, 6, 4, generator=torch.Generator().manual_seed(0))
    for matrices in (batch, batch.mT):
        parts = spectral._thin_svd(matrices)
        u, s, vh = parts
        torch.testing.assert_close(u * s.unsqueeze(-2) @ vh, matrices)
        for index, matrix in enumerate(matrices):
            for found, expected in zip(parts, spectral._thin_svd(matrix), strict=True):
                torch.testing.assert_close(found[index].abs(), expected.abs(), rtol=1e-4, atol=1e-5)


def test_singular_vectors_that_a_gram_matrix_does_not_resolve_are_zero():
    matrix, u, v = matrix_of([3.0])
    left, s, right = spectral._thin_svd(matrix.float())
    assert not left[:, 1:].any()
    torch.testing.assert_close(s[0] * left[:, :1] @ right[:1], (3 * u @ v.T).float())


@both_dtypes
@pytest.mark.parametrize("rank", [1, 2])
def test_structural_zeros_carry_no_gradient(rank, dtype):
    matrix, u, v = matrix_of([3.0, 1.0][:rank])
    leaf = matrix.to(dtype).requires_grad_()
    nuclear_norm(leaf, "svd").backward()
    torch.testing.assert_close(
        leaf.grad.double(), u @ v.T, rtol=0, atol={torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    )


@both_dtypes
@each_method
def test_the_gradient_is_a_contraction_on_a_decaying_spectrum(method, dtype):
    """Whatever is rounding and whatever is not, a subgradient of the nuclear norm has spectral norm one."""
    leaf = matrix_of(np.logspace(0, -13, 50), 50, 50)[0].to(dtype).requires_grad_()
    nuclear_norm(leaf, method).backward()
    assert float(torch.linalg.matrix_norm(leaf.grad.double(), ord=2)) == pytest.approx(1, abs=0.05)


@both_dtypes
@each_method
def test_the_zero_matrix_has_norm_and_gradient_zero(method, dtype):
    leaf = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
    norm = nuclear_norm(leaf, method)
    norm.backward()
    assert norm.item() == 0
    assert not leaf.grad.any()


def test_nuclear_norm_without_a_graph_is_the_same():
    matrix, _, _ = matrix_of(SPECTRA["distinct"])
    with torch.no_grad():
        plain = nuclear_norm(matrix.clone().requires_grad_())
    assert not plain.requires_grad
    assert float(plain) == pytest.approx(10, rel=1e-12)


def test_nuclear_norm_of_a_batch_is_that_of_each_matrix():
    batch = torch.stack([matrix_of(SPECTRA[name])[0] for name in ("distinct", "repeated", "rank-two")]).requires_grad_()
    norms = nuclear_norm(batch)
    assert norms.shape == (3,)
    for method in ("svd", "gram", "polar"):
        torch.testing.assert_close(nuclear_norm(batch.detach(), method), norms.detach(), rtol=1e-7, atol=0)
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * norms).sum(), batch)
    for i, weight in enumerate(weights):
        leaf = batch[i].detach().requires_grad_()
        single = nuclear_norm(leaf)
        assert norms[i].item() == pytest.approx(single.item(), rel=1e-12)
        torch.testing.assert_close(gradient[i], weight * torch.autograd.grad(single, leaf)[0])


def test_nuclear_norm_passes_first_and_second_order_gradcheck():
    leaf = matrix_of(SPECTRA["distinct"])[0].requires_grad_()
    assert torch.autograd.gradcheck(nuclear_norm, (leaf,))
    assert torch.autograd.gradgradcheck(nuclear_norm, (leaf,))


def test_second_derivative_is_finite_where_singular_values_repeat():
    leaf = matrix_of(SPECTRA["repeated"])[0].requires_grad_()
    assert torch.autograd.gradgradcheck(nuclear_norm, (leaf,))


@both_dtypes
def test_second_derivative_leaves_vanishing_directions_out_at_every_scale(dtype):
    """Of rank two, with exact zeros and with zeros of rounding: homogeneous of degree minus one, and symmetric."""
    for matrix in (torch.diag(torch.tensor([2.0, 1.0, 0.0])), matrix_of(SPECTRA["rank-two"])[0]):
        one = torch.autograd.functional.hessian(nuclear_norm, matrix.to(dtype))
        assert bool(one.isfinite().all())
        assert 0.1 < float(one.abs().max()) < 2
        torch.testing.assert_close(one, one.permute(2, 3, 0, 1))
        for scale in (1e-5, 1e5):
            scaled = torch.autograd.functional.hessian(nuclear_norm, scale * matrix.to(dtype))
            torch.testing.assert_close(scale * scaled, one, rtol=1e-4, atol=1e-4)
    assert not torch.autograd.functional.hessian(nuclear_norm, torch.zeros(3, 2, dtype=dtype)).any()


def test_second_derivative_of_a_batch_is_that_of_each_matrix():
    batch = torch.stack([(1 + seed) * matrix_of(SPECTRA["distinct"], seed=seed)[0] for seed in range(4)])
    direction = torch.stack([matrix_of(SPECTRA["repeated"], seed=seed)[0] for seed in range(4, 8)])

    def product(matrices, direction):
        _, found = torch.autograd.functional.vhp(lambda x: nuclear_norm(x).sum(), matrices, direction)
        return found

    for index, found in enumerate(product(batch, direction)):
        torch.testing.assert_close(found, product(batch[index], direction[index]))


def test_derivatives_under_transforms_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    draw = lambda *shape: torch.as_tensor(rng.normal(size=shape))  # noqa: E731
    wide = draw(3, 4, 9)
    for function, batch in (
        (product_nuclear_norm, (draw(3, 6, 4), draw(3, 5, 4))),
        (covariance_fidelity, (wide @ wide.mT, torch.stack([torch.as_tensor(covariance(seed)) for seed in range(3)]))),
    ):
        found = torch.func.vmap(torch.func.grad(function, argnums=(0, 1)))(*batch)
        for index in range(3):
            leaves = [part[index].clone().requires_grad_() for part in batch]
            expected = torch.autograd.grad(function(*leaves), leaves)
            torch.testing.assert_close([part[index] for part in found], list(expected))
    matrix = matrix_of(SPECTRA["distinct"])[0]
    second = torch.func.jacrev(torch.func.jacrev(nuclear_norm))(matrix)
    torch.testing.assert_close(second, torch.autograd.functional.hessian(nuclear_norm, matrix))


def test_nuclear_norm_under_vmap_is_that_of_a_loop():
    parts = [matrix_of(SPECTRA["distinct"], seed=seed) for seed in range(3)]
    batch = torch.stack([matrix for matrix, _, _ in parts]).requires_grad_()
    gradients = torch.func.vmap(torch.func.grad(nuclear_norm))(batch)
    (outside,) = torch.autograd.grad(torch.func.vmap(nuclear_norm)(batch).sum(), batch)
    for (matrix, u, v), *found in zip(parts, gradients, outside, strict=True):
        for gradient in found:
            torch.testing.assert_close(gradient, u @ v.T)
        torch.testing.assert_close(torch.func.grad(nuclear_norm)(matrix), u @ v.T)


@both_dtypes
@pytest.mark.parametrize("shapes", [(6, 5, 3), (3, 4, 8), (3, 9, 5), (1, 1, 1), (5, 1, 2)], ids=str)
def test_product_nuclear_norm_is_that_of_the_product(shapes, dtype):
    n, m, d = shapes
    rng = np.random.default_rng(0)
    a, b = (torch.as_tensor(rng.normal(size=(k, d)), dtype=dtype).requires_grad_() for k in (n, m))
    fast, plain = product_nuclear_norm(a, b), nuclear_norm(a @ b.T)
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    assert fast.item() == pytest.approx(plain.item(), rel=tolerance)
    for gradient, expected in zip(torch.autograd.grad(fast, (a, b)), torch.autograd.grad(plain, (a, b)), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=tolerance, atol=tolerance)


@both_dtypes
@pytest.mark.parametrize("degenerate", ["zero", "rank-one", "duplicated", "orthogonal"])
def test_product_nuclear_norm_stands_singular_factors(degenerate, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 4)), rng.normal(size=(5, 4))
    if degenerate == "zero":
        a[:] = 0
    elif degenerate == "rank-one":
        a, b = np.outer(a[:, 0], b[0]), np.outer(b[:, 1], b[0])
    elif degenerate == "duplicated":
        a, b = np.repeat(a[:2], 3, axis=0), np.repeat(a[:1], 5, axis=0)
    else:
        a[:, 2:], b[:, :2] = 0, 0
    s, t = (torch.as_tensor(x, dtype=dtype).requires_grad_() for x in (a, b))
    norm = product_nuclear_norm(s, t)
    norm.backward()
    expected = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    assert norm.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert bool(s.grad.isfinite().all())
    assert bool(t.grad.isfinite().all())


def covariance(seed: int, rank: int = 8, d: int = 4) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(d, rank))
    return root @ root.T


def test_covariance_fidelity_is_the_trace_of_the_square_root():
    s, t = covariance(0), covariance(1)
    root = scipy.linalg.sqrtm(s)
    expected = np.trace(scipy.linalg.sqrtm(root @ t @ root)).real
    assert float(covariance_fidelity(torch.as_tensor(s), torch.as_tensor(t))) == pytest.approx(expected, rel=1e-10)


def test_covariance_fidelity_of_singular_matrices_is_the_trace_of_the_square_root():
    s, t = covariance(0, rank=2), covariance(1, rank=3)
    expected = np.trace(scipy.linalg.sqrtm(s @ t + 1e-14 * np.eye(4))).real
    assert float(covariance_fidelity(torch.as_tensor(s), torch.as_tensor(t))) == pytest.approx(expected, rel=1e-5)


def test_covariance_fidelity_of_commuting_matrices_is_a_sum_of_roots():
    s, t = torch.tensor([4.0, 0.0, 1.0]), torch.tensor([9.0, 5.0, 0.25])
    assert float(covariance_fidelity(torch.diag(s), torch.diag(t))) == pytest.approx(6.5, rel=1e-6)


def test_gradient_of_the_covariance_fidelity_is_half_the_transport_map():
    s, t = torch.as_tensor(covariance(0)).requires_grad_(), torch.as_tensor(covariance(1)).requires_grad_()
    gradients = torch.autograd.grad(covariance_fidelity(s, t), (s, t))
    for own, other, gradient in ((s, t, gradients[0]), (t, s, gradients[1])):
        transport = 2 * gradient
        torch.testing.assert_close(transport @ own @ transport, other, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(transport, transport.T)


def test_gradient_of_the_covariance_fidelity_is_its_directional_derivative():
    s, t = covariance(0), covariance(1)
    direction = covariance(2) - 3 * np.eye(4)
    leaf = torch.as_tensor(s).requires_grad_()
    (gradient,) = torch.autograd.grad(covariance_fidelity(leaf, torch.as_tensor(t)), leaf)
    step = 1e-6
    ahead, back = (
        float(covariance_fidelity(torch.as_tensor(s + sign * step * direction), torch.as_tensor(t))) for sign in (1, -1)
    )
    assert float((gradient * torch.as_tensor(direction)).sum()) == pytest.approx((ahead - back) / (2 * step), rel=1e-6)


@pytest.mark.parametrize(("n", "m"), [(2, 12), (3, 2), (1, 4), (8, 3), (8, 8)])
def test_gradient_of_the_covariance_fidelity_reaches_samples_fewer_than_dimensions(n, m):
    """Samples turn their covariance out of its range; the fidelity is a nuclear norm of them with a known gradient."""
    rng = np.random.default_rng(0)
    a, b = (torch.as_tensor(rng.normal(size=(size, 6))).requires_grad_() for size in (n, m))
    found = torch.autograd.grad(covariance_fidelity(a.T @ a, b.T @ b), (a, b))
    polar = scipy.linalg.svd((b @ a.T).detach().numpy(), full_matrices=False)
    polar = torch.as_tensor(polar[0] @ polar[2])
    for gradient, expected in zip(found, (polar.T @ b.detach(), polar @ a.detach()), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-7)


def test_gradient_of_the_covariance_fidelity_leaves_out_directions_that_a_singular_matrix_may_gain_at_every_scale():
    """Homogeneous of degree one half in each matrix, hence the gradient of degree minus one half in its own."""
    s, t = torch.as_tensor(covariance(0, rank=2)), torch.as_tensor(covariance(1))
    outside = torch.linalg.eigh(s)[1][:, :2]

    def gradient(scale):
        leaf = (scale * s).requires_grad_()
        (found,) = torch.autograd.grad(covariance_fidelity(leaf, t), leaf)
        return scale**0.5 * found

    one = gradient(1.0)
    assert float((outside.T @ one @ outside).abs().max()) < 1e-6
    for scale in (1e-8, 1e8):
        torch.testing.assert_close(gradient(scale), one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ranks", [(2, 7), (7, 2), (1, 1), (3, 3), (2, 3), (7, 8)])
def test_gradient_of_the_covariance_fidelity_moves_the_range_of_a_singular_matrix(ranks):
    """In factors with Sigma = L L^T it is that of the nuclear norm of K^T L: K times the polar factor."""
    rng = np.random.default_rng(3)
    own, other = (torch.as_tensor(rng.normal(size=(6, rank))).requires_grad_() for rank in ranks)
    found = torch.autograd.grad(covariance_fidelity(own @ own.T, other @ other.T), (own, other))
    left, right = own.detach().numpy(), other.detach().numpy()
    u, _, vh = np.linalg.svd(right.T @ left, full_matrices=False)
    kept = min(*ranks, 6)
    polar = u[:, :kept] @ vh[:kept]
    for gradient, expected in zip(found, (right @ polar, left @ polar.T), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6)


def test_psd_eigh_clamps_rounding_below_zero():
    matrix = torch.diag(torch.tensor([2.0, -1e-9, 1.0]))
    values, vectors = psd_eigh(matrix)
    assert values.tolist() == pytest.approx([0, 1, 2])
    assert float(values.min()) == 0
    torch.testing.assert_close((vectors * values) @ vectors.T, torch.diag(torch.tensor([2.0, 0.0, 1.0])))


@pytest.fixture
def failing_once(monkeypatch):
    """The named routine of torch.linalg fails on its first call; gives the dtypes it was called with."""

    def install(routine: str) -> list[torch.dtype]:
        original, dtypes = getattr(torch.linalg, routine), []

        def flaky(matrix, *args, **kwargs):
            dtypes.append(matrix.dtype)
            if len(dtypes) == 1:
                raise torch.linalg.LinAlgError("the algorithm failed to converge")
            return original(matrix, *args, **kwargs)

        monkeypatch.setattr(torch.linalg, routine, flaky)
        return dtypes

    return install


@pytest.mark.parametrize(
    ("method", "routine", "dtype"), [("svd", "svd", torch.float32), ("gram", "eigh", torch.float64)]
)
def test_a_decomposition_that_does_not_converge_is_done_again_in_float64(failing_once, method, routine, dtype):
    matrix, u, v = matrix_of(SPECTRA["distinct"])
    dtypes = failing_once(routine)
    leaf = matrix.float().requires_grad_()
    norm = nuclear_norm(leaf, method)
    norm.backward()
    assert dtypes == [dtype, torch.float64]
    assert norm.dtype == leaf.grad.dtype == torch.float32
    assert norm.item() == pytest.approx(10, rel=1e-6)
    torch.testing.assert_close(leaf.grad.double(), u @ v.T, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "routine", "dtype"), [("svd", "svdvals", torch.float32), ("gram", "eigvalsh", torch.float64)]
)
def test_singular_values_that_do_not_converge_are_computed_again_in_float64(failing_once, method, routine, dtype):
    matrix, _, _ = matrix_of(SPECTRA["distinct"])
    dtypes = failing_once(routine)
    assert float(nuclear_norm(matrix.float(), method)) == pytest.approx(10, rel=1e-6)
    assert dtypes == [dtype, torch.float64]


@pytest.mark.parametrize("graph", [True, False])
def test_a_distance_survives_an_svd_that_does_not_converge(failing_once, graph):
    rng = np.random.default_rng(0)
    xs, xt, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 3)), np.arange(9) % 2
    expected = bures.ckb(xs, y, xt, y)
    dtypes = failing_once("svd" if graph else "svdvals")
    s, t = torch.as_tensor(xs).requires_grad_(graph), torch.as_tensor(xt)
    assert bures.ckb(s, torch.as_tensor(y), t, torch.as_tensor(y)).item() == pytest.approx(expected, rel=1e-10)
    assert len(dtypes) == 2


def test_a_second_failure_is_not_hidden(monkeypatch):
    def fail(*args, **kwargs):
        raise torch.linalg.LinAlgError("the algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "svd", fail)
    with pytest.raises(torch.linalg.LinAlgError, match="failed to converge"):
        nuclear_norm(torch.eye(2, dtype=torch.float64, requires_grad=True))
