"""What holds for every deep method: finite where formulas break, wide in mixed precision, told what it was given."""

import copy
import pickle
import sys

import pytest
import torch
from small_batches import DEEP, degenerate_batches, random_batch, ready, ready_for

from bures.methods import make_method, method_info, method_names, method_options

DEGENERATE = list(degenerate_batches())


def gradients(objective, batch):
    inputs = [batch.z_s, batch.z_t, batch.logits_s, batch.logits_t]
    return torch.autograd.grad(objective.total, inputs, allow_unused=True)


def test_all_of_them_are_known():
    assert set(DEEP) <= set(method_names())


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("name", DEEP)
def test_value_and_gradient_are_finite_on_degenerate_batches(name, case):
    batch = degenerate_batches()[case]
    method = ready_for(name, batch)
    objective = method(batch, epoch=2.0)
    assert len(objective.values) == len(method.terms)
    assert objective.total.dtype == torch.float32
    for value in objective.values.values():
        assert bool(value.isfinite())
    found = [gradient for gradient in gradients(objective, batch) if gradient is not None]
    assert found
    for gradient in found:
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", DEEP)
def test_mixed_precision_computes_the_terms_in_float32(name):
    exact = random_batch(dtype=torch.float32)
    wanted = ready_for(name, exact)(exact, 2.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ready_for(name, exact)(exact, 2.0)
    for term, value in wanted.values.items():
        assert found.values[term].dtype == torch.float32
        torch.testing.assert_close(found.values[term], value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in DEEP if name not in ("mcc", "bnm")])
def test_the_alignment_reaches_features_of_both_domains(name):
    batch = random_batch()
    for gradient in gradients(ready_for(name, batch)(batch, 2.0), batch)[:2]:
        assert float(gradient.abs().max()) > 1e-9


@pytest.mark.parametrize("name", ["mcc", "bnm"])
def test_methods_on_predictions_see_those_of_the_target_alone(name):
    batch = random_batch()
    to_s, to_t, to_logits_s, to_logits_t = gradients(ready_for(name, batch)(batch, 2.0), batch)
    assert to_s is to_t is to_logits_s is None
    assert float(to_logits_t.abs().max()) > 1e-9


@pytest.mark.parametrize("name", ["dan", "deep-coral", "jan", "kgot"])
def test_marginal_distances_vanish_for_equal_domains_and_are_symmetric(name):
    batch = random_batch(20, 20)
    turned = batch._replace(z_s=batch.z_t, z_t=batch.z_s, logits_s=batch.logits_t, logits_t=batch.logits_s)
    same = batch._replace(z_t=batch.z_s, logits_t=batch.logits_s)
    # Kernel Bures takes a nuclear norm from traces: its rounding is that of a difference of numbers around one.
    assert make_method(name)(same, 0.0).total.item() == pytest.approx(0, abs=1e-9)
    value = make_method(name)(batch, 0.0).total.item()
    assert value > 1e-3
    assert make_method(name)(turned, 0.0).total.item() == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("name", DEEP)
def test_weight_and_start_do_what_they_say(name):
    batch = random_batch()
    assert "entropy" not in method_options(name) or name == "etd"
    once, twice = (ready_for(name, batch, weight=weight)(batch, 9.0) for weight in (1.0, 2.0))
    for term in set(once.weights) - {"entropy", "discrimination"}:
        assert twice.weights[term] == pytest.approx(2 * once.weights[term])
        assert twice.values[term].item() == pytest.approx(once.values[term].item())
    late = ready_for(name, batch, start=5.0)
    assert set(late(batch, 4.9).values) <= {"entropy", "discrimination"}
    assert set(late(batch, 5.1).values) == set(once.values)


@pytest.mark.parametrize("name", ["dann", "cdan", "cdan+e", "jan", "dsan"])
def test_published_ramps_go_over_the_whole_training_or_over_epochs(name):
    batch = random_batch()

    def weight(epoch, progress, **options):
        return next(iter(ready_for(name, batch, **options)(batch, epoch, progress).weights.values()), 0.0)

    assert weight(0.0, 0.0) == 0.0
    assert weight(3.0, 0.1) == pytest.approx(2 / (1 + 2.718281828459045**-1) - 1)
    assert weight(3.0, 1.0) == pytest.approx(1.0, abs=1e-4)
    assert weight(3.0, 0.9, ramp=30.0) == pytest.approx(weight(3.0, 0.1))
    assert weight(3.0, 0.0, ramp=0.0) == 1.0


