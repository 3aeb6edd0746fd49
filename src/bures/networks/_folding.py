"""Frozen BatchNorm as a part of the convolution before it: the same function, with less to compute and to keep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from bures.networks._batchnorm import FrozenBatchNorm

__all__ = ["fold_frozen_batchnorm"]


class _FoldedConvolution(nn.Module):
    """A convolution whose weights are scaled and shifted by the frozen BatchNorm that follows it.

    The images between the two are never made, nor kept for the gradient: with s the factor of BatchNorm,
    BatchNorm(conv(x, W)) = conv(x, s W) + shift, and the gradient of W and s comes from that of their product.
    """

    def __init__(self, convolution: nn.Conv2d, norm: FrozenBatchNorm) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, norm

    def forward(self, x: Tensor) -> Tensor:
        """BatchNorm(convolution(x))."""
        convolution, norm = self.convolution, self.norm
        factor = torch.rsqrt(norm.running_var + norm.eps)
        if norm.weight is not None:
            factor = factor * norm.weight
        before = norm.running_mean if convolution.bias is None else norm.running_mean - convolution.bias
        shift = -before * factor
        if norm.bias is not None:
            shift = shift + norm.bias
        # `_conv_forward` knows of the padding modes, which need more than the arguments of a convolution.
        images: Tensor = convolution._conv_forward(x, convolution.weight * factor[:, None, None, None], shift)
        return images


class _Tracer(fx.Tracer):
    """Takes frozen BatchNorm for a layer as those of torch."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, FrozenBatchNorm) or super().is_leaf_module(m, module_qualified_name)


def fold_frozen_batchnorm(module: nn.Module) -> nn.Module:
    """A twin of ``module`` in which each frozen BatchNorm is a part of the convolution before it.

    Parameters
    ----------
    module : nn.Module
        With layers under `freeze_batchnorm`. It stays as it is.

    Returns
    -------
    nn.Module
        The same function, on the same parameters and buffers; ``module`` itself where there is nothing to fold, or
        where its ``forward`` depends on values and cannot be traced.

    Examples
    --------
    >>> import torch
    >>> from bures.networks import backbone, freeze_batchnorm
    >>> from bures.networks._folding import fold_frozen_batchnorm
    >>> body = freeze_batchnorm(backbone("resnet18").body).eval()
    >>> x = torch.rand(1, 3, 32, 32)
    >>> bool(torch.allclose(fold_frozen_batchnorm(body)(x), body(x), atol=1e-4))
    True
    """
    if not any(isinstance(part, FrozenBatchNorm) for part in module.modules()):
        return module
    try:
        graph = _Tracer().trace(module)
    except Exception:  # whatever a model's code meets when it is given no numbers
        return module
    twin = fx.GraphModule(module, graph)
    for number, (convolution, norm) in enumerate(_pairs(twin)):
        name = f"folded_{number}"
        twin.add_module(name, _FoldedConvolution(_layer(twin, convolution), _layer(twin, norm)))
        with graph.inserting_after(norm):
            folded = graph.call_module(name, convolution.args)
        norm.replace_all_uses_with(folded)
        graph.erase_node(norm)
        graph.erase_node(convolution)
    twin.recompile()
    return twin


def _pairs(twin: fx.GraphModule) -> list[tuple[fx.Node, fx.Node]]:
    """Convolutions, and the frozen BatchNorm that alone takes what they give."""
    found = []
    for norm in twin.graph.nodes:
        if not isinstance(_layer(twin, norm), FrozenBatchNorm) or len(norm.args) != 1:
            continue
        before = norm.args[0]
        if type(_layer(twin, before)) is nn.Conv2d and len(before.users) == 1 and not before.kwargs:
            found.append((before, norm))
    return found


def _layer(twin: fx.GraphModule, node: Any) -> Any:
    """The layer that a node of the graph calls, if it calls one."""
    return twin.get_submodule(str(node.target)) if isinstance(node, fx.Node) and node.op == "call_module" else None
