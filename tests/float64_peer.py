"""Batches with labels, and the distance of float64 with which passes of their own for float32 are compared."""

import torch
from torch.nn.functional import one_hot

from bures.metrics import _problem


def labelled_batch(n, m, d=5, classes=3, seed=0):
    """Features of a source with labels and of a target with predictions, all in float32 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    y_s, y_t = torch.randint(classes, (n,), generator=generator), torch.randint(classes, (m,), generator=generator)
    z_s = torch.randn(n, d, generator=generator) + y_s[:, None]
    z_t = 1.4 * torch.randn(m, d, generator=generator) + y_t[:, None]
    p_t = (3 * one_hot(y_t, classes) + torch.randn(m, classes, generator=generator)).softmax(1)
    return z_s, y_s, z_t, p_t


def value_and_gradient(distance, z_s, z_t):
    """A distance of two samples and its gradient in both."""
    z_s, z_t = z_s.clone().requires_grad_(), z_t.clone().requires_grad_()
    value = distance(z_s, z_t)
    return value.detach(), torch.cat(torch.autograd.grad(value, (z_s, z_t)))


def in_float64(distance, z_s, z_t, monkeypatch):
    """The same by the general path, with singular value decompositions."""
    with monkeypatch.context() as patched:
        patched.setattr(_problem, "can_fuse", lambda *_: False)
        return value_and_gradient(distance, z_s.double(), z_t.double())
