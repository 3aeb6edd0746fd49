"""A head start: the head alone is trained on the backbone's features before the whole network is fine-tuned.

Linear probing, then fine-tuning (Kumar et al., "Fine-Tuning can Distort Pretrained Features and Underperform
Out-of-Distribution", 2022): gradients through a random head change a pretrained backbone for nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import lightning as L

from bures.training._assembly import assemble
from bures.training._backbone_rows import BackboneRows
from bures.training._batches import PairData
from bures.training._errors import TrainingError
from bures.training._progress import counted
from bures.training._recipe import Recipe
from bures.training._recipe_files import load_recipe
from bures.training._session import Session
from bures.training._setting import Setting, make_ready

__all__ = ["head_start_recipe", "train_head"]

BACKBONES = ("identity", "auto")  # of recipes for feature vectors
SHARED = ("method", "head", "hidden", "features", "seed", "source_holdout", "select")  # with the run itself


def head_start_recipe(setting: Setting, recorded: Mapping[str, Any] | None = None) -> Recipe | None:
    """The recipe by which the head of a run is trained first; None where the run asks for no head start.

    Parameters
    ----------
    setting : Setting
        Of the run. Its method, head, seed and validator, and the share of the source that it holds out, take the place
        of those in the recipe that it names.
    recorded : mapping, optional
        What this function gave when the run was begun, for one that is resumed: files may have changed since.
    """
    run = setting.recipe
    if run.head_start is None:
        return None
    given = f"head_start={run.head_start!r}"
    if setting.spec.name == "identity":
        raise ValueError(
            f"{given} trains a head on features of the backbone, but network='identity' has none: its samples are "
            "feature vectors. Leave head_start out, or train on images"
        )
    if setting.method.owns_training:
        raise ValueError(
            f"{given} is of no use to method {setting.method.name!r}, which makes its own training steps; leave "
            "head_start out, or choose another method"
        )
    if recorded is not None:
        return Recipe(**recorded)
    try:
        named = load_recipe(run.head_start)
    except (ValueError, OSError) as error:
        raise ValueError(f"{given} cannot be read: {error}") from error
    if named.network not in BACKBONES:
        raise ValueError(
            f"{given} names a recipe with network={named.network!r}; accepted is one for features of the backbone, "
            "with network: identity"
        )
    if named.head_start is not None:
        raise ValueError(
            f"{given} names a recipe that has head_start={named.head_start!r} itself; accepted is one without"
        )
    try:
        recipe = named.override({name: getattr(run, name) for name in SHARED} | {"validators": ()})
        _head_setting(setting, recipe)  # what will not do is said before anything is computed
    except ValueError as error:
        raise ValueError(f"{given} does not fit the run: {error}") from error
    return recipe


def _head_setting(setting: Setting, recipe: Recipe, rows: BackboneRows | None = None) -> Setting:
    """What the head start works on: the domains of the run as the backbone gives them, and a network of the head alone.

    Without ``rows`` the samples stay what they are, and the setting serves to be checked.
    """
    source, target, evaluator = setting.data.source, setting.data.target, setting.evaluator
    if rows is not None:
        source, target = rows.of(source), rows.of(target)
        evaluator = evaluator.past_backbone(rows, recipe.build_validators())
    width = int(setting.network.head.in_features)  # type: ignore[arg-type]
    spec, network, inputs = assemble(recipe, source.n_classes, (width,))
    method = recipe.build_method()
    make_ready(method, recipe, spec, network, inputs)
    data = PairData(source, target, recipe)
    method.check_length(recipe.epochs * data.steps_per_epoch)
    return Setting(recipe, spec, network, inputs, method, source, target, evaluator, data, {})


def train_head(session: Session, trainer_options: Mapping[str, Any]) -> None:
    """Train the head of a session's network on the backbone's features, and write into the manifest how that went.

    The network of the session has the trained head afterwards, with the statistics of its BatchNorm; nothing else of
    this training is left. Its features are those of evaluation: no random changes, images of the full size.
    """
    setting, begun = session.setting, time.perf_counter()
    assert setting.head_start is not None
    given = f"head_start={setting.recipe.head_start!r}"
    options = dict(trainer_options) | {"devices": 1, "strategy": "auto", "sync_batchnorm": False}
    device = L.Fabric(accelerator=options["accelerator"], devices=1).device  # as Lightning's trainer chooses it
    session.place(device)
    setting.network.to(device)
    try:
        with counted("head start: features", session.console, shown=session.progress) as report:

            def progress(done: int, total: int) -> None:
                if (heard := session.signals.heard) is not None:  # on a CPU the features of many images take long
                    raise session.signals.stopped(heard, 0, saved=False)
                report(done, total)

            rows = BackboneRows(
                setting.network,
                setting.inputs,
                batch_size=setting.evaluator.batch_size,
                n_workers=setting.evaluator.n_workers,
                progress=progress,
            )
            head = _head_setting(setting, setting.head_start, rows)
        inner = Session(
            session.folder,
            head,
            math.inf,
            None,
            session.progress,
            keep_files=False,
            signals=session.signals,
            title=f"head start: {session.title}",
        )
        inner.fit(options)
    except FloatingPointError as error:
        raise TrainingError(f"{given}: {error}; check its weights") from error
    except TrainingError as error:
        raise TrainingError(f"{given}: {error}") from error
    setting.network.head.load_state_dict(inner.module.network.head.state_dict())
    last = inner.recorder.last
    assert last is not None
    session.note_head_start(
        {
            "steps": inner.module.n_steps,
            "seconds": round(time.perf_counter() - begun, 3),
            "validator": head.recipe.select,
            "score": last.score,
            "accuracy": last.accuracy,
            "notes": inner.recorder.notes,
        }
    )
