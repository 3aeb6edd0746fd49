"""The metric of torchmetrics: the distance of all samples, however they are cut and spread over processes."""

from __future__ import annotations

import builtins
import copy
import importlib
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import bures

torchmetrics = pytest.importorskip("torchmetrics")

from bures.integrations.torchmetrics import ConditionalKernelBures  # noqa: E402

K = 3


def problem(offset=0.0):
    rng = np.random.default_rng(0)
    y_s, y_t = rng.integers(K, size=101), rng.integers(K, size=90)
    x_s, x_t = rng.normal(size=(101, 4)) + y_s[:, None], 1.5 * rng.normal(size=(90, 4)) + y_t[:, None]
    p_t = rng.dirichlet(np.ones(K), size=90)
    return tuple(map(torch.from_numpy, (x_s + offset, y_s, x_t + offset, y_t, p_t)))


def of_moments(phi, x_s, y_s, x_t, y_t):
    m_s, m_t = (
        bures.ConditionalMoments(phi, K, labels="hard" if y.ndim == 1 else "soft").update(x, y)
        for x, y in ((x_s, y_s), (x_t, y_t))
    )
    return m_s.ckb(m_t)


def in_batches(metric, x_s, y_s, x_t, y_t, size=17):
    for rows in torch.arange(len(x_s)).split(size):
        metric.update(z_s=x_s[rows], y_s=y_s[rows])
    for rows in torch.arange(len(x_t)).split(size):
        metric.update(z_t=x_t[rows], y_t=y_t[rows])
    return metric


def test_with_as_many_landmarks_as_samples_it_is_ckb():
    x_s, y_s, x_t, y_t, _ = problem()
    phi = bures.NystroemMap.fit(x_s, x_t, n_landmarks=191)
    metric = in_batches(ConditionalKernelBures(phi, K), x_s, y_s, x_t, y_t)
    assert float(metric.compute()) == pytest.approx(bures.ckb(*(v.numpy() for v in (x_s, y_s, x_t, y_t))), abs=1e-8)
    assert metric.compute().dtype == torch.float64


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("map_", ["nystroem", "fourier", "linear"])
def test_batches_of_any_size_give_the_distance_of_the_moments(kind, map_):
    x_s, y_s, x_t, y_t, p_t = problem()
    phi = {
        "nystroem": lambda: bures.NystroemMap.fit(x_s, x_t, n_landmarks=20),
        "fourier": lambda: bures.RandomFourierMap.fit(x_s, x_t, n_features=64),
        "linear": lambda: bures.LinearMap.fit(x_s, x_t),
    }[map_]()
    target = y_t if kind == "hard" else p_t
    metric = ConditionalKernelBures(phi, K, target_labels=kind)
    for size in (1, 17, 1000):
        metric.reset()
        value = in_batches(metric, x_s, y_s, x_t, target, size).compute()
        assert float(value) == pytest.approx(of_moments(phi, x_s, y_s, x_t, target), abs=1e-10)
    assert (metric.moments("source").n_samples, metric.moments("target").n_chunks) == (101, 1)


def test_a_large_common_offset_costs_no_digits():
    # Sums of raw x x^T would hold 1e12 beside variances of 1: four digits would be left of a distance.
    values = []
    for offset in (0.0, 1e6):
        x_s, y_s, x_t, y_t, _ = problem(offset)
        metric = ConditionalKernelBures(bures.LinearMap.fit(x_s, x_t), K)
        values.append(float(in_batches(metric, x_s, y_s, x_t, y_t).compute()))
    assert values[1] == pytest.approx(values[0], rel=1e-8)


def test_forward_gives_the_batch_and_keeps_the_total():
    x_s, y_s, x_t, y_t, _ = problem()
    phi = bures.NystroemMap.fit(x_s, x_t, n_landmarks=20)
    metric = ConditionalKernelBures(phi, K)
    halves = [(x_s[:50], y_s[:50], x_t[:50], y_t[:50]), (x_s[50:], y_s[50:], x_t[50:], y_t[50:])]
    for half in halves:
        assert float(metric(*half)) == pytest.approx(of_moments(phi, *half), abs=1e-10)
    assert float(metric.compute()) == pytest.approx(of_moments(phi, x_s, y_s, x_t, y_t), abs=1e-10)


