"""A recipe: everything that decides how a network is trained, as one flat YAML file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from bures.files import write_text
from bures.methods import Method, make_method, method_names, method_options
from bures.selection import DEFAULT_VALIDATOR, Validator, make_validator, validator_names
from bures.training._augment import AUGMENTATIONS
from bures.training._recipe_ranges import check_ranges
from bures.training._recipe_values import read_epoch, read_field, read_options, read_validators
from bures.training._sizes import network_for, stored_side

__all__ = ["Recipe"]

CHOICES: dict[str, tuple[str, ...]] = {
    "augment": tuple(AUGMENTATIONS),
    "backbone_batchnorm": ("training", "frozen"),
    "evaluation_batchnorm": ("auto", "training", "target"),
    "head": ("bottleneck", "linear"),
    "optimiser": ("adam", "adamw", "sgd"),
    "precision": ("32-true", "bf16-mixed", "64-true"),
    "schedule": ("constant", "inverse", "cosine"),
    "second_view": tuple(AUGMENTATIONS),
}
EPOCHS = ("shorter", "longer")
ALL = "all"
PARTICULAR = ("options", "epoch", "validators")  # fields that are read in their own way


@dataclass(frozen=True, kw_only=True)
class Recipe:
    r"""How a network is trained. Every field has a default; a YAML file names those that differ.

    Parameters
    ----------
    method : str
        One of `bures.methods.method_names`.
    options : mapping
        Options of the method, see `bures.methods.method_options`. Options that only other methods have are ignored:
        a recipe serves several methods.
    label_smoothing : float
        Of the cross-entropy on the source.
    consistency : float
        Weight of a further term: predictions of a second view of each target image, changed at random once more, agree
        with those of the first. It needs images, an ``augment``, and a method that sees the target.
    consistency_threshold : float
        Only images whose first view gives a class at least this probability count in that term.
    second_view : str, optional
        Random changes of the second view, such as "crop-colour" where ``augment`` is "crop"; None is ``augment``.
    network : str
        "lenet", "identity" (feature vectors), a torchvision or timm model, or "auto": by the shape of the samples.
    weights : path, optional
        File of the backbone's weights; commands look for a relative path in the folder of the data sets too. None
        trains from random weights, or downloads where ``download_weights`` says.
    download_weights : bool
        Whether torchvision or timm may download the backbone's weights.
    head, hidden, features
        Of the head, see `bures.networks.build_network`.
    norm : str, optional
        Normalisation layers of LeNet.
    image_size : int, optional
        Side of the images the network sees. None is the backbone's own, for LeNet that of the data.
    stored_size : int, optional
        Side to which images are warped when they are read; a window of ``image_size`` is cut from them. None is 256
        for a network that sees 224, in this ratio for other sizes of pretrained backbones, and ``image_size`` else.
    training_size : int, optional
        Side to which the images of training steps are scaled when ``augment`` changes them; None is ``image_size``. A
        step costs as much as its pixels, and objects in a window on a part of the picture are enlarged: on somewhat
        smaller training images they have the size that they have at evaluation.
    backbone_batchnorm : {"training", "frozen"}
        Whether BatchNorm of the backbone follows the batches or keeps the statistics of the weights file.
    frozen_stages : int
        Stages of a ResNet that keep the weights of the file: 1 is the stem and ``layer1``, 2 is ``layer2`` too, and so
        on. A backward pass ends behind them: steps are faster and take less memory. Their BatchNorm has fixed weights,
        too, while its statistics are a matter of ``backbone_batchnorm``.
    head_start : str, optional
        Name or YAML file of a recipe for features (``network: identity``) by which the head alone is trained first, on
        features that the backbone gives at evaluation; then the whole network is trained by this recipe. Method, head,
        seed and held-out samples are those of this recipe, batches, length, optimiser and the method's options those of
        the other. None begins with a random head.
    head_finish : str, optional
        Name or YAML file of such a recipe by which the head alone is trained on when the training of the whole network
        is over, on features of the backbone as it is then. The result is that of the network behind it.
    batch_size : int
        Samples of each domain in a step, over all devices.
    epochs : int
        How long to train.
    epoch : {"shorter", "longer"} or int
        An epoch is one pass over the shorter or the longer domain, or this many steps.
    queue : int
        Samples of each domain from earlier steps that join the batch in the alignment terms, with their features and
        predictions of then. For batches that are small beside the number of classes. The gradient flows through the
        batch alone.
    queue_predictions : bool
        The queue also joins the batch in the terms on the target's predictions as a whole (``diversity``,
        ``confusion``, ``neighbours``, those of `mcc` and `bnm`): 32 predictions say little about how 65 classes are
        confused, and samples without one of their class among them have no neighbour worth following. Their
        gradient through the batch is scaled up to what it would be for as many new predictions.
    queue_full_gradient : bool
        The same for the terms that compare domains: their gradient through the batch is scaled up to what it would be
        if all samples that they see were new. Without it they pull at a sample the less, the longer the queue is: with
        batches of 32 and a queue of 1024, with a 33rd of the weight that they have without a queue.
    class_balanced : bool
        Draw source samples so that classes are equally frequent.
    augment : str
        Random changes of training images, see `bures.training.AUGMENTATIONS`.
    joint_forward : bool
        Forward both domains as one batch. Else one after the other, so that BatchNorm sees each domain by itself.
    compile : bool
        Compile the backbone on a GPU: steps are faster, the first one takes about a minute. Frozen BatchNorm becomes a
        part of the convolutions. Where it cannot be compiled a warning says why and it runs as it is.
    cuda_graphs : bool
        On one GPU, capture forward and backward pass of a step as a CUDA graph and replay it, where all terms of the
        method allow it: most networks wait for launches otherwise. Not in float64. With a ``queue``, once it is full.
    optimiser : {"adam", "adamw", "sgd"}
        With ``lr``, ``weight_decay``, and for SGD ``momentum`` and ``nesterov``.
    backbone_factor, head_factor : float
        The learning rates of backbone and head are ``lr`` times these.
    schedule : {"constant", "inverse", "cosine"}
        The learning rate after i steps is multiplied by 1, by :math:`(1 + \gamma i)^{-p}` with ``schedule_gamma`` and
        ``schedule_power``, or by half a period of a cosine that ends at zero.
    gradient_clip : float, optional
        Largest norm of the gradient.
    precision : {"32-true", "bf16-mixed", "64-true"}
        Arithmetic of the network. The losses always run in float32 at least.
    evaluation_batchnorm : {"auto", "training", "target"}
        Evaluate with the running statistics of training, or with statistics of the target estimated anew. "auto" takes
        those of the target where training normalises target batches by themselves: the running statistics are then a
        mixture of two domains, which no batch ever had.
    select : str
        Validator whose score, larger for the better model without target labels, decides which epoch is the best: one
        of `bures.selection.validator_names`. The default, `bures.selection.DEFAULT_VALIDATOR`, is what the published
        study speaks for.
    validators : sequence of str, or "all"
        Validators whose scores go into the log after every epoch, in columns ``score_NAME``. "all" are those that the
        held-out samples allow.
    source_holdout : float
        Share of each class of the source that is held out from training, for validators and temperatures that need
        labelled samples the network has not seen.
    seed : int
        Of weights, order of samples, augmentation, dropout and held-out samples.

    Examples
    --------
    >>> from bures.training import Recipe
    >>> recipe = Recipe(method="ckw", options={"entropy": 0.05}, epochs=5)
    >>> recipe.override({"lr": "3e-4"}).lr
    0.0003
    """

    method: str = "ckb"
    options: Mapping[str, Any] = field(default_factory=dict)
    label_smoothing: float = 0.0
    consistency: float = 0.0
    consistency_threshold: float = 0.0
    second_view: str | None = None

    network: str = "auto"
    weights: str | None = None
    download_weights: bool = False
    head: str = "bottleneck"
    hidden: int = 1024
    features: int = 512
    norm: str | None = None
    image_size: int | None = None
    stored_size: int | None = None
    training_size: int | None = None
    backbone_batchnorm: str = "training"
    frozen_stages: int = 0
    head_start: str | None = None
    head_finish: str | None = None

    batch_size: int = 128
    epochs: int = 20
    epoch: str | int = "shorter"
    queue: int = 0
    queue_predictions: bool = False
    queue_full_gradient: bool = False
    class_balanced: bool = False
    augment: str = "none"
    joint_forward: bool = False
    compile: bool = False
    cuda_graphs: bool = True

    optimiser: str = "adam"
    lr: float = 1e-3
    backbone_factor: float = 1.0
    head_factor: float = 1.0
    weight_decay: float = 0.0
    momentum: float = 0.9
    nesterov: bool = True
    schedule: str = "constant"
    schedule_gamma: float = 1e-3
    schedule_power: float = 0.75
    gradient_clip: float | None = None
    precision: str = "32-true"

    evaluation_batchnorm: str = "auto"
    select: str = DEFAULT_VALIDATOR
    validators: Sequence[str] = ()
    source_holdout: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            object.__setattr__(self, name, read_field(name, getattr(self, name), kind))
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:  # where None is no choice, it was refused above
                raise ValueError(f"{name}={value!r} is unknown; accepted are {', '.join(choices)}")
        if self.epoch not in EPOCHS:
            object.__setattr__(self, "epoch", read_epoch(self.epoch))
        object.__setattr__(self, "options", read_options(self.options))
        object.__setattr__(self, "validators", read_validators(self.validators))
        check_ranges(self)
        self._check_options()
        self._check_validators()

    def _check_options(self) -> None:
        known = {option for name in method_names() for option in method_options(name)}
        if unknown := [option for option in self.options if option not in known]:
            raise ValueError(f"no method has an option {unknown[0]!r}; accepted are {', '.join(sorted(known))}")
        try:
            self.build_method()
        except TypeError as error:  # a number that is none, a name that is none
            raise ValueError(f"options={self.options!r} does not fit method {self.method!r}: {error}") from error

    def _check_validators(self) -> None:
        for field_name, names in (("select", (self.select,)), ("validators", self.validators)):
            for name in names:
                if name not in validator_names() and (field_name, name) != ("validators", ALL):
                    accepted = ", ".join([*validator_names(), *([ALL] if field_name == "validators" else [])])
                    raise ValueError(f"{field_name}={name!r} is unknown; accepted are {accepted}")
                if name != ALL and make_validator(name).needs_holdout and not self.source_holdout:
                    raise ValueError(
                        f"{field_name}={name!r} needs source samples that are held out from training; set "
                        "source_holdout to their share, such as 0.1"
                    )

    @property
    def logged_validators(self) -> tuple[str, ...]:
        """Names of the validators whose scores go into the log."""
        if ALL not in self.validators:
            return tuple(self.validators)
        return tuple(validator_names(holdout=self.source_holdout > 0))

    def build_validators(self) -> list[Validator]:
        """The validator that selects, followed by the others that are logged."""
        return [make_validator(name) for name in dict.fromkeys([self.select, *self.logged_validators])]

    def build_method(self) -> Method:
        """The method with those of the options that it has; the others are for methods to compare it with."""
        own = method_options(self.method)
        return make_method(self.method, **{name: value for name, value in self.options.items() if name in own})

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """The recipe with some fields changed; ``options.NAME`` is an option of the method."""
        known = {item.name for item in fields(self)}
        options = read_options(changes.get("options", self.options))
        own = method_options(changes.get("method", self.method))
        plain: dict[str, Any] = {}
        for name, value in changes.items():
            first, _, option = name.partition(".")
            if first == "options" and option:
                if option not in own:
                    method, accepted = changes.get("method", self.method), ", ".join(own) or "none"
                    raise ValueError(f"method {method!r} has no option {option!r}; accepted are: {accepted}")
                options[option] = value
            elif name not in known:
                raise ValueError(f"a recipe has no field {name!r}; accepted are {', '.join(sorted(known))}")
            elif name != "options":
                plain[name] = value
        return replace(self, **plain, options=options)

    @property
    def reading_size(self) -> int | None:
        """Side to which image files are warped when they are read, as far as the recipe alone decides it."""
        if self.stored_size is not None or self.image_size is None:
            return self.stored_size
        return stored_side(network_for(self.network, self.image_size), self.image_size)

    def locate_weights(self, data_root: str | Path | None) -> Recipe:
        """The recipe with a relative path of weights made one below ``data_root``, where the file lies there."""
        root = os.environ.get("BURES_DATA") if data_root is None else data_root
        if self.weights is None or not root or Path(self.weights).exists():
            return self
        found = Path(root) / self.weights
        return replace(self, weights=str(found)) if found.is_file() else self

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self) | {"options": dict(self.options), "validators": list(self.validators)}

    def to_yaml(self) -> str:
        """All fields as YAML, in order."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def save(self, path: str | Path) -> Path:
        """Write the recipe to a YAML file."""
        return write_text(path, self.to_yaml())


_KINDS: dict[str, str] = {item.name: str(item.type) for item in fields(Recipe) if item.name not in PARTICULAR}