@pytest.mark.parametrize("name", DEEP)
def test_methods_can_be_copied_and_pickled(name):
    batch = random_batch(dtype=torch.float32)
    method = ready_for(name, batch)
    others = copy.deepcopy(method), pickle.loads(pickle.dumps(method))
    value = method(batch, 2.0).total.item()
    for other in others:
        assert other(batch, 2.0).total.item() == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dan", {"estimator": "cubic"}, r"estimator='cubic' is unknown; accepted are 'biased', 'unbiased', 'linear'"),
        ("dan", {"multiples": []}, r"multiples=\[\] is empty or text; accepted are positive numbers"),
        ("dsan", {"multiples": [1.0, -1.0]}, r"multiples=-1.0 is out of range; accepted is a positive number"),
        ("jan", {"multiples": "wide"}, "multiples='wide' is empty or text"),
        ("dann", {"hidden": 0}, r"hidden=0.0 is out of range"),
        ("cdan", {"dropout": 1.0}, r"dropout=1.0 is out of range; accepted is 0 to below 1"),
        ("cdan+e", {"largest": -1}, r"largest=-1.0 is out of range"),
        ("deepjdot", {"alpha": -1.0}, r"alpha=-1.0 is out of range; accepted are numbers from 0 up"),
        ("deepjdot", {"lambda_t": float("nan")}, r"lambda_t=nan is out of range"),
        ("etd", {"reg": 0.0}, r"reg=0.0 is out of range; accepted is a positive number"),
        ("mcc", {"temperature": -2.0}, r"temperature=-2.0 is out of range"),
        ("kgot", {"bandwidth": "per-block"}, r"bandwidth='per-block' is unknown; accepted are 'shared', 'median'"),
        ("bnm", {"weight": -1.0}, r"value=-1.0 is out of range"),
        ("dmp", {"entropy": 1.0}, r"method 'dmp' has no option 'entropy'; accepted are: weight, discrimination"),
    ],
)
def test_options_out_of_range_are_refused_by_name(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_method(name, **options)


@pytest.mark.parametrize("name", ["deepjdot", "etd"])
def test_without_pot_the_error_names_the_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(ImportError, match=rf"method '{name}' needs POT; .* pip install \"bures\[ot\]\""):
        make_method(name)
    assert method_info(name).requires == "ot"  # and it is listed all the same


def test_the_number_of_samples_of_the_domains_may_differ():
    for name in DEEP:
        batch = random_batch(9, 30)
        assert bool(ready(name, 24, 3)(batch, 2.0).total.isfinite())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", DEEP)
def test_methods_stay_on_a_gpu_and_agree_with_the_cpu(name):
    batch = random_batch()
    method = ready_for(name, batch)
    there = copy.deepcopy(method).cuda()
    moved = type(batch)(*(part.detach().cuda().requires_grad_(part.is_floating_point()) for part in batch))
    here, found = method(batch, 2.0), there(moved, 2.0)
    assert found.total.is_cuda
    torch.testing.assert_close(found.total.cpu(), here.total, rtol=1e-6, atol=1e-9)
    for one, other in zip(gradients(found, moved), gradients(here, batch), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", DEEP)
def test_features_that_are_not_finite_give_an_error_or_a_loss_that_is_not(name):
    """The trainer turns both into an error that names the step; a finite loss would go on with broken weights."""
    batch = random_batch(dtype=torch.float32)
    method = ready_for(name, batch)
    broken = batch._replace(z_t=batch.z_t.detach() * torch.nan, logits_t=batch.logits_t.detach() * torch.nan)
    try:
        total = method(broken, 2.0).total
    except (ValueError, RuntimeError):
        return
    assert not bool(total.isfinite())
