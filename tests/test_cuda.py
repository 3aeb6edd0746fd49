"""On a GPU the metrics stay there and agree with the CPU. Skipped where there is none."""

import pytest
import torch

import bures
from bures.cuda_graphs import GraphCache

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

METRICS = {
    "ckb": lambda xs, ys, xt, yt: bures.ckb(xs, ys, xt, yt),
    "ckb-per-block": lambda xs, ys, xt, yt: bures.ckb(xs, ys, xt, yt, bandwidth="per-block"),
    "ckb-median-laplacian": lambda xs, ys, xt, yt: bures.ckb(xs, ys, xt, yt, bandwidth="median", kernel="laplacian"),
    "ckb-prior": lambda xs, ys, xt, yt: bures.ckb(xs, ys, xt, yt, prior="uniform", eps="auto"),
    "ckw": lambda xs, ys, xt, yt: bures.ckw(xs, ys, xt, yt),
    "kernel_bures": lambda xs, ys, xt, yt: bures.kernel_bures(xs, xt),
    "bures": lambda xs, ys, xt, yt: bures.bures(xs, xt),
    "mmd": lambda xs, ys, xt, yt: bures.mmd(xs, xt),
    "CKBLoss": lambda xs, ys, xt, yt: bures.CKBLoss()(xs, ys, xt, yt),
    "CKWLoss": lambda xs, ys, xt, yt: bures.CKWLoss()(xs, ys, xt, yt),
    "BuresLoss": lambda xs, ys, xt, yt: bures.BuresLoss()(xs, xt),
}


def make_batch(dtype):
    generator = torch.Generator().manual_seed(0)
    xs, xt = torch.randn(50, 16, generator=generator), 1.5 * torch.randn(40, 16, generator=generator)
    p_t = torch.randn(40, 4, generator=generator).softmax(1)
    return xs.to(dtype), torch.arange(50) % 4, xt.to(dtype), p_t.to(dtype)


def value_and_gradients(metric, xs, ys, xt, yt):
    xs, xt = xs.clone().requires_grad_(), xt.clone().requires_grad_()
    value = metric(xs, ys, xt, yt)
    value.backward()
    return value.detach(), xs.grad, xt.grad


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@pytest.mark.parametrize("name", METRICS)
def test_value_and_gradient_stay_on_the_device_and_agree_with_the_cpu(name, dtype, tolerance):
    batch = make_batch(dtype)
    on_cpu = value_and_gradients(METRICS[name], *batch)
    on_gpu = value_and_gradients(METRICS[name], *(part.cuda() for part in batch))
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        assert gpu.is_cuda
        assert gpu.dtype == dtype
        assert float((gpu.cpu() - cpu).norm()) <= tolerance * float(cpu.norm())


def test_explain_on_the_device_agrees_with_the_cpu():
    batch = make_batch(torch.float64)
    on_cpu = bures.explain(*batch, n_permutations=5, n_bootstrap=5)
    on_gpu = bures.explain(*(part.cuda() for part in batch), n_permutations=5, n_bootstrap=5)
    assert on_gpu.squared_distance == pytest.approx(on_cpu.squared_distance, rel=1e-9)
    assert on_gpu.null_mean == pytest.approx(on_cpu.null_mean, rel=1e-9)
    assert on_gpu.debiased == pytest.approx(on_cpu.debiased, rel=1e-9)


def test_autocast_does_not_reach_the_distance():
    z_s, y_s, z_t, p_t = (part.cuda() for part in make_batch(torch.float32))
    outside = bures.CKBLoss()(z_s, y_s, z_t, p_t)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        inside = bures.CKBLoss()(z_s, y_s, z_t, p_t)
    assert inside.dtype == torch.float32
    assert float(inside) == pytest.approx(float(outside), rel=1e-6)


def test_tensors_on_two_devices_are_named():
    z_s, y_s, z_t, p_t = make_batch(torch.float32)
    with pytest.raises(ValueError, match=r"xs is on device cuda:0 but ys is on cpu"):
        bures.ckb(z_s.cuda(), y_s, z_t, p_t)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_loss_agrees():
    z_s, y_s, z_t, p_t = (part.cuda() for part in make_batch(torch.float32))
    compiled = torch.compile(bures.CKBLoss(), fullgraph=True)
    expected = value_and_gradients(bures.CKBLoss(), z_s, y_s, z_t, p_t)
    for got, wanted in zip(value_and_gradients(compiled, z_s, y_s, z_t, p_t), expected, strict=True):
        assert float((got - wanted).norm()) <= 1e-3 * float(wanted.norm())


