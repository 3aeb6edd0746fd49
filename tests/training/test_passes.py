"""Forward passes of training steps: shared by the domains where nothing depends on the batch, compiled on demand."""

import pytest
import torch

from bures.networks import build_network, freeze_batchnorm
from bures.training import _passes
from bures.training._passes import Passes


def resnet(*, frozen):
    network = build_network("resnet18", 3, hidden=6, features=5, seed=0).double().train()
    if frozen:
        freeze_batchnorm(network.backbone)
    return network


def images(seed):
    return torch.rand(4, 3, 40, 40, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("count", [2, 3])
def test_batches_are_what_they_are_one_by_one(frozen, count):
    batches = [factor * images(factor) for factor in range(1, count + 1)]
    together, apart = resnet(frozen=frozen), resnet(frozen=frozen)
    sizes = []
    together.backbone.register_forward_hook(lambda layer, inputs, output: sizes.append(len(inputs[0])))
    found = Passes(together).each(*batches)
    expected = [apart(x) for x in batches]
    torch.testing.assert_close(found, expected)
    # BatchNorm that follows the batches must see one domain at a time.
    assert sizes == ([4 * count] if frozen else [4] * count)
    for outputs in (found, expected):
        sum(output.logits.square().sum() for output in outputs).backward()
    for (name, one), (_, other) in zip(together.named_parameters(), apart.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=1e-10, msg=name)
    torch.testing.assert_close(together.state_dict(), apart.state_dict())


def test_domains_of_two_sizes_pass_one_by_one():
    network = resnet(frozen=True)
    x_s, x_t = images(1), images(2)[..., :33, :33]
    torch.testing.assert_close(Passes(network).each(x_s, x_t)[1], network(x_t))


def test_feature_vectors_are_not_copied_for_a_shared_pass():
    network = build_network("identity", 3, in_features=4, head="linear")
    assert not Passes(network).shares_backbone


def test_a_compiled_backbone_gives_the_same(monkeypatch):
    monkeypatch.setattr(_passes, "_worth_compiling", lambda x: True)
    monkeypatch.setattr(torch, "compile", lambda body, **options: body)  # what is folded and laid out, uncompiled
    network = resnet(frozen=True)
    x = images(1)
    passes = Passes(network, compiled=True)
    torch.testing.assert_close(passes.one(x), network(x))
    assert passes.compiled


def test_a_backbone_that_cannot_be_compiled_runs_as_it_is(monkeypatch):
    def no_compiler(body, **options):
        def fail(x):
            raise RuntimeError("no C compiler\nlong advice")

        return fail

    monkeypatch.setattr(_passes, "_worth_compiling", lambda x: True)
    monkeypatch.setattr(torch, "compile", no_compiler)
    network, x = resnet(frozen=True), images(1)
    passes = Passes(network, compiled=True)
    with pytest.warns(UserWarning, match=r"could not be compiled and runs as it is \(RuntimeError: no C compiler\)"):
        found = passes.one(x)
    torch.testing.assert_close(found, network(x))
    torch.testing.assert_close(passes.one(x), network(x))  # and it is not tried again


def test_errors_of_later_steps_are_not_taken_for_those_of_the_compiler(monkeypatch):
    monkeypatch.setattr(_passes, "_worth_compiling", lambda x: True)
    monkeypatch.setattr(torch, "compile", lambda body, **options: body)
    passes = Passes(resnet(frozen=True), compiled=True)
    passes.one(images(1))
    with pytest.raises(RuntimeError):
        passes.one(images(1)[:, :2])
