"""The loss on running moments, against a stream of moments, one batch, and its own definition with fixed memories."""

import numpy as np
import pytest
import torch

import bures
from bures.methods import Batch, make_method


def batches(count, n=12, m=9, d=4, k=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        y = torch.randint(k, (n,), generator=generator)
        z_s = torch.randn(n, d, generator=generator, dtype=dtype) + y[:, None]
        z_t = 2 * torch.randn(m, d, generator=generator, dtype=dtype)
        yield z_s, y, z_t, torch.randn(m, k, generator=generator, dtype=dtype).softmax(dim=1)


def explicit(loss, z):
    phase = z @ loss.waves.double() / loss.bandwidth.sqrt()
    return torch.cat([phase.cos(), phase.sin()], dim=1) / phase.shape[1] ** 0.5


def by_definition(loss, parts, means, covariances):
    """The distance of two weighted samples (features, label rows, weights): covariances by scipy's matrix root."""
    from scipy.linalg import sqrtm

    operators, centres, frequencies = [], [], []
    for z, y, w in parts:
        x, y, w = explicit(loss, z).numpy(), y.double().numpy(), np.asarray(w, dtype=float) / np.sum(w)
        xc, yc = x - w @ x, y - w @ y
        xx, yx, yy = xc.T @ (w[:, None] * xc), yc.T @ (w[:, None] * xc), yc.T @ (w[:, None] * yc)
        operators.append(xx - yx.T @ np.linalg.inv(yy + loss.eps * np.eye(len(yy))) @ yx)
        frequencies.append(w @ y)
        centres.append((y.T @ (w[:, None] * x)) / frequencies[-1][:, None])
    r_s, r_t = operators
    root = sqrtm(r_s)
    bures2 = np.trace(r_s + r_t - 2 * sqrtm(root @ r_t @ root).real).real
    pi = (frequencies[0] + frequencies[1]) / 2
    return covariances * bures2 + means * (pi * ((centres[0] - centres[1]) ** 2).sum(axis=1)).sum()


@pytest.mark.parametrize(("means", "covariances"), [(1.0, 1.0), (5.0, 0.0), (0.0, 2.0)])
def test_the_value_is_that_of_all_batches_each_with_its_faded_weight(means, covariances):
    loss = bures.RunningCKWLoss(4, 3, n_waves=6, decay=0.7, means=means, covariances=covariances, eps=0.1)
    seen = list(batches(4))
    for batch in seen:
        value = loss(*batch)
    fade = [0.7**age for age in (3, 2, 1, 0)]
    eye = torch.eye(3)
    source = torch.cat([b[0] for b in seen]), eye[torch.cat([b[1] for b in seen])], np.repeat(fade, 12)
    target = torch.cat([b[2] for b in seen]), torch.cat([b[3] for b in seen]), np.repeat(fade, 9)
    assert float(value) == pytest.approx(by_definition(loss, (source, target), means, covariances), rel=1e-6)
    assert float(loss.weight_s) == pytest.approx(12 * sum(fade))


def test_the_distance_of_one_batch_nears_that_of_the_exact_kernel():
    z_s, y, z_t, p_t = next(batches(1, n=60, m=50))
    exact = bures.ckw(z_s, y, z_t, p_t, label_kernel="linear", bandwidth=30.0)
    errors = []
    for n_waves in (8, 600):
        loss = bures.RunningCKWLoss(4, 3, n_waves=n_waves, bandwidth=30.0)
        errors.append(abs(float(loss(z_s, y, z_t, p_t) / exact) - 1))
    assert errors[1] < 0.05 < errors[0]


@pytest.mark.parametrize("n_seen", [0, 3])
def test_the_gradient_is_that_of_the_current_batch(n_seen):
    *seen, (z_s, y, z_t, p_t) = batches(n_seen + 1)
    loss = bures.RunningCKWLoss(4, 3, n_waves=6, eps=0.1, bandwidth=3.0)
    for batch in seen:
        loss(*batch)
    loss.eval()  # so that differences see the same memories
    arguments = z_s.requires_grad_(), z_t.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: loss(a, y, b, p_t), arguments, rtol=1e-4)