@pytest.mark.parametrize("make_loss", [bures.CKBLoss, bures.CKWLoss], ids=["CKBLoss", "CKWLoss"])
def test_replayed_graphs_give_what_the_function_gives_for_new_values(make_loss):
    loss = make_loss()
    for seed in range(6):  # the first calls run as they are, the later ones replay a graph
        generator = torch.Generator().manual_seed(seed)
        z_s, z_t = (torch.randn(n, 16, generator=generator).cuda() for n in (50, 40))
        y_s = torch.randint(4, (50,), generator=generator).cuda()
        p_t = torch.randn(40, 4, generator=generator).softmax(1).cuda()
        expected = value_and_gradients(make_loss().double(), z_s.double(), y_s, z_t.double(), p_t.double())
        got = value_and_gradients(loss, z_s, y_s, z_t, p_t)
        for value, wanted in zip(got, expected, strict=True):
            assert float((value.double() - wanted).norm()) <= 1e-3 * float(wanted.norm())
    assert loss._graphs._graphs


@pytest.mark.parametrize("sizes", [(50, 40, 16), (30, 40, 64), (300, 280, 16)], ids=str)
def test_a_graph_of_the_bures_loss_gives_what_the_cpu_gives_for_new_values(sizes):
    """A training step that is captured holds the loss as a graph of its own does."""
    n, m, d = sizes
    loss, graphs = bures.BuresLoss(), GraphCache()
    for seed in range(6):  # the first calls run as they are, the later ones replay a graph
        generator = torch.Generator().manual_seed(seed)
        z_s, z_t = torch.randn(n, d, generator=generator), 1.5 * torch.randn(m, d, generator=generator)
        expected = value_and_gradients(lambda a, _, b, __: loss(a, b), z_s.double(), None, z_t.double(), None)
        on_gpu = z_s.cuda(), None, z_t.cuda(), None
        got = value_and_gradients(lambda a, _, b, __: graphs.run(loss, a, b), *on_gpu)
        for value, wanted in zip(got, expected, strict=True):
            assert value.is_cuda
            assert float((value.cpu().double() - wanted).norm()) <= 1e-3 * float(wanted.norm())
    assert graphs._graphs


def test_the_bures_distance_of_large_samples_on_the_device_agrees_with_the_cpu():
    """Enough samples for a rational step, and so many features that their whole product is formed."""
    generator = torch.Generator().manual_seed(0)
    z_s, z_t = torch.randn(1700, 900, generator=generator), 1.5 * torch.randn(1600, 900, generator=generator)
    expected = value_and_gradients(METRICS["bures"], z_s.double(), None, z_t.double(), None)
    got = value_and_gradients(METRICS["bures"], z_s.cuda(), None, z_t.cuda(), None)
    for value, wanted in zip(got, expected, strict=True):
        assert float((value.cpu().double() - wanted).norm()) <= 1e-3 * float(wanted.norm())


def test_a_replayed_loss_may_be_called_twice_before_its_backward():
    loss = bures.CKBLoss()
    z_s, y_s, z_t, p_t = (part.cuda() for part in make_batch(torch.float32))
    for _ in range(5):
        value_and_gradients(loss, z_s, y_s, z_t, p_t)
    separate = [value_and_gradients(loss, z_s, y_s, scale * z_t, p_t)[1] for scale in (1.0, 3.0)]
    shared = z_s.clone().requires_grad_()
    (loss(shared, y_s, z_t, p_t) + loss(shared, y_s, 3.0 * z_t, p_t)).backward()
    torch.testing.assert_close(shared.grad, separate[0] + separate[1], rtol=1e-4, atol=1e-7)


def test_graphs_can_be_switched_off():
    loss = bures.CKBLoss(cuda_graphs=False)
    for _ in range(6):
        value_and_gradients(loss, *(part.cuda() for part in make_batch(torch.float32)))
    assert not loss._graphs._graphs


