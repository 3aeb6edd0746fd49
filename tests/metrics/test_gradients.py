"""Derivatives: gradcheck, one-sided differences at degenerate points, autograd through the textbook formula."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import bures
from bures.spectral import nuclear_norm

# Adaptive bandwidths are constants of the graph, so derivatives of the value are checked with fixed ones.
FIXED = {"bandwidth": 2.0, "label_bandwidth": 0.9}
CONDITIONAL = [bures.ckb, bures.ckw]
KINDS = ["hard", "soft", "continuous"]


def tensors(problem):
    """Features that ask for a gradient, and labels."""
    xs, xt = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (problem.xs, problem.xt))
    return xs, torch.as_tensor(problem.ys), xt, torch.as_tensor(problem.yt)


def conditional(metric, problem, **options):
    xs, ys, xt, yt = tensors(problem)
    fixed = {**FIXED, "conditioning": problem.conditioning, **options}
    return lambda a, b: metric(a, ys, b, yt, **fixed), (xs, xt)


def marginal(metric, problem, **options):
    xs, _, xt, _ = tensors(problem)
    fixed = options if metric is bures.bures else {"bandwidth": 2.0, **options}
    return lambda a, b: metric(a, b, **fixed), (xs, xt)


def covariance_function(problem):
    """bures_covariance as a function of roots, so that every perturbation is a covariance."""
    rng = np.random.default_rng(0)
    d = problem.xs.shape[1]
    roots = [torch.tensor(rng.normal(size=(d, d)), requires_grad=True) for _ in range(2)]
    return lambda a, b: bures.bures_covariance(a @ a.T + torch.eye(d), b @ b.T + torch.eye(d)), roots


def one_sided_derivatives(function, inputs, step=1e-7):
    """Derivatives from the right and from the left, one coordinate at a time: a pair of tensors for each input."""
    value = function(*(x.detach() for x in inputs))
    sides = []
    for x in inputs:
        right, left = torch.zeros(x.numel()).double(), torch.zeros(x.numel()).double()
        for i in range(x.numel()):
            for side, sign in ((right, 1), (left, -1)):
                moved = x.detach().reshape(-1).clone()
                moved[i] += sign * step
                side[i] = (function(*(moved.reshape(x.shape) if y is x else y.detach() for y in inputs)) - value) / (
                    sign * step
                )
        sides.append((right.reshape(x.shape), left.reshape(x.shape)))
    return sides


# ------------------------------------------------------------------------------------------- regular points


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", CONDITIONAL, ids=lambda m: m.__name__)
def test_gradcheck_of_conditional_distances(draw_problem, metric, kind, kernel):
    function, inputs = conditional(metric, draw_problem(kind, n=6, m=5, d=2, k=2, seed=1), kernel=kernel)
    assert gradcheck(function, inputs)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("metric", [bures.kernel_bures, bures.mmd], ids=lambda m: m.__name__)
def test_gradcheck_of_marginal_distances(draw_problem, metric, kernel):
    function, inputs = marginal(metric, draw_problem(n=6, m=5, d=2, seed=2), kernel=kernel)
    assert gradcheck(function, inputs)


def test_gradcheck_of_the_unbiased_mmd(draw_problem):
    function, inputs = marginal(bures.mmd, draw_problem(n=6, m=5, d=2, seed=3), unbiased=True)
    assert gradcheck(function, inputs)


@pytest.mark.parametrize(("n", "m", "d"), [(8, 7, 3), (3, 4, 6), (3, 9, 4)])
def test_gradcheck_of_bures(draw_problem, n, m, d):
    function, inputs = marginal(bures.bures, draw_problem(n=n, m=m, d=d, seed=4))
    assert gradcheck(function, inputs)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_gradcheck_of_bures_covariance(draw_problem, d):
    function, inputs = covariance_function(draw_problem(d=d))
    assert gradcheck(function, inputs)


def test_gradcheck_through_a_kernel_function(draw_problem):
    def polynomial(x, y):
        return (x @ y.T + 1) ** 2

    function, inputs = conditional(bures.ckb, draw_problem(n=6, m=5, d=2, k=2, seed=5), kernel=polynomial)
    assert gradcheck(function, inputs)


def test_gradcheck_with_weights_and_prior(draw_problem):
    p = draw_problem(n=7, m=6, d=2, k=2, seed=6)
    weights = torch.linspace(0.5, 2, 7, dtype=torch.float64)
    function, inputs = conditional(bures.ckw, p, sample_weight_s=weights, prior="uniform")
    assert gradcheck(function, inputs)


def assert_second_derivative(function, inputs):
    """gradgradcheck with a given incoming gradient: by default it draws one, and a test would not repeat itself."""
    try:
        assert gradgradcheck(function, inputs, grad_outputs=torch.ones((), dtype=torch.float64, requires_grad=True))
    except NotImplementedError as refusal:  # torch before 2.5 has no second derivative of L1 distances, and says so
        pytest.skip(str(refusal))


# With n != m one side has more directions than the rank of the centred matrix, which is where noise can enter.
SIZES = [(5, 4, 2), (4, 3, 2), (3, 4, 5), (4, 4, 3)]


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", CONDITIONAL, ids=lambda m: m.__name__)
@pytest.mark.parametrize(("n", "m", "d"), SIZES)
def test_second_derivative_of_conditional_distances(draw_problem, metric, kind, kernel, n, m, d):
    p = draw_problem(kind, n=n, m=m, d=d, k=2, seed=7)
    assert_second_derivative(*conditional(metric, p, kernel=kernel, bandwidth=2.0 * d))


@pytest.mark.parametrize("seed", [7, 13])
@pytest.mark.parametrize("bandwidth", [4.0, 100.0, 1e4])
def test_second_derivative_with_a_wide_kernel(draw_problem, bandwidth, seed):
    """The centred matrix is small beside the kernel's values, and so is its rounding beside theirs."""
    p = draw_problem("hard", n=4, m=3, d=2, k=2, seed=seed)
    function, inputs = conditional(bures.ckb, p, bandwidth=bandwidth)
    assert_second_derivative(lambda a, b: bandwidth * function(a, b), inputs)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("metric", [bures.kernel_bures, bures.mmd], ids=lambda m: m.__name__)
