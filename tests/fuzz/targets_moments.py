"""Targets: feature maps and mergeable moments."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bures.feature_maps import FeatureMap, LinearMap, NystroemMap, RandomFourierMap
from bures.moments import ConditionalMoments, MomentDistance, read_chunks
from tests.fuzz import inputs
from tests.fuzz.campaign import Case, quiet, target
from tests.fuzz.targets_metrics import Pair, draw_pair

FIT_NAMES = ("xs", "xt", "n_landmarks", "n_features", "kernel", "bandwidth", "landmarks", "eigenvalue_cut", "tolerance",
             "seed", "x has", "x is", "x ")  # fmt: skip


def fit_map(case: Case, pair: Pair) -> FeatureMap:
    """A fitted map; the case ends where its sample is refused."""
    kind = case.one_of(LinearMap, NystroemMap, RandomFourierMap)
    options: dict[str, Any] = {}
    if kind is not LinearMap:
        options = {"kernel": case.one_of("gaussian", "laplacian"), "bandwidth": case.one_of("shared", "median", 0.5)}
    if kind is NystroemMap:
        options |= {"n_landmarks": 1, "landmarks": case.one_of("uniform", "k-means++", "pivoted-cholesky")}
        rows = len(pair.xs.plain) + len(pair.xt.plain)
        options["n_landmarks"] = case.whole(1, max(1, rows))
    if kind is RandomFourierMap:
        options |= {"n_features": 2 * case.whole(1, 6)}
    options, wrong = inputs.bad_options(case.draw, options)
    case.say(kind=kind.__name__, options=options)
    fault = wrong or pair.feature_fault
    phi: FeatureMap = case.call(kind.fit, *pair.features, names=FIT_NAMES, fault=fault, **options)
    return phi


def is_wide(pair: Pair) -> bool:
    """Whether squares of the features are beyond float32, in which tensors of that dtype are kept."""
    return pair.largest > 1e17


@target(
    *(f"bures.feature_maps.{name}" for name in ("FeatureMap", "LinearMap", "NystroemMap", "RandomFourierMap")),
    "bures.LinearMap",
    "bures.NystroemMap",
    "bures.RandomFourierMap",
    weight=3,
)
def feature_maps(case: Case) -> None:
    pair = draw_pair(case)
    phi = fit_map(case, pair)
    if pair.feature_fault:
        return
    features = case.call(phi, pair.xs.value, names=("x has", "x ", "x is"), fault=None)
    case.finite(features, "the features")
    case.require(features.shape == (len(pair.xs.plain), phi.n_features), f"features of shape {features.shape}")
    if not isinstance(phi, LinearMap):  # norms are those of a kernel that is one at equal samples
        norms = np.asarray(torch.as_tensor(features).detach().double().square().sum(dim=1))
        case.require(bool((norms <= 1 + 1e-5).all()), f"the features have squared norms up to {norms.max()}")
    with quiet(), tempfile.TemporaryDirectory() as folder:
        again = FeatureMap.load(phi.save(Path(folder, "map.safetensors")))
    case.require(again.fingerprint == phi.fingerprint and repr(again) == repr(phi), "a map changes when it is saved")


@target(
    "bures.moments.ConditionalMoments",
    "bures.ConditionalMoments",
    "bures.moments.MomentDistance",
    "bures.MomentDistance",
    weight=3,
)
def conditional_moments(case: Case) -> None:
    pair = draw_pair(case)
    phi = fit_map(case, pair)
    soft = any(given.plain.ndim == 2 for given in (pair.ys, pair.yt))
    k = next((given.plain.shape[1] for given in (pair.ys, pair.yt) if given.plain.ndim == 2), 4)
    names = ("x has", "x ", "y ", "chunk", "sample_weight", "n_classes", "labels", "precision", "decay", "moments")
    options, wrong = inputs.bad_options(
        case.draw,
        {
            "labels": "soft" if soft else case.one_of("hard", "soft"),
            "precision": case.one_of("float64", "mixed"),
            "decay": case.one_of(None, 0.9),
        },
    )
    if wrong == "decay" and options["decay"] in (None, 0):
        wrong = None
    case.say(moments=options, k=k)
    m_s, m_t = (case.call(ConditionalMoments, phi, k, names=names, fault=wrong, **options) for _ in range(2))
    if wrong:
        return
    wide = "overflow" if isinstance(phi, LinearMap) and is_wide(pair) else None
    fault = pair.fault or wide
    case.call(m_s.update, pair.xs.value, pair.ys.value, names=names, fault=fault)
    case.call(m_t.update, pair.xt.value, pair.yt.value, names=names, fault=fault)
    if fault:
        return
    metric = case.one_of("ckb", "ckw", "kernel_bures", "mmd")
    found: MomentDistance = case.call(m_s.measure, m_t, metric, names=("eps", "method", *names))
    with quiet():
        back, twin = m_t.measure(m_s, metric), m_s.measure(m_s.copy(), metric)
    value = case.finite(found.squared_distance)
    size = max(float(np.abs(x.plain.astype(float)).max()) for x in (pair.xs, pair.xt))
    unit = 1e-300 + 1e-24 * size**2 + max(found.trace_s + found.trace_t, 0.0)  # of samples that coincide: rounding
    mean = float(torch.linalg.vector_norm(m_s.scatter.mean_x - m_t.scatter.mean_x)) ** 2 if metric != "ckb" else 0.0
    rounding = (1e-6 if options["precision"] == "float64" else 1e-3) * (unit + 8 * mean)
    case.require(value >= -rounding, f"negative: {value!r} beside traces {unit!r}")
    case.close(value, back.squared_distance, rounding, "not symmetric")
    case.close(twin.squared_distance, 0.0, rounding, "not zero for equal moments")
    joined = m_s + m_t
    case.require(joined.n_samples == m_s.n_samples + m_t.n_samples, "samples are lost in a merge")


@target("bures.moments.read_chunks")
def chunks_of_a_file(case: Case) -> None:
    x = inputs.as_dtype(inputs.draw_matrix(case.draw, case.rng, case.whole(0, 9), 3, 1.0), case.one_of(*inputs.DTYPES))
    y = np.arange(len(x)) % 3
    options, wrong = inputs.bad_options(case.draw, {"chunk": case.whole(1, 5), "start": case.whole(0, 3)}, rate=3)
    case.say(x=x, options=options)
    with quiet(), tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.npy")
        np.save(file, x)
        bad = wrong or ("empty" if not len(x) else None)
        names = ("chunk", "start", "x.npy", "x=", "y=")
        rows = case.call(lambda: list(read_chunks(file, y, **options)), names=names, fault=bad)
    if not bad:
        whole = [len(part) for part, _ in rows]
        case.require(sum(whole) == max(0, len(x) - options["start"]), f"chunks of {whole} rows of {len(x)}")
