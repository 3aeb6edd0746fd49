"""Moments over Dask chunks: the distance of one process, on a real cluster, even when a worker dies."""

from __future__ import annotations

import builtins
import importlib
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import bures

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
da = pytest.importorskip("dask.array")

from bures.integrations.dask import ckb, conditional_moments  # noqa: E402

K = 3
RNG = np.random.default_rng(0)
YS, YT = RNG.integers(K, size=400), RNG.integers(K, size=330)
XS, XT = RNG.normal(size=(400, 4)) + YS[:, None], 1.5 * RNG.normal(size=(330, 4)) + YT[:, None]
PT = RNG.dirichlet(np.ones(K), size=330)
PHI = bures.NystroemMap.fit(XS, XT, n_landmarks=40)


def chunked(x, rows):
    return da.from_array(x, chunks=(rows, *x.shape[1:]))


def one_process(y_t=YT):
    m_s, m_t = (
        bures.ConditionalMoments(PHI, K, labels="hard" if y.ndim == 1 else "soft").update(x, y)
        for x, y in ((XS, YS), (XT, y_t))
    )
    return m_s.ckb(m_t)


@pytest.mark.parametrize("rows", [400, 50, 7])
@pytest.mark.parametrize("y_t", [YT, PT], ids=["hard", "soft"])
def test_the_distance_is_that_of_one_process(rows, y_t):
    with dask.config.set(scheduler="threads"):
        value = ckb(chunked(XS, rows), chunked(YS, 60), chunked(XT, rows), y_t, feature_map=PHI)
    assert isinstance(value, float)
    assert abs(value - one_process(y_t)) <= 1e-10


def test_columns_in_several_chunks_and_chunks_of_unknown_size_are_taken():
    x = da.from_array(XS, chunks=(50, 2))
    rows, labels = chunked(XT, 50), chunked(YT, 50)
    keep = rows[:, 0] > 0
    with dask.config.set(scheduler="threads"):
        m_s = conditional_moments(x, YS, PHI, K)
        m_t = conditional_moments(rows[keep], labels[keep], PHI, K)  # how many rows are left is not known
        with pytest.raises(ValueError, match=r"unknown size beside y in memory; call x.compute_chunk_sizes"):
            conditional_moments(rows[keep], YT[XT[:, 0] > 0], PHI, K)
    mask = XT[:, 0] > 0
    expected = bures.ConditionalMoments(PHI, K).update(XT[mask], YT[mask])
    assert m_t.n_samples == mask.sum()
    whole = bures.ConditionalMoments(PHI, K).update(XS, YS)
    assert abs(m_s.ckb(m_t) - whole.ckb(expected)) <= 1e-10