@pytest.mark.parametrize(("n", "m", "d"), SIZES)
def test_second_derivative_of_marginal_distances(draw_problem, metric, kernel, n, m, d):
    p = draw_problem(n=n, m=m, d=d, seed=8)
    assert_second_derivative(*marginal(metric, p, kernel=kernel, bandwidth=2.0 * d))


@pytest.mark.parametrize(("n", "m", "d"), [(8, 7, 3), (3, 4, 6), (3, 9, 4)])
def test_second_derivative_of_bures(draw_problem, n, m, d):
    assert_second_derivative(*marginal(bures.bures, draw_problem(n=n, m=m, d=d, seed=4)))


def test_the_second_derivative_with_respect_to_covariances_is_refused(draw_problem):
    """A wrong number would be worse: what is not differentiated must not pass for a constant."""
    function, inputs = covariance_function(draw_problem(d=2))
    gradients = torch.autograd.grad(function(*inputs), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match=r"twice|second derivative"):
        torch.autograd.grad(sum(g.square().sum() for g in gradients), inputs)


def textbook_ckb(xs, rows_s, xt, rows_t, eps=1e-2):
    """Theorem 5 as printed, in torch: explicit inverse, eigendecomposition of B, nuclear norm by SVD."""

    def gaussian(a, b, width):
        return torch.exp(-(a[:, None] - b[None]).square().sum(-1) / width)

    def side(x, rows):
        n = len(x)
        h = torch.eye(n, dtype=x.dtype) - 1 / n
        g_y = h @ gaussian(rows, rows, FIXED["label_bandwidth"]) @ h
        b = eps * n * torch.linalg.inv(g_y + eps * n * torch.eye(n, dtype=x.dtype))
        values, vectors = torch.linalg.eigh(b)
        trace = torch.trace(b @ h @ gaussian(x, x, FIXED["bandwidth"]) @ h) / n
        return trace, h @ (vectors * values.sqrt())

    trace_s, left_s = side(xs, rows_s)
    trace_t, left_t = side(xt, rows_t)
    cross = left_t.T @ gaussian(xt, xs, FIXED["bandwidth"]) @ left_s
    return trace_s + trace_t - 2 / math.sqrt(len(xs) * len(xt)) * torch.linalg.matrix_norm(cross, ord="nuc")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m"), [(12, 9), (9, 12), (10, 10)])
