"""Other people's software as a judge: POT for the Bures distance, scikit-learn for the kernels."""

import numpy as np
import pytest
import reference
import torch
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel

import bures
from bures.kernels import gram_blocks


@pytest.fixture(scope="module")
def ot_gaussian():
    return pytest.importorskip("ot.gaussian", reason="POT is an optional extra")


def well_conditioned_covariance(rng, d):
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return basis * rng.uniform(0.5, 5, size=d) @ basis.T


@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_bures_covariance_is_the_bures_distance_of_pot(ot_gaussian, d):
    rng = np.random.default_rng(d)
    a, b = well_conditioned_covariance(rng, d), well_conditioned_covariance(rng, d)
    zero = np.zeros(d)  # POT 0.9.4 has no distance of covariances alone
    expected = float(ot_gaussian.bures_wasserstein_distance(zero, zero, a, b)) ** 2
    assert abs(bures.bures_covariance(a, b) - expected) <= 1e-10 * (np.trace(a) + np.trace(b))


@pytest.mark.parametrize(("n", "m", "d"), [(50, 40, 2), (30, 60, 5)])
def test_bures_is_the_empirical_bures_wasserstein_distance_of_pot_without_means(ot_gaussian, n, m, d):
    rng = np.random.default_rng(n)
    xs, xt = rng.normal(size=(n, d)) + 3, rng.normal(size=(m, d)) @ rng.normal(size=(d, d)) - 1
    covariances = reference.covariance(xs), reference.covariance(xt)
    zero = np.zeros(d)
    expected = float(ot_gaussian.bures_wasserstein_distance(zero, zero, *covariances)) ** 2
    assert abs(bures.bures(xs, xt) - expected) <= 1e-10 * sum(np.trace(c) for c in covariances)


def test_linear_ckw_of_one_class_is_the_squared_bures_wasserstein_distance_of_pot(ot_gaussian):
    """Means and covariance of Gaussians: with a single class nothing is conditioned away."""
    rng = np.random.default_rng(5)
    xs, xt = rng.normal(size=(40, 3)), 2 * rng.normal(size=(30, 3)) + 1
    arguments = xs.mean(0), xt.mean(0), reference.covariance(xs), reference.covariance(xt)
    expected = float(ot_gaussian.bures_wasserstein_distance(*arguments)) ** 2
    value = bures.ckw(xs, np.zeros(40, int), xt, np.zeros(30, int), kernel="linear")
    assert value == pytest.approx(expected, rel=1e-10)


SIGMA2 = 2.3
SKLEARN = {
    "gaussian": lambda x, y: rbf_kernel(x, y, gamma=1 / SIGMA2),
    "laplacian": lambda x, y: laplacian_kernel(x, y, gamma=1 / np.sqrt(SIGMA2)),
    "linear": linear_kernel,
}


