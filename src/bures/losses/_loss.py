"""What all losses have: stored options, shown in their repr, and whether a CUDA graph can replay them."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["Loss", "looks_at_values"]


def looks_at_values(rule: object) -> bool:
    """Whether a kernel or a bandwidth decides by the values of samples, on the host."""
    return callable(rule) or rule == "median"


class Loss(nn.Module):
    """A loss that stores the options of a metric and shows them in its repr."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can replay the loss in float32."""
        return not any(looks_at_values(rule) for rule in self.options.values())

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
