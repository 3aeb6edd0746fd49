"""Forward derivatives: of the metrics and losses, by `torch.func` and `torch.autograd.forward_ad`."""

import pytest
import torch
from torch.autograd import forward_ad

import bures
from bures.exact_distances import exact_squared_distances
from bures.kernels import squared_distances
from bures.spectral import covariance_fidelity, nuclear_norm, product_nuclear_norm

# Torch's own, at the first use of forward mode in a process.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")

GENERATOR = torch.Generator().manual_seed(0)
FIXED = {"bandwidth": 2.0, "label_bandwidth": 0.9}  # adaptive ones are constants, which differences do not know
XS, XT = (torch.randn(n, 3, generator=GENERATOR, dtype=torch.float64) for n in (7, 8))
DIRECTION = torch.randn(7, 3, generator=GENERATOR, dtype=torch.float64)
YS, PT = torch.arange(7) % 3, torch.randn(8, 3, generator=GENERATOR, dtype=torch.float64).softmax(dim=1)
FAR = torch.cat([XS[:6], XS[6:] + 1e6])  # beside it squared distances by products are noise
RUNNING = bures.RunningCKWLoss(3, 3, n_waves=4, bandwidth=2.0).eval()  # fewer waves than samples: smooth

FUNCTIONS = {
    "ckb": (lambda x: bures.ckb(x, YS, XT, PT, **FIXED), XS),
    "ckb of hard labels": (lambda x: bures.ckb(x, YS, XT, PT.argmax(dim=1), **FIXED), XS),
    "ckb, linear kernel": (lambda x: bures.ckb(x, YS, XT, PT, kernel="linear"), XS),
    "ckb, Laplacian kernel": (lambda x: bures.ckb(x, YS, XT, PT, kernel="laplacian", **FIXED), XS),
    "ckw": (lambda x: bures.ckw(x, YS, XT, PT, **FIXED), XS),
    "kernel_bures": (lambda x: bures.kernel_bures(x, XT, bandwidth=2.0), XS),
    "bures": (lambda x: bures.bures(x, XT), XS),
    "bures of few samples": (lambda x: bures.bures(x.reshape(3, 7), XT.reshape(3, 8)[:, :7]), XS),
    "mmd": (lambda x: bures.mmd(x, XT, bandwidth=2.0), XS),
    "CKBLoss": (lambda x: bures.CKBLoss(**FIXED)(x, YS, XT[:7], PT[:7]), XS),
    "CKWLoss": (lambda x: bures.CKWLoss(**FIXED)(x, YS, XT[:7], PT[:7]), XS),
    "ClassMeansLoss": (lambda x: bures.ClassMeansLoss(bandwidth=2.0)(x, YS, XT[:7], PT[:7]), XS),
    "KernelBuresLoss": (lambda x: bures.KernelBuresLoss(bandwidth=2.0)(x, XT), XS),
    "BuresLoss": (lambda x: bures.BuresLoss()(x, XT), XS),
    "MMDLoss": (lambda x: bures.MMDLoss(bandwidth=2.0)(x, XT), XS),
    "RunningCKWLoss": (lambda x: RUNNING(x, YS, XT, PT), XS),
    "nuclear_norm": (nuclear_norm, XS),
    "product_nuclear_norm": (lambda x: product_nuclear_norm(x, XT), XS),
    "covariance_fidelity": (lambda x: covariance_fidelity(x.T @ x, XT.T @ XT), XS),
    "squared_distances": (lambda x: sum(d.cos().sum() for d in squared_distances(x, XT)), XS),
    "exact_squared_distances": (lambda x: sum(d.cos().sum() for d in exact_squared_distances(x, XT)), XS),
}
ONCE = ("RunningCKWLoss", "covariance_fidelity")  # the second derivative is refused


# Before 2.5 torch lacks the second derivative of L1 distances, and cannot convert a tensor like one in a transform.
LACKING = (
    () if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5) else ("ckb, Laplacian kernel", "RunningCKWLoss")
)


@pytest.fixture(params=[name for name in FUNCTIONS if name not in LACKING])
def name(request):
    return request.param


def in_a_dual_level(function, x, direction):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, direction))).tangent


def hessian_times_direction(function, x, direction):
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf), leaf, create_graph=True)
    return torch.autograd.grad((gradient * direction).sum(), leaf)[0]