@pytest.mark.parametrize("kernel", SKLEARN)
def test_kernel_values_are_those_of_scikit_learn(draw_problem, kernel):
    p = draw_problem(n=13, m=8, d=5, seed=1)
    xs, xt = torch.as_tensor(p.xs), torch.as_tensor(p.xt)
    ws, wt = torch.full((13,), 1 / 13, dtype=torch.float64), torch.full((8,), 1 / 8, dtype=torch.float64)
    blocks = gram_blocks(xs, xt, kernel=kernel, bandwidth=SIGMA2, ws=ws, wt=wt, up_to_constant=False)
    pairs = {"ss": (p.xs, p.xs), "tt": (p.xt, p.xt), "ts": (p.xt, p.xs)}
    for name, (a, b) in pairs.items():
        np.testing.assert_allclose(getattr(blocks, name).numpy(), SKLEARN[kernel](a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", SKLEARN)
@pytest.mark.parametrize("metric", ["ckb", "ckw", "kernel_bures", "mmd"])
def test_a_kernel_of_scikit_learn_may_be_passed_as_a_function(draw_problem, metric, kernel):
    p = draw_problem(n=13, m=8, d=5, seed=2)
    data = p.data if metric in ("ckb", "ckw") else (p.xs, p.xt)
    value = getattr(bures, metric)(*data, kernel=SKLEARN[kernel])
    assert value == pytest.approx(getattr(bures, metric)(*data, kernel=kernel, bandwidth=SIGMA2), rel=1e-10)


@pytest.mark.parametrize("kernel", SKLEARN)
@pytest.mark.parametrize("kind", ["hard", "soft", "continuous"])
def test_a_label_kernel_of_scikit_learn_may_be_passed_as_a_function(draw_problem, kind, kernel):
    p = draw_problem(kind, n=13, m=8, seed=3)
    value = bures.ckb(*p.data, conditioning=kind, label_kernel=SKLEARN[kernel])
    named = bures.ckb(*p.data, conditioning=kind, label_kernel=kernel, label_bandwidth=SIGMA2)
    assert value == pytest.approx(named, rel=1e-9)


def median_of_different_samples(distances):
    return np.median(distances[np.triu_indices_from(distances, 1)])


@pytest.mark.parametrize(("rule", "statistic"), [("shared", np.mean), ("median", median_of_different_samples)])
def test_bandwidth_rules_are_the_usual_heuristics_on_the_pooled_sample(draw_problem, rule, statistic):
    p = draw_problem(n=13, m=8, d=5, seed=4)
    distances = pairwise_distances(np.vstack([p.xs, p.xt]), metric="sqeuclidean")
    parts = bures.explain(*p.data, bandwidth=rule, n_permutations=0, n_bootstrap=0)
    np.testing.assert_allclose(parts.bandwidths, statistic(distances), rtol=1e-12)


def test_per_block_bandwidths_are_the_means_of_the_three_distance_matrices(draw_problem):
    p = draw_problem(n=13, m=8, d=5, seed=4)
    expected = [
        pairwise_distances(a, b, metric="sqeuclidean").mean() for a, b in ((p.xs, p.xs), (p.xt, p.xt), (p.xt, p.xs))
    ]
    parts = bures.explain(*p.data, bandwidth="per-block", n_permutations=0, n_bootstrap=0)
    np.testing.assert_allclose(parts.bandwidths, expected, rtol=1e-12)


# ------------------------------------------------------------------------------------------- the boundary


CALLS = {
    "ckb": lambda xs, ys, xt, yt: bures.ckb(xs, ys, xt, yt),
    "ckw": lambda xs, ys, xt, yt: bures.ckw(xs, ys, xt, yt),
    "kernel_bures": lambda xs, ys, xt, yt: bures.kernel_bures(xs, xt),
    "bures": lambda xs, ys, xt, yt: bures.bures(xs, xt),
    "mmd": lambda xs, ys, xt, yt: bures.mmd(xs, xt),
}


@pytest.mark.parametrize("call", CALLS)
def test_numpy_in_python_float_out(draw_problem, call):
    assert type(CALLS[call](*draw_problem().data)) is float


def test_bures_covariance_numpy_in_python_float_out():
    assert type(bures.bures_covariance(np.eye(2), np.eye(2))) is float


def as_lists(p):
    return tuple(array.tolist() for array in p.data)


def as_pandas(p):
    pd = pytest.importorskip("pandas")
    names = [f"feature {i}" for i in range(p.xs.shape[1])]
    index = np.arange(len(p.xs))[::-1]
    return (
        pd.DataFrame(p.xs, columns=names, index=index),
        pd.Series(p.ys, index=index),
        pd.DataFrame(p.xt),
        pd.Series(p.yt),
    )


def as_fortran_order(p):
    return np.asfortranarray(p.xs), p.ys, p.xt[::-1][::-1], p.yt[::-1][::-1]


def as_byte_swapped(p):
    return p.xs.astype(">f8"), p.ys.astype(">i4"), p.xt.astype(">f8"), p.yt.astype(np.int8)


def as_read_only(p):
    copies = tuple(array.copy() for array in p.data)
    for copy in copies:
        copy.setflags(write=False)
    return copies


@pytest.mark.parametrize("convert", [as_lists, as_pandas, as_fortran_order, as_byte_swapped, as_read_only])
@pytest.mark.parametrize("call", CALLS)
def test_whatever_numpy_reads_is_accepted_and_gives_the_same_number(draw_problem, call, convert):
    p = draw_problem(seed=5)
    value = CALLS[call](*convert(p))
    assert type(value) is float
    assert value == pytest.approx(CALLS[call](*p.data), rel=1e-13)


def test_strings_in_a_pandas_series_are_classes(draw_problem):
    pd = pytest.importorskip("pandas")
    p = draw_problem(seed=6)
    names = np.array(["ant", "bee", "cat"])
    value = bures.ckb(pd.DataFrame(p.xs), pd.Series(names[p.ys]), pd.DataFrame(p.xt), pd.Series(names[p.yt]))
    assert value == pytest.approx(bures.ckb(*p.data), rel=1e-13)


def test_soft_labels_in_a_data_frame_are_rows(draw_problem):
    pd = pytest.importorskip("pandas")
    p = draw_problem("soft", seed=7)
    value = bures.ckb(p.xs, pd.DataFrame(p.ys), p.xt, pd.DataFrame(p.yt))
    assert value == pytest.approx(bures.ckb(*p.data), rel=1e-13)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, bool])
