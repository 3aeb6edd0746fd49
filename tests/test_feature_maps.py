"""Feature maps: their products are the kernel's values, exactly or within what they certify."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
import reference
import safetensors.torch
import torch

import bures
from bures.feature_maps import FeatureMap
from bures.feature_maps._base import SCHEMA
from bures.kernels import gram_blocks

KERNELS = ["gaussian", "laplacian"]
LANDMARKS = ["uniform", "k-means++", "pivoted-cholesky"]
RNG = np.random.default_rng(0)
XS, XT = RNG.normal(size=(30, 3)), 0.5 + 1.5 * RNG.normal(size=(25, 3))
POOLED = np.vstack([XS, XT])


def kernel_gram(x, y, kernel, sigma2):
    width = reference.width_from_number(kernel, sigma2)
    return reference.kernel_values(reference.pairwise(reference.DISTANCES[kernel], x, y), width)


def all_maps():
    return {
        "linear": bures.LinearMap.fit(XS, XT),
        "nystroem-gaussian": bures.NystroemMap.fit(XS, XT, n_landmarks=12),
        "nystroem-laplacian": bures.NystroemMap.fit(XS, XT, n_landmarks=12, kernel="laplacian"),
        "fourier-gaussian": bures.RandomFourierMap.fit(XS, XT, n_features=10),
        "fourier-laplacian": bures.RandomFourierMap.fit(XS, XT, n_features=10, kernel="laplacian"),
    }


each_map = pytest.mark.parametrize("name", all_maps())


# --------------------------------------------------------------------------------------------------- the kernel


@pytest.mark.parametrize("bandwidth", ["shared", "median", 1.7])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_bandwidth_is_that_of_the_exact_metrics(kernel, bandwidth):
    phi = bures.NystroemMap.fit(XS, XT, n_landmarks=5, kernel=kernel, bandwidth=bandwidth)
    width = reference.feature_widths(XS, XT, kernel, bandwidth)[0]
    assert phi.bandwidth == pytest.approx(width if kernel == "gaussian" else width**2, rel=1e-12)
    s, t = torch.as_tensor(XS), torch.as_tensor(XT)
    ws, wt = (torch.full((len(x),), 1 / len(x), dtype=torch.float64) for x in (s, t))
    blocks = gram_blocks(s, t, kernel=kernel, bandwidth=bandwidth, ws=ws, wt=wt)
    assert phi.bandwidth == pytest.approx(float(blocks.bandwidths[2]), rel=1e-12)


def test_the_linear_map_is_the_sample():
    phi = bures.LinearMap.fit(XS[:1])
    np.testing.assert_allclose(phi(XT), XT, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS)
def test_with_all_landmarks_the_products_are_the_kernel(kernel):
    phi = bures.NystroemMap.fit(XS, XT, n_landmarks=len(POOLED), kernel=kernel)
    expected = kernel_gram(XS, XT, kernel, phi.bandwidth)
    np.testing.assert_allclose(phi(XS) @ phi(XT).T, expected, atol=1e-10)
    assert phi.trace_error < 1e-12


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("landmarks", LANDMARKS)
def test_nystroem_features_are_the_projection_on_the_landmarks(kernel, landmarks):
    phi = bures.NystroemMap.fit(XS, XT, n_landmarks=9, kernel=kernel, landmarks=landmarks, seed=3)
    chosen = phi.landmarks.numpy() * np.sqrt(phi.bandwidth) + phi.centre.numpy()
    index = [int(np.abs(POOLED - row).sum(axis=1).argmin()) for row in chosen]
    np.testing.assert_allclose(chosen, POOLED[index], atol=1e-12)
    assert len(set(index)) == 9
    cross, gram = kernel_gram(POOLED, chosen, kernel, phi.bandwidth), kernel_gram(chosen, chosen, kernel, phi.bandwidth)
    projected = cross @ np.linalg.solve(gram, cross.T)
    np.testing.assert_allclose(phi(POOLED) @ phi(POOLED).T, projected, atol=1e-9)
    assert phi.trace_error == pytest.approx(1 - np.trace(projected) / len(POOLED), abs=1e-9)


def test_the_seed_chooses_the_landmarks():
    for landmarks in ("uniform", "k-means++"):
        first, again, other = (
            bures.NystroemMap.fit(XS, XT, n_landmarks=9, landmarks=landmarks, seed=seed) for seed in (1, 1, 2)
        )
        assert torch.equal(first.landmarks, again.landmarks)
        assert not torch.equal(first.landmarks, other.landmarks)


def test_pivoted_cholesky_needs_fewer_landmarks_and_keeps_to_its_tolerance():
    x = np.vstack([RNG.normal(size=(300, 2)), 8 + 0.1 * RNG.normal(size=(6, 2))])  # a rare far cluster
    errors = {
        name: bures.NystroemMap.fit(x, n_landmarks=60, bandwidth=4.0, landmarks=name).trace_error for name in LANDMARKS
    }
    assert errors["pivoted-cholesky"] < 0.01 * errors["uniform"]
    for tolerance in (1e-1, 1e-3, 1e-6):
        phi = bures.NystroemMap.fit(
            x, n_landmarks=306, bandwidth=4.0, landmarks="pivoted-cholesky", tolerance=tolerance
        )
        assert phi.trace_error <= tolerance
        assert len(phi.landmarks) < 306
        shorter = bures.NystroemMap.fit(
            x, n_landmarks=len(phi.landmarks) - 1, bandwidth=4.0, landmarks="pivoted-cholesky"
        )
        assert shorter.trace_error > tolerance, "it stops at the first landmark that suffices"


@pytest.mark.parametrize("cut", [1e-13, 1e-6, 1e-2])
def test_the_eigenvalue_cut_leaves_out_directions_below_it(cut):
    phi = bures.NystroemMap.fit(XS, XT, n_landmarks=len(POOLED), bandwidth=30.0, eigenvalue_cut=cut)
    eigenvalues = np.linalg.eigvalsh(kernel_gram(POOLED, POOLED, "gaussian", 30.0))
    assert phi.n_features == (eigenvalues > cut * eigenvalues[-1]).sum()


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_fourier_features_are_unbiased(kernel):
    x, y = XS[:4], XT[:4]
    sigma2 = 3.0
    draws = np.stack(
        [
            phi(x) @ phi(y).T
            for phi in (
                bures.RandomFourierMap.fit(x, y, n_features=40, kernel=kernel, bandwidth=sigma2, seed=seed)
                for seed in range(400)
            )
        ]
    )
    standard_error = draws.std(axis=0) / np.sqrt(len(draws))
    expected = kernel_gram(x, y, kernel, sigma2)
    # 16 entries beyond 4.5 standard errors: less than one time in 9000.
    assert np.all(np.abs(draws.mean(axis=0) - expected) < 4.5 * standard_error)
    # The tolerance is narrow enough to tell neighbouring conventions apart: sigma and 2 sigma squared.
    for wrong in (sigma2**2, 2 * sigma2, sigma2 / 2):
        gap = np.abs(kernel_gram(x, y, kernel, wrong) - expected)
        assert np.any(gap > 10 * standard_error)


def test_random_fourier_features_have_length_one():
    for kernel in KERNELS:
        phi = bures.RandomFourierMap.fit(XS, XT, n_features=20, kernel=kernel)
        np.testing.assert_allclose((phi(XS) ** 2).sum(axis=1), 1, rtol=1e-12)


# ---------------------------------------------------------------------------------------------------- precision


@each_map
def test_features_in_float32_are_those_in_float64_rounded(name):
    phi = all_maps()[name]
    single = phi.to(dtype=torch.float32)
    assert single(torch.as_tensor(XS)).dtype == torch.float64  # the offset is added in float64
    assert single.features(torch.as_tensor(XS)).dtype == torch.float32
    np.testing.assert_allclose(single(XS), phi(XS), atol=2e-5)
    assert single.fingerprint == phi.fingerprint


@each_map
@pytest.mark.parametrize("given", [torch.float32, torch.float64], ids=str)
def test_a_large_offset_of_the_sample_costs_no_digits(name, given):
    offset = 2.0**12 if given == torch.float32 else 2.0**30
    grid = 2.0**-10  # the moved samples are representable, so nothing is lost before the map sees them
    xs, xt = np.round(XS / grid) * grid, np.round(XT / grid) * grid
    fit = {
        "linear": lambda a, b: bures.LinearMap.fit(a, b),
        "nystroem-gaussian": lambda a, b: bures.NystroemMap.fit(a, b, n_landmarks=12),
        "nystroem-laplacian": lambda a, b: bures.NystroemMap.fit(a, b, n_landmarks=12, kernel="laplacian"),
        "fourier-gaussian": lambda a, b: bures.RandomFourierMap.fit(a, b, n_features=10),
        "fourier-laplacian": lambda a, b: bures.RandomFourierMap.fit(a, b, n_features=10, kernel="laplacian"),
    }[name]
    here, there = fit(xs, xt), fit(xs + offset, xt + offset)
    tolerance = 1e-5 if given == torch.float32 else 1e-6
    near = here.to(dtype=given).features(torch.as_tensor(xs, dtype=given))
    far = there.to(dtype=given).features(torch.as_tensor(xs + offset, dtype=given))
    near, far = near - near.mean(dim=0), far - far.mean(dim=0)  # the centre itself is rounded: a common shift
    torch.testing.assert_close(far @ far.T, near @ near.T, atol=tolerance, rtol=0)


def test_a_float32_copy_leaves_out_directions_that_are_noise():
    phi = bures.NystroemMap.fit(XS, XT, n_landmarks=len(POOLED), bandwidth=30.0)
    single = phi.to(dtype=torch.float32)
    kept = int((phi.eigenvalues > 1e-7 * phi.eigenvalues[0]).sum())
    assert single.n_features == kept < phi.n_features
    with pytest.raises(ValueError, match=r"float32.*does not come back"):
        single.to(dtype=torch.float64)


@each_map
def test_gradients_flow_through_a_map(name):
    phi = all_maps()[name]
    x = torch.as_tensor(XS[:3]).clone().requires_grad_()
    assert torch.autograd.gradcheck(phi, (x,))


def test_numpy_in_numpy_out_and_torch_in_torch_out():
    phi = all_maps()["nystroem-gaussian"]
    assert isinstance(phi(XS), np.ndarray)
    assert isinstance(phi(torch.as_tensor(XS)), torch.Tensor)
    assert isinstance(phi(XS.tolist()), np.ndarray)


# --------------------------------------------------------------------------------------------------- degenerate

DEGENERATE = {
    "constant": (np.full((6, 2), 0.7), np.full((5, 2), 0.7)),
    "zero": (np.zeros((6, 2)), np.zeros((5, 2))),
    "duplicates": (np.repeat(XS[:2], 3, axis=0), np.repeat(XS[:1], 5, axis=0)),
    "large": (1e15 * XS[:6], 1e15 * XT[:5]),
    "small": (1e-15 * XS[:6], 1e-15 * XT[:5]),
    "one sample": (XS[:1], XT[:1]),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("landmarks", LANDMARKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_degenerate_samples_give_the_kernel_all_the_same(kernel, landmarks, case):
    xs, xt = DEGENERATE[case]
    n = min(5, len(xs) + len(xt))
    phi = bures.NystroemMap.fit(xs, xt, n_landmarks=n, kernel=kernel, landmarks=landmarks)
    values = phi(np.vstack([xs, xt]))
    assert np.isfinite(values).all()
    assert np.all((values**2).sum(axis=1) <= 1 + 1e-9), "a projection makes nothing longer"
    if case in ("constant", "zero"):
        np.testing.assert_allclose(values @ values.T, 1, atol=1e-12)
        assert phi.n_features == 1


def test_duplicates_end_the_pivoted_cholesky_early():
    x = np.repeat(XS[:3], 10, axis=0)
    phi = bures.NystroemMap.fit(x, n_landmarks=20, landmarks="pivoted-cholesky")
    assert len(phi.landmarks) == 3
    assert phi.trace_error < 1e-12


# ----------------------------------------------------------------------------------------- files and fingerprints


@each_map
def test_a_saved_map_is_the_same_map(name, tmp_path):
    phi = all_maps()[name]
    path = phi.save(tmp_path / "map.safetensors")
    for kind in (type(phi), FeatureMap):
        loaded = kind.load(path)
        assert type(loaded) is type(phi)
        assert loaded.fingerprint == phi.fingerprint
        np.testing.assert_array_equal(loaded(XT), phi(XT))
        assert repr(loaded) == repr(phi)
    assert getattr(loaded, "trace_error", None) == getattr(phi, "trace_error", None)


@pytest.mark.parametrize("name", ["linear", "nystroem", "fourier"])
def test_a_map_finds_the_columns_of_data_frames_by_name(name, tmp_path):
    fit = {
        "linear": bures.LinearMap.fit,
        "nystroem": partial(bures.NystroemMap.fit, n_landmarks=12),
        "fourier": partial(bures.RandomFourierMap.fit, n_features=10),
    }[name]
    names = [f"f{i}" for i in range(XS.shape[1])]
    source, target = (pd.DataFrame(x, columns=names) for x in (XS, XT))
    phi, plain = fit(source, target[names[::-1]]), fit(XS, XT)
    assert (phi.columns, plain.columns) == (tuple(names), None)
    assert phi.fingerprint == plain.fingerprint
    loaded = type(phi).load(phi.save(tmp_path / "map.safetensors"))
    for fitted in (phi, loaded):
        np.testing.assert_array_equal(fitted(target[names[::-1]]), plain(XT))
        np.testing.assert_array_equal(fitted(XT), plain(XT))
        with pytest.raises(ValueError, match=r"x lacks the column 'f0'.*what the map was fitted on by name"):
            fitted(target.rename(columns={"f0": "other"}))
    np.testing.assert_allclose(phi.to(dtype=torch.float32)(target[names[::-1]]), plain(XT), atol=1e-3)


def test_the_fingerprint_tells_maps_apart():
    fit = bures.NystroemMap.fit
    maps = [
        *all_maps().values(),
        fit(XS, XT, n_landmarks=12, seed=1),
        fit(XS, XT, n_landmarks=11),
        fit(XS, XT, n_landmarks=12, bandwidth=1.0),
        fit(XS[:-1], XT, n_landmarks=12),
        bures.RandomFourierMap.fit(XS, XT, n_features=10, seed=1),
        bures.LinearMap.fit(XS),
    ]
    assert len({phi.fingerprint for phi in maps}) == len(maps)
    assert fit(XS, XT, n_landmarks=12).fingerprint == all_maps()["nystroem-gaussian"].fingerprint


def test_loading_refuses_what_is_no_map_of_this_version(tmp_path):
    phi = all_maps()["nystroem-gaussian"]
    path = phi.save(tmp_path / "map.safetensors")
    with pytest.raises(ValueError, match="holds a NystroemMap; accepted is a LinearMap"):
        bures.LinearMap.load(path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        bures.NystroemMap.load(tmp_path / "other")
    (tmp_path / "noise").write_bytes(b"not a file of tensors")
    with pytest.raises(ValueError, match="damaged, or no safetensors file"):
        bures.NystroemMap.load(tmp_path / "noise")
    safetensors.torch.save_file({"a": torch.ones(1)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="holds something else; accepted is a feature map"):
        bures.NystroemMap.load(tmp_path / "foreign")


def test_loading_notices_a_later_schema_and_a_changed_tensor(tmp_path):
    phi = all_maps()["nystroem-gaussian"]
    path = phi.save(tmp_path / "map.safetensors")
    with safetensors.safe_open(path, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    safetensors.torch.save_file(tensors, path, {**metadata, "schema": str(SCHEMA + 1)})
    with pytest.raises(ValueError, match=f"has schema {SCHEMA + 1}, which this version cannot read"):
        FeatureMap.load(path)
    tensors["landmarks"][0, 0] += 1e-9
    safetensors.torch.save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match="fingerprint does not belong"):
        FeatureMap.load(path)
    del tensors["landmarks"]
    safetensors.torch.save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match="does not hold what a NystroemMap needs"):
        FeatureMap.load(path)


def test_a_copy_in_float32_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="save the map it was made from"):
        all_maps()["linear"].to(dtype=torch.float32).save(tmp_path / "map")


# ---------------------------------------------------------------------------------------------------- bad input

NYSTROEM, FOURIER = bures.NystroemMap.fit, bures.RandomFourierMap.fit
BAD = {
    "more landmarks than samples": (NYSTROEM, {"n_landmarks": 56}, r"n_landmarks=56 is more than the 55 samples"),
    "no landmarks": (NYSTROEM, {"n_landmarks": 0}, r"n_landmarks=0 is out of range; .* at least 1"),
    "unknown landmarks": (NYSTROEM, {"n_landmarks": 5, "landmarks": "best"}, r"landmarks='best' is unknown.*uniform"),
    "linear kernel": (NYSTROEM, {"n_landmarks": 5, "kernel": "linear"}, r"kernel='linear' is unknown.*LinearMap"),
    "three bandwidths": (NYSTROEM, {"n_landmarks": 5, "bandwidth": "per-block"}, r"bandwidth='per-block' is unknown"),
    "negative bandwidth": (FOURIER, {"n_features": 4, "bandwidth": -1.0}, r"bandwidth=-1.0 is out of range"),
    "a cut of one": (NYSTROEM, {"n_landmarks": 5, "eigenvalue_cut": 1.0}, r"eigenvalue_cut=1.0 is out of range"),
    "tolerance without pivots": (NYSTROEM, {"n_landmarks": 5, "tolerance": 0.1}, r"tolerance=0.1 has no meaning for"),
    "an odd number of waves": (FOURIER, {"n_features": 5}, r"n_features=5 is odd"),
    "other columns": (NYSTROEM, {"n_landmarks": 5, "xt": XT[:, :2]}, r"xs has 3 features but xt has 2"),
    "NaN": (FOURIER, {"n_features": 4, "xt": XT * np.nan}, r"xt contains NaN"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_of_fit_are_named(case):
    fit, options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        fit(**{"xs": XS, "xt": XT, **options})


@pytest.mark.parametrize(("fit", "name"), [(NYSTROEM, "n_landmarks"), (FOURIER, "n_features")])
@pytest.mark.parametrize("count", [2.5, "4", None, True, np.True_, torch.tensor(True), torch.tensor([4, 4])])
def test_numbers_that_are_no_counts_are_named(fit, name, count):
    with pytest.raises(TypeError, match=rf"^{name}=.* is not an integer; accepted is an integer of at least 1$"):
        fit(XS, XT, **{name: count})


@pytest.mark.parametrize("count", [4, np.int64(4), np.array(4), torch.tensor(4)])
def test_counts_are_whole_numbers_of_any_kind(count):
    assert FOURIER(XS, XT, n_features=count).n_features == 4
    assert NYSTROEM(XS, XT, n_landmarks=count).fingerprint == NYSTROEM(XS, XT, n_landmarks=4).fingerprint


def test_bad_samples_are_named():
    phi = all_maps()["nystroem-gaussian"]
    with pytest.raises(ValueError, match="x has 2 features but the map was fitted on 3"):
        phi(XS[:, :2])
    with pytest.raises(ValueError, match="x contains NaN or infinity in 30 of 30 rows"):
        phi(XS * np.inf)
    with pytest.raises(TypeError, match="x could not be read as an array of real numbers"):
        phi([["a", "b", "c"]])
