"""Polar factors from Gram matrices, part by part: thresholds, what is left out, what stays as it was."""

import math

import pytest
import torch

from bures import deflation
from bures.deflation import (
    converging,
    deflate,
    eigh_of_gram,
    gram_norm_and_polar,
    is_steep,
    level_leading,
    rounding_share,
    sketch,
)


def with_spectrum(spectrum, m=None, n=None, seed=0):
    """A float64 matrix with given singular values, and its singular vectors."""
    spectrum = torch.as_tensor(spectrum, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    sides = (m or len(spectrum), n or len(spectrum))
    u, v = (torch.linalg.qr(torch.randn(k, len(spectrum), generator=generator).double())[0] for k in sides)
    return u * spectrum @ v.T, u, v


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_below_the_floor_are_left_out_of_the_factor_and_not_of_the_norm(dtype):
    matrix, u, v = with_spectrum([1.0, 0.5, 0.01, 0.002], m=6)
    norm, polar = gram_norm_and_polar(matrix.to(dtype), floor=0.005)
    assert norm.dtype == polar.dtype == dtype
    assert float(norm) == pytest.approx(1.512, rel=1e-5)
    held = (u.T @ polar.double() @ v).diagonal().tolist()
    assert held == pytest.approx([1, 1, 1, 0], abs=1e-4)


def test_a_batch_is_taken_one_by_one():
    """As many matrices as columns: what is meant for one of them must not be taken for the other."""
    batch = torch.randn(4, 6, 4, generator=torch.Generator().manual_seed(0))
    for floor in (0, 1.0):
        norms, polar = gram_norm_and_polar(batch, floor)
        for found, factor, matrix in zip(norms, polar, batch, strict=True):
            torch.testing.assert_close((found, factor), gram_norm_and_polar(matrix, floor))


def test_directions_that_a_gram_matrix_does_not_resolve_shrink():
    """Below the resolution r of the largest, the factor has s / r instead of one."""
    matrix = with_spectrum([2.0, 2e-3, 2e-8], m=6)[0]
    gram, exact = matrix.mT @ matrix, torch.linalg.svdvals(matrix)
    assert eigh_of_gram(gram)[0][1:].flip(0).tolist() == pytest.approx(exact[:2].tolist())
    _, polar = gram_norm_and_polar(torch.diag(torch.tensor([2.0, 2e-3, 2e-8], dtype=torch.float64)))
    assert polar.diagonal().tolist() == pytest.approx([1, 1, 0.1], rel=1e-6)
    assert float(torch.linalg.matrix_norm(gram_norm_and_polar(matrix)[1], 2)) < 1 + 1e-6


def test_singular_values_from_a_gram_matrix_with_rounding_below_zero_are_zero():
    s, v = eigh_of_gram(torch.diag(torch.tensor([4.0, -1e-9, 1.0])))
    assert s.tolist() == [0, 1, 2]
    torch.testing.assert_close(v.abs(), torch.eye(3)[:, [1, 2, 0]])


@pytest.mark.parametrize(("n", "most"), [(48, 2), (96, 4), (192, 8), (480, 8)])
def test_a_spectrum_is_steep_up_to_eight_directions_and_one_in_24(n, most):
    """The effective rank of a matrix of equal singular values is their number."""
    for directions, expected in ((1, True), (most, True), (most + 1, False)):
        values = torch.zeros(n, dtype=torch.float64)
        values[:directions] = 1
        assert is_steep(torch.diag(values)) is expected
    assert not is_steep(torch.zeros(n, n))


def test_what_counts_as_rounding():
    single, double = 2.0**-23, 2.0**-52
    for n, dtype, expected in (
        (1, torch.float32, single),
        (500, torch.float32, single),
        (1, torch.float64, double),
        (100, torch.float64, 100 * double),
        (10_000, torch.float64, 1e-12),
    ):
        assert rounding_share(torch.ones(2, n, dtype=dtype)) == expected


def test_the_sketch_is_the_same_at_every_call_and_may_be_used_in_a_graph():
    sketch.cache_clear()
    with torch.inference_mode():
        first = sketch(20, 3, torch.float32, torch.device("cpu"))
    assert not first.is_inference()
    torch.manual_seed(5)
    sketch.cache_clear()
    again = sketch(20, 3, torch.float32, torch.device("cpu"))
    assert torch.equal(first, again)
    assert (tuple(first.shape), first.dtype) == ((20, 3), torch.float32)
    assert float(first.std()) == pytest.approx(1, abs=0.3)


def test_a_matrix_is_overwritten_only_where_it_may_be():
    matrix = with_spectrum(torch.linspace(1, 0.5, 20), m=30)[0]
    given = matrix.clone()
    norm, polar = deflate(given, overwrite=False)
    assert torch.equal(given, matrix)
    again = deflate(given, overwrite=True)
    assert again[1].data_ptr() == given.data_ptr()
    torch.testing.assert_close((norm, polar), again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decades", [0.5, 1.5, 4, 6, 12])
@pytest.mark.parametrize("n", [40, 100])
def test_the_factor_is_that_of_the_svd_over_one_and_over_several_parts(n, decades, dtype):
    spectrum = torch.logspace(0, -decades, n, dtype=torch.float64)
    matrix, u, v = with_spectrum(spectrum, m=n + 30)
    norm, polar = deflate(matrix.to(dtype), overwrite=False)
    assert float(norm) == pytest.approx(float(spectrum.sum()), rel={torch.float32: 1e-6, torch.float64: 1e-11}[dtype])
    held = spectrum > {torch.float32: 1e-4, torch.float64: 1e-13}[dtype]
    off = (u.T @ polar.double() @ v)[held][:, held] - torch.eye(int(held.sum()), dtype=torch.float64)
    # Rounding of the matrix turns the directions of its smallest singular values: by 1e-4 at 1e-12.
    assert float(off.abs().max()) < {torch.float32: 5e-3, torch.float64: 1e-4 if decades == 12 else 1e-6}[dtype]


def test_the_norm_and_the_factor_are_those_of_the_svd_at_every_scale():
    """Of a level spectrum and of a steep one, whose leading singular values are lowered on the way."""
    level = torch.linspace(1, 0.5, 40)
    steep = torch.cat([torch.linspace(1, 0.5, 6), torch.logspace(-2.5, -4, 164)])
    for spectrum in (level, steep):
        for scale in (1e-12, 1.0, 1e12):
            matrix, u, v = with_spectrum(scale * spectrum.double())
            norm, polar = deflate(matrix.float(), overwrite=False)
            assert float(norm) == pytest.approx(scale * float(spectrum.double().sum()), rel=1e-5)
            assert float((u.T @ polar.double() @ v - torch.eye(len(u))).abs().max()) < 5e-3


@pytest.mark.parametrize("kind", ["one direction", "falling", "level"])
@pytest.mark.parametrize("size", [1e-35, 1e-30, 1e-24, 1e-15, 1e-8, 1e12, 1e30])
def test_matrices_whose_squares_leave_the_range_have_the_norm_of_the_svd(size, kind):
    """Nearly all kernels of a very wide or narrow bandwidth are the same number, and what is left of them is small."""
    for seed in range(4):
        matrix = torch.randn(170, 130, generator=torch.Generator().manual_seed(seed))
        if kind == "one direction":
            matrix = torch.outer(matrix[:, 0], matrix[0]) + 1e-7 * matrix
        elif kind == "falling":
            matrix = matrix * torch.logspace(0, -6, 130)
        unscaled = deflation.deflate(matrix, overwrite=False)
        given = matrix * size
        norm, polar = deflation.deflate(given, overwrite=False)
        assert torch.equal(given, matrix * size)
        exact = float(torch.linalg.svdvals(given.double()).sum())
        assert float(norm) == pytest.approx(exact, rel=1e-6)
        assert bool(polar.isfinite().all())
        if kind == "level":
            torch.testing.assert_close(polar, unscaled[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("exponent", [-54, -53, -52, -51])
def test_a_table_of_rounding_errors_has_a_norm(exponent):
    """What centring leaves of a constant kernel: a number for each pair of classes, whose squares lose their digits."""
    for seed in range(32):
        generator = torch.Generator().manual_seed(seed)
        rows, columns = (torch.randint(k, (n,), generator=generator) for k, n in ((3, 170), (2, 130)))
        matrix = torch.randn(3, 2, generator=generator)[rows][:, columns] * 2.0**exponent
        norm, polar = deflation.deflate(matrix, overwrite=False)
        assert float(norm) == pytest.approx(float(torch.linalg.svdvals(matrix.double()).sum()), rel=1e-5)
        assert bool(polar.isfinite().all())


def test_rounding_is_left_out_of_the_factor_and_counted_in_the_norm():
    matrix, u, v = with_spectrum([*torch.linspace(1, 0.5, 30), *([1e-17] * 10)], m=50)
    norm, polar = deflate(matrix, overwrite=False)
    assert float(norm) == pytest.approx(float(torch.linspace(1, 0.5, 30).double().sum()), rel=1e-12)
    torch.testing.assert_close(polar, u[:, :30] @ v[:, :30].T, rtol=0, atol=1e-8)


def test_levelling_goes_down_to_the_next_singular_value_and_no_further():
    """Of 320 directions forty are looked at; thirty of them are far above the others."""
    spectrum = torch.cat([torch.linspace(1, 0.6, 3), torch.linspace(0.06, 0.05, 27), torch.logspace(-3, -6, 290)])
    matrix, u, v = with_spectrum(spectrum.double())
    single = matrix.float()
    taken, levelled, gram = level_leading(single, single.mT @ single)
    s = torch.linalg.svdvals(levelled.double())
    assert float(s[0]) <= 0.0501
    assert float(s.sum() + taken.sum()) == pytest.approx(float(spectrum.sum()), rel=1e-5)
    assert s[: len(taken)].tolist() == pytest.approx([float(s[0])] * len(taken), rel=1e-3)
    assert bool((taken.diff() >= 0).all())
    assert float(taken[-1]) == pytest.approx(1 - float(s[0]), abs=1e-2)
    torch.testing.assert_close(gram, levelled.mT @ levelled)
    held = spectrum > 1e-3
    off = u.T.double() @ torch.linalg.svd(levelled.double())[0] @ torch.linalg.svd(levelled.double())[2] @ v
    assert float((off.diagonal()[held] - 1).abs().max()) < deflation.LEVEL_ERROR


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_a_matrix_is_left_as_it_is_where_its_gram_matrix_resolves_as_many_directions(scale):
    """Of 160 directions twenty are looked at, down to 0.04 of the largest; a Gram matrix resolves 0.01."""
    spectrum = torch.cat([torch.logspace(0, -1.4, 20), torch.full((140,), 0.03)])
    matrix = scale * with_spectrum(spectrum)[0].float()
    taken, same, gram = level_leading(matrix, matrix.mT @ matrix)
    assert same is matrix
    assert not taken.any()
    torch.testing.assert_close(gram, matrix.mT @ matrix)


def test_a_matrix_is_left_as_it_is_where_no_direction_is_known_well_enough(monkeypatch):
    monkeypatch.setattr(deflation, "LEVEL_ERROR", 0.0)
    matrix = with_spectrum(torch.cat([torch.logspace(0, -4, 20), torch.logspace(-4, -6, 140)]))[0].float()
    taken, same, _ = level_leading(matrix, matrix.mT @ matrix)
    assert same is matrix
    assert not taken.any()


def test_a_driver_that_fails_is_asked_again_in_float64():
    asked = []

    def decompose(matrix):
        asked.append(matrix.dtype)
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("no")
        return matrix + 1, 2 * matrix

    one, two = converging(decompose, torch.ones(2, 2))
    assert asked == [torch.float32, torch.float64]
    assert one.dtype == two.dtype == torch.float32
    assert math.isclose(float(one.sum() + two.sum()), 16)


def test_compiled_code_decomposes_once(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert converging(lambda matrix: (matrix + 1,), torch.ones(1))[0].tolist() == [2]


def test_levelling_stops_where_it_would_turn_what_it_lowers():
    """Three directions stand out, and all others are near the rounding of these."""
    spectrum = torch.cat([torch.tensor([1.0, 0.8, 0.6]), torch.logspace(-5, -6, 157)])
    matrix, u, v = with_spectrum(spectrum)
    single = matrix.float()
    taken, levelled, _ = level_leading(single, single.mT @ single)
    assert taken.tolist() == pytest.approx([0.6, 0.8, 1.0], abs=0.05)
    left, _, right = torch.linalg.svd(levelled.double())
    held = (u.T @ left @ right @ v).diagonal()[:3]
    assert float((held - 1).abs().max()) < deflation.LEVEL_ERROR**2