def test_without_a_map_one_is_fitted_on_a_sample_of_both():
    with dask.config.set(scheduler="threads"):
        arguments = chunked(XS, 50), YS, chunked(XT, 50), YT
        value = ckb(*arguments, n_landmarks=730, n_sample=1000)
        assert abs(value - bures.ckb(XS, YS, XT, YT)) <= 1e-8
        first, again, other = (ckb(*arguments, n_landmarks=60, n_sample=100, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert abs(first - value) < 0.05


BAD = {
    "in memory": ({"x_s": XS}, TypeError, r"x_s is a ndarray .*accepted is a dask array"),
    "a vector": ({"x_t": chunked(YT, 50)}, TypeError, r"x_t is a Array .*\(n, d\)"),
    "fewer labels": ({"y_t": YT[:-1]}, ValueError, r"y_t has 329 labels but x_t has 330 samples"),
    "classes": ({"n_classes": 2}, ValueError, r"block \d of x_[st]: chunk 0, rows 0 to 49 .*y contains class 2"),
    "precision": ({"precision": "half"}, ValueError, r"precision='half' is unknown"),
    "names": ({"y_s": YS.astype(str), "y_t": YT.astype(str)}, ValueError, r"y_s is a Array .*accepted are integers"),
    "no landmarks": ({"feature_map": None, "n_sample": 5, "n_landmarks": 50}, ValueError, r"n_landmarks=50 is more"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    changes, error, message = BAD[case]
    arguments = {"x_s": chunked(XS, 50), "y_s": YS, "x_t": chunked(XT, 50), "y_t": YT, "feature_map": PHI, **changes}
    with dask.config.set(scheduler="threads"), pytest.raises(error, match=message):
        ckb(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": -1.0}, "eps=-1.0"),
        ({"label_kernel": "flat"}, "label_kernel='flat' is unknown"),
        ({"label_bandwidth": "median"}, "label_bandwidth='median' is unknown"),
        ({"y_t": PT, "label_bandwidth": 2.0}, "do not apply to soft labels"),
    ],
)
def test_bad_options_are_refused_before_any_chunk_is_read(options, message):
    read = []
    x_s = chunked(XS, 50).map_blocks(lambda block: read.append(len(block)) or block, meta=np.empty((0, 4)))
    arguments = {"x_s": x_s, "y_s": YS, "x_t": chunked(XT, 50), "y_t": YT, "feature_map": PHI, **options}
    with dask.config.set(scheduler="threads"), pytest.raises(ValueError, match=message):
        ckb(**arguments)
    assert not read


def test_a_bad_block_is_named():
    broken = XS.copy()
    broken[130] = np.nan
    with dask.config.set(scheduler="threads"), pytest.raises(ValueError, match=r"block 2 of x: .*first: row 30"):
        conditional_moments(chunked(broken, 50), YS, PHI, K)


def test_without_dask_the_remedy_is_named(monkeypatch):
    real = builtins.__import__

    def without_dask(name, *arguments, **options):
        if name.partition(".")[0] == "dask":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "bures.integrations.dask")
    monkeypatch.setattr(builtins, "__import__", without_dask)
    with pytest.raises(ImportError, match=r"pip install 'bures\[dask\]'"):
        importlib.import_module("bures.integrations.dask")


# ---------------------------------------------------------------------------------------------- a real cluster


@pytest.fixture(scope="module")
def client():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def slowly(block, folder, block_info=None):
    """Leave a mark of who computed which block, and take a while."""
    number = block_info[0]["chunk-location"][0]
    (folder / f"{number}-{os.getpid()}").touch()
    time.sleep(0.05)
    return block


def slow_array(x, rows, folder):
    return chunked(x, rows).map_blocks(slowly, folder, dtype=x.dtype, meta=np.empty((0, x.shape[1])))


def blocks_done(folder):
    """The processes that computed each block."""
    done = {}
    for path in folder.iterdir():
        number, pid = path.name.split("-")
        done.setdefault(int(number), set()).add(int(pid))
    return done


def test_two_worker_processes_share_the_chunks(client, tmp_path):
    value = ckb(slow_array(XS, 25, tmp_path), YS, chunked(XT, 40), YT, feature_map=PHI)
    assert abs(value - one_process()) <= 1e-10
    workers = set(client.run(os.getpid).values())
    assert len(workers) == 2
    assert set().union(*blocks_done(tmp_path).values()) == workers


def test_a_killed_worker_changes_nothing(client, tmp_path):
    victim = next(iter(client.run(os.getpid).values()))
    results = []
    x_s = slow_array(XS, 10, tmp_path)
    thread = threading.Thread(target=lambda: results.append(ckb(x_s, YS, chunked(XT, 40), YT, feature_map=PHI)))
    thread.start()
    deadline = time.monotonic() + 60
    while sum(victim in pids for pids in blocks_done(tmp_path).values()) < 3:
        assert time.monotonic() < deadline, "the worker never started"
        time.sleep(0.01)
    os.kill(victim, signal.SIGKILL)
    before = len(blocks_done(tmp_path))
    thread.join(timeout=60)
    assert before < 40, "the worker was killed midway"
    assert results, "the computation ended"
    assert abs(results[0] - one_process()) <= 1e-10
    again = [number for number, pids in blocks_done(tmp_path).items() if victim in pids and len(pids) > 1]
    assert again, "blocks of the killed worker were computed again elsewhere"