@pytest.mark.parametrize("call", CALLS)
def test_integer_features_are_numbers(draw_problem, call, dtype):
    p = draw_problem(seed=8)
    xs, xt = (np.abs(np.rint(2 * x)).astype(dtype) for x in (p.xs, p.xt))
    expected = CALLS[call](xs.astype(float), p.ys, xt.astype(float), p.yt)
    assert CALLS[call](xs, p.ys, xt, p.yt) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("call", CALLS)
def test_numpy_float32_is_computed_in_float64(draw_problem, call):
    p = draw_problem(seed=9)
    xs, xt = p.xs.astype(np.float32), p.xt.astype(np.float32)
    expected = CALLS[call](xs.astype(np.float64), p.ys, xt.astype(np.float64), p.yt)
    assert CALLS[call](xs, p.ys, xt, p.yt) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("call", CALLS)
def test_torch_in_scalar_tensor_of_the_same_dtype_with_gradient_out(draw_problem, call, dtype):
    p = draw_problem(seed=10)
    xs, xt = (torch.tensor(x, dtype=dtype, requires_grad=True) for x in (p.xs, p.xt))
    value = CALLS[call](xs, torch.as_tensor(p.ys), xt, torch.as_tensor(p.yt))
    assert value.shape == ()
    assert value.dtype is dtype
    assert value.device == xs.device
    for gradient in torch.autograd.grad(value, (xs, xt)):
        assert gradient.dtype is dtype
        assert float(gradient.norm()) > 0
    expected = CALLS[call](*p.data)
    assert value.item() == pytest.approx(expected, rel=1e-10 if dtype is torch.float64 else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("call", CALLS)
def test_half_precision_tensors_are_computed_in_float32(draw_problem, call, dtype):
    p = draw_problem(seed=11)
    xs, xt = (torch.tensor(x).to(dtype) for x in (p.xs, p.xt))
    labels = torch.as_tensor(p.ys), torch.as_tensor(p.yt)
    value = CALLS[call](xs, labels[0], xt, labels[1])
    assert value.dtype is torch.float32
    assert float(value) == pytest.approx(float(CALLS[call](xs.float(), labels[0], xt.float(), labels[1])), rel=1e-6)


@pytest.mark.parametrize("call", CALLS)
def test_inputs_are_not_written_to(draw_problem, call):
    p = draw_problem(seed=12)
    before = [array.copy() for array in p.data]
    CALLS[call](*p.data)
    for array, copy in zip(p.data, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_class_names_may_stand_beside_tensors(draw_problem):
    p = draw_problem(seed=13)
    names = np.array(["ant", "bee", "cat"])
    value = bures.ckb(torch.as_tensor(p.xs), names[p.ys], torch.as_tensor(p.xt), names[p.yt].tolist())
    assert float(value) == pytest.approx(bures.ckb(*p.data), rel=1e-12)


def test_tensors_and_numpy_arrays_are_not_mixed(draw_problem):
    p = draw_problem()
    with pytest.raises(TypeError, match="xs is a torch tensor but xt is a ndarray"):
        bures.kernel_bures(torch.as_tensor(p.xs), p.xt)
