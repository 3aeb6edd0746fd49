"""Options that are True or False take nothing else: the text "no" counts as true wherever it is asked."""

import numpy as np
import pytest
import torch

import bures
from bures import data, estimators, experiments, methods, networks, selection, testing, training
from bures.arrays import check_flags

X, Y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2
DIGITS = "digits.npz"
OPTIONS = {
    "unbiased of mmd": lambda value: bures.mmd(X, X, unbiased=value),
    "unbiased": lambda value: bures.MMDLoss(unbiased=value),
    "cuda_graphs": lambda value: bures.CKBLoss(cuda_graphs=value),
    "cuda_graphs of ckw": lambda value: bures.CKWLoss(cuda_graphs=value),
    "label_shift": lambda value: methods.make_method("ckb+mmd", label_shift=value),
    "trains_on_target": lambda value: methods.Method("own", trains_on_target=value),
    "adapts_batchnorm": lambda value: methods.Method("own", adapts_batchnorm=value),
    "freeze_affine": lambda value: networks.freeze_batchnorm(torch.nn.BatchNorm1d(2), freeze_affine=value),
    "download of backbone": lambda value: networks.backbone("resnet18", download=value),
    "download of build_network": lambda value: networks.build_network("resnet18", 2, download=value),
    **{
        name: lambda value, name=name: training.adapt(None, None, training.Recipe(), "nowhere", **{name: value})
        for name in ("partial", "resume", "sync_batchnorm", "progress", "keep_files")
    },
    "partial of refresh_samples": lambda value: training.refresh_samples("nowhere", None, None, partial=value),
    "best": lambda value: training.load_model("nowhere", best=value),
    **{
        name: lambda value, name=name: data.load_domain(DIGITS, **{name: value})
        for name in ("train", "download", "strict", "labels")
    },
    "labels of read_features": lambda value: data.read_features(DIGITS, labels=value),
    "strict of image_folder": lambda value: data.image_folder("nowhere", strict=value),
    "train of mnist": lambda value: data.mnist("nowhere", train=value),
    "download of usps": lambda value: data.usps("nowhere", download=value),
    "partial of align_classes": lambda value: data.align_classes(None, None, partial=value),
    "per_class": lambda value: testing.conditional_test(X, Y, X, Y, per_class=value),
    "standardise": lambda value: estimators.CKBClassifier(standardise=value).fit_source_target(X, Y, X),
    "prune": lambda value: experiments.tune(None, None, None, None, "nowhere", prune=value),
    "holdout": lambda value: selection.validator_names(holdout=value),
}


@pytest.mark.parametrize("value", ["no", "yes", 0, 1.0], ids=repr)
@pytest.mark.parametrize("option", OPTIONS)
def test_nothing_else_is_taken_for_a_truth_value(option, value):
    name = option.split()[0]
    with pytest.raises(TypeError, match=rf"{name}={value!r} is no truth value; accepted are True and False$"):
        OPTIONS[option](value)


def test_numpy_has_truth_values_too():
    check_flags(a=True, b=np.True_, c=np.bool_(0))
    with pytest.raises(TypeError, match="b=None is no truth value"):
        check_flags(a=True, b=None)
