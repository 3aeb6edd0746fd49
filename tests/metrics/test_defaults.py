"""What an option is when it is not given, as the documentation says, and that every argument is looked at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bures

RNG = np.random.default_rng(0)
XS, XT = RNG.normal(size=(9, 2)), RNG.normal(size=(8, 2)) * 2
YS, YT = np.arange(9) % 3, np.arange(8) % 3

KERNEL = {"kernel": "gaussian", "bandwidth": "shared"}
CONDITIONAL = {**KERNEL, "label_kernel": "gaussian", "label_bandwidth": "mean", "eps": 1e-2, "method": "auto"}
EQUAL = {"sample_weight_s": np.ones(9), "sample_weight_t": np.ones(8)}


@pytest.mark.parametrize(
    ("metric", "data", "options"),
    [
        (bures.ckb, (XS, YS, XT, YT), CONDITIONAL | EQUAL | {"conditioning": "hard"}),
        (bures.ckw, (XS, YS, XT, YT), CONDITIONAL | EQUAL | {"conditioning": "hard"}),
        (bures.kernel_bures, (XS, XT), KERNEL | EQUAL),
        (bures.mmd, (XS, XT), KERNEL | EQUAL | {"unbiased": False}),
        (bures.bures, (XS, XT), EQUAL),
    ],
)
def test_defaults_are_those_that_are_documented(metric, data, options):
    expected = metric(*data, **options)
    assert metric(*data) == pytest.approx(expected, rel=1e-12)
    for name, other in (("eps", 2e-2), ("bandwidth", 1.0), ("label_bandwidth", 0.5)):  # each of them matters
        if name in options:
            assert metric(*data, **options | {name: other}) != pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weight", ["sample_weight_s", "sample_weight_t"])
@pytest.mark.parametrize("metric", [bures.ckb, bures.ckw, bures.kernel_bures, bures.mmd, bures.bures])
def test_weights_come_from_the_library_of_the_features(metric, weight):
    data = (XS, YS, XT, YT) if metric in (bures.ckb, bures.ckw) else (XS, XT)
    other = torch.as_tensor(EQUAL[weight])
    with pytest.raises(TypeError, match=weight):
        metric(*data, **{weight: other})
