"""Many pairs of domains in one call equal a loop over them."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

import bures

PAIRS, N, M, K = 4, 14, 11, 3


def pairs(dtype=torch.float64, labels="soft"):
    generator = torch.Generator().manual_seed(0)
    xs = torch.randn(PAIRS, N, 5, generator=generator).to(dtype).requires_grad_()
    xt = (1.5 * torch.randn(PAIRS, M, 5, generator=generator)).to(dtype).requires_grad_()
    ys = torch.randint(K, (PAIRS, N), generator=generator)
    hard = torch.randint(K, (PAIRS, M), generator=generator)
    yt = (2 * one_hot(hard, K) + torch.randn(PAIRS, M, K, generator=generator)).softmax(-1)
    return xs, ys, xt, hard if labels == "hard" else yt


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("labels", ["soft", "hard"])
@pytest.mark.parametrize(
    "options",
    [{}, {"bandwidth": "per-block"}, {"kernel": "linear", "label_kernel": "linear"}, {"kernel": "laplacian"}],
    ids=str,
)
def test_one_call_is_a_loop_in_value_and_gradient(options, labels, dtype):
    xs, ys, xt, yt = pairs(dtype, labels)
    together = bures.ckb(xs, ys, xt, yt, **options)
    assert together.shape == (PAIRS,)
    one_by_one = torch.stack([bures.ckb(xs[i], ys[i], xt[i], yt[i], **options) for i in range(PAIRS)])
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    torch.testing.assert_close(together, one_by_one, rtol=tolerance, atol=tolerance)
    weights = torch.arange(1.0, PAIRS + 1).to(dtype)
    for one, other in zip(
        torch.autograd.grad((weights * together).sum(), (xs, xt)),
        torch.autograd.grad((weights * one_by_one).sum(), (xs, xt)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e2 * tolerance, atol=tolerance)


def test_weights_leading_dimensions_and_numpy():
    xs, ys, xt, yt = pairs()
    weights = torch.rand(PAIRS, N, generator=torch.Generator().manual_seed(1)).double()
    together = bures.ckb(xs, ys, xt, yt, sample_weight_s=weights)
    loop = [bures.ckb(xs[i], ys[i], xt[i], yt[i], sample_weight_s=weights[i]) for i in range(PAIRS)]
    torch.testing.assert_close(together, torch.stack(loop))
    shaped = bures.ckb(*(part.detach().reshape(2, 2, *part.shape[1:]).numpy() for part in (xs, ys, xt, yt)))
    assert isinstance(shaped, np.ndarray)
    np.testing.assert_allclose(shaped.ravel(), bures.ckb(xs, ys, xt, yt).detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"xt": torch.zeros(PAIRS + 1, M, 5)}, "same leading dimensions"),
        ({"ys": torch.zeros(PAIRS, N + 1, dtype=torch.int64)}, r"ys has shape \(4, 15\); accepted is \(4, 14\)"),
        ({"bandwidth": "median"}, "bandwidth='median' is for one pair of samples at a time"),
        ({"sample_weight_s": torch.ones(N)}, "sample_weight_s has shape"),
        ({"xs": torch.full((PAIRS, N, 5), float("nan"))}, "xs contains NaN"),
        ({"xs": torch.zeros(PAIRS, 0, 5), "ys": torch.zeros(PAIRS, 0).long()}, r"xs is empty \(shape \(4, 0, 5\)\)"),
        ({"xt": torch.zeros(M, 5), "yt": torch.zeros(M).long()}, r"xs has shape \(4, 14, 5\)"),
        ({"method": "nonsense"}, "method='nonsense'"),
        ({"eps": -1.0}, "eps=-1.0"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {**dict(zip(("xs", "ys", "xt", "yt"), pairs(torch.float32), strict=True)), **change}
    with pytest.raises(ValueError, match=message):
        bures.ckb(**arguments)


@pytest.mark.parametrize("labels", ["hard", "soft"])
@pytest.mark.parametrize("prior", ["uniform", "source", [0.5, 0.3, 0.2]])
def test_a_prior_is_that_of_each_pair(prior, labels):
    xs, ys, xt, yt = (part.detach().numpy() for part in pairs())
    yt = np.tile(np.arange(M) % K, (PAIRS, 1)) if labels == "hard" else yt
    loop = [bures.ckb(xs[i], ys[i], xt[i], yt[i], prior=prior) for i in range(PAIRS)]
    np.testing.assert_allclose(bures.ckb(xs, ys, xt, yt, prior=prior), loop, rtol=1e-9)


def test_a_prior_that_a_pair_does_not_allow_is_refused():
    xs, ys, xt, yt = (part.detach().numpy() for part in pairs())
    lacking = ys.copy()
    lacking[1] = lacking[1] % 2
    with pytest.raises(ValueError, match=r"prior gives class 2 the frequency 0\.333 but the source has no"):
        bures.ckb(xs, lacking, xt, yt, prior="uniform")
    with pytest.raises(ValueError, match=r"prior sums to 0\.9"):
        bures.ckb(xs, ys, xt, yt, prior=[0.5, 0.2, 0.2])


def test_weights_in_lists_and_complex_features():
    xs, ys, xt, yt = (part.detach().numpy() for part in pairs())
    weights = np.random.default_rng(0).uniform(size=(PAIRS, N))
    given = bures.ckb(xs, ys, xt, yt, sample_weight_s=weights.tolist())
    np.testing.assert_array_equal(given, bures.ckb(xs, ys, xt, yt, sample_weight_s=weights))
    turned = torch.from_numpy(xs).to(torch.complex64)
    with pytest.raises(TypeError, match=r"xs has dtype torch\.complex64"):
        bures.ckb(turned, torch.from_numpy(ys), turned, torch.from_numpy(ys))


def test_weights_of_another_library_are_refused():
    xs, ys, xt, yt = pairs()
    with pytest.raises(TypeError, match=r"sample_weight_s"):
        bures.ckb(xs, ys, xt, yt, sample_weight_s=np.ones((PAIRS, N)))


def test_one_pair_of_one_feature_and_labels_in_lists():
    xs, ys, xt, yt = (part.detach().numpy()[:1] for part in pairs())
    xs, xt = xs[..., :1], xt[..., :1]
    together = bures.ckb(xs, ys.tolist(), xt, yt.tolist())
    assert together.shape == (1,)
    assert together[0] == pytest.approx(bures.ckb(xs[0], ys[0], xt[0], yt[0]), rel=1e-9)


def test_vmap_over_the_function_is_one_call():
    xs, ys, xt, yt = pairs()
    mapped = torch.func.vmap(bures.ckb)(xs, ys, xt, yt)
    torch.testing.assert_close(mapped, bures.ckb(xs, ys, xt, yt))
    gradients = torch.func.vmap(torch.func.grad(bures.ckb))(xs, ys, xt, yt)
    torch.testing.assert_close(gradients, torch.autograd.grad(mapped.sum(), xs)[0])


def test_many_samples_of_one_domain_alone_are_no_pairs():
    z, y = torch.rand(2, 6, 3), torch.arange(6) % 2
    with pytest.raises(ValueError, match=r"xs has shape \(2, 6, 3\); accepted is \(n_samples, n_features\)"):
        bures.ckb(z, y, z[0], y)
    with pytest.raises(ValueError, match=r"xt has shape \(2, 6, 3\); accepted is \(n_samples, n_features\)"):
        bures.ckb(z[0], y, z, y)


def test_masked_labels_of_pairs_are_refused():
    z, y = np.random.default_rng(0).normal(size=(2, 6, 3)), np.tile([0, 1], (2, 3))
    masked = np.ma.masked_array(y, mask=np.eye(2, 6, dtype=bool))
    with pytest.raises(ValueError, match="yt has 2 masked entries"):
        bures.ckb(z, y, z, masked)
