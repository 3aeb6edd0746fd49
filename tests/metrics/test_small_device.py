"""The kernels for small samples on a GPU give the distance of float64 and its gradient.

Without a GPU they run in Triton's interpreter, on the CPU.
"""

import importlib.util
import warnings

import hypothesis.strategies as st
import pytest
import torch
from float64_peer import in_float64, labelled_batch, value_and_gradient
from hypothesis import given, settings
from torch.nn.functional import one_hot

import bures
from bures.metrics import _problem, _small_device
from bures.metrics._small_device import LARGEST, small_value_and_gradient, suits_small_device

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if HAS_GPU else torch.device("cpu")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.skipif(HAS_GPU and not _small_device._is_made_for_float64(DEVICE), reason="another GPU"),
]


@pytest.fixture(autouse=True)
def small_calls(monkeypatch):
    """What the kernels were called for; without a GPU they are for every call that would be theirs there."""
    calls = []

    def suits(xs, xt, source, target):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_small_device, "_is_made_for_float64", lambda device: True)
            return suits_small_device(OnGPU(xs), xt, source, target)

    def counted(xs, xt, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # that they could not be started
            found = small_value_and_gradient(xs, xt, **options)
        calls.append(len(xs))
        return found

    if not HAS_GPU:
        monkeypatch.setattr(_problem, "suits_small_device", suits)
        monkeypatch.setattr("bures.losses._conditional.small_batch_distance", lambda *_: None)
    monkeypatch.setattr(_problem, "small_value_and_gradient", counted)
    return calls


class OnGPU:
    """What `suits_small_device` looks at in a tensor on a GPU."""

    def __init__(self, x):
        self.x, self.is_cuda, self.dtype, self.device = x, True, x.dtype, x.device

    def __len__(self):
        return len(self.x)


def batch(n=30, m=30, *sizes, **options):
    return tuple(part.to(DEVICE) for part in labelled_batch(n, m, *sizes, **options))


def assert_agrees(distance, z_s, z_t, monkeypatch, share=2e-5):
    value, gradient = value_and_gradient(distance, z_s, z_t)
    expected, expected_gradient = in_float64(distance, z_s, z_t, monkeypatch)
    assert value.dtype == gradient.dtype == torch.float32
    assert float(value) == pytest.approx(float(expected), rel=1e-5, abs=1e-6)
    assert float((gradient - expected_gradient).norm()) <= share * float(expected_gradient.norm()) + 1e-9


def loss_of(y_s, p_t, **options):
    loss = bures.CKBLoss(**options, cuda_graphs=False)
    return lambda a, b: loss(a, y_s, b, p_t.to(b))


SIZES = [(30, 30, 5), (25, 32, 5), (32, 25, 40), (1, 1, 3), (2, 1, 1), (40, 64, 17), (64, 64, 300)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("bandwidth", ["per-block", "shared", 2.5])
def test_the_loss_is_that_of_float64(small_calls, monkeypatch, bandwidth, sizes):
    z_s, y_s, z_t, p_t = batch(*sizes)
    assert_agrees(loss_of(y_s, p_t, bandwidth=bandwidth), z_s, z_t, monkeypatch)
    assert small_calls == [sizes[0]]


@pytest.mark.parametrize("labels", ["hard", "soft", "weights", "zero weights", "prior", "one each", "many", "missing"])
def test_labels_and_weights_of_every_kind(small_calls, monkeypatch, labels):
    z_s, y_s, z_t, p_t = batch(30, 40)
    y_t, many = p_t.argmax(1), torch.randn(40, 70, device=DEVICE).softmax(1)
    part = (torch.arange(30, device=DEVICE) % 3).double()
    calls = {
        "hard": lambda a, b: bures.ckb(a, y_s, b, y_t),
        "soft": lambda a, b: bures.ckb(a, one_hot(y_s, 3).to(a), b, p_t.to(b)),
        "weights": lambda a, b: bures.ckb(a, y_s, b, p_t.to(b), sample_weight_s=(part + 1).to(a)),
        "zero weights": lambda a, b: bures.ckb(a, y_s, b, p_t.to(b), sample_weight_s=part.to(a)),
        "prior": lambda a, b: bures.ckb(a, y_s, b, p_t.to(b), prior="uniform", eps="auto"),
        "one each": lambda a, b: bures.ckb(a, torch.arange(30, device=DEVICE), b, torch.arange(40, device=DEVICE)),
        "many": lambda a, b: bures.ckb(a, y_s, b, many.to(b)),
        "missing": lambda a, b: bures.ckb(a, y_s.clamp_max(1), b, p_t.to(b)),
    }
    assert_agrees(calls[labels], z_s, z_t, monkeypatch)
    assert small_calls == [30]


@pytest.mark.parametrize("case", ["constant", "zero", "duplicates", "huge", "tiny", "far", "collapsed labels"])
def test_degenerate_samples(small_calls, monkeypatch, case):
    z_s, y_s, z_t, p_t = batch()
    changes = {
        "constant": lambda z: torch.full_like(z, 3.7),
        "zero": torch.zeros_like,
        "duplicates": lambda z: z[torch.arange(len(z)) // 4],
        "huge": lambda z: 1e30 * z,
        "tiny": lambda z: 1e-30 * z,
        "far": lambda z: z + 300.0,
        "collapsed labels": lambda z: z,
    }
    if case == "collapsed labels":
        p_t = one_hot(torch.zeros_like(y_s), 3).float()
    z_s, z_t = changes[case](z_s), changes[case](z_t)
    distance = loss_of(y_s, p_t)
    value, gradient = value_and_gradient(distance, z_s, z_t)
    expected, expected_gradient = in_float64(distance, z_s, z_t, monkeypatch)
    assert small_calls == [30]
    assert float(value) == pytest.approx(float(expected), rel=1e-4, abs=1e-6)
    assert bool(gradient.isfinite().all())
    if case != "duplicates":  # there the norm has a kink, and each path has a subgradient of its own
        largest = float(expected_gradient.norm())
        assert float((gradient - expected_gradient).norm()) <= 1e-3 * largest


@settings(max_examples=25)
@given(
    n=st.integers(1, 20), m=st.integers(1, 20), d=st.integers(1, 40), classes=st.integers(1, 20),
    scale=st.sampled_from([1e-12, 1.0, 1e12]), bandwidth=st.sampled_from(["shared", "per-block"]),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_batches_of_any_shape(n, m, d, classes, scale, bandwidth, seed):
    z_s, y_s, z_t, p_t = batch(n, m, d, classes, seed)
    problem = _problem.conditional_problem(scale * z_s, y_s, scale * z_t, p_t, eps=1e-2, bandwidth=bandwidth)
    labels = _small_device.SmallDeviceLabels(problem.source, problem.target, problem.eps)
    value, gradient = small_value_and_gradient(
        scale * z_s, scale * z_t, labels=labels, bandwidth=bandwidth, wanted=True
    )
    a, b = (scale * z_s).double().requires_grad_(), (scale * z_t).double().requires_grad_()
    reference = _problem.conditional_problem(a, y_s, b, p_t.double(), eps=1e-2, bandwidth=bandwidth)
    expected = reference.terms().squared_distance
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-6)
    assert gradient.shape == (n + m, d)
    assert bool(gradient.isfinite().all())
    expected = torch.cat(torch.autograd.grad(expected, (a, b)))
    assert float((gradient - expected).norm()) <= 1e-3 * float(expected.norm()) + 1e-7 / scale


@pytest.mark.filterwarnings("ignore:invalid value")  # of NumPy, in the interpreter
def test_features_that_are_no_numbers_give_no_number():
    z_s, y_s, z_t, p_t = batch()
    problem = _problem.conditional_problem(z_s, y_s, z_t, p_t, eps=1e-2)
    labels = _small_device.SmallDeviceLabels(problem.source, problem.target, problem.eps)
    for wrong in (float("nan"), float("inf")):
        z_t[3, 2] = wrong
        value, gradient = small_value_and_gradient(z_s, z_t, labels=labels, bandwidth="per-block", wanted=True)
        assert not bool(value.isfinite())
        assert not bool(gradient.isfinite().all())


def test_a_sample_and_itself_are_at_no_distance(small_calls):
    z_s, y_s, _, _ = batch()
    assert abs(float(bures.ckb(z_s.requires_grad_(), y_s, z_s, y_s).detach())) < 1e-6
    assert small_calls == [30]


def test_the_value_alone_is_the_same(small_calls):
    z_s, y_s, z_t, p_t = batch()
    with_gradient, _ = value_and_gradient(loss_of(y_s, p_t), z_s, z_t)
    assert torch.equal(loss_of(y_s, p_t)(z_s, z_t), with_gradient)
    assert len(small_calls) == 2


def test_samples_in_another_layout(small_calls, monkeypatch):
    z_s, y_s, z_t, p_t = batch(d=20)
    z_s, z_t = z_s[:, ::2], z_t.T.contiguous().T[:, ::2]
    assert_agrees(loss_of(y_s, p_t), z_s, z_t, monkeypatch)
    assert small_calls == [30]


def test_the_second_derivative_is_that_of_the_general_path(small_calls):
    z_s, y_s, z_t, p_t = batch(12, 10)

    def curvature(a, b):
        a = a.clone().requires_grad_()
        (first,) = torch.autograd.grad(bures.ckb(a, y_s, b, p_t.to(b), bandwidth=8.0), a, create_graph=True)
        return torch.autograd.grad(first.square().sum(), a)[0]

    found, expected = curvature(z_s, z_t), curvature(z_s.double(), z_t.double())
    assert float((found - expected).norm()) <= 1e-2 * float(expected.norm())
    assert small_calls == [12]


def test_other_samples_and_labels_go_elsewhere(small_calls):
    z_s, y_s, z_t, p_t = batch(30, 30)
    large = batch(LARGEST + 1, 30)
    calls = [
        lambda: bures.ckb(large[0], large[1], z_t, p_t),
        lambda: bures.ckb(z_s.double(), y_s, z_t.double(), p_t),
        lambda: bures.ckb(z_s, z_s[:, 0], z_t, z_t[:, 0], conditioning="continuous"),
        lambda: bures.ckb(z_s, y_s, z_t, p_t, label_kernel="laplacian"),
        lambda: bures.ckb(z_s, y_s, z_t, p_t, label_bandwidth=0.5),
        lambda: bures.ckb(z_s, y_s, z_t, p_t, kernel="laplacian"),
        lambda: bures.kernel_bures(z_s, z_t),
    ]
    for call in calls:
        call()
    assert small_calls == []


def test_kernels_that_cannot_be_built_are_done_without(monkeypatch):
    """They are built on the machine they run on, by a compiler that it may lack."""
    z_s, y_s, z_t, p_t = batch()
    expected, expected_gradient = value_and_gradient(loss_of(y_s, p_t), z_s, z_t)

    def fail(*_, **__):
        raise FileNotFoundError("Failed to find C compiler.\nPlease set it.")

    monkeypatch.setattr(_small_device, "_value_and_gradient", fail)
    monkeypatch.setattr(_small_device, "_failed", set())
    monkeypatch.setattr(_problem, "small_value_and_gradient", small_value_and_gradient)
    with pytest.warns(UserWarning, match=r"without its own GPU kernels: Failed to find C compiler.$"):
        value, gradient = value_and_gradient(loss_of(y_s, p_t), z_s, z_t)
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-6)
    assert float((gradient - expected_gradient).norm()) <= 1e-3 * float(expected_gradient.norm())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value_and_gradient(loss_of(y_s, p_t), z_s, z_t)  # is not tried again
