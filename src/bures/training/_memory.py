"""What to do when memory runs out in a training."""

from __future__ import annotations

import torch

from bures.training._recipe import Recipe

__all__ = ["is_out_of_memory", "memory_advice"]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: that of an accelerator, or the machine's, a plain RuntimeError of torch."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def memory_advice(recipe: Recipe, error: BaseException) -> str:
    """What ran out, and which fields of the recipe would need less.

    Examples
    --------
    >>> from bures.training import Recipe
    >>> from bures.training._memory import memory_advice
    >>> memory_advice(Recipe(batch_size=64), MemoryError())
    "memory ran out with batch_size=64; less is needed by a smaller batch_size, precision='bf16-mixed' or a smaller \
image_size, in a run of its own. Where other programs had taken the memory, end them and resume the run"
    """
    of_device = "of the accelerator " if isinstance(error, torch.cuda.OutOfMemoryError) else ""
    given, ways = [f"batch_size={recipe.batch_size}"], ["a smaller batch_size"]
    if recipe.queue:
        given.append(f"queue={recipe.queue}")
        ways.append("a smaller queue")
    if recipe.precision != "bf16-mixed":
        ways.append("precision='bf16-mixed'")
    if recipe.network != "identity":
        ways.append("a smaller image_size")
    return (
        f"memory {of_device}ran out with {' and '.join(given)}; less is needed by {', '.join(ways[:-1])}"
        f"{' or ' * (len(ways) > 1)}{ways[-1]}, in a run of its own. Where other programs had taken the memory, end "
        "them and resume the run"
    )
