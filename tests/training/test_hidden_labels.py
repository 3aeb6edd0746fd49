"""Target labels cannot reach training: changing them changes nothing, and no object of a step leads to them."""

import gc
import types

import pytest
import torch
from small_runs import CLASSES, SMALL, adapt, pictures, vectors
from torch import Tensor

from bures.data import Domain, HiddenLabels, TensorSamples
from bures.training import AdaptationModule, Evaluator, PairData, Recipe, Step

pytestmark = pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")


def relabelled(target, labels):
    return Domain(target.name, target.samples, target.class_names, labels)


@pytest.mark.parametrize("method", ["ckb", "ckb+mmd", "source+adabn"])
def test_other_target_labels_change_no_weight(method, tmp_path):
    source, target = pictures(56, seed=1), pictures(50, seed=2, shift=30)
    variants = {
        "true": target.labels,
        "permuted": target.labels[torch.randperm(50, generator=torch.Generator().manual_seed(0))],
        "wrong": (target.labels + 1) % 4,
        "one": torch.zeros(50, dtype=torch.int64),
        "none": None,
    }
    recipe = Recipe(**SMALL, method=method, network="lenet")
    runs = {
        name: adapt(source, relabelled(target, labels), recipe, tmp_path / name) for name, labels in variants.items()
    }
    for file in ("model.safetensors", "best.safetensors", "predictions.csv"):
        assert len({(run.path / file).read_bytes() for run in runs.values()}) == 1
    assert runs["true"].accuracy != runs["wrong"].accuracy
    assert runs["none"].accuracy is None
    scores = [[row["target_score"] for row in run.manifest["epochs"]] for run in runs.values()]
    assert all(score == scores[0] for score in scores)


def test_the_data_of_training_refuse_a_target_with_labels():
    source, target = vectors(20, seed=1), vectors(20, seed=2)
    with pytest.raises(ValueError, match=r"target has labels, which training must not see; pass target.hide_labels"):
        PairData(source, target, Recipe(batch_size=4))
    masked, _ = target.hide_labels()
    with pytest.raises(ValueError, match="source 'vectors' is unlabelled; training needs its labels"):
        PairData(masked, masked, Recipe(batch_size=4))
    step = next(iter(PairData(source, masked, Recipe(batch_size=4)).train_dataloader()))
    assert step._fields == Step._fields == ("number", "x_s", "y_s", "x_t")


SKIPPED = (types.ModuleType, types.FunctionType, types.FrameType, types.BuiltinFunctionType, types.CodeType, type)


def reachable(roots, *, closed=()):
    """Everything that can be reached from some objects, without passing through those of the ``closed`` kinds.

    Functions, classes and modules are not entered: through their globals all of Python can be reached.
    """
    found, waiting = {}, list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in found or isinstance(item, (SKIPPED, closed)):
            continue
        found[id(item)] = item
        waiting += gc.get_referents(item)
        waiting += list(getattr(item, "__dict__", {}).values())
        if isinstance(item, Tensor) and item._base is not None:
            waiting.append(item._base)
        if isinstance(item, types.MethodType):
            waiting.append(item.__self__)
    return list(found.values())


def holds(items, labels):
    """Whether one of the items is these labels."""
    wanted = labels.tolist()

    def same(item):
        if isinstance(item, Tensor):
            return item.numel() == len(wanted) and item.dim() <= 2 and item.flatten().tolist() == wanted
        return isinstance(item, (list, tuple)) and len(item) == len(wanted) and list(item) == wanted

    return any(same(item) for item in items)


@pytest.mark.parametrize("separate", [False, True])
def test_nothing_that_a_step_can_reach_leads_to_the_labels(separate, tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(5)

    def unlike(n, seed):
        return relabelled(vectors(n, seed=seed), torch.randint(4, (n,), generator=generator))

    source, target = vectors(56, seed=1), unlike(50, 2)
    evaluation = unlike(45, 3) if separate else None
    seen = []
    original = AdaptationModule.training_step

    def look(module, step, number):
        if step.number == 4:
            roots = [module, module.trainer.datamodule, step]
            open_labels = reachable(roots, closed=(Evaluator,))
            everything = reachable(roots)
            seen.append((open_labels, everything))
        return original(module, step, number)

    monkeypatch.setattr(AdaptationModule, "training_step", look)
    adapt(source, target, Recipe(**SMALL, method="ckb"), tmp_path / "run", evaluation=evaluation)
    ((open_labels, everything),) = seen
    hidden = target if evaluation is None else evaluation
    assert len(open_labels) > 1000  # the walk is a walk
    assert holds(open_labels, source.labels)
    assert not any(isinstance(item, HiddenLabels) for item in open_labels)
    assert not holds(open_labels, target.labels)
    assert not holds(open_labels, hidden.labels)
    # With the evaluator the walk does find them: it looks in the right way.
    evaluators = [item for item in everything if isinstance(item, HiddenLabels)]
    assert any(holds(gc.get_referents(item), hidden.labels) for item in evaluators)


def test_domains_are_left_as_they_were(tmp_path):
    source, target = vectors(56, seed=1), vectors(50, seed=2)
    before = [(domain.samples.tensor.clone(), domain.labels.clone()) for domain in (source, target)]
    adapt(source, target, Recipe(**SMALL), tmp_path / "run")
    for domain, (samples, labels) in zip((source, target), before, strict=True):
        assert torch.equal(domain.samples.tensor, samples)
        assert torch.equal(domain.labels, labels)


def test_an_evaluator_hands_out_no_labels():
    target = Domain("there", TensorSamples(torch.eye(4)), CLASSES, [0, 1, 2, 3])
    masked, hidden = target.hide_labels()
    evaluator = Evaluator(masked, hidden, masked, None)
    assert evaluator.has_labels
    for name in dir(evaluator):
        if name.startswith("_"):
            continue
        assert not isinstance(getattr(evaluator, name), HiddenLabels)
    with pytest.raises(ValueError, match="hidden holds 4 labels but domain has 2 samples"):
        Evaluator(masked.take([0, 1]), hidden, masked, None)