def test_gradient_is_that_of_autograd_through_the_textbook_formula(draw_problem, kind, n, m):
    p = draw_problem(kind, n=n, m=m, d=4, seed=10)
    function, (xs, xt) = conditional(bures.ckb, p)
    rows = [torch.as_tensor(r) for r in (p.rows_s, p.rows_t)]
    ours = torch.autograd.grad(function(xs, xt), (xs, xt))
    textbook = torch.autograd.grad(textbook_ckb(xs, rows[0], xt, rows[1]), (xs, xt))
    for a, b in zip(ours, textbook, strict=True):
        assert float((a - b).norm()) <= 1e-9 * float(b.norm())


# ------------------------------------------------------------------------------------------- degenerate points


def duplicated_rows(p):
    xs = p.xs.copy()
    xs[1] = xs[0]
    xs[3] = xs[2]
    return p._replace(xs=xs)


def duplicated_samples(p):
    xs, ys = p.xs.copy(), p.ys.copy()
    xs[1], ys[1] = xs[0], ys[0]
    return p._replace(xs=xs, ys=ys)


def sample_shared_by_the_domains(p):
    xt = p.xt.copy()
    xt[0] = p.xs[0]
    return p._replace(xt=xt)


def constant_column(p):
    xs, xt = p.xs.copy(), p.xt.copy()
    xs[:, 0] = xt[:, 0] = 1.5
    return p._replace(xs=xs, xt=xt)


def column_constant_in_one_domain(p):
    xs = p.xs.copy()
    xs[:, 0] = 1.5
    return p._replace(xs=xs)


def same_point_in_every_row(p):
    return p._replace(xs=np.tile(p.xs[:1], (len(p.xs), 1)))


DEGENERATE = [
    duplicated_rows,
    duplicated_samples,
    sample_shared_by_the_domains,
    constant_column,
    column_constant_in_one_domain,
    same_point_in_every_row,
]


