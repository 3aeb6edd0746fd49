"""The label MMD of joint matching: class frequencies that differ are estimated, not forced upon the predictions."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

import bures
from bures.methods import Batch, make_method
from bures.shift._priors import class_weights


def draw_frequencies(rng, k):
    return torch.tensor(rng.dirichlet(np.full(k, 5.0)))


@pytest.mark.parametrize("seed", range(5))
def test_class_weights_recover_the_ratio_of_frequencies_from_any_classifier_that_errs_alike(seed):
    """q = C w holds exactly when classes are confused alike in both domains; the ridge is all that is left."""
    rng = np.random.default_rng(seed)
    source, target = draw_frequencies(rng, 6), draw_frequencies(rng, 6)
    confusion = 0.85 * torch.eye(6).double() + 0.15 * torch.tensor(rng.dirichlet(np.ones(6), size=6)).T
    weights = class_weights(confusion * source, confusion @ target)
    torch.testing.assert_close(weights, target / source, rtol=0.1, atol=0.1)
    assert float(weights @ source) == pytest.approx(1.0)


def test_predictions_that_carry_no_information_leave_the_weights_at_one():
    source = torch.tensor([0.7, 0.2, 0.1]).double()
    joint = torch.full((3, 1), 1 / 3).double() * source
    torch.testing.assert_close(class_weights(joint, torch.full((3,), 1 / 3).double()), torch.ones(3).double())


def test_weights_are_never_negative_and_always_finite():
    joint = torch.diag(torch.tensor([0.98, 0.01, 0.01])).double()
    weights = class_weights(joint, torch.tensor([0.0, 1.0, 0.0]).double())
    assert bool((weights >= 0).all())
    assert bool(weights.isfinite().all())
    assert bool(class_weights(torch.zeros(3, 3).double(), torch.zeros(3).double()).isfinite().all())


def certain_batch(y_s, y_t, k):
    """A batch whose predictions are right and certain."""
    logits = [30.0 * one_hot(y, k).double() for y in (y_s, y_t)]
    return Batch(torch.zeros(len(y_s), 2).double(), logits[0], y_s, torch.zeros(len(y_t), 2).double(), logits[1])


def mmd_term(**options):
    return next(term for term in make_method("ckb+mmd", **options).terms if term.name == "mmd")


def test_right_predictions_under_label_shift_cost_nothing_only_where_the_shift_is_estimated():
    y_s, y_t = torch.arange(90) % 3, torch.cat([torch.zeros(60), torch.ones(15), torch.full((15,), 2)]).long()
    batch = certain_batch(y_s, y_t, 3)
    plain, aware = float(mmd_term(label_shift=False)(batch)), float(mmd_term(label_shift=True)(batch))
    assert plain == pytest.approx(bures.mmd(one_hot(y_s).double().numpy(), one_hot(y_t).double().numpy()), rel=1e-6)
    assert plain > 0.05
    assert aware < 1e-3


def test_the_plain_term_pulls_right_predictions_towards_the_sources_frequencies():
    """Of the class that is too frequent in the target, the gradient lowers the logits: right predictions are undone."""
    y_s, y_t = torch.arange(30) % 3, torch.cat([torch.zeros(20), torch.ones(5), torch.full((5,), 2)]).long()
    for label_shift, pulled in ((False, True), (True, False)):
        batch = certain_batch(y_s, y_t, 3)
        logits = (0.1 * batch.logits_t).requires_grad_()  # certain enough to be right, not enough to have no gradient
        value = mmd_term(label_shift=label_shift)(batch._replace(logits_t=logits))
        (gradient,) = torch.autograd.grad(value, logits)
        frequent = float(gradient[y_t == 0, 0].sum())  # positive: descent lowers the logit of the frequent class
        assert (frequent > 1e-3) == pulled


def test_frequencies_are_kept_over_batches_and_in_the_state():
    method = make_method("ckb+mmd")
    method.setup(2, 3)
    y = torch.arange(30) % 3
    for _ in range(3):
        method(certain_batch(y, y, 3), 0.0)
    state = method.state_dict()
    joint = next(value for name, value in state.items() if name.endswith("joint"))
    torch.testing.assert_close(joint, torch.eye(3).double() / 3, rtol=0, atol=1e-6)
    again = make_method("ckb+mmd")
    again.setup(2, 3)
    again.load_state_dict(state)


def test_a_source_batch_of_one_class_that_the_target_lacks_is_no_end():
    batch = certain_batch(torch.zeros(8, dtype=torch.int64), torch.ones(8, dtype=torch.int64), 3)
    value = mmd_term(label_shift=True)(batch)
    assert bool(value.isfinite())
