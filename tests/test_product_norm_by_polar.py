"""The nuclear norm of a product of two samples by matrix products alone, as a GPU computes it; here on the CPU."""

from __future__ import annotations

from functools import partial
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import bures
from bures import polar, spectral
from bures.polar import ROUNDING_END, polar_factor
from bures.spectral import product_nuclear_norm

# The compiler of torch 2.4 breaks the graph.
ONE_GRAPH = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5)

by_products = partial(product_nuclear_norm, method="polar")

# Which of two ways samples go that are longer than wide: by the product of both, or by that of two roots.
WAYS = {"product": (4, 10**9), "roots": (2, 1)}


def going(way: str):
    thin, thin_from = WAYS[way]
    return mock.patch.multiple(polar, THIN=thin, THIN_FROM=thin_from)


each_way = pytest.mark.parametrize("way", WAYS)


def value_and_gradients(function, *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = function(*leaves)
    return value.detach(), *torch.autograd.grad(value, leaves)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ----------------------------------------------------------------------------------------------------------------------
# Against a singular value decomposition

KINDS = ("plain", "duplicates", "zero features", "zero", "constant", "low rank", "one row", "decaying", "small")


def sample(kind: str, n: int, d: int, seed: int) -> Tensor:
    """Rows like those of a covariance root: centred in float32, and divided by the root of their number."""
    x = normal(n, d, seed=seed)
    if kind == "duplicates":
        x = x[torch.arange(n) % max(n // 3, 1)]
    elif kind == "zero features":
        x[:, d // 2 :] = 0
    elif kind == "zero":
        x = torch.zeros_like(x)
    elif kind == "constant":
        x[:, : d // 2] = x[:1, : d // 2]
    elif kind == "low rank":
        k = max(min(n, d) // 4, 1)
        x = x[:, :k] @ normal(k, d, seed=seed + 1)
    elif kind == "one row":
        x[1:] = 0
    elif kind == "decaying":
        x = x * torch.logspace(0, -6, d, dtype=torch.float64)
    elif kind == "small":
        x = 1e-15 * x
    single = x.float()
    return (single - single.mean(dim=0)) / n**0.5


@settings(max_examples=300)
@given(
    n=st.integers(1, 24),
    m=st.integers(1, 24),
    d=st.integers(1, 24),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    seed=st.integers(0, 999),
    way=st.sampled_from(list(WAYS)),
)
def test_value_and_gradients_are_those_of_the_svd_in_float64(n, m, d, kinds, seed, way):
    """In the directions that float32 resolves; others may have any weight from zero to one, as in a subgradient."""
    a, b = sample(kinds[0], n, d, seed), sample(kinds[1], m, d, seed + 500)
    with going(way):
        value, to_a, to_b = value_and_gradients(by_products, a, b)
    assert value.dtype == to_a.dtype == to_b.dtype == torch.float32
    assert all(bool(x.isfinite().all()) for x in (value, to_a, to_b))
    exact_a, exact_b = a.double(), b.double()
    u, s, vh = torch.linalg.svd(exact_a @ exact_b.T, full_matrices=False)
    # The share of a singular value is that of the fourth root of the sum of fourth powers, which is what is scaled to
    # one. What is left out is below the rounding end and there are at most 24 of it.
    end = ROUNDING_END * float((s**4).sum() ** 0.25)
    assert float(value) == pytest.approx(float(s.sum()), rel=2e-7, abs=24 * end)
    kept, unsure = s > end, (s > end / 20) & (s <= end)
    for found, other, left, right in ((to_a, exact_b, u, vh.T), (to_b, exact_a, vh.T, u)):
        expected = left[:, kept] @ (right[:, kept].T @ other)
        # Rounding of the result to float32, 6e-8, and of the product in float64, 1e-16 over the rounding end.
        allowed = 1e-6 * float(other.norm()) + float((right[:, unsure].T @ other).norm())
        assert float((found.double() - expected).norm()) <= allowed


@each_way
@pytest.mark.parametrize("shape", [(6, 5, 3), (3, 4, 8), (8, 9, 2), (1, 1, 1), (5, 1, 2)], ids=str)
def test_derivatives_are_those_of_finite_differences(shape, way):
    n, m, d = shape
    leaves = tuple(normal(k, d, seed=seed).requires_grad_() for seed, k in enumerate((n, m)))
    with going(way):
        # The value has an error of 1e-9 to 1e-8, which a step of 1e-6 would bring to the fourth digit.
        assert torch.autograd.gradcheck(by_products, leaves, eps=1e-4, atol=1e-4)
        assert torch.autograd.gradgradcheck(by_products, leaves)


def test_the_second_derivative_in_float32_is_that_of_the_decompositions():
    a, b = normal(12, 5).float(), normal(9, 5, seed=1).float()

    def curvature(function):
        leaves = [x.clone().requires_grad_() for x in (a, b)]
        first = torch.autograd.grad(function(*leaves), leaves, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in first), leaves)

    torch.testing.assert_close(curvature(by_products), curvature(product_nuclear_norm))


# ----------------------------------------------------------------------------------------------------------------------
# Rounding of one sample in directions where the other is large


def as_on_a_gpu():
    """The distance is computed as it is in float32 on a GPU."""
    return mock.patch("bures.metrics._bures.product_nuclear_norm", by_products)


def bures_by_products(xs: Tensor, xt: Tensor) -> Tensor:
    with as_on_a_gpu():
        return bures.bures(xs, xt)


def relative_errors(found, expected):
    return [
        float((one.double() - other).norm() / other.norm()) for one, other in zip(found[1:], expected[1:], strict=True)
    ]


ONE_SIDED = [(40, 40, 16, 4), (30, 40, 16, 4), (64, 64, 64, 16), (96, 128, 512, 20), (300, 300, 40, 10)]


@pytest.mark.parametrize("kind", ["rounded", "off centre", "product in float32", "duplicates in float32"])
@pytest.mark.parametrize("shape", ONE_SIDED, ids=str)
def test_the_rounding_of_one_sample_does_not_reach_the_gradient(shape, kind):
    """The source has rank k in float64 and full rank by its rounding, and the target has large directions there.

    Counted like others, they would change the gradient by more than its own length.
    """
    n, m, d, k = shape
    xt = normal(m, d, seed=1)
    hidden, weight = normal(n, k, seed=2).float(), normal(k, d, seed=3).float()
    exact = hidden.double() @ weight.double() + (3 if kind == "off centre" else 0)
    single = exact.float()
    if kind == "product in float32":
        single = hidden @ weight
    elif kind == "duplicates in float32":
        exact = normal(n, d, seed=4).float().double()
        exact[: n // 3] = exact[n // 3 : 2 * (n // 3)]
        ulps = torch.randint(-1, 2, exact.shape, generator=torch.Generator().manual_seed(0))
        single = exact.float() * (1 + 2**-24 * ulps)
    expected = value_and_gradients(bures.bures, exact, xt.float().double())
    found = value_and_gradients(bures_by_products, single, xt.float())
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-5)
    assert max(relative_errors(found, expected)) < 1e-2


@pytest.mark.parametrize("basis", ["own", "common"])
@pytest.mark.parametrize("shape", [(40, 30, 16), (64, 60, 64), (200, 160, 16)], ids=str)
def test_small_directions_of_both_samples_are_kept_as_by_decompositions(shape, basis):
    """Down to 1e-4 of the largest in each, 1e-8 in the product; the gradient of what is left out is a root of 2e-7."""
    n, m, d = shape
    spread = torch.logspace(0, -4, d, dtype=torch.float64)
    bases = [torch.linalg.qr(normal(d, d, seed=seed))[0] for seed in (7, 8 if basis == "own" else 7)]
    xs, xt = ((normal(k, d, seed=k + d) * spread @ q).float() for k, q in zip((n, m), bases, strict=True))
    expected = value_and_gradients(bures.bures, xs.double(), xt.double())
    found = value_and_gradients(bures_by_products, xs, xt)
    variance = sum(float(x.double().var(dim=0, correction=0).sum()) for x in (xs, xt))
    assert float(found[0]) == pytest.approx(float(expected[0]), abs=1e-6 * variance)
    assert max(relative_errors(found, expected)) < 5e-3


@pytest.mark.parametrize("shape", [(40, 16), (30, 64), (300, 16)], ids=str)
def test_the_gradient_vanishes_at_equal_samples(shape):
    x = normal(*shape).float()
    value, *gradients = value_and_gradients(bures_by_products, x, x.clone())
    variance = float(x.double().var(dim=0, correction=0).sum())
    assert abs(float(value)) < 1e-5 * variance
    for gradient in gradients:
        assert float(gradient.norm()) < 1e-5 * (variance / len(x)) ** 0.5


def test_directions_of_rounding_are_left_out_of_the_factor_and_others_kept():
    spectrum = torch.logspace(0, -12, 49, dtype=torch.float64)  # a quarter of a decade each
    u, v = (torch.linalg.qr(normal(k, 49, seed=k))[0] for k in (60, 50))
    matrix = u * spectrum @ v.T
    share = spectrum / (spectrum**4).sum() ** 0.25
    amplitudes = (u.T @ polar_factor(matrix, above_rounding=True) @ v).diagonal()
    assert float((amplitudes[share > ROUNDING_END] - 1).abs().max()) < 1e-7
    assert float(amplitudes[share < ROUNDING_END / 10].abs().max()) < 2e-3
    assert float(amplitudes[share < ROUNDING_END / 100].abs().max()) < 1e-9
    assert float(amplitudes.max()) < 1 + 1e-9


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)], ids=str)
def test_a_rational_step_leads_to_the_same_factor_above_rounding(shape, monkeypatch):
    u, v = (torch.linalg.qr(normal(k, 40, seed=k))[0] for k in shape)
    spectrum = torch.logspace(0, -5, 40, dtype=torch.float64)
    spectrum[30:] = 0
    monkeypatch.setattr("bures.polar.RATIONAL_FROM", 1)
    found = polar_factor(u * spectrum @ v.T, above_rounding=True)
    assert float((found - u[:, :30] @ v[:, :30].T).abs().max()) < 1e-6


# ----------------------------------------------------------------------------------------------------------------------
# Which way is taken, and what it needs


def test_samples_go_the_way_of_the_smaller_products():
    for n, m, d, roots in (
        (64, 256, 16, True),
        (256, 64, 16, True),
        (63, 256, 16, False),
        (300, 67, 17, False),
        (255, 255, 8, False),
    ):
        with mock.patch.object(polar, "polar_factor", wraps=polar_factor) as factor:
            by_products(normal(n, d).float(), normal(m, d, seed=1).float())
        shapes = [tuple(call.args[0].shape) for call in factor.call_args_list]
        assert shapes == ([(n, d), (m, d), (d, d)] if roots else [(n, m)])


def test_on_the_cpu_and_in_float64_decompositions_are_taken():
    a, b = normal(6, 3), normal(5, 3, seed=1)
    with mock.patch.object(spectral, "product_norm_and_gradients", side_effect=AssertionError):
        for dtype in (torch.float32, torch.float64):
            product_nuclear_norm(a.to(dtype), b.to(dtype))
        with pytest.raises(AssertionError):
            by_products(a, b)


class Operations(TorchDispatchMode):
    """Notes what is done to tensors."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.add(operation.overloadpacket.__name__)
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("shape", "rational"), [((40, 30, 16), False), ((300, 280, 16), False), ((40, 30, 50), True)])
def test_no_value_is_looked_at_and_nothing_is_decomposed_that_a_cuda_graph_cannot_hold(shape, rational, monkeypatch):
    if rational:
        monkeypatch.setattr("bures.polar.RATIONAL_FROM", 1)
    n, m, d = shape
    with Operations() as done:
        value_and_gradients(by_products, normal(n, d).float(), normal(m, d, seed=1).float())
    decompositions = {name for name in done.names if "linalg" in name or "cholesky" in name}
    assert decompositions <= {"linalg_vector_norm", "linalg_cholesky_ex", "cholesky_solve", "_cholesky_solve_helper"}
    assert ("linalg_cholesky_ex" in decompositions) == rational
    assert "mm" in done.names
    assert not done.names & {"_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal"}
    with Operations() as other:
        value_and_gradients(product_nuclear_norm, normal(n, d).float(), normal(m, d, seed=1).float())
    assert "linalg_qr" in other.names


@each_way
def test_batches_under_vmap_are_those_of_a_loop(way):
    a, b = normal(3, 12, 4).float(), normal(3, 10, 4, seed=1).float()
    with going(way):
        found = torch.func.vmap(by_products)(a, b)
        gradients = torch.func.vmap(torch.func.grad(by_products, argnums=(0, 1)))(a, b)
        leaves = [x.clone().requires_grad_() for x in (a, b)]
        outside = torch.autograd.grad(torch.func.vmap(by_products)(*leaves).sum(), leaves)
        for i in range(3):
            value, *expected = value_and_gradients(by_products, a[i], b[i])
            torch.testing.assert_close(found[i], value)
            for some in (gradients, outside):
                torch.testing.assert_close([part[i] for part in some], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@each_way
def test_the_compiled_distance_has_the_same_value_and_gradient(way):
    torch.compiler.reset()
    xs, xt = normal(12, 4).float(), 1.5 * normal(10, 4, seed=1).float()
    with going(way), as_on_a_gpu():
        expected = value_and_gradients(bures.bures, xs, xt)
        found = value_and_gradients(torch.compile(bures.bures, backend="aot_eager", fullgraph=ONE_GRAPH), xs, xt)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
