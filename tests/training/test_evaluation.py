"""Predictions and label-free scores, against closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import pictures, vectors

from bures.data import TensorSamples
from bures.selection import make_validator
from bures.training import Evaluator, Recipe, assemble, effective_classes, information, predict_samples
from bures.training._prediction import batches, with_target_statistics


def network_for(domain, **changes):
    recipe = Recipe(**{"hidden": 8, "features": 4, "batch_size": 4, **changes})
    _, network, inputs = assemble(recipe, domain.n_classes, domain.samples.shape)
    return network, inputs


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=1, max_size=20))
def test_information_is_the_mean_divergence_from_the_mean_prediction(rows):
    p = torch.tensor(rows, dtype=torch.float64)
    p = p / p.sum(dim=1, keepdim=True)
    divergence = (p * (p / p.mean(dim=0)).log()).sum(dim=1).mean()
    assert information(p) == pytest.approx(float(divergence), abs=1e-9)
    assert -1e-9 <= information(p) <= math.log(3) + 1e-9


@pytest.mark.parametrize(("counts", "expected"), [([5, 5], 2.0), ([8, 0], 1.0), ([3, 3, 3, 0], 3.0), ([9, 1], None)])
def test_effective_classes_counts_equally_frequent_classes(counts, expected):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    if expected is None:
        expected = math.exp(-0.9 * math.log(0.9) - 0.1 * math.log(0.1))
    assert effective_classes(torch.eye(len(counts))[labels]) == pytest.approx(expected, abs=1e-5)


def test_predictions_are_those_of_the_network_in_evaluation_mode_whatever_the_batch():
    domain = pictures(23, seed=1)
    network, inputs = network_for(domain, network="lenet")
    network(inputs.evaluation(domain.samples.tensor))  # statistics of its own
    network.backbone.eval()
    expected = network.predict_proba(inputs.evaluation(domain.samples.tensor))
    for batch_size in (1, 7, 23, 512):
        found = predict_samples(network, domain.samples, inputs, batch_size=batch_size)
        torch.testing.assert_close(found.probabilities, expected)
        assert found.features.shape == (23, 4)
    assert network.head.training
    assert not network.backbone.training


def test_batches_are_all_samples_in_order_and_no_batch_of_one_at_the_end():
    domain = vectors(9, seed=1)
    device = torch.device("cpu")
    assert [len(x) for x in batches(domain.samples, device, 4)] == [4, 4, 1]
    joined = list(batches(domain.samples, device, 4, join_last=True))
    assert [len(x) for x in joined] == [4, 5]
    assert torch.equal(torch.cat(joined), domain.samples.tensor)
    assert [len(x) for x in batches(domain.samples, device, 8, join_last=True)] == [9]


def test_batches_of_large_images_are_smaller():
    device = torch.device("cpu")
    photographs = TensorSamples(torch.zeros(100, 3, 256, 256, dtype=torch.uint8))
    assert [len(x) for x in batches(photographs, device, None)] == [85, 15]  # 2^24 numbers
    assert [len(x) for x in batches(photographs, device, 90)] == [90, 10]
    assert [len(x) for x in batches(TensorSamples(torch.zeros(600, 4)), device, None)] == [512, 88]


def test_target_statistics_are_those_of_all_samples_and_the_network_is_left_alone():
    domain = vectors(513, seed=1, shift=2.0)  # a batch of 512 and one more
    network, inputs = network_for(domain)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    adapted = with_target_statistics(network, domain.samples, inputs)
    layers = adapted.head.bottleneck
    with torch.no_grad():
        a = layers[1](layers[0](domain.samples.tensor))
    torch.testing.assert_close(layers[2].running_mean, a.mean(0))
    torch.testing.assert_close(layers[2].running_var, a.var(0))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_an_evaluator_scores_against_the_hidden_labels():
    domain = vectors(20, seed=1)
    network, inputs = network_for(domain)
    masked, hidden = domain.hide_labels()
    evaluator = Evaluator(masked, hidden, masked, inputs)
    evaluation = evaluator.evaluate(network)
    p = evaluation.predictions.probabilities
    assert evaluation.accuracy == float((p.argmax(1) == domain.labels).double().mean())
    assert evaluation.score == information(p)
    assert int(evaluator.confusion(evaluation.predictions).sum()) == 20
    blind = Evaluator(masked, None, masked, inputs)
    assert blind.evaluate(network).accuracy is None
    assert blind.confusion(evaluation.predictions) is None
    assert not blind.has_labels


def test_a_network_without_batchnorm_is_evaluated_as_it_is():
    domain = vectors(20, seed=1)
    network, inputs = network_for(domain, head="linear")
    evaluator = Evaluator(domain.hide_labels()[0], None, domain.hide_labels()[0], inputs)
    assert evaluator.adapted(network, "target") is network


@pytest.mark.parametrize("validators", [("im",), ("ckw", "dev")])
def test_a_fixed_backbone_is_passed_once_and_nothing_else_changes(validators, monkeypatch):
    source, target = pictures(24, seed=1), pictures(24, seed=2)
    held = pictures(12, seed=3)
    network, inputs = network_for(source, network="lenet", norm="group")
    masked, hidden = target.hide_labels()
    made = [make_validator(name) for name in validators]
    evaluator = Evaluator(masked, hidden, masked, inputs, validators=made, source=source, validation=held)
    passes = []
    network.backbone.register_forward_hook(lambda layer, inputs, output: passes.append(len(output)))
    found = evaluator.evaluate(network, "target")
    assert sum(passes) == (24 if validators == ("im",) else 24 + 24 + 12)
    with monkeypatch.context() as patch:
        patch.setattr("bures.training._evaluation.is_backbone_fixed", lambda network: False)
        passes.clear()
        expected = evaluator.evaluate(network, "target")
        assert sum(passes) > 24
    torch.testing.assert_close(tuple(found.predictions), tuple(expected.predictions))
    assert found.accuracy == expected.accuracy
    assert found.scores == pytest.approx(expected.scores, rel=1e-4)
    torch.testing.assert_close(tuple(evaluator.predict(network, "target")), tuple(expected.predictions))


def test_rows_of_a_backbone_that_are_not_finite_are_left_to_the_training():
    target = pictures(24, seed=2)
    network, inputs = network_for(target, network="lenet", norm="none")
    with torch.no_grad():
        next(network.backbone.parameters()).fill_(math.nan)
    found = Evaluator(target.hide_labels()[0], None, target.hide_labels()[0], inputs).evaluate(network, "target")
    assert math.isnan(found.score)
