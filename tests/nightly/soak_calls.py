"""A million small distances without growth in memory or file handles.

They take the time they take, an hour or two on one core; ``BURES_SOAK_MINUTES`` ends them earlier, and the figures say
how many it really were. `soak` is the same for training: each has a section and a file of figures of its own, so that
one can be run again without the other.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings

import numpy as np
import torch

import bures
from tests.nightly import _gauge

NAME = "calls of ckb"
CALLS = 1_000_000
SAID = 10_000  # calls after which a line says how far it is
ALLOWED = 4.0  # MiB between the beginning and the end: five bytes that each call leaves behind are more


def run(quick: bool, seed: int) -> dict:
    minutes = 2 / 60 if quick else float(os.environ.get(_gauge.MINUTES, "inf"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gauge, found = calls(400 if quick else CALLS, 60 * minutes, seed)
    told = {} if quick else _gauge.command("soak_calls", seed)
    failures = [f"{NAME}: {fault}" for fault in gauge.faults(ALLOWED)]
    return told | {"failures": failures, NAME: found | gauge.figures()}


def calls(count: int, seconds: float, seed: int) -> tuple[_gauge.Gauge, dict]:
    """Small distances, half of them of torch tensors and with a gradient."""
    rng, gauge = np.random.default_rng(seed), _gauge.Gauge()
    problems = []
    for _ in range(16):
        n, m = rng.integers(8, 16, size=2)
        xs, xt = rng.normal(size=(n, 3)), rng.normal(size=(m, 3)) + 0.5
        problems.append((xs, np.arange(n) % 3, xt, np.arange(m) % 3))
    tensors = [tuple(map(torch.as_tensor, problem)) for problem in problems]
    every, total, done, end = min(2000, count // 10), 0.0, 0, time.monotonic() + seconds
    for number, which in zip(range(count), itertools.cycle(range(16)), strict=False):
        if number % 2:
            xs, ys, xt, yt = tensors[which]
            xs = xs.clone().requires_grad_()
            bures.ckb(xs, ys, xt, yt).backward()
            total += float(xs.grad.sum())
        else:
            total += bures.ckb(*problems[which])
        done = number + 1
        if done % every == 0:
            gauge.read()
            if done % SAID == 0:
                print(f"{done:,} calls, {gauge.seconds:.0f} s, {gauge.memory[-1]:.1f} MiB", file=sys.stderr, flush=True)
            if time.monotonic() >= end and done >= 10 * every:
                break
    return gauge, {"calls": done, "asked": count, "sum": total}
