"""Policies for BatchNorm: keep its statistics, or estimate them anew in the target domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bures.arrays import at_least_float32, check_flags, describe
from bures.networks._modes import evaluation_mode

__all__ = ["FrozenBatchNorm", "adapt_batchnorm", "adaptable_layers", "freeze_batchnorm", "takes_samples_alone"]

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class FrozenBatchNorm(nn.Module):
    """A BatchNorm that always uses its running statistics and never updates them.

    It is no subclass of torch's BatchNorm, so that ``SyncBatchNorm.convert_sync_batchnorm`` and `adapt_batchnorm` leave
    it alone; parameters, buffers and their names are those of the layer it is made from.

    Parameters
    ----------
    layer : nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d or nn.SyncBatchNorm
        The layer to take over, with running statistics. Parameters and buffers are shared with it.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import FrozenBatchNorm
    >>> frozen = FrozenBatchNorm(torch.nn.BatchNorm1d(3, eps=0)).train()
    >>> frozen(torch.tensor([[1.0, 2.0, 3.0]])).detach()
    tensor([[1., 2., 3.]])
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor | None

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        if layer.running_mean is None or layer.running_var is None:
            raise ValueError(f"{layer} keeps no running statistics, so there is nothing to freeze it at")
        self.num_features, self.eps = layer.num_features, layer.eps
        self.register_parameter("weight", layer.weight)
        self.register_parameter("bias", layer.bias)
        self.register_buffer("running_mean", layer.running_mean)
        self.register_buffer("running_var", layer.running_var)
        self.register_buffer("num_batches_tracked", layer.num_batches_tracked)
        self.training = layer.training

    def forward(self, x: Tensor) -> Tensor:
        """Normalise a batch (n, C, ...) by the running statistics."""
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"{self.num_features}, eps={self.eps}"


def freeze_batchnorm(module: nn.Module, *, freeze_affine: bool = False) -> nn.Module:
    """Keep the running statistics of every BatchNorm in ``module``, also when ``.train()`` is called.

    Parameters
    ----------
    module : nn.Module
        Changed in place: its BatchNorm layers become `FrozenBatchNorm`, which shares their parameters and buffers and
        has the same names in the state dict.
    freeze_affine : bool, optional
        Exclude weight and bias of these layers from training too.

    Returns
    -------
    nn.Module
        ``module``; or its replacement where ``module`` is itself a BatchNorm.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import build_network, freeze_batchnorm
    >>> network = build_network("lenet", 10, head="linear")
    >>> before = network.state_dict()["backbone.body.convolutions.1.running_mean"].clone()
    >>> _ = freeze_batchnorm(network).train()(torch.ones(4, 1, 28, 28))
    >>> bool((network.state_dict()["backbone.body.convolutions.1.running_mean"] == before).all())
    True
    """
    check_flags(freeze_affine=freeze_affine)
    if isinstance(module, _BatchNorm):
        if freeze_affine:
            module.requires_grad_(False)
        if type(module) in _PLAIN:
            return FrozenBatchNorm(module)
        # A subclass may do more than normalise (timm's apply the activation), so it is kept.
        if not _is_held(module):
            module.register_forward_pre_hook(_hold_in_evaluation)
        return module
    for name, child in module.named_children():
        frozen = freeze_batchnorm(child, freeze_affine=freeze_affine)
        if frozen is not child:
            setattr(module, name, frozen)
    return module


def _hold_in_evaluation(layer: nn.Module, inputs: Any) -> None:
    layer.training = False


def _is_held(layer: nn.Module) -> bool:
    return _hold_in_evaluation in layer._forward_pre_hooks.values()


def adapt_batchnorm(network: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """Estimate the running statistics of every BatchNorm anew from target batches (AdaBN), without labels.

    Parameters
    ----------
    network : nn.Module
        Changed in place: running means and variances only. Layers under `freeze_batchnorm` stay as they are.
    batches : iterable of Tensor (n, ...)
        Target samples as ``network`` takes them, each batch of at least two, on its device; read once.

    Returns
    -------
    nn.Module
        ``network``, each part in the mode it was in.

    Notes
    -----
    Batches pass through as in training, each normalised by its own statistics, but without dropout and without
    gradients. A layer's new mean and variance are those of all its inputs pooled, so batches may differ in size. If
    anything fails, the statistics stay what they were. Li et al., "Revisiting Batch Normalization for Practical Domain
    Adaptation", 2016.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import adapt_batchnorm
    >>> layer = adapt_batchnorm(torch.nn.BatchNorm1d(1), [torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [6.0]])])
    >>> layer.running_mean, layer.running_var
    (tensor([3.]), tensor([4.6667]))
    """
    layers = adaptable_layers(network)
    if not layers:
        raise ValueError("network has no BatchNorm with running statistics that could be adapted")
    pooled = [_PooledMoments() for _ in layers]
    with evaluation_mode(network), _batch_statistics(layers), torch.no_grad():
        hooks = [
            layer.register_forward_pre_hook(lambda _, inputs, moments=moments: moments.update(inputs[0]))
            for layer, moments in zip(layers, pooled, strict=True)
        ]
        try:
            for batch in batches:
                if not isinstance(batch, Tensor):
                    raise TypeError(f"batches contains a {describe(batch)}; accepted are tensors of samples, no labels")
                network(batch)
        finally:
            for hook in hooks:
                hook.remove()
    if not any(moments.count for moments in pooled):
        raise ValueError("batches is empty; at least one batch of target samples is needed")
    for layer, moments in zip(layers, pooled, strict=True):
        moments.write(layer)
    return network


def adaptable_layers(network: nn.Module) -> list[_BatchNorm]:
    """BatchNorm layers whose running statistics are not frozen."""
    layers = [part for part in network.modules() if isinstance(part, _BatchNorm) and not _is_held(part)]
    return [layer for layer in layers if layer.running_mean is not None and layer.running_var is not None]


def takes_samples_alone(module: nn.Module) -> bool:
    """Whether a module has layers, none of which normalises by the batch: what it makes of a sample is its own."""
    has_layers = any(True for _ in module.parameters())
    return has_layers and not any(isinstance(part, _BatchNorm) and not _is_held(part) for part in module.modules())


@contextmanager
def _batch_statistics(layers: list[_BatchNorm]) -> Iterator[None]:
    """Let BatchNorm layers normalise by the statistics of the batch and keep none of them."""
    tracked = [layer.track_running_stats for layer in layers]
    for layer in layers:
        layer.training, layer.track_running_stats = True, False
    try:
        yield
    finally:
        for layer, track in zip(layers, tracked, strict=True):
            layer.track_running_stats = track


class _PooledMoments:
    """Mean and variance per channel of all batches (n, C, ...) together, merged batch by batch (Chan et al.)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = torch.zeros(())

    def update(self, x: Tensor) -> None:
        x = at_least_float32(x.detach().movedim(1, 0).flatten(1))
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        variance, mean = (moment.to(wide) for moment in torch.var_mean(x, dim=1, correction=0))
        n, total = x.shape[1], self.count + x.shape[1]
        if self.count == 0:
            self.mean, self.squares = mean, n * variance
        else:
            difference = mean - self.mean
            self.mean = self.mean + difference * (n / total)
            self.squares = self.squares + n * variance + difference.square() * (self.count * n / total)
        self.count = total

    def write(self, layer: _BatchNorm) -> None:
        """Store the statistics, with the unbiased variance as torch does."""
        if self.count < 2 or layer.running_mean is None or layer.running_var is None:
            return  # the forward pass does not use this layer
        layer.running_mean.copy_(self.mean)
        layer.running_var.copy_(self.squares / (self.count - 1))
