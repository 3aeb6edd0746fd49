"""Moments over processes of torch.distributed are those of one process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import bures

K = 3


def problem():
    rng = np.random.default_rng(0)
    y_s, y_t = rng.integers(K, size=101), rng.integers(K, size=90)
    x_s, x_t = rng.normal(size=(101, 4)) + y_s[:, None], 1.5 * rng.normal(size=(90, 4)) + y_t[:, None]
    return x_s, y_s, x_t, rng.dirichlet(np.ones(K), size=90), bures.NystroemMap.fit(x_s, x_t, n_landmarks=20)


def both_moments(rank, world, precision):
    """The share of one process: source labels hard, target labels soft; the last process has no target samples."""
    x_s, y_s, x_t, p_t, phi = problem()
    m_s = bures.ConditionalMoments(phi, K, precision=precision)
    m_t = bures.ConditionalMoments(phi, K, precision=precision, labels="soft")
    rows_t = np.arange(90) if world == 1 else np.array_split(np.arange(90), world - 1)[min(rank, world - 2)]
    if world == 1 or rank < world - 1:
        m_t.update(x_t[rows_t], p_t[rows_t])
    rows_s = np.arange(rank, 101, world)
    return m_s.update(x_s[rows_s], y_s[rows_s]), m_t


def joined(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)


def distances(m_s, m_t):
    return {metric: m_s.measure(m_t, metric).squared_distance for metric in ("ckb", "ckw", "kernel_bures", "mmd")}


def reduce_and_measure(rank, world, folder):
    joined(rank, world, folder)
    try:
        found = {}
        for precision in ("float64", "mixed"):
            m_s, m_t = both_moments(rank, world, precision)
            assert m_s.all_reduce() is m_s
            m_t.all_reduce()
            found[precision] = {**distances(m_s, m_t), "samples": (m_s.n_samples, m_t.n_samples, m_t.n_weighted)}
        half = dist.new_group([0, 1])
        if rank < 2:
            found["of two"] = both_moments(rank, world, "float64")[0].all_reduce(half).n_samples
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def disagree(rank, world, folder):
    joined(rank, world, folder)
    try:
        x_s, y_s, *_, phi = problem()
        m = bures.ConditionalMoments(phi, K + rank).update(x_s, y_s)
        try:
            m.all_reduce()
        except ValueError as error:
            torch.save({"error": str(error), "samples": m.n_samples}, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def run(function, world, folder):
    mp.spawn(function, args=(world, str(folder)), nprocs=world)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


pytestmark = pytest.mark.skipif(not dist.is_available() or sys.platform == "win32", reason="needs gloo")


@pytest.mark.parametrize("world", [2, 4])
def test_every_process_has_the_distances_of_one_process(world, tmp_path):
    found = run(reduce_and_measure, world, tmp_path)
    for precision, tolerance in (("float64", 1e-10), ("mixed", 1e-6)):
        m_s, m_t = both_moments(0, 1, precision)
        expected = distances(m_s, m_t)
        for result in found:
            assert result[precision]["samples"] == (101, 90, 90)
            for metric, value in expected.items():
                assert abs(result[precision][metric] - value) <= tolerance
    assert found[0]["of two"] == found[1]["of two"] == sum(len(range(rank, 101, world)) for rank in (0, 1))


def test_unlike_moments_are_an_error_in_every_process(tmp_path):
    for result in run(disagree, 2, tmp_path):
        assert "process 1 holds moments with n_classes=4, process 0 with 3" in result["error"]
        assert result["samples"] == 101
