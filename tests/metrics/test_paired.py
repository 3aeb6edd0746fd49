"""Small batches of equal size: every dtype of probabilities, bandwidths at the ends of the range, and no warning."""

from functools import partial

import numpy as np
import pytest
import torch

import bures
from bures.metrics import _small_batch
from bures.metrics._paired import LabelWeights
from bures.metrics._problem import conditional_problem


def batch(n=20, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z_s, z_t = (torch.randn(n, 6, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    return z_s, torch.arange(n) % 3, 1.5 * z_t, torch.randn(n, 3, generator=generator).softmax(1)


@pytest.fixture
def is_taken(monkeypatch):
    """Fails where the small pass was not taken."""
    taken = []

    def note(*arguments, distance=_small_batch.paired_distance, **options):
        taken.append(distance(*arguments, **options))
        return taken[-1]

    monkeypatch.setattr(_small_batch, "paired_distance", note)
    yield
    assert taken
    assert None not in taken


def by_definition(z_s, y_s, z_t, p_t, eps=1e-2):
    """Theorem 5 with the inverse, the symmetric square roots and the singular values that it names, in NumPy."""
    z_s, z_t, p_t = (part.detach().double().numpy() for part in (z_s, z_t, p_t))
    y_s = np.eye(3)[y_s.numpy()]

    def kernel(a, b):
        squares = ((a[:, None] - b) ** 2).sum(-1)
        return np.exp(-squares / squares.mean())

    n = len(z_s)
    centring = np.eye(n) - 1 / n
    roots, traces = [], 0.0
    for z, y in ((z_s, y_s), (z_t, p_t)):
        inverse = np.linalg.inv(centring @ kernel(y, y) @ centring + eps * n * np.eye(n))
        traces += eps * np.trace(centring @ kernel(z, z) @ centring @ inverse)
        values, vectors = np.linalg.eigh(eps * n * inverse)
        roots.append(centring @ (vectors * np.sqrt(values)) @ vectors.T)
    cross = roots[1].T @ kernel(z_t, z_s) @ roots[0]
    return traces - 2 * np.linalg.svd(cross, compute_uv=False).sum() / n


@pytest.mark.parametrize("n", [2, 20, 130])
def test_the_value_is_that_of_the_definition(is_taken, n):
    given = batch(n)
    exact = by_definition(*given)
    assert float(bures.CKBLoss()(*given)) == pytest.approx(exact, abs=1e-5)
    z_s = given[0].requires_grad_()
    with_gradient = bures.CKBLoss()(z_s, *given[1:])
    assert with_gradient.dtype == torch.float32
    assert float(with_gradient.detach()) == pytest.approx(exact, abs=1e-5)


LOSSES = [
    bures.CKBLoss,
    partial(bures.CKBLoss, eps="auto"),
    bures.CKWLoss,
    partial(bures.CKWLoss, eps="auto"),
    bures.ClassMeansLoss,
]


@pytest.mark.parametrize("make", LOSSES, ids=["ckb", "ckb-auto", "ckw", "ckw-auto", "means"])
@pytest.mark.parametrize("labels", ["classes", "rows", "few", "missing"])
def test_value_and_gradient_are_those_of_the_general_path_in_float64(is_taken, make, labels):
    z_s, y_s, z_t, p_t = batch(24)
    if labels == "rows":
        y_s = 0.9 * torch.nn.functional.one_hot(y_s, 3).float() + 0.1 / 3
    elif labels == "few":  # samples, beside the classes
        z_s, y_s, z_t, p_t = z_s[:2], y_s[:2], z_t[:2], p_t[:2]
    elif labels == "missing":  # a class from the source, another from the predictions
        y_s, p_t = y_s % 2, torch.nn.functional.pad(p_t[:, 1:] / p_t[:, 1:].sum(1, keepdim=True), (1, 0))
    found, gradients = [], []
    for dtype in (torch.float32, torch.float64):
        leaves = [z.to(dtype, copy=True).requires_grad_() for z in (z_s, z_t)]
        found.append(make()(leaves[0], y_s, leaves[1], p_t))
        found[-1].backward()
        gradients.append(torch.cat([leaf.grad.double() for leaf in leaves]))
    with torch.no_grad():
        alone = make()(z_s, y_s, z_t, p_t)
    assert found[0].dtype == torch.float32
    for value in (found[0].detach(), alone):
        assert float(value) == pytest.approx(float(found[1].detach()), rel=1e-5, abs=1e-6)
    assert float((gradients[0] - gradients[1]).norm()) <= 1e-4 * float(gradients[1].norm())


@pytest.mark.parametrize("make", [bures.CKWLoss, bures.ClassMeansLoss], ids=["ckw", "means"])
def test_second_derivatives_are_those_of_the_general_path(is_taken, make):
    z_s, y_s, z_t, p_t = batch(10)
    second = []
    for dtype in (torch.float32, torch.float64):
        leaf = z_s.to(dtype, copy=True).requires_grad_()
        (first,) = torch.autograd.grad(make()(leaf, y_s, z_t.to(dtype), p_t), leaf, create_graph=True)
        second.append(torch.autograd.grad(first.square().sum(), leaf)[0].double())
    assert float((second[0] - second[1]).norm()) <= 1e-2 * float(second[1].norm())


@pytest.mark.parametrize("dimensions", [2, 40], ids=["surface", "cloud"])
@pytest.mark.parametrize("n", [40, 100, 150])
def test_the_gradient_holds_whatever_the_spectrum(is_taken, dimensions, n):
    """Near a surface a few directions hold nearly all of the matrix under the norm, and the others carry gradient."""
    generator = torch.Generator().manual_seed(n)
    latent = [torch.randn(n, dimensions, generator=generator, dtype=torch.float64) for _ in range(2)]
    mixing = torch.randn(dimensions, 40, generator=generator, dtype=torch.float64) / dimensions**0.5
    z_s, z_t = (torch.sin(scale * part @ mixing) for part, scale in zip(latent, (0.5, 0.6), strict=True))
    y_s, p_t = torch.arange(n) % 3, torch.randn(n, 3, generator=generator).softmax(1)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaves = [z.float().to(dtype).requires_grad_() for z in (z_s, z_t)]
        bures.CKBLoss()(leaves[0], y_s, leaves[1], p_t).backward()
        gradients.append(torch.cat([leaf.grad.double() for leaf in leaves]))
    assert float((gradients[0] - gradients[1]).norm() / gradients[1].norm()) < 1e-3


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_probabilities_of_every_dtype_are_constants(dtype):
    z_s, y_s, z_t, p_t = batch()
    p_t = torch.nn.functional.one_hot(p_t.argmax(1), 3).to(dtype).requires_grad_()  # exact in every dtype
    z_s.requires_grad_()
    value = bures.CKBLoss()(z_s, y_s, z_t, p_t)
    value.backward()
    assert p_t.grad is None
    expected = bures.CKBLoss()(z_s.detach(), y_s, z_t, p_t.detach().double())
    assert float(value.detach()) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("method", ["svd", "polar", "deflation", "gram", "low-rank"])
def test_methods_agree_with_the_pass(is_taken, method):
    z_s, y_s, z_t, p_t = batch()
    z_s.requires_grad_()
    (expected,) = torch.autograd.grad(bures.CKBLoss()(z_s, y_s, z_t, p_t), z_s)
    (gradient,) = torch.autograd.grad(bures.CKBLoss(method=method)(z_s, y_s, z_t, p_t), z_s)
    assert float((gradient - expected).norm()) <= 1e-3 * float(expected.norm())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bandwidth", [1e-44, 1e-20, 1e20, 1e44])
def test_bandwidths_at_the_ends_of_the_range_warn_of_nothing(bandwidth):
    z_s, y_s, z_t, p_t = batch()
    z_s.requires_grad_()
    value = bures.CKBLoss(bandwidth=bandwidth)(z_s, y_s, z_t, p_t)
    options = {"kernel": "gaussian", "label_kernel": "gaussian", "label_bandwidth": "mean", "eps": 1e-2, "prior": None}
    general = conditional_problem(
        z_s.detach().double(), y_s, z_t.double(), p_t.double(), bandwidth=bandwidth, conditioning=("hard", "soft"),
        method="svd", sample_weight_s=None, sample_weight_t=None, **options,
    )  # fmt: skip
    assert float(value.detach()) == pytest.approx(float(general.terms().squared_distance), abs=1e-5)


def test_features_that_are_not_finite_are_named():
    z_s, y_s, z_t, p_t = batch()
    z_t[3, 2] = torch.nan
    with pytest.raises(ValueError, match=r"z_t contains NaN or infinity in 1 of 20 rows \(first: row 3\)"):
        bures.CKBLoss()(z_s, y_s, z_t, p_t)


def test_distances_that_are_noise_beside_the_largest_are_left_to_the_general_path():
    """Two samples far out on either side of the others, whose own distances products in float32 cannot tell."""
    labels = LabelWeights(*[torch.eye(8, dtype=torch.float64)] * 2)
    z_s, _, z_t, _ = batch(8)
    for reach, expected in ((1.0, True), (1e6, False)):
        far = z_t.clone()
        far[0], far[1] = reach, -reach
        found = _small_batch.paired_distance(z_s, far, labels, "per-block", wanted=False)
        assert (found is not None) is expected


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000, 0x7F800000, 0x7F7FFFFF], ids=["signal", "nan", "inf", "max"])
def test_what_memory_held_before_is_of_no_account(monkeypatch, bits):
    z_s, _, z_t, _ = batch(8)
    labels = LabelWeights(*[torch.eye(8, dtype=torch.float64)] * 2)
    results = []
    for held in (0, bits):
        old = torch.full((16, 16), held, dtype=torch.int32).view(torch.float32)
        monkeypatch.setattr(torch.Tensor, "new_empty", lambda x, rows, columns, old=old: old[:rows, :columns].clone())
        results.append(_small_batch.paired_distance(z_s, z_t, labels, "per-block", wanted=True))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("collapsed", ["target", "both"])
@pytest.mark.parametrize("spread", [0.0, 1e-7, 1e-6, 1e-4])
def test_the_gradient_of_collapsed_features_is_bounded(collapsed, spread):
    """A target whose samples are one point, or almost: the matrix under the norm is rounding, or small beside it.

    Of one point the distance has no gradient but subgradients, none longer than its kernel's slope.
    """
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        n, d = 2 + seed % 20, 1 + seed % 13
        z_s, at, noise = (torch.randn(rows, d, generator=generator) for rows in (n, 1, n))
        z_t = at + 0.5 + spread * noise
        z_s = spread * z_s if collapsed == "both" else z_s
        y_s, p_t = torch.arange(n) % 3, torch.randn(n, 3, generator=generator).softmax(1)
        lengths = []
        for dtype in (torch.float32, torch.float64):
            leaves = [z.to(dtype, copy=True).requires_grad_() for z in (z_s, z_t)]
            bures.CKBLoss(bandwidth="shared")(leaves[0], y_s, leaves[1], p_t).backward()
            lengths.append(float(torch.cat([leaf.grad for leaf in leaves]).norm()))
        assert lengths[0] <= 3 * lengths[1] + 1e-4
