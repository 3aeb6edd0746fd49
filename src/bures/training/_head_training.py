"""The head alone is trained on the backbone's features: before the whole network is fine-tuned, or behind it.

A head start is linear probing, then fine-tuning (Kumar et al., "Fine-Tuning can Distort Pretrained Features and
Underperform Out-of-Distribution", 2022): gradients through a random head change a pretrained backbone for nothing. A
head finish goes on with the head in batches that a whole network has no memory for, and terms about the predictions of
many classes want.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bures.networks._batchnorm import adaptable_layers
from bures.training._assembly import assemble
from bures.training._backbone_rows import BackboneRows
from bures.training._batches import PairData
from bures.training._errors import TrainingError
from bures.training._progress import counted
from bures.training._recipe import Recipe
from bures.training._recipe_files import load_recipe
from bures.training._session import Session
from bures.training._setting import Setting, make_ready

__all__ = ["HEAD_FIELDS", "head_recipes", "train_head"]

BACKBONES = ("identity", "auto")  # of recipes for feature vectors
HEAD_FIELDS = ("head_start", "head_finish")  # of a recipe, that name another, in the order of a run
SHARED = ("method", "head", "hidden", "features", "seed", "source_holdout", "select")  # with the run itself


def head_recipes(setting: Setting, manifest: Mapping[str, Any] | None = None) -> dict[str, Recipe]:
    """The recipes by which the head of a run is trained by itself, by the field of the run's recipe that names them.

    Parameters
    ----------
    setting : Setting
        Of the run. Its method, head, seed and validator, and the share of the source that it holds out, take the place
        of those in the recipes that it names.
    manifest : mapping, optional
        Of a run that is resumed. It has the recipes that were found when the run was begun: files may have changed
        since.
    """
    found = {}
    for field in HEAD_FIELDS:
        if (name := getattr(setting.recipe, field)) is not None:
            recorded = (manifest or {}).get(field)
            found[field] = _head_recipe(setting, field, name, recorded and recorded["recipe"])
    return found


def _head_recipe(setting: Setting, field: str, name: str, recorded: Mapping[str, Any] | None) -> Recipe:
    run, given = setting.recipe, f"{field}={name!r}"
    if setting.spec.name == "identity":
        raise ValueError(
            f"{given} trains a head on features of the backbone, but network='identity' has none: its samples are "
            f"feature vectors. Leave {field} out, or train on images"
        )
    if setting.method.owns_training:
        raise ValueError(
            f"{given} is of no use to method {setting.method.name!r}, which makes its own training steps; leave "
            f"{field} out, or choose another method"
        )
    if field == "head_finish" and setting.batchnorm == "target" and adaptable_layers(setting.network.backbone):
        raise ValueError(
            f"{given} trains a head on features that are not those of evaluation, where BatchNorm of the backbone has "
            "statistics of the target; accepted is backbone_batchnorm='frozen', or evaluation_batchnorm='training'"
        )
    if recorded is not None:
        return Recipe(**recorded)
    try:
        found = load_recipe(name)
    except (ValueError, OSError) as error:
        raise ValueError(f"{given} cannot be read: {error}") from error
    if found.network not in BACKBONES:
        raise ValueError(
            f"{given} names a recipe with network={found.network!r}; accepted is one for features of the backbone, "
            "with network: identity"
        )
    for other in HEAD_FIELDS:
        if (value := getattr(found, other)) is not None:
            raise ValueError(f"{given} names a recipe that has {other}={value!r} itself; accepted is one without")
    try:
        recipe = found.override({name: getattr(run, name) for name in SHARED} | {"validators": ()})
        _head_setting(setting, recipe)  # what will not do is said before anything is computed
    except ValueError as error:
        raise ValueError(f"{given} does not fit the run: {error}") from error
    return recipe


def _head_setting(setting: Setting, recipe: Recipe, rows: BackboneRows | None = None) -> Setting:
    """What a head is trained on: the domains of the run as the backbone gives them, and a network of the head alone.

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


def train_head(session: Session, field: str, trainer_options: Mapping[str, Any]) -> None:
    """Train the head of a session's network on the backbone's features, and write into the manifest how that went.

    The network of the session has the trained head afterwards, with the statistics of its BatchNorm; nothing else of
    this training is left. Its features are those of evaluation: no random changes, images of the full size.

    Parameters
    ----------
    session : Session
        Of the run.
    field : str
        Of the run's recipe, that names the recipe of the head. A head start begins with a head of the recipe's own, a
        head finish goes on with the one that there is.
    trainer_options : mapping
        Of Lightning's trainer; the head is trained on one device.
    """
    setting, begun, words = session.setting, time.perf_counter(), field.replace("_", " ")
    given = f"{field}={getattr(setting.recipe, field)!r}"
    options = dict(trainer_options) | {"devices": 1, "strategy": "auto", "sync_batchnorm": False}
    setting.network.to(session.place_by(options))
    try:
        with counted(f"{words}: features", session.console, shown=session.progress) as report:

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
            head = _head_setting(setting, setting.head_recipes[field], rows)
        if field == "head_finish":
            head.network.head.load_state_dict(setting.network.head.state_dict())
        inner = Session(
            session.folder,
            head,
            None,  # no checkpoints: those of the run have the network that it is a part of
            None,
            session.progress,
            keep_files=False,
            signals=session.signals,
            title=f"{words}: {session.title}",
        )
        inner.fit(options)
    except FloatingPointError as error:
        raise TrainingError(f"{given}: {error}; check its weights") from error
    except TrainingError as error:
        raise TrainingError(f"{given}: {error}") from error
    setting.network.head.load_state_dict(inner.module.network.head.state_dict())
    last = inner.recorder.last
    assert last is not None
    session.note_head(
        field,
        {
            "steps": inner.module.n_steps,
            "seconds": round(time.perf_counter() - begun, 3),
            "validator": head.recipe.select,
            "score": last.score,
            "accuracy": last.accuracy,
            "notes": inner.recorder.notes,
        },
    )
