"""A user's default device and dtype (`torch.set_default_device`, `torch.set_default_dtype`) change no result."""

import numpy as np
import pytest
import torch
from small_runs import SMALL, adapt, pictures, vectors

import bures
from bures import selection
from bures.training import Recipe, load_model

RNG = np.random.default_rng(0)
YS, YT = np.arange(30) % 3, np.arange(24) % 3
XS, XT = RNG.normal(size=(30, 4)) + YS[:, None], RNG.normal(size=(24, 4)) + YT[:, None] + 1
PS, PT = RNG.dirichlet(np.ones(3), 30), RNG.dirichlet(np.ones(3), 24)


def moments(feature_map):
    s, t = (bures.ConditionalMoments(feature_map, 3).update(x, y) for x, y in ((XS, YS), (XT, YT)))
    return s.ckw(t)


def nystroem(landmarks):
    return bures.NystroemMap.fit(XS, XT, n_landmarks=10, landmarks=landmarks)


CALLS = {
    "ckb": lambda: bures.ckb(XS, YS, XT, PT),
    "explain": lambda: bures.explain(XS, YS, XT, YT).interval,
    "conditional_test": lambda: bures.conditional_test(XS, YS, XT, YT, n_permutations=20).p_value,
    "marginal_test": lambda: bures.marginal_test(XS, XT, n_permutations=20).p_value,
    "shift_report": lambda: bures.shift_report(XS, YS, XT, YT, n_permutations=20).to_json(),
    "NystroemMap": lambda: moments(nystroem("uniform")),
    "NystroemMap, pivoted": lambda: moments(nystroem("pivoted-cholesky")),
    "RandomFourierMap": lambda: moments(bures.RandomFourierMap.fit(XS, XT, n_features=20)),
    "neighbourhood_density": lambda: selection.neighbourhood_density(PT),
    "negative_ckb": lambda: selection.negative_ckb(XS, YS, XT, PT),
    "negative_ckw": lambda: selection.negative_ckw(XS, YS, XT, PT),
    "negative_dev": lambda: selection.negative_dev(XS, XT, XS[:9], PS[:9], YS[:9]),
    "negative_iwcv": lambda: selection.negative_iwcv(XS, XT, XS[:9], PS[:9], YS[:9]),
    "importance_weights": lambda: selection.importance_weights(XS, XT, XS[:9]).tolist(),
    "CKBAdapter": lambda: bures.CKBAdapter().fit_source_target(XS, YS, XT).transform(XS).tolist(),
    "CKBClassifier": lambda: bures.CKBClassifier(epochs=2).fit_source_target(XS, YS, XT).predict_proba(XT).tolist(),
}


@pytest.fixture(params=["device", "dtype"])
def others(request):
    """Sets another default; the device has no memory, so that what is made there by mistake cannot be used."""

    def set_them():
        if request.param == "device":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(torch.float64)

    yield set_them
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same(name, others):
    expected = CALLS[name]()
    others()
    assert CALLS[name]() == expected


@pytest.mark.parametrize("method", ["ckb", "cdan", "ckw-running"])
@pytest.mark.parametrize(("make", "network"), [(vectors, "identity"), (pictures, "lenet")])
def test_trainings_are_the_same(method, make, network, others, tmp_path):
    source, target = make(32, seed=0), make(32, seed=1)
    recipe = Recipe(method=method, network=network, augment="affine" if network == "lenet" else "none", **SMALL)

    def trained(name):
        model = adapt(source, target, recipe=recipe, output=tmp_path / name).model()
        again = load_model(tmp_path / name).predict(target)
        assert again.probabilities.equal(model.predict(target).probabilities)
        return again.probabilities, model.network.state_dict()

    expected, weights = trained("usual")
    others()
    found, others_weights = trained("other")
    assert found.equal(expected)
    assert all(value.equal(weights[name]) for name, value in others_weights.items())


def test_the_users_defaults_are_back_afterwards(others):
    others()
    before = torch.empty(0).device, torch.get_default_dtype()
    bures.CKBClassifier(epochs=1).fit_source_target(XS, YS, XT)
    bures.marginal_test(XS, XT, n_permutations=20)
    assert (torch.empty(0).device, torch.get_default_dtype()) == before
