"""The promises on precision, on ResNet-50 features of Office-Caltech10.

Set BURES_DATA to a folder that holds ``office10/resnet50.npz`` (keys ``<domain>_x`` and ``<domain>_y``); the tests
skip without it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import bures

FILE = Path(os.environ.get("BURES_DATA", os.devnull)) / "office10" / "resnet50.npz"
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="BURES_DATA names no folder with office10/resnet50.npz")

PAIRS = [("amazon", "webcam"), ("dslr", "webcam")]
each_pair = pytest.mark.parametrize("pair", PAIRS, ids="-".join)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
SELF_DISTANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


class Domain(NamedTuple):
    x: Tensor
    y: Tensor

    def to(self, dtype: torch.dtype) -> Domain:
        return Domain(self.x.to(dtype), self.y)


@pytest.fixture(scope="module")
def domains() -> dict[str, Domain]:
    """At most 160 samples of each domain, in an order that mixes the classes."""
    rng = np.random.default_rng(0)
    result = {}
    with np.load(FILE) as data:
        for name in ("amazon", "dslr", "webcam"):
            x, y = data[f"{name}_x"], data[f"{name}_y"]
            chosen = rng.permutation(len(x))[:160]
            result[name] = Domain(
                torch.as_tensor(x[chosen].astype(np.float32)), torch.as_tensor(y[chosen].astype(np.int64))
            )
    return result


def terms(source: Domain, target: Domain, **options: object) -> bures.Explanation:
    return bures.explain(*source, *target, n_permutations=0, n_bootstrap=0, **options)


@each_pair
@pytest.mark.parametrize("bandwidth", ["shared", "per-block"])
def test_float32_is_within_1e_4_of_float64(domains, pair, bandwidth):
    source, target = (domains[name] for name in pair)
    reference = terms(source.to(torch.float64), target.to(torch.float64), bandwidth=bandwidth)
    value = bures.ckb(*source, *target, bandwidth=bandwidth)
    assert value.dtype == torch.float32
    assert abs(value.item() - reference.squared_distance) <= 1e-4 * (reference.trace_s + reference.trace_t)


@both_dtypes
@pytest.mark.parametrize("name", ["amazon", "dslr", "webcam"])
@pytest.mark.parametrize("eps", [1e-4, 1e-2])
def test_self_distance_is_rounding(domains, name, eps, dtype):
    domain = domains[name].to(dtype)
    result = terms(domain, domain, eps=eps)
    assert abs(result.squared_distance) <= SELF_DISTANCE[dtype] * (result.trace_s + result.trace_t)


@both_dtypes
@each_pair
@pytest.mark.parametrize("loss", [bures.CKBLoss, bures.CKWLoss], ids=["CKBLoss", "CKWLoss"])
def test_gradient_is_finite_and_agrees_with_a_finite_difference(domains, pair, loss, dtype):
    source, target = (domains[name].to(dtype) for name in pair)
    p_t = torch.nn.functional.one_hot(target.y, 10).to(dtype)
    leaf = target.x.clone().requires_grad_()
    criterion = loss(bandwidth=1e3)  # fixed: the rules are constants of the graph and would enter a difference
    criterion(*source, leaf, p_t).backward()
    assert bool(leaf.grad.isfinite().all())
    if dtype == torch.float64:
        step = 1e-4 * leaf.grad / leaf.grad.norm()
        ahead, back = (criterion(*source, target.x + sign * step, p_t).item() for sign in (1, -1))
        assert (ahead - back) / 2e-4 == pytest.approx(leaf.grad.norm().item(), rel=1e-4)


def test_dslr_and_webcam_are_closer_than_amazon_and_dslr(domains):
    # Both pairs are measured with one kernel, or the numbers could not be compared.
    pooled = torch.cat([domain.x for domain in domains.values()]).double()
    sigma2 = 2 * pooled.var(dim=0, correction=0).sum().item()
    office = {name: domain.to(torch.float64) for name, domain in domains.items()}
    near = bures.ckw(*office["dslr"], *office["webcam"], bandwidth=sigma2)
    far = bures.ckw(*office["amazon"], *office["dslr"], bandwidth=sigma2)
    assert near.item() < far.item()
    shared = [bures.ckw(*office[s], *office[t]).item() for s, t in (("dslr", "webcam"), ("amazon", "dslr"))]
    assert shared[0] < shared[1]


@each_pair
@pytest.mark.parametrize("metric", [bures.ckb, bures.ckw], ids=["ckb", "ckw"])
def test_hard_classes_and_one_hot_rows_agree(domains, pair, metric):
    source, target = (domains[name].to(torch.float64) for name in pair)
    rows_s, rows_t = (torch.nn.functional.one_hot(domain.y, 10).double() for domain in (source, target))
    hard = metric(*source, *target).item()
    assert metric(source.x, rows_s, target.x, rows_t).item() == pytest.approx(hard, rel=1e-11)
    assert metric(source.x, source.y, target.x, rows_t).item() == pytest.approx(hard, rel=1e-11)


@each_pair
def test_a_shift_between_real_domains_is_above_its_null_level(domains, pair):
    source, target = (domains[name] for name in pair)
    result = bures.explain(*source, *target, n_permutations=10, n_bootstrap=0)
    assert result.squared_distance > result.null_95
