"""Which samples make up which step: every pass uses all it can, and nothing but seed and step decides."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bures.training import SamplePlan
from bures.training._plan import derive_seed

sizes = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(sizes, st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_a_pass_uses_each_sample_at_most_once_and_all_but_the_rest(size, seed, number):
    n, batch_size = size
    plan = SamplePlan(n, batch_size, seed)
    steps = range(number * plan.steps_per_pass, (number + 1) * plan.steps_per_pass)
    used = torch.cat([plan.indices(step) for step in steps])
    assert all(len(plan.indices(step)) == batch_size for step in steps)
    assert len(used.unique()) == len(used) == n - n % batch_size
    assert int(used.min()) >= 0
    assert int(used.max()) < n


@given(sizes, st.integers(0, 2**32 - 1), st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.booleans())
def test_indices_depend_on_seed_and_step_alone(size, seed, steps, balanced):
    n, batch_size = size
    labels = torch.arange(n) % 3 if balanced else None
    plan = SamplePlan(n, batch_size, seed, labels)
    torch.manual_seed(len(steps))  # torch's own generator does not matter
    first = {step: plan.indices(step).clone() for step in steps}
    for step in reversed(steps):
        assert torch.equal(plan.indices(step), first[step])
        assert torch.equal(SamplePlan(n, batch_size, seed, labels).indices(step), first[step])


def test_passes_and_seeds_differ():
    plan = SamplePlan(100, 100, seed=0)
    orders = [tuple(plan.indices(step).tolist()) for step in range(20)]
    assert len(set(orders)) == 20
    assert tuple(SamplePlan(100, 100, seed=1).indices(0).tolist()) not in orders
    rest = {tuple(sorted(set(range(10)) - set(SamplePlan(10, 9, seed=0).indices(step).tolist()))) for step in range(99)}
    assert len(rest) == 10  # the sample left over is not always the same


def test_the_order_of_a_pass_is_uniform():
    # Each of 5 samples comes first in a fifth of 5000 passes: 1000 with a standard deviation of 28.
    first = torch.tensor([int(SamplePlan(5, 1, seed=3).indices(5 * number)[0]) for number in range(5000)])
    assert (torch.bincount(first, minlength=5) - 1000).abs().max() < 6 * 28


def test_balanced_classes_are_equally_frequent():
    labels = torch.tensor([0] * 900 + [1] * 90 + [3] * 10)  # class 2 has no samples
    plan = SamplePlan(1000, 50, seed=0, labels=labels)
    drawn = torch.cat([plan.indices(step) for step in range(400)])  # 20000 samples
    counts = torch.bincount(labels[drawn], minlength=4)
    expected = 20000 / 3
    deviation = (20000 * (1 / 3) * (2 / 3)) ** 0.5
    assert counts[2] == 0
    assert (counts[[0, 1, 3]] - expected).abs().max() < 5 * deviation
    within = torch.bincount(drawn, minlength=1000)[990:].double()  # samples of one class are equally frequent too
    assert (within - expected / 10).abs().max() < 6 * (expected / 10) ** 0.5


def test_plain_sampling_keeps_the_frequencies_of_the_classes():
    labels = torch.tensor([0] * 90 + [1] * 10)
    plan = SamplePlan(100, 10, seed=0)
    drawn = torch.cat([plan.indices(step) for step in range(10)])
    assert torch.bincount(labels[drawn]).tolist() == [90, 10]


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(
        ValueError, match=r"batch_size=11 is larger than the domain of 10 samples; accepted is up to 10"
    ):
        SamplePlan(10, 11, seed=0)
    assert sorted(SamplePlan(10, 10, seed=0).indices(3).tolist()) == list(range(10))


@given(
    st.lists(st.integers(0, 2**40) | st.text(max_size=5), max_size=4), st.lists(st.integers() | st.text(), max_size=4)
)
def test_seeds_of_different_purposes_differ(parts, others):
    assert 0 <= derive_seed(*parts) < 2**56
    torch.Generator().manual_seed(derive_seed(*parts))
    assert (derive_seed(*parts) == derive_seed(*others)) == (parts == others)