@pytest.mark.parametrize("n_seen", [0, 2])
def test_the_gradient_is_right_before_the_moments_know_as_many_samples_as_waves(n_seen):
    *seen, (z_s, y, z_t, p_t) = batches(n_seen + 1)
    loss = bures.RunningCKWLoss(4, 3, n_waves=64, eps=0.1, bandwidth=3.0, means=0.0)
    for batch in seen:
        loss(*batch)
    loss.eval()
    arguments = z_s.requires_grad_(), z_t.requires_grad_()
    gradients = torch.autograd.grad(loss(z_s, y, z_t, p_t), arguments)
    # Steps of 1e-3: roots of eigenvalues that rounding leaves of zero are a noise of 1e-8 in the values.
    for number, gradient in enumerate(gradients):
        direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        values = []
        for step in (1e-3, -1e-3):
            moved = [part.detach() for part in arguments]
            moved[number] = moved[number] + step * direction
            values.append(float(loss(moved[0], y, moved[1], p_t)))
        assert float((gradient * direction).sum()) == pytest.approx((values[0] - values[1]) / 2e-3, rel=1e-3, abs=1e-5)


def test_the_full_gradient_is_that_of_the_current_batch_times_what_the_moments_know():
    *seen, (z_s, y, z_t, p_t) = batches(4)
    options = {"n_waves": 6, "eps": 0.1, "bandwidth": 3.0, "decay": 0.8}
    values, gradients = [], []
    for full in (False, True):
        loss = bures.RunningCKWLoss(4, 3, full_gradient=full, **options)
        for batch in seen:
            loss(*batch)
        arguments = z_s.clone().requires_grad_(), z_t.clone().requires_grad_()
        value = loss(arguments[0], y, arguments[1], p_t)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value, arguments))
    assert torch.equal(*values)
    times = sum(0.8**age for age in range(4))
    for small, full in zip(*gradients, strict=True):
        assert small.norm() > 1e-3
        torch.testing.assert_close(full, times * small)


def test_the_full_gradient_of_batches_that_repeat_is_that_of_one():
    z_s, y, z_t, p_t = next(batches(1))
    found = []
    for repeats in (0, 30):
        loss = bures.RunningCKWLoss(4, 3, n_waves=6, eps=0.1, bandwidth=3.0, full_gradient=True)
        for _ in range(repeats):
            loss(z_s, y, z_t, p_t)
        arguments = z_s.clone().requires_grad_(), z_t.clone().requires_grad_()
        value = loss(arguments[0], y, arguments[1], p_t)
        found.append((value.detach(), *torch.autograd.grad(value, arguments)))
    for one, many in zip(*found, strict=True):
        torch.testing.assert_close(many, one, rtol=1e-5, atol=1e-8)


def test_memories_have_no_graph_and_are_saved():
    loss, again = (bures.RunningCKWLoss(4, 3, n_waves=8) for _ in range(2))
    *seen, last = batches(3)
    for z_s, y, z_t, p_t in seen:
        loss(z_s.requires_grad_(), y, z_t, p_t).backward()
    assert not any(buffer.requires_grad for buffer in loss.buffers())
    again.load_state_dict(loss.state_dict())
    assert torch.equal(again(*last), loss(*last))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_memories_keep_their_digits_in_a_module_of_another_dtype(dtype):
    # A trainer in half precision reads a checkpoint, and then converts the module.
    loss, again = (bures.RunningCKWLoss(4, 3, n_waves=8) for _ in range(2))
    *seen, last = batches(5, dtype=torch.float32)
    for batch in seen:
        loss(*batch)
    before = {name: buffer.dtype for name, buffer in again.named_buffers()}
    again.load_state_dict(loss.state_dict())
    holder = torch.nn.ModuleList([torch.nn.Linear(2, 2), again]).to(dtype)
    assert holder[0].weight.dtype == dtype
    assert {name: buffer.dtype for name, buffer in again.named_buffers()} == before
    assert torch.equal(again(*last), loss(*last))


def test_the_random_features_are_those_of_the_seed_whatever_the_default_dtype():
    expected = bures.RunningCKWLoss(4, 3, n_waves=8).waves
    torch.set_default_dtype(torch.float64)  # as in the steps of a trainer in float64
    try:
        assert torch.equal(bures.RunningCKWLoss(4, 3, n_waves=8).waves, expected)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("size", [1e-36, 1e-22, 1e20, 1e30])
def test_the_size_of_the_features_does_not_matter_to_a_bandwidth_of_theirs(size):
    """Squares of such features leave the range of float32."""
    found, gradients = [], []
    for unit in (1.0, size):
        loss = bures.RunningCKWLoss(4, 3, n_waves=8)
        for z_s, y, z_t, p_t in batches(2):
            leaf = (unit * z_s).float().requires_grad_()
            value = loss(leaf, y, (unit * z_t).float(), p_t.float())
            value.backward()
        found.append(float(value.detach()))
        gradients.append(unit * leaf.grad.double())
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-7)


