"""Which values the fields of a recipe may have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bures.training._augment import AUGMENTATIONS

if TYPE_CHECKING:
    from bures.training._recipe import Recipe

__all__ = ["check_ranges"]


def check_ranges(recipe: Recipe) -> None:
    """Raise for a field out of its range, or one that another makes useless."""
    for name in ("lr", "backbone_factor", "head_factor", "gradient_clip"):
        value = getattr(recipe, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r} is out of range; accepted is a positive number")
    views = {recipe.augment, recipe.second_view or recipe.augment}
    if recipe.consistency > 0 and all(AUGMENTATIONS[view].changes_nothing for view in views):
        raise ValueError(
            f"consistency={recipe.consistency!r} compares two random changes of an image but augment='none' makes "
            f"none; accepted is 0, or another augment: {', '.join(AUGMENTATIONS)}"
        )
    for name in ("consistency_threshold", "second_view"):
        if recipe.consistency == 0 and (value := getattr(recipe, name)):
            raise ValueError(f"{name}={value!r} is for a consistency but consistency=0; leave it out, or set both")
    if recipe.training_size is not None and AUGMENTATIONS[recipe.augment].changes_nothing:
        raise ValueError(
            f"training_size={recipe.training_size!r} scales images that are changed at random but augment='none' "
            f"changes none; leave it out, or choose an augment: {', '.join(AUGMENTATIONS)}"
        )
    for name, wish in (("queue_predictions", "the predictions"), ("queue_full_gradient", "the full gradient")):
        if getattr(recipe, name) and recipe.queue == 0:
            raise ValueError(
                f"{name}=True asks for {wish} of a queue but queue=0 keeps none; "
                "leave it out, or choose the length of the queue"
            )
    for name in (
        "consistency",
        "frozen_stages",
        "queue",
        "weight_decay",
        "momentum",
        "schedule_gamma",
        "schedule_power",
    ):
        if not 0 <= getattr(recipe, name) < math.inf:
            raise ValueError(f"{name}={getattr(recipe, name)!r} is out of range; accepted are numbers from 0 up")
    for name in ("epochs", "epoch", "hidden", "features", "image_size", "stored_size", "training_size"):
        value = getattr(recipe, name)
        if isinstance(value, int) and value < 1:
            raise ValueError(f"{name}={value!r} is out of range; accepted is a positive number")
    if recipe.batch_size < 2:
        raise ValueError(f"batch_size={recipe.batch_size} is out of range; at least two samples of a domain make one")
    if not 0 <= recipe.label_smoothing < 1:
        raise ValueError(f"label_smoothing={recipe.label_smoothing!r} is out of range; accepted is 0 to below 1")
    if not 0 <= recipe.consistency_threshold <= 1:
        raise ValueError(
            f"consistency_threshold={recipe.consistency_threshold!r} is out of range; accepted is a probability"
        )
    if not 0 <= recipe.source_holdout < 1:
        raise ValueError(f"source_holdout={recipe.source_holdout!r} is out of range; accepted is 0 to below 1")
    if not 0 <= recipe.seed < 2**32:
        raise ValueError(f"seed={recipe.seed!r} is out of range; accepted is 0 to 4294967295")