@pytest.mark.parametrize(
    "options",
    [{"prior": [0.25] * 4}, {"bandwidth": "median"}, {"method": "gram"}, {"kernel": "laplacian"}, {"eps": "auto"}],
    ids=str,
)
def test_every_option_gives_what_the_cpu_gives_also_after_many_calls(options):
    loss, on_cpu = bures.CKBLoss(**options), bures.CKBLoss(**options)
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        z_s, z_t = (torch.randn(n, 16, generator=generator) for n in (50, 40))
        y_s = torch.arange(50) % 4
        p_t = torch.randn(40, 4, generator=generator).softmax(1)
        expected = value_and_gradients(on_cpu, z_s, y_s, z_t, p_t)
        got = value_and_gradients(loss, z_s.cuda(), y_s.cuda(), z_t.cuda(), p_t.cuda())
        for value, wanted in zip(got, expected, strict=True):
            assert float((value.cpu() - wanted).norm()) <= 1e-3 * float(wanted.norm())


def make_large_batch(dtype):
    """Enough samples for every method of the nuclear norm to go its own way."""
    generator = torch.Generator().manual_seed(0)
    xs, xt = torch.randn(200, 16, generator=generator), 1.5 * torch.randn(180, 16, generator=generator)
    p_t = torch.randn(180, 4, generator=generator).softmax(1)
    return xs.to(dtype), torch.arange(200) % 4, xt.to(dtype), p_t.to(dtype)


@pytest.mark.parametrize("method", ["svd", "gram", "deflation", "polar"])
def test_every_exact_method_on_the_device_agrees_with_float64(method):
    expected = value_and_gradients(lambda *batch: bures.ckb(*batch), *make_large_batch(torch.float64))
    batch = (part.cuda() for part in make_large_batch(torch.float32))
    found = value_and_gradients(lambda *batch: bures.ckb(*batch, method=method), *batch)
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-4)
    share = 3e-2 if method == "svd" else 3e-3  # in float32 small directions of an SVD are noise
    for value, wanted in zip(found[1:], expected[1:], strict=True):
        assert float((value.cpu() - wanted).norm()) <= share * float(wanted.norm())


def test_the_low_rank_method_on_the_device_is_within_its_bound_and_agrees_with_the_cpu():
    batch = make_large_batch(torch.float32)
    options = {"n_permutations": 0, "n_bootstrap": 0}
    exact = bures.explain(*make_large_batch(torch.float64), **options)
    quick = bures.explain(*(part.cuda() for part in batch), method="low-rank", **options)
    assert abs(quick.squared_distance - exact.squared_distance) <= quick.method_error + 1e-5
    on_cpu = value_and_gradients(lambda *batch: bures.ckb(*batch, method="low-rank"), *batch)
    on_gpu = value_and_gradients(lambda *batch: bures.ckb(*batch, method="low-rank"), *(part.cuda() for part in batch))
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        assert gpu.is_cuda
        assert float((gpu.cpu() - cpu).norm()) <= 1e-2 * float(cpu.norm())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_many_pairs_in_one_call_agree_with_a_loop_on_the_device(dtype):
    batches = [tuple(part.cuda() for part in make_batch(dtype)) for _ in range(3)]
    xs, ys, xt, yt = (torch.stack(parts) for parts in zip(*batches, strict=True))
    xs = (xs * torch.tensor([1.0, 2.0, 3.0], dtype=dtype, device="cuda")[:, None, None]).requires_grad_()
    together = bures.ckb(xs, ys, xt, yt)
    loop = torch.stack([bures.ckb(xs[i], ys[i], xt[i], yt[i]) for i in range(3)])
    assert together.is_cuda
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(together, loop, rtol=tolerance, atol=tolerance)
    (one,), (other,) = (torch.autograd.grad(values.sum(), xs) for values in (together, loop))
    assert float((one - other).norm()) <= 10 * tolerance * float(other.norm())


def test_a_replayed_loss_has_its_second_derivative():
    loss = bures.CKBLoss(bandwidth=8.0, method="polar")
    z_s, y_s, z_t, p_t = (part.cuda() for part in make_batch(torch.float64))
    z_s.requires_grad_()
    z_t.requires_grad_()
    for _ in range(6):
        (gradient,) = torch.autograd.grad(loss(z_s, y_s, z_t, p_t), z_s, create_graph=True)
    assert loss._graphs._graphs
    (product,) = torch.autograd.grad(gradient.square().sum(), z_s)
    (plain,) = torch.autograd.grad(bures.ckb(z_s, y_s, z_t, p_t, bandwidth=8.0), z_s, create_graph=True)
    (expected,) = torch.autograd.grad(plain.square().sum(), z_s)
    torch.testing.assert_close(product, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-8), ("mixed", 1e-6)])
