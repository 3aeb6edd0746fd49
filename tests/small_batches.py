"""Batches for the tests of methods: plain ones, and those on which formulas break."""

import torch

from bures.methods import Batch, make_method

DEEP = [
    "bnm",
    "cdan",
    "cdan+e",
    "dan",
    "dann",
    "deep-coral",
    "deepjdot",
    "dmp",
    "dsan",
    "etd",
    "jan",
    "kgot",
    "mcc",
]


def random_batch(n=20, m=15, d=24, k=3, *, seed=0, dtype=torch.float64, shift=0.5):
    """Independent Gaussian features and logits; every part but the labels wants a gradient."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    parts = draw(n, d), draw(n, k), draw(m, d) + shift, draw(m, k)
    z_s, logits_s, z_t, logits_t = (part.to(dtype).requires_grad_() for part in parts)
    return Batch(z_s, logits_s, torch.arange(n) % k, z_t, logits_t)


def ready(name, d, k, dtype=torch.float64, **options):
    """A method with its parameters made, always the same."""
    method = make_method(name, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        method.setup(d, k)
    return method.to(dtype)


def ready_for(name, batch, **options):
    dtype = torch.promote_types(batch.z_s.dtype, torch.float32)
    return ready(name, batch.z_s.shape[1], batch.logits_s.shape[1], dtype, **options)


def degenerate_batches(dtype=torch.float32):
    """Batches by name; labels go from 0 to 2."""
    plain = {name: random_batch(12, 10, 16, dtype=dtype)._asdict() for name in ("plain",)}["plain"]
    z_s, z_t, logits_t = (plain[name].detach() for name in ("z_s", "z_t", "logits_t"))
    certain = torch.full_like(logits_t, -200.0)
    certain[:, 0] = 200.0
    changes = {
        "duplicated samples": {"z_s": z_s[[0] * 6 + [1] * 6], "z_t": z_t[[0] * 10]},
        "equal domains": {"z_t": z_s[:10], "logits_t": plain["logits_s"].detach()[:10]},
        "one sample of each class": {
            "z_s": z_s[:3],
            "logits_s": plain["logits_s"].detach()[:3],
            "y_s": torch.arange(3),
        },
        "a class the source lacks": {"y_s": torch.arange(12) % 2},
        "one class in the source": {"y_s": torch.zeros(12, dtype=torch.int64)},
        "constant features": {"z_s": torch.full_like(z_s, 3.0), "z_t": torch.full_like(z_t, 3.0)},
        "zero features": {"z_s": torch.zeros_like(z_s), "z_t": torch.zeros_like(z_t)},
        "dead units": {"z_s": z_s * (torch.arange(16) < 8), "z_t": z_t * (torch.arange(16) < 8)},
        "large features": {"z_s": 1e6 * z_s, "z_t": 1e6 * z_t},
        "certain predictions of one class": {"logits_t": certain},
        "fewer samples than features": {
            "z_s": z_s[:4],
            "logits_s": plain["logits_s"].detach()[:4],
            "y_s": plain["y_s"][:4],
        },
    }
    batches = {}
    for name, change in changes.items():
        parts = {**plain, **change}
        batches[name] = Batch(*(p.detach().clone().requires_grad_(p.is_floating_point()) for p in parts.values()))
    return batches
