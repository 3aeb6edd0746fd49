"""Steps that are made past the trainer's hooks are those that the trainer would make."""

import pytest
import torch
from small_runs import vectors

from bures.training import Recipe, Step, _step_graphs
from bures.training._step_graphs import STEPS_BEFORE_CAPTURE, Outcome, StepGraphs, _backward


def test_gradients_of_a_step_in_mixed_precision_keep_the_precision_of_each_operation():
    x = torch.randn(40, 40, generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = (x.double() @ x.double().T).square().sum()
    (expected,) = torch.autograd.grad(exact, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):  # as distances are computed
            loss = (x @ x.T).square().sum()
        _backward(loss)
    torch.testing.assert_close(x.grad, expected, rtol=1e-5, atol=1e-3)


def test_a_graph_serves_for_one_set_of_sizes():
    seen = []

    class Noting(StepGraphs):
        def _capture(self, key, step, weights):
            seen.append(key)
            self.capture = False

    weight = torch.ones(1, requires_grad=True)

    def compute(step, weights):
        return Outcome(weight.sum(), ("loss",), 1, weight.detach())

    graphs = Noting(compute, [weight], capture=True)
    step = Step(0, torch.zeros(2, 1), torch.zeros(2), torch.zeros(2, 1))
    for size in (0, 2, 4, 6):
        graphs.backward(step, {}, (size,))
    assert seen == []  # a queue that grows is never the same
    for _ in range(3):
        graphs.backward(step, {}, (6,))
    assert [key[1] for key in seen] == [(6,)]


def test_a_capture_that_fails_without_a_word_leaves_the_steps_as_they_are(monkeypatch):
    def fails(*arguments):
        raise RuntimeError

    monkeypatch.setattr(_step_graphs, "_StepGraph", fails)
    weight = torch.ones(1, requires_grad=True)
    graphs = StepGraphs(
        lambda step, weights: Outcome(weight.sum(), ("loss",), 1, weight.detach()), [weight], capture=True
    )
    step = Step(0, torch.zeros(2, 1), torch.zeros(2), torch.zeros(2, 1))
    for _ in range(STEPS_BEFORE_CAPTURE):
        graphs.backward(step, {})
        weight.grad = None
    with pytest.warns(UserWarning, match="without CUDA graphs, their capture failed: RuntimeError"):
        graphs.backward(step, {})
    assert not graphs.capture
    assert weight.grad == 1


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_direct_steps_are_those_of_the_trainer(precision, tmp_path):
    import lightning as L

    from bures.training import AdaptationModule, PairData, assemble
    from bures.training._quiet import quiet

    source, target = vectors(32, seed=1, name="s"), vectors(24, seed=2, name="t", shift=1).hide_labels()[0]
    recipe = Recipe(
        method="ckw", network="identity", batch_size=8, queue=16, epochs=1, epoch=6, hidden=16, features=8,
        precision=precision, optimiser="sgd", lr=0.05, gradient_clip=1.0,
    )  # fmt: skip
    weights = []
    for direct in (False, True):
        data = PairData(source, target, recipe)
        _, network, inputs = assemble(recipe, source.n_classes, tuple(source.samples.shape))
        method = recipe.build_method()
        method.setup(8, source.n_classes)
        module = AdaptationModule(network, method, inputs, recipe, 6, 6, direct=direct)
        with quiet():
            trainer = L.Trainer(
                accelerator="cpu", devices=1, max_epochs=1, precision=precision, logger=False,
                use_distributed_sampler=False, enable_checkpointing=False, enable_model_summary=False,
                enable_progress_bar=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
            )  # fmt: skip
            trainer.fit(module, datamodule=data)
        weights.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-6, atol=1e-7)
