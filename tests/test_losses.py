"""The losses are the functions with the paper's training defaults; what is a constant and what has a gradient."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, softmax

import bures

N, M, D, K = 24, 20, 6, 3
CONDITIONAL = [bures.CKBLoss, bures.CKWLoss]
MARGINAL = [bures.KernelBuresLoss, bures.BuresLoss, bures.MMDLoss]
EVERY = [*CONDITIONAL, *MARGINAL]


def name_of(loss: type[nn.Module]) -> str:
    return loss.__name__


def batch(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z_s, z_t, logits = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((N, D), (M, D), (M, K))
    )
    return z_s.to(dtype), torch.arange(N) % K, 1.5 * z_t.to(dtype), softmax(2 * logits, dim=1).to(dtype)


def arguments(loss: type[nn.Module], z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> tuple[Tensor, ...]:
    return (z_s, y_s, z_t, p_t) if loss in CONDITIONAL else (z_s, z_t)


@pytest.mark.parametrize(
    ("loss", "function"),
    [
        (bures.CKBLoss(), lambda s, y, t, p: bures.ckb(s, y, t, p, bandwidth="per-block")),
        (bures.CKBLoss(bandwidth="shared", eps=0.1), lambda s, y, t, p: bures.ckb(s, y, t, p, eps=0.1)),
        (
            bures.CKBLoss(bandwidth="median", eps="auto"),
            lambda s, y, t, p: bures.ckb(s, y, t, p, bandwidth="median", eps="auto"),
        ),
        (
            bures.CKBLoss(bandwidth=3.0, label_bandwidth="median"),
            lambda s, y, t, p: bures.ckb(s, y, t, p, bandwidth=3.0, label_bandwidth="median"),
        ),
        (
            bures.CKBLoss(pseudo_labels="hard"),
            lambda s, y, t, p: bures.ckb(s, y, t, p.argmax(1), bandwidth="per-block"),
        ),
        (
            bures.CKBLoss(kernel="laplacian", label_kernel="linear"),
            lambda s, y, t, p: bures.ckb(s, y, t, p, bandwidth="per-block", kernel="laplacian", label_kernel="linear"),
        ),
        (
            bures.CKBLoss(prior="uniform"),
            lambda s, y, t, p: bures.ckb(s, y, t, p, bandwidth="per-block", prior="uniform"),
        ),
        (bures.CKWLoss(), lambda s, y, t, p: bures.ckw(s, y, t, p)),
        (
            bures.CKWLoss(pseudo_labels="hard", bandwidth=2.0),
            lambda s, y, t, p: bures.ckw(s, y, t, p.argmax(1), bandwidth=2.0),
        ),
        (bures.MMDLoss(), lambda s, y, t, p: bures.mmd(one_hot(y, K).double(), p)),
        (
            bures.MMDLoss(unbiased=True, bandwidth="median"),
            lambda s, y, t, p: bures.mmd(one_hot(y, K).double(), p, unbiased=True, bandwidth="median"),
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, nn.Module) else "",
)
def test_loss_over_labels_is_the_function(loss, function):
    z_s, y_s, z_t, p_t = batch()
    value = loss(z_s, y_s, z_t, p_t)
    assert value.shape == ()
    assert value.item() == pytest.approx(function(z_s, y_s, z_t, p_t).item(), rel=1e-12)
    assert value.item() != 0


@pytest.mark.parametrize(
    ("loss", "function"),
    [
        (bures.KernelBuresLoss(), lambda s, t: bures.kernel_bures(s, t, bandwidth="per-block")),
        (
            bures.KernelBuresLoss(kernel="laplacian", bandwidth="shared"),
            lambda s, t: bures.kernel_bures(s, t, kernel="laplacian"),
        ),
        (bures.BuresLoss(), bures.bures),
        (bures.MMDLoss(), bures.mmd),
        (bures.MMDLoss(unbiased=True, bandwidth=2.0), lambda s, t: bures.mmd(s, t, unbiased=True, bandwidth=2.0)),
    ],
    ids=lambda value: repr(value) if isinstance(value, nn.Module) else "",
)
def test_loss_over_features_is_the_function(loss, function):
    z_s, _, z_t, _ = batch()
    assert loss(z_s, z_t).item() == pytest.approx(function(z_s, z_t).item(), rel=1e-12)


def test_defaults_are_those_of_the_papers_training():
    assert bures.CKBLoss().options["bandwidth"] == bures.KernelBuresLoss().options["bandwidth"] == "per-block"
    assert bures.CKWLoss().options["bandwidth"] == bures.MMDLoss().options["bandwidth"] == "shared"
    assert bures.CKBLoss().pseudo_labels == bures.CKWLoss().pseudo_labels == "soft"
    for loss in (bures.CKBLoss(), bures.CKWLoss()):
        assert loss.options["eps"] == 1e-2
        assert (loss.options["kernel"], loss.options["label_kernel"]) == ("gaussian", "gaussian")


@pytest.mark.parametrize("loss", CONDITIONAL, ids=name_of)
def test_labels_are_constants_of_the_conditional_losses(loss):
    z_s, _, z_t, p_t = (part.requires_grad_() if part.is_floating_point() else part for part in batch())
    y_s = one_hot(torch.arange(N) % K).double().requires_grad_()
    loss()(z_s, y_s, z_t, p_t).backward()
    assert p_t.grad is None
    assert y_s.grad is None
    assert bool(z_s.grad.any())
    assert bool(z_t.grad.any())


def test_the_label_mmd_has_its_gradient_through_the_predictions_only():
    z_s, y_s, z_t, p_t = batch()
    for leaf in (z_s, z_t, p_t):
        leaf.requires_grad_()
    bures.MMDLoss()(z_s, y_s, z_t, p_t).backward()
    assert z_s.grad is None
    assert z_t.grad is None
    assert bool(p_t.grad.any())


@pytest.mark.parametrize("rule", ["shared", "median", 0.8])
def test_gradient_of_the_label_mmd_is_that_of_finite_differences_at_one_fixed_bandwidth(rule):
    _, y_s, _, p_t = batch()
    rows = one_hot(y_s, K).double()
    pooled = torch.cat([rows, p_t])
    squares = torch.cdist(pooled, pooled).square()
    off_diagonal = squares[tuple(torch.triu_indices(N + M, N + M, offset=1))]
    sigma2 = {"shared": squares.mean().item(), "median": off_diagonal.quantile(0.5).item()}.get(rule, rule)

    def explicit(p: Tensor) -> Tensor:
        def kernel(a: Tensor, b: Tensor) -> Tensor:
            return torch.exp(-(a[:, None] - b).square().sum(-1) / sigma2)

        return kernel(rows, rows).mean() + kernel(p, p).mean() - 2 * kernel(p, rows).mean()

    leaf = p_t.clone().requires_grad_()
    value = bures.MMDLoss(bandwidth=rule)(torch.zeros(N, 1), y_s, torch.zeros(M, 1), leaf)
    assert value.item() == pytest.approx(explicit(p_t).item(), rel=1e-8)
    value.backward()
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        direction = torch.randn(M, K, generator=generator, dtype=torch.float64)
        step = 1e-5
        slope = (explicit(p_t + step * direction) - explicit(p_t - step * direction)) / (2 * step)
        assert (leaf.grad * direction).sum().item() == pytest.approx(slope.item(), rel=1e-6)


def test_the_label_mmd_of_equal_label_distributions_is_zero():
    y_s = torch.tensor([0, 1, 2, 2])
    p_t = one_hot(y_s).double()[torch.tensor([3, 1, 0, 2])]
    z = torch.zeros(4, 2)
    assert bures.MMDLoss()(z, y_s, z, p_t).item() == pytest.approx(0, abs=1e-14)


def test_the_label_mmd_ignores_the_features():
    z_s, y_s, z_t, p_t = batch()
    loss = bures.MMDLoss()
    assert loss(z_s, y_s, z_t, p_t).item() == loss(torch.zeros(N, 1), y_s, 7 + torch.zeros(M, 2), p_t).item()


@pytest.mark.parametrize("loss", [*CONDITIONAL, bures.MMDLoss], ids=name_of)
@pytest.mark.parametrize("options", [{}, {"bandwidth": "median"}], ids=str)
def test_integer_labels_and_a_one_hot_matrix_agree(loss, options):
    z_s, y_s, z_t, p_t = batch()
    value = loss(**options)(z_s, y_s, z_t, p_t).item()
    for matrix in (one_hot(y_s, K), one_hot(y_s, K).double(), one_hot(y_s, K).float()):
        assert loss(**options)(z_s, matrix, z_t, p_t).item() == pytest.approx(value, rel=1e-10)
    for integers in (y_s.int(), y_s.to(torch.uint8)):
        assert loss(**options)(z_s, integers, z_t, p_t).item() == value


@pytest.mark.parametrize("loss", CONDITIONAL, ids=name_of)
def test_training_a_map_of_the_target_reduces_the_loss(loss):
    xs, ys, xt, yt = (torch.as_tensor(part) for part in bures.data.drifting_class(120, drift=2.0))
    adapt = nn.Linear(2, 2, dtype=torch.float64)
    nn.init.eye_(adapt.weight)
    nn.init.zeros_(adapt.bias)
    criterion = loss(bandwidth=4.0)  # fixed, so that the values can be compared
    optimiser = torch.optim.Adam(adapt.parameters(), lr=0.05)
    p_t = one_hot(yt).double()
    history = []
    for _ in range(40):
        optimiser.zero_grad()
        value = criterion(xs, ys, adapt(xt), p_t)
        value.backward()
        optimiser.step()
        history.append(value.item())
    assert history[-1] < 0.8 * history[0]
    assert min(history) == pytest.approx(history[-1], rel=0.05)


@pytest.mark.parametrize("loss", EVERY, ids=name_of)
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_half_precision_batches_give_a_float32_loss_and_gradients_of_their_own(loss, half):
    z_s, y_s, z_t, p_t = batch(half)
    leaf = z_t.clone().requires_grad_()
    value = loss()(*arguments(loss, z_s, y_s, leaf, p_t))
    value.backward()
    assert value.dtype == torch.float32
    assert leaf.grad.dtype == half
    reference = loss()(*arguments(loss, z_s.double(), y_s, z_t.double(), p_t))
    assert value.item() == pytest.approx(reference.item(), rel=1e-4)


def test_the_label_mmd_accepts_half_precision_predictions():
    z_s, y_s, z_t, p_t = batch(torch.bfloat16)
    p_t.requires_grad_()
    value = bures.MMDLoss()(z_s, y_s, z_t, p_t)
    value.backward()
    assert value.dtype == torch.float32
    assert p_t.grad.dtype == torch.bfloat16
    assert bool(p_t.grad.isfinite().all())


@pytest.mark.parametrize("loss", EVERY, ids=name_of)
def test_autocast_does_not_change_a_loss(loss):
    z_s, y_s, z_t, p_t = batch(torch.float32)
    plain, under_autocast = z_t.clone().requires_grad_(), z_t.clone().requires_grad_()
    expected = loss()(*arguments(loss, z_s, y_s, plain, p_t))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss()(*arguments(loss, z_s, y_s, under_autocast, p_t))
    assert torch.equal(value, expected)
    value.backward()
    expected.backward()
    assert torch.equal(under_autocast.grad, plain.grad)


def test_a_network_trains_under_autocast():
    torch.manual_seed(0)
    z_s, y_s, z_t, _ = batch(torch.float32)
    body, head = nn.Linear(D, 5), nn.Linear(5, K)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        f_s, f_t = body(z_s), body(z_t)
        assert f_t.dtype == torch.bfloat16
        p_t = softmax(head(f_t), dim=1)
        loss = bures.CKBLoss()(f_s, y_s, f_t, p_t) + bures.MMDLoss()(f_s, y_s, f_t, p_t)
    loss.backward()
    assert loss.dtype == torch.float32
    for parameter in (*body.parameters(), *head.parameters()):
        assert bool(parameter.grad.isfinite().all())


@pytest.mark.parametrize("loss", EVERY, ids=name_of)
def test_repr_shows_the_options(loss):
    text = repr(loss())
    assert text.startswith(f"{loss.__name__}(")
    for name, value in loss().options.items():
        assert f"{name}={value!r}" in text
    if loss in CONDITIONAL:
        assert "pseudo_labels='hard'" in repr(loss(pseudo_labels="hard", eps=0.5))
        assert "eps=0.5" in repr(loss(pseudo_labels="hard", eps=0.5))


@pytest.mark.parametrize("loss", EVERY, ids=name_of)
def test_losses_have_no_state_and_survive_copies(loss):
    original = loss(bandwidth=2.5) if loss is not bures.BuresLoss else loss()
    assert original.state_dict() == {}
    assert list(original.parameters()) == []
    data = arguments(loss, *batch())
    for twin in (copy.deepcopy(original), pickle.loads(pickle.dumps(original)), original.to(torch.float64).eval()):
        assert repr(twin) == repr(original)
        assert twin(*data).item() == original(*data).item()


def test_a_loss_is_a_module_of_a_network():
    network = nn.ModuleDict({"body": nn.Linear(2, 2), "align": bures.CKBLoss()})
    assert set(network.state_dict()) == {"body.weight", "body.bias"}
    assert "CKBLoss" in repr(network)


COMPILED = [
    (bures.CKBLoss(), "labels"),
    (bures.CKWLoss(), "labels"),
    (bures.MMDLoss(), "labels"),
    (bures.KernelBuresLoss(), "features"),
    (bures.BuresLoss(), "features"),
]
# The compiler of torch 2.4 cannot trace keywords of a partial function, nor a named tuple: it breaks the graph there.
ONE_GRAPH = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5)
ALSO_COMPILED = [
    (bures.CKBLoss(pseudo_labels="hard", bandwidth="shared", eps="auto"), "labels"),
    (bures.CKBLoss(kernel="laplacian", label_kernel="linear", bandwidth=2.0), "labels"),
    (bures.CKWLoss(pseudo_labels="hard", prior="uniform"), "labels"),
    (bures.MMDLoss(), "features"),
]


def compare_compiled(loss: nn.Module, kind: str, dtype: torch.dtype, **options: object) -> None:
    def run(call: nn.Module, seed: int) -> tuple[Tensor, list[Tensor]]:
        z_s, y_s, z_t, p_t = batch(dtype, seed)
        leaves = [part.requires_grad_() for part in (z_s, z_t, p_t)]
        value = call(z_s, y_s, z_t, p_t) if kind == "labels" else call(z_s, z_t)
        value.backward()
        return value.detach(), [leaf.grad for leaf in leaves if leaf.grad is not None]

    torch.compiler.reset()
    compiled = torch.compile(loss, **options)
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    for seed in (0, 1):
        expected, expected_gradients = run(loss, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's own, on Python versions and at graph breaks
            value, gradients = run(compiled, seed)
        assert value.item() == pytest.approx(expected.item(), rel=tolerance)
        assert len(gradients) == len(expected_gradients) > 0
        for gradient, exact in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(gradient, exact, rtol=10 * tolerance, atol=tolerance)


def with_ids(losses: list[tuple[nn.Module, str]]) -> list[object]:
    return [pytest.param(loss, kind, id=f"{type(loss).__name__}-{kind}-{i}") for i, (loss, kind) in enumerate(losses)]


@pytest.mark.parametrize(("loss", "kind"), with_ids(COMPILED))
def test_a_compiled_loss_is_one_graph_with_the_same_value_and_gradient(loss, kind):
    compare_compiled(loss, kind, torch.float64, backend="aot_eager", fullgraph=ONE_GRAPH)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "kind"), with_ids(ALSO_COMPILED))
def test_a_compiled_loss_with_other_options_is_one_graph_too(loss, kind):
    compare_compiled(loss, kind, torch.float64, backend="aot_eager", fullgraph=ONE_GRAPH)


@pytest.mark.slow
def test_a_compiled_loss_that_breaks_the_graph_is_still_right():
    compare_compiled(bures.CKBLoss(bandwidth="median"), "labels", torch.float64, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "kind"), with_ids(COMPILED[:2]))
def test_a_loss_compiled_by_inductor_has_the_same_value_and_gradient(loss, kind):
    compare_compiled(loss, kind, torch.float32, fullgraph=ONE_GRAPH)


@pytest.mark.parametrize("loss", [bures.CKBLoss(), bures.CKWLoss(), bures.MMDLoss(), bures.RunningCKWLoss(2, 2)])
@pytest.mark.parametrize("place", range(4))
def test_what_is_no_tensor_is_refused_by_name(loss, place):
    tensors = [torch.ones(4, 2), torch.arange(4) % 2, torch.ones(4, 2), torch.full((4, 2), 0.5)]
    name = ("z_s", "y_s", "z_t", "p_t")[place]
    for wrong in (tensors[place].tolist(), tensors[place].numpy()):
        kind = type(wrong).__name__
        with pytest.raises(TypeError, match=rf"^{name} is a {kind}.*torch\.as_tensor"):
            loss(*tensors[:place], wrong, *tensors[place + 1 :])


@pytest.mark.parametrize("loss", [*EVERY, bures.ClassMeansLoss], ids=name_of)
def test_a_loss_that_was_pickled_by_its_public_name_is_found(loss):
    assert pickle.loads(f"cbures.losses\n{loss.__name__}\n.".encode()) is loss


@pytest.mark.parametrize("loss", [bures.CKBLoss(), bures.CKWLoss(), bures.MMDLoss(), bures.RunningCKWLoss(2, 2)])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("empty", [True, False])
def test_what_has_no_rows_is_refused_by_name_and_shape(loss, place, empty):
    tensors = [torch.ones(4, 2), torch.arange(4) % 2, torch.ones(4, 2), torch.full((4, 2), 0.5)]
    if empty:  # both the samples and the labels of a domain
        tensors[place // 2 * 2 :] = [part[:0] for part in tensors[place // 2 * 2 :]]
        name, shape = ("z_s", "z_t")[place // 2], r"\(0, 2\)"
    else:
        tensors[place] = tensors[place].flatten()[0]
        name, shape = ("z_s", "y_s", "z_t", "p_t")[place], r"\(\)"
    with pytest.raises(ValueError, match=rf"^{name} .*shape {shape}"):
        loss(*tensors)


@pytest.mark.parametrize("loss", [bures.CKBLoss(), bures.CKWLoss(), bures.RunningCKWLoss(2, 2)])
def test_complex_features_are_refused(loss):
    z = torch.ones(4, 2, dtype=torch.complex64)
    with pytest.raises(TypeError, match=r"^z_[st] has dtype torch\.complex64; accepted are real"):
        loss(torch.ones(4, 2), torch.arange(4) % 2, z, torch.full((4, 2), 0.5))


def test_a_column_of_class_numbers_is_told_from_logits():
    z_s, y_s, z_t, p_t = batch()
    with pytest.raises(ValueError, match=r"y_s has .*pass class numbers as a vector, such as y\.squeeze\(1\)"):
        bures.CKBLoss()(z_s, y_s[:, None], z_t, p_t)


def test_a_loss_without_options_takes_none():
    with pytest.raises(TypeError, match="unexpected keyword argument 'kernel'"):
        bures.BuresLoss(kernel="gaussian")


@pytest.mark.parametrize("loss", EVERY, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_at_samples_of_any_small_size_are_finite(loss, dtype):
    z_s, y_s, z_t, p_t = batch(dtype)
    for digits in range(18):  # down through the numbers with fewer digits than others, to zero
        size = torch.finfo(dtype).tiny * 10.0 ** (2 - digits)
        small = [(z * size).requires_grad_() for z in (z_s, z_t)]
        value = loss()(*arguments(loss, small[0], y_s, small[1], p_t))
        assert value.isfinite()
        value.backward()
        for z in small:
            assert z.grad.isfinite().all(), size
