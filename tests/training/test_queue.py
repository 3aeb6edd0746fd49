"""Samples of earlier steps in the alignment, and predictions of two views that agree."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from small_runs import pictures, vectors

from bures.methods import Batch, Method, Schedule, Term, make_method
from bures.training import AdaptationModule, FeatureQueue, Recipe, Step, assemble


def batch(seed, n=6, m=5):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, requires_grad=True)

    y_s = torch.randint(4, (n,), generator=generator)
    return Batch(normal(n, 3), normal(n, 4), y_s, normal(m, 3), normal(m, 4))


def test_a_queue_holds_the_last_samples_of_each_domain_without_their_gradients():
    queue, steps = FeatureQueue(8), [batch(seed) for seed in range(4)]
    joined = [queue.join(step) for step in steps]
    assert [len(part) for part in joined[0]] == [6, 6, 6, 5, 5]
    for name in Batch._fields:
        earlier = torch.cat([getattr(steps[2], name), getattr(steps[1], name)])[:8]
        torch.testing.assert_close(getattr(joined[3], name), torch.cat([getattr(steps[3], name), earlier]))
    joined[3].z_s.sum().backward()
    assert steps[3].z_s.grad is not None
    assert steps[2].z_s.grad is None


def test_terms_that_compare_domains_see_the_queue_and_terms_on_predictions_do_not():
    method, current, queue = make_method("ckw", diversity=0.3), batch(1), FeatureQueue(20)
    queue.join(batch(0))
    joined = queue.join(current)
    values = method(current, 0.0, 1.0, joined).values
    alone, together = method(current, 0.0).values, method(joined, 0.0).values
    for name in ("ckb", "means"):
        torch.testing.assert_close(values[name], together[name])
        assert not torch.isclose(values[name], alone[name])
    for name in ("entropy", "diversity"):
        torch.testing.assert_close(values[name], alone[name])


@pytest.mark.parametrize("name", ["im", "mcc", "bnm", "ckw"])
def test_terms_on_many_predictions_see_the_queue_where_they_are_asked_to(name):
    options = {"diversity": 0.3, "confusion": 0.7, "neighbours": 0.2} if name in ("im", "ckw") else {}
    method, current, queue = make_method(name, **options), batch(1), FeatureQueue(20)
    queue.join(batch(0))
    joined = queue.join(current)
    values = method(current, 0.0, 1.0, joined, join_predictions=True).values
    alone, together = method(current, 0.0).values, method(joined, 0.0).values
    for term, value in values.items():
        expected = alone if term == "entropy" else together
        torch.testing.assert_close(value, expected[term])
        assert not torch.isclose(alone[term], together[term])


@pytest.mark.parametrize("name", ["im", "mcc"])
def test_a_queue_of_the_same_predictions_changes_neither_value_nor_gradient(name):
    method, current = make_method(name), batch(1)
    queue = FeatureQueue(20)
    for _ in range(3):
        queue.join(current)
    joined = queue.join(current)
    assert len(joined.logits_t) == 20
    found, expected = (method(current, 0.0, 1.0, *more, join_predictions=True).total for more in ((joined,), ()))
    torch.testing.assert_close(found, expected)
    found, expected = (torch.autograd.grad(total, current.logits_t)[0] for total in (found, expected))
    assert expected.norm() > 1e-3
    torch.testing.assert_close(found, expected)


def test_the_gradient_of_diversity_is_that_of_many_predictions_estimated_from_the_batch():
    method, current, queue = make_method("im", entropy=0.0, diversity=1.0), batch(1), FeatureQueue(50)
    for seed in range(5, 12):
        queue.join(batch(seed))
    joined = queue.join(current)
    (found,) = torch.autograd.grad(method(current, 0.0, 1.0, joined, join_predictions=True).total, current.logits_t)
    mean, own = joined.p_t.mean(dim=0).detach(), current.p_t.mean(dim=0)
    (expected,) = torch.autograd.grad(own @ (mean.log() + 1), current.logits_t)
    torch.testing.assert_close(found, expected)


def test_a_sample_is_drawn_to_its_neighbours_in_a_queue_with_the_weight_it_has_in_a_batch():
    method, current, queue = make_method("im", entropy=0.0, neighbours=1.0, n_neighbours=3), batch(1), FeatureQueue(50)
    for seed in range(5, 12):
        queue.join(batch(seed))
    joined = queue.join(current)
    (found,) = torch.autograd.grad(method(current, 0.0, 1.0, joined, join_predictions=True).total, current.logits_t)
    directions = F.normalize(joined.z_t.detach(), dim=1)
    expected = torch.zeros(())
    for i, p in enumerate(current.p_t):
        others = [j for j in (directions @ directions[i]).argsort(descending=True).tolist() if j != i][:3]
        expected = expected - (p @ joined.p_t[others].detach().T).mean() / len(current.p_t)
    torch.testing.assert_close(found, torch.autograd.grad(expected, current.logits_t)[0])


@pytest.mark.parametrize("name", ["ckb", "ckb+mmd", "ckw", "class-means", "dan"])
def test_with_the_full_gradient_a_queue_of_the_same_samples_changes_neither_value_nor_gradient(name):
    options = {"ckb+mmd": {"label_shift": False}, "dan": {"estimator": "biased"}}.get(name, {})
    method, current, queue = make_method(name, **options), batch(1, m=6), FeatureQueue(60)
    for _ in range(10):
        queue.join(current)
    joined = queue.join(current)
    assert [len(part) for part in joined] == [66] * 5
    seen = [part for part in current if part.requires_grad]

    def value_and_gradients(*more, full=False):
        objective = method(current, 0.0, 1.0, *more, full_gradient=full)
        value = sum(term for key, term in objective.values.items() if key != "entropy")
        return value, torch.autograd.grad(value, seen, allow_unused=True, materialize_grads=True)

    expected, expected_gradients = value_and_gradients()
    found, gradients = value_and_gradients(joined, full=True)
    without, small_gradients = value_and_gradients(joined)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found, without)
    assert max(float(gradient.norm()) for gradient in expected_gradients) > 1e-3
    for gradient, full, small in zip(gradients, expected_gradients, small_gradients, strict=True):
        torch.testing.assert_close(gradient, full, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(66 / 6 * small, gradient)  # what the rest of the queue would pull at is lost


class BothKinds(Term):
    """Compares domains and is on many predictions: where those join, its gradient is scaled up."""

    of_many_predictions = True

    def forward(self, batch):
        return batch.p_t.mean(dim=0).square().sum()


def test_a_term_of_both_kinds_has_its_gradient_scaled_up_where_predictions_join():
    method, current, queue = Method("both", [BothKinds("both", Schedule(1.0))]), batch(1), FeatureQueue(20)
    queue.join(batch(0))
    joined = queue.join(current)
    flags = {}, {"join_predictions": True}, {"full_gradient": True}
    gradients = [
        torch.autograd.grad(method(current, 0.0, 1.0, joined, **on).total, current.logits_t)[0] for on in flags
    ]
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, 2 * gradients[0])  # ten samples, of which five are new


def test_terms_on_single_predictions_are_left_alone_by_the_full_gradient():
    method, current, queue = make_method("im"), batch(1), FeatureQueue(20)
    queue.join(batch(0))
    joined = queue.join(current)
    found, expected = (method(current, 0.0, 1.0, *more, full_gradient=bool(more)).total for more in ((joined,), ()))
    torch.testing.assert_close(found, expected)
    found, expected = (torch.autograd.grad(total, current.logits_t)[0] for total in (found, expected))
    torch.testing.assert_close(found, expected)


def module_of(source, method="ckb", **changes):
    recipe = Recipe(method=method, hidden=8, features=4, batch_size=16, **changes)
    _, network, inputs = assemble(recipe, 4, source.samples.shape)
    return AdaptationModule(network, make_method(method), inputs, recipe, 1, 4)


def test_a_training_step_joins_the_samples_of_the_step_before():
    source, target = vectors(32, seed=1), vectors(32, seed=2, shift=1.0)
    x_s, x_t, y_s = source.samples.tensor, target.samples.tensor, source.labels
    module = module_of(source, queue=100, head="linear")
    network = module.network
    for number, rows in enumerate((slice(0, 16), slice(16, 32))):
        loss = module.training_step(Step(number, x_s[rows], y_s[rows], x_t[rows]), 0)
    (z_s, logits_s), (z_t, logits_t) = network(x_s), network(x_t)
    order = torch.arange(32).roll(16)
    expected = F.cross_entropy(logits_s[16:], y_s[16:])
    objective = make_method("ckb")(Batch(z_s[order], logits_s[order], y_s[order], z_t[order], logits_t[order]), 0.0)
    entropy = make_method("entropy")(Batch(z_s, logits_s, y_s, z_t[16:], logits_t[16:]), 0.0)
    torch.testing.assert_close(loss, expected + objective.values["ckb"] + entropy.total)


@pytest.mark.parametrize("joins", [False, True])
def test_a_training_step_joins_the_predictions_of_the_step_before_where_asked(joins):
    source, target = vectors(32, seed=1), vectors(32, seed=2, shift=1.0)
    x_s, x_t, y_s = source.samples.tensor, target.samples.tensor, source.labels
    module = module_of(source, "mcc", queue=100, queue_predictions=joins, head="linear")
    for number, rows in enumerate((slice(0, 16), slice(16, 32))):
        loss = module.training_step(Step(number, x_s[rows], y_s[rows], x_t[rows]), 0)
    (z_s, logits_s), (z_t, logits_t) = module.network(x_s), module.network(x_t)
    seen = slice(0 if joins else 16, 32)
    confusion = make_method("mcc")(Batch(z_s, logits_s, y_s, z_t[seen], logits_t[seen]), 0.0)
    torch.testing.assert_close(loss, F.cross_entropy(logits_s[16:], y_s[16:]) + confusion.total)


def test_a_training_step_takes_the_full_gradient_where_asked():
    source, target = vectors(32, seed=1), vectors(32, seed=2, shift=1.0)
    x_s, x_t, y_s = source.samples.tensor, target.samples.tensor, source.labels
    gradients = {}
    for full in (False, True):
        torch.manual_seed(0)
        module = module_of(source, "ckb-no-entropy", queue=100, queue_full_gradient=full)
        module.training_step(Step(0, x_s[:16], y_s[:16], x_t[:16]), 0)
        loss = module.training_step(Step(1, x_s[16:], y_s[16:], x_t[16:]), 0)
        objective = F.cross_entropy(module.network(x_s[16:]).logits, y_s[16:])
        parameters = list(module.network.parameters())
        grads = torch.autograd.grad(loss - objective, parameters, allow_unused=True, materialize_grads=True)
        gradients[full] = torch.cat([gradient.flatten() for gradient in grads])
    assert gradients[False].norm() > 1e-3
    # Of the 32 samples 16 are new.
    torch.testing.assert_close(gradients[True], 2 * gradients[False], rtol=1e-3, atol=1e-6)


def test_a_queue_survives_a_checkpoint():
    queue, again = FeatureQueue(8), FeatureQueue(8)
    queue.join(batch(0))
    again.load_state_dict(queue.state_dict(), torch.device("cpu"))
    for kept, expected in zip(again.join(batch(1)), queue.join(batch(1)), strict=True):
        torch.testing.assert_close(kept, expected)


def test_a_full_queue_stays_where_it_is_in_memory():
    queue = FeatureQueue(8)
    for seed in range(2):
        queue.join(batch(seed))
    places = [part.data_ptr() for part in queue._parts.values()]
    assert queue.sizes == (8,) * 5
    saved = queue.state_dict()
    before = {name: part.clone() for name, part in saved.items()}
    queue.join(batch(2))
    assert [part.data_ptr() for part in queue._parts.values()] == places
    for name, part in saved.items():  # what a checkpoint writes is not what the next step changes
        torch.testing.assert_close(part, before[name])
    again = FeatureQueue(8)
    again.load_state_dict(saved, torch.device("cpu"))
    again.join(batch(2))
    for name, part in saved.items():
        torch.testing.assert_close(part, before[name])


def test_the_gradient_through_a_joined_batch_survives_the_next_step():
    queue, first, second = FeatureQueue(6), batch(0), batch(1)
    queue.join(first)
    value = queue.join(second).z_s.square().sum()
    queue.join(batch(2))
    (found,) = torch.autograd.grad(value, second.z_s)
    torch.testing.assert_close(found, 2 * second.z_s)


def views_of_a_step(module, source, target):
    """What the network sees of the source and twice of the target in the step it makes."""
    views = []

    def looked_at(view, x, generator):
        views.append(view(x, generator))
        return views[-1]

    for name in ("training", "training_again"):
        object.__setattr__(module.inputs, name, partial(looked_at, getattr(module.inputs, name)))
    module.training_step(Step(0, source.samples.tensor, source.labels, target.samples.tensor), 0)
    return views


@pytest.mark.parametrize("second", [None, "strong-affine"])
def test_consistency_is_the_cross_entropy_between_two_views(second):
    source, target = pictures(16, seed=1), pictures(16, seed=2)
    module = module_of(
        source, network="lenet", norm="none", head="linear", augment="affine", consistency=0.7, second_view=second
    )
    views = views_of_a_step(module, source, target)
    assert len(views) == 3
    assert not torch.equal(views[1], views[2])
    first, second = (module.network(view).logits.log_softmax(dim=1) for view in views[1:])
    means = module.record.means()
    assert means["consistency"] == pytest.approx(-(first.exp() * second).sum(dim=1).mean().item(), rel=1e-5)
    total = means["cross_entropy"] + 0.5 * means["entropy"] + means["ckb"] + 0.7 * means["consistency"]
    assert means["loss"] == pytest.approx(total, rel=1e-5)


def test_consistency_counts_images_whose_first_view_is_certain():
    source, target = pictures(16, seed=1), pictures(16, seed=2)
    common = {"network": "lenet", "norm": "none", "head": "linear", "augment": "affine", "consistency": 1.0}
    views = views_of_a_step(module_of(source, **common), source, target)
    network = module_of(source, **common).network
    first, second = (network(view).logits.detach().log_softmax(dim=1) for view in views[1:])
    each = -(first.exp() * second).sum(dim=1)
    certainty = first.exp().amax(dim=1)
    threshold = float(certainty.sort().values[9:11].mean())  # between the tenth and the eleventh of sixteen
    module = module_of(source, **common, consistency_threshold=threshold)
    views_of_a_step(module, source, target)
    expected = each[certainty >= threshold].sum() / 16
    assert 0 < expected < each.mean()
    assert module.record.means()["consistency"] == pytest.approx(expected.item(), rel=1e-5)


def test_consistency_without_random_changes_is_refused():
    with pytest.raises(ValueError, match=r"consistency=0.5 compares two random changes .* augment='none'"):
        Recipe(consistency=0.5)
    assert Recipe(consistency=0.5, second_view="crop").second_view == "crop"  # the picture as it is, and changed


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"second_view": "crop"}, "second_view='crop' is for a consistency but consistency=0"),
        ({"consistency_threshold": 0.9}, "consistency_threshold=0.9 is for a consistency but consistency=0"),
        (
            {"consistency": 1, "augment": "crop", "consistency_threshold": 1.5},
            "consistency_threshold=1.5 is out of range",
        ),
        (
            {"consistency": 1, "augment": "crop", "consistency_threshold": "nan"},
            "consistency_threshold=nan is out of range",
        ),
        (
            {"consistency": 1, "augment": "crop", "second_view": "rainbow"},
            "second_view='rainbow' is unknown; .*crop-colour",
        ),
        ({"consistency": 1, "augment": "crop", "second_view": 3}, "second_view=3 is no text"),
    ],
)
def test_options_of_the_second_view_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


@pytest.mark.parametrize(
    ("fields", "side"),
    [
        ({"network": "resnet50", "image_size": 112}, 128),  # a window of 112 of each picture
        ({"network": "resnet50", "image_size": 112, "stored_size": 120}, 120),
        ({"network": "lenet", "image_size": 40}, 40),
        ({"network": "auto", "image_size": 28}, 28),
        ({"network": "auto", "image_size": 224}, 256),
        ({"network": "resnet50"}, None),
    ],
)
def test_images_are_read_at_the_size_that_training_stores(fields, side):
    assert Recipe(**fields).reading_size == side