def test_a_forward_derivative_is_a_difference_quotient(name):
    function, x = FUNCTIONS[name]
    step = 1e-5 * DIRECTION
    expected = (function(x + step) - function(x - step)) / 2e-5
    for found in (torch.func.jvp(function, (x,), (DIRECTION,))[1], in_a_dual_level(function, x, DIRECTION)):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    with torch.no_grad():  # which is about backward derivatives
        found = in_a_dual_level(function, x, DIRECTION)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_all_forward_derivatives_are_the_gradient(name):
    function, x = FUNCTIONS[name]
    torch.testing.assert_close(torch.func.jacfwd(function)(x), torch.func.grad(function)(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in (*ONCE, *LACKING)])
def test_forward_and_backward_make_the_hessian_in_any_order(name):
    function, x = FUNCTIONS[name]
    expected = hessian_times_direction(function, x, DIRECTION)

    def along(z):
        return torch.func.jvp(function, (z,), (DIRECTION,))[1]

    def gradient_with_autograd(z, *, create_graph):
        return torch.autograd.grad(function(z), z, create_graph=create_graph)[0]

    leaf = x.clone().requires_grad_()
    for found in (
        torch.einsum("ijkl,kl->ij", torch.func.hessian(function)(x), DIRECTION),
        torch.func.jvp(torch.func.grad(function), (x,), (DIRECTION,))[1],
        torch.func.grad(along)(x),
        *(
            in_a_dual_level(lambda z, again=again: gradient_with_autograd(z, create_graph=again), leaf, DIRECTION)
            for again in (False, True)
        ),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ONCE)
def test_a_second_derivative_that_there_is_not_is_refused_in_forward_mode_too(name):
    function, x = FUNCTIONS[name]
    for create_graph in (False, True):
        leaf = x.clone().requires_grad_()
        with pytest.raises(RuntimeError, match=r"second derivative of the Bures distance .* is not available"):
            in_a_dual_level(
                lambda z, again=create_graph: torch.autograd.grad(function(z), z, create_graph=again)[0],
                leaf,
                DIRECTION,
            )


@pytest.mark.parametrize("loss", [bures.CKBLoss, bures.CKWLoss])
def test_small_batches_in_float32_have_forward_derivatives(loss):
    """A pass that gives value and gradient alone is not taken."""
    z, other, direction, p = (t.float() for t in (XS, XT[:7], DIRECTION, PT[:7]))
    function = lambda x: loss()(x, YS, other, p)  # noqa: E731
    expected = (torch.func.grad(function)(z) * direction).sum()
    torch.testing.assert_close(in_a_dual_level(function, z, direction), expected, rtol=1e-4, atol=1e-6)


def test_one_sample_far_from_all_others():
    function = lambda x: bures.kernel_bures(x, XT, bandwidth=1.0)  # noqa: E731
    leaf = FAR.clone().requires_grad_()
    expected = (torch.autograd.grad(function(leaf), leaf)[0] * DIRECTION).sum()
    torch.testing.assert_close(in_a_dual_level(function, FAR, DIRECTION), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close((torch.func.grad(function)(FAR) * DIRECTION).sum(), expected, rtol=1e-9, atol=1e-12)


def test_equal_samples_have_the_derivative_zero_of_their_distances():
    same = torch.ones(3, 2, dtype=torch.float64)
    for distances in (squared_distances, exact_squared_distances):
        _, tangents = torch.func.jvp(distances, (same, same), (DIRECTION[:3, :2], DIRECTION[3:6, :2]))
        assert all(bool((tangent == 0).all()) for tangent in tangents[:2])
        torch.testing.assert_close(tangents[2], torch.zeros(3, 3, dtype=torch.float64), rtol=0, atol=1e-14)


def test_forward_over_forward_is_refused():
    """Torch would take the inner derivative for a constant, and answer zero."""
    inner = lambda z: torch.func.jvp(nuclear_norm, (z,), (DIRECTION,))[1]  # noqa: E731
    with pytest.raises(RuntimeError, match="forward derivative of a forward derivative is not available; accepted"):
        torch.func.jvp(inner, (XS,), (DIRECTION,))


def test_nothing_of_forward_mode_is_left_behind():
    """Outside of it the same call takes the passes and functions it always takes."""
    function, x = FUNCTIONS["ckb"]
    in_a_dual_level(function, x, DIRECTION)
    leaf = x.clone().requires_grad_()
    assert function(leaf).grad_fn.name() == "_KnownGradientBackward"