@pytest.mark.parametrize(("n", "m", "d"), [(6, 5, 2), (5, 5, 3), (4, 4, 9)])
@pytest.mark.parametrize("make", DEGENERATE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("metric", ["ckb", "ckb-linear", "ckw", "kernel_bures", "bures", "mmd"])
def test_gradient_at_degenerate_points_lies_between_the_one_sided_derivatives(draw_problem, metric, make, n, m, d):
    """Singular values that vanish make a kink; away from kinks the two sides agree and so does the gradient."""
    p = make(draw_problem("hard", n=n, m=m, d=d, k=2, seed=11))
    name, _, kernel = metric.partition("-")
    options = {"kernel": kernel} if kernel else {"bandwidth": 2.0 * d} if name != "bures" else {}
    build = conditional if name in ("ckb", "ckw") else marginal
    function, inputs = build(getattr(bures, name), p, **options)
    gradients = torch.autograd.grad(function(*inputs), inputs)
    sides = one_sided_derivatives(function, inputs)
    tolerance = 1e-6 * max(float(side.abs().max()) for pair in sides for side in pair)
    kinks = 0
    for gradient, (right, left) in zip(gradients, sides, strict=True):
        assert torch.isfinite(gradient).all()
        assert (gradient >= right - tolerance).all()  # the nuclear norm is convex and enters with a minus
        assert (gradient <= left + tolerance).all()
        kinks += int((left - right > 2 * tolerance).sum())
    if metric == "mmd" or make in (sample_shared_by_the_domains, constant_column):
        assert kinks == 0


def test_many_duplicated_samples_leave_the_gradient_between_the_one_sided_derivatives(draw_problem):
    p = draw_problem("hard", n=40, m=40, d=2, k=3, seed=17)
    xs, ys = np.tile(p.xs[:20], (2, 1)), np.tile(p.ys[:20], 2)
    function, inputs = conditional(bures.ckb, p._replace(xs=xs, ys=ys))
    gradients = torch.autograd.grad(function(*inputs), inputs)
    for gradient, (right, left) in zip(gradients, one_sided_derivatives(function, inputs), strict=True):
        tolerance = 1e-5 * float(gradient.abs().max())
        assert (gradient >= right - tolerance).all()
        assert (gradient <= left + tolerance).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
@pytest.mark.parametrize("metric", CONDITIONAL, ids=lambda m: m.__name__)
def test_gradient_vanishes_between_a_sample_and_itself(draw_problem, metric, kernel, kind):
    p = draw_problem(kind, n=8, m=8, d=3, seed=12)
    same = p._replace(xt=p.xs, yt=p.ys)
    function, inputs = conditional(metric, same, kernel=kernel)
    for gradient in torch.autograd.grad(function(*inputs), inputs):
        assert float(gradient.abs().max()) <= 1e-10


@pytest.mark.parametrize("metric", [bures.kernel_bures, bures.bures, bures.mmd], ids=lambda m: m.__name__)
def test_marginal_gradient_vanishes_between_a_sample_and_itself(draw_problem, metric):
    p = draw_problem(n=8, m=8, d=3, seed=13)
    function, inputs = marginal(metric, p._replace(xt=p.xs))
    for gradient in torch.autograd.grad(function(*inputs), inputs):
        assert float(gradient.abs().max()) <= 1e-10


@pytest.mark.parametrize("metric", ["ckb", "ckw", "kernel_bures", "bures", "mmd"])
def test_gradient_is_finite_in_float32_when_all_points_coincide(metric):
    x = torch.ones(6, 3, requires_grad=True)
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    data = (x, y, x * 1.0, y) if metric in ("ckb", "ckw") else (x, x * 1.0)
    (gradient,) = torch.autograd.grad(getattr(bures, metric)(*data), x)
    assert float(gradient.abs().max()) <= 1e-5


@pytest.mark.parametrize("sizes", [(3, 20), (20, 3), (5, 4)])
def test_gradient_of_bures_covariance_reaches_samples_that_are_fewer_than_their_features(sizes):
    generator = torch.Generator().manual_seed(0)
    samples = [torch.randn(n, 8, generator=generator, dtype=torch.float64, requires_grad=True) for n in sizes]
    covariances = (z.T.cov(correction=0) for z in samples)
    found = torch.autograd.grad(bures.bures_covariance(*covariances), samples)
    expected = torch.autograd.grad(bures.bures(*samples), samples)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_gradient_of_bures_covariance_at_a_singular_matrix_leaves_out_the_direction_it_may_gain():
    """Σ_s = diag(4, 0): along the first axis the derivative is 1 - sqrt(t / s); nothing flows along the second."""
    cov_s = torch.diag(torch.tensor([4.0, 0.0], dtype=torch.float64)).requires_grad_()
    cov_t = torch.diag(torch.tensor([1.0, 9.0], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(bures.bures_covariance(cov_s, cov_t), cov_s)
    expected = torch.diag(torch.tensor([1 - math.sqrt(1 / 4), 1.0], dtype=torch.float64))
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------- what carries a gradient


@pytest.mark.parametrize("kind", ["soft", "continuous"])
@pytest.mark.parametrize("metric", CONDITIONAL, ids=lambda m: m.__name__)
def test_labels_are_constants(draw_problem, metric, kind):
    p = draw_problem(kind, seed=14)
    xs, ys, xt, yt = tensors(p)
    yt = yt.clone().requires_grad_()
    value = metric(xs, ys, xt, yt, conditioning=p.conditioning)
    grad_x, grad_y = torch.autograd.grad(value, (xs, yt), allow_unused=True)
    assert grad_y is None
    assert float(grad_x.norm()) > 0


def test_label_mmd_carries_the_gradient_of_the_predictions():
    y = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0]]
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert gradcheck(lambda z: bures.mmd(y, z.softmax(1), bandwidth=1.0), logits)


@pytest.mark.parametrize("bandwidth", ["shared", "per-block", "median"])
def test_adaptive_bandwidths_are_constants_of_the_graph(draw_problem, bandwidth):
    p = draw_problem(n=7, m=6, seed=15)
    xs, ys, xt, yt = tensors(p)
    (adaptive,) = torch.autograd.grad(bures.ckb(xs, ys, xt, yt, bandwidth=bandwidth), xs)
    parts = bures.explain(*p.data, bandwidth=bandwidth, n_permutations=0, n_bootstrap=0)
    if bandwidth == "per-block":

        def value(a, b):
            widths = iter(parts.bandwidths)

            def kernel(u, v):
                return torch.exp(-(u[:, None] - v[None]).square().sum(-1) / next(widths))

            return bures.ckb(a, ys, b, yt, kernel=kernel)

    else:

        def value(a, b):
            return bures.ckb(a, ys, b, yt, bandwidth=parts.bandwidths[0])

    (fixed,) = torch.autograd.grad(value(xs, xt), xs)
    torch.testing.assert_close(adaptive, fixed, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------------------------- torch.func


@pytest.mark.parametrize("metric", ["ckb", "ckw", "kernel_bures", "bures", "mmd"])
def test_func_grad_is_autograd(draw_problem, metric):
    if metric == "ckw" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5):
        pytest.skip("torch before 2.5 cannot read the names of classes inside a transform")
    build = conditional if metric in ("ckb", "ckw") else marginal
    function, (xs, xt) = build(getattr(bures, metric), draw_problem(n=7, m=6, seed=16))
    expected = torch.autograd.grad(function(xs, xt), (xs, xt))
    ours = torch.func.grad(function, argnums=(0, 1))(xs.detach(), xt.detach())
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"prior": "source"}])
def test_ckw_lists_nothing_inside_a_transform_that_older_versions_of_torch_cannot(options, monkeypatch):
    """Before 2.5 the entries of a tensor there can be read one by one, and not by `tolist`."""
    generator = torch.Generator().manual_seed(0)
    xs, xt = (torch.randn(6, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    ys, yt = torch.tensor([3, 3, 5, 5, 5, 3]), torch.tensor([3, 5, 5, 3, 3, 7])

    def refuse(tensor):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    monkeypatch.setattr(torch.Tensor, "tolist", refuse)
    with (
        pytest.warns(bures.MissingClassWarning, match="missing: class 7 from the source")
        if not options
        else nullcontext()
    ):
        gradient = torch.func.grad(lambda x: bures.ckw(x, ys, xt, yt, **options))(xs)
    assert bool(gradient.isfinite().all())


def test_func_grad_twice_is_a_hessian_vector_product(draw_problem):
    function, (xs, xt) = conditional(bures.ckb, draw_problem(n=6, m=6, d=2, seed=18))
    fixed, direction = xt.detach(), torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(6, 2)
    first = torch.func.grad(lambda a: function(a, fixed))
    ours = torch.func.grad(lambda a: (first(a) * direction).sum())(xs.detach())
    (gradient,) = torch.autograd.grad(function(xs, fixed), xs, create_graph=True)
    (expected,) = torch.autograd.grad((gradient * direction).sum(), xs)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_nuclear_norm_and_its_gradient_run_under_vmap():
    batch = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(nuclear_norm))(batch),
        torch.stack([u @ vh for u, _, vh in (torch.linalg.svd(x, full_matrices=False) for x in batch)]),
        rtol=0,
        atol=1e-12,
    )
