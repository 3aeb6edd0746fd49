"""Distances of other libraries on the same features, for the time of a value and a gradient.

They measure other things (none of them conditions on labels); what is compared is what an alignment term costs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor


def available() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The peers that are installed, by name."""
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"torch MMD": _mmd}
    if find_spec("ot") is not None:
        found |= {"POT Bures-Wasserstein": _pot_bures, "POT Sinkhorn": _pot_sinkhorn}
    if find_spec("skada") is not None and find_spec("skorch") is not None:  # its deep part needs both
        found |= {"skada CORAL": _skada_coral, "skada DAN": _skada_mmd}
    return found


def _mmd(a: Tensor, b: Tensor) -> Tensor:
    x = torch.cat([a, b])
    squared = torch.cdist(x, x).square()
    kernel = torch.exp(-squared / squared.detach().mean())
    n = len(a)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[n:, :n].mean()


def _pot_bures(a: Tensor, b: Tensor) -> Tensor:
    import ot

    distance: Tensor = ot.gaussian.empirical_bures_wasserstein_distance(a, b, reg=1e-3)
    return distance


def _pot_sinkhorn(a: Tensor, b: Tensor) -> Tensor:
    import ot

    cost = ot.dist(a, b)
    plan_cost: Tensor = ot.sinkhorn2([], [], cost / cost.detach().max(), reg=0.1, numItermax=100, warn=False)
    return plan_cost


def _skada_coral(a: Tensor, b: Tensor) -> Tensor:
    from skada.deep.losses import deepcoral_loss

    loss: Tensor = deepcoral_loss(a, b)
    return loss


def _skada_mmd(a: Tensor, b: Tensor) -> Tensor:
    from skada.deep.losses import dan_loss

    loss: Tensor = dan_loss(a, b)
    return loss
