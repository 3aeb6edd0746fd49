"""The one-pass distance gives what the general path gives: value, gradient, second derivative, and its refusals."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot
from torch.utils._python_dispatch import TorchDispatchMode

import bures
from bures.metrics import _fused, _problem
from bures.metrics._fused import can_fuse

TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-9}


def batch(n=24, m=24, d=5, classes=3, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y_s, y_t = torch.randint(classes, (n,), generator=generator), torch.randint(classes, (m,), generator=generator)
    z_s = (torch.randn(n, d, generator=generator, dtype=torch.float64) + y_s[:, None]).to(dtype).requires_grad_()
    z_t = (1.4 * torch.randn(m, d, generator=generator, dtype=torch.float64) + y_t[:, None]).to(dtype).requires_grad_()
    logits = 3 * one_hot(y_t, classes) + torch.randn(m, classes, generator=generator)
    return z_s, y_s, z_t, logits.softmax(1)


def general(function, monkeypatch):
    """The same call by the general path."""
    with monkeypatch.context() as patched:
        patched.setattr(_problem, "can_fuse", lambda *_: False)
        patched.setattr("bures.losses._conditional.small_batch_distance", lambda *_: None)
        return function()


def test_calls_that_a_pass_is_written_for(monkeypatch):
    x = torch.zeros(2, 2)
    for kernel, bandwidth, expected in (
        ("gaussian", "shared", True),
        ("gaussian", "per-block", True),
        ("gaussian", 2.0, True),
        ("gaussian", "median", False),
        ("laplacian", "shared", False),
        (lambda a, b: a @ b.T, "shared", False),
    ):
        assert can_fuse(x, kernel, bandwidth) is expected, (kernel, bandwidth)
    assert can_fuse(x.double(), "gaussian", "shared", "svd")
    assert not can_fuse(x.to("meta"), "gaussian", "shared")
    for name, value in (("checks_values", False), ("is_transformed", True)):
        with monkeypatch.context() as patched:
            patched.setattr(_fused, name, lambda value=value: value)
            assert not can_fuse(x, "gaussian", "shared")


@pytest.mark.parametrize("n", [5, 191, 192, 401])
def test_squared_distances_are_those_of_all_pairs_in_parts_as_well(n):
    """From twice 96 samples on the blocks beside the diagonal are computed once, in parts again if these are large."""
    x, y = (torch.randn(k, 3, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (n, 7))
    own = _fused._own_squared_distances(x, x.square().sum(dim=1))
    torch.testing.assert_close(own, (x[:, None] - x).square().sum(dim=2))
    assert not own.diagonal().any()
    between = _fused._squared_distances(x, x.square().sum(dim=1), y, y.square().sum(dim=1))
    torch.testing.assert_close(between, (x[:, None] - y).square().sum(dim=2))


def test_distances_that_are_noise_beside_the_largest_are_left_to_the_general_path(monkeypatch):
    """Two samples far out on either side of the others, whose own distances products in float32 cannot tell."""
    found, passed = [], _fused._block_by_block
    monkeypatch.setattr(_fused, "_block_by_block", lambda *a, **k: found.append(passed(*a, **k)) or found[-1])
    for reach in (1.0, 1e6):
        z_s, y_s, z_t, p_t = (part.detach() for part in batch(dtype=torch.float32))
        z_t[0], z_t[1] = reach, -reach
        bures.ckb(z_s, y_s, z_t, p_t, bandwidth="per-block")
    near, far = found
    assert near is not None
    assert far is None


class OnDevice:
    """What `can_fuse` looks at in a tensor on a GPU."""

    is_cuda = True

    def __init__(self, dtype):
        self.dtype = dtype


def test_calls_that_the_pass_of_a_gpu_is_written_for(monkeypatch):
    single, double = OnDevice(torch.float32), OnDevice(torch.float64)
    assert can_fuse(single, "gaussian", "shared")
    assert can_fuse(single, "gaussian", "shared", "polar")
    assert not can_fuse(single, "gaussian", "shared", "svd")
    assert not can_fuse(double, "gaussian", "shared")
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not can_fuse(single, "gaussian", "shared")


def test_the_pass_is_taken_and_its_gradient_only_where_it_is_wanted(monkeypatch):
    z_s, y_s, z_t, p_t = batch()
    found, passed = [], _fused._block_by_block
    monkeypatch.setattr(_fused, "_block_by_block", lambda *a, **k: found.append(passed(*a, **k)) or found[-1])
    one, other, neither = z_s.detach(), z_t.detach(), (z_s.detach(), z_t.detach())
    values = [bures.ckb(a, y_s, b, p_t) for a, b in ((z_s, other), (one, z_t), neither)]
    with torch.no_grad():
        values.append(bures.ckb(z_s, y_s, z_t, p_t))
    assert [gradient is not None for _, gradient in found] == [True, True, False, False]
    assert [value.requires_grad for value in values] == [True, True, False, False]
    assert [float(value.detach()) for value in values] == pytest.approx([float(values[0].detach())] * 4, rel=1e-9)


def value_and_gradients(loss, z_s, z_t):
    value = loss()
    return value.detach(), *torch.autograd.grad(value, (z_s, z_t))


def degenerate(name, z):
    with torch.no_grad():
        if name == "constant":
            return torch.full_like(z, 3.7).requires_grad_()
        if name == "zero":
            return torch.zeros_like(z).requires_grad_()
        if name == "duplicates":
            return z[torch.arange(len(z)) // 4].clone().requires_grad_()
        if name == "huge":
            return (z * 1e18).requires_grad_()
        if name == "tiny":
            return (z * 1e-18).requires_grad_()
        if name == "far":
            return (z + 300.0).requires_grad_()
    return z


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", [(24, 24), (24, 17), (150, 150), (140, 160), (1, 1)], ids=str)
@pytest.mark.parametrize("bandwidth", ["per-block", "shared", 2.5])
@pytest.mark.parametrize("labels", ["classes", "rows"])
def test_the_loss_is_that_of_the_general_path(labels, bandwidth, sizes, dtype, monkeypatch):
    z_s, y_s, z_t, p_t = batch(*sizes, dtype=dtype)
    y_s = one_hot(y_s, 3).to(dtype) if labels == "rows" else y_s
    loss = bures.CKBLoss(bandwidth=bandwidth)

    def call():
        return value_and_gradients(lambda: loss(z_s, y_s, z_t, p_t), z_s, z_t)

    for one, other in zip(call(), general(call, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", ["constant", "zero", "duplicates", "huge", "tiny", "far"])
@pytest.mark.parametrize("which", ["both", "target"])
def test_degenerate_features_give_what_the_general_path_gives(which, case, dtype, monkeypatch):
    z_s, y_s, z_t, p_t = batch(dtype=dtype)
    z_t = degenerate(case, z_t)
    z_s = degenerate(case, z_s) if which == "both" or case in ("huge", "tiny") else z_s
    loss = bures.CKBLoss()

    def call():
        return value_and_gradients(lambda: loss(z_s, y_s, z_t, p_t), z_s, z_t)

    fused, reference = call(), general(call, monkeypatch)
    assert all(bool(part.isfinite().all()) for part in fused)
    # The kernel of a constant sample is rounding, kept small.
    torch.testing.assert_close(fused[0], reference[0], rtol=3e-2 if case in ("constant", "zero") else 1e-3, atol=1e-5)
    if case not in ("duplicates", "constant", "zero"):  # at a kink the subgradients may differ
        for one, other in zip(fused[1:], reference[1:], strict=True):
            share = 2e-2 if dtype == torch.float32 else 1e-6
            torch.testing.assert_close(one, other, rtol=0, atol=share * float(other.abs().max()))


@pytest.mark.parametrize("n", [12, 30])
@pytest.mark.parametrize("classes", [2, 20])
def test_missing_classes_and_more_classes_than_samples_give_what_the_general_path_gives(classes, n, monkeypatch):
    """Two or twenty classes among the columns of twenty."""
    z_s, y_s, z_t, p_t = batch(n, n, classes=20)
    y_s = y_s % classes

    def call():
        return value_and_gradients(lambda: bures.CKBLoss()(z_s, y_s, z_t, p_t), z_s, z_t)

    for one, other in zip(call(), general(call, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("options", [{"sample_weight_s": True}, {"prior": "uniform"}, {"eps": "auto"}], ids=str)
def test_weights_and_priors_give_what_the_general_path_gives(options, monkeypatch):
    z_s, y_s, z_t, p_t = batch(n=30, m=22)
    if "sample_weight_s" in options:
        options = {"sample_weight_s": torch.linspace(0, 1, 30, dtype=torch.float64)}

    def call():
        return value_and_gradients(lambda: bures.ckb(z_s, y_s, z_t, p_t, **options), z_s, z_t)

    for one, other in zip(call(), general(call, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("sizes", [(7, 7), (7, 6)], ids=str)
def test_first_and_second_derivatives_pass_gradcheck(sizes):
    z_s, y_s, z_t, p_t = batch(*sizes, d=2, classes=2)
    loss = bures.CKBLoss(bandwidth=3.0)

    def function(a, b):
        return loss(a, y_s, b, p_t)

    assert can_fuse(z_s, "gaussian", 3.0)
    assert torch.autograd.gradcheck(function, (z_s, z_t))
    assert torch.autograd.gradgradcheck(function, (z_s, z_t), atol=1e-4)


def test_a_gradient_is_given_to_the_side_that_asks_and_twice_where_the_graph_is_kept():
    z_s, y_s, z_t, p_t = batch()
    value = bures.CKBLoss()(z_s.detach(), y_s, z_t, p_t)
    (first,) = torch.autograd.grad(value, z_t, retain_graph=True)
    (second,) = torch.autograd.grad(3 * value, z_t)
    torch.testing.assert_close(second, 3 * first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[0].detach()[0].fill_(np.nan), r"z_s contains NaN"),
        (lambda b: b[1].fill_(7), r"y_s contains class 7"),
        (lambda b: b[3][0].fill_(-1.0), r"p_t has 1 of 24 rows that are not probabilities"),
        (lambda b: b[3][0].fill_(np.nan), r"p_t contains NaN"),
    ],
)
def test_wrong_values_are_refused_in_the_words_of_the_general_path(change, message):
    arguments = batch()
    with torch.no_grad():
        change(arguments)
    with pytest.raises(ValueError, match=message):
        bures.CKBLoss()(*arguments)


class CountedOperations(TorchDispatchMode):
    """Counts what torch dispatches; a measure of a small loss's cost that no machine's pace changes."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("n", "m", "most"), [(40, 40, 150), (40, 39, 330), (300, 300, 460)], ids=str)
