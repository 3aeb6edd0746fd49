"""Our loss and factory in skada's deep interface, beside a method of skada's own on the same data."""

from __future__ import annotations

import builtins
import doctest
import importlib
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from skada_peer import import_skada
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from torch import nn

import bures

skada = import_skada()
from skada.deep import DeepCoral  # noqa: E402 - it loads with the package, or not at all
from skada.deep.base import DomainAwareCriterion  # noqa: E402

from bures.integrations import skada as integration  # noqa: E402
from bures.integrations.skada import CKBLoss, DeepCKB  # noqa: E402

OPTIONS = {"batch_size": 32, "max_epochs": 12, "train_split": None, "verbose": 0, "lr": 0.2}


class Net(nn.Module):
    def __init__(self, probabilities=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 16), nn.ReLU())
        self.classifier = nn.Linear(16, 3)
        self.probabilities = probabilities

    def forward(self, X, sample_weight=None):
        logits = self.classifier(self.body(X))
        return logits.softmax(dim=1) if self.probabilities else logits


@pytest.fixture(scope="module")
def data():
    xs, ys, xt, yt = bures.data.drifting_class(96, drift=1.0)
    X = np.concatenate([xs, xt]).astype(np.float32)
    return X, np.concatenate([ys, np.full(96, -1)]), np.repeat([1, -2], 96), yt


def train(factory, data, **options):
    X, y, domain, yt = data
    torch.manual_seed(0)
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of skorch
        net = factory(Net(), layer_name="body", **{**OPTIONS, **options}).fit(X, y, sample_domain=domain)
        predicted = net.predict(X, sample_domain=domain)
    return net, (predicted == yt).mean()


def ckb_of(net, data):
    """The metric between the features of both domains, with the target's true labels."""
    X, y, domain, yt = data
    with torch.no_grad():
        z = net.module_.base_module_.body(torch.from_numpy(X)).double().numpy()
    z = z / z.std()
    return bures.ckb(z[domain > 0], y[domain > 0], z[domain < 0], yt)


def test_ours_and_theirs_train_through_the_same_interface(data):
    ours, accuracy = train(DeepCKB, data)
    theirs, theirs_accuracy = train(DeepCoral, data)
    assert type(ours) is type(theirs)
    for net, right in ((ours, accuracy), (theirs, theirs_accuracy)):
        losses = net.history[:, "train_loss"]
        assert losses[-1] < losses[0]
        assert right > 0.7
    without, _ = train(DeepCKB, data, reg=0.0)
    assert ckb_of(ours, data) < ckb_of(without, data)


def test_the_criterion_is_the_papers_objective():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(30, 5, generator=generator)
    logits, domain = torch.randn(30, 3, generator=generator), torch.tensor([1] * 16 + [-2] * 14)
    y = torch.cat([torch.arange(16) % 3, torch.full((14,), -1)])
    criterion = DomainAwareCriterion(nn.CrossEntropyLoss(), CKBLoss(0.25, eps=0.1), reg=2.0)
    found = criterion((logits, None, z, domain, None), y)
    p = logits[16:].softmax(dim=1)
    expected = nn.functional.cross_entropy(logits[:16], y[:16]) + 2 * (
        bures.ckb(z[:16], y[:16], z[16:], p, bandwidth="per-block", eps=0.1)
        + 0.25 * torch.distributions.Categorical(p).entropy().mean()
    )
    torch.testing.assert_close(found, expected)
    # Probabilities instead of logits, and labels in another integer dtype, say the same.
    same = CKBLoss(0.25, predictions="probabilities")
    call = {"features_s": z[:16], "features_t": z[16:]}
    torch.testing.assert_close(
        same(y_s=y[:16].int(), y_pred_t=p, **call), CKBLoss(0.25)(y_s=y[:16], y_pred_t=logits[16:], **call)
    )
    assert torch.isfinite(same(y_s=y[:16], y_pred_t=torch.eye(3)[torch.arange(14) % 3], **call))


def test_the_gradient_reaches_the_features_of_both_domains():
    generator = torch.Generator().manual_seed(0)
    z_s, z_t, logits = (
        torch.randn(*shape, generator=generator).requires_grad_() for shape in ((12, 4), (9, 4), (9, 3))
    )
    CKBLoss(0.5)(y_s=torch.arange(12) % 3, y_pred_t=logits, features_s=z_s, features_t=z_t).backward()
    assert all(float(part.grad.abs().max()) > 1e-6 for part in (z_s, z_t, logits))


def test_networks_that_give_probabilities_train(data):
    X, y, domain, _ = data
    torch.manual_seed(0)
    net = DeepCKB(
        Net(probabilities=True), "body", predictions="probabilities", base_criterion=nn.CrossEntropyLoss(), **OPTIONS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.fit(X, y, sample_domain=domain)
    assert np.isfinite(net.history[:, "train_loss"]).all()


def test_networks_can_be_cloned_and_pickled(data):
    X, _, domain, _ = data
    net, _ = train(DeepCKB, data, max_epochs=1)
    again = clone(net)
    assert again.get_params()["criterion__adapt_criterion"].entropy == 0.5
    copied = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(copied.predict(X, sample_domain=domain), net.predict(X, sample_domain=domain))


def test_skadas_splitters_and_scorers_take_the_network(data):
    X, y, domain, _ = data
    torch.manual_seed(0)
    net = DeepCKB(Net(), "body", **{**OPTIONS, "max_epochs": 2})
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scorer in (skada.metrics.PredictionEntropyScorer(), skada.metrics.DeepEmbeddedValidation()):
            found = cross_val_score(
                net, X, y, params={"sample_domain": domain}, scoring=scorer, error_score="raise",
                cv=skada.model_selection.StratifiedDomainShuffleSplit(n_splits=2, test_size=0.3, random_state=0),
            )  # fmt: skip
            assert np.isfinite(found).all()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"layer_name='neck' is no layer of module; accepted are body, body.0"):
        DeepCKB(Net(), "neck")
    with pytest.raises(ValueError, match=r"entropy=-1 is out of range"):
        CKBLoss(-1)
    with pytest.raises(TypeError, match=r"entropy='much' is not a number"):
        CKBLoss("much")
    with pytest.raises(ValueError, match=r"predictions='logit' is unknown"):
        DeepCKB(Net(), "body", predictions="logit")
    with pytest.raises(ValueError, match=r"eps=0.0 is out of range"):
        CKBLoss(eps=0)
    with pytest.raises(ValueError, match=r"built without layer_name"):
        CKBLoss()(y_s=torch.zeros(3), y_pred_t=torch.zeros(3, 2), features_s=None, features_t=None)
    z = torch.randn(6, 2)
    with pytest.raises(ValueError, match=r"class 5"):
        CKBLoss()(y_s=torch.full((6,), 5), y_pred_t=torch.zeros(6, 3), features_s=z, features_t=z)


def test_the_examples_of_the_docstrings_run():
    # Not collected with the others: importing skada changes a setting of scikit-learn for all.
    with config_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = doctest.testmod(integration, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.failed == 0
    assert found.attempted > 10


def test_without_skada_the_remedy_is_named(monkeypatch):
    real = builtins.__import__

    def without_skada(name, *arguments, **options):
        if name.partition(".")[0] == "skada":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "bures.integrations.skada")
    monkeypatch.setattr(builtins, "__import__", without_skada)
    with pytest.raises(ImportError, match=r"needs skada and skorch; .*pip install 'bures\[skada\]'"):
        importlib.import_module("bures.integrations.skada")
