"""The statistics of all orders are the distances of the library between the reordered samples."""

import numpy as np
import pytest
import torch

import bures
from bures.kernels import gram_blocks
from bures.testing._aggregate import aggregate, holm, permutation_p_value
from bures.testing._design import Design
from bures.testing._engines import FeatureEngine, GramEngine, reduced
from bures.testing._permutations import log_arrangements, orders_within, unordered


def draw(n=17, m=13, d=3, k=3, seed=0):
    rng = np.random.default_rng(seed)
    ys, yt = (np.concatenate([np.arange(k), rng.integers(k, size=size - k)]) for size in (n, m))
    return rng.normal(size=(n, d)) + ys[:, None], ys, 1.5 * rng.normal(size=(m, d)) + yt[:, None], yt


def make_engines(xs, ys, xt, yt, bandwidth, eps=1e-2):
    """The exact engine, and one of features that reproduce the kernel."""
    pooled, strata = torch.tensor(np.vstack([xs, xt])), torch.tensor(np.concatenate([ys, yt]))
    design = Design.build(strata, len(xs), int(strata.max()) + 1, eps, factors=True)
    weights = torch.full((len(pooled),), 1 / len(pooled), dtype=torch.float64)
    gram = gram_blocks(pooled, pooled, kernel="gaussian", bandwidth=bandwidth, ws=weights, wt=weights).ss
    features = torch.tensor(bures.NystroemMap.fit(pooled, n_landmarks=len(pooled), bandwidth=bandwidth)(pooled.numpy()))
    return GramEngine(gram, design), FeatureEngine(features - features.mean(dim=0), design)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("eps", [1e-2, "auto"])
def test_every_order_has_the_distance_of_the_reordered_samples(k, eps):
    """Independent of the batched forms: the metric called anew on each reordered pair, with the same bandwidth."""
    xs, ys, xt, yt = draw(k=k)
    bandwidth = 7.0
    pooled, strata, n = np.vstack([xs, xt]), np.concatenate([ys, yt]), len(xs)
    orders = torch.cat(list(orders_within(torch.tensor(strata), 6, 4, seed=3)))
    expected = []
    for order in orders.numpy():
        x = pooled[order]
        pair = x[:n], strata[:n], x[n:], strata[n:]
        ckb, ckw = (f(*pair, bandwidth=bandwidth, eps=eps) for f in (bures.ckb, bures.ckw))
        by_class = [bures.mmd(x[:n][ys == c], x[n:][yt == c], bandwidth=bandwidth) for c in range(k)]
        expected.append([ckb, ckw - ckb, *by_class])
    expected = np.array(expected)
    for engine in make_engines(xs, ys, xt, yt, bandwidth, eps):
        means = engine.means(orders)
        np.testing.assert_allclose(engine.spread(orders).numpy(), expected[:, 0], rtol=0, atol=1e-7)
        np.testing.assert_allclose((means @ engine.design.importance).numpy(), expected[:, 1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(means.numpy(), expected[:, 2:], rtol=0, atol=1e-10)


def test_the_scale_is_the_variance_within_classes():
    """With the linear kernel it is a plain variance."""
    xs, ys, xt, yt = draw()
    pooled, strata = np.vstack([xs, xt]), np.concatenate([ys, yt])
    within = sum(((pooled[strata == c] - pooled[strata == c].mean(axis=0)) ** 2).sum() for c in range(3)) / len(pooled)
    design = Design.build(torch.tensor(strata), len(xs), 3, 1e-2, factors=False)
    centred = torch.tensor(pooled - pooled.mean(axis=0))
    assert GramEngine(centred @ centred.T, design).scale == pytest.approx(within)
    assert FeatureEngine(centred, design).scale == pytest.approx(within)


def test_leading_directions_of_a_class_lose_nothing_where_the_rank_is_no_larger():
    """Eighty samples of three linear features: four directions hold all."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(80, 3)))
    design = Design.build(torch.zeros(80, dtype=torch.int64), 40, 1, 1.0, factors=True)
    orders = torch.cat(list(orders_within(design.strata, 5, 5, seed=0)))
    exact, few = GramEngine(x @ x.T, design), reduced(x @ x.T, design, 4)
    assert isinstance(few, FeatureEngine)
    torch.testing.assert_close(few.spread(orders), exact.spread(orders), rtol=0, atol=1e-6)
    torch.testing.assert_close(few.means(orders), exact.means(orders))


def test_orders_keep_the_class_of_every_place_and_do_not_depend_on_batches():
    strata = torch.tensor([0, 2, 1, 1, 0, 2, 2, 1, 0, 0])
    orders = torch.cat(list(orders_within(strata, 50, 7, seed=1)))
    assert torch.equal(orders[0], torch.arange(10))
    assert orders.shape == (51, 10)
    assert bool((strata[orders] == strata).all())
    assert bool((orders.sort(dim=1).values == torch.arange(10)).all())
    assert torch.equal(orders, torch.cat(list(orders_within(strata, 50, 50, seed=1))))


def test_orders_are_uniform():
    """Three samples of one class and one of another: six orders, each as often as the others."""
    orders = torch.cat(list(orders_within(torch.tensor([0, 1, 0, 0]), 6000, 1000, seed=0)))[1:]
    _, counts = torch.unique(orders, dim=0, return_counts=True)
    assert len(counts) == 6
    assert float((counts - 1000).square().sum() / 1000) < 20.5  # chi-squared with 5 degrees of freedom at 0.1 %


def test_what_is_chosen_from_the_samples_does_not_depend_on_their_order():
    x = torch.tensor(np.random.default_rng(0).normal(size=(30, 4)))
    shuffled = x[torch.randperm(30, generator=torch.Generator().manual_seed(1))]
    assert torch.equal(unordered(x), unordered(shuffled))


def test_the_number_of_arrangements_is_a_product_of_binomials():
    assert np.exp(log_arrangements(torch.tensor([2, 3]), torch.tensor([2, 1]))) == pytest.approx(6 * 4)


def test_p_values_count_the_observed_value_and_ties():
    assert permutation_p_value(torch.tensor([3.0, 1.0, 2.0, 0.0]).double()) == 1 / 4
    assert permutation_p_value(torch.tensor([2.0, 2.0 - 1e-12, 3.0, 1.0]).double()) == 3 / 4
    assert permutation_p_value(torch.zeros(20).double()) == 1.0


def test_holm_against_an_independent_implementation():
    def by_definition(p):
        p = np.asarray(p)
        order = np.argsort(p)
        stepped = np.maximum.accumulate([(len(p) - i) * p[j] for i, j in enumerate(order)])
        result = np.empty(len(p))
        result[order] = np.minimum(stepped, 1)
        return result

    for p in ([0.01, 0.04, 0.03, 0.005], [0.5], [0.2, 0.2, 0.9], list(np.random.default_rng(0).random(20))):
        np.testing.assert_allclose(holm(p), by_definition(p))


def test_the_aggregate_is_the_largest_standardised_value_and_ignores_one_that_is_constant():
    values = torch.tensor([[5.0, 1.0, 2.0, 3.0], [7.0, 7.0, 7.0, 7.0 + 1e-13]]).double()
    first = values[0]
    expected = torch.maximum((first - first.mean()) / first.std(correction=0), torch.zeros(4).double())
    torch.testing.assert_close(aggregate(values, resolution=1e-9), expected)
    assert torch.equal(aggregate(values[:1]), values[0])
