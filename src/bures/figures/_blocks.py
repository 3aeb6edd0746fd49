"""A network as a list of blocks: what its modules are, in their order, and the shapes that they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bures.networks import Network
from bures.networks._modes import evaluation_mode

__all__ = ["Block", "input_shape", "network_blocks"]

STAGE = 8  # modules from which a part of a backbone is one block and no longer told module by module
OPENING = (nn.Conv2d, nn.Linear)  # a new block begins with each


@dataclass(frozen=True)
class Block:
    """Modules that stand together in the flowchart.

    Attributes
    ----------
    part : {"backbone", "bottleneck", "classifier"}
        Where they belong.
    words : tuple of str
        Names of the modules with what matters of them.
    shape : tuple of int
        Of one sample after the last.
    """

    part: str
    words: tuple[str, ...]
    shape: tuple[int, ...]


def network_blocks(network: Network, shape: tuple[int, ...]) -> list[Block]:
    """The blocks of a network from its modules, with shapes from a forward pass of zeros.

    Parameters
    ----------
    network : Network
        As `bures.networks.build_network` makes it.
    shape : tuple of int
        Of one sample, as the network takes it.

    Examples
    --------
    >>> from bures.figures import network_blocks
    >>> from bures.networks import build_network
    >>> blocks = network_blocks(build_network("identity", 65, in_features=2048), (2048,))
    >>> [(block.part, block.shape) for block in blocks]
    [('bottleneck', (1024,)), ('bottleneck', (512,)), ('classifier', (65,))]
    """
    named = [("backbone", module) for module in _units(network.backbone)]
    for name, child in network.head.named_children():
        named += [(name, module) for module in _units(child)]
    shapes: dict[nn.Module, tuple[int, ...]] = {}

    def keep(module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            shapes[module] = tuple(output.shape[1:])

    hooks = [module.register_forward_hook(keep) for _, module in named]
    try:
        with evaluation_mode(network), torch.no_grad():
            network(torch.zeros(2, *shape))
    finally:
        for hook in hooks:
            hook.remove()
    groups: list[tuple[str, list[nn.Module]]] = []
    for part, module in named:
        if isinstance(module, nn.Identity) or module not in shapes:
            continue
        if not groups or groups[-1][0] != part or isinstance(module, OPENING) or _is_stage(module):
            # Flatten belongs to the layer after it, which is the one that needs it.
            carried = [groups[-1][1].pop()] if groups and isinstance(groups[-1][1][-1], nn.Flatten) else []
            groups.append((part, carried))
        groups[-1][1].append(module)
    return [
        Block(part, tuple(_word(module) for module in modules), shapes[modules[-1]])
        for part, modules in groups
        if modules
    ]


def input_shape(network: Network) -> tuple[int, ...]:
    """Shape of one sample: of images by the backbone's preprocessing, else by its features."""
    wanted = network.preprocessing
    if wanted is None:
        return (int(network.backbone.out_features),)  # type: ignore[arg-type]
    return (wanted.channels, wanted.input_size, wanted.input_size)


def _units(module: nn.Module) -> list[nn.Module]:
    """Modules one by one, and large parts as they are."""
    children = list(module.children())
    if not children or _is_stage(module):
        return [module]
    return [unit for child in children for unit in _units(child)]


def _is_stage(module: nn.Module) -> bool:
    if not isinstance(module, nn.Sequential):
        return False
    return sum(not list(part.children()) for part in module.modules()) >= STAGE and any(
        list(child.children()) for child in module.children()
    )


def _word(module: nn.Module) -> str:
    if isinstance(module, nn.Conv2d):
        return f"conv {'×'.join(map(str, module.kernel_size))}"
    if isinstance(module, nn.Linear):
        return "linear"
    if isinstance(module, nn.LeakyReLU):
        return f"LeakyReLU {module.negative_slope:g}"
    if _is_stage(module):
        children = list(module.children())
        kinds = list(dict.fromkeys(type(child).__name__ for child in children))
        return f"{len(children)} × {kinds[0]}" if len(kinds) == 1 else f"{len(children)} blocks"
    plain = type(module).__name__.removesuffix("1d").removesuffix("2d")
    names = {"Flatten": "flatten", "Tanh": "tanh", "MaxPool": "max pool", "AdaptiveAvgPool": "mean pool"}
    return names.get(plain, plain)
