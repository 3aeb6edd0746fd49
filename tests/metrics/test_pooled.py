"""What the fused passes take from the pooled sample, against the definitions in float64."""

import itertools
import math

import numpy as np
import pytest
import torch

import bures
from bures.metrics._pooled import gradient_rates, mean_squared_distances, pool, widths_of_blocks


def samples(n=7, m=5, d=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    xs, xt = (torch.randn(k, d, generator=generator, dtype=torch.float64) for k in (n, m))
    return xs.to(dtype), (2 * xt + 1).to(dtype)


@pytest.mark.parametrize(
    ("size", "scale", "rest"),
    [
        (1.0, 1.0, 1.0),
        (3.0, 1.0, 2.0),  # the power of two below, in a unit of one
        (0.75, 1.0, 0.5),
        (2.0**20, 2.0**20, 1.0),
        (1.5 * 2.0**19, 1.0, 2.0**19),
        (1.5 * 2.0**20, 2.0**20, 1.0),
        (2.0**-20, 2.0**-20, 1.0),
        (1.5 * 2.0**-20, 1.0, 2.0**-20),
        (1e-30, 2.0**-100, 1.0),
        (1e30, 2.0**99, 1.0),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_pooled_sample_is_centred_in_a_unit_in_which_squares_fit(size, scale, rest, sign):
    xs, xt = samples(dtype=torch.float32)
    xs, xt = xs / 10, xt / 10  # below one half
    xt[2, 1] = sign
    x, unit, largest = pool(xs * size, xt * size)
    assert (unit, largest) == (scale, rest)
    given = torch.cat([xs, xt]).double() * size / scale
    torch.testing.assert_close(x.double(), given - given.mean(dim=0), rtol=1e-5, atol=1e-6 * size / scale)


def test_constants_become_zero_and_zero_has_the_unit_one():
    constant = torch.full((30, 2), 0.1)
    assert float(pool(constant, constant[:11])[0].abs().max()) < 1e-13  # one subtraction of the mean leaves 1e-8
    x, scale, largest = pool(torch.zeros(2, 3), torch.zeros(4, 3))
    assert (tuple(x.shape), bool(x.any()), scale, largest) == ((6, 3), False, 1.0, 1.0)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("extreme", [-600.0, 600.0])
def test_the_largest_entry_is_found_on_either_side(side, extreme):
    given = samples()
    given[side][1, 2] = extreme
    x, scale, largest = pool(*(part.requires_grad_() for part in given))
    assert (scale, largest) == (1.0, 512.0)  # the power of two below it
    assert not x.requires_grad


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_left_as_it_is(odd):
    xs, xt = samples()
    xs[1, 1] = odd
    x, scale, largest = pool(*(part.clone().requires_grad_() for part in (xs, xt)))
    torch.testing.assert_close(x, torch.cat([xs, xt]), equal_nan=True)
    assert not x.requires_grad
    assert scale == 1
    assert not math.isfinite(largest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_squared_distances_are_those_of_all_pairs(dtype):
    xs, xt = samples(dtype=dtype)
    ws, wt = (torch.arange(float(k), dtype=torch.float64) for k in (7, 5))  # the first sample of each has no weight
    ws, wt = ws / ws.sum(), wt / wt.sum()
    found, part = mean_squared_distances((xs, xt), tuple(x.square().sum(dim=1) for x in (xs, xt)), (ws, wt))
    expected = [
        sum(
            float(p * q) * float((a.double() - b.double()).square().sum())
            for (p, a), (q, b) in itertools.product(zip(w, x, strict=True), zip(v, y, strict=True))
        )
        for w, x, v, y in ((ws, xs, ws, xs), (wt, xt, wt, xt), (wt, xt, ws, xs))
    ]
    assert found == pytest.approx(expected, rel={torch.float32: 1e-5, torch.float64: 1e-12}[dtype])
    assert part == 6 / 10


def test_the_mean_squared_distance_of_equal_samples_is_never_negative():
    xs = torch.full((9, 4), 1 / 3)
    weights = torch.full((9,), 1 / 9, dtype=torch.float64)
    norms = xs.square().sum(dim=1) * (1 - 1e-6)
    (own, other, between), _ = mean_squared_distances((xs, -xs), (norms, norms), (weights, weights))
    assert own == other == 0
    assert between == pytest.approx(4 * 4 / 9, rel=1e-5)


MEANS = 2.0, 3.0, 5.0


def widths(bandwidth, means=MEANS, largest=1.0, dtype=torch.float64, scale=1.0, size=1.0, part=0.25, d=3):
    return widths_of_blocks(bandwidth, means, largest, torch.zeros(1, d, dtype=dtype), scale, size, part)


def test_widths_are_those_of_the_rule():
    assert widths("per-block") == MEANS
    # All pairs of the pooled sample, with the diagonal: a quarter is of the source.
    assert widths("shared") == pytest.approx([(2 * 1 + 3 * 9 + 5 * 6) / 16] * 3)
    assert widths(12.0) == (12, 12, 12)
    assert widths(12.0, scale=2.0) == (3, 3, 3)


def test_fixed_widths_stay_in_the_range_of_the_dtype():
    limits = torch.finfo(torch.float32)
    assert widths(1e-30, dtype=torch.float32, scale=2.0**60) == (limits.tiny,) * 3
    assert widths(1e30, dtype=torch.float32, scale=2.0**-60) == (limits.max,) * 3


@pytest.mark.parametrize("rule", ["per-block", "shared"])
def test_widths_do_not_fall_below_the_rounding_of_distances(rule):
    """Entries of the given size are rounded by eps each, squared norms in products by some of their own."""
    eps = float(np.finfo(np.float32).eps)
    found = widths(rule, means=(0.0, 0.0, 0.0), largest=0.0, dtype=torch.float32, size=8.0)
    assert found == pytest.approx([3 * (4 * eps * 8) ** 2] * 3)
    found = widths(rule, means=(0.0, 0.0, 0.0), largest=7.0, dtype=torch.float32, size=0.0)
    assert found == pytest.approx([8 * eps * 7] * 3)
    found = widths("per-block", means=(0.0, 1.0, 0.0), largest=7.0, dtype=torch.float32)
    assert found[1] == 1 > found[0] == found[2]


def test_rates_turn_the_derivative_by_the_kernel_into_one_by_the_samples():
    """Of exp(-|x - y|^2 / width) by x: 2 / width for each order of a pair."""
    assert gradient_rates((2.0, 4.0, 8.0), torch.float32) == (2, 1, -0.5)
    narrow = torch.finfo(torch.float32).tiny
    assert gradient_rates((narrow, narrow, narrow), torch.float64) == (4 / narrow, 4 / narrow, -4 / narrow)
    assert sum(16 * [gradient_rates((narrow, 1.0, 1.0), torch.float32)[0]]) < torch.finfo(torch.float32).max


EQUAL = {"one": 1, "two": 2, "some": 6, "many": 200}


@pytest.mark.parametrize("make", [bures.CKBLoss, bures.CKWLoss, bures.ClassMeansLoss])
@pytest.mark.parametrize("count", EQUAL.values(), ids=EQUAL)
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 1e-30), (torch.float32, 1e-37), (torch.float64, 1e-300)], ids=str
)
def test_equal_samples_near_the_lower_end_of_the_range_have_no_gradient(make, count, dtype, size):
    """Their width is the rounding of distances, and its inverse in the units of the samples no number any more."""
    y, p = torch.arange(count) % 2, torch.full((count, 2), 0.5)
    for bandwidth in ("shared", 1e-60):
        for point in (size * torch.tensor([[1.0, -0.5, 0.3]], dtype=dtype), torch.zeros(1, 3, dtype=dtype)):
            leaves = [point.repeat(count, 1).requires_grad_() for _ in range(2)]
            value = make(bandwidth=bandwidth)(leaves[0], y, leaves[1], p)
            value.backward()
            assert float(value.detach()) == pytest.approx(0, abs=1e-6)
            assert not any(bool(leaf.grad.count_nonzero()) for leaf in leaves)


@pytest.mark.parametrize("n", [12, 200])
@pytest.mark.parametrize("size", [1e-36, 1e-30, 1e-12, 1e12, 1e25])
def test_the_gradient_is_in_the_units_of_the_samples(n, size):
    generator = torch.Generator().manual_seed(0)
    z_s, z_t = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    y, p = torch.arange(n) % 3, torch.randn(n, 3, generator=generator).softmax(1)
    gradients = []
    for dtype, unit in ((torch.float32, size), (torch.float64, 1.0)):
        leaves = [(unit * z).to(dtype).requires_grad_() for z in (z_s, 1 + z_t)]
        bures.CKBLoss()(leaves[0], y, leaves[1], p).backward()
        gradients.append(torch.cat([leaf.grad.double() * unit for leaf in leaves]))
    assert float((gradients[0] - gradients[1]).norm()) <= 1e-3 * float(gradients[1].norm())