@pytest.mark.parametrize("fit", [bures.LinearMap.fit, bures.NystroemMap.fit, bures.RandomFourierMap.fit])
def test_moments_on_the_device_agree_with_the_cpu(fit, precision, tolerance, tmp_path):
    xs, ys, xt, p_t = make_batch(torch.float32)
    options = {bures.NystroemMap.fit: {"n_landmarks": 20}, bures.RandomFourierMap.fit: {"n_features": 20}}.get(fit, {})
    phi = fit(xs, xt, **options)
    label_map = bures.NystroemMap.fit(p_t, n_landmarks=10)

    def both(feature_map, *batch):
        m_s = bures.ConditionalMoments(feature_map, 4, precision=precision).update(*batch[:2])
        m_t = bures.ConditionalMoments(feature_map, 4, precision=precision, labels="soft", label_map=label_map)
        return m_s, m_t.update(*batch[2:])

    on_cpu = both(phi, xs, ys, xt, p_t)
    on_gpu = both(phi.to("cuda"), *(part.cuda() for part in (xs, ys, xt, p_t)))
    from_host = both(phi.to("cuda"), xs, ys, xt, p_t)
    for metric in ("ckb", "ckw", "kernel_bures", "mmd"):
        expected = on_cpu[0].measure(on_cpu[1], metric)
        for m_s, m_t in (on_gpu, from_host):
            assert m_s.scatter.xx.is_cuda
            found = m_s.measure(m_t, metric)
            assert abs(found.squared_distance - expected.squared_distance) <= tolerance * (
                expected.trace_s + expected.trace_t
            )
    loaded = bures.ConditionalMoments.load(on_gpu[0].save(tmp_path / "m.safetensors"), phi)
    assert loaded.ckb(on_cpu[1]) == pytest.approx(on_cpu[0].ckb(on_cpu[1]), abs=10 * tolerance)
    assert (on_cpu[0] + on_gpu[0]).n_samples == 100
    with pytest.raises(ValueError, match="make both with a map on one device"):
        on_cpu[0].ckb(on_gpu[1])


def make_wide_batch(n, m):
    """Samples near a surface, so that small directions matter, and more than half precision leaves alone."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(16, 64, generator=generator)
    y_s = torch.arange(n) % 4
    z_s = (torch.randn(n, 16, generator=generator) + y_s[:, None]) @ mixing
    z_t = 1.5 * torch.randn(m, 16, generator=generator) @ mixing
    return tuple(part.cuda() for part in (z_s, y_s, z_t, torch.randn(m, 4, generator=generator).softmax(1)))


@pytest.mark.parametrize("sizes", [(1024, 1024), (1100, 1030), (1030, 1100), (2100, 1600)], ids=str)
def test_large_batches_in_half_precision_agree_with_float64(sizes):
    z_s, y_s, z_t, p_t = make_wide_batch(*sizes)
    expected = value_and_gradients(
        lambda *batch: bures.ckb(*batch, bandwidth="per-block", method="polar"),
        z_s.double(),
        y_s,
        z_t.double(),
        p_t.double(),
    )
    loss = bures.CKBLoss()
    for _ in range(5):  # the last ones from a graph, up to 2048 samples
        found = value_and_gradients(loss, z_s, y_s, z_t, p_t)
    assert bool(loss._graphs._graphs) == (max(sizes) <= 2048)
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-5)
    for value, wanted in zip(found[1:], expected[1:], strict=True):
        assert float((value.double() - wanted).norm()) <= 2e-4 * float(wanted.norm())


def test_a_large_batch_holds_few_matrices_at_a_time():
    n = 2048
    batch = make_wide_batch(n, n)
    loss = bures.CKBLoss(cuda_graphs=False)
    value_and_gradients(loss, *batch)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    value_and_gradients(loss, *batch)
    assert torch.cuda.max_memory_allocated() - before < 13 * n * n * 4