def test_a_loss_and_its_gradient_take_few_operations(n, m, most):
    z_s, y_s, z_t, p_t = batch(n, m, d=16, dtype=torch.float32)
    loss = bures.CKBLoss()
    loss(z_s, y_s, z_t, p_t).backward()
    with CountedOperations() as operations:
        loss(z_s, y_s, z_t, p_t).backward()
    old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5)  # takes up to a tenth more for the same
    assert operations.count <= (1.1 * most if old else most)


@pytest.mark.parametrize("kind", ["clusters", "noise", "line"])
def test_explain_bounds_the_error_of_the_low_rank_path(kind):
    z_s, y_s, z_t, p_t = batch(220, 200, d=1 if kind == "line" else 40)
    if kind == "noise":
        z_s, z_t = torch.randn(220, 40).double(), torch.randn(200, 40).double()
    options = {"n_permutations": 0, "n_bootstrap": 0}
    exact = bures.explain(z_s.detach(), y_s, z_t.detach(), p_t, **options)
    quick = bures.explain(z_s.detach(), y_s, z_t.detach(), p_t, method="low-rank", **options)
    assert exact.method_error == 0
    assert "approximation" not in repr(exact)
    assert abs(quick.squared_distance - exact.squared_distance) <= quick.method_error + 1e-9
    assert quick.method_error <= exact.trace_s + exact.trace_t
    assert ("approximation" in repr(quick)) == (kind != "line")  # of low rank: nothing is left out
    assert dataclasses.asdict(quick)["method_error"] == quick.method_error
