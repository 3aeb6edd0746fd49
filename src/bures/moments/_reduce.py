"""Moments summed over the processes of a `torch.distributed` group."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from bures.columns import check_same_columns
from bures.moments._scatter import Scatter

__all__ = ["check_same", "reduce_scatter"]


def check_same(
    description: dict[str, Any], columns: tuple[str, ...] | None, group: dist.ProcessGroup | None
) -> tuple[str, ...] | None:
    """Raise unless all processes hold moments of one kind; in every one alike, because the others would wait.

    Returns the names of the columns, which a process that has seen no table does not have.
    """
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, (description, columns), group=group)
    descriptions = [one for one, _ in found]
    for rank, other in enumerate(descriptions):
        for name, value in descriptions[0].items():
            if other[name] != value:
                raise ValueError(
                    f"process {rank} holds moments with {name}={other[name]!r}, process 0 with {value!r}; "
                    "moments must agree in every process"
                )
    named = [(f"the table of process {rank}", names) for rank, (_, names) in enumerate(found) if names is not None]
    for whose, names in named[1:]:
        check_same_columns(named[0][1], names, names=(named[0][0], whose))
    return named[0][1] if named else None


def reduce_scatter(scatter: Scatter, counts: tuple[int, ...], group: dist.ProcessGroup | None) -> tuple[int, ...]:
    """Sum over the processes, in place, and return the summed counts; two messages.

    First the weights and means, then the products, each moved to the common mean before it is sent: the merge of Chan,
    Golub and LeVeque for any number of parts at once.
    """
    device = scatter.xx.device if dist.get_backend(group) == "nccl" else torch.device("cpu")
    n_x, n_y = len(scatter.mean_x), len(scatter.mean_y)
    w = scatter.weight
    first = torch.cat([w[None], w * scatter.mean_x, w * scatter.mean_y, w.new_tensor(counts)]).to(device)
    dist.all_reduce(first, group=group)
    weight, sum_x, sum_y, summed = torch.split(first.to(w.device), [1, n_x, n_y, len(counts)])
    total = tuple(int(count) for count in summed.tolist())
    if float(weight) == 0:
        return total
    mean_x, mean_y = sum_x / weight, sum_y / weight
    dx, dy = scatter.mean_x - mean_x, scatter.mean_y - mean_y
    products = (scatter.xx.addr(w * dx, dx), scatter.yx.addr(w * dy, dx), scatter.yy.addr(w * dy, dy))
    second = torch.cat([product.flatten() for product in products]).to(device)
    dist.all_reduce(second, group=group)
    parts = torch.split(second.to(w.device), [product.numel() for product in products])
    for own, part in zip((scatter.xx, scatter.yx, scatter.yy), parts, strict=True):
        own.copy_(part.view_as(own))
    for own, part in ((scatter.weight, weight[0]), (scatter.mean_x, mean_x), (scatter.mean_y, mean_y)):
        own.copy_(part)
    return total
