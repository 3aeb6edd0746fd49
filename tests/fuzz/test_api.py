"""The campaign over the public names: it is complete, it finds what is broken, and a short one finds nothing."""

import pytest

from bures.methods import make_method
from tests.fuzz import targets  # noqa: F401
from tests.fuzz.campaign import TARGETS, run_campaign, target
from tests.fuzz.coverage import EXEMPT, covered_names, public_names
from tests.fuzz.targets_losses import methods_with_a_loss, own_methods


def test_every_public_name_has_a_target_or_a_reason():
    names = set(public_names())
    assert sorted(names - covered_names() - set(EXEMPT)) == []
    assert sorted((covered_names() | set(EXEMPT)) - names) == []
    assert sorted(covered_names() & set(EXEMPT)) == []


def test_every_method_is_a_loss_or_trains_by_itself():
    rest = set(own_methods()) - set(methods_with_a_loss())
    assert {"ckb", "cdan", "source"} <= set(methods_with_a_loss())
    assert all(make_method(name).owns_training for name in rest)


@pytest.fixture
def broken():
    """Targets that do what must not be done."""

    @target("nothing")
    def returns_nan(case):
        case.finite(float("nan"))

    @target("nothing")
    def crashes(case):
        case.call(lambda: [][case.whole(1, 9)], names=("x",))

    @target("nothing")
    def says_nothing(case):
        case.call(int, "word", names=("number_of_words",), fault="text")

    @target("nothing")
    def refuses_what_is_right(case):
        case.call(int, "x", names=("invalid",))

    @target("nothing")
    def refuses_well(case):
        case.call(int, "x", names=("invalid",), fault="text")

    names = ["returns_nan", "crashes", "says_nothing", "refuses_what_is_right", "refuses_well"]
    yield names
    for name in names:
        del TARGETS[name]


def test_what_must_not_happen_is_found(broken):
    found = run_campaign(10, 0, only=broken)
    errors = {failure["target"]: (failure["error"], failure["message"]) for failure in found["failures"]}
    assert set(errors) == set(broken) - {"refuses_well"}
    assert "not finite" in errors["returns_nan"][1]
    assert errors["crashes"][0] == "IndexError"
    assert "names no argument" in errors["says_nothing"][1]
    assert "nothing is wrong" in errors["refuses_what_is_right"][1]
    assert found["refused"] >= 2


def test_a_campaign_follows_from_its_seed():
    first, second = (run_campaign(6, 5, only=["bures_covariance"]) for _ in range(2))
    assert (first["cases"], first["refused"]) == (second["cases"], second["refused"])
