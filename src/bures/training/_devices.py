"""On what a run is trained: which devices will do, before anything is computed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.fabric.utilities.exceptions import MisconfigurationException

from bures.methods import Method
from bures.networks._batchnorm import adaptable_layers
from bures.training._head_training import HEAD_FIELDS
from bures.training._setting import Setting
from bures.wording import reason_of

__all__ = ["check_devices", "check_trainer", "strategy_for"]


def check_devices(setting: Setting, devices: int, strategy: str, sync_batchnorm: bool) -> None:
    """Raise where a run cannot be spread over several devices."""
    if devices <= 1:
        return
    if setting.method.owns_training:
        raise ValueError(
            f"devices={devices} is too many for method {setting.method.name!r}, which makes its own training steps; "
            "accepted is 1"
        )
    for field in HEAD_FIELDS:
        if (name := getattr(setting.recipe, field)) is not None:
            raise ValueError(
                f"devices={devices} is too many for {field}={name!r}, which trains the head in one process; accepted "
                f"is 1, or a recipe without {field}"
            )
    if any(name in strategy for name in ("spawn", "fork", "notebook")):
        raise ValueError(
            f"strategy={strategy!r} trains in processes that do not give back the state of a run; accepted is 'ddp'"
        )
    if setting.recipe.batch_size < 2 * devices:
        raise ValueError(
            f"batch_size={setting.recipe.batch_size} is too small for {devices} devices; it is that of all of them "
            f"together: accepted is {2 * devices} or more"
        )
    if adaptable_layers(setting.network) and not sync_batchnorm:
        warnings.warn(
            f"BatchNorm sees {setting.recipe.batch_size // devices} samples of a device at a time, not the batch of "
            "all; on GPUs sync_batchnorm=True (--sync-batchnorm) lets it see all",
            UserWarning,
            stacklevel=3,
        )


def check_trainer(options: Mapping[str, Any]) -> None:
    """Raise where Lightning finds no such devices: a trainer that is made now tells before a folder is made."""
    try:
        L.Trainer(
            **options,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
    except (MisconfigurationException, TypeError, ValueError) as error:
        given = ", ".join(f"{name}={options[name]!r}" for name in ("accelerator", "devices", "strategy"))
        raise ValueError(f"{given} will not do: {reason_of(error)}") from error


def strategy_for(method: Method, devices: int, strategy: str) -> str:
    """The strategy, told that a method's own parameters have no gradient while its terms do not count yet."""
    if devices > 1 and strategy in ("auto", "ddp") and any(True for _ in method.parameters()):
        return "ddp_find_unused_parameters_true"
    return strategy