def test_the_moments_are_on_the_default_device():
    torch.set_default_device("meta")
    try:
        loss = bures.RunningCKWLoss(4, 3, n_waves=8)
    finally:
        torch.set_default_device(None)
    assert {buffer.device.type for buffer in loss.buffers()} == {"meta"}


def test_evaluation_leaves_no_trace():
    loss = bures.RunningCKWLoss(4, 3, n_waves=8).eval()
    before = {name: buffer.clone() for name, buffer in loss.named_buffers()}
    (z_s, y, z_t, p_t), other = batches(2)
    assert torch.equal(loss(1000 * z_s, y, 1000 * z_t, p_t), loss(1000 * z_s, y, 1000 * z_t, p_t))
    assert all(torch.equal(buffer, before[name]) for name, buffer in loss.named_buffers())
    assert torch.equal(loss.train()(*other), bures.RunningCKWLoss(4, 3, n_waves=8)(*other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", ["same", "zero", "one", "single class", "missing class"])
def test_degenerate_batches_give_finite_values_and_gradients(case, dtype):
    z_s, y, z_t, p_t = next(batches(1, dtype=torch.float64))
    if case == "same":
        z_s, z_t = z_s[:1].expand(12, 4).clone(), z_s[:1].expand(9, 4).clone()
    elif case == "zero":
        z_s, z_t = torch.zeros_like(z_s), torch.zeros_like(z_t)
    elif case == "one":
        z_s, y, z_t, p_t = z_s[:1], y[:1], z_t[:1], p_t[:1]
    elif case == "single class":
        y, p_t = torch.zeros_like(y), torch.eye(3, dtype=p_t.dtype)[torch.zeros(9, dtype=torch.long)]
    else:
        p_t = p_t * torch.tensor([1.0, 1.0, 0.0])
        p_t = p_t / p_t.sum(dim=1, keepdim=True)
    loss = bures.RunningCKWLoss(4, 3, n_waves=8)
    for _ in range(2):
        a, b = z_s.to(dtype).requires_grad_(), z_t.to(dtype).requires_grad_()
        value = loss(a, y, b, p_t.to(dtype))
        value.backward()
        assert value.dtype == torch.promote_types(dtype, torch.float32)
        assert bool(value.isfinite())
        assert bool(a.grad.isfinite().all())
        assert bool(b.grad.isfinite().all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_waves": 7}, "n_waves=7 is out of range; accepted are even"),
        ({"decay": 1.0}, "decay=1.0 is out of range"),
        ({"means": -1}, "means=-1 is out of range"),
        ({"eps": 0}, "eps"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bures.RunningCKWLoss(4, 3, **options)


def test_rows_of_another_width_are_refused():
    z_s, y, z_t, p_t = next(batches(1))
    with pytest.raises(ValueError, match=r"z_t has shape \(9, 3\); accepted is \(n, 4\)"):
        bures.RunningCKWLoss(4, 3)(z_s, y, z_t[:, :3], p_t)


def test_the_method_keeps_moments_over_steps_and_in_its_state():
    method = make_method("ckw-running", waves=8, means=2.0)
    method.setup(4, 3)
    loss = bures.RunningCKWLoss(4, 3, n_waves=8, means=2.0)
    for z_s, y, z_t, p_t in batches(3, dtype=torch.float32):
        batch = Batch(z_s, torch.zeros(12, 3), y, z_t, p_t.log())
        torch.testing.assert_close(method(batch, 0.0).values["ckw"], loss(z_s, y, z_t, p_t))
    assert "terms.1.loss.xx_s" in method.state_dict()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_converted_module_gives_the_values_and_gradients_of_one_that_was_not(dtype):
    """By ``half()``, ``float()`` and the like: what counts is the precision of the batch."""
    plain, converted = (bures.RunningCKWLoss(4, 3, n_waves=16) for _ in range(2))
    for number, (z_s, y, z_t, p_t) in enumerate(batches(4)):
        if number == 2:  # with moments of earlier batches in it
            converted = converted.to(dtype)
        found = []
        for loss in (plain, converted):
            a, b = (z.to(dtype).requires_grad_() for z in (z_s, z_t))
            value = loss(a, y, b, p_t.to(dtype))
            value.backward()
            assert a.grad.dtype == b.grad.dtype == dtype
            found.append((value, a.grad, b.grad))
        for ours, expected in zip(found[1], found[0], strict=True):
            assert ours.dtype == expected.dtype
            assert torch.equal(ours, expected)
            assert bool(expected.isfinite().all())
            assert bool(expected.any())