def test_it_lives_in_collections_and_survives_copies():
    x_s, y_s, x_t, y_t, _ = problem()
    phi = bures.NystroemMap.fit(x_s, x_t, n_landmarks=20)
    collection = torchmetrics.MetricCollection(
        {"sharp": ConditionalKernelBures(phi, K), "smooth": ConditionalKernelBures(phi, K, eps=1.0)}
    )
    collection.update(x_s, y_s, x_t, y_t)
    found = collection.compute()
    assert float(found["sharp"]) == pytest.approx(of_moments(phi, x_s, y_s, x_t, y_t), abs=1e-10)
    assert found["smooth"] != found["sharp"]
    metric = in_batches(ConditionalKernelBures(phi, K), x_s, y_s, x_t, y_t)
    for twin in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        assert twin.compute() == metric.compute()
    assert metric.float().half().source_xx.dtype == torch.float64
    float32 = ConditionalKernelBures(phi, K)
    float32.update(x_s.float().requires_grad_(), y_s, x_t.bfloat16(), y_t)
    assert float(float32.compute()) == pytest.approx(float(metric.compute()), abs=1e-3)
    assert not float32.compute().requires_grad


def test_bad_batches_are_named_and_change_nothing():
    x_s, y_s, x_t, y_t, p_t = problem()
    phi = bures.NystroemMap.fit(x_s, x_t, n_landmarks=20)
    metric = ConditionalKernelBures(phi, K)
    metric.update(x_s, y_s, x_t, y_t)
    before = metric.compute()
    for changes, message in (
        ({"y_t": None}, r"y_t is None but z_t is not"),
        ({"z_s": None}, r"z_s is None but y_s is not"),
        ({"y_t": y_t + 1}, r"z_t, y_t: .*class 3"),
        ({"z_t": x_t * torch.nan}, r"z_t, y_t: .*NaN"),
        ({"z_t": x_t[:, :3]}, r"z_t, y_t: "),
        ({"y_s": p_t}, r"z_s, y_s: "),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            metric.update(**{"z_s": x_s, "y_s": y_s, "z_t": x_t, "y_t": y_t, **changes})
        metric._computed = None
        assert metric.compute() == before
    lonely = ConditionalKernelBures(phi, K)
    lonely.update(x_s, y_s)
    with pytest.raises(ValueError, match="target moments hold no sample"):
        lonely.compute()
    with pytest.raises(ValueError, match="side='both' is unknown"):
        metric.moments("both")
    for arguments, options, message in (
        ((phi, 0), {}, "n_classes=0"),
        (("linear", 3), {}, "feature_map is a str"),
        ((phi, 3), {"target_labels": "maybe"}, "labels='maybe' is unknown"),
        ((phi, 3), {"eps": -1}, "eps=-1"),
        ((phi, 3), {"label_kernel": "flat"}, "label_kernel='flat' is unknown"),
        ((phi, 3), {"target_labels": "soft", "label_bandwidth": 2.0}, "do not apply to soft labels"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            ConditionalKernelBures(*arguments, **options)


# ------------------------------------------------------------------------------------------------------ two processes


def share_and_compute(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    try:
        x_s, y_s, x_t, _, p_t = problem(offset=100.0)
        metric = ConditionalKernelBures(bures.NystroemMap.fit(x_s, x_t, n_landmarks=20), K, target_labels="soft")
        metric.update(z_s=x_s[rank::world], y_s=y_s[rank::world])
        if rank == 0:  # the other has no target samples at all
            metric.update(z_t=x_t, y_t=p_t)
        total = float(metric.compute())
        own = metric.moments("source").n_samples  # synchronised for the computation only
        metric.sync()
        together = metric.moments("source").n_samples
        metric.unsync()
        torch.save({"total": total, "own": own, "together": together}, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available() or sys.platform == "win32", reason="needs gloo")
def test_two_processes_have_the_distance_of_one(tmp_path):
    mp.spawn(share_and_compute, args=(2, str(tmp_path)), nprocs=2)
    x_s, y_s, x_t, _, p_t = problem(offset=100.0)
    expected = of_moments(bures.NystroemMap.fit(x_s, x_t, n_landmarks=20), x_s, y_s, x_t, p_t)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["total"] == pytest.approx(expected, abs=1e-10)
        assert (found["own"], found["together"]) == ((51, 50)[rank], 101)


def test_without_torchmetrics_the_remedy_is_named(monkeypatch):
    real = builtins.__import__

    def without_torchmetrics(name, *arguments, **options):
        if name.partition(".")[0] == "torchmetrics":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "bures.integrations.torchmetrics")
    monkeypatch.setattr(builtins, "__import__", without_torchmetrics)
    with pytest.raises(ImportError, match=r"needs torchmetrics; .*pip install 'bures\[torchmetrics\]'"):
        importlib.import_module("bures.integrations.torchmetrics")


def test_it_is_drawn_like_other_metrics():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    x_s, y_s, x_t, y_t, _ = problem()
    metric = in_batches(ConditionalKernelBures(bures.NystroemMap.fit(x_s, x_t, n_landmarks=20), K), x_s, y_s, x_t, y_t)
    figure, axes = metric.plot()
    assert axes.get_lines()[0].get_ydata()[0] == pytest.approx(float(metric.compute()))
    assert metric.plot([metric.compute()] * 3, ax=axes)[1] is axes
    matplotlib.pyplot.close(figure)
